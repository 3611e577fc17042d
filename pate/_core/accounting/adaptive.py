"""The best adaptive adversary: certified bounds on the delta of releases whose order is known.

**The adaptive optimum** is a certified bound on the best adversary against rounds of two-outcome
releases. In each round, after seeing all earlier releases, an adversary picks a pair of laws ``(P,
Q)`` from the family that a mechanism allows. Let ``V_n(gamma)`` be the largest ``P(S) - gamma
Q(S)`` over n rounds. Splitting S by the outcome of the first round,

    V_0(gamma) = max(0, 1 - gamma),    V_n(gamma) = sup over (P, Q) of  sum_o P(o) V_(n-1)(gamma
    Q(o) / P(o)),

so n rounds are (epsilon, V_n(e^epsilon))-DP and no less. Three facts turn this into a finite
computation from above:

1. ``V_n`` is a supremum of lines of slope -1 to 0: convex, not increasing, 1 at most. A chord
   between two nodes, or the value at a smaller gamma, bounds it from above.
2. The value of Bernoulli laws, ``F(q, p) = p V(gamma q / p) + (1 - p) V(gamma (1 - q) / (1 - p))``,
   is a sum of perspectives of a convex function: jointly convex, and smallest, ``V(gamma)``, where
   p = q. So the corners of any polygon around a concave arc bound a family with all points
   ``(q, p)``, p >= q, below the arc. Here the sides of the polygon are tangents, and its excess
   falls with the square of their spacing.
3. Where p < q, exchanging the two outcomes gives ``(1 - q, 1 - p)``, the reflection of ``(p, q)``.
   The arcs here are their own reflections, so the corners of the lower half, played in both
   directions, suffice.

V may be replaced by anything larger wherever it is used, so each rounding error is covered by a
factor above 1. The adversary's choices for a round are made before the round is drawn. The number
and the kinds of rounds are fixed beforehand. Statements use this bound for rounds that are all
equal, which have no order, and for a few releases in the order of their ledger; budgets never do.

**A Gaussian release in between** of parameter ``mu`` has losses ``L`` with the law ``N(mu^2 / 2,
mu^2)`` under P, so that it turns V into ``E_P[V(gamma e^-L)]``. Where ``gamma e^-L`` lies between
two nodes, V is below their chord, a line in ``e^-L``, so that the expectation is below the one of
the chords. The largest losses count as V = 1. A release of another kind that is mu-GDP comes from
the Gaussian pair by processing (Dong, Roth & Su (2022), Theorem 2.10), which only lowers V.

**The order of releases.** Rows of a ledger are played from the last to the first. The queries of a
row may be answered one after the other, or the first part of each, then the second part of each,
and so on: the larger V of the two is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, ndtr

from pate._core.accounting.base import CompositeEvent, Event, leaves
from pate._core.accounting.curves import Pairs, bounded_range_pairs
from pate._core.accounting.events import BoundedRangeEvent, FailureEvent, PureDPEvent
from pate._core.validation import FloatArray, read_only

_ROUND_SLACK = 1e-13  # above the relative error of one round: a dozen roundings
_INTERPOLATION_SLACK = 1e-12  # above the relative error of a value on a chord
_POSITION_SLACK = 1e-9  # above the error of the position of a loss, in cells of the grid
_UNDERFLOW_SLACK = 1e-100  # above the loss by underflow and by outcomes rarer than Phi(-25)
_BINOMIAL_SLACK = 1e-9  # above the relative error of a sum of binomial probabilities
_KERNEL_SLACK = 1e-11  # above the relative error of a sum with the weights of a Gaussian's losses
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)
_REACH = 13.0  # standard deviations of a Gaussian's loss; the rest, 6e-39, counts as V = 1
# The bound on so many equal rounds takes half a second; for more of them it gains little.
_MOST_EQUAL: Mapping[type[Event], int] = {BoundedRangeEvent: 128, PureDPEvent: 10_000}
# The bound on releases in order takes a fifth of a second for so many moves on its grid.
_MOST_MOVES = 40_000
_GAUSSIAN_MOVES = 400  # that take as long as one Gaussian release
MOST_IN_ORDER = _MOST_MOVES // _GAUSSIAN_MOVES
"""The most releases whose order is used."""
_ROUND_MOVES = 16  # that take as long as a round without its moves


class Profile(NamedTuple):
    """Bounds ``delta[j]`` on ``V_n`` at ``gamma = exp(epsilon[j])``. Both ``[J]``, ascending."""

    epsilon: FloatArray
    delta: FloatArray

    def at(self, delta: float) -> float:
        """Return the smallest epsilon >= 0 proven at ``delta``; infinite beyond the grid."""
        proven = np.flatnonzero((self.delta <= delta) & (self.epsilon >= 0))
        if not proven.size:
            return float("inf")
        j = int(proven[0])
        if j == 0 or self.epsilon[j - 1] < 0:
            return float(self.epsilon[j])
        # on the chord to the node before
        share = (delta - self.delta[j]) / (self.delta[j - 1] - self.delta[j])
        inside = self.epsilon[j] + np.log1p(share * np.expm1(self.epsilon[j - 1] - self.epsilon[j]))
        return float(inside * (1 + _INTERPOLATION_SLACK))

    def delta_at(self, epsilon: float) -> float:
        """Return the delta proven at ``epsilon >= 0``."""
        j = int(np.searchsorted(self.epsilon, epsilon))
        if j == 0 or j == self.epsilon.size:
            return float(self.delta[min(j, self.epsilon.size - 1)])
        share = np.expm1(epsilon - self.epsilon[j]) / np.expm1(
            self.epsilon[j - 1] - self.epsilon[j]
        )
        return float(
            (self.delta[j] + share * (self.delta[j - 1] - self.delta[j]))
            * (1 + _INTERPOLATION_SLACK)
        )


def adaptive_profile(
    rounds: Sequence[Pairs], count: int, *, low: float, high: float, step: float
) -> Profile:
    """Bound ``V`` of ``count`` rounds, each with one pair from every entry of ``rounds`` in order.

    The grid runs over epsilon from ``low`` to ``high`` by ``step``, which is 0.1 at most. Below the
    grid V is bounded by 1, above it by the last value.
    """
    end = _end(low, high, step)
    value = end.delta
    # the recursion runs backwards in time
    moves = [_moves(pairs, step) for pairs in reversed(rounds)]
    for _ in range(count):
        for pairs in moves:
            value = _before(value, pairs)
    return Profile(end.epsilon, value)


def _end(low: float, high: float, step: float) -> Profile:
    """Bound ``V`` after all releases."""
    nodes = np.arange(np.floor(low / step), np.ceil(high / step) + 1) * step
    return Profile(nodes, _decreasing(np.maximum(0.0, -np.expm1(nodes)) * (1 + _ROUND_SLACK)))


def equal_rounds(events: Iterable[tuple[Event, int]]) -> tuple[int, Profile] | None:
    """Return the number of equal rounds in ``events`` (event, count), and a bound on their ``V``.

    Failures are not counted. None unless all rounds are one choice, or all one pure release, and
    few and narrow enough.
    """
    kind: Event | None = None
    total = 0
    for event, times in events:
        for leaf, count in leaves(event, times):
            if isinstance(leaf, FailureEvent) or count == 0:
                continue
            kind, total = kind or leaf, total + count
            if leaf != kind or total > _MOST_EQUAL.get(type(leaf), 0):
                return None
    profile = None if kind is None else _equal_profile(kind, total)
    return None if profile is None else (total, profile)


@lru_cache(maxsize=64)
def _equal_profile(event: Event, count: int) -> Profile | None:
    if isinstance(event, PureDPEvent):
        return pure_profile(event.epsilon, count) if event.epsilon <= 10 else None
    assert isinstance(event, BoundedRangeEvent)
    eta = max(event.eta, 1e-3)  # a release of a smaller range has this one too
    # eight standard deviations of the sum of losses, or its largest value
    high = min(count * eta, 4 * eta * np.sqrt(count) + count * eta**2 / 8) + eta
    if eta > 4.8 or high > 100:  # for nodes 0.1 apart at most
        return None
    # with twice as many sides and nodes epsilon is 0.03% smaller
    return adaptive_profile(
        [bounded_range_pairs(eta, sides=48)], count, low=-high, high=high, step=eta / 48
    )


def pure_profile(epsilon: float, count: int) -> Profile:
    """Return ``V`` of ``count`` pure releases at ``gamma >= 1``, exactly but for roundings.

    Each release is, given the past, a post-processing of randomized response. The n-fold
    composition of the latter is a pair of binomial laws (Kairouz, Oh & Viswanath (2017), Theorem
    3.3). With k answers against it the loss is ``(n - 2 k) epsilon``. Between two losses ``V`` is a
    line in gamma. Its slope is minus the probability under Q of fewer such answers.
    """
    against = np.arange((count + 1) // 2)
    losses = (count - 2 * against) * epsilon
    log_law = gammaln(count + 1) - gammaln(against + 1) - gammaln(count - against + 1)
    log_law += against * epsilon - count * np.logaddexp(0, epsilon)
    ends = np.append(losses[1:], 0.0)
    rises = np.logaddexp.accumulate(log_law) + losses + np.log(-np.expm1(ends - losses))
    delta = np.exp(np.logaddexp.accumulate(rises)) * (1 + _BINOMIAL_SLACK) + _UNDERFLOW_SLACK
    return Profile(np.append(losses, 0.0)[::-1], np.minimum(1.0, np.append(0.0, delta))[::-1])


_Row = tuple[Event, int]
"""The event of a query, and the number of queries."""
_Step = float | tuple[bytes, ...]
"""The ``mu^2`` of Gaussian mechanisms, or pairs of laws, as bytes so that equal ones are one."""
_Play = tuple[tuple[_Step, int], ...]
"""Steps in order, with the number of times of each."""


def ordered_profile(
    rows: Sequence[_Row], *, epsilon: float, spread: float
) -> tuple[int, Profile] | None:
    """Return the number of steps in ``rows``, and a bound on their ``V`` in this order.

    None if a release has neither pairs of laws nor a ``mu``, if none has pairs, so that the order
    does not matter, or if they are too many.

    Args:
        rows: the event of a query and the number of queries, by release, oldest first.
        epsilon: an epsilon that is not below the one looked for.
        spread: about the standard deviation of the sum of all losses.
    """
    high, low = epsilon + spread, -min(5.0, 3 * spread)
    if not 0 < spread < high <= 100 or len(rows) > MOST_IN_ORDER:
        return None
    plays = [_ways(event, count) for event, count in rows if count]
    if () in plays:
        return None
    runs = [run for ways in plays for play in ways for run in play]
    moves = sum(times * _moves_of(step) for step, times in runs)
    if moves > _MOST_MOVES or all(isinstance(step, float) for step, _ in runs):
        return None
    number = sum(max(sum(times for _, times in play) for play in ways) for ways in plays)
    # the chords then add 0.1% to the variance of the loss
    step = float(np.clip(spread / (16 * number**0.5), (high - low) / 2**13, 0.1))
    # ends in the middle of cells, so that other roundings give the same nodes
    low, high = ((round(end / step) - 0.5) * step for end in (low, high))
    return number, _played(tuple(plays), low, high, step)


def _ways(event: Event, count: int) -> tuple[_Play, ...]:
    """Return the possible orders of answers to ``count`` queries; none if a part is unknown."""
    parts = [(leaf, times * count) for leaf, times in leaves(event)]
    by_part = _runs(parts)
    if math.inf in (step for step, _ in by_part):
        return ()
    if len(by_part) < 2:
        return (by_part,)
    if sum(times for _, times in parts) > _MOST_MOVES:
        return ()
    by_query = _runs([(leaf, 1) for leaf in _in_turn(event)] * count)
    return (by_part,) if by_part == by_query else (by_part, by_query)


def _in_turn(event: Event) -> list[Event]:
    """Return the basic events of one query, each as often as it happens, in order."""
    if not isinstance(event, CompositeEvent):
        return [event]
    return [leaf for part, times in event.parts() for leaf in _in_turn(part) * times]


def _runs(parts: Iterable[tuple[Event, int]]) -> _Play:
    """Return steps without repetitions; Gaussian mechanisms in a row are one."""
    play: list[tuple[_Step, int]] = []
    for leaf, times in parts:
        step, (last, before) = _step(leaf), play[-1] if play else (0.0, 0)
        if isinstance(step, float):
            if isinstance(last, float):
                step, times = last + step * times, 1
                del play[-1:]
            else:
                step, times = step * times, 1
        elif step == last:
            times += before
            del play[-1]
        if times and step:
            play.append((step, times))
    return tuple(play)


@lru_cache(maxsize=1024)
def _step(leaf: Event) -> _Step:
    """Return the pairs of a basic event, or its ``mu^2``: infinite if none is known."""
    try:
        return tuple(np.stack(pairs).tobytes() for pairs in leaf.pairs())
    except ValueError:
        return float(leaf.cost().mu_squared)


def is_known(leaf: Event) -> bool:
    """Return whether a basic event has pairs of laws, or a ``mu``."""
    return _step(leaf) != math.inf


def _moves_of(step: _Step) -> int:
    if isinstance(step, float):
        return _GAUSSIAN_MOVES
    # two directions, and two numbers of eight bytes for each corner
    return sum(_ROUND_MOVES + len(pairs) // 8 for pairs in step)


@lru_cache(maxsize=256)
def _played(plays: tuple[tuple[_Play, ...], ...], low: float, high: float, step: float) -> Profile:
    """Bound ``V`` of rows, each with the orders in which its queries may be answered."""
    end = _end(low, high, step)
    value, moves = (
        end.delta,
        cache(lambda pairs: _moves(Pairs(*np.frombuffer(pairs).reshape(2, -1)), step)),
    )
    for ways in reversed(plays):
        before = []
        for play in ways:
            now = value
            for kind, times in reversed(play):
                if isinstance(kind, float):
                    now = _before_gaussian(now, kind, step)
                    continue
                for pairs in kind[::-1] * times:
                    now = _before(now, moves(pairs))
            before.append(now)
        value = np.max(before, axis=0)
    return Profile(end.epsilon, value)


def _before_gaussian(value: FloatArray, mu_squared: float, step: float) -> FloatArray:
    """Return ``V`` ``[J]`` before a Gaussian release from ``value`` after it."""
    lowest, weights, rare = _gaussian_weights(mu_squared, step)
    size, most = value.size, lowest + weights.size - 1  # losses in cells of the grid
    padded = np.concatenate([np.ones(max(0, most)), value, np.full(max(0, -lowest), value[-1])])
    first = max(0, most) - lowest  # of the convolution: a loss leads so many nodes down
    total = np.convolve(padded, weights)[first : first + size] + rare
    return _decreasing(np.minimum(1.0, total * (1 + _KERNEL_SLACK)))


@lru_cache(maxsize=64)
def _gaussian_weights(mu_squared: float, step: float) -> tuple[int, FloatArray, float]:
    """Return the least loss in cells, weights ``[K]`` of it and the next ones, and of larger ones.

    Between two nodes a loss is split by the chord in gamma.
    """
    # next to a cell, a narrow Gaussian is as good as none
    mu = max(math.sqrt(mu_squared) * (1 + _INTERPOLATION_SLACK), step / 64)
    mean = mu**2 / 2
    lowest, most = math.floor((mean - _REACH * mu) / step), math.ceil((mean + _REACH * mu) / step)
    cells = np.arange(lowest, most)
    # in pieces of half a standard deviation, where the quadrature errs by less than 1e-20
    pieces = math.ceil(2 * step / mu)
    within = ((np.arange(pieces)[:, None] + (_NODES + 1) / 2) / pieces).ravel()
    places = np.tile(_WEIGHTS / 2 / pieces, pieces) * step / mu / math.sqrt(2 * math.pi)
    density = np.exp(-((((cells[:, None] + within) * step - mean) / mu) ** 2) / 2) * places
    # gamma falls with the loss: the node above a loss is the lower one of the chord
    weights = np.zeros(cells.size + 1)
    weights[1:] += density @ _chord(1 - within, step)
    weights[:-1] += density @ (np.expm1((1 - within) * step) / np.expm1(step))
    weights[0] += ndtr((lowest * step - mean) / mu)
    return lowest, read_only(weights), float(ndtr((mean - most * step) / mu))


_Nodes = tuple[int, FloatArray]
"""Two nodes that an outcome leads to: the place of the first from one's own on, and weights."""


def _moves(pairs: Pairs, step: float) -> list[tuple[_Nodes, _Nodes]]:
    """Return the nodes that both outcomes of each pair, played in either direction, lead to.

    These are ``2 M`` moves. An outcome of loss l leads from gamma to ``gamma exp(-l)``, between two
    nodes whose chord bounds ``V`` there.
    """
    p, q = pairs
    yes, no = np.log(p / q), np.log1p((q - p) / (1 - q))
    mass = np.concatenate([np.stack([p, 1 - p], 1), np.stack([q, 1 - q], 1)])
    loss = np.concatenate([np.stack([yes, no], 1), np.stack([-yes, -no], 1)])
    # a little too far down, where V is larger
    place = -loss / step - _POSITION_SLACK
    cell = np.floor(place)
    lower = _chord(place - cell, step)
    weights = mass[:, :, None] * np.stack([lower, 1 - lower], 2)
    return [
        ((one, first), (two, second))
        for (one, two), (first, second) in zip(cell.astype(int).tolist(), weights, strict=True)
    ]


def _chord(place: FloatArray, step: float) -> FloatArray:
    """Return the weight of the lower node on a chord in gamma, at ``place`` in [0, 1] of a cell."""
    return np.asarray(
        np.exp(place * step) * np.expm1((1 - place) * step) / np.expm1(step), dtype=np.float64
    )


def _before(value: FloatArray, moves: Sequence[tuple[_Nodes, _Nodes]]) -> FloatArray:
    """Return ``V`` ``[J]`` before a release from ``value`` after it: the best of all moves."""
    places = [place for outcomes in moves for place, _ in outcomes]
    below, above = max(0, -min(places)), max(0, max(places) + 1)
    padded = np.concatenate([np.ones(below), value, np.full(above, value[-1])])
    nodes, best, size = np.stack([padded[:-1], padded[1:]]), np.zeros_like(value), value.size
    for (one, first), (two, second) in moves:
        total = first @ nodes[:, below + one : below + one + size]
        total += second @ nodes[:, below + two : below + two + size]
        np.maximum(best, total, out=best)
    return _decreasing(np.minimum(1.0, best * (1 + _ROUND_SLACK) + _UNDERFLOW_SLACK))


def _decreasing(value: FloatArray) -> FloatArray:
    # V does not increase, but roundings may: raise each value to the largest one at a later node
    return np.asarray(np.maximum.accumulate(value[::-1])[::-1], dtype=np.float64)
