"""Tables and pictures of the four jobs: texts, contexts, images and devices; the page on contexts."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.neighbors import KNeighborsClassifier

import bicore
from benchmarks.contexts import CONTEXTS, SIZES, stratified
from benchmarks.pages import DOCS, Row, drawing, read_record, render, show, table, unique, where
from bicore.sources import digits
from bicore.streaming import MomentMemory
from experiments.statistics import Gap, paired


def text() -> str:
    """docs/tables/jobs.md."""
    helpers = (text_table, rounds_table)
    return render("tables/jobs.md", **{one.__name__: one for one in helpers})


def _best(rows: Sequence[Row]) -> np.ndarray:
    """Accuracies of all seeds with the strength of the best mean, in percent."""
    scores = 100 * np.array([row["accuracy"] for row in rows])
    return scores[:, scores.mean(0).argmax()]


def text_table(question: str) -> str:
    """Accuracy of each method and number of rows, and of the worst seed."""
    rows = where(read_record("text")["rows"], question=question)
    sizes = sorted(unique(rows, "size"))
    body = []
    for method in unique(sorted(rows, key=lambda row: row["method"]), "method"):
        cells = []
        for size in sizes:
            own = where(rows, method=method, size=size)
            scores = _best(own) if own else np.zeros(0)
            cells.append(f"{show(scores, '.1f')}, {scores.min():.1f}" if own else "")
        body.append([method, *cells])
    return table(["method", *(f"{size} rows" for size in sizes)], body)


def rounds_table() -> str:
    """Accuracy after each round."""
    rows = where(read_record("text")["rows"], question="rounds")
    body = []
    for method in unique(rows, "method"):
        scores = 100 * np.array([row["accuracy"] for row in where(rows, method=method)])
        best = scores.mean(0).argmax(1)
        own = [scores[:, number, one] for number, one in enumerate(best)]
        body.append([method, *(show(one, ".1f") for one in own), f"{own[-1].min():.1f}"])
    size = rows[0]["size"]
    count = len(rows[0]["accuracy"])
    head = [f"{size * (number + 1)} rows" for number in range(count)]
    return table(["method", *head, "worst seed"], body)


#: The two scores of contexts, with the sign that makes a lead positive, and their format.
SCORES = {"accuracy": (100.0, ".1f"), "log_loss": (-1.0, ".3f")}


def contexts() -> str:
    """docs/contexts.md."""
    return render("contexts.md", lead_table=lead_table, leads=leads, worth_of=worth_of)


def leads(
    field: str, size: int, contexts: int, ours: str = "selected", theirs: str = "stratified"
) -> dict[str, Gap]:
    """For each table the lead of a method within seeds; as ``mean`` that over all tables."""
    rows = where(read_record("contexts")["rows"], size=size, contexts=contexts)
    scores = [
        {row["table"]: np.array(row[field]) for row in where(rows, method=method)}
        for method in (ours, theirs)
    ]
    scale = SCORES[field][0]
    found = {name: paired(scale * (own - scores[1][name])) for name, own in scores[0].items()}
    return {**found, "mean": paired([one.value for one in found.values()])}


def lead_table(field: str) -> str:
    """Means over tables, the lead, and how many tables are significantly above and below."""
    rows = read_record("contexts")["rows"]
    scale, spec = SCORES[field]
    body = []
    for contexts in (1, CONTEXTS):
        for size in SIZES:
            found = leads(field, size, contexts)
            lead = found.pop("mean")
            means = [
                np.mean([row[field] for row in where(rows, method=m, size=size, contexts=contexts)])
                for m in ("selected", "stratified")
            ]
            worst = min(found, key=lambda name: found[name].value)
            digits = spec[1]
            body.append(
                [
                    str(contexts),
                    str(size),
                    *(f"{abs(scale) * mean:{spec}}" for mean in means),
                    f"{lead.value:+.{digits}f} ± {lead.half():.{digits}f}",
                    str(sum(one.above for one in found.values())),
                    str(sum(one.below for one in found.values())),
                    f"{found[worst].value:+.{digits}f} ({worst})",
                ]
            )
    head = ["contexts", "rows", "selected", "stratified", "lead", "tables above", "below", "worst"]
    return table(head, body)


def worth_of(size: int) -> float:
    """How many stratified rows reach the mean accuracy of so many selected ones, one context."""
    rows = where(read_record("contexts")["rows"], contexts=1)
    drawn = where(rows, method="stratified")
    sizes = sorted(unique(drawn, "size"))
    curve = [np.mean([row["accuracy"] for row in where(drawn, size=one)]) for one in sizes]
    own = np.mean([row["accuracy"] for row in where(rows, method="selected", size=size)])
    return float(np.exp(np.interp(own, curve, np.log(sizes))))


def draw() -> None:
    for figure in (_texts, _contexts, _images, _device):
        figure()


def _panel(name: str, *shape: int, **options: Any) -> Any:
    return drawing(DOCS / "images" / f"gallery_{name}.png", *shape, figsize=(6, 3.4), **options)


def _texts() -> None:
    """Accuracy after each round of labels."""
    rows = where(read_record("text")["rows"], question="rounds")
    with _panel("texts") as (_, place):
        for method in unique(rows, "method"):
            scores = 100 * np.array([row["accuracy"] for row in where(rows, method=method)])
            means = scores.mean(0).max(1)
            labels = rows[0]["size"] * (1 + np.arange(len(means)))
            place.plot(labels, means, "o-", label=method)
        place.set(xlabel="labelled texts of BANKING77", ylabel="accuracy in percent")
        place.grid(alpha=0.3)
        place.legend()


def _contexts() -> None:
    """Accuracy of nearest neighbours that read contexts of 20 digits."""
    x, y = digits()
    train, test = slice(0, 1000), slice(1000, None)
    chosen = bicore.contexts(x[train], y[train], 20)
    drawn = [stratified(y[train], 20, np.random.default_rng(k)) for k in range(len(chosen))]
    with _panel("contexts") as (_, place):
        for name, rows in (("selected", chosen), ("stratified", drawn)):
            fits = [KNeighborsClassifier(1).fit(x[one], y[one]) for one in rows]
            odds = np.cumsum([fit.predict_proba(x[test]) for fit in fits], axis=0)
            scores = 100 * (odds.argmax(2) == y[test]).mean(1)
            place.plot(1 + np.arange(len(rows)), scores, "o-", label=name)
        place.set(xlabel="contexts of 20 digits", ylabel="accuracy in percent")
        place.grid(alpha=0.3)
        place.legend()


def _images() -> None:
    """Thirty selected digits, in order."""
    x, y = digits()
    chosen = bicore.select(x, y, 30).indices
    with _panel("images", 3, 10) as (_, places):
        for place, row in zip(places.ravel(), chosen, strict=True):
            place.imshow(x[row].reshape(8, 8), cmap="gray_r")
            place.axis("off")


def _device() -> None:
    """Accuracy along a stream that is sorted by class, and the bytes of the state."""
    x, y = digits()
    order = np.argsort(y[:1400], kind="stable")
    memory = MomentMemory(capacity=30, feature_map="relu:256", holdout=False)
    seen, scores, sizes = [], [], []
    for batch in np.array_split(order, 28):
        memory.update(x[batch], y[batch])
        if len(np.unique(y[order[: int(memory.moments.weight)]])) > 1:
            seen.append(memory.moments.weight)
            scores.append(100 * memory.head().score(x[1400:], y[1400:]))
            sizes.append(
                sum(getattr(one, "nbytes", 0) for one in memory.state_dict().values()) / 1e6
            )
    with _panel("device") as (_, place):
        place.plot(seen, scores, label="accuracy of the head, in percent")
        place.set(xlabel="rows seen, sorted by class", ylabel="percent", ylim=(0, 100))
        other = place.twinx()
        other.plot(seen, sizes, "C1--", label="state")
        other.set(ylabel="megabytes", ylim=(0, None))
        place.grid(alpha=0.3)
