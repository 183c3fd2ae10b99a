"""The worth of chosen rows in random rows: closed-form cases, then evaluation models."""

import math
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch

import bicore
from bicore import BilevelSelector, Coreset, Dataset, InputError
from bicore.evaluate.models import Judge, RidgeJudge
from bicore.evaluate.records import Result
from bicore.evaluate.worth import (
    Appraisal,
    Curve,
    Equivalent,
    Simple,
    Verdict,
    Worth,
    random_sizes,
    search,
    worth_of_results,
)
from bicore.methods import Selector
from bicore.methods.registry import greedy_selector
from bicore.sources import digits
from bicore.sources.base import Source
from tests.helpers import blobs, line, refuses
from tests.marks import few

REPEATS = 100
SEEDS = 10


class Experiment:
    """Scores a − b/√rows with noise that falls alike, and a part that a seed's scores share."""

    def __init__(self, worth: int, repeat: int, one: bool = False, noise: float = 0.15) -> None:
        self.repeat, self.noise = repeat, noise
        rng = np.random.default_rng((repeat, 0))
        self.shared = 0.01 * rng.normal(size=SEEDS)
        luck = rng.normal() if one else rng.normal(size=SEEDS)
        self.chosen = self.mean(worth) + self.shared + noise / math.sqrt(worth) * luck
        self.judged: list[int] = []

    @staticmethod
    def mean(rows: int) -> float:
        return 1 - 1 / math.sqrt(rows)

    def random(self, rows: int):
        self.judged.append(rows)
        luck = np.random.default_rng((self.repeat, rows)).normal(size=SEEDS)
        return self.mean(rows) + self.shared + self.noise / math.sqrt(rows) * luck


@cache
def search_repeatedly(worth: int, one: bool = False, repeats: int = REPEATS):
    experiments = [Experiment(worth, repeat, one) for repeat in range(repeats)]
    return [search(50, 2000, each.chosen, each.random, one=one) for each in experiments]


def test_a_bump_is_noise():
    """Of differences that cross zero three times the middle crossing counts."""
    chosen = np.array([0.5, 0.75, 1.0])
    leads = {10: 0.125, 20: -0.0625, 40: 0.0625, 80: -0.125}  # no rounding anywhere
    curve = Curve(chosen, scores={size: chosen - lead for size, lead in leads.items()})
    assert curve.crossings() == pytest.approx((20, math.sqrt(20 * 40), 40))


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (50, 90, Verdict.ENOUGH),
        (51, 90, Verdict.MORE),
        (20, 50, Verdict.ENOUGH),
        (20, 49, Verdict.LESS),
        (0, math.inf, Verdict.ENOUGH),
    ],
)
def test_an_interval_includes_its_ends(low, high, verdict):
    assert Equivalent("uniform", 50, 50, low, high, (), (), ()).verdict is verdict


@pytest.mark.parametrize("worth", [17, 50, 64, 333, 1900])
def test_without_noise_the_worth_is_exact(worth):
    experiment = Experiment(worth, 0, noise=0.0)
    found = search(50, 2000, experiment.chosen, experiment.random)
    assert found.rows == pytest.approx(worth, rel=0.01, abs=1)
    assert found.low == pytest.approx(found.high, abs=1)


@pytest.mark.parametrize(("worth", "one"), few([(480, True), (120, False), (480, False)]))
def test_the_interval_covers_the_worth(worth, one):
    """Nineteen times in twenty, and it is no wider than it must be."""
    found = search_repeatedly(worth, one)
    covered = sum(each.low <= worth <= each.high for each in found)
    assert covered >= 0.92 * REPEATS
    assert np.median([each.rows for each in found]) == pytest.approx(worth, rel=0.08)
    widths = [each.high / each.low for each in found]
    assert np.median(widths) < (5 if one else 2)


@pytest.mark.slow
@pytest.mark.parametrize("one", few([False, True]))
def test_a_random_sample_is_worth_itself(one):
    verdicts = Counter(each.verdict for each in search_repeatedly(50, one))
    assert verdicts[Verdict.ENOUGH] >= 0.92 * REPEATS
    assert verdicts[Verdict.MORE] <= 0.06 * REPEATS


def test_worth_above_and_below_random_is_significant():
    assert {each.verdict for each in search_repeatedly(480, repeats=10)} == {Verdict.MORE}
    assert {each.verdict for each in search_repeatedly(16, repeats=10)} == {Verdict.LESS}


def test_more_than_all_rows():
    experiment = Experiment(10**6, 0)
    found = search(50, 2000, experiment.chosen, experiment.random)
    assert found.beyond
    assert found.verdict is Verdict.MORE
    assert str(found).startswith("2000 or more random ones")
    assert found.as_dict()["rows"] is None


def test_less_than_the_smallest_sample():
    experiment = Experiment(3, 0)
    found = search(50, 2000, experiment.chosen, experiment.random)
    assert (found.rows, found.verdict) == (0, Verdict.LESS)
    assert str(found).startswith("12 or fewer random ones")


def test_an_interval_may_be_open():
    found = [
        each
        for each in search_repeatedly(1900, repeats=20)
        if math.isinf(each.high) and not each.beyond
    ]
    assert found
    assert str(found[0]).endswith(f" (at least {found[0].low})")


@pytest.mark.parametrize(
    ("low", "rows", "high", "words"),
    [
        (0, 40, 60, "40 random ones (12 or fewer to 60)"),
        (0, 40, math.inf, "40 random ones (12 or fewer to 90 or more)"),
        (0, 0, 0, "12 or fewer random ones (95% sure)"),
    ],
)
def test_an_open_end_is_not_a_number(low, rows, high, words):
    found = Equivalent("uniform", 50, rows, low, high, (12, 90), (0.0,) * 2, (0.0,) * 2)
    assert str(found) == words


def test_an_interval_without_ends_gives_no_verdict_in_words():
    found = Equivalent("uniform", 50, 90, 0, math.inf, (12, 90), (0.0,) * 2, (0.0,) * 2)
    answer = Worth(50, (found,), 0.9, 0.1, "accuracy", "ridge", 3, "", 1)
    assert answer.conclusion == "more seeds or test rows are needed for an answer"


def test_only_sizes_near_the_crossing_are_judged():
    experiment = Experiment(200, 0)
    found = search(50, 10**6, experiment.chosen, experiment.random)
    assert len(random_sizes(50, 10**6)) > 30
    assert len(experiment.judged) <= 8
    assert len(set(experiment.judged)) == len(experiment.judged)  # none twice
    assert max(experiment.judged) <= 2 * found.high


def test_scores_that_never_move_are_no_advantage():
    found = search(10, 300, np.ones(5), lambda rows: np.ones(5))
    assert found.verdict is Verdict.ENOUGH
    assert found.low <= found.rows <= found.high == 300


class Spy(Judge):
    """A ridge judge that remembers what it was given."""

    name = "spy"

    def __init__(self) -> None:
        self.seen: list = []

    def tune(self, rows):
        self.ridge = RidgeJudge().tune(rows)
        return self

    def predictions(self, selections, test, outputs, seed):
        return self.ridge.predictions(selections, test, outputs, seed)

    def scores(self, selections, test, outputs, seed):
        self.seen.append((selections[0], test, seed))
        return self.ridge.scores(selections, test, outputs, seed)


class Watched(Selector):
    """A bilevel selector that remembers the rows it could see."""

    def __init__(self) -> None:
        self.seen: list = []

    def select(self, data, size, **options):
        self.seen.append(data.x)
        return greedy_selector("rbf", inner_reg=0.1).select(data, size, **options)


def rows_of(x) -> set[bytes]:
    return {row.tobytes() for row in np.asarray(x, np.float32)}


def test_selections_never_see_test_rows():
    data = blobs(120)
    judge, method = Spy(), Watched()
    found = bicore.worth(data, chosen=10, judge=judge, seeds=3, method=method)
    assert len(method.seen) == 3
    tests = {seed: test.x for _, test, seed in judge.seen}
    for seed, seen in enumerate(method.seen):
        assert len(seen) == 90
        assert not rows_of(seen) & rows_of(tests[seed])
    for sample, test, _ in judge.seen:
        assert not rows_of(sample.x) & rows_of(test.x)
    assert [number in found.how() for number in ("3 splits", "30 rows", "90")] == [True] * 3


def test_with_a_test_set_the_very_rows_are_judged_with_their_weights():
    data, test = blobs(120), blobs(70, seed=1)
    coreset = Coreset(np.array([5, 17, 40, 41, 88]), np.array([1.0, 2, 3, 4, 5]))
    judge = Spy()
    bicore.worth(data, chosen=coreset, test=test, judge=judge, seeds=3)
    sample, resampled, _ = judge.seen[0]
    assert np.allclose(sample.x, data.x[coreset.indices], atol=1e-6)
    assert np.allclose(sample.weight, np.arange(1, 6) / 3)
    assert len(resampled) == 70
    assert rows_of(resampled.x) < rows_of(test.x)  # drawn with replacement


def test_a_larger_random_sample_holds_the_smaller_ones():
    judge = Spy()
    data, test = line(120), line(70, seed=1)
    bicore.worth(data, chosen=list(range(8)), test=test, judge=judge, seeds=2)
    chosen, simple, *random = [sample for sample, _, seed in judge.seen if seed == 0]
    assert len(chosen) == len(simple) == 8
    assert len(random) > 2
    for smaller, larger in pairwise(sorted(random, key=len)):
        assert rows_of(smaller.x) < rows_of(larger.x)


@pytest.mark.slow
def test_random_picks_of_real_data_and_the_message():
    x, y = digits()
    picks = np.random.default_rng(3).choice(500, 30, replace=False)
    test = (x[500:700], y[500:700])
    found = bicore.worth(x[:500], y[:500], picks, test=test, judge="ridge", seeds=6)
    assert found.verdict is Verdict.ENOUGH
    assert str(found).startswith(f"30 rows are worth {found.rows} random ones ({found.low}–")
    assert str(found).endswith(": random is enough here")


class Nearest(Judge):
    """The class of the nearest row."""

    name = "nearest"

    def predictions(self, selections, test, outputs, seed):
        raise NotImplementedError

    def scores(self, selections, test, outputs, seed):
        found = [sample.y[torch.cdist(test.x, sample.x).argmin(1)] for sample in selections]
        return [float((guess == test.y).double().mean()) for guess in found]


def test_a_selection_that_is_worth_more():
    """Twenty clusters of two classes: one row of each is enough, if each has one."""
    rng = np.random.default_rng(0)
    cluster = rng.integers(20, size=400)
    x = 50 * rng.normal(size=(20, 2))[cluster] + rng.normal(size=(400, 2))
    options = {"judge": Nearest(), "method": "k-center-features", "seeds": 5}
    found = bicore.worth(x, cluster % 2, 20, **options)
    assert found.verdict is Verdict.MORE
    assert found.low > 30
    assert found.score > 0.98
    assert "random is" not in str(found)


@pytest.mark.slow
def test_the_same_seeds_give_the_same_answer_by_any_name():
    data = blobs(120)
    named = Dataset(data.x, np.array(["ant", "bee", "cow"])[data.y])
    options = {"judge": "ridge", "seeds": 3, "kernel": "rbf", "inner_reg": 0.1}
    found = bicore.worth(data, chosen=8, **options)
    assert [one.baseline for one in found.baselines] == ["uniform", "class-balanced"]
    assert bicore.worth(named, chosen=8, **options) == found
    assert bicore.worth(data, chosen=8, random_state=4, **options) != found
    options |= {"judge": "forest", "max_rows": 10}  # scikit-learn takes small seeds only
    drawn = [
        bicore.worth(data, chosen=8, random_state=np.random.default_rng(1), **options)
        for _ in range(2)
    ]
    assert drawn[0] == drawn[1]


@pytest.mark.slow
def test_the_cost_is_not_part_of_the_json_answer():
    data = blobs(120)
    plain = Appraisal(data, chosen=8, seeds=3, method=BilevelSelector("rbf"), judge="ridge")
    judge = Spy()
    priced = Appraisal(data, chosen=8, seeds=3, method=BilevelSelector("rbf"), judge=judge)
    price = priced.cost()
    assert price.selections == 3
    assert price.fits >= 3
    assert price.seconds > 0
    before, after = plain.worth(), priced.worth()
    assert before.baselines == after.baselines
    assert after.fits - before.fits <= 3
    assert len(judge.seen) == after.fits  # what was timed is not done again


def test_a_price_counts_the_selections():
    data, test = blobs(60), blobs(40, seed=1)
    options = {"seeds": 2, "method": "uniform", "judge": "ridge"}
    chosen = Coreset(np.arange(5))
    prices = [
        Appraisal(data, chosen=5, **options).cost(),
        Appraisal(data, chosen=5, test=test, **options).cost(),
        Appraisal(data, chosen=chosen, test=test, **options).cost(),
    ]
    assert [price.selections for price in prices] == [2, 1, 0]
    assert " and 2 selections, about " in str(prices[0])
    assert " and 1 selection, about " in str(prices[1])
    assert "fits, about " in str(prices[2])


def test_a_coreset_without_a_test_set_is_repeated_by_its_own_method():
    data = blobs(120)
    coreset = bicore.select(data, size=8, kernel="rbf", inner_reg=0.1)
    options = {"kernel": "rbf", "inner_reg": 0.1, "seeds": 2, "judge": Nearest()}
    assert bicore.worth(data, chosen=coreset, **options) == bicore.worth(data, chosen=8, **options)
    with pytest.raises(InputError, match=r"was selected by 'bilevel'.*give the same method"):
        bicore.worth(data, chosen=coreset, method="uniform")


def test_logistic_regression_judges_unless_another_is_named():
    assert Appraisal(blobs(80), chosen=6, method="uniform", seeds=2).judge.name == "logistic"


def test_targets_have_one_baseline_and_a_score_of_their_own():
    found = bicore.worth(line(160), chosen=12, kernel="rbf", seeds=4, judge="ridge")
    assert found.metric == "R²"
    assert [one.baseline for one in found.baselines] == ["uniform"]
    assert found.baselines[0].means[0] < found.baselines[0].means[-1]


@pytest.mark.slow
def test_cuts_standardise_by_the_rows_they_do_not_test_on():
    data = blobs(120)
    stretched = Dataset(data.x * [1, 100, 0.01, 5] + 7, data.y)
    options = {"chosen": 8, "seeds": 3, "method": BilevelSelector("rbf"), "judge": "ridge"}
    sources = [Source("", one, "standard") for one in (data, stretched)]
    assert Appraisal(sources[0], **options).worth() == Appraisal(sources[1], **options).worth()
    method = Watched()
    scaled = Source("", stretched, "standard")
    Appraisal(scaled, chosen=8, seeds=2, method=method, judge="ridge").worth()
    assert np.allclose([seen.mean(0) for seen in method.seen], 0)


@pytest.mark.slow
def test_rows_of_no_weight_are_not_drawn():
    data = blobs(120)
    weighted = Dataset(data.x, data.y, np.repeat([1.0, 0.0], 60))
    judge = Spy()
    bicore.worth(weighted, chosen=list(range(5)), test=blobs(50, seed=1), judge=judge, seeds=2)
    allowed = rows_of(data.x[:60])
    assert all(rows_of(sample.x) <= allowed for sample, _, _ in judge.seen)


@pytest.mark.parametrize(
    ("chosen", "options", "words"),
    [
        (None, {}, "chosen is missing"),
        ("auto", {}, "chosen='auto'"),
        ([1, 2, 3], {}, "chosen .* test="),
        ([], {"test": "same"}, "chosen"),
        ([1, 1], {"test": "same"}, "chosen .* twice"),
        ([999], {"test": "same"}, "chosen .* 999"),
        (50, {}, "50 rows .* 45 .* test="),
        (5, {"seeds": 1}, "seeds .* 1"),
        (5, {"max_rows": 4}, "max_rows must be at least 5.* got 4"),
        (5, {"judge": "rigde"}, "judge='rigde' is not known.*Did you mean 'ridge'"),
        (5, {"method": "unifrom"}, "Did you mean 'uniform'"),
        (5, {"reference": "facility"}, "Did you mean 'facility-location'"),
        (5, {"reference": "icarl"}, "reference='icarl' needs a trained network"),
        (5, {"test": (np.zeros((4, 3)), [0, 1, 2, 0])}, r"test .* \(3,\)"),
        (5, {"test": (np.zeros((2, 4)), [0, 9])}, "y holds the class"),
    ],
)
def test_errors_name_the_argument(chosen, options, words):
    data = blobs(60)
    if options.get("test") == "same":
        options = {**options, "test": data}
    refuses(words, bicore.worth, data.x, data.y, chosen, **options)


def test_labels_are_needed():
    x = blobs(60).x
    refuses("labels", bicore.worth, x, None, 5)
    refuses("single class", bicore.worth, x, np.zeros(60, int), 5)


class Count(Judge):
    """Scores the rows it is given: half the size is worth half the size."""

    name = "count"

    def predictions(self, selections, test, outputs, seed):
        raise NotImplementedError

    def scores(self, selections, test, outputs, seed):
        return [float(len(sample)) for sample in selections]


def test_a_judge_of_ones_own():
    found = bicore.worth(blobs(120), chosen=12, judge=Count(), method="uniform", seeds=3)
    assert (found.low, found.rows, found.high) == (12, 12, 12)
    assert found.judge == "count"
    # facility location per class has as many rows, so it scores as much
    assert found.simple.enough
    assert (found.simple.low, found.simple.score) == (0, 12)


@pytest.mark.parametrize("data", [blobs(120), line(120)], ids=["classes", "targets"])
def test_a_method_as_the_reference(data):
    options = {"judge": Count(), "method": "uniform", "seeds": 2}
    found = bicore.worth(data, chosen=12, reference="facility-location-per-class", **options)
    assert (found.low, found.rows, found.high) == (12, 12, 12)
    assert found.simple is None
    assert str(found) == (
        "12 rows are worth 12 of facility location per class (12–12): facility location per class "
        "is enough here"
    )
    assert bicore.worth(data, chosen=12, reference="uniform", **options).simple is None
    options |= {"reference": "v-design", "runtime": bicore.Runtime(max_seconds=1e-9)}
    refuses("rows were not evaluated; raise max_seconds", bicore.worth, data, chosen=12, **options)


def test_simplest_sufficient_method_is_reported():
    random = Equivalent("uniform", 50, 480, 410, 560, (50, 800), (0.8, 0.95), (0.02, 0.01))
    simple = Simple("facility-location-per-class", 0.9, 0.01, -0.01, 0.02)
    found = Worth(50, (random,), 0.9, 0.01, "accuracy", "ridge", 10, "on 10 splits", 30, simple)
    assert str(found).endswith(": facility location per class is enough here")
    assert replace(found, simple=replace(simple, low=0.01)).conclusion == ""
    open_ended = replace(random, baseline="class-balanced", low=0, high=math.inf)
    assert "more seeds" in replace(found, baselines=(random, open_ended)).conclusion
    same = replace(found, baselines=(replace(random, low=30),))
    assert same.conclusion == "random is enough here"
    balanced = replace(random, baseline="class-balanced", rows=700, low=600, high=800)
    assert "score lower than random ones" in replace(found, baselines=(random, balanced)).how()


@pytest.mark.slow
def test_one_set_of_rows_is_compared_with_one_random_sample():
    """A lucky sample stays one of many: its luck is no worth."""

    class Luck(Judge):
        """Scores the number of rows, and which they are."""

        name = "luck"

        def predictions(self, selections, test, outputs, seed):
            raise NotImplementedError

        def scores(self, selections, test, outputs, seed):
            return [float(sample.x.mean()) - len(sample) ** -0.5 for sample in selections]

    rng = np.random.default_rng(0)
    data, test = line(200), line(20, seed=1)
    verdicts = Counter(
        bicore.worth(
            data, chosen=rng.choice(200, 10, replace=False), test=test, judge=Luck()
        ).verdict
        for _ in range(40)
    )
    assert verdicts[Verdict.ENOUGH] >= 36


def test_worth_from_the_rows_of_a_comparison():
    scores = {("uniform", 10): 0.6, ("uniform", 40): 0.8, ("uniform", 160): 0.9}
    scores |= {("ours", 10): 0.8, ("ours", 40): 0.95, ("worse", 10): 0.5}
    rows = [
        Result(method, size, seed, score + seed / 100, 0.1)
        for (method, size), score in scores.items()
        for seed in range(4)
    ]
    found = worth_of_results(rows, ["ours", "worse", "uniform"], [10, 40, 160])
    assert found["ours", 10].rows == 40
    assert found["ours", 40].beyond
    assert found["worse", 10].rows == 0
    assert set(found) == {("ours", 10), ("ours", 40), ("worse", 10)}
    assert worth_of_results(rows, ["ours"], [10]) == {}  # one size is no curve
    others = [row for row in rows if row.method != "uniform"]
    assert worth_of_results(others, ["ours"], [10, 40]) == {}


def test_a_seed_that_is_not_there_is_not_compared():
    rows = [Result("uniform", size, k, size / 100, 0.1) for size in (10, 40) for k in range(3)]
    rows += [Result("ours", 10, seed, 0.25, 0.1) for seed in (0, 1, 7)]
    assert len(worth_of_results(rows, ["ours"], [10, 40])) == 1
    assert worth_of_results(rows[:-2], ["ours"], [10, 40]) == {}


def test_the_ends_keep_their_sides():
    rng = np.random.default_rng(0)
    for _ in range(50):
        scores = {size: rng.normal(size=4) for size in (5, 10, 20, 40)}
        low, rows, high = Curve(rng.normal(size=4), scores=scores).crossings()
        assert low <= rows <= high
