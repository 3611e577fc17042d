"""Tests that a gap proves the set above it to be the same on every neighbor (Zhu & Wang (2022))."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from pate._validation import (
    BoolArray,
    FloatArray,
    given,
    require,
    require_count,
    require_in_open_unit_interval,
    require_positive,
)
from pate.accounting import (
    ComposedEvent,
    Event,
    FailureEvent,
    GaussianThresholdEvent,
    NeighboringRelation,
    PureDPEvent,
    StabilityTestEvent,
)
from pate.mechanisms._base import Checks, Mechanism
from pate.mechanisms._exact_choice import sample_k_smallest
from pate.mechanisms._exact_normal import exceeds

TestedBy = Literal["gaussian", "laplace"]
"""Noise of a test of a gap: `StabilityTest` or `LaplaceStabilityTest`."""


@dataclass(frozen=True, kw_only=True)
class _GapTest(Mechanism[BoolArray]):
    """Pass iff ``max(shift, q) + noise - t > shift`` for a gap q.

    ``t`` is the ``1 - delta_test`` quantile of the noise.

    The cost is known under both relations, for whichever the ``shift`` is set.
    """

    checks: ClassVar[Checks] = {"delta_test": require_in_open_unit_interval}

    delta_test: float
    shift: float
    sensitivity: float = 1.0
    window: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(
            sensitivity=self.sensitivity, shift=self.shift, **given(window=self.window)
        )

    def gap_window(self, relation: NeighboringRelation) -> float:
        """Return the number of votes by which the tested number moves between neighbors."""
        return (relation.score_range if self.window is None else self.window) * self.sensitivity

    def __call__(self, scores: ArrayLike, *, generator: np.random.Generator) -> BoolArray:
        """Test gaps of any shape, one for each query, in votes; return booleans of that shape.

        Raises:
            ValueError: on gaps that are not finite.
        """
        gaps = np.asarray(scores, dtype=np.float64)
        require(np.isfinite(gaps).all(), "finite gaps")
        self._require_priced(gaps)  # gaps are PRIVATE, and no message repeats them
        lead = np.maximum(gaps - self.shift, 0)
        return self._passes(lead, generator)

    def probability(self, gaps: ArrayLike) -> FloatArray:
        """Return the probability that each of ``gaps``, of any shape and in votes, passes."""
        return self._exceeds(self._missing(gaps))

    def failure(self, gaps: ArrayLike) -> FloatArray:
        """Return the probability that each of ``gaps`` fails, however small."""
        return self._exceeds(-self._missing(gaps))

    def _accuracy(self, gap: float, num_items: int) -> float:
        return float(self.probability(gap))

    @property
    def _unit(self) -> float:
        return self.sensitivity

    def _missing(self, gaps: ArrayLike) -> FloatArray:
        """Return the noise, in votes, above which each of ``gaps`` passes."""
        return self._quantile - np.maximum(np.asarray(gaps, dtype=np.float64) - self.shift, 0)

    def _require_priced(self, gaps: FloatArray) -> None:
        """Raise ``ValueError`` on gaps that the event does not pay for."""

    @abstractmethod
    def _passes(self, lead: FloatArray, generator: np.random.Generator) -> BoolArray:
        """Return whether each ``lead``, in votes, exceeds the quantile with noise."""

    @abstractmethod
    def _exceeds(self, votes: FloatArray) -> FloatArray:
        """Return the probability that the noise exceeds ``votes``."""

    @property
    @abstractmethod
    def _quantile(self) -> float:
        """Quantile ``1 - delta_test`` of the noise, in votes."""


@dataclass(frozen=True, kw_only=True)
class StabilityTest(_GapTest):
    """Test gaps with Gaussian noise (Zhu & Wang (2022), Algorithm 2, with the exact quantile).

    Passes iff ``max(shift, q) + N(0, sigma^2) - z sigma > shift`` for a gap q, with ``z = Phi^-1(1
    - delta_test)``.

    Privacy: for the outcome together with the exact set above the gap, `StabilityTestEvent` of
    integer scores; of real scores a `GaussianThresholdEvent` of ``sigma`` over the window ``w``,
    and a `FailureEvent`: where the set is the same on both neighbors, the outcome says whether
    ``max(shift, q)``, a statistic of sensitivity w, exceeds a threshold with its noise; where it is
    not, both gaps are at most w, and pass with the probability of failure at most.

    >>> test = StabilityTest(delta_test=1e-6, shift=2, num_teachers=100, sigma=2.0)
    >>> test(np.array([60, 1]), generator=seeded_generator(0))
    array([ True, False])

    Args:
        delta_test: probability that an unstable set passes, in (0, 1).
        shift: the largest gap at which a neighbor may hold another set, in votes: 1 under
            ADD_REMOVE_TEACHER and 2 under REPLACE_RECORD, for a gap between two counts, times the
            sensitivity of other scores.
        sensitivity: the most by which one score (not a gap) changes between neighbors, 1 for votes.
        window: the number of sensitivities by which the tested number moves between neighbors; None
            for a gap between two scores, which moves by one or two, as the relation says.
        num_teachers: the nominal number of teachers, which is the largest possible gap; more
            generally the largest value of the narrower of two neighbors' gaps. Of other scores a
            public bound on them.
        sigma: standard deviation of the noise, in votes.
        integer_scores: whether gaps must be multiples of one half, as gaps of integer scores are,
            and the sensitivity an integer. If not, the cost covers all real numbers.

    Raises:
        ValueError: on ``sigma <= 0``, ``delta_test`` outside (0, 1), a ``shift``, ``num_teachers``,
            ``window`` or ``sensitivity`` that is not positive, or not an
            integer though ``integer_scores``.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("sigma",)

    num_teachers: float
    sigma: float
    integer_scores: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        numbers = given(shift=self.shift, num_teachers=self.num_teachers, window=self.window)
        if self.integer_scores:
            require_count(1, **numbers)
            require(
                float(self.sensitivity).is_integer(),
                "an integer sensitivity",
                sensitivity=self.sensitivity,
            )
        else:
            require_positive(**numbers)

    def event(self, relation: NeighboringRelation) -> Event:
        """Describe one test together with the exact set that it releases."""
        window = self.gap_window(relation)
        if self.integer_scores:
            return StabilityTestEvent(
                neighboring_relation=relation,
                sigma=self.sigma,
                delta_test=self.delta_test,
                shift=int(self.shift),
                num_teachers=int(self.num_teachers),
                window=None if window == relation.score_range else int(window),
            )
        delta = max(self.delta_test, float(self.probability(window)))
        return ComposedEvent(
            events=(
                GaussianThresholdEvent(
                    neighboring_relation=relation, noise_multiplier=self.sigma / window
                ),
                FailureEvent(
                    neighboring_relation=relation,
                    delta=min(delta, math.nextafter(1, 0)),
                    tail="normal",
                    step=window / self.sigma,
                ),
            )
        )

    def _require_priced(self, gaps: FloatArray) -> None:
        if self.integer_scores:
            require((2 * gaps % 1 == 0).all(), "gaps in whole or half votes")
        # the narrower gap of two neighbors is num_teachers at most
        most = self.num_teachers + (self.window or 0) * self.sensitivity
        require(gaps.max(initial=0) <= most, f"gaps of at most {most:g} votes")

    def _passes(self, lead: FloatArray, generator: np.random.Generator) -> BoolArray:
        return exceeds(lead, self._quantile, sigma=self.sigma, generator=generator)

    def _exceeds(self, votes: FloatArray) -> FloatArray:
        return np.asarray(ndtr(-votes / self.sigma), dtype=np.float64)

    @property
    def _quantile(self) -> float:
        return -self.sigma * float(ndtri(self.delta_test))


@dataclass(frozen=True, kw_only=True)
class LaplaceStabilityTest(_GapTest):
    """Test gaps with Laplace noise (Zhu & Wang (2022), Algorithm 5, with the exact quantile).

    The noise is added to ``max(shift, q)`` for a gap q.

    Privacy: pure DP of ``w / scale``, with ``w`` the window by which a gap moves (unless given, one
    sensitivity under ADD_REMOVE_TEACHER and two under REPLACE_RECORD), except with a certain
    probability: ``delta_test``, or the probability of passing a gap of w if a test with a smaller
    ``shift`` is accounted under another relation. This covers the outcome together with the exact
    set above the gap, of integer scores and of real ones.

    Parameters other than the scale are as in `StabilityTest`.

    >>> test = LaplaceStabilityTest(delta_test=1e-6, shift=2, scale=2.0)
    >>> test(np.array([60, 1]), generator=seeded_generator(0))
    array([ True, False])

    Args:
        scale: scale of the noise, in votes.

    Raises:
        ValueError: on ``scale <= 0``, ``delta_test`` outside (0, 1), a ``shift``, ``window`` or
            ``sensitivity`` that is not positive.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("scale",)

    scale: float

    def event(self, relation: NeighboringRelation) -> Event:
        """Describe one test together with the exact set that it releases."""
        window = self.gap_window(relation)
        threshold = self._standard_quantile - max(0, window - self.shift) / self.scale
        delta = math.exp(-threshold) / 2 if threshold > 0 else 1 - math.exp(threshold) / 2
        return ComposedEvent(
            events=(
                PureDPEvent(neighboring_relation=relation, epsilon=window / self.scale),
                FailureEvent(
                    neighboring_relation=relation,
                    delta=min(delta, math.nextafter(1, 0)),
                    tail="exponential",
                    step=window / self.scale,
                ),
            )
        )

    def _passes(self, lead: FloatArray, generator: np.random.Generator) -> BoolArray:
        below = -np.column_stack((lead.ravel(), np.full(lead.size, self._quantile)))
        first = sample_k_smallest(
            below, 1, noise="laplace", scale=[self.scale, 0.0], generator=generator
        )
        return np.asarray(first[:, 0] == 0).reshape(lead.shape)

    def _exceeds(self, votes: FloatArray) -> FloatArray:
        tail = np.exp(-np.abs(votes) / self.scale) / 2
        return np.where(votes > 0, tail, 1 - tail)

    @property
    def _quantile(self) -> float:
        return self.scale * self._standard_quantile

    @property
    def _standard_quantile(self) -> float:
        delta = self.delta_test
        return -math.log(2 * delta) if delta < 0.5 else math.log(2 * (1 - delta))
