"""Verdicts by rule, required seeds, and every published number once."""

import math
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from experiments import page, tables
from experiments.catalogue import EXPERIMENTS
from experiments.claims import CLAIMS, OWN, answer_claims, apply_rule
from experiments.comparisons import compare, total_minutes
from experiments.layout import PERM, SPLIT, list_published
from experiments.paper import PAPER
from experiments.records import Records
from experiments.statistics import (
    Gap,
    Verdict,
    better,
    contrast,
    describe_parts,
    no_worse,
    paired_gap,
    seeds_needed,
)
from experiments.tables import Absent, Cell, Place, welch

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def book():
    return page.read_book()


@pytest.fixture(scope="module")
def answers(book):
    return answer_claims(book, CLAIMS)


def record(method, seed, test, **facts):
    return {
        "dataset": SPLIT,
        "method": method,
        "memory": 100,
        "beta": 1.0,
        "seed": seed,
        "test": [test],
        "held": [0.9],
        "seconds": 60.0,
        "quick": False,
        **facts,
    }


def cell(key, mean, paper=None, std=1.0, experiment="continual"):
    row = next(row for row in EXPERIMENTS[experiment].rows() if row.key == key)
    return Cell(
        row=row,
        memory=row.memory,
        seeds=5,
        chosen=1.0,
        mean=mean,
        std=std,
        best_chosen=1.0,
        best_mean=mean,
        best_std=std,
        paper=None if paper is None else {"mean": paper, "std": 1.0},
        choices=1,
    )


def test_every_published_number_has_one_place(book):
    """Those of 100 rows in the table of sizes are published before."""
    listed = [
        number["mean"]
        for name in ("continual_learning", "vcl", "streaming", "imbalanced_streaming", "rbf_proxy")
        for row in PAPER[name].values()
        for number in row.values()
    ]
    listed += [
        row[size]["mean"]
        for row in PAPER["memory_size_splitmnist"].values()
        for size in ("50", "200")
    ]
    places = [place for _, _, place in list_published()]
    assert len(set(places)) == len(places)
    found = [cell.paper["mean"] for cell in page.published_cells(book)]
    assert Counter(found) == Counter(listed)
    assert len(found) == 81


def gap(value, half):
    """With a normal 95% interval of this half-width."""
    return Gap(value, half / stats.norm.ppf(0.975))


def test_a_verdict_follows_from_intervals_and_a_margin():
    up, level, down, wide = (
        (gap(*one), 1.0) for one in ((1, 0.5), (0.2, 0.5), (-1, 0.5), (-0.1, 3))
    )
    assert better([up, up]) is Verdict.HOLDS
    assert better([up, wide]) is Verdict.OPEN
    assert better([up, wide, level]) is Verdict.EQUAL  # one part within δ refutes "all above"
    assert better([up, level, down]) is Verdict.FAILS
    assert better([(up[0], 9.0), up]) is Verdict.HOLDS  # above, however large δ is
    assert no_worse([up, level]) is Verdict.HOLDS
    assert no_worse([up, wide]) is Verdict.OPEN  # not rejecting is not enough
    assert no_worse([level, down]) is Verdict.FAILS
    assert no_worse([(gap(-0.5, 0.2), 1.0)]) is Verdict.HOLDS  # below zero, but not by δ
    assert describe_parts([up, down]) == "+1.00 ± 0.50, -1.00 ± 0.50"
    assert describe_parts([up, up, level, down]) == (
        "2 of 4 above, 1 below, 1 within δ; lowest -1.00 ± 0.50"
    )


def test_equivalence_is_two_one_sided_tests():
    rng = np.random.default_rng(0)
    for shift in (0.0, 0.5, 1.2):
        differences = rng.normal(shift, 1, 30)
        found = paired_gap(differences)
        sides = [
            stats.ttest_1samp(differences, bound, alternative=side).pvalue < 0.05
            for bound, side in ((-1, "greater"), (1, "less"))
        ]
        assert found.within(1.0) == all(sides)
        assert found.not_below(1.0) == sides[0]
        assert found.half() == pytest.approx(
            np.ptp(stats.ttest_1samp(differences, 0).confidence_interval(0.95)) / 2
        )


def test_needed_seeds_have_the_power_that_is_asked_for():
    """By simulation of Welch's test, and the textbook's 17 of each group for one deviation."""
    assert seeds_needed(1.0, math.sqrt(2), 2) == 17
    needed = seeds_needed(0.8, 1.0, 2)
    rng = np.random.default_rng(1)
    first, second = rng.normal(0.8, 0.8, (2000, needed)), rng.normal(0, 0.6, (2000, needed))
    found = stats.ttest_ind(first, second, axis=1, equal_var=False).pvalue < 0.05
    assert 0.75 < found.mean() < 0.85


def test_an_interval_of_four_means_is_that_of_their_variances():
    terms = [(1, (90.0, 1.0, 5)), (-1, (85.0, 2.0, 5)), (-1, (97.0, 0.5, 5)), (1, (95.0, 0.2, 5))]
    variances = [std**2 / 4 for _, (_, std, _) in terms]
    freedom = sum(variances) ** 2 / sum(one**2 / 4 for one in variances)
    half = stats.t.ppf(0.975, freedom) * sum(variances) ** 0.5
    found = contrast(terms)
    assert (found.value, found.half()) == pytest.approx((3.0, half))
    assert welch(terms[0][1], terms[1][1]) == contrast([terms[0], (-1, terms[1][1])])


@pytest.mark.parametrize(
    ("difference", "verdict"), [(0.04, Verdict.HOLDS), (0.03, Verdict.OPEN), (-0.04, Verdict.FAILS)]
)
def test_a_claim_follows_its_records(difference, verdict, tmp_path):
    """Two seeds: the gap's standard error is 0.71 points with two degrees of freedom, so that three
    points are not enough."""
    for method, value in (("Coreset", 0.5 + difference), ("Uniform sampling", 0.5)):
        for seed in range(2):
            one = record(method, seed, value + 0.01 * seed, machine={})
            Records("continual", tmp_path).collect([one])
    ours, other = (Place("continual", SPLIT, key) for key in ("Coreset", "Uniform sampling"))
    answer = apply_rule(better, [compare(ours, other)])(page.read_book(tmp_path))
    assert answer.verdict is verdict
    assert answer.published == "holds: +3.07 ± 1.08"
    if verdict is Verdict.OPEN:
        (plan,) = answer.plans
        assert plan.paired_spread == pytest.approx(0, abs=1e-9)  # the same change for both
        assert plan.needed == seeds_needed(1.0, 1.0, 2)
        assert total_minutes([plan, plan]) == pytest.approx(2 * (plan.needed - 2))
    missing = apply_rule(better, [compare(ours, Place("continual", PERM, "Coreset"))])
    with pytest.raises(Absent):
        missing(page.read_book(tmp_path))


def test_every_claim_is_answered_and_has_a_table(answers, book):
    assert len(answers) == len(CLAIMS)
    assert len(answer_claims(book, OWN)) == len(OWN)
    headings = re.findall(r"^## (.*)$", (DOCS / "tables/reproduction.md").read_text(), re.M)
    assert {claim.heading for claim in CLAIMS} <= set(headings)
    shown = (DOCS / "reproduction.md").read_text()
    assert all(f"**{answer}** | {answer.number} |" in shown for _, answer in answers)


def test_a_mark_needs_two_seeds_the_same_network_and_an_interval():
    coreset, uniform = cell("Coreset", 50.0), cell("Uniform sampling", 48.0)
    assert tables.mark(uniform, coreset) == tables.BELOW
    assert tables.mark(coreset, uniform) == tables.ABOVE
    assert tables.mark(replace(uniform, mean=49.0), coreset) == tables.LEVEL
    assert tables.mark(coreset, coreset) == ""
    assert tables.mark(replace(uniform, seeds=1), coreset) == ""
    normalised = cell("Coreset, normalised network", 60.0, experiment="cifar-continual")
    assert tables.mark(normalised, coreset) == ""
