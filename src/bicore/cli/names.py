"""Words that help texts and defaults need before the library is loaded.

They are those of the library's own tables, which a test compares: a help text must not wait for
torch.
"""

from __future__ import annotations

#: ``bicore.evaluate.models.JUDGES``.
JUDGES = ("ridge", "logistic", "forest", "boosting", "knn", "mlp", "cnn")
#: Of ``bicore.memory.BUFFERS`` those that look at rows and labels only: a command has no model that
#: trains beside it.
BUFFERS = ("moments", "merge-reduce", "reservoir", "class-balanced", "prototypes")
#: Repetitions of a worth, and the largest random sample it judges.
SEEDS = 10
MOST = 10_000
#: Sizes compared when none are named.
DEFAULT_SIZES = "10,50,100"
#: Methods compared when none are named: ours, chance, and well-known ones that need no model.
DEFAULT_METHODS = (
    "bilevel",
    "uniform",
    "class-balanced",
    "k-center-features",
    "herding-features",
    "facility-location",
)
#: Judges are trained on all of a pool of at most this many points without --everything: some of
#: them need a number for every pair.
MOST_WHOLE = 5000
#: Buffers compared when none are named, and what holds of their streams where nothing is said.
DEFAULT_BUFFERS = ("moments", "reservoir", "class-balanced", "merge-reduce")
CAPACITY = 50
POINTS = 5
BATCH = 125
