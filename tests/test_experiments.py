"""The reproduction: tasks as the paper has them, rehearsal, tables, and every experiment end to end
at toy size."""

import json
import multiprocessing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from benchmarks.pages import render
from bicore.networks.observe import dropout_probabilities
from experiments import continual, page, streaming, summary
from experiments.__main__ import main
from experiments.catalogue import EXPERIMENTS
from experiments.courses import Checkpoint
from experiments.methods import continual_row, stream_row, summary_rows
from experiments.networks import (
    Architecture,
    ConvNet,
    FullyConnected,
    Network,
    ResNet18,
    group_norm,
)
from experiments.paper import PAPER
from experiments.problems import MNIST_POOL, SPLIT_MNIST
from experiments.records import RecordError, Records, TornLine
from experiments.rows import Job
from experiments.selectors import DIRECTIONS_CORESET, EMBEDDING_CORESET, RBF_CORESET, UNIFORM, Named
from experiments.stores import BALANCED_RESERVOIR, GSS, RESERVOIR, ByMoments, Slots
from experiments.streaming import Weighting
from experiments.tables import cells, read_runs
from experiments.tasks import IMBALANCED, Part, Task, batches, load, permute, split
from experiments.training import Cohort, Learner, Memory, build
from tests.helpers import fails
from tests.marks import except_slow, few

SOURCE = Path(__file__).parents[1] / "experiments"


KEY = {"dataset": "SplitMNIST", "method": "CBRS", "memory": 100, "beta": 1.0, "seed": 0}
RESULT = {"test": [0.5], "held": [0.6], "seconds": 1.0, "quick": False}


def make_toy_digits():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(10), 700)
    x = rng.normal(size=(len(y), 1, 28, 28)).astype(np.float32)
    order = rng.permutation(len(y))
    return Part(x[order], y[order]), Part(x[:500], y[:500])


def test_tasks_are_those_of_the_protocol():
    train_part, test = make_toy_digits()
    made = permute(train_part, test, 3)
    rng = np.random.RandomState(0)
    order = np.arange(784)
    for task in made:  # one generator shuffles in turn, so that the first task is permuted too
        rng.shuffle(order)
        np.testing.assert_array_equal(
            task.train.x.reshape(1000, -1), train_part.x[:1000].reshape(1000, -1)[:, order]
        )
        np.testing.assert_array_equal(
            task.test.x.reshape(500, -1), test.x.reshape(500, -1)[:, order]
        )
        np.testing.assert_array_equal(task.held.y, train_part.y[1000:2000])
    pairs = split(train_part, test, points=500)
    for number, task in enumerate(pairs):
        assert set(task.train.y) == set(task.held.y) == {2 * number, 2 * number + 1}
        assert len(task.train) == len(task.held) == 500
        rows_of = {row.tobytes() for row in task.train.x}
        assert not rows_of & {row.tobytes() for row in task.held.x}
    stream = list(batches(pairs, 125))
    assert [len(batch) for batch in stream] == [125] * 20
    np.testing.assert_array_equal(stream[4].x, pairs[1].train.x[:125])
    assert [len(batch) for batch in batches(pairs[:1], 300)] == [300]
    assert sum(IMBALANCED) == 2800


def linear(seed=0):
    class Linear(Network):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(784, 3)

        def forward(self, x):
            return self.head(x.flatten(1))

    return build(Linear, seed, "cpu")


def test_a_step_is_the_loss_of_the_batch_plus_beta_times_the_sum_over_tasks_of_mean_losses():
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(8, 1, 28, 28, generator=rng)
    y = torch.arange(8) % 3
    old = torch.randn(5, 1, 28, 28, generator=rng)
    labels = torch.tensor([0, 1, 2, 0, 1])
    # a task of two rows and one of three
    weight = torch.tensor([1 / 2, 1 / 2, 1 / 3, 1 / 3, 1 / 3])
    learner = Learner(linear(), 10.0, 8, 9, rate=0.1)
    learner.take(x, y)
    learner.rehearse(Memory(old, labels, weight))
    expected = linear()
    optimiser = torch.optim.Adam(expected.parameters(), lr=0.1)
    plain = nn.functional.cross_entropy
    loss = plain(expected(x), y) + 10 * (
        plain(expected(old[:2]), labels[:2]) + plain(expected(old[2:]), labels[2:])
    )
    loss.backward()
    optimiser.step()
    Cohort([learner]).train(1)
    torch.testing.assert_close(list(learner.network.parameters()), list(expected.parameters()))
    # a smaller memory leaves nothing of the larger one
    learner.rehearse(Memory(old[:1], labels[:1], torch.ones(1)))
    assert learner.memory.weight.tolist() == [1.0] + [0.0] * 8


def test_a_restart_forgets_the_optimiser_and_weights_count():
    x = torch.randn(6, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    y = torch.arange(6) % 3
    used, fresh = (Learner(linear(), 0.0, 6, 1, rate=0.01) for _ in range(2))
    for learner in (used, fresh):
        learner.take(x, y)
    Cohort([used]).train(3)
    used.network.load_state_dict(linear().state_dict())
    used.restart()
    used.generator.manual_seed(0)
    fresh.generator.manual_seed(0)
    Cohort([used, fresh]).train(2)
    torch.testing.assert_close(list(used.network.parameters()), list(fresh.network.parameters()))
    one = Learner(linear(), 0.0, 6, 1, rate=0.01)
    one.take(x, y, torch.tensor([6.0, 0, 0, 0, 0, 0]))
    one.generator.manual_seed(0)
    Cohort([one]).train(1)
    alone = Learner(linear(), 0.0, 1, 1, rate=0.01)
    alone.take(x[:1], y[:1])
    Cohort([alone]).train(1)
    torch.testing.assert_close(one.network.head.bias, alone.network.head.bias)


def test_the_residual_network_is_the_papers_and_sees_crops_and_mirror_images():
    network = build(ResNet18, 0, "cpu")
    convolutions = [part for part in network.modules() if isinstance(part, nn.Conv2d)]
    assert len(convolutions) == 20
    assert all(part.bias is None for part in convolutions)
    assert sum(value.numel() for value in network.parameters()) == 11_164_362
    x = torch.randn(50, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    wide = ResNet18.prepare(x)
    assert wide.shape == (50, 40, 40, 3)
    torch.testing.assert_close(wide[:, 4:36, 4:36].permute(0, 3, 1, 2), x)
    black = -torch.tensor([0.4914, 0.4822, 0.4465]) / torch.tensor([0.2023, 0.1994, 0.2010])
    torch.testing.assert_close(wide[0, 0, 0], black)
    torch.manual_seed(0)
    seen = ResNet18.view(wide)
    assert seen.is_contiguous(memory_format=torch.channels_last)
    found = set()
    for image, framed in zip(seen, wide.permute(0, 3, 1, 2), strict=True):
        matches = [
            (top, left, mirrored)
            for top in range(9)
            for left in range(9)
            for mirrored in (False, True)
            for crop in [framed[:, top : top + 32, left : left + 32]]
            if torch.equal(image, crop.flip(2) if mirrored else crop)
        ]
        assert len(matches) == 1
        found.update(matches)
    assert len(found) > 40
    assert {mirrored for _, _, mirrored in found} == {False, True}
    for norm, kind in ((nn.BatchNorm2d, nn.BatchNorm2d), (group_norm, nn.GroupNorm)):
        small = ResNet18(width=8, norm=norm)
        assert sum(isinstance(part, kind) for part in small.modules()) == 20
        assert small(x[:2]).shape == (2, 10)
    assert {part.num_groups for part in small.modules() if isinstance(part, kind)} == {8, 16, 32}


@dataclass
class Cut(Checkpoint):
    """Stops the run once it has been written so often."""

    left: int = 1

    def save(self, *state):
        super().save(*state)
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def check_resumed(module, row, job, tasks, cut, times=("seconds", "picking")):
    """A run that was cut off ends in the numbers of a run in one go, and its earlier time counts.

    Returns what the cut had written.
    """

    def run(checkpoint, seed=0):
        torch.manual_seed(seed)
        return dict(module.run(row, job, tasks, checkpoint))

    whole = run(None)
    fails(KeyboardInterrupt, "^$", run, cut)
    kept = cut.folder / "state.pt"
    files = [path.name for path in cut.folder.iterdir()]
    place = torch.load(kept, weights_only=True)["place"]
    longer = {**place, **dict.fromkeys(times, 5000.0)}
    torch.save({**torch.load(kept, weights_only=True), "place": longer}, kept)
    continual.learn_first.cache_clear()
    found = run(Checkpoint(cut.folder, cut.every), seed=99)  # another process
    for value, result in whole.items():
        assert found[value]["test"] == result["test"]
        assert found[value]["held"] == result["held"]
        # of two values, with the time before the cut
        assert found[value]["seconds"] > 2500
        assert "picking" not in times or found[value]["selection_seconds"] > 2500
    assert not cut.folder.exists()
    return place, files


SMALL = Architecture(FullyConnected, FullyConnected)
PICKERS = [RBF_CORESET, ByMoments(jointly=True)]
PICKERS += [UNIFORM, Named("hardest"), EMBEDDING_CORESET, DIRECTIONS_CORESET]


def short_learning_row(picker, **facts):
    """A short row of continual learning."""
    return continual_row(SPLIT_MNIST, 6, "Any", picker, **{"network": SMALL, "epochs": 6, **facts})


def short_stream_row(store, memory, **facts):
    """A short row of a stream."""
    return stream_row(SPLIT_MNIST, memory, "Any", store, network=SMALL, epochs=1, **facts)


@pytest.mark.parametrize("how", few(PICKERS, 2), ids=repr)
def test_interrupted_run_continues_to_the_same_numbers(how, tmp_path):
    train, test = load(None)
    made = split(train, test[:60], 3, 40)
    row = short_learning_row(how)
    check_resumed(continual, row, Job(0, [0.1, 10.0]), made, Cut(tmp_path / "state", 2, left=3))


def row_of(experiment, key):
    return next(row for row in EXPERIMENTS[experiment].rows() if row.key == key)


def test_batchbald_acquires_the_batches_that_enumeration_finds(monkeypatch):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 20), nn.ReLU(), nn.Dropout(0.5), nn.Linear(20, 3))
    rng = np.random.default_rng(1)
    part = Part((3 * rng.normal(size=(14, 2))).astype(np.float32), np.arange(14) % 3)
    trained = []
    monkeypatch.setattr(
        summary.BatchBALDChoice, "_train", lambda *given: trained.append(len(given[3])) or network
    )
    choice = summary.BatchBALDChoice(per_class=1, batch=2, draws=6)
    found = list(choice.subsets(None, Job(3, ()), [Task(part, part, part)], [4, 7]))
    order = found[-1].rows.tolist()
    assert trained == [3, 5]
    assert sorted(part.y[order[:3]]) == [0, 1, 2]
    for labelled in trained:
        left = np.setdiff1d(np.arange(14), order[:labelled])
        by_draw = dropout_probabilities(network, part.x[left], 6, 3 + 1000 * labelled).numpy()
        given = -(by_draw * np.log(by_draw)).sum(2).mean(0)  # E_ω H(y | ω)
        one = by_draw.mean(0)
        first = np.argmax(-(one * np.log(one)).sum(1) - given)
        two = np.einsum("tc,tid->icd", by_draw[:, first], by_draw) / 6  # of every pair of labels
        information = -(two * np.log(two)).sum((1, 2)) - given - given[first]
        information[first] = -np.inf
        pair = left[[first, np.argmax(information)]]
        assert order[labelled : labelled + 2] == pair.tolist()
    assert found[0].rows.tolist() == order[:4]
    assert [labels for labels, _ in found[1].facts["acquisition"]] == [3, 5]


def test_choices_with_fewer_seeds_do_not_win():
    given = [record("Coreset", 100.0, seed, 0.9, 0.5) for seed in range(5)] + [
        record("Coreset", 1000.0, 0, 0.95, 0.6)
    ]
    (cell,) = cells("continual", given)
    assert (cell.chosen, cell.seeds, cell.choices) == (100.0, 5, 1)
    mixed = [{**one, "lambda": 1e-3 if one["seed"] else 1e-4} for one in given]
    fails(RecordError, "several λ", cells, "continual", mixed)


def test_the_cnn_is_the_papers_also_on_windows_laid_out_before():
    network = build(ConvNet, 0, "cpu").eval()
    first = network.first, nn.ReLU(), nn.MaxPool2d(2)
    second = network.second, nn.ReLU(), nn.MaxPool2d(2)
    plain = nn.Sequential(*first, *second, nn.Flatten(), network.hidden, nn.ReLU(), network.head)
    x = torch.randn(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(network(x), plain(x))
    torch.testing.assert_close(network(network.prepare(x)), plain(x))
    assert network.prepare(x).shape == (4, 576, 32)
    assert sum(value.numel() for value in network.parameters()) == 184_586
    network.train()  # dropout: no two passes are alike
    assert not torch.equal(network(x), network(x))


def test_a_training_that_breaks_down_is_an_error_and_no_record():
    learner = Learner(linear(), 0.0, 6, 1)
    learner.take(torch.full((6, 1, 28, 28), torch.nan), torch.arange(6) % 3)
    fails(ArithmeticError, "not finite", Cohort([learner]).train, 2)


def record(method, beta, seed, test, held):
    key = {**KEY, "method": method, "beta": beta, "seed": seed}
    return {**key, **RESULT, "test": [test], "held": [held]}


def test_beta_is_chosen_on_held_out_points_and_the_interval_is_welchs():
    tests = {1.0: [0.90, 0.92, 0.91], 10.0: [0.95, 0.93, 0.94]}
    held = {1.0: 0.99, 10.0: 0.80}
    given = [
        record("Coreset", beta, seed, value, held[beta])
        for beta, values in tests.items()
        for seed, value in enumerate(values)
    ]
    (cell,) = cells("continual", given)
    assert (cell.chosen, cell.best_chosen, cell.seeds) == (1.0, 10.0, 3)
    assert cell.mean == pytest.approx(91.0)
    assert cell.best_mean == pytest.approx(94.0)
    assert cell.std == pytest.approx(100 * np.std(tests[1.0]))
    paper = PAPER["continual_learning"]["Coreset"]["SplitMNIST"]
    ours = 100 * np.std(tests[1.0], ddof=1)
    theirs = paper["std"] * (5 / 4) ** 0.5
    error = (ours**2 / 3 + theirs**2 / 5) ** 0.5
    freedom = (ours**2 / 3 + theirs**2 / 5) ** 2 / (
        (ours**2 / 3) ** 2 / 2 + (theirs**2 / 5) ** 2 / 4
    )
    found = (cell.difference.value, cell.difference.half())
    assert found == pytest.approx((91.0 - paper["mean"], stats.t.ppf(0.975, freedom) * error))


@pytest.mark.slow
@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize(
    "store", [RESERVOIR, BALANCED_RESERVOIR, Slots(RBF_CORESET), GSS, ByMoments()], ids=repr
)
def test_an_interrupted_stream_continues_to_the_same_numbers(store, fresh, tmp_path):
    train, test = load(None)
    made = split(train, test[:60], 2, 50)
    facts = {"fresh": fresh, "steps": 2, "batch": 10, "slots": 3}
    row = short_stream_row(store, 12, weighting=Weighting.BATCHES, **facts)
    cut = Cut(tmp_path / "state", 3, left=2)
    place, files = check_resumed(streaming, row, Job(0, [0.1, 10.0]), made, cut)
    assert place["task"] == 6
    older = [name for name in files if name.startswith("kept-") and name[5:7] != "6-"]
    assert older == []


def test_an_interrupted_summary_continues_to_the_same_numbers(tmp_path):
    train, test = load(None)
    task = Task(train[:200], test[:60], train[200:260])
    tasks = [task, replace(task, train=train[260:500])]
    recipe = summary.Recipe((10, 20), 9, 1e-4, 1, False, rows=40)
    row = replace(summary_rows(MNIST_POOL, recipe)[0], network=SMALL)
    cut = Cut(tmp_path / "state", 2, left=1)
    place, _ = check_resumed(summary, row, Job(0, (10.0, 20.0)), tasks, cut, ["seconds"])
    assert place["epochs"] == 2


def test_records_of_rows_that_are_no_more_are_not_shown(tmp_path):
    for method in ("Coreset", "Coreset of old"):
        Records("continual", tmp_path).write({**KEY, "method": method}, RESULT)
    assert [one["method"] for one in read_runs("continual", tmp_path)] == ["Coreset"]


#: Those whose parts the others go through as well.
LONGER = {name for name in EXPERIMENTS if name.startswith("cifar") or name.endswith("fresh")}
# What others show too: memory sizes, a row on CIFAR-10, tests/test_vcl.py, and buffers by themselves.
LONGER |= {"continual", "vcl", "summary", "streaming", "imbalanced"}
LONGER |= {"streaming-sizes", "streaming-fresh-sizes", "imbalanced-sizes", "memory", "traps"}
LONGER |= {"imbalanced-fresh-sizes", "picks", "proxy"}


@pytest.mark.parametrize("name", except_slow(EXPERIMENTS, LONGER))
def test_every_experiment_runs_at_toy_size_and_is_not_run_again(
    name, tmp_path, capsys, monkeypatch
):
    monkeypatch.delenv("BICORE_DATA", raising=False)
    monkeypatch.setenv("BICORE_CHECKPOINTS", str(tmp_path / "state"))
    torch.set_num_threads(1)
    assert main(["run", name, "--quick", "--records", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    records = list(Records(name, tmp_path).all())
    rows = [row for row in EXPERIMENTS[name].rows() if row.source is None]
    assert len(records) == sum(len(row.trials.toy) for row in rows)
    for kept in records:
        assert kept["quick"]
        assert kept["seconds"] > 0
        assert all(0 <= value <= 1 for value in kept.get("test", []) + kept.get("held", []))
    for row in rows:
        assert row.key in shown.out
    assert main(["run", name, "--quick", "--records", str(tmp_path)]) == 0
    assert "runs in" not in capsys.readouterr().err
    assert main(["table", name, "--records", str(tmp_path)]) == 0
    if name in ("summary", "picks"):
        out = tmp_path / "figure.png"
        assert main(["figure", name, "--records", str(tmp_path), "--out", str(out)]) == 0
        assert out.stat().st_size > 10_000
    assert EXPERIMENTS[name].title in render("tables/experiments.md", page, FOLDER=tmp_path)


def test_run_is_reproducible_and_skips_claimed_tasks(tmp_path, capsys):
    found = []
    words = ["run", "continual", "--quick", "--only", "Uniform sampling", "--records"]
    for folder in (tmp_path / "a", tmp_path / "b"):
        torch.manual_seed(len(found))  # what went before plays no part
        assert main([*words, str(folder)]) == 0
        found.append([(one["test"], one["held"]) for one in Records("continual", folder).all()])
    assert found[0] == found[1]
    assert len(found[0]) == 2
    records = Records("continual", tmp_path / "c")
    row = row_of("continual", "Uniform sampling").toy()
    key = row.configuration(0, row.trials.toy[0])
    capsys.readouterr()
    with records.claim(key) as mine:
        assert mine
        assert main([*words, str(tmp_path / "c")]) == 0
        # the other data set's, which no process holds
        assert [one["dataset"] for one in records.all()] == ["SplitMNIST"]
    assert main([*words, str(tmp_path / "c")]) == 0
    assert len(list(records.all())) == 2


@pytest.mark.parametrize("quick", [True, False])
def test_toys_and_runs_at_full_size_are_never_mixed(quick, tmp_path, capfd):
    """A toy of a row with a memory of 500 would pass for a run with 100."""
    Records("imbalanced", tmp_path).write(KEY, {**RESULT, "quick": not quick})
    words = ["--quick"] if quick else ["--data", str(tmp_path)]
    assert main(["run", "imbalanced", *words, "--records", str(tmp_path)]) == 2
    assert "imbalanced.jsonl holds" in capfd.readouterr().err


def test_records_are_found_by_their_configuration_and_the_last_one_counts(tmp_path):
    records = Records("imbalanced", tmp_path)
    assert not records.has(KEY)
    assert list(records.all()) == []
    records.write({**KEY, "seed": 3}, {"test": [0.5]})
    assert records.has({**KEY, "seed": 3})
    assert not records.has(KEY)
    other = Records("imbalanced", tmp_path)  # of another process
    other.write(KEY, {"test": [0.6]})
    other.write({**KEY, "seed": 3}, {"test": [0.7]})
    assert records.has(KEY)
    assert [(one["seed"], one["test"]) for one in records.all()] == [(0, [0.6]), (3, [0.7])]
    assert len(records.path.read_text().splitlines()) == 3
    said = "of 'CBRS' with steps=None, not 4"
    fails(RecordError, said, records.write, {**KEY, "seed": 4}, {"steps": 4})
    records.tidy()
    assert [json.loads(line)["seed"] for line in records.path.open()] == [0, 3]
    assert [(one["seed"], one["test"]) for one in records.all()] == [(0, [0.6]), (3, [0.7])]
    assert [path.name for path in tmp_path.iterdir()] == ["imbalanced.jsonl"]


@pytest.mark.parametrize("cut", [1, 40, -1])
def test_torn_line_is_reported_and_skipped(cut, tmp_path, capfd):
    records = Records("imbalanced", tmp_path)
    for seed in range(2):
        records.write({**KEY, "seed": seed}, RESULT)
    first, last = records.path.read_bytes().splitlines()
    records.path.write_bytes(first + b"\n" + last[:cut])
    with pytest.warns(TornLine, match=r"imbalanced\.jsonl, line 2, is not a whole record"):
        assert not records.has({**KEY, "seed": 1})
    with pytest.warns(TornLine):
        assert main(["table", "imbalanced", "--records", str(tmp_path)]) == 0
    assert "| CBRS | 100 | 1 |" in capfd.readouterr().out
    records.write({**KEY, "seed": 2}, RESULT)
    with pytest.warns(TornLine):
        assert [one["seed"] for one in Records("imbalanced", tmp_path).all()] == [0, 2]
    with pytest.warns(TornLine):
        records.tidy()
    assert [one["seed"] for one in Records("imbalanced", tmp_path).all()] == [0, 2]


@pytest.mark.parametrize("line", ["<<<<<<< HEAD", "[1, 2]", '{"test": [0.5]}'])
def test_an_invalid_record_is_refused_by_line_number(line, tmp_path, capfd):
    records = Records("imbalanced", tmp_path)
    records.write(KEY, RESULT)
    records.path.write_text(records.path.read_text() + line + "\n")
    before = records.path.read_bytes()
    assert main(["table", "imbalanced", "--records", str(tmp_path)]) == 2
    assert f"{records.path}, line 2, is not a record of a run" in capfd.readouterr().err
    fails(RecordError, "line 2", records.tidy)
    assert records.path.read_bytes() == before


def record_many(folder, who, count):
    """As a process of its own: lines of ten thousand characters, tidied up now and then."""
    records = Records("vcl", folder)
    for number in range(count):
        key = {"dataset": "A", "method": "B", "memory": who, "beta": float(number), "seed": 0}
        records.write(key, {"picks": [number] * 3000})
        if number % 4 == 0:
            records.tidy()


def test_several_processes_record_and_tidy_up_at_the_same_time(tmp_path):
    count = 5
    forked = multiprocessing.get_context("fork")
    writers = [forked.Process(target=record_many, args=(tmp_path, who, count)) for who in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 4
    found = list(Records("vcl", tmp_path).all())
    assert [(one["memory"], one["beta"]) for one in found] == [
        (who, float(number)) for who in range(4) for number in range(count)
    ]
    assert all(one["picks"] == [one["beta"]] * 3000 for one in found)


def test_the_records_that_are_kept_are_in_order_and_of_known_experiments():
    paths = sorted((SOURCE / "records").glob("*.jsonl"))
    # an experiment may wait for its first run
    assert {path.stem.removesuffix("-float32") for path in paths} <= set(EXPERIMENTS)
    for path in paths:
        records = Records(path.stem)
        kept = [json.loads(line) for line in path.open()]
        assert kept == list(records.all())
        assert {record["experiment"] for record in kept} == {path.stem}
