"""Input: errors that name argument, value, bound and fix, and input that must work."""

import inspect

import numpy as np
import pandas as pd
import pytest
import torch

import bicore
from bicore import (
    BicoreError,
    BilevelSelector,
    Dataset,
    InputError,
    MemoryLimitError,
    MergeReduce,
    MomentMemory,
    ReplayMemory,
    Runtime,
    compare,
    estimate,
    influence,
    reweight,
    select,
)
from bicore.active import query
from bicore.bilevel import PerPoint, Relative
from bicore.data import join_datasets
from bicore.errors import check_integer, check_number
from bicore.files import fingerprint
from bicore.integrations.sklearn import CoresetSampler
from bicore.kernels import RBF, Linear
from bicore.methods import KCenter, Uniform, exclude_suspect_labels
from bicore.methods.registry import greedy_selector
from bicore.moments.heads import HeadClassifier
from bicore.runtime.context import human_bytes, parse_bytes
from bicore.shards import select_from_shards
from bicore.sources import digits, open_shards
from bicore.sources.parts import ArrayShards
from tests.helpers import blobs, line, refuses
from tests.marks import diagonal, except_slow

X = blobs().x
Y = blobs().y
OK = {"kernel": "rbf", "inner_reg": 0.1}


class LazyFrame:
    """A query of polars that did not run."""


def spoil(value, row=3, column=1, x=X):
    x = x.copy()
    x[row, column] = value
    return x


def bad(argument, *values, says=None, **others):
    """Values that ``select`` refuses in an argument, next to others; what the message names."""
    return [(argument, value, says or argument, others) for value in values]


GRAM = X @ X.T
STORED = {"kernel": "precomputed", "inner_reg": 0.1}
SMALL = {"y": [0, 1], "size": 1}
REFUSED = [
    *bad("size", 10**400, 0, 41, "ten", 1.5),
    *bad("size", 5, sample_weight=np.r_[np.ones(4), np.zeros(36)]),
    *bad("tolerance", "a", size="auto"),
    *bad("inner_reg", [1], 0.0, "big"),
    *bad("candidates", 0, 2.5),
    *bad("x", spoil(np.nan), spoil(np.inf), np.ma.masked_less(X, 0)),
    *bad("x", [["a"], ["b"]], np.array([["a"], [1]], dtype=object), **SMALL),
    *bad("x", [[1.0], [1.0, 2.0]], **SMALL),
    *bad("x", np.empty((0, 2)), y=[], says="at least one row"),
    *bad("x", Dataset(X, Y), says="which has its own"),
    *bad("sample_weight", np.ones(40), x=Dataset(X, Y), y=None, says="which has its own"),
    *bad("x", GRAM[:, :5], says="square", **STORED),
    *bad("x", GRAM + 9e3 * np.eye(40, k=1), says="not symmetric", **STORED),
    *bad("y", Y[:-1], np.zeros(40, int), np.stack([Y, Y], 1), spoil(np.nan)[:, 1]),
    *bad("y", [None, *["a"] * 39], pd.Series(["a", 1] * 20, dtype=object)),
    *bad("y", np.array(["2020-01-01"] * 40, dtype="datetime64[D]")),
    *bad("y", ["a"] * 40, loss="cross-entropy"),
    *bad("y", Y + 0.5, task="classification"),
    *bad("y", ["a", "b"] * 20, task="regression"),
    *bad("y", line().y, says="class labels", loss="cross-entropy"),
    *bad("kernel", "rfb", 3.0),
    *bad("loss", "crossentropy"),
    *bad("loss", lambda h, t: (h - t) ** 2, y=X[:, 0], says="single number"),
    *bad("outer_loss", "hinge"),
    *bad("outer_loss", "cross-entropy", y=Y % 2, loss="logistic", says="must be the same"),
    *bad("weighting", "learnd"),
    *bad("rule", "gains"),
    *bad("rule", "gain", inner_reg=PerPoint(0.1)),
    *bad("outer", X, (X[:, :2], Y), Dataset(X)),
    *bad("outer", (X, Y + 1), says="y"),
    *bad("sample_weight", np.r_[-1.0, np.ones(39)], np.zeros(40), np.ones(4)),
    *bad("initial", [0.7, 1.9], Y == 1, [40], [1, 1], [1, 2, 3, 4]),
    *bad("initial", select(X + 1, Y, 2, **OK), says="other data"),
    *bad("runtime", Runtime(device="gpu9"), says="device"),
    *bad("runtime", object(), "fast"),
    *bad("exact", object(), "no"),
    *bad("classes", 3),
    *bad("initial", 3),
    *bad("inner", object(), "newton"),
    *bad("linear", object(), "cg"),
    *bad("optimiser", object(), "adam"),
    *bad("y", LazyFrame(), says="y is a LazyFrame"),
    *bad("y", pd.array([None, *Y[1:]], dtype="Int64"), says="y has masked values"),
    *bad("y", pd.Series(["a", pd.NA] * 20), says="cannot be a label next to y"),
    *bad("x", pd.DataFrame(spoil(pd.NA, x=X.astype(object))).to_numpy(), says="x holds NA"),
]


@pytest.mark.parametrize(("argument", "value", "says", "others"), REFUSED)
def test_bad_input_is_refused_by_its_name(argument, value, says, others):
    given = {"x": X, "y": Y, "size": 3, **OK, **others, argument: value}
    with pytest.raises(InputError, match=rf"\b{says}\b") as caught:
        select(**given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "use",
    [
        lambda x: estimate(x, Y, 3),
        lambda x: MomentMemory(5).update(x, Y),
        lambda x: HeadClassifier().fit(x, Y),
        lambda x: HeadClassifier().fit(X, Y).predict(x),
        lambda x: CoresetSampler(5).fit(x, Y),
        lambda x: CoresetSampler(5).fit(X, np.ma.masked_equal(Y, 0)),
        lambda x: open_shards((x, Y)),
        lambda x: open_shards([(x, Y)]).parts,
    ],
)
def test_masked_values_are_refused_everywhere(use):
    with pytest.raises(InputError, match="has masked values; fill them"):
        use(np.ma.masked_less(X, 0))


def test_other_calls_name_their_arguments_too():
    refuses("test must be a tuple", compare, X, Y, sizes=[3], seeds=1, test=[X, Y])
    refuses("random_state", influence, X, Y, [1, 2], random_state="seven", **OK)
    refuses("methods='unifrom'.*'uniform'", compare, X, Y, sizes=[3], methods="unifrom")
    refuses("labels", select, X, None, 3, method="class-balanced")
    refuses("quotas needs labels", select, X, size=3, quotas="balanced")
    refuses("known classes", select, X, Y, 1.0, classes=[0])  # also where all rows are returned
    refuses("outer has rows", select, X, Y, 1.0, outer=(X[:, :1], Y))
    refuses("executor must be", select_from_shards, ArrayShards(X, Y), 3, executor=2)
    refuses("Its arguments: over, per_class[.]", KCenter, begin="central")
    refuses("start", reweight, X, Y, [1, 2], start=[1.0, -1.0], **OK)
    refuses("start has shape", reweight, X, Y, [1, 2], start=[1.0], **OK)
    refuses("indices", reweight, X, Y, [0, 40], **OK)
    refuses("dtype", Runtime, dtype="float16")
    refuses("threads", Runtime, threads=0)
    refuses("progress must be .*; got 'yes'", Runtime, progress="yes")
    refuses("x must be an array .*; got {'a': 1}", select, {"a": 1}, Y, 3)
    refuses("y must be an array .*; got 5", compare, X, 5, sizes=[3])
    refuses("Uniform.* has no argument 'a'. Its arguments: none", Uniform, a=1)
    refuses("BilevelSelector has no option 'kern'.*'kernel'", BilevelSelector().set_params, kern=1)
    refuses("mean the same", select, pd.DataFrame({"a": X[:, 0], "b": Y}), Y, 3, target="b")
    refuses("max_seconds", Runtime, max_seconds=0)
    refuses("ids", Dataset, X, Y, ids=[0] * 40)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_an_absent_gpu_is_named():
    refuses("torch finds no GPU", select, X, Y, 3, runtime=Runtime(device="cuda"), **OK)


def test_a_gpu_beyond_those_there_are_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(InputError, match="device='cuda:7'"):
        _ = Runtime(device="cuda:7").torch_device
    assert Runtime(device="cuda:0").torch_device.index == 0


@pytest.mark.slow
def test_image_kernels_take_smaller_blocks_before_they_are_refused():
    data = Dataset(np.random.default_rng(0).normal(size=(300, 1, 6, 6)), np.arange(300) % 3)
    selector = greedy_selector(kernel="cntk", inner_reg=0.1)
    whole, blocked = (
        selector.select(data, 2, runtime=Runtime(memory=memory)) for memory in (None, "1MB")
    )
    assert (whole.details["operator"], blocked.details["operator"]) == ("gram", "blocked")
    assert whole.indices.tolist() == blocked.indices.tolist()
    with pytest.raises(MemoryLimitError, match="needs at least"):
        selector.select(data, 2, runtime=Runtime(memory="50KB"))


def test_a_stored_matrix_counts_where_it_must_be_copied():
    x = np.random.default_rng(0).normal(size=(60, 4))
    data = Dataset(x @ x.T, np.arange(60) % 2)
    selector = greedy_selector(kernel="precomputed", inner_reg=0.1)
    # 28.8 kB, but used where it lies
    assert len(selector.select(data, 3, runtime=Runtime(memory="25KB"))) == 3
    with pytest.raises(MemoryLimitError, match="a stored 60 × 60 matrix needs"):
        selector.select(data, 3, runtime=Runtime(memory="15KB", dtype="float32"))
    with pytest.raises(MemoryLimitError, match="a stored 60 × 60 matrix needs"):
        selector.select(data, 3, runtime=Runtime(memory="1KB"))


def test_memory_is_predicted_before_it_is_allocated():
    """n = 100 000: a stored Gram matrix would take 80 GB, so products are blocked; below what those
    need, an error."""
    x = np.zeros((100_000, 2))
    x[:, 0] = np.arange(100_000)
    y = x[:, 0] % 2 == 0
    with pytest.raises(
        MemoryLimitError,
        match=r"at least .* MB in addition to the data, and the limit is 1 MB .*80 GB",
    ):
        select(x, y, 100, runtime=Runtime(memory="1MB"), exact=True, method="bilevel-ntk", **OK)


def test_sizes_of_memory():
    assert parse_bytes("1.5 GB") == 1_500_000_000
    assert parse_bytes("2kB") == 2000
    assert parse_bytes(10) == 10
    assert human_bytes(8e10) == "80 GB"


BASE = select(X, Y, 6, **OK).indices.tolist()


def freeze(array):
    array = array.copy()
    array.setflags(write=False)
    return array


SAME = {
    "lists": (X.tolist(), Y.tolist()),
    "tensors": (torch.from_numpy(X), torch.from_numpy(Y)),
    "gradient-tracking tensors": (torch.from_numpy(X).requires_grad_(), torch.from_numpy(Y)),
    "frames": (pd.DataFrame(X, columns=list("abcd")), pd.Series(Y)),
    "object frame": (pd.DataFrame(X).astype(object), pd.Series(Y).astype(object)),
    "read-only": (freeze(X), freeze(Y)),
    "not contiguous": (np.asfortranarray(X), np.repeat(Y, 2)[::2]),
    "reversed views": (X[::-1][::-1], Y[::-1][::-1]),
    "strings": (X, np.array(["ant", "bee", "cat"])[Y]),
    "string series": (X, pd.Series(np.array(["ant", "bee", "cat"])[Y])),
    "categories": (X, pd.Series(np.array(["ant", "bee", "cat"])[Y]).astype("category")),
    "labels with gaps": (X, Y * 7 - 3),
    "unsigned labels": (X, Y.astype(np.uint8)),
    "label column": (X, Y[:, None]),
    "big-endian": (X.astype(">f8"), Y.astype(">i8")),
    "long doubles": (X.astype(np.longdouble), Y),
}


@pytest.mark.parametrize("name", SAME)
def test_the_same_data_in_any_form_gives_the_same_answer(name):
    x, y = SAME[name]
    as_given = {"scale": "none"} if "frame" in name else {}
    coreset = select(x, y, 6, **OK, **as_given)
    assert coreset.indices.tolist() == BASE
    assert coreset.provenance.task == "classification"


WORKS = {
    "one point": (np.ones((1, 2)), [1], 1),
    "all points": (X, Y, 40),
    "duplicates": (np.repeat(X[:5], 8, axis=0), np.repeat(Y[:5], 8), 12),
    "all rows equal": (np.ones((10, 3)), [0, 1] * 5, 4),
    "constant feature": (np.c_[X, np.ones(40)], Y, 5),
    "one feature": (X[:, 0], Y, 5),
    "float16": (X.astype(np.float16), Y, 5),
    "integers": ((X * 10).astype(np.int32), Y, 5),
    "booleans": (X > 0, Y, 5),
    "boolean labels": (X, Y > 0, 5),
    "rare class": (X, np.r_[0, np.ones(39, int)], 5),
    "one target": (X, X[:, 0], 5),
    "many targets": (X, X, 5),
    "fraction": (X, Y, 0.1),
}


@pytest.mark.parametrize("loss", ["squared", "cross-entropy"])
@pytest.mark.parametrize("reg", [0.1, "auto"])
@pytest.mark.parametrize("name", WORKS)
def test_unusual_input_simply_works(name, reg, loss):
    x, y, size = WORKS[name]
    if loss == "cross-entropy" and "target" in name:
        pytest.skip("targets have no classes")
    coreset = select(x, y, size, kernel="rbf", inner_reg=reg, loss=loss)
    assert len(coreset) == (size if size >= 1 else 4)
    assert np.isfinite(coreset.objectives).all()
    assert coreset.status == "complete"


def test_images_run_with_the_convolutional_kernels():
    images = np.random.default_rng(0).normal(size=(12, 3, 8, 8))
    for name in ("cntk", "resnet18"):
        assert len(select(images, np.arange(12) % 2, 4, kernel=name)) == 4


def test_a_data_set_may_be_followed_by_the_size():
    assert select(Dataset(X, Y), size=6, **OK).indices.tolist() == BASE
    assert select(torch.from_numpy(X).to(torch.bfloat16), Y, 3, **OK).status == "complete"
    assert select(X, Y, 3, kernel="rbf", inner_reg=np.float32(0.1)).info[
        "inner_reg"
    ] == pytest.approx(0.1)


KERNELS = ["ntk", "nngp", "rbf", "linear", "polynomial", "laplace"]


@pytest.mark.parametrize(("kernel", "loss"), diagonal(KERNELS, ["squared", "cross-entropy"], 2))
def test_all_defaults_run_in_float32(kernel, loss):
    x, y = digits()
    coreset = select(
        x[:150], y[:150], 12, kernel=kernel, loss=loss, runtime=Runtime(dtype="float32")
    )
    double = select(
        x[:150], y[:150], 12, kernel=kernel, loss=loss, inner_reg=coreset.provenance.inner_reg
    )
    assert coreset.objective == pytest.approx(double.objective, rel=0.1)


def test_task_is_decided_by_the_kind_of_label_and_shown():
    assert select(X, Y, 2, **OK).provenance.task == "classification"
    assert select(X, Y.astype(float), 2, **OK).provenance.task == "regression"
    assert select(X, Y.astype(float), 2, task="classification", **OK).indices.tolist() == (
        select(X, Y, 2, **OK).indices.tolist()
    )
    assert "task=regression" in repr(select(X, Y.astype(float), 2, **OK))


def test_known_classes_allow_a_part_without_some_of_them():
    part = np.flatnonzero(Y == 0)
    coreset = select(X[part], Y[part], 3, classes=[0, 1, 2], loss="cross-entropy", **OK)
    assert coreset.provenance.classes == (0, 1, 2)


def test_data_slices_every_column_together():
    data = Dataset(X, Y, np.arange(1.0, 41), np.arange(100, 140))
    part = data[[5, 2]]
    assert (part.y.tolist(), part.sample_weight.tolist(), part.ids.tolist()) == (
        [Y[5], Y[2]],
        [6.0, 3.0],
        [105, 102],
    )
    np.testing.assert_array_equal(part.x, X[[5, 2]])
    assert len(data[:7]) == 7
    assert data[(5, 2)].fingerprint() == part.fingerprint()  # a tuple is rows, not a place
    assert data.fingerprint() != part.fingerprint()


EXTRA = {
    "logits": torch.ones(3, 2, dtype=torch.bfloat16, requires_grad=True),
    "half": np.ones((3, 1, 4), dtype=np.float16),
    "swapped": np.arange(3, dtype=">i4"),
    "long": np.arange(3, dtype=np.longdouble),
    "flag": [True, False, True],
    "bytes": np.array([b"a", b"bb", b"c"]),
    "objects": pd.Series(["a", "bb", "c"], dtype=object),
}


def test_extra_columns_are_sliced_with_their_rows_and_keep_their_kind():
    data = Dataset(np.arange(3.0), extra=EXTRA)
    kinds = {name: column.dtype.str[1:] for name, column in data.extra.items()}
    assert list(kinds.values()) == ["f4", "f2", "i4", "f8", "b1", "U2", "U2"]
    part = data[(2, 1)].with_columns(sample_weight=np.ones(2))
    assert part.extra["swapped"].tolist() == [2, 1]
    assert part.extra["bytes"].tolist() == ["c", "bb"]
    assert all(column.dtype.isnative for column in part.extra.values())
    assert part.extra["half"].shape == (2, 1, 4)
    assert part.with_columns(extra=None).extra is None
    assert Dataset([0.0], extra={}).extra is None


def test_extra_columns_name_no_data_and_no_configuration():
    """What was chosen from some data, or by some selector, is known by what decides."""
    plain = Dataset(np.arange(3.0), [0, 1, 0])
    more = Dataset(np.arange(3.0), [0, 1, 0], extra=EXTRA)
    assert more.fingerprint() == plain.fingerprint()
    assert fingerprint([more]) == fingerprint([plain])
    # as versions without extra columns had it: their state files are still read
    assert fingerprint([Dataset([[0.0], [1.0]], [0, 1])]) == "40edb1adb8e46a61"
    assert fingerprint([Dataset([[0.0], [2.0]], [0, 1])]) != "40edb1adb8e46a61"


def test_extra_columns_are_joined_by_name_and_text_is_not_cut():
    left = Dataset([0.0], extra={"word": ["a"], "depth": np.array([1], dtype=np.int8)})
    right = Dataset([1.0], ids=[1], extra={"depth": [300], "word": ["much longer"]})
    both = join_datasets(left, right)
    assert both.extra["word"].tolist() == ["a", "much longer"]
    assert both.extra["depth"].tolist() == [1, 300]


def test_an_extra_column_of_objects_is_refused_by_its_place():
    with pytest.raises(InputError, match=r"extra\['a'\]\[1\] = None cannot be a value next to"):
        Dataset([0.0, 1.0], extra={"a": np.array(["b", None], dtype=object)})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"x": np.array([[10**400], [1]], dtype=object)}, "x holds values that are not numbers"),
        ({"y": [2**70, 1]}, "y holds an integer beyond 64 bits"),
        ({"y": np.array([b"\xff", b"a"])}, "y holds bytes that are not UTF-8; give text"),
        ({"extra": {"a": [2**70, 1]}}, r"extra\['a'\] holds an integer beyond 64 bits"),
        ({"ids": np.array([2**63, 1], dtype=np.uint64)}, "ids holds 9223372036854775808; give"),
    ],
)
def test_values_that_no_column_can_hold_are_refused(arguments, words):
    with pytest.raises(InputError, match=words):
        Dataset(**{"x": [0.0, 1.0], **arguments})


def test_excluding_suspect_labels_keeps_extra_columns():
    x, y = np.r_[np.linspace(0, 1, 20), np.linspace(5, 6, 20)], np.repeat([0, 1], 20)
    data = Dataset(x, y, extra={"depth": np.arange(40)})
    kept = exclude_suspect_labels(data, BilevelSelector(kernel="rbf", inner_reg=0.1))
    assert kept.extra["depth"].tolist() == list(range(40))


def test_checks_return_valid_values():
    assert check_number("share", np.float32(0.5), above=0, below=1) == 0.5
    assert check_integer("folds", np.int64(3), 2, 3) == 3


@pytest.mark.parametrize("given", ["relative:0.1", Relative(0.1)])
def test_a_relative_regulariser_is_a_share_of_the_mean_of_the_diagonal(given):
    rng = np.random.default_rng(0)
    x = 3.0 * rng.normal(size=(60, 4))
    options = {"kernel": Linear(), "intercept": 0}
    found = select(x, x[:, 0] > 0, 5, inner_reg=given, **options)
    assert found.provenance.inner_reg == pytest.approx(0.1 * (x**2).sum(1).mean())
    for wrong in ("relative:", "relative:-1"):
        refuses("inner_reg", select, x, x[:, 0] > 0, 5, inner_reg=wrong, **options)


def remember(kind):
    """Make a memory and add rows to it."""

    def use(**options):
        memory = kind(**options)
        (memory.add_task if hasattr(memory, "add_task") else memory.update)(X, Y)

    use.__signature__ = inspect.signature(kind)
    return use


def configure(**options):
    BilevelSelector(**options).select(Dataset(X, Y), 3)


configure.__signature__ = inspect.signature(BilevelSelector)
PLAIN = {"kernel": RBF(0.3), "inner_reg": 0.1}
GIVEN = {"x": X, "y": Y, **PLAIN}
CHOSEN = {"capacity": 3, "selector": BilevelSelector(**PLAIN)}
#: Public calls, with arguments that work.
CALLS = {
    "select": (bicore.select, {**GIVEN, "size": 3}),
    "estimate": (bicore.estimate, {**GIVEN, "size": 3}),
    "reweight": (bicore.reweight, {**GIVEN, "indices": [1, 2]}),
    "influence": (bicore.influence, {**GIVEN, "coreset": [1, 2]}),
    "contexts": (bicore.contexts, {**GIVEN, "size": 3, "n_contexts": 2}),
    "query": (query, {"x_labelled": X[:9], "y_labelled": Y[:9], "x_pool": X[9:], "batch_size": 2}),
    "worth": (bicore.worth, {**GIVEN, "chosen": 3, "seeds": 2, "max_rows": 6}),
    "compare": (bicore.compare, {"x": X, "y": Y, "sizes": [3], "methods": ["uniform"], "seeds": 1}),
    "BilevelSelector": (configure, PLAIN),
    "MomentMemory": (remember(MomentMemory), {"capacity": 3}),
    "ReplayMemory": (remember(ReplayMemory), CHOSEN),
    "MergeReduce": (remember(MergeReduce), CHOSEN),
}
OF_EVERY_KIND = ([1, 2], ["a"], {"a": 1}, 3.5, -1, "wrong", True, None, object(), X[0], len)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", except_slow(CALLS, ["worth"]))
def test_values_of_any_kind_work_or_are_refused_in_one_line(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # names of files are allowed values
    call, given = CALLS[name]
    for argument in inspect.signature(call).parameters:
        for value in OF_EVERY_KIND:
            try:
                call(**{**given, argument: value})
            except Exception as error:
                known = isinstance(error, BicoreError) and "\n" not in str(error)
                if not known:
                    raise AssertionError(f"{name}({argument}={value!r})") from error


@pytest.mark.parametrize(
    ("name", "argument", "value", "words"),
    [
        ("compare", "methods", 3.5, "methods must be a list of names, .*; got 3.5"),
        ("compare", "methods", {"a": 1}, r"methods\['a'\] must be a selector; got 1"),
        ("compare", "judge", 3.5, "judge=3.5 is not known"),
        ("compare", "callback", 3, "callback must be a function .* a line of text; got 3"),
        ("compare", "callback", lambda run: None, "callback must be a function"),
        ("query", "pseudo_labels", 3, "pseudo_labels must be one label per row .*; got 3"),
        ("query", "pseudo_labels", "wrong", "pseudo_labels must be .*; got 'wrong'"),
        ("query", "pseudo_labels", lambda: Y[9:], "pseudo_labels must be .* a function"),
        ("estimate", "model", ["a"], "model must be a name such as"),
        ("worth", "judge", ["a"], r"judge=\['a'\] is not known"),
        ("select", "kernel", RBF, "kernel must be a name, a kernel such as"),
        ("select", "kernel", lambda row: row, "kernel must be .* or a function of two values"),
        ("select", "passes", True, "passes=True needs files, .* in parts.*leave passes"),
        ("select", "state", "folder", "state='folder' needs files, tables or data in parts"),
        ("reweight", "indices", 3.5, "indices must be a Coreset or row numbers; got 3.5"),
        ("BilevelSelector", "classes", 3.5, "classes must be a list of labels; got 3.5"),
        ("BilevelSelector", "inner", "newton", "inner must be a solver such as"),
    ],
)
def test_wrong_kinds_name_the_argument_the_value_and_the_kind(name, argument, value, words):
    call, given = CALLS[name]
    refuses(words, call, **{**given, argument: value})
