"""Doors into other libraries, one file each; none is imported unless asked for."""
