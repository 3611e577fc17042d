"""Simulated ensembles: votes of many teachers, and private records as voters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from scipy.special import ndtri

from pate._planning.facts import TaskFacts
from pate._planning.learning import Learner
from pate._planning.task import Task
from pate._validation import BoolArray, FloatArray
from pate._votes import Ballots, Votes
from pate._votes.voters import Geometry, GroupVoters, RecordVoters

Known = TypeVar("Known", bound=Votes)

_FEATURES = 1 << 23  # of the records of simulated voters, at most
_ENTRIES = 1 << 23  # ballot entries of a simulated ensemble, at most
_NUM_TEST = 4000


@dataclass(frozen=True, eq=False)
class World:
    """A task drawn at random that agrees with the facts.

    Attributes:
        public: ``[Q, F]``, features of public samples, of variance 1 along each direction.
        test: ``[M, F]``, features of the test samples.
        test_labels: ``[M, C]`` in {False, True}.
        directions: ``[F, C]``, true weights of unit length.
        thresholds: ``[C]``, which a label's direction must exceed.
        spectrum: ``[F]``, the share of the variance along each direction.
    """

    public: FloatArray
    test: FloatArray
    test_labels: BoolArray
    directions: FloatArray
    thresholds: FloatArray
    spectrum: FloatArray

    @classmethod
    def of(cls, facts: TaskFacts, learner: Learner, *, num_queries: int, seed: int) -> World:
        """Draw a task with ``num_queries`` public samples, the same for all ensembles of a seed."""
        generator = np.random.default_rng(seed)
        spectrum, thresholds = facts.spectrum, np.asarray(ndtri(1 - facts.densities))
        directions = (
            generator.standard_normal((facts.num_features, facts.num_labels))
            * np.sqrt(spectrum)[:, None]
        )
        directions /= np.linalg.norm(directions, axis=0)
        public = generator.standard_normal((num_queries, facts.num_features))
        test = generator.standard_normal((_NUM_TEST, facts.num_features))
        test_labels = _labels(test, directions, thresholds, learner, generator)
        return cls(public, test, test_labels, directions, thresholds, spectrum)

    def task(self, votes: Known) -> Task[Known]:
        """Return the task of votes on the public samples."""
        return Task(
            votes=votes,
            test_features=self.test * self.scale,
            test_labels=self.test_labels.astype(np.uint8),
            label_names=tuple(f"label_{j}" for j in range(len(self.thresholds))),
            private=False,
        )

    @property
    def scale(self) -> FloatArray:
        """``[F]``, the standard deviations of the features that teachers and the student see."""
        return np.sqrt(self.spectrum * len(self.spectrum))


def ensemble_votes(
    world: World, learner: Learner, *, num_teachers: int, records: float, seed: int
) -> Task[Ballots]:
    """Return a task with the votes of a simulated ensemble.

    A large ensemble is simulated by fewer teachers, each in place of ``num_teachers / simulated``.
    Their mean is as close to the truth as the mean of all teachers would be.

    Args:
        world: the task.
        learner: the model of a teacher.
        num_teachers: number of teachers.
        records: number of records of each.
        seed: seed of the teachers.
    """
    (num_queries, num_features), num_labels = world.public.shape, len(world.thresholds)
    simulated = max(2, min(num_teachers, _ENTRIES // (num_queries * num_labels)))
    generator = np.random.default_rng(seed)
    width = math.sqrt(learner.noise / records)
    # the threshold is learned like a weight, but is not shrunk
    errors = generator.standard_normal((num_features + 1, simulated, num_labels), dtype=np.float32)
    errors -= (1 - math.sqrt(simulated / num_teachers)) * errors.mean(axis=1, keepdims=True)
    shrinkage = learner.shrinkage(world.spectrum, records)
    truth = learner.signal * world.directions[:, None]
    weights = (shrinkage[:, None, None] * (truth + width * errors[:-1])).astype(np.float32)
    needed = (world.thresholds + width * errors[-1]).astype(np.float32)
    extents = (world.public.astype(np.float32) @ weights.reshape(num_features, -1)).reshape(
        -1, simulated, num_labels
    )
    ballots = (extents > needed).view(np.uint8)
    return world.task(Ballots(ballots=ballots, features=world.public * world.scale))


def voters_task(
    world: World, learner: Learner, *, num_teachers: int, records: float, seed: int
) -> Task[Votes]:
    """Return a task with fewer voters in closed form than planned, of one record or a few each."""
    generator, records_each = np.random.default_rng(seed), max(1, round(records))
    simulated = max(2, min(num_teachers, _FEATURES // len(world.spectrum) // records_each))
    features = generator.standard_normal((simulated * records_each, len(world.spectrum)))
    labels = _labels(features, world.directions, world.thresholds, learner, generator)
    public = world.public * world.scale
    geometry = Geometry.of(public)
    voters: dict[str, Any] = {
        "geometry": geometry,
        "num_voters": simulated,
        "num_labels": labels.shape[1],
        "coordinates": geometry.coordinates(features * world.scale),
        "labels": labels.astype(np.uint8),
    }
    groups = np.repeat(np.arange(simulated), records_each)
    ensemble = RecordVoters(**voters) if records_each == 1 else GroupVoters(groups=groups, **voters)
    return world.task(Votes.from_voters(ensemble, public))


def _labels(
    features: FloatArray,
    directions: FloatArray,
    thresholds: FloatArray,
    learner: Learner,
    generator: np.random.Generator,
) -> BoolArray:
    """Draw true labels ``[N, C]`` for features ``[N, F]``, of variance 1 along each direction."""
    unexplained = math.sqrt(1 - learner.signal**2) * generator.standard_normal(
        (len(features), len(thresholds))
    )
    return np.asarray(learner.signal * (features @ directions) + unexplained > thresholds)
