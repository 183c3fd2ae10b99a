"""The table of engines: which one is chosen, and how to add one."""

import numpy as np
import pytest
import torch

from bicore import Dataset
from bicore.bilevel import PerPoint, engines
from bicore.bilevel.contract import RULES, ListedEngine, Quantity, Requirements, StepOptions
from bicore.bilevel.engines.implicit import ImplicitEngine
from bicore.bilevel.engines.ridge import RidgeEngine
from bicore.methods.registry import greedy_selector
from tests.helpers import ON_CPU, blobs, fails, kernel_ridge, prepare_selector, problem_of


class RefitEngine(ListedEngine):
    """A toy: every question is answered by fits from scratch."""

    supported_quantities = frozenset({Quantity.GAIN})
    built = 0

    @classmethod
    def supports(cls, requirements):
        return (
            requirements.closed_form
            and not requirements.reweighs
            and requirements.needs <= cls.supported_quantities
        )

    @classmethod
    def build(cls, problem, requirements):
        cls.built += 1
        return cls(problem)

    def __init__(self, problem):
        self.problem = problem
        self.chosen = []
        self.objective = self._objective([])

    def _objective(self, points):
        gram = self.problem.train.matrix.numpy()
        targets = self.problem.inner_targets.numpy()
        rho = self.problem.regulariser.rho(len(points))
        own = gram[np.ix_(points, points)]
        alpha = kernel_ridge(own, targets[points], np.ones(len(points)), rho)
        residual = targets - gram[:, points] @ alpha
        return float(self.problem.outer_weights.numpy() @ np.square(residual).sum(1))

    def extend(self, points):
        self.chosen += points
        self.objective = self._objective(self.chosen)

    def drop(self, places):
        self.chosen = [k for place, k in enumerate(self.chosen) if place not in places]
        self.objective = self._objective(self.chosen)

    def quantity(self, what, columns=None):
        points = range(self.problem.size) if columns is None else columns.tolist()
        after = [self._objective([*self.chosen, k]) for k in points]
        return self.objective - torch.tensor(after)


def test_a_new_engine_is_one_file_and_one_line(monkeypatch):
    data = blobs(30)
    selector = greedy_selector(kernel="rbf", inner_reg=0.1, rule="gain")
    expected = selector.select(data, 6, **ON_CPU.keywords)
    monkeypatch.setattr(engines, "ENGINES", [RefitEngine, *engines.ENGINES])  # the line
    found = selector.select(data, 6, **ON_CPU.keywords)
    assert RefitEngine.built == 1
    assert found.indices.tolist() == expected.indices.tolist()
    np.testing.assert_allclose(found.objectives, expected.objectives, rtol=1e-9)
    other = greedy_selector(kernel="rbf", inner_reg=0.1)  # it does not offer gradients
    assert len(other.select(data, 3, **ON_CPU.keywords)) == 3
    assert RefitEngine.built == 1


class CountedEngine(ImplicitEngine):
    """The general engine under another name."""

    built = 0

    @classmethod
    def build(cls, problem, requirements):
        cls.built += 1
        return cls(problem, requirements.capacity, requirements.solvers)


@pytest.mark.parametrize("weights", ["learned", "final"])
def test_the_same_code_runs_with_weights_and_predictions(weights, monkeypatch):
    data = blobs(30)
    selector = greedy_selector(kernel="rbf", inner_reg=0.1, weighting=weights)
    expected = selector.select(data, 4)
    guesses = selector.predict(data, data.x)
    monkeypatch.setattr(engines, "ENGINES", [CountedEngine, *engines.ENGINES])
    monkeypatch.setattr(CountedEngine, "built", 0)
    found = selector.select(data, 4)
    assert CountedEngine.built > 0
    assert found.indices.tolist() == expected.indices.tolist()
    built = CountedEngine.built
    assert (selector.predict(data, data.x) == guesses).all()
    assert CountedEngine.built == built + 1


def test_engine_refuses_unsupported_quantities():
    problem = problem_of(greedy_selector(kernel="rbf", inner_reg=0.1), blobs(30))
    lean = RidgeEngine(problem, 5)
    assert Quantity.GAIN not in lean.supported_quantities
    fails(LookupError, "without GAIN", lean.quantity, Quantity.GAIN)
    needs = frozenset({Quantity.GRADIENT})
    general = ImplicitEngine.build(problem, Requirements(5, needs, closed_form=False))
    fails(LookupError, "without GAIN", general.quantity, Quantity.GAIN)


@pytest.mark.parametrize(
    ("options", "engine"),
    [
        ({}, RidgeEngine),
        ({"rule": "gain"}, RidgeEngine),
        ({"weighting": "learned"}, ImplicitEngine),
        ({"inner_reg": PerPoint(0.1)}, ImplicitEngine),
        ({"loss": "cross-entropy"}, ImplicitEngine),
    ],
)
def test_engine_is_chosen_by_the_problem(options, engine):
    selector = greedy_selector(**{"kernel": "rbf", "inner_reg": 0.1, **options})
    problem = prepare_selector(selector, blobs(40)).problem
    assert type(engines.choose(problem, selector.requirements(5))) is engine


@pytest.mark.parametrize("kind", [RidgeEngine, ImplicitEngine])
@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("more", [Quantity.LOSS, Quantity.FIRST_ORDER])
def test_dropping_points_restores_the_earlier_state(kind, separate, more):
    data = Dataset(blobs(40).x, blobs(40).y, np.linspace(0.5, 2, 40))
    outer = blobs(20, seed=3) if separate else None
    problem = problem_of(greedy_selector(kernel="rbf", inner_reg=0.1), data, outer)
    needs = frozenset({Quantity.GRADIENT, more})
    requirements = Requirements(10, needs, closed_form=kind is not ImplicitEngine)
    once, never = (kind.build(problem, requirements) for _ in range(2))
    once.extend([3, 8, 21, 30])
    once.drop([1, 3])
    never.extend([3])
    never.extend([21])
    assert once.chosen == never.chosen == [3, 21]
    assert once.objective == pytest.approx(never.objective, rel=1e-9)
    for what in needs:
        np.testing.assert_allclose(once.quantity(what), never.quantity(what), rtol=1e-6, atol=1e-10)
        some = torch.tensor([5, 17])
        np.testing.assert_allclose(
            once.quantity(what, some), once.quantity(what)[some], rtol=1e-9, atol=1e-12
        )


def test_only_the_best_of_a_sample_is_taken():
    problem = problem_of(greedy_selector(kernel="rbf", inner_reg=0.1), blobs(40))
    engine = RidgeEngine(problem, 5)
    open_points = np.zeros(40, dtype=bool)
    open_points[[4, 11, 29]] = True
    options = StepOptions(open_points, np.arange(40), sampled=True)
    scores = engine.scores(RULES["gradient"]()).numpy()
    engine.take_best(RULES["gradient"](), options)
    assert engine.chosen == [min((4, 11, 29), key=lambda k: scores[k])]
