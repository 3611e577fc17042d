"""Scores in their order, and choices of the exact law among them or among unlisted outcomes.

Scores are integers or floats of any size, ties broken by index. Distances are taken before they are
rounded, so that no magnitude hides a difference. Noise has all its digits wherever an order depends
on them.

Noise is a quantile of a uniform number. A float64 knows 53 of its binary digits. Where two keys are
so close that rounding or the digits that follow could change their order, more digits are drawn,
and quantiles are bounded by decimal numbers, with operations and a logarithm that are rounded
correctly.

Outcomes that cannot be listed are proposed, and rejected exactly. A proposal is drawn by integer
weights, which need only be near the right ones. It is kept with the chance that remains: the weight
of the outcome by the theorem, over the rate at which it is proposed. Weights by the theorem are
integers times exponentials of rational numbers, so that chances are bounded by decimal numbers as
closely as it takes (rejection sampling, von Neumann (1951)); and rates are lifted by more than
floats err, so that no chance exceeds 1.

Permute-and-flip visits the outcomes in random order and takes the first with a coin, of chance
``p = exp(-loss)``, that shows heads (McKenna & Sheldon (2020)). Let each be visited at a time of
its own, exponential of rate 1. An outcome that is still left at time t is taken at the rate
``p exp(-t) / (1 - p + p exp(-t))``. This is the stream of proposals that are kept, of rate p for
each outcome, thinned with the chance ``1 / (p + (1 - p) exp(t))``. About two proposals are needed,
however many outcomes there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple, assert_never

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate._core.mechanisms.noise import (
    ChoiceNoise,
    Interval,
    LazyReal,
    Noise,
    decimal_precision,
    enclose,
    exp_of,
    log_of,
    negative,
    product,
    quantile,
    require_noise,
    total,
)
from pate._core.validation import BoolArray, FloatArray, IntArray, Rows, require

ROWS = 1024  # rows worked on at once, so that the intermediate arrays stay in cache


REACH = 2.0**32
"""The largest distance, in scales of noise.

Noise in float64 spans less than 2^10 scales, and never bridges them.
"""
NEAR = 2.0**20
"""Scales of noise up to which distances from any score will do: rounding is 2^-33 scales."""


class Ranked(NamedTuple):
    """Scores in descending order, ties broken by index."""

    order: IntArray
    """``[B, d]``: ``order[:, j]`` is the index of the item of rank j."""
    scores: Rows
    """``[B, d]``, descending: the scores as they were given, to the last digit."""


def as_batch(scores: ArrayLike) -> tuple[Rows, bool]:
    """Return scores as ``[B, d]``, and whether they were given as one row ``[d]``.

    Raises:
        ValueError: unless they are finite real numbers of shape ``[d]`` or ``[B, d]``, ``d > 0``,
            with a finite spread.
    """
    rows = np.asarray(scores)
    require(
        rows.ndim in (1, 2) and rows.shape[-1] > 0,
        "scores of shape [d] or [batch, d]",
        shape=rows.shape,
    )
    require(rows.dtype.kind in "iuf", "integer or float scores", dtype=str(rows.dtype))
    if rows.dtype.kind == "f":
        rows = np.asarray(rows, dtype=np.float64)
        if rows.size:
            # the sum is not finite if any score is not, and finite scores must not overflow in
            # their difference
            with np.errstate(over="ignore", invalid="ignore"):
                low, high = rows.min(), rows.max()
                require(
                    np.isfinite(high - low),
                    "finite scores",
                    minimum=float(low),
                    maximum=float(high),
                )
    return (rows[None] if rows.ndim == 1 else rows), rows.ndim == 1


def require_within(num_items: int, *, spare: int = 0, **values: int) -> None:
    """Raise ``ValueError`` unless each of ``values`` leaves ``spare`` items out."""
    for name, value in values.items():
        require(
            value <= num_items - spare,
            f"{name} <= {num_items - spare} for {num_items} items",
            **{name: value},
        )


def distances(rows: Rows, reference: Rows, *, reach: float = math.inf) -> FloatArray:
    """Return how far scores ``[.., d]`` lie below ``reference``, float64, clipped at ``reach``.

    This is the one place where scores become floats. They are subtracted first, integers as
    integers, so that unsigned ones do not wrap, large ones keep their last digits, and only the
    distance itself is rounded, by 2^-53 of it.

    Where the reference is the score of some public rank, all distances move within the window of
    the scores, and the clipped ones too, because no distance moves by more than the window in
    either direction, and a clip is monotone and never moves a number farther than it was moved.

    Args:
        rows: scores of any integer or floating-point type.
        reference: scores of that type, of a shape that broadcasts against ``rows``.
        reach: the largest distance, `REACH` scales of the noise that is added to it.
    """
    if rows.dtype.kind == "f":
        exact: FloatArray = np.subtract(reference, rows, dtype=np.float64)
    elif rows.dtype.itemsize < 8:
        exact = (reference.astype(np.int64) - rows).astype(np.float64)
    elif _spread(rows, reference) < 2**63:
        exact = (reference - rows).view(np.int64).astype(np.float64)
    else:
        # modulo 2^64 a difference is right even where it overflows, and its sign is known
        below, above = reference - rows, rows - reference
        exact = np.where(
            reference >= rows, below.view(np.uint64), -above.view(np.uint64).astype(np.float64)
        )
    return exact if reach == math.inf else np.clip(exact, -reach, reach, out=exact)


def _spread(*scores: Rows) -> int:
    """Return the largest difference between any two of integers."""
    ends = [(int(rows.min().item()), int(rows.max().item())) for rows in scores if rows.size] or [
        (0, 0)
    ]
    return max(high for _, high in ends) - min(low for low, _ in ends)


def below_rank(rows: Rows, k: int, *, reach: float = math.inf) -> FloatArray:
    """Return the `distances` of scores ``[B, d]`` from the k-th largest of their row."""
    if k == 1:
        return distances(rows, rows.max(axis=1, keepdims=True), reach=reach)
    place = rows.shape[1] - k
    return distances(rows, np.partition(rows, place, axis=1)[:, place : place + 1], reach=reach)


def has_near_ties(rows: Rows, scale: float) -> bool:
    """Whether all scores of a batch lie within `NEAR` scales of one another."""
    return not rows.size or rows.max().item() - rows.min().item() <= NEAR * scale


def rank(rows: Rows) -> Ranked:
    """Sort each row in descending order, ties broken by index."""
    if rows.dtype.kind == "f":
        order, ascending = sort_ascending(-rows, largest=None)
        return Ranked(order, -ascending)
    # modulo 2^64 a difference from the largest is right even where it overflows a signed integer
    wide = np.int64 if rows.dtype.itemsize < 8 else np.uint64
    largest = rows.max(axis=1, keepdims=True)
    below: Rows = np.subtract(largest, rows, dtype=wide, casting="unsafe")
    order, below = sort_ascending(below, largest=int(below.max(initial=0)))
    scores = np.subtract(largest, below, dtype=wide, casting="unsafe")
    return Ranked(order, scores.astype(rows.dtype))


def sort_ascending(values: Rows, *, largest: int | None) -> tuple[IntArray, Rows]:
    """Sort each row, ties by index: the indices and the sorted values, ``[B, d]`` each.

    Integers in ``0..largest`` are sorted together with their indices, as one key per entry.
    """
    num_items = values.shape[1]
    bits = (num_items - 1).bit_length()
    end = math.inf if largest is None else (largest + 1) << bits
    if end >= 2**63:
        order: IntArray = np.asarray(np.argsort(values, axis=1, kind="stable"), dtype=np.int64)
        return order, np.take_along_axis(values, order, axis=1)
    keys: NDArray[np.integer] = values.astype(np.uint32 if end <= 2**32 else np.int64)
    # a Python int as the other operand keeps the keys as narrow as they are
    keys <<= bits
    keys |= np.arange(num_items, dtype=keys.dtype)
    keys.sort(axis=1)
    return (keys & ((1 << bits) - 1)).astype(np.int64), keys >> bits


def blocks_of(rows: Rows, *, size: int = ROWS) -> Iterator[Rows]:
    """Yield ``size`` rows at a time, and an empty block where there are none."""
    for start in range(0, max(len(rows), 1), size):
        yield rows[start : start + size]


def in_blocks(rows: Rows, choose: Callable[[Rows], IntArray], *, size: int = ROWS) -> IntArray:
    """Return the choices ``[B, k]`` for ``rows`` ``[B, d]``, made for ``size`` rows at a time."""
    return np.concatenate([choose(part) for part in blocks_of(rows, size=size)])


def k_smallest(values: FloatArray, k: int) -> IntArray:
    """Return the indices of the k smallest of each row in ascending order of value, ``[B, k]``."""
    if k == 1:
        return np.argmin(values, axis=1)[:, None]
    if k < values.shape[1]:
        part = np.argpartition(values, k - 1, axis=1)[:, :k]
        order = np.argsort(np.take_along_axis(values, part, axis=1), axis=1)
        return np.take_along_axis(part, order, axis=1)
    return np.argsort(values, axis=1)


EXTREME = 2.0**-20  # tails in which the digits that are not drawn move noise by more than 2^-33
# Elsewhere they move it by 2^-32 at most, for any law; logarithms are taken to err by less than
# 2^-40 of their value, 2^12 times the error that numpy promises; and both keys of a pair err.
MARGIN = 2.0**-28
_LARGEST = 1e300  # noise is less than a thousand scales, and has to be finite


def sample_k_smallest(
    below: FloatArray,
    k: int,
    *,
    noise: Noise,
    scale: ArrayLike,
    generator: np.random.Generator,
    exact: Callable[[int, int], Fraction] | None = None,
    tails: FloatArray | None = None,
) -> IntArray:
    """Return the indices ``[B, k]`` of the k smallest of ``below - scale noise``, ascending.

    Args:
        below: ``[B, d]``, how far scores lie below some rank; minus infinity comes first, infinity
            last, whatever the noise.
        k: how many are chosen.
        noise: the law.
        scale: its scale, of a shape that broadcasts against ``below``. A negative one turns noise
            round, and one of a row at most is 0: a row without noise is sorted, not chosen from.
        generator: source of the noise.
        exact: returns, for a row and a place, the value that was clipped and rounded in
            ``below``, up to a constant of the row: values far below 0 are ordered by it. None if
            their order does not matter.
        tails: ``[B, d]``, the first 53 binary digits of the uniform numbers; drawn if None.

    Raises:
        ValueError: if noise of that scale may not be finite, or more than one scale of a row is 0.
    """
    scales = np.atleast_2d(np.asarray(scale, dtype=np.float64))
    largest = float(np.abs(scales).max(initial=0))
    require(largest <= _LARGEST, f"a scale of noise <= {_LARGEST:g}", scale=largest)
    zeros = int(np.count_nonzero(scales == 0, axis=1).max(initial=0))
    require(zeros <= (scales.shape[1] > 1), "noise on all of a row but one at most", zeros=zeros)
    widest = np.broadcast_to(np.abs(scales).max(axis=1, keepdims=True), (len(below), 1))
    tails = generator.random(below.shape) if tails is None else tails
    with np.errstate(divide="ignore", invalid="ignore"):  # of tails of 0, which are decided below
        keys = below - scales * quantile(tails, noise)
    order = k_smallest(keys, min(k + 1, below.shape[1]))
    ascending = np.take_along_axis(keys, order, axis=1)
    with np.errstate(invalid="ignore"):  # infinities are in order, or need none
        margins = _margins(ascending, widest)
        close = np.diff(ascending, axis=1) <= np.minimum(margins[:, 1:], margins[:, :-1])
    extreme = np.minimum(tails, 1 - tails) < EXTREME
    doubtful = close.any(axis=1) | extreme.any(axis=1)
    if exact is not None:
        doubtful |= ascending[:, 0] < -NEAR * widest[:, 0]
    scales = np.broadcast_to(scales, below.shape)
    for row in np.flatnonzero(doubtful).tolist():
        certain = np.sort(keys[row, ~extreme[row]])[:k]
        last = certain[-1] if certain.size == k else np.inf
        reach = last + _margins(last, widest[row]) if np.isfinite(last) else last
        places = np.flatnonzero((keys[row] <= reach) | extreme[row])
        first = places[below[row, places] == -np.inf].tolist()
        others = places[np.isfinite(below[row, places])]
        apart = exact is not None and ascending[row, 0] < -NEAR * widest[row, 0]
        margins = _margins(keys[row], widest[row])
        ordered = _in_order(
            {
                at: exact(row, at) if apart and exact is not None else Fraction(below[row, at])
                for at in others.tolist()
            },
            {at: LazyReal.of(tails[row, at]) for at in others.tolist()},
            {at: Fraction(scales[row, at]) for at in others.tolist()},
            noise,
            generator,
            {
                at: (float(keys[row, at] - margins[at]), float(keys[row, at] + margins[at]))
                for at in ([] if apart else others[~extreme[row, others]].tolist())
            },
        )
        order[row, :k] = [*first, *ordered, *np.flatnonzero(below[row] == np.inf).tolist()][:k]
    return order[:, :k]


def _margins(keys: ArrayLike, widest: FloatArray) -> FloatArray:
    return np.asarray(MARGIN * widest + 2.0**-50 * np.abs(keys))


def _in_order(
    values: dict[int, Fraction],
    tails: dict[int, LazyReal],
    scales: dict[int, Fraction],
    noise: Noise,
    generator: np.random.Generator,
    known: Mapping[int, tuple[float, float]],
) -> list[int]:
    """Return the keys of ``values``, ascending by value less scaled noise of its tail.

    What is ``known`` has bounds already.
    """
    bounds: dict[int, tuple[Fraction | float, Fraction | float]] = {**known}
    changed = [at for at in values if at not in known]
    while True:
        for at in changed:
            low, high = sorted(
                scales[at] * bound for bound in _quantile_of(tails[at], noise, generator)
            )
            bounds[at] = values[at] - high, values[at] - low
        order = sorted(values, key=bounds.__getitem__)
        close = [(at, after) for at, after in pairwise(order) if bounds[at][1] >= bounds[after][0]]
        changed = sorted({at for pair in close for at in pair})
        if not changed:
            return order
        for at in changed:
            if isinstance(bounds[at][0], Fraction):
                tails[at].draw_more_bits(generator)


def _quantile_of(
    tail: LazyReal, noise: Noise, generator: np.random.Generator
) -> tuple[Fraction, Fraction]:
    """Return bounds on the noise exceeded with probability ``tail``, with more digits if needed."""
    while True:
        with decimal_precision(tail.length):
            bounds = _bounds(tail.bounds, noise)
            if bounds is not None:
                return Fraction(bounds[0]), Fraction(bounds[1])
        tail.draw_more_bits(generator)


def _bounds(tail: Interval, noise: Noise) -> Interval | None:
    """Return bounds on the noise exceeded with a probability in ``tail``. None if it has none."""
    low, high = tail
    rest = (1 - high).next_minus(), (1 - low).next_plus()
    if low <= 0 or rest[0] <= 0:
        return None
    if noise == "gumbel":
        return negative(log_of(negative(log_of(rest))))
    if noise == "exponential":
        return negative(log_of(tail))
    if noise == "laplace":
        if low < Decimal("0.5") < high:
            return None
        if high <= Decimal("0.5"):
            return negative(log_of(((2 * low).next_minus(), (2 * high).next_plus())))
        return log_of(((2 * rest[0]).next_minus(), (2 * rest[1]).next_plus()))
    if noise == "half_logistic":
        rest = (2 - high).next_minus(), (2 - low).next_plus()
    elif noise != "logistic":
        assert_never(noise)
    above, under = log_of(rest), log_of(tail)
    return (above[0] - under[1]).next_minus(), (above[1] - under[0]).next_plus()


SLACK = 2.0**-10
"""The logarithm of a rate is lifted by this."""
# by more than logarithms of chances err: their terms are below 2^25, and err by less than 2^-42
# each
_LOG_MARGIN = 2.0**-14
# a uniform number below `EXTREME` has a logarithm below -13.8, whatever its digits
_FAR = 13.0
_WEIGHTS = 2.0**50


class Chance(NamedTuple):
    """The chance ``factor (exp(-low) - exp(-high))``, the second term 0 if ``high`` is None."""

    factor: Fraction
    low: Fraction
    high: Fraction | None = None


class Proposals(NamedTuple):
    """One proposal for each of n rows."""

    outcomes: IntArray
    """``[n, m]``"""
    log_chances: FloatArray
    """``[n]``: with which they are kept, as floats have them."""
    chance: Callable[[int], Chance]
    """Returns the chance of a place in ``0..n-1`` itself."""
    losses: FloatArray | None = None
    """``[n]``, of permute-and-flip: how far outcomes lie below the best one, in scales of noise."""
    loss: Callable[[int], Fraction] | None = None
    """Returns the loss of a place itself."""


def cumulative_weights(masses: FloatArray) -> IntArray:
    """Return cumulative sums of integers ``[.., n]`` of at least 1, proportional to ``masses``."""
    shares = masses / np.maximum(masses.sum(axis=-1, keepdims=True), 1e-300)
    shares *= _WEIGHTS
    weights = shares.astype(np.int64)
    weights += 1
    return np.cumsum(weights, axis=-1, out=weights)


class Picked(NamedTuple):
    """Places drawn by integer weights: they have the probability ``weights / totals``."""

    places: IntArray
    weights: IntArray
    totals: IntArray

    @property
    def log_shares(self) -> FloatArray:
        """Logarithms of the probabilities."""
        return np.log(self.weights / self.totals)

    def share(self, row: int) -> Fraction:
        """The probability of the place that was drawn in a row."""
        return Fraction(int(self.weights[row]), int(self.totals[row]))


def pick(cumulative: IntArray, generator: np.random.Generator) -> Picked:
    """Draw a place in each row ``[n, m]`` of cumulative weights, ``[n]``."""
    totals = cumulative[:, -1]
    places = np.argmax(cumulative > generator.integers(totals)[:, None], axis=1)
    rows = np.arange(len(cumulative))
    before = np.where(places > 0, cumulative[rows, places - 1], 0)
    return Picked(places, cumulative[rows, places] - before, totals)


def draw(
    log_rates: FloatArray,
    propose: Callable[[IntArray], Proposals],
    generator: np.random.Generator,
    *,
    noise: ChoiceNoise,
) -> IntArray:
    """Return an outcome for each row, ``[B, m]``, by the exponential mechanism or permute-and-flip.

    Args:
        log_rates: ``[B]``, logarithms of how often a row's proposals are made in a unit of time,
            before any is refused.
        propose: returns proposals for rows ``[n]``.
        generator: source of the randomness.
        noise: ``gumbel`` for the exponential mechanism, ``exponential`` to permute and flip.

    Raises:
        ArithmeticError: if a proposal is made less often than its outcome must be.
    """
    require_noise(ChoiceNoise, noise=noise)
    rows = np.arange(log_rates.size)
    times, uncertain = np.zeros(rows.size), np.zeros(rows.size, dtype=np.bool_)
    waits: list[tuple[IntArray, FloatArray]] = []
    lazy: dict[int, list[LazyReal]] = {}
    chosen = None
    while rows.size:
        proposals = propose(rows)
        if chosen is None:
            chosen = np.zeros((rows.size, proposals.outcomes.shape[1]), dtype=np.int64)
        kept = _are_kept(proposals, generator)
        if noise == "exponential":
            tails = generator.random(rows.size)
            waits.append((rows, tails))
            uncertain[rows] |= tails < EXTREME
            with np.errstate(divide="ignore"):
                times[rows] -= np.log(tails)
            places = np.flatnonzero(kept)
            at = rows[places]
            scaled, coins = times[at] * np.exp(-log_rates[at]), generator.random(places.size)
            assert proposals.losses is not None and proposals.loss is not None
            kept[places], doubtful = _are_taken(
                proposals.losses[places], scaled, coins, uncertain[at]
            )
            for i in np.flatnonzero(doubtful).tolist():
                row, place = int(at[i]), int(places[i])
                past = lazy.setdefault(row, [])
                past += [
                    LazyReal.of(drawn[np.searchsorted(of, row)]) for of, drawn in waits[len(past) :]
                ]
                slowness = Chance(Fraction(1), Fraction(float(log_rates[row])))
                kept[place] = is_taken(
                    proposals.loss(place), past, slowness, LazyReal.of(coins[i]), generator
                )
        elif noise != "gumbel":
            assert_never(noise)
        chosen[rows[kept]] = proposals.outcomes[kept]
        rows = rows[~kept]
    return np.zeros((0, 0), dtype=np.int64) if chosen is None else chosen


def _are_kept(proposals: Proposals, generator: np.random.Generator) -> BoolArray:
    if (proposals.log_chances >= 0).any():
        raise ArithmeticError("An outcome is proposed less often than its law demands.")
    coins = generator.random(len(proposals.log_chances))
    with np.errstate(divide="ignore", invalid="ignore"):
        lead = proposals.log_chances - np.log(coins)
    kept = lead > 0
    doubtful = ~(np.abs(lead) > _LOG_MARGIN) | (coins < EXTREME) & (proposals.log_chances < -_FAR)
    for place in np.flatnonzero(doubtful).tolist():
        kept[place] = happens(proposals.chance(place), LazyReal.of(coins[place]), generator)
    return kept


def _are_taken(
    losses: FloatArray, times: FloatArray, coins: FloatArray, uncertain: BoolArray
) -> tuple[BoolArray, BoolArray]:
    """Return whether the outcomes are taken at these times, and where floats cannot tell."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        needed = np.log1p(-np.expm1(-losses) * np.expm1(times))
        lead = -np.log(coins) - needed
        doubtful = ~(np.abs(lead) > MARGIN * (1 + needed)) | (coins < EXTREME) & (needed > _FAR)
    return lead > 0, doubtful | uncertain


def happens(chance: Chance, uniform: LazyReal, generator: np.random.Generator) -> bool:
    """Return whether ``uniform`` is below ``chance``."""
    while True:
        with decimal_precision(uniform.length):
            bounds = _bounds_of(chance)
            least, most = uniform.bounds
            if most <= bounds[0]:
                return True
            if least >= bounds[1]:
                return False
        uniform.draw_more_bits(generator)


def _bounds_of(chance: Chance) -> Interval:
    falls = exp_of(enclose(-chance.low))
    if chance.high is not None:
        falls = total(falls, negative(exp_of(enclose(-chance.high))))
    return product(enclose(chance.factor), falls)


def is_taken(
    loss: Fraction,
    waits: list[LazyReal],
    slowness: Chance,
    coin: LazyReal,
    generator: np.random.Generator,
) -> bool:
    """Return whether ``coin`` is below ``1 / (p + (1 - p) exp(t))``, where ``p = exp(-loss)``.

    The time t is the sum of ``waits`` times ``slowness``, which is one over the rate of proposals.
    """
    while loss:
        with decimal_precision(coin.length):
            grown = exp_of(product(sum_of_exponentials(waits), _bounds_of(slowness)))
            heads = exp_of(enclose(-loss))
            tails = total((Decimal(1), Decimal(1)), negative(heads))
            bounds = product(coin.bounds, total(heads, product(tails, grown)))
            if bounds[1] <= 1:
                return True
            if bounds[0] >= 1:
                return False
        for digits in (*waits, coin):
            digits.draw_more_bits(generator)
    return True


def sum_of_exponentials(waits: list[LazyReal]) -> Interval:
    """Return bounds on the sum of exponential numbers that are exceeded with these probabilities.

    The upper one is infinite as long as all digits of any of these are 0.
    """
    bounds = Decimal(0), Decimal(0)
    for wait in waits:
        low, high = wait.bounds
        bounds = total(bounds, negative(log_of((max(low, Decimal(0)), high))))
    return bounds
