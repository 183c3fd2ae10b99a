"""Names and numbers that help texts show; they wait for no library.

Those of ``compare``: sizes, methods, and memories of a stream. Those of ``worth``: the number of
repetitions, and the largest random sample, whose kernel matrix fits a small machine. Then all
evaluation models, memories that need no network and kinds of models; a test compares them with
their tables.
"""

SIZES = (10, 50, 100)
METHODS = (
    "bilevel",
    "uniform",
    "class-balanced",
    "k-center-features",
    "herding-features",
    "facility-location-per-class",
)
MEMORIES = ("moments", "reservoir", "class-balanced", "merge-reduce")
SEEDS, MAX_ROWS = 10, 10_000
JUDGES = ("ridge", "logistic", "forest", "boosting", "knn", "mlp", "cnn")
BUFFERS = ("moments", "merge-reduce", "reservoir", "class-balanced", "prototypes")
MODELS = ("any", "linear", "trees", "neighbours", "network")
