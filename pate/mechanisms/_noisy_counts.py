"""Noise on all counts, with the labels, majorities or largest items that follow from it.

`add_cube` draws noise of density ``exp(-max_i abs(z_i) / scale)``, rounded as if it had all its
digits: a radius of the gamma law of shape d + 1, which is the sum of d + 1 exponential numbers,
times a uniform point of the cube (Hardt & Talwar (2010)). All are functions of uniform numbers, of
which floats hold 53 binary digits; where these and the logarithm leave a rounding open, further
digits are drawn.

`NoisyTopK` adds noise to every score once and reports the largest: Shekelyan & Loukides (2022),
"Differentially private top-k selection via canonical Lipschitz mechanism".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from pate._validation import (
    BoolArray,
    FloatArray,
    IntArray,
    require,
    require_count,
    require_in_open_unit_interval,
    require_positive,
)
from pate.accounting import Event, NeighboringRelation, PureDPEvent
from pate.mechanisms._base import (
    Case,
    Checks,
    Mechanism,
    Release,
    ScoreMechanism,
    TopKMechanism,
    choice_event,
)
from pate.mechanisms._exact_choice import sample_k_smallest, sum_of_exponentials
from pate.mechanisms._exact_normal import LazyReal, decimal_precision, split
from pate.mechanisms._law import Law, NotStatedError, chance_by_peeling, chance_to_lead, peeling_law
from pate.mechanisms._noise import Noise, require_noise
from pate.mechanisms._peeling import one_shot
from pate.mechanisms._ranking import REACH, Rows, as_batch, below_rank, in_blocks, with_noise
from pate.mechanisms._stability import StabilityTest


def add_cube(rows: Rows, *, scale: float, generator: np.random.Generator) -> FloatArray:
    """Return scores ``[B, d]`` with noise by row, on a grid of at least ``scale / 2^20``.

    The law is exact: real scores with noise are rounded to the nearest multiple of a power of two
    that follows from ``scale``, and then to float64.
    """
    on_grid, beyond, grid = split(rows, scale)
    steps = scale / grid
    tails, places = generator.random((len(rows), rows.shape[1] + 1)), generator.random(rows.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        radius = -np.log(tails).sum(axis=1, keepdims=True)
        moved = steps * radius * (2 * places - 1) + beyond
        nearest = np.rint(moved)
        # logarithms, as for choices by noisy scores, and the digits that are not drawn; sum and
        # product err by far less
        error = radius * 2.0**-38 + (2.0**-51 / tails).sum(axis=1, keepdims=True)
        doubtful = ~(np.abs(moved - nearest) < 0.5 - steps * error)
    for row in np.flatnonzero(doubtful.any(axis=1)).tolist():
        waits = [LazyReal.of(tail) for tail in tails[row]]
        for item in np.flatnonzero(doubtful[row]).tolist():
            place = LazyReal.of(places[row, item])
            nearest[row, item] = _rounded(
                Fraction(beyond[row, item]), Fraction(steps), waits, place, generator
            )
    return with_noise(on_grid, grid * nearest)


def _rounded(
    offset: Fraction,
    steps: Fraction,
    waits: list[LazyReal],
    place: LazyReal,
    generator: np.random.Generator,
) -> int:
    """Return the integer nearest to ``offset`` plus steps times the sum of waits times place."""
    while True:
        if all(wait.digits for wait in waits):
            with decimal_precision(place.length):
                radii = [Fraction(bound) for bound in sum_of_exponentials(waits)]
            ends = [radius * (2 * end - 1) for radius in radii for end in place.ends]
            low, high = (
                math.floor(offset + steps * end + Fraction(1, 2)) for end in (min(ends), max(ends))
            )
            if low == high:
                return low
        for digits in (*waits, place):
            digits.draw_more_bits(generator)


@dataclass(frozen=True, kw_only=True)
class OneShotLaplace(TopKMechanism):
    """Release the k largest scores with Laplace noise, in order (Qiao et al. (2021), Algorithm 1).

    Privacy: pure DP of ``k w / scale``, with ``w`` 1 vote under ADD_REMOVE_TEACHER and 2 under
    REPLACE_RECORD. Relative to the largest noisy score that is left out, each of the k moves by at
    most w, which changes the density of its noise by at most a factor of ``exp(w / scale)``: this
    covers the order too.

    >>> mechanism = OneShotLaplace(k=2, scale=2.0)
    >>> mechanism(np.array([90, 80, 10, 0]), generator=seeded_generator(0))
    array([0, 1])

    Args:
        k: length of the list, 1..d.
        scale: scale of the Laplace noise, in votes.
    """

    def _select(self, rows: Rows, generator: np.random.Generator) -> IntArray:
        return one_shot(rows, self.k, self.scale, "laplace", generator)

    def event(self, relation: NeighboringRelation) -> Event:
        return PureDPEvent(
            neighboring_relation=relation, epsilon=self.k * (self.window(relation) / self.scale)
        )

    def _accuracy(self, gap: float, num_items: int) -> float:
        return chance_to_lead("laplace", self.k, num_items - self.k, gap / self.scale)


def one_shot_laplace_scale(*, k: int, num_items: int, epsilon: float, delta: float) -> float:
    """Return the scale for (epsilon, delta) that Qiao et al. (2021), Theorem 2.2, claim.

    It is ``8 sqrt(k log(d / delta)) / epsilon`` for counts that move by one vote in any direction
    (REPLACE_RECORD). The theorem asks for ``epsilon <= 0.2`` and ``delta <= 0.05``. At this scale
    the event of `OneShotLaplace` is pure ``epsilon sqrt(k / (16 log(d / delta)))`` DP, the stronger
    statement up to ``k = 16 log(d / delta)``.

    >>> round(one_shot_laplace_scale(k=5, num_items=100, epsilon=0.2, delta=1e-6), 1)
    383.9

    Raises:
        ValueError: on ``k < 1``, ``num_items < 1``, ``epsilon <= 0`` or ``delta`` outside (0, 1).
    """
    require_count(1, k=k, num_items=num_items)
    require_positive(epsilon=epsilon)
    require_in_open_unit_interval(delta=delta)
    return 8 * math.sqrt(k * math.log(num_items / delta)) / epsilon


@dataclass(frozen=True, kw_only=True)
class LaplaceCounts(ScoreMechanism[FloatArray]):
    """Release every score with Laplace noise (Dwork et al. (2006)).

    The law is exact: real numbers, rounded to a public grid of at least ``scale / 2^20``.

    Privacy: pure DP of ``num_items / scale`` under both relations, because no count moves by more
    than one vote.

    >>> mechanism = LaplaceCounts(num_items=4, scale=2.0)
    >>> mechanism(np.array([90, 80, 10, 0]), generator=seeded_generator(0)).shape
    (4,)

    Args:
        num_items: the number of scores d, at least 1.
        scale: scale of the Laplace noise, in votes.

    Raises:
        ValueError: on ``num_items < 1`` or ``scale <= 0``.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("scale",)
    checks: ClassVar[Checks] = {"num_items": partial(require_count, 1)}

    num_items: int
    scale: float

    def __call__(self, scores: ArrayLike, *, generator: np.random.Generator) -> FloatArray:
        """Return noisy ``scores``, float64 of their shape, ``[num_items]`` or ``[B, num_items]``.

        Raises:
            ValueError: on scores that are not finite numbers, or not ``num_items`` of them.
        """
        rows, single = as_batch(scores)
        require(
            rows.shape[1] == self.num_items, f"{self.num_items} scores", num_items=rows.shape[1]
        )
        # in one dimension the law of the cube is Laplace's
        noisy = add_cube(rows.reshape(-1, 1), scale=self.scale, generator=generator).reshape(
            rows.shape
        )
        return noisy[0] if single else noisy

    def event(self, relation: NeighboringRelation) -> Event:
        return PureDPEvent(
            neighboring_relation=relation, epsilon=self.num_items * self.sensitivity / self.scale
        )


@dataclass(frozen=True, kw_only=True)
class GammaCounts(ScoreMechanism[FloatArray]):
    """Release every score with noise of density proportional to ``exp(-max_i abs(z_i) / scale)``.

    The mechanism of Hardt & Talwar (2010) for the largest norm (Steinke & Ullman (2015), Theorem
    4.1): a radius from a gamma law of shape d + 1, and a uniform point of the cube. The law is that
    of real numbers, rounded to a public grid of at least ``scale / 2^20``.

    Privacy: pure DP of ``1 / scale`` under both relations for any d, because no count moves by more
    than one vote.

    Args:
        scale: scale of the noise, in votes.

    Raises:
        ValueError: on ``scale <= 0``.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("scale",)

    scale: float

    def __call__(self, scores: ArrayLike, *, generator: np.random.Generator) -> FloatArray:
        """Return noisy ``scores``, float64 of their shape, ``[d]`` or ``[B, d]``.

        Raises:
            ValueError: on scores that are not finite numbers.
        """
        rows, single = as_batch(scores)
        noisy = add_cube(rows, scale=self.scale, generator=generator)
        return noisy[0] if single else noisy

    def event(self, relation: NeighboringRelation) -> Event:
        return PureDPEvent(neighboring_relation=relation, epsilon=self.sensitivity / self.scale)


_SHIFT = 1  # votes by which one teacher moves a distance from a tie, under either relation


@dataclass(frozen=True, kw_only=True)
class MajorityMechanism(Mechanism[tuple[BoolArray, BoolArray]]):
    """Release which counts exceed half of the teachers, if the one nearest to a tie is far from it.

    Privacy: a `StabilityTest` of the least of the distances ``abs(h_j - T / 2)``, which moves by 1
    vote under ADD_REMOVE_TEACHER and REPLACE_RECORD alike: a majority may turn only within that.

    >>> mechanism = MajorityMechanism(num_teachers=100, sigma=2.0, delta=1e-6)
    >>> mechanism(np.array([95, 90, 5, 0]), generator=seeded_generator(0))
    (array([ True,  True, False, False]), np.True_)

    Args:
        num_teachers: the nominal number of teachers T.
        sigma: standard deviation of the noise of the test, in votes.
        delta: probability that an unstable majority passes the test.

    Raises:
        ValueError: on ``num_teachers < 2``, ``sigma <= 0`` or ``delta`` outside (0, 1).
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("sigma",)
    checks: ClassVar[Checks] = {"delta": require_in_open_unit_interval}

    num_teachers: int
    sigma: float
    delta: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.test  # which checks its parameters

    @classmethod
    def defaults(cls, case: Case) -> Sequence[Mapping[str, Any]]:
        return [{"delta": case.delta_test}]

    @cached_property
    def test(self) -> StabilityTest:
        """The test of the least distance from a tie, a multiple of 1/2 up to ``T / 2`` votes."""
        return StabilityTest(
            # the farther of two distances is T / 2 at most, so the nearer one is within the T // 2
            # gaps of the event
            num_teachers=self.num_teachers // 2,
            sigma=self.sigma,
            delta_test=self.delta,
            shift=_SHIFT,
            window=_SHIFT,
        )

    def __call__(
        self, scores: ArrayLike, *, generator: np.random.Generator
    ) -> tuple[BoolArray, BoolArray]:
        """Return majorities, booleans of the shape of ``[C]`` or ``[B, C]``, and which rows passed.

        A row that failed has no majorities.

        Raises:
            ValueError: on counts that are no numbers, or lie outside of ``0..num_teachers``.
        """
        rows, single = as_batch(scores)
        leads = self._leads(rows)
        passed = self.test(np.abs(leads).min(axis=1) / 2, generator=generator)
        members = (leads > 0) & passed[:, None]
        return (members[0], passed[0]) if single else (members, passed)

    def event(self, relation: NeighboringRelation) -> Event:
        return self.test.event(relation)

    def answer(self, counts: ArrayLike, *, generator: np.random.Generator) -> Release:
        return Release.of_rows(*self(counts, generator=generator))

    def max_answer_probability(self, widest: float) -> float:
        """Return the probability that teachers who agree on all labels pass the test."""
        return float(self.test.probability(self.num_teachers / 2))

    def law(self, scores: Rows) -> Law:
        leads = self._leads(scores)
        distances: FloatArray = np.abs(leads).min(axis=1) / 2
        passed = self.test.probability(distances)[:, None]
        return Law(passed, (leads > 0)[:, None], self.test.failure(distances))

    def _leads(self, rows: Rows) -> IntArray:
        return 2 * rows.astype(np.int64) - self.num_teachers


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
        def draw(part: Rows) -> IntArray:
            below = below_rank(part, self.k, reach=REACH * self.scale)
            return sample_k_smallest(
                below, self.k, noise=self.noise, scale=self.scale, generator=generator
            )

        return np.sort(in_blocks(rows, draw), axis=1)

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
