"""Variational continual learning: the divergence and a Bayesian linear model against closed forms,
and tasks in sequence."""

import numpy as np
import pytest
import torch

from bicore.errors import InputError
from bicore.methods import KCenter, Uniform
from bicore.streaming.vcl import (
    MeanFieldLinear,
    MeanFieldNetwork,
    VariationalFit,
    VariationalLearner,
)
from bicore.streaming.vcl import VariationalTraining as Training
from experiments.variational import RecordedLearner
from tests.helpers import refuses


def test_the_divergence_is_the_closed_form_and_its_gradient():
    torch.manual_seed(0)
    layer = MeanFieldLinear(3, 2, copies=2).double()
    layer.mean.data.normal_()
    layer.log_deviation.data.normal_()
    layer.prior_mean.normal_()
    layer.prior_log_deviation.normal_()
    q = torch.distributions.Normal(layer.mean, layer.log_deviation.exp())
    prior = torch.distributions.Normal(layer.prior_mean, layer.prior_log_deviation.exp())
    torch.testing.assert_close(
        layer.divergence(), torch.distributions.kl_divergence(q, prior).sum((1, 2))
    )
    layer.divergence().sum().backward()
    torch.testing.assert_close(
        layer.mean.grad, (layer.mean - layer.prior_mean) / (2 * layer.prior_log_deviation).exp()
    )
    layer.absorb()
    assert layer.divergence().tolist() == [0, 0]


def test_outputs_have_the_mean_and_variance_of_sampled_weights():
    torch.manual_seed(1)
    layer = MeanFieldLinear(3, 2).double()
    layer.log_deviation.data.fill_(np.log(0.5))
    x = torch.randn(1, 3, dtype=torch.float64)
    drawn = layer(x[None], 40000)[:, 0, 0]
    torch.testing.assert_close(
        drawn.mean(0), (torch.cat([x, torch.ones(1, 1)], 1) @ layer.mean[0])[0], atol=0.03, rtol=0
    )
    expected = 0.25 * (x.square().sum() + 1)
    torch.testing.assert_close(drawn.var(0), expected.expand(2), rtol=0.05, atol=0)


@pytest.mark.slow
def test_a_bayesian_linear_model_reaches_its_exact_posterior_task_by_task():
    """With orthogonal columns the exact posterior of Gaussian regression factorises, so mean-field
    can reach it: after two tasks its precision is I + Σ XᵀX/σ² and its mean precision⁻¹ Σ Xᵀy/σ².
    """
    rng = np.random.default_rng(0)
    noise = 0.5
    design = np.linalg.qr(np.c_[np.ones(40), rng.normal(size=(40, 3))])[0] * np.sqrt(40)
    x = design[:, 1:] * np.sign(design[0, 0])  # the layer adds the column of ones itself
    y = x @ np.array([1.0, -0.5, 0.2]) + 0.3 + noise * rng.normal(size=40)
    torch.manual_seed(0)
    network = MeanFieldNetwork([3, 1]).double()
    network.layers[0].log_deviation.data.fill_(np.log(0.1))
    generator = torch.Generator().manual_seed(0)

    def gaussian(outputs, targets):
        return (outputs[:, 0] - targets).square() / (2 * noise**2)

    inputs = torch.from_numpy(x)
    targets = torch.from_numpy(y)
    for _ in range(2):  # the same rows as two tasks: the second starts from the first's posterior
        for rate, epochs in ((0.02, 300), (0.002, 400), (0.0003, 300)):
            how = Training(epochs, 40, rate, samples=60)
            VariationalFit(network, inputs, targets, how, generator, gaussian).run()
        network.absorb()
    whole = np.c_[x, np.ones(40)]
    precision = np.eye(4) + 2 * whole.T @ whole / noise**2
    assert np.abs(precision - np.diag(np.diag(precision))).max() < 1e-9 * precision.max()
    mean = np.linalg.solve(precision, 2 * whole.T @ y / noise**2)
    np.testing.assert_allclose(network.layers[0].mean.detach().numpy()[0, :, 0], mean, atol=0.01)
    np.testing.assert_allclose(
        network.layers[0].log_deviation.detach().exp().numpy()[0, :, 0],
        np.diag(precision) ** -0.5,
        rtol=0.06,
    )


def tasks(seed=0):
    rng = np.random.default_rng(seed)
    for pair in ((0, 1), (2, 3)):
        y = rng.choice(pair, size=120)
        yield (rng.normal(size=(120, 6)) * 0.6 + 3 * np.eye(6)[y]).astype(np.float32), y


@pytest.fixture(scope="module")
def trained_learner():
    """A learner that has seen two tasks, and the rows of every fit of its posterior."""
    seen = []

    class Watched(VariationalFit):
        def run(self):
            if self.bound:
                seen.append({tuple(row) for row in self.x.numpy().round(5).tolist()})
            super().run()

    learner = VariationalLearner([6, 20, 4], KCenter(), 8, Training(150, 64, 1e-2))
    learner.fit = Watched
    parts = list(tasks())
    for x, y in parts:
        learner.add_task(x, y)
    before = learner.network.layers[0].mean.detach().clone()
    scores = [float((learner.predict(x)[0].argmax(1).numpy() == y).mean()) for x, y in parts]
    return learner, parts, seen, before, scores


@pytest.mark.slow
def test_coresets_are_withheld_from_training_and_refined_on(trained_learner):
    learner, parts, seen, _, scores = trained_learner
    held = [{tuple(row) for row in rows.numpy().round(5).tolist()} for rows, _ in learner.coresets]
    assert [len(rows) for rows in seen] == [112, 112, 16]
    assert not (seen[0] & held[0]) | (seen[1] & held[1])
    assert seen[2] == held[0] | held[1]
    without = VariationalLearner([6, 20, 4], None, 8, Training(150, 64, 1e-2))
    for x, y in parts:
        without.add_task(x, y)
    x, y = parts[0]
    assert scores[0] > float((without.predict(x)[0].argmax(1).numpy() == y).mean()) + 0.05


def test_each_task_has_a_head_of_its_own_and_is_refined_on_its_own_coreset():
    learner = VariationalLearner(
        [6, 20, 2], KCenter(), 6, Training(20, 64, 2e-2), prior_std=0.5, multi_head=True
    )
    parts = [(x, y % 2) for x, y in tasks()]
    for x, y in parts:
        learner.add_task(x, y)
    assert len(learner.network.layers) == 3
    for task, (x, y) in enumerate(parts):
        found = learner.predict(x, task=task)[0]
        assert float((found.argmax(1).numpy() == y).mean()) > 0.8
        torch.testing.assert_close(found.sum(1), torch.ones(len(x)))
    other = learner.network.layers[1].mean
    assert torch.equal(learner.refine(1).layers[1].mean, other)  # the first head, left alone
    refuses("task", learner.predict, x, task=2)


def test_recorded_passes_train_a_learner():
    (x, y), *_ = tasks()
    learner = RecordedLearner([6, 20, 4], None, training=Training(40, 64, 2e-2))
    learner.add_task(x, y)
    assert float((learner.predict(x)[0].argmax(1).numpy() == y).mean()) > 0.9


def test_a_coreset_that_leaves_nothing_to_train_on_is_refused():
    with pytest.raises(InputError, match="coreset_size"):
        VariationalLearner([6, 20, 4], KCenter(), coreset_size=120).add_task(*next(iter(tasks())))


@pytest.mark.slow
def test_refining_leaves_the_posterior_alone(trained_learner):
    learner, parts, _, before, scores = trained_learner
    assert [len(coreset[0]) for coreset in learner.coresets] == [8, 8]
    assert torch.equal(before, learner.network.layers[0].mean)
    assert min(scores) > 0.8
    torch.manual_seed(5)
    state = torch.get_rng_state()
    VariationalLearner([6, 5, 4], Uniform(), 4, Training(1)).add_task(*parts[0])
    assert torch.equal(state, torch.get_rng_state())
