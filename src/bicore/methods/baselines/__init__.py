"""Baselines: selectors with one rule and without an inner problem."""
