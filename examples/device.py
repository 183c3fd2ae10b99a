"""A device that keeps learning: a stream, a power failure, a second device, a user who leaves.

python examples/device.py
"""

import tempfile
from pathlib import Path

import numpy as np

from bicore.sources import digits
from bicore.streaming import MomentMemory

x, y = digits()
test, first, second = x[1400:], np.arange(0, 800), np.arange(800, 1400)
folder = Path(tempfile.mkdtemp())
state = folder / "state.npz"


def report(step: str, memory: MomentMemory) -> None:
    """Print what the device knows and what it keeps."""
    memory.save(state)
    kept = memory.snapshot()
    print(
        f"{step:<34} accuracy {memory.head().score(test, y[1400:]):.3f}, "
        f"{memory.moments.weight:5.0f} rows learned, {len(kept.y)} kept, "
        f"{state.stat().st_size:,} bytes on disk"
    )


# 1. A stream of small batches, sorted by class: the worst order for a network.
memory = MomentMemory(capacity=30, feature_map="relu:256", holdout=False)
order = first[np.argsort(y[first], kind="stable")]
for batch in np.array_split(order[:400], 10):
    memory.update(x[batch], y[batch])
report("half of the stream", memory)

# 2. A power cut: only the file is left. The loaded memory goes on as if never stopped.
del memory
memory = MomentMemory.load(state)
for batch in np.array_split(order[400:], 10):
    memory.update(x[batch], y[batch])
report("the other half, after a power cut", memory)

# 3. A second device saw other rows. Both need one feature map; no row leaves a device.
other = MomentMemory(capacity=30, feature_map=memory.feature_map_, holdout=False)
for batch in np.array_split(second, 15):
    other.update(x[batch], y[batch])
memory.merge(other)
report("merged with a second device", memory)

# 4. A user leaves: rows are presented once more and subtracted.
user = second[:100]
memory.forget(x[user], y[user])
report("without the rows of one user", memory)
never = MomentMemory(capacity=30, feature_map=memory.feature_map_, holdout=False)
rest = np.setdiff1d(np.arange(1400), user)
never.update(x[rest], y[rest])
same = np.allclose(memory.head().predict_proba(test), never.head().predict_proba(test), atol=1e-6)
print(f"the same head as if these rows had never come: {same}")

# 5. The head alone is small enough to send.
memory.head().save(folder / "head.npz")
print(f"head: {(folder / 'head.npz').stat().st_size:,} bytes; rows: {x[:1400].nbytes:,} bytes")
