"""Selection from rows that are never loaded whole."""
