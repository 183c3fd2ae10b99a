"""The paper's experiments, on bicore's public names; not part of the wheel."""
