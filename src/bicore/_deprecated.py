"""Names of version 0.2 that still work, each with a warning; version 1.1 removes them."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

from bicore.errors import InputError, check_keywords, check_kinds

P = ParamSpec("P")
R = TypeVar("R")

#: The packages and modules of version 0.2 that have another name now.
MODULES = {
    "bicore.bilevel.aims": "bicore.bilevel.outer_targets",
    "bicore.compat": "bicore.integrations",
    "bicore.distributed": "bicore.shards",
    "bicore.evaluate.samples": "bicore.evaluate.models",
    "bicore.memory": "bicore.streaming",
    "bicore.selectors": "bicore.methods",
    "bicore.shards.estimating": "bicore.shards.request",
    "bicore.shards.sources": "bicore.sources",
}
#: Names that packages of version 0.2 exported: a package, the module that has them now, and the
#: names, with the new name after "=". A dot is bicore itself.
_MOVED = """
. bilevel PerPoint Relative
. evaluate Worth
. kernels Kernel Laplace Linear Normalised Nystrom Polynomial RBF TangentKernel
. losses CrossEntropy CustomLoss Logistic SquaredError
. methods Selector
. runtime.context Context
bilevel bilevel.problem Constant
bilevel bilevel.regularisation Automatic
bilevel bilevel.contract FirstOrder Gain Gradient ReducibleLoss Rule
bilevel bilevel.solvers.inner Adaptive
bilevel bilevel.weights WeightMode
evaluate evaluate.comparison Comparison findings_of Grid Stream StreamComparison
evaluate evaluate.models as_judge JUDGES LogisticJudge NearestJudge Sample
evaluate evaluate.pools make_pools
evaluate evaluate.records Records Row=Result summarise
evaluate evaluate.worth Equivalent
kernels kernels.architecture Erf GELU LeakyReLU ReLU
kernels kernels.architecture Conv Dense Flatten GlobalAverage Layer Residual
kernels kernels.base CallableKernel Intercept
kernels kernels.classical Exponential
methods bilevel.strategies.base Strategy
methods methods.baselines.base Embedding KernelSpace LastLayerGradients Predictions RawFeatures
methods methods.baselines.base Space
methods methods.quality_curve QualityCurve
moments moments.moments Moments Outer
moments moments.ridge Candidates FeatureRows FeatureState
moments.features moments.features.base UnitRows WithConstant
moments.features moments.features.maps Embedded RandomConvolutions RandomPooled Rows Standardised
moments.features moments.features.maps WhitenedPatches
moments.features moments.features.registry as_feature_map AutomaticFeatures FEATURES
moments.features moments.features.registry map_from_state map_to_state
networks networks.observe dropout_probabilities Observed
networks networks.problem FlatModule InverseHessian NetworkProblem NeumannSeries Rows
report . compare
report report.figures draw_curves draw_worth new_figure
report report.page_of_comparison comparison_page
runtime runtime.clock checkpoint Clock ProgressLine Step TimeOver unhurried=without_time_limit
runtime . Runtime
runtime runtime.context Context free_bytes human_bytes parse_bytes versions
runtime runtime.threads handed_out=run_in_threads narrow=single_thread wide=all_threads
shards shards.request estimate ShardEstimate
shards shards.executors Executor Threads
shards sources embedded=embed_to_folder open_shards ShardSource
sources sources embedded=embed_to_folder
methods methods trusted=exclude_suspect_labels
shards sources.parts Chunk DaskShards Part
sources sources.arrow_files HuggingFaceShards ParquetShards
sources sources.base Source
sources sources.numpy_files NpyShards NpzShards
sources sources.opening open_source
sources sources.parts ArrayShards checked=check_values Chunk DaskShards IterableShards Part Shard
streaming streaming.buffer Buffer StateFolder
streaming streaming.vcl VariationalFit
"""
NAMES: dict[str, dict[str, str]] = {}
for where, home, *names in map(str.split, _MOVED.strip().split("\n")):
    moved = NAMES.setdefault(f"bicore.{where}".rstrip("."), {})
    for old, _, new in (name.partition("=") for name in names):
        moved[old] = ".".join(part for part in ("bicore", home, new or old) if part != ".")
#: Names, arguments and attributes of version 0.2 that are gone, and what to do instead.
REMOVED = {
    "bicore.bilevel.Neumann": "use ConjugateGradient() or Cholesky()",
    "bicore.report.draw_rows": "draw the rows of x with matplotlib",
    "bicore.shards.Processes": "use threads (the default), or DaskExecutor with a LocalCluster",
    "bicore.shards.Way": "use workers, seconds and bytes of ShardEstimate",
    "Appraisal.keep": "give a bicore.sources.base.Source as x",
    "Appraisal.standardise": "give a bicore.sources.base.Source as x",
    "CoresetSampler.inner": "give selector=BilevelSelector(inner=…)",
    "CoresetSampler.linear": "give selector=BilevelSelector(linear=…)",
    "CoresetSampler.optimiser": "give selector=BilevelSelector(optimiser=…)",
    "KCenter.first": "give the first rows by initial=…",
    "ShardEstimate.as_dict": "use dataclasses.asdict(estimate)",
    "ShardEstimate.limit": "use Runtime.memory_bytes()",
    "ShardEstimate.taken": "use workers, seconds and bytes",
    "ShardEstimate.ways": "use workers, seconds and bytes",
    "Stratified.difficulty": "leave it out (difficulty is the error of the model)",
    "comparison_page.along": "leave it out (the comparison knows it)",
    "query.augmentations": "give selector=BilevelSelector(…)",
    "query.landmarks": "give selector=BilevelSelector(…)",
    "select.exchange": "use strategy='exchange' or 'greedy'",
}
#: Names of fields in files of version 0.2. Fingerprints in files are those of that version too, so
#: that such files are recognised.
OLD_FIELDS = {
    "anchors": "rows",
    "change_tolerance": "still",
    "cluster_weights": "counted",
    "cold_start": "cold",
    "depth": "layers",
    "entry": "scale",
    "fallback_reason": "untried",
    "gradient_tolerance": "flat",
    "multiplier": "scale",
    "random_state": "seed",
    "sample_weight": "weight",
    "smooth_labels": "targets",
    "sweeps": "passes",
}
#: Fields of version 0.2 that are gone, with their defaults and places in a fingerprint.
GONE_FIELDS = {"KCenter": (1, "'first':'random'"), "Stratified": (0, "'difficulty':'error'")}
#: Names of classes in fingerprints of version 0.2.
OLD_KINDS = {"UnsetRule": "OpenRule", "UnsetStrategy": "OpenStrategy", "UnsetTargets": "Open"}
#: Classes whose ``weighting`` was ``weights``, and the values of it in a fingerprint.
OLD_WEIGHTS = ("BilevelSelector", "NetworkSelector", "Reconstruction")
OLD_WEIGHTINGS = {
    "'uniform'": "'binary'",
    "<WeightMode.UNIFORM: 'uniform'>": "<WeightMode.BINARY: 'binary'>",
    "<WeightMode.LEARNED: 'learned'>": "<WeightMode.LEARNT: 'learnt'>",
    "'learned'": "'learnt'",
}
#: Keywords of version 0.2, and those that replace them in functions that have the new one alone.
KEYWORDS = (
    *(("seed", "random_state"), ("rng", "random_state"), ("weight", "sample_weight")),
    *(("weights", "weighting"), ("targets", "smooth_labels"), ("large", "exact")),
    *(("features", "columns"), ("features", "feature_map"), ("dask", "executor")),
    *(("context", "model"), ("context", "runtime")),
)
#: Values of keywords that have other names.
VALUES: dict[str, dict[Any, Any]] = {
    "weighting": {"binary": "uniform", "learnt": "learned"},
    "smooth_labels": {"given": False, "smoothed": True},
    "exact": {"approximate": False, "exact": True},
    "passes": {"auto": True, "exact": True},
}


def rename_fields(
    fields: Mapping[str, Any], known: Sequence[str] = ("random_state",)
) -> dict[str, Any]:
    """Return the fields of a saved configuration under their present names, given in ``known``."""
    present = {OLD_FIELDS[name]: name for name in known if name in OLD_FIELDS}
    return {present.get(name, name): value for name, value in fields.items()}


def describe_field(kind: str, name: str, text: str) -> str:
    """Return the part of a fingerprint for a field, as version 0.2 had it."""
    if name != "weighting":
        return f"{OLD_FIELDS.get(name, name)!r}:{text}"
    old = "weights" if kind in OLD_WEIGHTS else name
    return f"{old!r}:{OLD_WEIGHTINGS.get(text, text)}"


def warn(old: str, new: str, level: int = 3) -> None:
    """Warn that a name of version 0.2 is used."""
    message = f"{old} is deprecated and will be removed in version 1.1; use {new}."
    warnings.warn(message, DeprecationWarning, stacklevel=level)


class RenamedModules(MetaPathFinder, Loader):
    """Imports the packages of version 0.2 under their old names."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for an old name, nothing for others; say what replaces a removed one."""
        if name in REMOVED:  # ``from package import name`` looks here last
            raise ImportError(f"{name} was removed; {REMOVED[name]}.", name=name)
        return ModuleSpec(name, self) if self._rename(name) else None

    def exec_module(self, module: ModuleType) -> None:
        """Put the module of the new name in place."""
        name = module.__name__
        new = self._rename(name)
        assert new is not None
        warn(name, new)
        sys.modules[name] = import_module(new)

    @staticmethod
    def _rename(name: str) -> str | None:
        for old, new in MODULES.items():
            if name == old or name.startswith(f"{old}."):
                return new + name[len(old) :]
        return None


def find_moved(package: str, level: int = 3) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package for its names in version 0.2."""
    new_names = NAMES[package]

    def find(name: str) -> Any:
        if name not in new_names:
            fix = REMOVED.get(f"{package}.{name}")
            more = f": it was removed; {fix}." if fix else ""
            raise AttributeError(f"module {package!r} has no attribute {name!r}{more}")
        warn(f"{package}.{name}", new_names[name], level)
        module, _, new = new_names[name].rpartition(".")
        return getattr(import_module(module), new)

    return find


def renamed_keywords(
    values: Mapping[str, Mapping[Any, Any]] | None = None, **names: str
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Accept the keywords of version 0.2: ``old="new"``, and old values of a new keyword."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for old in names.keys() & kwargs.keys():
                new = names[old]
                if new in kwargs:
                    raise TypeError(f"{old}= is the old name of {new}=; give one of them.")
                warn(f"{old}=", f"{new}=")
                given = kwargs.pop(old)
                kwargs[new] = getattr(given, "runtime", given) if new == "runtime" else given
            for name in tables.keys() & known & kwargs.keys():
                given, table = kwargs[name], tables[name]
                if isinstance(given, str) and given in table:
                    warn(f"{name}={given!r}", f"{name}={table[given]!r}")
                    kwargs[name] = table[given]
                    if name == "passes" and given == "exact":
                        kwargs["exact"] = True
            called = type(args[0]) if function.__name__ == "__init__" else function
            for name in kwargs.keys() - known:
                if fix := REMOVED.get(f"{called.__qualname__}.{name}"):
                    raise InputError(f"{name}= of {called.__qualname__}() was removed; {fix}.")
            check_keywords(called.__qualname__, kwargs, known)
            if not hasattr(called, "fit"):  # estimators of scikit-learn check when they fit
                check_kinds({**dict(zip(places, args, strict=False)), **kwargs}, annotations)
            return function(*args, **kwargs)

        parameters = inspect.signature(function).parameters.values()
        places = [one.name for one in parameters if one.kind is not one.KEYWORD_ONLY]
        known = {one.name for one in parameters} - {"self"}
        annotations = {one.name: str(one.annotation) for one in parameters}
        for old, new in KEYWORDS:
            if new in known and old not in known:
                names.setdefault(old, new)
        tables = {**VALUES, **(values or {})}
        if any(one.kind is one.VAR_KEYWORD for one in parameters):
            raise TypeError(f"{function!r} takes any keyword; unknown ones cannot be refused")
        return call

    return decorate


def removed_attributes(kind: type[R]) -> type[R]:
    """Let a class say what replaces its removed attributes."""
    for name in REMOVED:
        owner, _, attribute = name.rpartition(".")
        if owner == kind.__name__:
            setattr(kind, attribute, _removed_attribute(name))
    return kind


def renamed_fields(
    values: Mapping[str, Mapping[Any, Any]] | None = None, **names: str
) -> Callable[[type[R]], type[R]]:
    """Accept keywords of version 0.2 in the constructor of a class, and old attributes."""

    def decorate(kind: Any) -> Any:
        kind.__init__ = renamed_keywords(values, **names)(kind.__init__)
        kind._renamed = names, values or {}
        for old, new in names.items():
            if not hasattr(kind, old):
                setattr(kind, old, _old_attribute(kind.__name__, old, new))
        return kind

    return decorate


def selector_second(kind: type[R]) -> type[R]:
    """Accept the order of version 0.2 in a constructor: ``(selector, capacity, …)``."""
    init = kind.__init__

    @wraps(init)
    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        if args and hasattr(args[0], "needs_labels"):
            name = kind.__name__
            warn(f"{name}(selector, capacity)", f"{name}(capacity, selector)")
            kwargs |= {"selector": args[0]} | ({"capacity": args[1]} if args[1:] else {})
            later = list(inspect.signature(init).parameters)[3:]
            args, kwargs = (), {**dict(zip(later, args[2:], strict=False)), **kwargs}
        init(self, *args, **kwargs)

    kind.__init__ = construct  # type: ignore[method-assign]
    return kind


def renamed_methods(**names: str) -> Callable[[type[R]], type[R]]:
    """Keep old names of methods and attributes, for callers and for subclasses that define them."""

    def decorate(kind: type[R]) -> type[R]:
        own = vars(kind).get("__init_subclass__")

        def adopt(cls: Any, /, **options: Any) -> None:
            if own is None:
                super(kind, cls).__init_subclass__(**options)
            else:
                own.__func__(cls, **options)
            for old in names.keys() & vars(cls).keys():
                if names[old] not in vars(cls):
                    warn(f"{cls.__name__}.{old}", names[old])
                    setattr(cls, names[old], vars(cls)[old])

        kind.__init_subclass__ = classmethod(adopt)  # type: ignore[assignment]
        for old, new in names.items():
            setattr(kind, old, _old_attribute(kind.__name__, old, new))
        return kind

    return decorate


def keep_old_names(package: str) -> None:
    """Keep the names of version 0.2 of a package, and let its classes suggest keywords.

    A ``__getattr__`` in the package itself would make any name known to a type checker.
    """
    public = vars(sys.modules[package])
    public["__getattr__"] = find_moved(package)
    for kind in [public[name] for name in public.get("__all__", ()) if name in public]:
        init = getattr(kind, "__init__", None)
        changed = not inspect.isfunction(init) or hasattr(init, "__wrapped__")
        if not changed and inspect.getfullargspec(init).varkw is None:
            renamed_fields()(kind)


def _removed_attribute(name: str) -> property:
    def read(self: Any) -> Any:
        raise AttributeError(f"{name} was removed; {REMOVED[name]}.")

    return property(read, doc="An attribute of version 0.2, which was removed.")


def _old_attribute(kind: str, old: str, new: str) -> property:
    def read(self: Any) -> Any:
        warn(f"{kind}.{old}", f"{kind}.{new}")
        # A subclass that defines the old name gets here by super(): go on above it.
        users = [cls for cls in type(self).__mro__ if vars(cls).get(old, found) is not found]
        return getattr(super(users[-1], self) if users else self, new)

    found = property(read, doc=f"The value of ``{new}``, under its name of version 0.2.")
    return found
