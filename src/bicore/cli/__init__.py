"""The command ``bicore``."""
