"""Write docs/comparison.md and its figure from the records of ``comparison`` and ``rivals``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import comparison_images_page
from benchmarks.common import read_record, table, told
from benchmarks.comparison_embedding_page import section
from bicore.evaluate.comparison import WHOLE
from bicore.evaluate.records import Row
from bicore.evaluate.statistics import Entry, Summary, paired_difference, summarise
from bicore.report.figures import draw_curves
from bicore.selectors.registry import METHODS

PAGE = Path(__file__).parents[1] / "docs" / "comparison.md"
FIGURE = PAGE.with_suffix(".png")
DEFAULT = "bilevel"
#: The figure shows these; thirty lines would show nothing.
SHOWN = (
    "bilevel",
    "bilevel-cross-entropy",
    "reducible-loss",
    "glister",
    "icarl",
    "frcl",
    "facility-location",
    "class-balanced",
    "uniform",
    "k-center-embedding",
    "gradient-matching",
    "hardest",
    "apricot facility location",
    "coreax kernel herding",
    "skactiveml MaxHerding",
)


class Findings:
    """The rows of the record, by method and size."""

    def __init__(self) -> None:
        self.record = read_record("comparison")
        rows = [Row(**row) for row in self.record["rows"]]
        self.whole = [row.accuracy for row in rows if row.method == WHOLE]
        self.rows = [row for row in rows if row.method != WHOLE]
        self.methods = list(dict.fromkeys(row.method for row in self.rows))
        self.sizes: list[int] = self.record["sizes"]
        self.summary: Summary = summarise(self.rows, self.methods, self.sizes)
        self.seeds = len({row.seed for row in rows})

    def by_seed(self, method: str, size: int) -> dict[int, Row]:
        return {row.seed: row for row in self.rows if (row.method, row.size) == (method, size)}

    def verdicts(self, size: int) -> dict[str, list[tuple[str, float]]]:
        """Methods that the default beats, ties and loses to, with the mean difference in points of
        accuracy."""
        found: dict[str, list[tuple[str, float]]] = {"wins": [], "ties": [], "loses": []}
        own = self.by_seed(DEFAULT, size)
        for method in self.methods:
            if method != DEFAULT:
                mean, half, _ = paired_difference(own, self.by_seed(method, size))
                verdict = "wins" if mean > half else "loses" if mean < -half else "ties"
                found[verdict].append((method, 100 * mean))
        return {
            verdict: sorted(pairs, key=lambda pair: pair[1]) for verdict, pairs in found.items()
        }


def draw() -> None:
    findings = Findings()
    title = (
        f"MNIST, pools of 1000, the paper's CNN: mean over {findings.seeds} seeds ± one standard "
        "error"
    )
    draw_curves(findings.summary, SHOWN, title, "test accuracy", FIGURE)


def text() -> str:
    """The whole page."""
    findings = Findings()
    record = findings.record
    seconds = _seconds(findings)
    peers = record["peers_machine"]
    return f"""# Methods, side by side

First on MNIST, then on [a frozen embedding of CIFAR-10](#cifar-10-through-a-frozen-network-linear-heads){comparison_images_page.link()}. On MNIST stand
{len(findings.methods) - len(record["peers"])} of our {len(METHODS)} methods and {len(record["peers"])} of three other libraries; today's `bilevel`, `v-design`, `a-design` and `reconstruction` came
later and are on {comparison_images_page.apart()} alone.

## MNIST, the paper's CNN

{told(record)}
`bicore compare mnist --data DIR --pool 1000 --sizes 50,100,250 --judge cnn --methods all --seeds 10 --everything --device cuda`
makes the rows of our own methods again, up to the rounding of the card.

For each of {findings.seeds} seeds a pool of 1000 random MNIST training images is drawn. Every method selects 50, 100 and 250 of
them; the paper's CNN is trained from scratch on each selection (Adam, 5e-4, 1000 steps) and tested on all {record["test"]} test
images. All networks of a seed start from the same weights and drop the same units, so differences between methods are taken within
seeds. The same CNN trained on the whole pool reaches {_percent(sum(findings.whole) / len(findings.whole))}. Methods that look at a
network get that one. Bilevel methods use the fully connected NTK as their proxy and know nothing of the judge.

Accuracy in percent, mean ± standard error; ★ the best mean, ≈ the paired 95% interval of its distance to the best includes zero.
Seconds are those of one selection of 250 points on {peers["processor"]} ({peers["cores"]} cores), for our methods and for the
peers alike (from the record `rivals`, seed 0, and from the peers' picks, mean over seeds); training the network that some methods
look at is not in them.

{_methods_table(findings, seconds)}
{_detectable(findings)}

![Accuracy against size](comparison.png)

### Where bilevel wins, ties and loses

"bilevel" on this page, and "the default" below, are the paper's setting with the squared error: today `method="paper"`. What
`bicore.select` takes where nothing is said was chosen [elsewhere](choosing.md) and is not on this page.

"Wins" and "loses" mean that the paired 95% interval of the difference excludes zero; with {len(findings.methods) - 1} comparisons a
size, one or two such verdicts would be expected by chance alone. Differences in points of accuracy, ours less theirs.

{chr(10).join(_verdict(findings, size) for size in findings.sizes)}
{_words(findings, seconds)}
{section()}
{comparison_images_page.section()}## The peers

Measured in environments of their own, never as dependencies; how each was made is at the head of its file under `benchmarks/peers`.

{_peers(record)}"""


def _words(findings: Findings, seconds: dict[str, float]) -> str:
    def gap(first: str, second: str, size: int) -> str:
        own = findings.summary.of(first, size)
        other = findings.summary.of(second, size)
        assert own is not None
        assert other is not None
        return f"{100 * (own.mean - other.mean):.1f}"

    peers = [
        entry for entry in findings.summary.entries if entry.method in findings.record["peers"]
    ]
    best_peer = max(
        (entry for entry in peers if entry.size == 50), key=lambda entry: entry.mean
    ).method
    ratio = seconds["bilevel-cross-entropy"] / seconds[DEFAULT]
    return f"""In plain words:

* The default has the best mean at 50 points, where the choice matters most (cross-entropy and learnt weights tie with it):
  {gap(DEFAULT, "uniform", 50)} points of accuracy above a random sample, {gap(DEFAULT, best_peer, 50)} above the best peer
  ({best_peer}). The peers do not look at labels, and ours does.
* From 100 points on, cross-entropy as the proxy's loss is better than the default's squared error (by
  {gap("bilevel-cross-entropy", DEFAULT, 100)} and {gap("bilevel-cross-entropy", DEFAULT, 250)} points), at {ratio:.0f} times the
  seconds. Reducible loss, a rule of the same engine at the cost of the default, cannot be told from cross-entropy at 100 and 250
  points; at 50 it is {gap(DEFAULT, "reducible-loss", 50)} points worse than the default. Whoever takes a tenth of clean data or
  more should try `method="reducible-loss"`.
* Learnt weights do not help a network here: `bilevel-weighted` is no better than binary weights at any size.
* The identity in place of the inverse Hessian (`glister`) costs {gap(DEFAULT, "glister", 50)} points at 50 and
  {gap(DEFAULT, "glister", 250)} at 250.
* Methods that look at a network trained on the whole pool have seen all labels through it before they choose. Of these, iCaRL's
  herding and FRCL's inducing points are the only ones above facility location on raw pixels at 50 points. Choosing by loss,
  by entropy, by information, or by spread over gradients (k-means++, k-center, CRAIG) is far worse than chance at 50 and 100
  points: it collects exceptions.
"""


def _percent(value: float) -> str:
    return f"{100 * value:.2f}%"


def _seconds(findings: Findings) -> dict[str, float]:
    part = "MNIST pool of 1000, 250 points"
    own = {
        row["method"]: row["seconds"]
        for row in read_record("rivals")["rows"]
        if row["part"] == part
    }
    largest = findings.sizes[-1]
    peers = {
        name: entry.seconds
        for name in findings.record["peers"]
        if (entry := findings.summary.of(name, largest)) is not None
    }
    return own | peers


def _methods_table(findings: Findings, seconds: dict[str, float]) -> str:
    def mean(method: str) -> float:
        entry = findings.summary.of(method, 100)
        return entry.mean if entry is not None else 0.0

    rows = []
    for method in sorted(findings.methods, key=mean, reverse=True):
        shown = (
            f"**{method}**"
            if method == DEFAULT
            else f"*{method}*"
            if method in findings.record["peers"]
            else method
        )
        cells = [_cell(findings.summary.of(method, size)) for size in findings.sizes]
        rows.append([shown, *cells, f"{seconds[method]:.2g}"])
    return table(
        ["method (peers in italics)", *(f"{size} points" for size in findings.sizes), "seconds"],
        rows,
    )


def _cell(entry: Entry | None) -> str:
    assert entry is not None
    mark = " ★" if entry.best else " ≈" if entry.tied else ""
    return f"{100 * entry.mean:.2f} ± {100 * entry.error:.2f}{mark}"


def _detectable(findings: Findings) -> str:
    found = ", ".join(
        f"{100 * value:.1f} at {size}" for size, value in findings.summary.detectable.items()
    )
    return (
        f"Smallest difference to the best that {findings.seeds} seeds would find (95% confidence, "
        "80% chance), in points of\n"
        f"accuracy, for the median method: {found}. Between methods that agree on most points it "
        "is smaller."
    )


def _verdict(findings: Findings, size: int) -> str:
    words = []
    for verdict, pairs in findings.verdicts(size).items():
        listed = (
            ", ".join(f"{method} ({difference:+.1f})" for method, difference in pairs) or "nobody"
        )
        words.append(
            f"* {verdict} "
            f"{'against' if verdict == 'wins' else 'with' if verdict == 'ties' else 'to'} {listed}"
        )
    return f"**{size} points**\n\n" + "\n".join(words) + "\n"


def _peers(record: dict[str, Any]) -> str:
    notes: dict[str, list[str]] = {}
    for method, told_of in record["peers"].items():
        versions = ", ".join(
            f"{name} {version}"
            for name, version in told_of.items()
            if name not in ("notes", "python")
        )
        notes.setdefault(f"{versions}. {told_of['notes']}", []).append(method)
    return "\n".join(f"* {', '.join(methods)}: {note}" for note, methods in notes.items()) + "\n"
