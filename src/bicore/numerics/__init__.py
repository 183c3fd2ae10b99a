"""Iterations that know nothing of coresets: each formula once, for whoever needs it."""
