"""The paper's ResNet-18 as a judge of selections of images.

Networks of a seed start from the same weights, and the crop that a place in a batch gets at a step
is drawn beforehand: a difference between two selections is theirs, and a score does not depend on
what was trained beside it. On a GPU training and tests are in bfloat16, and what was recorded for
one stack of selections serves the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bicore.errors import InputError, NumericalError
from bicore.evaluate.models import Judge
from bicore.evaluate.samples import Sample
from experiments.networks import ResNet18
from experiments.training import BATCH, RATE, Cohort, Learner, build

#: Networks that train side by side: more do not make a step faster.
AT_ONCE = 4
TEST_BATCH = 2000


class ResidualJudge(Judge):
    """A ResNet-18 trained with Adam for so many steps, in batches of 256 where there are more
    points than that.

    ``make`` builds one with so many outputs. Samples may lie anywhere: they are brought to the
    ``device``, where the network that methods look at stays.
    """

    name = "resnet18"
    is_network = True

    def __init__(
        self, steps: int, device: str = "cpu", make: Callable[[int], ResNet18] = ResNet18
    ) -> None:
        self.steps = steps
        self.device = device
        self.make = make
        self._class: tuple[Any, Cohort[Pupil]] | None = None
        self._test: tuple[Sample, Tensor] | None = None

    def check(self, shape: tuple[int, ...], outputs: int) -> None:
        if shape != ResNet18.shape:
            raise InputError(
                f"the judge {self.name} needs images of shape {ResNet18.shape}, and a point has "
                f"shape {shape}; use another judge."
            )

    def at_once(self, size: int, device: torch.device) -> int:
        return AT_ONCE

    def module(self, sample: Sample, outputs: int, seed: int) -> nn.Module:
        """One network, trained, in eval mode on the judge's device."""
        pupil = self.trained([sample], outputs, seed).learners[0]
        self._class = None  # whoever looks at it must not see it trained anew
        pupil.optimiser.zero_grad()  # gradients would keep what was recorded alive
        return pupil.network.eval()

    def predictions(
        self, selections: Sequence[Sample], test: Sample, outputs: int, seed: int
    ) -> list[Tensor]:
        return [
            pupil.predicted(self._images(test, pupil)).to(test.x.device)
            for pupil in self.trained(selections, outputs, seed)
        ]

    def trained(self, selections: Sequence[Sample], outputs: int, seed: int) -> Cohort[Pupil]:
        """Networks, one a selection, trained side by side."""
        cohort = self._cohort(len(selections), len(selections[0]), outputs, seed)
        for pupil, sample in zip(cohort, selections, strict=True):
            pupil.begin(sample)
        try:
            cohort.train(cohort.learners[0].passes)
        except ArithmeticError as error:
            raise NumericalError(
                f"the {self.name} judge's training diverged; scale the features, or use another "
                "judge."
            ) from error
        return cohort

    def _cohort(self, count: int, points: int, outputs: int, seed: int) -> Cohort[Pupil]:
        """The one of the last call where it has the shape: what is recorded on a GPU is bound to
        its numbers of networks and points."""
        shape = count, points, outputs, seed
        if self._class is None or self._class[0] != shape:
            self._class = None
            if self.device != "cpu":
                torch.cuda.empty_cache()  # other processes share the card
            networks = [build(lambda: self.make(outputs), seed, self.device) for _ in range(count)]
            cohort = Cohort([Pupil(network, points, self.steps, seed) for network in networks])
            self._class = shape, cohort
        return self._class[1]

    def _images(self, test: Sample, pupil: Pupil) -> Tensor:
        """The test images as networks take them, kept until others are asked for."""
        if self._test is None or self._test[0] is not test:
            images = test.x.to(self.device, pupil.x.dtype)
            self._test = test, images.contiguous(memory_format=torch.channels_last)
        return self._test[1]


class Pupil(Learner):
    """A network that can begin anew on other points of the same number, with the same crops."""

    def __init__(self, network: Any, points: int, steps: int, seed: int) -> None:
        batches = -(-points // BATCH)
        passes = -(-steps // batches)
        super().__init__(network, 0.0, points, 1, passes, BATCH, RATE, seed)
        self.seed = seed
        # looking for the fastest algorithms takes longer than a short training gains by them
        self.searched = False
        self.start = [value.detach().clone() for value in network.parameters()]
        self.turn = torch.zeros(1, dtype=torch.long, device=self.device)
        self.crops = _crops(passes * batches, self.sizes[0], seed).to(self.device)

    def begin(self, sample: Sample) -> None:
        """From the first weights, with the points of a sample."""
        with torch.no_grad():
            for value, first in zip(self.network.parameters(), self.start, strict=True):
                value.copy_(first)
        self.restart()
        self.generator.manual_seed(self.seed)
        self.turn.zero_()
        self.take(*(value.to(self.device) for value in (sample.x, sample.y, sample.weight)))

    def loss(self, rows: Tensor) -> Tensor:
        x, y, weight = (values.index_select(0, rows) for values in (self.x, self.y, self.weight))
        corners = self.crops.index_select(0, self.turn)[0, :, : len(rows), None]
        self.turn += 1
        outputs = self._outputs(ResNet18.cropped(x, *corners))
        return (F.cross_entropy(outputs, y, reduction="none") * weight).mean()

    def predicted(self, images: Tensor) -> Tensor:
        """Outputs for test images, in the arithmetic of the training."""
        self.network.eval()
        with torch.no_grad():
            return torch.cat([self._outputs(part) for part in torch.split(images, TEST_BATCH)])


def _crops(steps: int, places: int, seed: int) -> Tensor:
    """For every step (3, places): the top and the left of each crop, and whether it is mirrored."""
    generator = torch.Generator().manual_seed(seed)
    corners = torch.randint(0, 2 * ResNet18.border + 1, (steps, 2, places), generator=generator)
    mirrored = torch.randint(0, 2, (steps, 1, places), generator=generator)
    return torch.cat([corners, mirrored], 1)
