"""Names of version 0.2 work with a warning, and unknown ones name the nearest."""

import importlib
import re
import sys
import warnings
from contextlib import suppress

import numpy as np
import pytest

import bicore
from bicore import BilevelSelector, Dataset
from bicore._deprecated import KEYWORDS, MODULES, NAMES, REMOVED
from bicore.active import query
from bicore.cli.app import REMOVED as REMOVED_OF_COMMAND
from bicore.cli.app import rename_options
from bicore.errors import InputError
from bicore.evaluate import Appraisal
from bicore.integrations.mammoth import Buffer
from bicore.integrations.sklearn import CoresetSampler
from bicore.integrations.torch import weighted_sampler
from bicore.kernels import RBF, TangentKernel, resnet18
from bicore.kernels.architecture import Dense
from bicore.methods import Exchange, KCenter, Stratified, Uniform, quality_curve
from bicore.moments.features import RandomReLU
from bicore.report.page_of_comparison import comparison_page
from bicore.shards import ShardEstimate
from bicore.sources import digits
from bicore.streaming import MergeReduce, MomentMemory, Reservoir, VariationalLearner, as_buffer
from tests import version_0_2
from tests.helpers import fails, refuses
from tests.parameters import callables, parameters

X = np.random.default_rng(0).normal(size=(40, 3))
Y = (X[:, 0] > 0).astype(int)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"seed": 3}, {"random_state": 3}),
        ({"weight": np.arange(40.0)}, {"sample_weight": np.arange(40.0)}),
        ({"weights": "binary"}, {"weighting": "uniform"}),
        ({"targets": "given"}, {"smooth_labels": False}),
        ({"large": "exact"}, {"exact": True}),
        ({"rng": 3}, {"random_state": 3}),
    ],
)
def test_keywords_of_version_0_2_mean_what_the_new_ones_mean(old, new):
    with pytest.warns(DeprecationWarning, match=f"{next(iter(new))}="):
        before = bicore.select(X, Y, 5, kernel="rbf", **old)
    after = bicore.select(X, Y, 5, kernel="rbf", **new)
    assert before.indices.tolist() == after.indices.tolist()


def test_constructors_data_sets_and_selectors_warn():
    with pytest.warns(DeprecationWarning, match="weighting='learned'"):
        assert BilevelSelector(weights="learnt") == BilevelSelector(weighting="learned")
    with pytest.warns(DeprecationWarning, match="sample_weight="):
        data = Dataset(X, Y, weight=np.ones(40))
    with pytest.warns(DeprecationWarning, match="Dataset.sample_weight"):
        assert data.weight is data.sample_weight
    with pytest.warns(DeprecationWarning, match="random_state="):
        found = Uniform().select(data, 3, rng=1)
    assert found.indices.tolist() == Uniform().select(data, 3, random_state=1).indices.tolist()


@pytest.mark.parametrize("make", [MomentMemory, MergeReduce, Reservoir, RandomReLU, as_buffer])
def test_every_random_state_was_called_seed(make):
    given = {MergeReduce: (Uniform(), 20), RandomReLU: (), as_buffer: ("moments", 20)}
    with pytest.warns(DeprecationWarning, match="use random_state="):
        assert make(*given.get(make, (20,)), seed=3).random_state == 3


def test_renamed_methods_serve_callers_and_subclasses():
    with pytest.warns(DeprecationWarning, match=r"use Kernel\.fit"):
        assert RBF().fitted(X) == RBF().fit(X)
    coreset = bicore.Coreset(np.array([4, 2]))
    with pytest.warns(DeprecationWarning, match=r"use Coreset\.with_details"):
        assert coreset.annotated(why="a test").info["why"] == "a test"
    with pytest.warns(DeprecationWarning, match=r"Own\.fitted is deprecated.*use fit"):

        class Own(RBF):
            def fitted(self, x):
                return RBF(3.0)

    assert Own().fit(X).gamma == 3.0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_subclasses_of_version_0_2_reach_the_method_above_them_by_super():
    class Wide(RBF):
        def fitted(self, x):
            return RBF(super().fitted(x).gamma / 2)

    class Wider(Wide):
        def fitted(self, x):
            return RBF(super().fitted(x).gamma / 2)

    assert Wide().fit(X).gamma == RBF().fit(X).gamma / 2
    assert Wider().fit(X).gamma == Wider().fitted(X).gamma == RBF().fit(X).gamma / 4


@pytest.mark.parametrize("name", ["selectors", "memory.replay", "compat.torch", "evaluate.samples"])
def test_packages_of_version_0_2_are_the_renamed_ones(name):
    with pytest.warns(DeprecationWarning, match="use bicore"):
        old = importlib.import_module(f"bicore.{name}")
    assert old is importlib.import_module(old.__name__)
    assert not old.__name__.startswith(f"bicore.{name}")


@pytest.mark.parametrize("package", NAMES)
def test_names_that_moved_are_found_with_a_warning(package):
    old = importlib.import_module(package)
    for name, new in NAMES[package].items():
        with pytest.warns(DeprecationWarning, match=f"use {new}"):
            found = getattr(old, name)
        module, _, attribute = new.rpartition(".")
        assert found is getattr(importlib.import_module(module), attribute)
        assert name not in getattr(old, "__all__", ())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("readme", ()),
        ("continual", ()),
        ("streaming", ("bicore.streaming",)),
        ("guide", ("bicore.kernels.RBF", "bicore.integrations", "sample_weight=", "weighting=")),
    ],
)
def test_code_of_version_0_2_runs(name, words, tmp_path):
    x, y = digits()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for module in [one for one in sys.modules if one.startswith(tuple(MODULES))]:
            del sys.modules[module]  # imported under its old name by another test
        getattr(version_0_2, name)(x[:150], y[:150], tmp_path)
    told = " ".join(str(one.message) for one in caught if one.category is DeprecationWarning)
    assert all(word in told for word in words), told


def test_options_of_the_command(capsys):
    words = ["select", "digits", "--large", "exact", "--weights", "learnt", "--size", "5"]
    new = ["select", "digits", "--exact", "--weighting", "learned", "--size", "5"]
    assert rename_options(words) == new
    assert capsys.readouterr().err.count("deprecated") == 2
    assert rename_options(["stream", "--rule", "gain"]) == ["stream", "--strategy", "gain"]
    assert rename_options(["select", "--rule", "gain"]) == ["select", "--rule", "gain"]
    assert rename_options(["worth", "--most", "50"]) == ["worth", "--max-rows", "50"]
    assert rename_options([]) == []


@pytest.mark.parametrize(
    ("make", "old", "new"),
    [
        (lambda value: Exchange(passes=value), "passes", "sweeps"),
        (lambda value: resnet18(scale=value), "scale", "multiplier"),
        (lambda value: TangentKernel([Dense()], scale=value), "scale", "multiplier"),
        (lambda value: RandomReLU(4, layers=value), "layers", "depth"),
        (lambda value: RandomReLU(4, scale=value), "scale", "entry"),
    ],
)
def test_words_with_two_meanings_have_two_names(make, old, new):
    with pytest.warns(DeprecationWarning, match=f"{new}="):
        found = make(2)
    assert getattr(found, new) == 2
    with pytest.warns(DeprecationWarning, match=f"{new}"):
        assert getattr(found, old) == 2


def test_memories_take_the_selector_second():
    for given, options in (((Uniform(), 6, 3), {}), ((Uniform(),), {"capacity": 6, "slots": 3})):
        with pytest.warns(DeprecationWarning, match="capacity, selector"):
            found = MergeReduce(*given, **options)
        assert (found.capacity, found.slots, found.selector) == (6, 3, Uniform())
    assert MergeReduce(6).selector == BilevelSelector() == bicore.ReplayMemory(6).selector


def test_other_words_with_a_second_meaning():
    with pytest.warns(DeprecationWarning, match="buffer="):
        assert len(Buffer(5, memory="reservoir")) == 0
    with pytest.warns(DeprecationWarning, match="max_size="):
        curve = quality_curve(BilevelSelector("rbf", inner_reg=0.1), Dataset(X, Y), largest=3)
    assert curve.sizes.tolist() == [1, 2, 3]
    with pytest.warns(DeprecationWarning, match="n_rows="):
        assert set(weighted_sampler(bicore.Coreset([3]), rows=4)) == {3}
    with pytest.warns(DeprecationWarning, match="prior_std="):
        VariationalLearner([3, 2], Uniform(), 5, prior=2.0)
    with pytest.warns(DeprecationWarning, match="metric="):
        bicore.compare(X, Y, [5], ["uniform"], 1, score="balanced")


def test_every_public_callable_takes_the_keywords_of_version_0_2():
    for call in callables().values():
        known = parameters(call)
        for old in {old for old, new in KEYWORDS if new in known} - set(known):
            told = pytest.warns(DeprecationWarning, match=f"{old}= is deprecated")
            with told, suppress(TypeError, InputError):
                call(**{old: None})


def test_two_names_for_one_argument_and_unknown_ones_are_refused():
    fails(TypeError, "old name of random_state", bicore.select, X, Y, 5, seed=1, random_state=1)
    refuses("Did you mean 'kernel'", bicore.select, X, Y, 5, kernal="rbf")
    refuses("size=5", bicore.select, Dataset(X, Y), 5)


@pytest.mark.parametrize("name", [one for one in REMOVED if one.startswith("bicore.")])
def test_removed_names_say_what_replaces_them(name):
    package, _, attribute = name.rpartition(".")
    with pytest.raises(ImportError, match="was removed") as caught:
        __import__(package, fromlist=[attribute])
    assert REMOVED[name] in str(caught.value)
    with pytest.raises(AttributeError, match="was removed") as missing:
        getattr(importlib.import_module(package), attribute)
    assert REMOVED[name] in str(missing.value)
    assert not hasattr(importlib.import_module(package), attribute)


CALLED = (Appraisal, CoresetSampler, KCenter, Stratified, bicore.select, comparison_page, query)


@pytest.mark.parametrize("name", [one for one in REMOVED if not one.startswith("bicore.")])
def test_removed_arguments_and_attributes_say_what_replaces_them(name):
    owner, _, attribute = name.partition(".")
    if owner == "ShardEstimate":
        fails(
            AttributeError,
            re.escape(REMOVED[name]),
            getattr,
            object.__new__(ShardEstimate),
            attribute,
        )
    else:
        (call,) = [one for one in CALLED if one.__name__ == owner]
        refuses(re.escape(REMOVED[name]), call, **{attribute: 1})


@pytest.mark.parametrize("name", REMOVED_OF_COMMAND)
def test_removed_verbs_and_options_say_what_replaces_them(name):
    refuses(REMOVED_OF_COMMAND[name], rename_options, name.split())
    assert rename_options(["show", "kernel"]) == ["show", "kernel"]
