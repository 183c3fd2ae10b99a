"""Names and numbers in help texts, in a module without imports so that help is fast.

A test compares the names with their tables.
"""

#: Sizes and methods that ``compare`` compares by default.

SIZES = (10, 50, 100)
METHODS = (
    "bilevel",
    "uniform",
    "class-balanced",
    "k-center-features",
    "herding-features",
    "facility-location-per-class",
)
#: Memories that ``compare --stream`` compares by default.
MEMORIES = ("moments", "reservoir", "class-balanced", "merge-reduce")
#: Defaults of ``worth``: repetitions, and the largest random sample, which fits a small machine.
SEEDS, MAX_ROWS = 10, 10_000
#: All evaluation models.
JUDGES = ("ridge", "logistic", "forest", "boosting", "knn", "mlp", "cnn")
#: Memories that need no network.
BUFFERS = ("moments", "merge-reduce", "reservoir", "class-balanced", "prototypes")
#: Values of ``model=`` that name a kind of model.
MODELS = ("any", "linear", "trees", "neighbours", "network")
