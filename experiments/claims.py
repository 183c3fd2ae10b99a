"""The paper's claims, and ours, with verdicts that are computed from records.

``claims.json`` has the claims: the rule and the comparisons, or the function of this module that
computes the verdict. Differences are positive if they are as claimed. The same rule is applied to
published numbers: some of the paper's claims are not resolved by its own five seeds.
"""

import json
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.battery_page import held_out_gaps
from benchmarks.comparison_page import embedding_gaps
from benchmarks.pages import percent, read_record, where
from experiments.catalogue import EXPERIMENTS
from experiments.comparisons import CIFAR_MARGIN, MARGIN, Comparison, Plan, compare
from experiments.layout import CIFAR, CONTINUAL, SPLIT
from experiments.methods import BY_BATCHES, FRESH
from experiments.paper import PAPER
from experiments.selections import paper_time
from experiments.statistics import (
    FEW,
    Gap,
    Part,
    Verdict,
    better,
    describe_parts,
    equal_parts,
    no_worse,
    paired_gap,
)
from experiments.tables import Absent, Book, Place

Rule = Callable[[Sequence[Part]], Verdict]
#: The rows of table 5 that are no baselines: no way to choose a memory, or the paper's own.
NO_BASELINES = (
    "Training w/o replay",
    "Uniform sampling, train at the end",
    "Per task coreset, train at the end",
    "Coreset",
)
BASELINES = [key for key in PAPER["continual_learning"] if key not in NO_BASELINES]
#: The accuracy of figure 3b, and what counts as almost that much.
HALF_ACCURACY = 50.0


@dataclass(frozen=True)
class Answer:
    """A verdict, the numbers behind it, the comparisons it took, what the same rule makes of the
    paper's own numbers, δ if the verdict rests on it, and what would resolve the claim."""

    verdict: Verdict
    number: str
    compared: frozenset[Hashable] = frozenset()
    published: str = "–"
    margin: float = MARGIN
    plans: Sequence[Plan] = ()

    def __str__(self) -> str:
        unit = "point" if self.margin == 1 else "points"
        return str(self.verdict).replace("δ", f"{self.margin:g} {unit}")


@dataclass(frozen=True)
class Claim:
    """A claim, the heading with its numbers, and the function that computes the verdict."""

    words: str
    heading: str
    answer: Callable[[Book], Answer]


def apply_rule(
    rule: Rule,
    comparisons: Sequence[Comparison],
    variants: Mapping[str, Sequence[Comparison]] | None = None,
) -> Callable[[Book], Answer]:
    """Answer by a rule; ``variants`` are shown next to the claim's rows and do not count."""
    others = variants or {}

    def answer(book: Book) -> Answer:
        parts = [one.part(book) for one in comparisons]
        words = [
            f"{name} {describe_parts([one.part(book) for one in more])}"
            for name, more in others.items()
        ]
        found = Answer(
            rule(parts),
            "; ".join([describe_parts(parts), *words]),
            frozenset(one.key for one in chain(comparisons, *others.values())),
            margin=max((margin for _, margin in equal_parts(parts)), default=MARGIN),
        )
        if found.verdict is Verdict.OPEN:
            undecided = zip(comparisons, parts, strict=True)
            plans = [one.plan(book) for one, part in undecided if rule([part]) is Verdict.OPEN]
            found = replace(found, plans=plans)
        return replace(found, published=_apply_to_paper(rule, comparisons, book))

    return answer


def _apply_to_paper(rule: Rule, comparisons: Sequence[Comparison], book: Book) -> str:
    """Apply the same rule to published numbers; rows that share one share its gap."""
    try:
        parts = list(dict.fromkeys(one.paper_part(book) for one in comparisons))
    except Absent:
        return "–"
    verdict = rule(parts)
    return f"{verdict}: {describe_parts(parts)}" if len(parts) <= FEW else verdict


def _memory(problem: str, key: str) -> Place:
    return Place(CONTINUAL[problem], problem, key)


def baselines(problem: str) -> list[Place]:
    """Return all other methods to choose the memory, and the variants of the authors' code."""
    places = [_memory(problem, key) for key in BASELINES]
    if problem == CIFAR:
        return [*places, _memory(problem, "Gradient matching, normalised")]
    traps = [row.key for row in EXPERIMENTS["traps"].rows() if row.problem.name == problem]
    return [*places, *(Place("traps", problem, key) for key in traps)]


def _above_uniform(key: str) -> list[Comparison]:
    return [
        compare(_memory(problem, key), _memory(problem, "Uniform sampling"))
        for problem in CONTINUAL
    ]


def check_coreset_above_uniform(book: Book) -> Answer:
    """Check that the coreset beats random samples on all three problems and no baseline does."""
    found = apply_rule(better, _above_uniform("Coreset"))(book)
    others = {
        key: [one.part(book)[0] for one in _above_uniform(key)]
        for key in BASELINES
        if key != "Uniform sampling"
    }
    means = [key for key, gaps in others.items() if all(gap.value > 0 for gap in gaps)]
    fails = any(all(gap.above for gap in gaps) for gaps in others.values())
    words = f"{found.number}; baselines with three means above: {', '.join(means) or 'none'}"
    return replace(found, number=words, verdict=Verdict.FAILS if fails else found.verdict)


def check_tasks(book: Book) -> Answer:
    """Figure 4: more than half of the tasks above, in continual learning and in the stream. Tasks
    below, or within δ, count against it."""

    def fresh_stream(key: str, way: str = "") -> Place:
        return Place("streaming-fresh", SPLIT, key + FRESH + way)

    reservoir = fresh_stream("Reservoir sampling")
    pairs = {
        "continual": (_memory(SPLIT, "Coreset"), _memory(SPLIT, "Uniform sampling")),
        "stream": (fresh_stream("Streaming coreset"), reservoir),
        BY_BATCHES.removeprefix(", "): (fresh_stream("Streaming coreset", BY_BATCHES), reservoir),
    }
    words, verdicts, seen, plans = [], [], set[Hashable](), []
    for name, (ours, other) in pairs.items():
        each = [compare(ours, other, task) for task in range(len(book.runs(ours)[0]["test"]))]
        parts = [one.part(book) for one in each]
        above = sum(gap.above for gap, _ in parts)
        against = sum(gap.below for gap, _ in parts) + len(equal_parts(parts))
        words.append(f"{name}: {above} of {len(parts)} above, {against} below or within δ")
        refuted = Verdict.FAILS if 2 * against > len(parts) else Verdict.OPEN
        verdicts.append(Verdict.HOLDS if 2 * above > len(parts) else refuted)
        seen |= {one.key for one in each}
        if name != BY_BATCHES.removeprefix(", "):
            undecided = zip(each, parts, strict=True)
            plans += [one.plan(book) for one, part in undecided if better([part]) is Verdict.OPEN]
    order = (Verdict.FAILS, Verdict.OPEN, Verdict.HOLDS)
    verdict = min(verdicts[:2], key=order.index)
    return Answer(
        verdict, "; ".join(words), frozenset(seen), plans=plans if verdict is Verdict.OPEN else ()
    )


def check_half_accuracy(book: Book) -> Answer:
    """Figure 3b: not more than δ below 50%, by the largest run with exact gradients. That selection
    draws nothing, so the error is that of the test images. Landmarks, which are not in the paper,
    are shown."""
    words = []
    for name, how in (("pooled_whole", "landmarks"), ("pooled_regression", "exact gradients")):
        record = read_record(name)
        runs = where(record["rows"], method="coreset, optimised weights")
        size, pool = max((row["size"], row["pool"]) for row in runs)
        found = percent(where(runs, size=size, pool=pool))
        share = float(found.mean()) / 100
        gap = Gap(
            100 * share - HALF_ACCURACY, 100 * (share * (1 - share) / record["tested"]) ** 0.5
        )
        seeds = f"{len(found)} seeds" if len(found) > 1 else "one run"
        words.append(f"{found.mean():.1f}% ({seeds}) from {pool:,} images with {how}")
    return Answer(no_worse([(gap, CIFAR_MARGIN)]), f"{', '.join(words)}; difference {gap}")


#: Figure 5 holds if more than this share of the seeds shows it, by a one-sided test at 5%.
MAJORITY = 0.5


def check_first_picks(book: Book) -> Answer:
    """Figure 5: ten classes among the first ten picks; the ratio of eights and ones is shown."""
    runs = where(book.records("picks"), method="Coreset")
    if not runs:
        raise Absent("picks")
    full = sum(one["classes_in_first_ten"] == 10 for one in runs)
    ratio = sum(one["eights"] for one in runs) / sum(one["ones"] for one in runs)
    words = f"ten classes for {full} of {len(runs)} seeds; {ratio:.1f} eights for each one"
    for verdict, side in ((Verdict.HOLDS, "greater"), (Verdict.FAILS, "less")):
        if stats.binomtest(full, len(runs), MAJORITY, alternative=side).pvalue < 0.05:
            return Answer(verdict, words)
    share = full / len(runs)
    needed = next(n for n in range(5, 10_000) if _binomial_power(n, share) >= 0.8)
    minutes = (needed - len(runs)) * float(np.mean([one["seconds"] for one in runs])) / 60
    spread = 100 * (share * (1 - share)) ** 0.5
    label, gap = "MNIST: share of seeds with ten classes − 50%", f"{100 * (share - MAJORITY):+.0f}"
    plan = Plan(label, str(len(runs)), gap, spread, "", needed, needed, {"picks": minutes})
    return Answer(Verdict.OPEN, words, plans=[plan])


def _binomial_power(seeds: int, share: float) -> float:
    """Return the power of the one-sided test against one half."""
    least = int(stats.binom.ppf(0.95, seeds, MAJORITY)) + 1
    return float(stats.binom.sf(least - 1, seeds, share))


def check_seconds(book: Book) -> Answer:
    """Table 4: check that none of our times is above the published one."""
    ratios = [theirs / ours for _, _, ours, theirs in runtimes(book)]
    if not ratios:
        raise Absent("runtime")
    words = f"{min(ratios):.0f} to {max(ratios):.0f} times faster, on newer hardware"
    return Answer(Verdict.HOLDS if min(ratios) >= 1 else Verdict.FAILS, words)


def runtimes(book: Book) -> Iterator[tuple[str, str, float, float]]:
    """Network, work, our seconds and the paper's, which had 200 candidates."""
    theirs = PAPER["runtime_seconds_1000_points"]
    for record in sorted(book.records("runtime"), key=lambda one: one["method"]):
        for work, seconds in record.items():
            if work == "kernel" or work.endswith(" 200 candidates"):
                known = theirs.get(paper_time(work), {})
                if record["method"] in known:
                    yield record["method"], work, seconds, known[record["method"]]


#: The published factor of the outer step.
PAPER_SPEEDUP = 200


def check_outer_step(book: Book) -> Answer:
    """Compare the outer step with the published speed-up, for a ResNet-18."""
    rows = read_record("outer_step")["rows"]
    words = ", ".join(f"{row['ratio']:.0f} times with {row['size']} images" for row in rows)
    holds = min(row["ratio"] for row in rows) >= PAPER_SPEEDUP
    return Answer(Verdict.HOLDS if holds else Verdict.FAILS, words)


def _answer_own_claim(gaps: Mapping[str, np.ndarray]) -> Answer:
    """Our own claim, from differences of each seed in percentage points, by what is compared."""
    parts = [(paired_gap(one), MARGIN) for one in gaps.values()]
    words = describe_parts(parts)
    if len(parts) <= FEW:
        words = ", ".join(f"{name} {gap}" for name, (gap, _) in zip(gaps, parts, strict=True))
    return Answer(better(parts), words, frozenset(gaps))


RULES: dict[str, Rule] = {"better": better, "no_worse": no_worse}
COMPUTED: dict[str, Callable[[Book], Answer]] = {
    "only_the_coreset": check_coreset_above_uniform,
    "tasks": check_tasks,
    "almost_half": check_half_accuracy,
    "picks": check_first_picks,
    "seconds": check_seconds,
    "outer_step": check_outer_step,
    "held_out_tables": lambda book: _answer_own_claim(held_out_gaps()),
    "embedding": lambda book: _answer_own_claim(embedding_gaps()),
}


def _claim(given: Mapping[str, Any]) -> Claim:
    if "computed" in given:
        return Claim(given["claim"], given["section"], COMPUTED[given["computed"]])
    own = [Comparison.parse(one) for one in given.get("differences", ())]
    for problem in given.get("baselines_on", ()):
        own += [compare(_memory(problem, "Coreset"), other) for other in baselines(problem)]
    variants = {
        name: [Comparison.parse(one) for one in more]
        for name, more in given.get("variants", {}).items()
    }
    return Claim(given["claim"], given["section"], apply_rule(RULES[given["rule"]], own, variants))


_STATED = json.loads(Path(__file__).with_name("claims.json").read_text())
#: Claims of the paper, and ours.
CLAIMS, OWN = (list(map(_claim, _STATED[key])) for key in ("paper", "own"))


def answer_claims(book: Book, claims: Sequence[Claim]) -> list[tuple[Claim, Answer]]:
    """Return the verdicts of all claims with records."""
    found = []
    for claim in claims:
        try:
            found.append((claim, claim.answer(book)))
        except Absent:
            continue
    return found
