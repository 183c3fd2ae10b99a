"""Tests."""

#: Seconds after which a process that should have ended counts as hung.
HANG = 600
