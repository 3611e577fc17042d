"""Simulated teachers for planning before any are trained; nothing private is touched."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from pate._planning.task import Task
from pate._validation import FloatArray, require, require_count, require_in_open_unit_interval
from pate._votes import Ballots
from pate.accounting._bisection import smallest_where


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """Simulated teachers, for planning before any are trained.

    A sample's features are Gaussian, and it has a label if they extend far enough in a random
    direction. Each teacher sees that distance with noise of its own, so that teachers err on hard
    samples.

    Args:
        num_labels: number of labels.
        num_teachers: number of teachers.
        label_density: the share of samples that have a label.
        teacher_accuracy: the share of labels that one teacher gets right, above one half.
        num_features: number of features of a sample.
        num_public: number of public samples that can be queried.
        seed: seed of the samples and the votes.
    """

    num_labels: int
    num_teachers: int
    label_density: float = 0.2
    teacher_accuracy: float = 0.8
    num_features: int = 20
    num_public: int = 5000
    seed: int = 0

    def __post_init__(self) -> None:
        require_count(
            1,
            num_labels=self.num_labels,
            num_features=self.num_features,
            num_public=self.num_public,
        )
        require_count(2, num_teachers=self.num_teachers)
        require_in_open_unit_interval(label_density=self.label_density)
        blind = max(self.label_density, 1 - self.label_density)
        require(
            0.5 < self.teacher_accuracy < 1,
            "0.5 < teacher_accuracy < 1",
            teacher_accuracy=self.teacher_accuracy,
            always_no=blind,
        )


def simulated(simulation: Simulation) -> Task[Ballots]:
    """Return a task with simulated teachers."""
    generator = np.random.default_rng(simulation.seed)
    directions = generator.standard_normal((simulation.num_features, simulation.num_labels))
    directions /= np.linalg.norm(directions, axis=0)
    threshold = float(ndtri(1 - simulation.label_density))
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    distances, weights = np.abs(nodes - threshold), weights / weights.sum()
    blur = smallest_where(
        lambda width: float(weights @ ndtr(distances / width)) <= simulation.teacher_accuracy,
        1e-6,
        1e6,
    )

    def samples(number: int) -> tuple[FloatArray, FloatArray]:
        features = generator.standard_normal((number, simulation.num_features))
        return features, features @ directions - threshold

    features, margins = samples(simulation.num_public)
    test_features, test_margins = samples(4000)
    size = (simulation.num_public, simulation.num_teachers, simulation.num_labels)
    ballots = (generator.random(size, dtype=np.float32) < ndtr(margins / blur)[:, None]).view(
        np.uint8
    )
    return Task(
        votes=Ballots(ballots=ballots, features=features),
        test_features=test_features,
        test_labels=(test_margins > 0).astype(np.uint8),
        label_names=tuple(f"label_{j}" for j in range(simulation.num_labels)),
        private=False,
    )
