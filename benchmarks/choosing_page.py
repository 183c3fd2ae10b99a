"""docs/choosing.md from the records: the defaults, one figure, and one table of what they take."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import numpy as np

from benchmarks.battery.sets import SETS
from benchmarks.battery_page import DOCS, of_default, records, scores, share, verdict
from benchmarks.common import read_record, spaced, table, told
from bicore.runtime import human_bytes
from bicore.selectors.large import human_seconds

PAGE = DOCS / "choosing.md"
FIGURE = DOCS / "images" / "choosing.png"
TITLES = ("sets put aside", "sets the choice was made on")
#: Markers and greys, told apart without colour.
SHOWN = {"default": ("o", "black"), "paper": ("s", "0.45"), "facility location": ("^", "0.7")}
#: Kernels that are asked for, beside what is taken where nothing is said.
KERNELS = ("linear", "laplace", "ntk")

Record = dict[str, Any]


def text() -> str:
    rows = read_record("battery_aside")["rows"]
    classes, targets = of_default(rows, False), of_default(rows, True)
    times = read_record("estimates")
    return PAGE_WORDS.format(
        sets=len({row["set"] for row in rows}),
        better=share(classes["better"], classes["cells"]),
        worse=classes["worse"],
        gain=f"{classes['gain']:+.3f}",
        targets_better=share(targets["better"], targets["cells"]),
        targets_worse=targets["worse"],
        size=times["size"],
        memory=times["memory"].replace("GB", " GB"),
        told=told(times),
        table=_times(times),
    )


def _times(record: Record) -> str:
    """A line for every number of rows and features."""
    lines = []
    for row in record["rows"]:
        ways = row["ways"]
        own = ways.get("default") or ways["files"]
        taken = re.sub(r"\(.*?\)", "", own["kernel"] or "linear on unit rows")
        lines.append(
            [
                f"{spaced(row['rows'])} × {row['width']}",
                taken,
                _way(own),
                *(_way(ways.get(name)) for name in KERNELS),
            ]
        )
    heads = [f'`kernel="{name}"`' for name in KERNELS]
    return table(["rows × features", "taken where nothing is said", "takes", *heads], lines)


def _way(way: Record | None) -> str:
    if way is None:
        return ""
    mark = "*" if way["stand_in"] else ""
    return f"{human_seconds(way['seconds'])}, {human_bytes(way['bytes'])}{mark}"


def draw() -> None:
    """For every set the mean difference from chance: the default, the paper's setting, a rival."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    known = [read_record(name)["rows"] for name in records()]
    figure, axes = plt.subplots(1, len(known), figsize=(5 * len(known), 4.6), sharex=True)
    for axis, rows, title in zip(np.atleast_1d(axes), known, TITLES, strict=False):
        by_set = _differences(rows)
        names = sorted(by_set, key=lambda name: float(np.mean(by_set[name]["default"])))
        for method, (marker, colour) in SHOWN.items():
            places = [place for place, name in enumerate(names) if by_set[name][method]]
            means = [float(np.mean(by_set[names[place]][method])) for place in places]
            axis.plot(means, places, marker, color=colour, label=method)
        axis.axvline(0, color="0.8", zorder=0)
        axis.set_yticks(range(len(names)), names)
        axis.set_title(title)
        axis.set_xlabel("mean score above a class-balanced (uniform) sample")
    np.atleast_1d(axes)[0].legend(loc="upper left", frameon=False)
    figure.tight_layout()
    figure.savefig(FIGURE, dpi=110)
    plt.close(figure)


def _differences(rows: list[Record]) -> dict[str, dict[str, list[float]]]:
    """By set and method: the mean difference from chance, of every size and judge."""
    by_set: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (name, _, _), own in scores(rows).items():
        chance = "uniform" if SETS[name].regression else "class-balanced"
        for method in SHOWN:
            if method in own and chance in own:
                mean = verdict(own[method], own[chance])[1]
                by_set[name][method].append(float(np.clip(mean, -1, 1)))
    return by_set


PAGE_WORDS = """# Choosing

**`bicore.select(x, y, size)` needs no choice.** What it takes where nothing is said was decided by a battery of real data sets and shown
on {sets} others: better than a class-balanced sample in {better} of the comparisons and worse in {worse}, {gain} of accuracy in the mean; for
targets better than a uniform sample in {targets_better} and worse in {targets_worse}. A comparison is a set, a size and a model that is
trained on the picks. [All tables](battery.md).

![Mean differences from chance, set by set](images/choosing.png)

* **Kernel**: exp(−‖a − b‖/median), on columns as given or standardised, by which of the two predicts held-out points better; for rows of
  100 columns or more the cosine is compared too. The kernel has an intercept, because labels are centred. The choice is the same at
  every number of rows.
* **Large data**: beyond 5,000 rows the candidates are a stratified sample of 4,000 rows (or 10 per point), and the objective is measured
  on twice as many. A kernel with finite features, such as the cosine, keeps all rows up to 50,000. `large="exact"` uses all rows.
* **Search**: for classes greedy by the gradient, then exchanges until none helps (three passes beyond 20 000 rows, none
  where rows × points² exceed 10¹¹, from 1415 of 50 000 on); for targets greedy by the exact gain.
* **Labels that are doubted**: points that the others clearly deny are not chosen, and a note says how many. Targets are the mean of the
  point's own and of what the others say, and the coreset has to predict the leading components of the inputs too: a few extreme targets
  would fit a proxy best and mislead every local model.

Before you rely on it, ask what it is worth on your data: `bicore worth SOURCE --size 50` answers in random rows, and says "random is
enough here" where that is so.

## What it takes

{size} points chosen, one thread, {memory} allowed: the processor's seconds of a whole call, and the memory it plans beside the data. The
last line is read from files in parts. {told}

{table}
This table was recorded with version 0.2, which had other kernels and, at \\*, landmarks in place of the kernel.

Before anything is computed, `bicore.estimate(x, y, size)` says what to expect of your data on your machine, `bicore estimate SOURCE --size M`
the same of files, `bicore select … --dry-run` of a command. It is meant to be
within a factor of two of what then happens.

## When to say more

* Embeddings: nothing, or `kernel="linear"`, which needs memory for the rows alone.
* Images for a convolutional network: `kernel="cntk"`, or the kernel of [your own network](guide.md#the-kernel-of-your-own-network).
* More rows than memory: give `select` the [files](shards.md). Rows that come one after another: a [memory](streams.md).
* Rare classes that must count like the others: `prior="equal"`, or `quotas=`.
* The paper's setting: `method="paper"` (network kernel, gradient rule, greedy, labels as given). Every part of the default can be named:
  `kernel=`, `rule=`, `strategy=`, `targets=`. With another loss, learnt weights or quotas, exchanges and smoothing do not apply.

## What to know

* Exchanged points come in greedy order; `coreset.prefix(k)` is the best beginning of this set, not what size k would have given. A run
  with `strategy="greedy"` nests.
* The kernel is chosen for the size that was asked for: another size may have another.
* A memory that shrinks by selecting again among its own rows loses what exchanges gained, and a kernel chosen by the labels of one task
  serves that task: stream buffers and replay settle what is left open to the normalised network kernel on standardised columns, greedy
  by the gradient, one point of every class a round ([measured](battery.md#memories)).
"""
