"""Selectors: what chooses points."""
