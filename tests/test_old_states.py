"""State files of earlier versions."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from bicore.bilevel import Relative
from bicore.files import fingerprint
from bicore.methods import GradientMatching, KCenter, Reconstruction, Uniform, VDesign
from bicore.methods.registry import greedy_selector
from bicore.runtime.context import Context
from bicore.streaming import (
    ClassBalancedReservoir,
    GradientSampling,
    JointReplay,
    MergeReduce,
    MomentMemory,
    ReplayMemory,
)
from tests.helpers import refuses

#: Eight rows 0 … 7 with labels 0, 1, 0, 1 …, as files of those versions held them.
STATES = Path(__file__).parent / "old_states"


def test_an_old_reservoir_state_continues():
    buffer = ClassBalancedReservoir.load(STATES / "reservoir.npz")
    assert buffer.mark == {}
    kept = buffer.snapshot()
    assert kept.ids.tolist() == [0, 1, 3]
    assert kept.weights.tolist() == [4, 2, 2]
    assert kept.extra is None
    whole = ClassBalancedReservoir(3).update(range(8), [0, 1] * 4)
    for one in (buffer, whole):
        one.update([8.0, 9.0], [0, 1])
    assert buffer.snapshot().ids.tolist() == whole.snapshot().ids.tolist()


def test_an_old_merge_reduce_state_continues():
    buffer = MergeReduce.load(STATES / "merge_reduce.npz", KCenter())
    assert buffer.mark == {"batch": 7}
    kept = buffer.snapshot()
    assert kept.ids.tolist() == [6, 0, 7]
    assert kept.weights.tolist() == [3.5, 3.5, 1]
    assert kept.extra is None
    assert buffer.levels == [1]
    assert len(buffer.update([8.0], [0]).snapshot()) == 4


def test_selectors_have_the_fingerprints_of_version_0_2():
    known = {
        greedy_selector("rbf", inner_reg=0.1): "5f5e73388889045b",
        greedy_selector(loss="cross-entropy"): "0200cfe0c5a3f677",
        GradientMatching(weighting="pursuit"): "fff1bca9c44a5c41",
        VDesign(): "e6155915884ecb33",
        Reconstruction(): "ac45d66eaf6efb2d",
    }
    assert [fingerprint(one) for one in known] == list(known.values())


def test_a_replay_memory_is_read():
    memory = ReplayMemory.load(STATES / "replay.npz", Uniform())
    assert [len(rows) for rows in memory.tasks] == [2, 2]
    assert all(rows.extra is None for rows in memory.tasks)


def test_keywords_of_version_0_2_mean_the_same_and_memories_are_cloned():
    with pytest.warns(DeprecationWarning, match="feature_map="):
        old = MomentMemory(5, features="rows", prior="stream")
    with pytest.warns(DeprecationWarning, match="sample_weight="):
        old.update(np.eye(6), [0, 1] * 3, weight=np.ones(6))
    with pytest.warns(DeprecationWarning, match="model="):
        old.update(np.eye(6), [0, 1] * 3, context=Context())
    assert (old.feature_map, old.prior, old.seen) == ("rows", "data", 12)
    named = {"feature_map": "rows", "inner_reg": Relative(0.2), "prior": {0: 0.5, 1: 0.5}}
    for memory in (
        MomentMemory(5, **named),
        JointReplay(5, **named),
        MergeReduce(5, KCenter(), 2),
        ReplayMemory(5, Uniform(), "learned"),
        GradientSampling(5, 3, "cosine"),
    ):
        again = clone(memory)
        assert again.get_params().keys() == memory.get_params().keys()
        assert again._configuration() == memory._configuration()
        assert memory.set_params(capacity=4).capacity == 4


def test_a_regulariser_is_rho_and_a_number_in_an_old_file_a_share():
    x, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    absolute, share = (MomentMemory(5, "rows", inner_reg=reg) for reg in (0.5, "relative:0.5"))
    outer = absolute.update(x, y).moments.outer()
    assert absolute.ridge(outer) == 0.5
    assert share.ridge(outer) == 0.5 * outer.energy
    state = absolute.state_dict()
    head = json.loads(state["head"])
    head["configuration"] |= {"inner_reg": 0.5, "features": head["configuration"]["feature_map"]}
    head["configuration"] |= {"rule": "auto", "prior": "stream"}
    del head["configuration"]["feature_map"], head["configuration"]["strategy"]
    share.load_state_dict({**state, "head": json.dumps(head)})
    assert share.moments.weight == 40
    refuses("inner_reg", absolute.load_state_dict, {**state, "head": json.dumps(head)})
    joint = JointReplay(5, "rows", "auto", "relative:0.5")
    refuses("of a stream", joint.load_state_dict, {**state, "head": json.dumps(head)})
