"""The state of a selection in a folder: its sums and its points."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bicore import files
from bicore._deprecated import renamed_keywords
from bicore.data import Array
from bicore.errors import InputError
from bicore.moments.features import FeatureMap
from bicore.moments.features.registry import map_from_state, map_to_state
from bicore.moments.moments import Moments, Prior
from bicore.shards.counting import PartCounts
from bicore.types import PathLike

if TYPE_CHECKING:
    from bicore.moments.heads import Head

MOMENTS, POINTS = "moments.npz", "points.npz"
NOT_WRITTEN = "the state could not be written, and the previous one is intact"
COLUMNS = ("positions", "features", "targets")


@renamed_keywords()
def load_head(
    folder: PathLike,
    feature_map: FeatureMap | None = None,
    *,
    alpha: float | str = "auto",
    prior: Prior = "data",
) -> Head:
    """Load the ridge regression on all rows of a selection in passes.

    Parameters
    ----------
    folder : path
        The ``state`` folder of the selection.
    feature_map : FeatureMap, optional
        The feature map of the selection; required if it contains a network.
    alpha : float or "auto"
        Regularisation strength; "auto" uses generalised cross-validation.
    prior : {"data", "equal"} or mapping
        Class prior.

    Returns
    -------
    HeadClassifier or HeadRegressor
        A fitted model.

    Raises
    ------
    InputError
        If the sums in the folder are damaged, or were written by an earlier version.

    Examples
    --------
    >>> import tempfile
    >>> from bicore.shards import load_head, select_from_shards
    >>> from bicore.sources.opening import open_shards
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(90, 5)), np.arange(90) % 3
    >>> x[np.arange(90), y] += 3
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = select_from_shards(open_shards((x, y)), 9, state=folder)
    ...     load_head(folder).score(x, y) > 0.8
    True
    """
    from bicore.moments.heads import make_head  # imported late: scikit-learn takes time

    path = Path(folder) / MOMENTS
    header, arrays = files.read_state(path, "select(…, passes=True, state=…)")
    with files.refuse_damage(path, "this version"):
        fitted = map_from_state(header["map"], files.strip_prefix("map.", arrays), feature_map)
        moments, shift = Moments.from_state(header["moments"], arrays), header["shift"]
    origin = 0.0 if shift is None else np.array(shift)
    return make_head(moments, fitted, alpha=alpha, prior=prior, origin=origin)


class StateFolder(files.LockedFolder):
    """Files of a selection: always complete, and written by one process at a time.

    ``identity`` holds the facts that must match; the state of another selection is refused.
    """

    fix = "give another state folder"

    def __init__(self, path: PathLike, identity: dict[str, Any]) -> None:
        super().__init__(path)
        self.identity = identity

    def moments(self) -> PartCounts | None:
        """Read the result of the first pass; None before it."""
        saved = self._read(MOMENTS)
        if saved is None:
            return None
        header, arrays = saved
        moments = Moments.from_state(header["moments"], arrays)
        available: Counter[Any] = Counter(dict(header["available"]))
        return PartCounts(moments, header["bad"], header["longest"], available)

    def save_moments(self, counts: PartCounts, features: FeatureMap, shift: Array | None) -> None:
        assert counts.moments is not None
        values, arrays = counts.moments.to_state()
        map_values, map_arrays = map_to_state(features)
        header = {
            "moments": values,
            "bad": counts.bad,
            "longest": counts.largest_square,
            "available": list(counts.available.items()),
            "map": map_values,
            "shift": None if shift is None else shift.tolist(),
        }
        arrays |= {f"map.{name}": one for name, one in map_arrays.items()}
        self._write(MOMENTS, header, arrays)

    def points(self) -> tuple[list[tuple[int, Array, Array]], int, int] | None:
        """Read the points, each with its position, features and targets, and the numbers of passes
        and of certain picks; None before the first save."""
        saved = self._read(POINTS)
        if saved is None:
            return None
        header, arrays = saved
        positions, features, targets = (arrays[name] for name in COLUMNS)
        points = list(zip(positions.tolist(), features, targets, strict=True))
        return points, header["passes"], header["certain"]

    def save_points(self, columns: Iterable[Array], passes: int, certain: int) -> None:
        arrays = dict(zip(COLUMNS, columns, strict=True))
        self._write(POINTS, {"passes": passes, "certain": int(certain)}, arrays)

    def _read(self, name: str) -> tuple[dict[str, Any], dict[str, Array]] | None:
        path = self.path / name
        if not path.exists():
            return None
        header, arrays = files.read_state(path, "select")
        saved = header["named"]
        changed = [key for key, value in self.identity.items() if saved.get(key) != value]
        if changed:
            wrong = f"{self.path} holds a selection with a different {', '.join(changed)}"
            raise InputError(f"{wrong}; use the same source and options, or another folder.")
        return header, arrays

    def _write(self, name: str, header: dict[str, Any], arrays: dict[str, Array]) -> None:
        columns = {key: np.ascontiguousarray(one) for key, one in arrays.items()}
        path = self.path / name
        with files.explain_failed_writes(path, NOT_WRITTEN):
            files.write_state(
                path, {"format": files.FORMAT, "named": self.identity, **header}, columns
            )
