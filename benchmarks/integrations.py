"""Peak memory of reading data of other libraries: docs/other-libraries.md.

    python -m benchmarks integrations --json [--record]

A Hugging Face data set on disk, through ``from_hf`` and through Python lists; TF-IDF-like rows with
the linear and the RBF kernel. Each in a process of its own: the most anonymous memory beyond what
was there before, looked at every few milliseconds (pages of mapped files are not counted).
"""

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Peak, call_alone
from bicore import Dataset, Runtime, select
from bicore.integrations.huggingface import from_hf

#: Rows and columns of the embedding.
EMBEDDED = (100_000, 384)
#: Rows, columns and words of a row of the texts.
TEXTS = (5000, 100_000, 120)
SIZE = 50


def run(arguments: Any) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as place:
        folder = str(Path(place) / "embedded")
        call_alone(write_embedding, *EMBEDDED, folder)
        for way, read in (("from_hf", read_by_column), ("lists", read_lists)):
            yield {"way": way, "shape": EMBEDDED, **call_alone(measure_reading, read, folder)}
    for kernel in ("linear", "rbf"):
        found = call_alone(measure_texts, *TEXTS, kernel, SIZE)
        yield {"way": kernel, "shape": TEXTS, **found}


def write_embedding(rows: int, columns: int, folder: str) -> None:
    import datasets
    import pyarrow as pa

    x = np.random.default_rng(0).normal(size=rows * columns).astype(np.float32)
    lists = pa.ListArray.from_arrays(np.arange(rows + 1, dtype=np.int32) * columns, pa.array(x))
    table = pa.table({"embedding": lists, "label": np.arange(rows) % 10})
    datasets.Dataset(table).save_to_disk(folder)


def read_by_column(data: Any) -> Dataset:
    return from_hf(data, x="embedding", y="label")


def read_lists(data: Any) -> Dataset:
    return Dataset(np.array(data.to_dict()["embedding"]), data["label"][:])


def measure(work: Callable[[], Any]) -> dict[str, Any]:
    with Peak() as peak:
        work()
    return {"peak_bytes": peak.bytes - peak.before, "seconds": round(peak.seconds, 2)}


def measure_reading(read: Callable[[Any], Dataset], folder: str) -> dict[str, Any]:
    import datasets

    return measure(partial(read, datasets.load_from_disk(folder)))


def measure_texts(rows: int, columns: int, words: int, kernel: str, size: int) -> dict[str, Any]:
    from scipy.sparse import csr_matrix
    from sklearn.feature_extraction.text import TfidfTransformer

    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, rows)
    # Words as common as in a text, some of them those of a class.
    places = rng.zipf(1.3, (rows, words)) + (rng.random((rows, words)) < 0.1) * y[:, None] * 97
    pairs = (np.repeat(np.arange(rows), words), places.ravel() % columns)
    counts = csr_matrix((np.ones(rows * words), pairs), (rows, columns))
    x = TfidfTransformer().fit_transform(counts)
    options = {"kernel": kernel, "runtime": Runtime(threads=1)}
    select(x[:200], y[:200], 5, **options)
    return measure(partial(select, x, y, size, **options))
