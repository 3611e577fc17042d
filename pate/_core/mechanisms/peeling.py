"""The k largest scores with noise, drawn once or in rounds of peeling.

With one draw of noise on every score, `NoisyTopK` reports the set of the k largest (Shekelyan &
Loukides (2022), "Differentially private top-k selection via canonical Lipschitz mechanism"), and
`OneShotLaplace` their order. Peeling chooses one item without replacement in each of k rounds. The
output is ordered. `GammaCounts` releases all scores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from pate._core.accounting.cost import NeighboringRelation
from pate._core.accounting.events import Event, PureDPEvent
from pate._core.mechanisms.base import (
    Checks,
    Law,
    NotStatedError,
    ScoreMechanism,
    TopKMechanism,
    choice_event,
    peeling_law,
)
from pate._core.mechanisms.exact_choice import (
    REACH,
    as_batch,
    below_rank,
    distances,
    in_blocks,
    rank,
    sample_k_smallest,
    sum_of_exponentials,
)
from pate._core.mechanisms.noise import (
    LazyReal,
    Noise,
    decimal_precision,
    require_noise,
    split,
    with_noise,
)
from pate._core.validation import (
    FloatArray,
    IntArray,
    Rows,
    require_count,
    require_positive,
)


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


def one_shot(
    rows: Rows,
    k: int,
    scale: float,
    noise: Noise,
    generator: np.random.Generator,
    *,
    ordered: bool = True,
) -> IntArray:
    """Return the indices ``[B, k]`` of the k largest of ``rows`` with noise.

    They are in order. Without ``ordered`` those far ahead may come in any order.
    """

    def draw(part: Rows) -> IntArray:
        return sample_k_smallest(
            below_rank(part, k, reach=REACH * scale),
            k,
            noise=noise,
            scale=scale,
            generator=generator,
            exact=(lambda row, place: -Fraction(part[row, place].item())) if ordered else None,
        )

    return in_blocks(rows, draw)


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
        return np.sort(
            one_shot(rows, self.k, self.scale, self.noise, generator, ordered=False), axis=1
        )

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


def scale_for_epsilon(epsilon: float, *, window: float, draws: int = 1) -> float:
    """Return the scale ``draws * window / epsilon`` that makes a selection pure ``epsilon``-DP.

    >>> scale_for_epsilon(0.5, window=2.0, draws=3)
    12.0

    Args:
        epsilon: the guarantee, above 0.
        window: width of the window within which scores move, in votes: the count window, or
            `pate.mechanisms.joint_window` for the joint mechanism.
        draws: k for the one-shot and peeling mechanisms, 1 for the canonical and the joint
            mechanism.

    Returns:
        the scale, in the unit of the scores.

    Raises:
        ValueError: on a number that is not positive.
    """
    require_positive(epsilon=epsilon, window=window)
    require_count(1, draws=draws)
    return draws * window / epsilon


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


@dataclass(frozen=True, kw_only=True)
class GumbelPeeling(TopKMechanism):
    """Peel k items by the exponential mechanism: the k largest with one draw of Gumbel noise.

    Both have the same law (Durfee & Rogers (2019), Lemma 4.2).

    Privacy: k bounded-range choices of ``w / scale`` for the ordered output (Dong, Durfee & Rogers
    (2020)); ``w`` is 1 vote under ADD_REMOVE_TEACHER and 2 under REPLACE_RECORD.

    >>> mechanism = GumbelPeeling(k=2, scale=2.0)
    >>> mechanism(np.array([90, 80, 10, 0]), generator=seeded_generator(0))
    array([0, 1])

    Args:
        k: number of rounds, 1..d.
        scale: scale of the Gumbel noise, in votes.
    """

    def _select(self, rows: Rows, generator: np.random.Generator) -> IntArray:
        return one_shot(rows, self.k, self.scale, "gumbel", generator)

    def event(self, relation: NeighboringRelation) -> Event:
        return choice_event(
            relation, eta=self.window(relation) / self.scale, noise="gumbel", count=self.k
        )

    def law(self, scores: Rows) -> Law:
        return peeling_law(scores, self.k, self.scale, "gumbel")


@dataclass(frozen=True, kw_only=True)
class PermuteAndFlipPeeling(TopKMechanism):
    """Peel k items by permute-and-flip, each round with fresh noise (McKenna & Sheldon (2020)).

    Privacy: k pure choices of ``w / scale`` for the ordered output; ``w`` is 1 vote under
    ADD_REMOVE_TEACHER and 2 under REPLACE_RECORD.

    >>> mechanism = PermuteAndFlipPeeling(k=2, scale=2.0)
    >>> mechanism(np.array([90, 80, 10, 0]), generator=seeded_generator(0))
    array([0, 1])

    Args:
        k: number of rounds, 1..d.
        scale: scale of the exponential noise, in votes.
    """

    def _select(self, rows: Rows, generator: np.random.Generator) -> IntArray:
        def draw(part: Rows) -> IntArray:
            order, scores = rank(part)
            return np.take_along_axis(order, self._peel(scores, generator), axis=1)

        return in_blocks(rows, draw)

    def _peel(self, scores: Rows, generator: np.random.Generator) -> IntArray:
        """Return ranks ``[B, k]`` of descending scores, by the largest with exponential noise.

        (Ding et al. (2021).)
        """
        ranks = np.empty((len(scores), self.k), dtype=np.int64)
        taken = np.zeros(scores.shape, dtype=np.bool_)
        for place in range(self.k):
            best = np.argmin(taken, axis=1)[:, None]
            below = distances(
                scores, np.take_along_axis(scores, best, axis=1), reach=REACH * self.scale
            )
            below[taken] = np.inf
            ranks[:, place] = sample_k_smallest(
                below, 1, noise="exponential", scale=self.scale, generator=generator
            )[:, 0]
            taken[np.arange(len(scores)), ranks[:, place]] = True
        return ranks

    def event(self, relation: NeighboringRelation) -> Event:
        return choice_event(
            relation, eta=self.window(relation) / self.scale, noise="exponential", count=self.k
        )

    def law(self, scores: Rows) -> Law:
        return peeling_law(scores, self.k, self.scale, "exponential")
