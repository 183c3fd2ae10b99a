"""Memory that data of other libraries take on their way in: docs/other-libraries.md.

    python -m benchmarks integrations --json [--record]

A Hugging Face data set on disk, through ``from_hf`` and through Python lists; TF-IDF-like rows with
the linear and the RBF kernel. Each in a process of its own: the most anonymous memory beyond what
was there before, looked at every few milliseconds (pages of mapped files are not counted).
"""

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.common import report, run_python

#: Rows and columns of the embedding.
EMBEDDED = (100_000, 384)
#: Rows, columns and words of a row of the texts.
TEXTS = (5000, 100_000, 120)
SIZE = 50

WRITE = """
import datasets, numpy as np, pyarrow as pa
rows, columns = {shape}
x = np.random.default_rng(0).normal(size=rows * columns).astype(np.float32)
lists = pa.ListArray.from_arrays(np.arange(rows + 1, dtype=np.int32) * columns, pa.array(x))
table = pa.table({{"embedding": lists, "label": np.arange(rows) % 10}})
datasets.Dataset(table).save_to_disk({folder!r})
"""
FROM_HF = """
import datasets
from bicore.integrations.huggingface import from_hf
ds = datasets.load_from_disk({folder!r})
with Peak() as peak:
    data = from_hf(ds, x="embedding", y="label")
"""
LISTS = """
import datasets, numpy as np
from bicore import Dataset
ds = datasets.load_from_disk({folder!r})
with Peak() as peak:
    data = Dataset(np.array(ds.to_dict()["embedding"]), ds["label"][:])
"""
SPARSE = """
import numpy as np, scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfTransformer
from bicore import Runtime, select
rows, columns, words = {shape}
rng = np.random.default_rng(0)
y = rng.integers(0, 5, rows)
# Words as common as in a text, some of them those of a class.
places = rng.zipf(1.3, (rows, words)) + (rng.random((rows, words)) < 0.1) * y[:, None] * 97
pairs = (np.repeat(np.arange(rows), words), places.ravel() % columns)
x = TfidfTransformer().fit_transform(sp.csr_matrix((np.ones(rows * words), pairs), (rows, columns)))
runtime = Runtime(threads=1)
select(x[:200], y[:200], 5, kernel={kernel!r}, runtime=runtime)
with Peak() as peak:
    select(x, y, {size}, kernel={kernel!r}, runtime=runtime)
"""


def run(arguments: Any) -> dict[str, Any]:
    rows = []
    with tempfile.TemporaryDirectory() as place:
        folder = str(Path(place) / "embedded")
        run_python(WRITE.format(shape=EMBEDDED, folder=folder))
        for way, code in (("from_hf", FROM_HF), ("lists", LISTS)):
            rows.append({"way": way, "shape": EMBEDDED, **_measure(code.format(folder=folder))})
    for kernel in ("linear", "rbf"):
        code = SPARSE.format(shape=TEXTS, kernel=kernel, size=SIZE)
        dense = 8 * TEXTS[0] * TEXTS[1]
        rows.append({"way": kernel, "shape": TEXTS, "dense_bytes": dense, **_measure(code)})
    for row in rows:
        report(row)
    return {"rows": rows}


def _measure(code: str) -> dict[str, Any]:
    shown = "print(peak.bytes - peak.before, peak.seconds)"
    most, seconds = run_python(f"from benchmarks.common import Peak\n{code}{shown}").split()
    return {"peak_bytes": int(most), "seconds": round(float(seconds), 2)}
