"""Add noise to every score once and report the largest.

Shekelyan & Loukides (2022), "Differentially private top-k selection via canonical Lipschitz
mechanism".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from pate._validation import IntArray, require_count, require_positive
from pate.accounting import Event, NeighboringRelation, PureDPEvent
from pate.mechanisms._accuracy import chance_by_peeling, chance_to_lead
from pate.mechanisms._base import Checks, ScoreMechanism, TopKMechanism, choice_event
from pate.mechanisms._exact_choice import sample_k_smallest
from pate.mechanisms._law import Law, NotStatedError, peeling_law
from pate.mechanisms._noise import Noise, require_noise
from pate.mechanisms._ranking import REACH, ROWS, Rows, below_rank


@dataclass(frozen=True, kw_only=True)
class NoisyTopK(TopKMechanism):
    """Release the SET of the k largest of ``scores + scale * noise``, as ascending indices.

    The noise is drawn once.

    Given the noise of the items left out, each member must exceed a threshold that moves by at most
    the count window ``w`` relative to it, so the probability of that changes by a factor of at most
    ``exp(w / scale)``. The order of the noisy scores is not released: this proof is for the set.

    Privacy: with Gumbel noise, k bounded-range choices of ``w / scale`` (the set of
    `GumbelPeeling`); with any other noise, pure DP of ``k w / scale`` (Shekelyan & Loukides
    (2022)). ``w`` is 1 vote under ADD_REMOVE_TEACHER and 2 under REPLACE_RECORD.

    >>> mechanism = NoisyTopK(k=2, scale=2.0)
    >>> mechanism(np.array([90, 80, 10, 0]), generator=seeded_generator(0))
    array([0, 1])

    Args:
        k: size of the set, 1..d.
        scale: scale of the noise, in votes.
        noise: ``gumbel``, ``exponential``, ``laplace``, ``logistic`` or ``half_logistic``.
    """

    checks: ClassVar[Checks] = {"noise": partial(require_noise, Noise)}

    noise: Noise = "gumbel"

    def _select(self, rows: Rows, generator: np.random.Generator) -> IntArray:
        chosen = np.empty((len(rows), self.k), dtype=np.int64)
        for start in range(0, len(rows), ROWS):
            part = rows[start : start + ROWS]
            below = below_rank(part, self.k, reach=REACH * self.scale)
            chosen[start : start + ROWS] = sample_k_smallest(
                below, self.k, noise=self.noise, scale=self.scale, generator=generator
            )
        chosen.sort(axis=1)
        return chosen

    def event(self, relation: NeighboringRelation) -> Event:
        eta = self.window(relation) / self.scale
        if self.noise == "gumbel":
            return choice_event(relation, eta=eta, noise=self.noise, count=self.k)
        return PureDPEvent(neighboring_relation=relation, epsilon=self.k * eta)

    def law(self, scores: Rows) -> Law:
        if self.noise != "gumbel":
            raise NotStatedError(
                f"the law of {type(self).__name__} with {self.noise} noise is not known"
            )
        return peeling_law(scores, self.k, self.scale, "gumbel")

    def _accuracy(self, gap: float, num_items: int) -> float:
        others, scales = num_items - self.k, gap / self.scale
        if self.noise == "gumbel":
            return chance_by_peeling(self.k, others, scales)
        return chance_to_lead(self.noise, self.k, others, scales)


@dataclass(frozen=True, kw_only=True)
class NoisyMax(ScoreMechanism[IntArray]):
    """Release the index of the largest of ``scores + scale * noise``.

    With Gumbel noise this is the exponential mechanism, which chooses an item with probability
    proportional to ``exp(score / scale)`` (McSherry & Talwar (2007)); with exponential noise
    permute-and-flip (McKenna & Sheldon (2020); Ding et al. (2021)); with Laplace noise
    report-noisy-max (Dwork & Roth (2014), Claim 3.9).

    Privacy: one choice of ``w / scale``, bounded range with Gumbel noise and pure DP with any
    other. ``w`` is 1 vote under ADD_REMOVE_TEACHER and 2 under REPLACE_RECORD.

    >>> mechanism = NoisyMax(scale=2.0)
    >>> mechanism(np.array([90, 80, 10, 0]), generator=seeded_generator(0))
    array(0)

    Args:
        scale: scale of the noise, in votes.
        noise: any noise of `NoisyTopK`.

    Raises:
        ValueError: on ``scale <= 0`` or an unknown noise.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("scale",)

    scale: float
    checks: ClassVar[Checks] = {"noise": partial(require_noise, Noise)}

    noise: Noise = "gumbel"

    def __call__(self, scores: ArrayLike, *, generator: np.random.Generator) -> IntArray:
        """Choose from ``scores`` ``[d]`` or ``[B, d]``; return an index per row, ``[]`` or ``[B]``.

        Raises:
            ValueError: on scores that are not finite numbers.
        """
        return self._set_of_one(scores, generator=generator)[..., 0]

    def event(self, relation: NeighboringRelation) -> Event:
        return self._set_of_one.event(relation)

    @property
    def _set_of_one(self) -> NoisyTopK:
        return NoisyTopK(k=1, scale=self.scale, noise=self.noise, sensitivity=self.sensitivity)


def scale_for_epsilon(epsilon: float, *, window: float, draws: int = 1) -> float:
    """Return the scale ``draws * window / epsilon`` at which a selection is pure ``epsilon``-DP.

    >>> scale_for_epsilon(0.5, window=2.0, draws=3)
    12.0

    Args:
        epsilon: the guarantee, above 0.
        window: width of the window within which scores move, in votes: the count window, or
            `pate.mechanisms.joint_window` for the joint mechanism.
        draws: k for the one-shot and peeling mechanisms, 1 for the canonical and the joint
            mechanism.

    Raises:
        ValueError: on a number that is not positive.
    """
    require_positive(epsilon=epsilon, window=window)
    require_count(1, draws=draws)
    return draws * window / epsilon
