"""Rows in files and other sources: loaded as a data set, or selected from in passes over all rows.

An option means the same as for an array. Options without a meaning in passes are refused, with a
fix; features that replace a kernel are noted.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from bicore.arguments import as_seed
from bicore.bilevel.kernel_choice import AutomaticKernel
from bicore.coreset import Coreset
from bicore.data import Dataset
from bicore.errors import InputError, LargeDataWarning, MemoryLimitError, shown
from bicore.kernels.classical import RBF, Laplace, Linear
from bicore.losses import SquaredError
from bicore.methods.large import Estimate
from bicore.methods.names import as_kernel
from bicore.moments.features import FeatureMap, Nystrom, RandomFourier, RandomReLU
from bicore.moments.features.maps import Embedded, Rows
from bicore.params import is_same
from bicore.runtime.context import Runtime
from bicore.shards.request import estimate as estimate_passes
from bicore.shards.selection import select_from_shards
from bicore.sources.arrow_files import ArrowShards, ask_for_target, open_arrow
from bicore.sources.base import Source
from bicore.sources.opening import open_in_parts, open_shards, open_table, read_in_parts
from bicore.sources.parts import LazyRows, ShardSource, rows_of
from bicore.sources.reading import are_paths

#: Options of a selection in passes only, and those shared with others.
PASSES_ONLY = {"passes", "state", "executor", "skip_bad", "shortlist"}
SHARED = {"rule", "inner_reg", "prior", "intercept", "quotas"}
#: Options for reading a table, and for opening any source.
TABLE_OPTIONS = (
    *("scale", "drop", "drop_missing_target", "decimal", "missing", "encoding"),
    "embeddings",
)
OPENING = ("columns", "target", "labels", *TABLE_OPTIONS)
#: How to fix a request with an option that passes do not have.
_FIXES = {
    "loss": "passes support the squared error only: leave it out, or load a sample of the rows",
    "weighting": "leave it out, and learn weights of the selected rows with bicore.reweight",
    "smooth_labels": "passes use labels as given: leave it out",
    "task": "floats are targets and all other labels classes: convert the labels",
    "candidates": "every row is scored: leave it out",
}


@dataclass(frozen=True, eq=False)
class RowsInParts:
    """The rows of a request in a source, and the options of ``select``."""

    x: Any
    y: Any
    sample_weight: Any
    outer: Any
    options: dict[str, Any]

    @property
    def in_passes(self) -> bool:
        """Whether the request needs passes over all rows, by its options or its kernel."""
        kernel = self.options.get("kernel")
        return bool(PASSES_ONLY & set(self.options)) or isinstance(kernel, (FeatureMap, nn.Module))

    def read(
        self, runtime: Runtime, exact: bool
    ) -> tuple[Dataset, Any, dict[str, Any], tuple[str, ...]]:
        """Read the rows and the outer set; return them with the method's options and notes."""
        read = self._table(self.x, self.y, self.sample_weight, runtime)
        if read is not None:
            outer = self._outer_table(read, runtime)
        else:
            source, outer_source = self._open(runtime, labels=False)
            read = read_in_parts(source, runtime)
            outer = None if outer_source is None else rows_of(outer_source, runtime)
        if exact and isinstance(read.data.x, LazyRows):
            raise MemoryLimitError(
                f"exact=True needs all {len(read.data)} rows of {read.name} in memory, and they do "
                "not fit the limit; raise Runtime(memory=…), or give passes=True to select by "
                "passes over the rows in linear features."
            )
        return read.data, outer, self._method_options, read.notes

    def _table(
        self, x: Any, y: Any, sample_weight: Any, runtime: Runtime, skip: str = ""
    ) -> Source | None:
        """Load a table; return None for other rows."""
        given = {name: value for name, value in self._opening.items() if name != skip}
        found = open_table(x, y, sample_weight, memory=runtime.memory, **given)
        for name in TABLE_OPTIONS:
            if found is None and name in given:
                raise InputError(f"{name}={given[name]!r} is for tables only; leave {name} out.")
        return found

    def _outer_table(self, table: Source, runtime: Runtime) -> Any:
        """Return the outer set, encoded like the table; one that is no table as it is."""
        if self.outer is None or isinstance(self.outer, Dataset):
            return self.outer
        if isinstance(self.outer, tuple):
            x, y, weight = (*self.outer, None, None)[:3]
            outer = self._table(x, y, weight, runtime, skip="target")
        else:
            y, weight = (one if type(one) is str else None for one in (self.y, self.sample_weight))
            outer = self._table(self.outer, y, weight, runtime)
        return self.outer if outer is None else table.encode(outer)

    def select(
        self,
        size: Any,
        initial: Coreset | Sequence[int],
        seed: Any,
        runtime: Runtime,
        exact: bool,
        **others: Any,
    ) -> Coreset:
        """Select in passes; ``others`` are arguments that are refused unless they are unset."""
        _check_call(size, **others)
        features, options, notes = translate(self._method_options, as_seed(seed), exact)
        source, outer = self._open(runtime)
        for note in notes:
            warnings.warn(note, LargeDataWarning, stacklevel=3)
        coreset = select_from_shards(
            source,
            size,
            outer=outer,
            initial=initial,
            feature_map=features,
            runtime=runtime,
            **options,
        )
        return coreset.with_details({"notes": (*notes, *coreset.provenance.notes)})

    def estimate(self, size: Any, runtime: Runtime, exact: bool, method: Any) -> Estimate:
        """Estimate the cost of a selection in passes."""
        _check_call(size, method)
        features, options, notes = translate(self._method_options, 0, exact)
        for name in ("state", "executor"):
            options.pop(name, None)
        found = estimate_passes(
            self._open(runtime)[0], size, feature_map=features, runtime=runtime, **options
        )
        words = notes[0] if notes else None
        return Estimate(found.seconds, found.bytes, "moments", words, found)

    @property
    def _opening(self) -> dict[str, Any]:
        return {name: one for name, one in self.options.items() if name in OPENING}

    @property
    def _method_options(self) -> dict[str, Any]:
        return {name: one for name, one in self.options.items() if name not in OPENING}

    def _open(
        self, runtime: Runtime, labels: bool = True
    ) -> tuple[ShardSource, ShardSource | None]:
        """Open the rows and the outer set in parts; tables are encoded alike."""
        if labels and self.y is None:
            ask_for_target(self.x, self._opening.get("target"))
        if open_arrow(self.x) is None:
            table = self._table(self.x, self.y, self.sample_weight, runtime)
            if table is not None:
                outer = self._outer_table(table, runtime)
                return open_shards(table), None if outer is None else open_shards(outer)
        opened = open_rows(self.x, self.y, self.sample_weight, **self._opening)
        if self.outer is None:
            return opened, None
        if isinstance(self.outer, tuple):
            if len(self.outer) not in (2, 3):
                raise InputError(
                    "outer must be a tuple (x, y) or (x, y, sample_weight), a Dataset, or a "
                    f"source; got {len(self.outer)} values."
                )
            return opened, open_rows(*self.outer)
        outer = None
        if isinstance(opened, ArrowShards):
            outer = open_arrow(self.outer, encoder=opened.encoder)
        return opened, outer or open_shards(self.outer)


def open_rows(source: Any, y: Any = None, sample_weight: Any = None, **opening: Any) -> ShardSource:
    """Open a source as ``select`` gets it: labels of .npy files may be its second argument."""
    if y is not None:
        if opening.get("labels") is not None:
            raise InputError("y and labels mean the same; give one of them.")
        if are_paths(source) and not are_paths(y):
            raise InputError(f"y must be a path, because x is one; got {shown(y)}. Load x instead.")
        opening["labels"] = y
    return open_in_parts(source, {"sample_weight": sample_weight, **opening})


def translate(
    given: dict[str, Any], seed: int = 0, exact: bool = False
) -> tuple[FeatureMap | None, dict[str, Any], tuple[str, ...]]:
    """Return features, options and notes of a selection in passes, from options that were given.

    >>> translate({"kernel": "rbf"})[2]
    ("1024 random features replace kernel 'rbf': rows in parts are compared in features",)
    """
    options = dict(given)
    features, note = features_for(options.pop("kernel", None), seed)
    if note and exact:
        raise InputError(
            f"exact=True and {note}; leave exact out, use kernel='linear', or load the rows."
        )
    strategy = options.pop("strategy", "exchange")
    if strategy not in ("greedy", "exchange"):
        raise _no_meaning("strategy", strategy, "use 'greedy' or 'exchange', or leave it out")
    for name, usual in (("loss", SquaredError()), ("smooth_labels", False)):
        if name in options and is_same(options[name], usual):
            del options[name]
    for name, value in options.items():
        if name not in PASSES_ONLY | SHARED:
            raise _no_meaning(name, value, _FIXES.get(name, "leave it out"))
    options.pop("passes", None)
    options |= {"exact": exact, "exchange": strategy == "exchange"}
    return features, options, (note,) if note else ()


def _no_meaning(name: str, value: Any, fix: str) -> InputError:
    return InputError(f"{name}={value!r} does not apply to rows in parts; {fix}.")


def _check_call(size: Any, method: Any, model: Any = None, tolerance: float | None = None) -> None:
    """Refuse arguments of ``select`` that need all rows in memory."""
    if method != "bilevel":
        raise InputError(
            f"method={method!r} needs all rows in memory; leave it out, or load a sample of the "
            "rows."
        )
    if model is not None:
        raise _no_meaning("model", type(model).__name__, "use kernel=module to compare embeddings")
    if size == "auto" or tolerance is not None:
        raise InputError(
            "size='auto' and tolerance need all rows in memory; give a count or a fraction."
        )


def features_for(kernel: Any, seed: int) -> tuple[FeatureMap | None, str]:
    """Return the features that rows are compared in, and a note if they replace a kernel."""
    if isinstance(kernel, AutomaticKernel) and kernel.model != "any":
        raise _no_meaning("model", kernel.model, "leave it out")
    if kernel is None or kernel == "auto" or isinstance(kernel, AutomaticKernel):
        return None, ""
    if isinstance(kernel, FeatureMap):
        return kernel, ""
    if isinstance(kernel, nn.Module):
        return Embedded(kernel), ""
    found = as_kernel(kernel)
    if isinstance(found, Linear):
        return Rows(), ""
    features: FeatureMap
    if isinstance(kernel, str) and kernel.lower() in ("ntk", "nngp"):
        features = RandomReLU(random_state=seed)
    elif isinstance(found, RBF):
        features = RandomFourier(gamma=found.gamma, random_state=seed)
    elif isinstance(found, Laplace):
        features = RandomFourier(kind="laplace", gamma=found.gamma, random_state=seed)
    else:
        features = Nystrom(found, random_state=seed)
    if isinstance(features, Nystrom):
        count = f"{features.landmarks} landmarks among the first rows"
    else:
        count = f"{features.width} random features"
    name = f"kernel {kernel!r}" if isinstance(kernel, str) else found.name
    return features, f"{count} replace {name}: rows in parts are compared in features"
