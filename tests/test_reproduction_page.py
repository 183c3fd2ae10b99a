"""The pages of the reproduction: verdicts by rule, every published number once, and nothing that the
records do not say."""

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from scipy import stats

from benchmarks.pages import slug
from experiments import appendix, notes, page, verdicts
from experiments.__main__ import main
from experiments.catalogue import EXPERIMENTS
from experiments.claims import CLAIMS, OURS, above, answer_claims, by_gaps, rivals
from experiments.figures import STYLES, four_lines
from experiments.layout import CIFAR, CONTINUAL, ON_MNIST, PERM, SPLIT, TABLES, published
from experiments.paper import PAPER
from experiments.records import Records
from experiments.tables import Absent, Book, Cell, Place, cells, contrast, welch
from experiments.verdicts import Gap, Verdict, better, no_worse, shown

DOCS = Path(__file__).parents[1] / "docs"
#: What a reader who wants to know whether the paper holds is asked to read.
MOST_WORDS = 2500


def words(text: str) -> int:
    """What a reader reads, tables and commands included: everything between spaces and the bars of
    tables that holds a letter or a digit. Addresses of links and pictures are not read."""
    read = re.sub(r"\]\([^)]*\)", "]", text)
    return sum(any(sign.isalnum() for sign in one) for one in re.split(r"[\s|]+", read))


@pytest.fixture(scope="module")
def book():
    return Book()


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


@pytest.mark.parametrize("one", [page, appendix])
def test_the_pages_are_what_the_records_say(one):
    assert one.PAGE.read_text() == one.text(), "run: python -m experiments page"


def test_the_page_in_front_is_short_and_its_links_lead_somewhere():
    text = page.PAGE.read_text()
    assert words(text) <= MOST_WORDS
    headings = {slug(line.lstrip("# ")) for line in text.splitlines() if line.startswith("#")}
    for place in re.findall(r"\]\(([^)]*)\)", text):
        name, _, anchor = place.partition("#")
        assert not name or (DOCS / name).exists(), place
        assert name or anchor in headings, place
    named = set(re.findall(r"reproduction_[\w-]+\.png", text))
    drawn = {path.name for path in (DOCS / "images").glob("reproduction_*.png")}
    assert named == drawn


def test_words_are_what_is_read():
    assert (
        words("| **a b** ± 1.5 | [two words](far/away.md) |\n|---|---|\n![alt](x.png) `c d`") == 8
    )
    assert slug("Table 2, upper part: VCL (20 points)") == "table-2-upper-part-vcl-20-points"


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
    places = [place for _, _, _, place in published()]
    assert len(set(places)) == len(places)
    found = [cell.paper["mean"] for cell in page.published_cells(book)]
    assert Counter(found) == Counter(listed)
    assert len(found) == 81


def test_a_verdict_is_a_matter_of_intervals():
    up, level, down = Gap(1.0, 0.5), Gap(0.4, 0.5), Gap(-1.0, 0.5)
    assert better([up, up]) is Verdict.HOLDS
    assert better([up, level]) is Verdict.OPEN
    assert better([up, level, down]) is Verdict.FAILS
    assert no_worse([up, level]) is Verdict.HOLDS
    assert no_worse([level, down]) is Verdict.FAILS
    assert shown([up, down]) == "+1.00 ± 0.50, -1.00 ± 0.50"
    assert shown([up, up, level, down]) == "2 of 4 above, 1 below; least -1.00 ± 0.50"


def test_an_interval_of_four_means_is_that_of_their_variances():
    terms = [(1, (90.0, 1.0, 5)), (-1, (85.0, 2.0, 5)), (-1, (97.0, 0.5, 5)), (1, (95.0, 0.2, 5))]
    variances = [std**2 / 4 for _, (_, std, _) in terms]
    freedom = sum(variances) ** 2 / sum(one**2 / 4 for one in variances)
    half = stats.t.ppf(0.975, freedom) * sum(variances) ** 0.5
    assert contrast(terms) == pytest.approx((3.0, half))
    assert welch(terms[0][1], terms[1][1]) == contrast([terms[0], (-1, terms[1][1])])


@pytest.mark.parametrize(
    ("gap", "verdict"),
    [(0.04, Verdict.HOLDS), (0.03, Verdict.OPEN), (-0.04, Verdict.FAILS)],
)
def test_a_claim_follows_its_records(gap, verdict, tmp_path):
    """Two seeds: the gap's standard error is 0.71 points with two degrees of freedom, so that three
    points are not enough."""
    for method, value in (("Coreset", 0.5 + gap), ("Uniform sampling", 0.5)):
        for seed in range(2):
            one = record(method, seed, value + 0.01 * seed, machine={})
            Records("continual", tmp_path).collect([one])
    ours, other = (Place("continual", SPLIT, key) for key in ("Coreset", "Uniform sampling"))
    answer = by_gaps(better, [above(ours, other)])(Book(tmp_path))
    assert answer.verdict is verdict
    assert answer.theirs == "holds: +3.07 ± 1.08"
    with pytest.raises(Absent):
        by_gaps(better, [above(ours, Place("continual", PERM, "Coreset"))])(Book(tmp_path))


def test_every_claim_is_answered_and_has_a_table(book):
    found = answer_claims(book)
    assert len(found) == len(CLAIMS) + 1
    assert found[-1][0] is OURS
    headings = re.findall(r"^## (.*)$", page.PAGE.read_text(), re.M)
    assert {claim.heading for claim in CLAIMS} <= set(headings)
    assert all(
        f"**{answer.verdict}** | {answer.number} |" in page.PAGE.read_text() for _, answer in found
    )


@pytest.mark.parametrize("problem", CONTINUAL)
def test_rivals_are_all_other_ways_to_choose_in_both_forms(problem, book):
    keys = [place.key for place in rivals(problem)]
    assert len(keys) == len(set(keys)) == (13 if problem == CIFAR else 18)
    assert "Coreset" not in keys
    assert not any("train at the end" in key for key in keys)
    for place in rivals(problem):
        assert book.cell(place).paper is not None


def test_a_mark_needs_two_seeds_the_same_network_and_an_interval():
    coreset, uniform = cell("Coreset", 50.0), cell("Uniform sampling", 48.0)
    assert verdicts.mark(uniform, coreset) == verdicts.BELOW
    assert verdicts.mark(coreset, uniform) == verdicts.ABOVE
    assert verdicts.mark(replace(uniform, mean=49.0), coreset) == verdicts.LEVEL
    assert verdicts.mark(coreset, coreset) == ""
    assert verdicts.mark(replace(uniform, seeds=1), coreset) == ""
    normalised = cell("Coreset, normalised network", 60.0, experiment="cifar-continual")
    assert verdicts.mark(normalised, coreset) == ""


def test_rows_with_another_network_are_marked_against_their_own():
    ours = {
        "Coreset": 0.5,
        "Uniform sampling": 0.3,
        "Uniform sampling, normalised network": 0.9,
        "Coreset, normalised network, its embedding as the proxy": 0.7,
    }
    given = [
        record(method, seed, value + 0.001 * seed, dataset=CIFAR, memory=200)
        for method, value in ours.items()
        for seed in range(3)
    ]
    found = cells("cifar-continual", given)
    told = {one.row.key: appendix._marks(found, one) for one in found}
    assert told["Uniform sampling"] == verdicts.BELOW
    assert told["Uniform sampling, normalised network"] == verdicts.ABOVE


@pytest.mark.parametrize(
    ("gap", "ours", "told", "turned"),
    [(1.6, 1.0, 1, 0), (1.6, -1.0, 1, 1), (-1.6, -1.0, 1, 0), (-1.6, 1.0, 1, 1), (1.3, 1.0, 0, 0)],
)
def test_means_in_another_order_than_the_papers_are_found(gap, ours, told, turned):
    """Deviations of 1 over five seeds: the gap's standard error is 1/√2, twice it 1.41."""
    coreset, uniform = cell("Coreset", 50 + ours, 50 + gap), cell("Uniform sampling", 50.0, 50.0)
    count, other = verdicts.agreement(coreset, [coreset, uniform])
    assert (count, len(other)) == (told, turned)


def test_differences_have_causes_above_and_below_and_no_cause_is_of_a_row_that_is_no_more():
    high, low = cell("FRCL's selection", 60.0, 50.0), cell("Gradient matching", 40.0, 50.0)
    level = cell("Uniform sampling", 50.0, 50.0)
    told = verdicts.by_cause([("continual", one.title, one) for one in (high, low, level)])
    assert {words.split(" (")[0] for words in told.values()} == {high.title, low.title}
    assert verdicts.UNKNOWN not in told
    for name, causes in verdicts.CAUSES.items():
        rows = {f"{row.problem.name}: {row.key}" for row in EXPERIMENTS[name].rows()}
        assert set(causes) <= rows


def test_a_row_of_mixed_precision_is_named(tmp_path):
    for number, kind in enumerate(("bfloat16", "bfloat16", "float32")):
        one = record("CBRS", number, 0.5, precision=kind, machine={})
        Records("imbalanced", tmp_path).collect([one])
    told = notes._mixed(Book(tmp_path))
    assert (
        told
        == "CBRS of the table 'imbalanced' on SplitMNIST mixes them: 2 in bfloat16 and 1 in float32."
    )


def test_lines_differ_without_their_colours():
    assert len({style.marker for style in STYLES}) == len(STYLES)
    assert len({str(style.linestyle) for style in STYLES}) == len(STYLES)


@pytest.mark.parametrize("problem", ON_MNIST)
def test_figure_four_has_four_lines_of_five_runs_or_more(problem, book):
    lines = four_lines(problem)
    assert len(lines) == 4 <= len(STYLES)
    assert all(len(book.runs(place)) >= 5 for place in lines.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["differences", "tasks"])
def test_figures_in_front_are_drawn(name, tmp_path):
    assert main(["figure", name, "--out", str(tmp_path / "figure.png")]) == 0
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_lines_are_compared_with_lines_of_their_table():
    for layout in TABLES:
        labels = [line.label for line in layout.lines]
        assert len(set(labels)) == len(labels)
        assert {line.against for line in layout.lines} - {None} <= set(labels)
        assert all(len(line.places) == len(layout.columns) for line in layout.lines)
        assert set(layout.experiments) <= set(EXPERIMENTS)


def test_the_deviations_are_plain_words():
    assert all(words.endswith((".", "}")) for words in notes.WORDS)
    text = json.dumps(notes.WORDS, ensure_ascii=False)
    for told in (
        "BatchNorm2d",
        "36 runs",
        "one timing",
        "{tested} test images",
        "{gss_steps} steps",
    ):
        assert told in text


def test_differences_in_notes_come_from_the_records_and_rows_must_be_there(monkeypatch):

    from experiments.tables import cells, read_runs

    found = cells("imbalanced-sizes", read_runs("imbalanced-sizes"))
    by_place = {(cell.row.key, cell.memory): cell for cell in found}
    gap = by_place["CBRS", 50].mean - by_place["Reservoir", 50].mean
    monkeypatch.setitem(notes.NOTES, "imbalanced-sizes", "Above ({CBRS | Reservoir | 50}).")
    said = notes.note("imbalanced-sizes", found)
    assert said.startswith(f"Above ({gap:+.1f} ± ")
    assert "{" not in said
    assert notes.note("no such table", found) == ""
    for asked in ("{CBRS | Reservoir}", "{CBRS | Nobody | 50}"):
        monkeypatch.setitem(notes.NOTES, "imbalanced-sizes", asked)
        with pytest.raises(LookupError, match=r"notes.json, imbalanced-sizes: '.*' .*name a row"):
            notes.note("imbalanced-sizes", found)
    monkeypatch.setitem(notes.NOTES, "imbalanced-sizes", "{CBRS | Reservoir | 50}")
    few = [replace(cell, seeds=1) for cell in found]
    assert notes.note("imbalanced-sizes", few) == "not measured"
