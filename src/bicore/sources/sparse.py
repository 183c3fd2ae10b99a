"""Sparse matrices as scipy writes them: rows that are compressed, written out once they fit."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bicore.data import Array
from bicore.errors import InputError
from bicore.sources.reading import NUMBER, Reading

#: The arrays of ``scipy.sparse.save_npz``.
PARTS = ("data", "indices", "indptr", "shape", "format")


def dense(where: str, parts: Mapping[str, Array], reading: Reading) -> Array:
    """The matrix with its zeros; of its first rows where there is a limit."""
    from scipy.sparse import csr_array

    form = parts["format"].tobytes().decode("ascii", "replace").replace("\0", "")
    if form != "csr":
        raise InputError(
            f"{where} holds a sparse matrix by {form!r}; store it by rows: "
            "scipy.sparse.save_npz(file, matrix.tocsr())."
        )
    rows, width = (int(size) for size in parts["shape"])
    kept = min(rows, reading.limit or rows)
    what = f"{where}, a sparse matrix, written out as {kept}×{width} numbers,"
    reading.allowance.need(kept * width * NUMBER, what)
    matrix = csr_array((parts["data"], parts["indices"], parts["indptr"]), shape=(rows, width))
    matrix.check_format(full_check=True)  # places outside the matrix would be written to
    return np.asarray(matrix[:kept].toarray())
