"""The paper's claims and their verdicts, which are computed from records.

``claims.json`` has the claims: by which rule differences of places decide them, or which function
of this module computes the verdict. A difference has two places (the first less the second) or
four (the first less the second, less the third and plus the fourth), positive if it is as claimed.
If a claim rests on published numbers the same rule is applied to them: some of the paper's claims
are not resolved by its own five seeds.
"""

import json
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pages import percent, read_record, where
from experiments.catalogue import EXPERIMENTS
from experiments.layout import CIFAR, CONTINUAL, SPLIT
from experiments.methods import BY_BATCHES, FRESH
from experiments.paper import PAPER
from experiments.tables import Absent, Book, Look, Place, contrast
from experiments.verdicts import FEW, Gap, Verdict, better, no_worse, shown

#: A sum of cells with signs: positive if it is as claimed.
Contrast = Sequence[tuple[int, Place]]
#: Comparisons, each by what it compares: some serve several claims, and marks too.
Compared = frozenset[Hashable]
Rule = Callable[[Sequence[Gap]], Verdict]
#: Signs of the places of a difference.
SIGNS = (1, -1, -1, 1)
#: The rows of table 5 that are no ways to choose a memory, or the paper's own.
NO_RIVALS = (
    "Training w/o replay",
    "Uniform sampling, train at the end",
    "Per task coreset, train at the end",
    "Coreset",
)
RIVALS = [key for key in PAPER["continual_learning"] if key not in NO_RIVALS]


@dataclass(frozen=True)
class Answer:
    """A verdict, the number behind it, the comparisons that took, and what the same rule makes of
    the paper's own numbers."""

    verdict: Verdict
    number: str
    compared: Compared = frozenset()
    theirs: str = "–"


@dataclass(frozen=True)
class Claim:
    """The paper's words, the heading of the page with its numbers, and how it is answered."""

    words: str
    heading: str
    answer: Callable[[Book], Answer]


def above(first: Place, second: Place) -> Contrast:
    return ((1, first), (-1, second))


def compared(contrasts: Sequence[Contrast]) -> Compared:
    return frozenset(frozenset(place for _, place in terms) for terms in contrasts)


def _gaps(contrasts: Sequence[Contrast], look: Look) -> list[Gap]:
    return [Gap(*contrast([(sign, look(place)) for sign, place in terms])) for terms in contrasts]


def by_gaps(
    rule: Rule,
    contrasts: Sequence[Contrast],
    beside: Mapping[str, Sequence[Contrast]] | None = None,
) -> Callable[[Book], Answer]:
    """By a rule; the rows ``beside`` those of the claim are shown and decide nothing."""
    others = beside or {}

    def answer(book: Book) -> Answer:
        ours = _gaps(contrasts, book.ours)
        words = [f"{name} {shown(_gaps(more, book.ours))}" for name, more in others.items()]
        seen = compared([*contrasts, *(one for more in others.values() for one in more)])
        found = Answer(rule(ours), "; ".join([shown(ours), *words]), seen)
        try:
            return replace(found, theirs=_published(rule, contrasts, book))
        except Absent:
            return found

    return answer


def _published(rule: Rule, contrasts: Sequence[Contrast], book: Book) -> str:
    """What the same rule makes of published numbers, with the gaps if they are few; rows that share
    a published number share its gap."""
    gaps = list(dict.fromkeys(_gaps(contrasts, book.published)))
    return f"{rule(gaps)}: {shown(gaps)}" if len(gaps) <= FEW else rule(gaps)


def _chosen(problem: str, key: str) -> Place:
    return Place(CONTINUAL[problem], problem, key)


def rivals(problem: str) -> list[Place]:
    """Every other way to choose the memory; those that the authors' code runs in another way, in
    that way too."""
    places = [_chosen(problem, key) for key in RIVALS]
    if problem == CIFAR:
        return [*places, _chosen(problem, "Gradient matching, normalised")]
    traps = [row.key for row in EXPERIMENTS["traps"].rows() if row.problem.name == problem]
    return [*places, *(Place("traps", problem, key) for key in traps)]


def _above_uniform(key: str) -> list[Contrast]:
    return [
        above(_chosen(problem, key), _chosen(problem, "Uniform sampling")) for problem in CONTINUAL
    ]


def only_the_coreset(book: Book) -> Answer:
    """The coreset above uniform samples on all three, and no rival on all three."""
    contrasts = _above_uniform("Coreset")
    gaps = list(dict.fromkeys(_gaps(contrasts, book.ours)))
    others = {
        key: _gaps(_above_uniform(key), book.ours) for key in RIVALS if key != "Uniform sampling"
    }
    means = [key for key, found in others.items() if all(gap.value > 0 for gap in found)]
    fails = any(all(gap.above for gap in found) for found in others.values())
    return Answer(
        Verdict.FAILS if fails else better(gaps),
        f"{shown(gaps)}; rivals with three means above: {', '.join(means) or 'none'}",
        compared(contrasts),
        _published(better, contrasts, book),
    )


def tasks(book: Book) -> Answer:
    """Figure 4: task by task, in continual learning and in the stream."""

    def streamed(key: str, way: str = "") -> Place:
        return Place("streaming-fresh", SPLIT, key + FRESH + way)

    reservoir = streamed("Reservoir sampling")
    pairs = {
        "continual": (_chosen(SPLIT, "Coreset"), _chosen(SPLIT, "Uniform sampling")),
        "stream": (streamed("Streaming coreset"), reservoir),
        BY_BATCHES.removeprefix(", "): (streamed("Streaming coreset", BY_BATCHES), reservoir),
    }
    words, verdicts, seen = [], [], set[Hashable]()
    for name, (ours, other) in pairs.items():
        gaps = _task_gaps(book, ours, other)
        up, down = sum(gap.above for gap in gaps), sum(gap.below for gap in gaps)
        words.append(f"{name}: {up} of {len(gaps)} above, {down} below")
        fails = Verdict.FAILS if 2 * down > len(gaps) else Verdict.OPEN
        verdicts.append(Verdict.HOLDS if 2 * up > len(gaps) else fails)
        seen |= {(ours, other, task) for task in range(len(gaps))}
    order = (Verdict.FAILS, Verdict.OPEN, Verdict.HOLDS)
    return Answer(min(verdicts, key=order.index), "; ".join(words), frozenset(seen))


def _task_gaps(book: Book, ours: Place, other: Place) -> list[Gap]:
    def by_task(place: Place) -> list[tuple[float, float, int]]:
        return [_measure(one) for one in percent(book.runs(place), "test").T]

    pairs = zip(by_task(ours), by_task(other), strict=True)
    return [Gap(*contrast([(1, first), (-1, second)])) for first, second in pairs]


def _measure(values: np.ndarray) -> tuple[float, float, int]:
    return float(values.mean()), float(values.std()), len(values)


def almost_half(book: Book) -> Answer:
    """By exact slopes from a part of the images, one run; and from all, seen from landmarks,
    which are not the paper's slopes: neither can resolve it."""
    words = []
    for name, how in (("pooled_regression", "exact slopes"), ("pooled_whole", "landmarks")):
        runs = where(read_record(name)["rows"], method="coreset, optimised weights")
        size, pool = max((row["size"], row["pool"]) for row in runs)
        found = percent(where(runs, size=size, pool=pool))
        spread = f" ± {contrast([(1, _measure(found))])[1]:.1f}" if len(found) > 1 else ""
        words.append(f"{found.mean():.1f}{spread}% ({len(found)}) from {pool} by {how}")
    return Answer(Verdict.OPEN, ", ".join(words))


def picks(book: Book) -> Answer:
    """Figure 5: ten classes among the first ten for every seed, for most, or for few; the ratio of
    eights and ones decides nothing."""
    runs = where(book.records("picks"), method="Coreset")
    if not runs:
        raise Absent("picks")
    full = sum(one["classes_in_first_ten"] == 10 for one in runs)
    ratio = sum(one["eights"] for one in runs) / sum(one["ones"] for one in runs)
    some = Verdict.OPEN if 2 * full > len(runs) else Verdict.FAILS
    words = f"ten classes for {full} of {len(runs)} seeds; {ratio:.1f} eights for a one"
    return Answer(Verdict.HOLDS if full == len(runs) else some, words)


def seconds(book: Book) -> Answer:
    """Table 4: none of our times above the published one."""
    ratios = [theirs / ours for _, _, ours, theirs in runtimes(book)]
    if not ratios:
        raise Absent("runtime")
    words = f"{min(ratios):.0f} to {max(ratios):.0f} times less, on newer hardware"
    return Answer(Verdict.HOLDS if min(ratios) >= 1 else Verdict.FAILS, words)


def runtimes(book: Book) -> Iterator[tuple[str, str, float, float]]:
    """Network, work, our seconds and the paper's."""
    theirs: Mapping[str, Mapping[str, float]] = PAPER["runtime_seconds_1000_points"]
    works = {
        "kernel": "kernel (GTX 1080 Ti)",
        "coreset 100, 200 candidates": "coreset 100 (one CPU thread)",
        "coreset 400, 200 candidates": "coreset 400 (one CPU thread)",
    }
    for record in sorted(book.records("runtime"), key=lambda one: one["method"]):
        for work, paper in works.items():
            if work in record:
                yield record["method"], work, record[work], theirs[paper][record["method"]]


def outer_step(book: Book) -> Answer:
    """What is measured is a smaller network on a processor: no verdict on a ResNet-18."""
    record = read_record("network")
    times = {row["method"]: np.median(row["seconds_a_point"]) for row in record["rows"]}
    ratio = times["network, conjugate gradients"] / times["proxy, convolutional, cross-entropy"]
    return Answer(
        Verdict.OPEN,
        f"not measured on a ResNet-18; {ratio:.0f} times a point on a CNN of "
        f"{record['parameters']} parameters",
    )


RULES: dict[str, Rule] = {"better": better, "no_worse": no_worse}
COMPUTED = (only_the_coreset, tasks, almost_half, picks, seconds, outer_step)


def _claim(given: Mapping[str, Any]) -> Claim:
    def contrasts(differences: Sequence[Sequence[str]]) -> list[Contrast]:
        parsed = [[Place.parse(one) for one in places] for places in differences]
        return [tuple(zip(SIGNS, places, strict=False)) for places in parsed]

    answers = {one.__name__: one for one in COMPUTED}
    if "computed" in given:
        return Claim(given["claim"], given["section"], answers[given["computed"]])
    own = contrasts(given.get("differences", ()))
    for problem in given.get("rivals_on", ()):
        own += [above(_chosen(problem, "Coreset"), other) for other in rivals(problem)]
    beside = {name: contrasts(more) for name, more in given.get("beside", {}).items()}
    return Claim(given["claim"], given["section"], by_gaps(RULES[given["rule"]], own, beside))


#: The last is not the paper's: the page that is linked says what it is.
*CLAIMS, OURS = map(_claim, json.loads(Path(__file__).with_name("claims.json").read_text()))


def answer_claims(book: Book) -> list[tuple[Claim, Answer]]:
    """Every claim for which there are records."""
    found = []
    for claim in (*CLAIMS, OURS):
        try:
            found.append((claim, claim.answer(book)))
        except Absent:
            continue
    return found
