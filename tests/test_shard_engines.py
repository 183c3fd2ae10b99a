"""Threads, GPU and Dask select the same points."""

import os
import pickle
import signal
from functools import partial

import numpy as np
import pytest
import torch

import bicore as library
from bicore import InputError, Runtime
from bicore.errors import WorkerLostError
from bicore.moments.features import RandomReLU
from bicore.moments.features.maps import Rows
from bicore.moments.moments import Moments
from bicore.shards.counting import CountWork, PartRows
from bicore.shards.executors import DaskExecutor, Executor, GPUExecutor, Threads
from bicore.shards.request import Request
from bicore.shards.scoring import ScoreWork, largest
from bicore.shards.selection import Selection, as_executor, select_from_shards
from bicore.sources.numpy_files import NpyShards
from bicore.sources.opening import open_shards
from bicore.sources.parts import ArrayShards
from tests.helpers import draw_classes, refuses
from tests.marks import diagonal

rows = partial(draw_classes, n=900, width=12, dtype=np.float16)


def assert_same_on_gpu(source, size, gpu=None, **options):
    host = select_from_shards(source, size, executor=Threads(), **options)
    there = select_from_shards(source, size, executor=gpu or GPUExecutor("cpu"), **options)
    assert there.indices.tolist() == host.indices.tolist()
    assert there.objective == pytest.approx(host.objective, rel=1e-9)
    assert there.details == host.details
    return there


class TestCard:
    @pytest.mark.parametrize(
        ("dtype", "classes"), diagonal([np.float16, np.float32, np.float64], [3, 10], 3)
    )
    def test_its_picks_are_those_of_the_host(self, dtype, classes):
        x, y = rows(dtype=dtype, classes=classes)
        assert_same_on_gpu(ArrayShards(x, y, part_rows=250), 16)
        assert_same_on_gpu(ArrayShards(x, y, part_rows=250), 8, exact=True, rule="gradient")
        assert_same_on_gpu(ArrayShards(x, y, part_rows=250), 8, exact=True, quotas={1: 3})

    def test_targets_weights_priors_and_maps_too(self):
        x, y = rows()
        weight = np.random.default_rng(1).integers(0, 3, len(x)).astype(float)
        assert_same_on_gpu(ArrayShards(x, y, weight, part_rows=250), 8)
        assert_same_on_gpu(ArrayShards(x, y, part_rows=250), 8, prior="equal", feature_map=Rows())
        assert_same_on_gpu(ArrayShards(x, y, part_rows=250), 8, feature_map=RandomReLU(20))
        targets = np.stack([x[:, 0] ** 2, x[:, 1]], 1).astype(np.float64)
        assert_same_on_gpu(ArrayShards(x, targets, part_rows=250), 8)

    def test_non_finite_rows_are_skipped_or_an_error(self):
        x, y = rows()
        x[300, 2] = np.nan
        source = ArrayShards(x, y, part_rows=250)
        assert assert_same_on_gpu(source, 15, skip_bad=True).details["bad_rows"] == 1
        refuses(
            "row 300 of the source", select_from_shards, source, 15, executor=GPUExecutor("cpu")
        )

    def test_rows_stay_as_far_as_there_is_room(self):
        x, y = rows()
        source = ArrayShards(x, y, part_rows=250)
        part = 250 * 12 * 2
        for memory, stay, again in (
            (0, 0, [0, 1, 2, 3]),
            (2 * part, 2 * part, [2, 3]),
            (10**9, x.nbytes, []),
        ):
            gpu, reads = GPUExecutor("cpu", memory=memory), []
            original = source.read
            source.read = lambda part, reads=reads, original=original: (
                reads.append(part.number) or original(part)
            )
            with gpu:
                counting = CountWork(Rows().fit(x), Moments.empty(12))
                first = list(gpu.map(counting, source))
                assert gpu.resident == stay
                second = list(gpu.map(counting, source))
            source.read = original
            assert sorted(reads) == sorted([0, 1, 2, 3, *again])
            assert first[3].moments.counts.tolist() == second[3].moments.counts.tolist()
            assert gpu.resident == 0  # let go at the end

    def test_other_work_is_done_here(self):
        source = ArrayShards(np.zeros((10, 2)), part_rows=4)
        assert list(GPUExecutor("cpu").map(lambda source, part: part.count, source)) == [4, 4, 2]

    @pytest.mark.gpu
    @pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
    @pytest.mark.parametrize("memory", [None, 10_000])
    def test_a_real_one_too(self, memory):
        for classes in (3, 10):
            x, y = rows(classes=classes)
            assert_same_on_gpu(ArrayShards(x, y, part_rows=250), 30, GPUExecutor(memory=memory))

    @pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
    def test_a_missing_gpu_is_reported(self):
        refuses("torch finds no GPU", GPUExecutor)


class TestWork:
    @pytest.mark.parametrize("scale", [1e-25, 1.0, 1e25])
    @pytest.mark.parametrize("classes", [3, 30])
    def test_scores_are_slopes_of_unit_rows_of_any_length(self, scale, classes):
        x, y = rows(n=400, classes=classes, dtype=np.float32)
        x = (x * scale).astype(np.float32)
        x[7] = 0
        rng = np.random.default_rng(2)
        change, model = rng.normal(size=(2, 12, classes))
        centre = np.full(classes, 1 / classes)
        source = ArrayShards(x, y, part_rows=400)
        scoring = ScoreWork(
            Rows().unit().fit(x),
            np.hstack([-model, change]),
            centre,
            np.arange(classes),
            25,
            25,
            np.array([3]),
        )
        exact = x.astype(np.float64) / np.maximum(
            np.linalg.norm(x.astype(np.float64), axis=1, keepdims=True), 1e-300
        )
        slopes = np.einsum("ij,ij->i", exact @ change, np.eye(classes)[y] - centre - exact @ model)
        slopes[3] = -np.inf
        best = np.sort(np.argsort(-slopes)[:25])
        for found in (
            scoring(source, source.parts[0]),
            scoring.run(PartRows(source.parts[0], torch.from_numpy(x), y)),
        ):
            assert found.positions.tolist() == best.tolist()
            np.testing.assert_allclose(found.features, exact[best], rtol=1e-12, atol=1e-15)
            assert found.below == pytest.approx(np.sort(slopes)[-26], rel=1e-4)

    def test_of_equal_values_the_first_are_taken(self):
        values = torch.tensor([2.0, 5.0, 2.0, 1.0, 2.0, -torch.inf])
        for count, places, below in (
            (2, [0, 1], 2.0),
            (3, [0, 1, 2], 2.0),
            (4, [0, 1, 2, 4], 1.0),
            (6, [0, 1, 2, 3, 4], -np.inf),
        ):
            found = largest(values, count)
            assert (found[0].tolist(), found[1]) == (places, below)


class Sent(Executor):
    """Sends work, source and results as another process would get them."""

    def map(self, work, source):
        for part in source.parts:
            own_work, own_source, own_part = pickle.loads(pickle.dumps((work, source, part)))
            yield pickle.loads(pickle.dumps(own_work(own_source, own_part)))


def test_another_process_can_read_the_parts():
    source = ArrayShards(*rows(n=400), part_rows=150)
    plain = select_from_shards(source, 8, initial=[7])
    found = select_from_shards(source, 8, initial=[7], executor=Sent())
    assert found.indices.tolist() == plain.indices.tolist()


class Deadly(NpyShards):
    """Kills whoever reads its third part elsewhere, while there is a file that says so."""

    def read(self, part):
        if part.number == 2 and os.getpid() != self.home_process:
            try:
                os.unlink(self.sign)
            except FileNotFoundError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().read(part)


@pytest.fixture
def deadly_source(tmp_path, monkeypatch):
    """A source whose reader is killed in the first pass and in the third that scores."""
    x, y = rows()
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    source = Deadly(tmp_path / "x.npy", labels=tmp_path / "y.npy", part_rows=150)
    source.home_process, source.sign = os.getpid(), str(tmp_path / "sign")
    real = Selection._pass

    def mark(self):
        if self.passes == 3 and self.source is source:
            (tmp_path / "sign").touch()
        return real(self)

    monkeypatch.setattr(Selection, "_pass", mark)
    return source


def same_after_deaths(source, executor, tmp_path):
    plain = select_from_shards(ArrayShards(*rows(), part_rows=150), 9)
    (tmp_path / "sign").touch()
    found = select_from_shards(source, 9, executor=executor)
    assert not (tmp_path / "sign").exists()
    assert found.indices.tolist() == plain.indices.tolist()
    assert found.objective == plain.objective


@pytest.mark.slow
class TestLostWorkers:
    def test_dask_does_the_parts_again(self, deadly_source, tmp_path):
        distributed = pytest.importorskip("distributed")
        with (
            distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, dashboard_address=None
            ) as cluster,
            DaskExecutor(cluster.scheduler_address) as workers,
        ):
            same_after_deaths(deadly_source, workers, tmp_path)

    def test_a_lost_scheduler_is_reported_and_the_selection_continues(self, tmp_path):
        distributed = pytest.importorskip("distributed")
        x, y = rows()
        source = ArrayShards(x, y, part_rows=300)
        plain = select_from_shards(source, 9)
        cluster = distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
        )
        client = distributed.Client(cluster)

        def lose(step):
            if step.done == 4:
                cluster.close()

        known = {"state": tmp_path / "state", "runtime": Runtime(progress=lose)}
        with pytest.raises(WorkerLostError, match="state="):
            select_from_shards(source, 9, executor=DaskExecutor(client), **known)
        client.close()
        again = select_from_shards(source, 9, state=tmp_path / "state")
        assert again.indices.tolist() == plain.indices.tolist()


def test_missing_dask_is_reported(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "distributed", None)
    refuses(r"bicore\[dask\]", DaskExecutor, "tcp://127.0.0.1:1")


def test_runtime_chooses_the_executor(monkeypatch):
    """A GPU where the runtime has one, else threads; a name wins over both."""
    x, y = rows(n=100)
    source = ArrayShards(x, y)
    request = Request(5, Rows().fit(x))
    gpu = torch.device("cuda")
    monkeypatch.setattr(Runtime, "torch_device", property(lambda self: gpu))
    hires = []
    monkeypatch.setattr("bicore.shards.selection.GPUExecutor", hires.append)
    as_executor(None, source, request, Runtime())
    assert hires == ["cuda"]
    assert as_executor(Threads(2), source, request, Runtime()) == Threads(2)
    gpu = torch.device("cpu")
    assert as_executor(None, source, request, Runtime(threads=1)) == Threads(1)


class TestDaskSources:
    def arrays(self):
        return pytest.importorskip("dask.array", reason="Dask is an extra")

    def test_arrays_give_the_same_points(self):
        array = self.arrays()
        x, y = rows()
        plain = select_from_shards(ArrayShards(x, y, part_rows=300), 9)
        lazy = array.from_array(x, chunks=(300, 5)), array.from_array(y, chunks=200)
        for source in (open_shards(lazy), open_shards(lazy[0], labels=y)):
            assert [part.count for part in source.parts] == [300] * 3
            assert select_from_shards(source, 9).indices.tolist() == plain.indices.tolist()
        refuses("one for each row", open_shards, lazy[0], labels=y[:-1])
        same = library.select(x, y, size=9).indices.tolist()
        assert library.select(lazy[0], lazy[1], size=9).indices.tolist() == same

    def test_dataframes_and_delayed_chunks_too(self):
        self.arrays()
        dask = pytest.importorskip("dask")
        pandas = pytest.importorskip("pandas")
        frames = pytest.importorskip("dask.dataframe")
        x, y = rows(dtype=np.float32)
        plain = select_from_shards(ArrayShards(x, y, part_rows=300), 9).indices.tolist()
        made = [dask.delayed((x[at : at + 300], y[at : at + 300])) for at in (0, 300, 600)]
        empty = dask.delayed((x[:0], y[:0]))
        source = open_shards([*made, empty])
        assert select_from_shards(source, 9).indices.tolist() == plain
        assert "partition 3 has no rows" in source.notes[0]
        names = [f"c{number}" for number in range(x.shape[1])]
        table = frames.from_pandas(
            pandas.DataFrame(x, columns=names).assign(label=y), npartitions=3
        )
        assert select_from_shards(open_shards(table, target="label"), 9).indices.tolist() == plain
        with pytest.raises(InputError, match="no column 'lable'"):
            open_shards(table, target="lable").rows  # noqa: B018

    def test_chunks_that_change_are_noticed(self):
        self.arrays()
        dask = pytest.importorskip("dask")
        x, y = rows(n=90)
        calls = []

        def changing():
            calls.append(1)
            return x + len(calls), y

        source = open_shards([dask.delayed(changing)()])
        refuses("changed since it was opened", select_from_shards, source, 3)

    @pytest.mark.slow
    def test_workers_compute_their_own_rows(self):
        array = self.arrays()
        distributed = pytest.importorskip("distributed")
        x, y = rows()
        plain = select_from_shards(ArrayShards(x, y, part_rows=300), 9)
        with (
            distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, dashboard_address=None
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            lazy = array.from_array(x, chunks=(300, -1)), array.from_array(y, chunks=300)
            persisted = client.persist(lazy[0]), lazy[1]
            for given in (lazy, persisted):
                source = open_shards(given)
                found = select_from_shards(source, 9, executor=DaskExecutor(client))
                assert found.indices.tolist() == plain.indices.tolist()
            named = select_from_shards(source, 9, executor=cluster.scheduler_address)
            assert named.indices.tolist() == plain.indices.tolist()


def test_only_points_of_a_pass_are_kept(monkeypatch):
    """A row that is a view keeps the whole shortlist of its pass: memory would grow with passes."""
    kept, real = [], Selection._add_point

    def watch(self, *one):
        real(self, *one)
        kept.append(tuple(column.base for column in self.points[-1][1:]))

    monkeypatch.setattr(Selection, "_add_point", watch)
    x, y = rows()
    select_from_shards(ArrayShards(x, y), 5)
    assert kept == [(None, None)] * 5
