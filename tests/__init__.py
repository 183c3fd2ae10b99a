"""The tests. Every process computes on one thread, because two run at once."""

import os

# Set before NumPy and torch are imported; processes that a test starts inherit it.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

#: Seconds after which a process that should have ended counts as hung.
HANG = 600
