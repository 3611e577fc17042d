"""Random streams, laws of noise, and Gaussian noise of the exact law, whole or in shares.

Gaussian noise is rounded to a public grid or compared with a threshold. Both are done as if it had
all its digits.

The curve ``h(x) = 401 exp(-x^2 / 2)`` over ``x >= 0`` is covered with rectangles of one area, its
cells: strips of width ``2^-5`` up to 4.25, each piled with cells of height 1, and one cell's area
for the tail. A point drawn uniformly from the cells, and again until it lies below the curve, has a
normal abscissa (rejection sampling, von Neumann (1951)). Cells are chosen by 14 bits, the sign by
one, and coordinates are lazy: only as many of their binary digits are drawn as decide the question
(Knuth & Yao (1976); Karney (2016)). Three questions are asked, and none is answered by a number
that was rounded:

1. *Is the point below the curve?* Of 97% of the cells all points are. Elsewhere float64 decides
   where both sides differ by more than all that its additions and multiplications can err,
   `_MARGIN`.
2. *To which multiple of the grid is it rounded?* and 3. *Does it exceed a threshold?* Likewise,
   unless the answer lies within the error of three operations of a boundary.

Doubtful cases, the tail included, are decided by integers and by decimal numbers of as many digits
as it takes, with correctly rounded operations and exponential function. Bounds on real numbers are
pairs of decimal numbers, each rounded outwards.

Noise in shares: each party adds a share to its integers, and only the sum is revealed. A share is a
normal number rounded to a grid, in steps of the grid, so that sums are exact modulo 2^64 and can be
masked. The sum of n shares of deviation s is the rounded normal of deviation ``s sqrt(n)`` but for
a probability of `failure`: the proof is in docs/appendix/noise.md, "Noise in shares".
"""

from __future__ import annotations

import math
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from fractions import Fraction
from functools import cache
from typing import Any, Literal, NamedTuple, Self, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from randomgen import AESCounter
from scipy.special import log_expit, log_ndtr

from pate._core.validation import (
    BoolArray,
    FloatArray,
    IntArray,
    Rows,
    require,
    require_count,
    require_positive,
)

Noise = Literal["gumbel", "exponential", "laplace", "logistic", "half_logistic"]
"""Laws of noise with log-Lipschitz survival: its logarithm changes by at most 1 per unit."""
ChoiceNoise = Literal["gumbel", "exponential"]
"""Noise of a choice among too many outcomes to list: exponential mechanism or permute-and-flip."""

KEY_BITS = 128


def draw_key() -> int:
    """Return a key of `KEY_BITS` from the operating system's entropy: no two releases share one."""
    return secrets.randbits(KEY_BITS)


def private_generator(key: int | None = None) -> np.random.Generator:
    """Return a generator of AES-128 (FIPS 197) in counter mode, with a new key if it is None.

    >>> generator = private_generator()
    >>> 0 <= generator.random() < 1
    True

    Returns:
        the generator, for the noise of one release.

    Raises:
        ValueError: on a key outside ``0 .. 2^128 - 1``.
    """
    return np.random.Generator(AESCounter(key=draw_key() if key is None else key))


def seeded_generator(seed: int, *, release: int = 0) -> np.random.Generator:
    """Return a repeatable generator for tests and teaching.

    Releases with its noise are NOT private.

    ``release`` numbers the releases made with one seed, so that no two of them share a stream.

    >>> seeded_generator(3).integers(10, size=4)
    array([6, 0, 2, 1])

    Returns:
        a generator with the same words whenever it is made.

    Raises:
        ValueError: on a negative ``seed``.
    """
    require_count(0, seed=seed, release=release)
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, release])))


class WatchedGenerator(np.random.Generator, ABC):
    """A generator that is shown what noise is added to, and decides the outcome: for audits.

    It breaks privacy by its purpose. A release draws from `private_generator`, or from a seed, and
    no setting names another generator: only the code of an audit makes one.
    """

    @abstractmethod
    def sum(self, values: FloatArray, sigma: float) -> FloatArray:
        """Return the outcome of `add_gaussian`, of the shape of ``values``."""

    @abstractmethod
    def test(self, leads: FloatArray, sigma: float) -> BoolArray:
        """Return the outcome of `exceeds` for values minus thresholds, of their shape."""

    @abstractmethod
    def answer(self, aggregate: Callable[..., Any], aggregator: Any, votes: Any) -> Any:
        """Return what ``aggregate(aggregator, votes, generator=..)`` releases."""


def require_generator(generator: object) -> None:
    """Raise ``ValueError`` unless ``generator`` is one, such as a seed in its place."""
    require(
        isinstance(generator, np.random.Generator),
        "a generator such as pate.private_generator()",
        generator=generator,
    )


def require_noise(kind: object = Noise, **noises: str) -> None:
    """Raise ``ValueError`` unless each of ``noises`` is one of the names of ``kind``."""
    for name, noise in noises.items():
        require(noise in get_args(kind), f"a noise among {get_args(kind)}", **{name: noise})


_LOG_SURVIVAL: Mapping[str, Callable[[FloatArray], Any]] = {
    "gaussian": lambda z: log_ndtr(-z),
    # far below the mode, where exp(-z) overflows, the chance is 1
    "gumbel": lambda z: np.log(-np.expm1(-np.exp(-np.maximum(z, -700.0)))),
    "exponential": lambda z: 0.0 - np.maximum(z, 0.0),
    "laplace": lambda z: np.where(z > 0, -np.abs(z) - np.log(2), np.log1p(-np.exp(-np.abs(z)) / 2)),
    "logistic": lambda z: log_expit(-z),
    "half_logistic": lambda z: np.minimum(np.log(2) + log_expit(-z), 0.0),
}
_QUANTILES: Mapping[Noise, Callable[[FloatArray], Any]] = {
    "gumbel": lambda tail: -np.log(-np.log1p(-tail)),
    "exponential": lambda tail: -np.log(tail),
    "laplace": lambda tail: np.where(
        tail < 0.5, -np.log(2 * tail), np.log(2 * np.maximum(1 - tail, 1e-300))
    ),
    "logistic": lambda tail: np.log1p(-np.minimum(tail, 1 - 1e-16)) - np.log(tail),
    "half_logistic": lambda tail: np.log(2 - tail) - np.log(tail),
}


def log_survival(values: FloatArray, noise: Noise | Literal["gaussian"]) -> FloatArray:
    """Return the logarithm of the probability that noise of scale 1 exceeds ``values``."""
    with np.errstate(divide="ignore"):
        return np.asarray(_LOG_SURVIVAL[noise](values), dtype=np.float64)


def quantile(tail: FloatArray, noise: Noise) -> FloatArray:
    """Return the values that noise of scale 1 exceeds with probability ``tail``."""
    return np.asarray(_QUANTILES[noise](tail))


Interval: TypeAlias = tuple[Decimal, Decimal]


def decimal_precision(length: int) -> AbstractContextManager[Context]:
    """Return a context with 24 decimal digits more than ``length`` binary digits need."""
    return localcontext(Emax=MAX_EMAX, Emin=MIN_EMIN, prec=length // 3 + 24)


def enclose(number: Fraction) -> Interval:
    """Return bounds on a rational number."""
    quotient = Decimal(number.numerator) / Decimal(number.denominator)
    return quotient.next_minus(), quotient.next_plus()


def negative(interval: Interval) -> Interval:
    """Return bounds on minus a number."""
    return -interval[1], -interval[0]


def total(first: Interval, second: Interval) -> Interval:
    """Return bounds on a sum."""
    return (first[0] + second[0]).next_minus(), (first[1] + second[1]).next_plus()


def product(first: Interval, second: Interval) -> Interval:
    """Return bounds on a product of numbers >= 0; lower bounds may be negative."""
    low = max(first[0], Decimal(0)) * max(second[0], Decimal(0))
    return low.next_minus(), (first[1] * second[1]).next_plus()


def exp_of(exponent: Interval) -> Interval:
    """Return bounds on the exponential function, which is rounded correctly."""
    return exponent[0].exp().next_minus(), exponent[1].exp().next_plus()


def log_of(number: Interval) -> Interval:
    """Return bounds on the logarithm, which is rounded correctly."""
    return number[0].ln().next_minus(), number[1].ln().next_plus()


DIGITS = 53  # of a uniform number that is a float
_HEIGHT = 401  # of the curve at 0, in cells: the largest for which there are at most 2^14 of them
# of width 2^-5: the curve is below 2^-4 cells where they end, at 4.25, and more than halves in a
# quarter
_STRIPS = 136
_CELL_BITS, _OFFSET_BITS = 14, 49  # of a word of 64, after the sign
_DIGITS = _OFFSET_BITS + 5  # binary digits after the point of a word
# cells: the curve errs by less than 2^-38 (rounding 2^-47 of 401), the other side by 2^-44
_MARGIN = 2.0**-36
# of the series of exp(-fall) eleven terms are enough below 0.134
_SERIES = [(-1) ** term / math.factorial(term) for term in range(11, -1, -1)]
_BLOCK = 1 << 15  # draws worked on at once, so that the intermediate arrays stay in cache
_GRID_BITS = 20
_LOW_BITS = 53  # of integers, which float64 has


def with_noise(rows: Rows, noise: FloatArray) -> FloatArray:
    """Return scores plus noise, float64 of their shape, each sum rounded once.

    So the release is a function of the exact sum, where an integer above 2^53 that is rounded
    first would move by more than it does.
    """
    if (
        rows.dtype.kind == "f"
        or not rows.size
        or max(rows.max().item(), -rows.min().item()) <= 2**53
    ):
        return np.add(rows, noise, dtype=np.float64)
    exact = rows.ravel().astype(object) + [Fraction(part) for part in noise.ravel().tolist()]
    return exact.astype(np.float64).reshape(rows.shape)


def add_gaussian(values: ArrayLike, *, sigma: float, generator: np.random.Generator) -> FloatArray:
    """Return ``values`` with noise of ``sigma``, rounded to a grid of at least ``sigma / 2^20``.

    The law is exact: real values with normal noise are rounded to the nearest multiple of a power
    of two that follows from ``sigma``, and then to float64. So the release is a function of the
    release of a Gaussian mechanism.

    >>> add_gaussian([90.0, 80.0], sigma=2.0, generator=seeded_generator(0)).round(1)
    array([89.9, 78.5])

    Args:
        values: integers of any size, or floating-point numbers, of any shape.
        sigma: standard deviation of the noise.
        generator: source of the noise.

    Returns:
        float64 of the shape of ``values``.
    """
    exact = np.asarray(values)
    if isinstance(generator, WatchedGenerator):
        return generator.sum(exact.astype(np.float64), sigma)
    flat = exact.ravel()
    noisy, room = np.empty(flat.size), _room(flat.size)
    for part in _parts(flat.size):
        on_grid, beyond, grid = split(flat[part], sigma)
        _round(beyond, sigma / grid, generator, noisy[part], room)
        noisy[part] *= grid
        noisy[part] = with_noise(on_grid, noisy[part])
    return noisy.reshape(exact.shape)


def grid_of(scale: float) -> float:
    """Return the grid of released sums: a power of two of at least ``scale / 2^20``."""
    return 2.0 ** math.ceil(math.log2(scale) - _GRID_BITS)


def split(values: ArrayLike, scale: float) -> tuple[Rows, FloatArray, float]:
    """Split ``values`` into multiples of the grid for noise of ``scale`` and a rest, in steps.

    Return both, and the grid.

    The grid is a power of two of at least ``scale / 2^20``. Nothing is rounded.
    """
    exact = np.asarray(values)
    grid = grid_of(scale)
    if exact.dtype.kind == "f":
        with np.errstate(over="ignore", invalid="ignore"):
            steps = exact / grid
            beyond = np.trunc(steps)
            np.subtract(steps, beyond, out=beyond)
        # where the number of steps overflows, the value itself lies on the grid
        beyond[~np.isfinite(steps)] = 0.0
        np.multiply(beyond, grid, out=steps)
        return np.subtract(exact, steps, out=steps), beyond, grid
    if grid <= 1:
        return exact, np.broadcast_to(0.0, exact.shape), grid
    grid = min(grid, 2.0**_LOW_BITS)
    low = exact & np.asarray(
        max(int(grid), 1) - 1, dtype=exact.dtype if exact.dtype.itemsize == 8 else np.int64
    )
    return exact - low, low / grid, grid


def rounded_normal(offsets: FloatArray, sigma: float, generator: np.random.Generator) -> FloatArray:
    """Return ``offsets`` in (-1, 1), of any shape, plus noise of ``sigma``, as nearest integers.

    Raises:
        ValueError: if ``sigma >= 2^49``, where integers would not be exact.
    """
    flat = np.asarray(offsets, dtype=np.float64).ravel()
    rounded, room = np.empty(flat.size), _room(flat.size)
    for part in _parts(flat.size):
        _round(flat[part], sigma, generator, rounded[part], room)
    return rounded.reshape(np.shape(offsets))


def _parts(num: int) -> Iterator[slice]:
    """Yield slices of `_BLOCK` numbers."""
    for start in range(0, num, _BLOCK):
        yield slice(start, min(start + _BLOCK, num))


def _room(num: int) -> IntArray:
    """Return the memory of all blocks: new memory costs more than what is done in it."""
    return np.empty((3, min(num, _BLOCK)), dtype=np.int64)


def _round(
    offsets: FloatArray,
    sigma: float,
    generator: np.random.Generator,
    rounded: FloatArray,
    room: IntArray,
) -> None:
    """Write `rounded_normal` of ``offsets`` ``[n]`` to ``rounded``, in ``room`` ``[3, >= n]``."""
    require(sigma < 2.0**49, "noise of less than 2^49 steps of its grid", sigma=sigma)
    words, lazy = _normal_words(offsets.size, generator, room)
    moved = room[2, : offsets.size].view(np.float64)
    np.multiply(words, sigma * 2.0**-_DIGITS, out=moved)
    moved += offsets
    np.rint(moved, out=rounded)
    moved -= rounded
    np.abs(moved, out=moved)
    # the noise as a float, its product and the sum err by 2^-53 each, the digits not drawn are
    # 2^-54: 14 sigma 2^-53
    doubtful = 0.5 - (sigma + 1) * 2.0**-48
    places = {*lazy}
    if moved.max(initial=0) > doubtful:
        places.update(np.flatnonzero(moved > doubtful).tolist())
    for place in sorted(places):
        noise = lazy.get(place) or LazyReal(int(words[place]), _DIGITS)
        rounded[place] = noise.rounded(Fraction(offsets[place]), Fraction(sigma), generator)


def exceeds(
    values: ArrayLike, thresholds: ArrayLike, *, sigma: float, generator: np.random.Generator
) -> BoolArray:
    """Return whether ``values`` with noise of ``sigma`` exceed ``thresholds``, as real numbers.

    >>> exceeds([90.0, 10.0], 50.0, sigma=2.0, generator=seeded_generator(0))
    array([ True, False])

    Args:
        values: finite numbers of any shape.
        thresholds: finite numbers of a shape that broadcasts against it.
        sigma: standard deviation of the noise.
        generator: source of the noise.

    Returns:
        bool of the shape that both broadcast to.
    """
    shape = np.broadcast_shapes(np.shape(values), np.shape(thresholds))
    given, least = (
        np.broadcast_to(np.asarray(numbers), shape).reshape(-1) for numbers in (values, thresholds)
    )
    if isinstance(generator, WatchedGenerator):
        leads = given.astype(np.float64) - least.astype(np.float64)
        return generator.test(leads.reshape(shape), sigma)
    above, room = np.empty(given.size, dtype=np.bool_), _room(given.size)
    for part in _parts(given.size):
        value, threshold = given[part].astype(np.float64), least[part].astype(np.float64)
        words, lazy = _normal_words(value.size, generator, room)
        lead = room[2, : words.size].view(np.float64)
        np.multiply(words, sigma * 2.0**-_DIGITS, out=lead)
        lead += value - threshold
        np.greater(lead, 0, out=above[part])
        np.abs(lead, out=lead)
        doubtful = ~(lead > (8 * sigma + np.abs(value) + np.abs(threshold)) * 2.0**-50)
        for place in sorted({*np.flatnonzero(doubtful).tolist(), *lazy}):
            noise = lazy.get(place) or LazyReal(int(words[place]), _DIGITS)
            above[part.start + place] = noise.exceeds(
                Fraction(threshold[place]) - Fraction(value[place]), Fraction(sigma), generator
            )
    return above.reshape(shape)


@dataclass
class LazyReal:
    """A number in ``[digits, digits + 1) / 2^length``, with further digits drawn as needed."""

    digits: int
    length: int

    @classmethod
    def of(cls, uniform: float) -> Self:
        """Return a number that begins with the digits of a float in [0, 1) from a generator."""
        return cls(int(uniform * 2.0**DIGITS), DIGITS)

    @property
    def bounds(self) -> Interval:
        """Decimal bounds on it."""
        low, high = self.ends
        return enclose(low)[0], enclose(high)[1]

    @property
    def ends(self) -> tuple[Fraction, Fraction]:
        """The interval that holds it."""
        return Fraction(self.digits, 1 << self.length), Fraction(self.digits + 1, 1 << self.length)

    def draw_more_bits(self, generator: np.random.Generator) -> None:
        """Draw 64 more digits."""
        self.digits, self.length = self.digits << 64 | _word(generator), self.length + 64

    def rounded(self, offset: Fraction, sigma: Fraction, generator: np.random.Generator) -> int:
        """Return the integer nearest to ``offset`` and ``sigma`` times the number."""
        while True:
            low, high = (math.floor(offset + sigma * end + Fraction(1, 2)) for end in self.ends)
            if low == high:
                return low
            self.draw_more_bits(generator)

    def exceeds(self, threshold: Fraction, sigma: Fraction, generator: np.random.Generator) -> bool:
        """Return whether ``sigma`` times the number exceeds ``threshold``."""
        while True:
            low, high = (sigma * end > threshold for end in self.ends)
            if low == high:
                return low
            self.draw_more_bits(generator)

    def is_below_curve(self, height: LazyReal, generator: np.random.Generator) -> bool:
        """Return whether ``height`` is below the curve at the number."""
        while True:
            low, high = sorted(abs(end) for end in self.ends)
            if height.ends[1] <= _curve(high, self.length)[0]:
                return True
            if height.ends[0] >= _curve(low, self.length)[1]:
                return False
            self.draw_more_bits(generator)
            height.draw_more_bits(generator)


def _word(generator: np.random.Generator) -> int:
    return int(generator.integers(2**64, dtype=np.uint64))


def _curve(x: Fraction, length: int) -> tuple[Fraction, Fraction]:
    """Return bounds on the curve at ``x``, closer to one another than ``2^-length`` of it."""
    with decimal_precision(length):
        low, high = exp_of(negative(enclose(x**2 / 2)))
    return _HEIGHT * Fraction(low), _HEIGHT * Fraction(high)


def _decay(fall: Any) -> Any:
    """Return ``exp(-fall)`` of floats or arrays in [0, 0.134), by multiplications and additions."""
    series = _SERIES[0]
    for term in _SERIES[1:]:
        series = series * fall + term
    return series


def _curve_in_floats(x: float) -> float:
    """Return the curve, with an error of less than 2^-39 of it up to 11, and nan beyond."""
    if abs(x) > 11:
        return math.nan
    power = _decay(x * x * 2.0**-10)
    for _ in range(9):
        power *= power
    return float(_HEIGHT * power)


class _Cells(NamedTuple):
    """The cells: below the curve, then across it, then the tail's, and void ones."""

    num_inside: int
    num_piled: int
    """How many there are without the tail's, which is the next."""
    strips: IntArray
    """``[2^15]``, where the strip begins: as the first digits of a number, for both signs.

    The complement of digits mirrors the interval in which a number lies.
    """
    levels: IntArray
    """``[num_piled]``, how many cells lie below it."""
    curve: FloatArray
    """``[136]``, the curve where the strips begin."""


@cache
def _cells() -> _Cells:
    curve = [_curve(Fraction(strip, 32), 64) for strip in range(_STRIPS + 1)]
    inside = np.array([math.floor(low) for low, _ in curve[1:]])
    piled = np.array([math.ceil(high) for _, high in curve[:-1]])
    strips, levels = [], []
    for first, last in ((0 * inside, inside), (inside, piled)):
        strips.append(np.repeat(np.arange(_STRIPS), last - first))
        levels.append(np.concatenate([np.arange(*ends) for ends in zip(first, last, strict=True)]))
    num_piled = int(piled.sum())
    void = np.zeros(2**_CELL_BITS - num_piled, dtype=np.int64)
    places = np.concatenate([*strips, void]) << _OFFSET_BITS
    return _Cells(
        num_inside=int(inside.sum()),
        num_piled=num_piled,
        strips=np.concatenate([places, ~places]),
        levels=np.concatenate(levels),
        curve=np.array([float(low) for low, _ in curve[:-1]]),
    )


def _normal_words(
    num: int, generator: np.random.Generator, room: IntArray | None = None
) -> tuple[IntArray, dict[int, LazyReal]]:
    """Draw normal numbers: the first digits, ``2^54`` to a unit, and longer ones as `LazyReal`."""
    table = _cells()
    random = generator.integers(-(2**63), 2**63, size=num, dtype=np.int64)
    cells, words = (_room(num) if room is None else room)[:2, :num]
    # the sign and the cell
    np.right_shift(random.view(np.uint64), np.uint64(_OFFSET_BITS), out=cells.view(np.uint64))
    np.take(table.strips, cells, out=words, mode="clip")
    random &= (1 << _OFFSET_BITS) - 1
    words ^= random
    cells &= (1 << _CELL_BITS) - 1
    lazy: dict[int, LazyReal] = {}
    others = np.flatnonzero(cells >= table.num_inside)
    if not others.size:
        return words, lazy
    accepted = np.zeros(others.size, dtype=np.bool_)
    crossed = np.flatnonzero(cells[others] < table.num_piled)
    places = others[crossed]
    accepted[crossed], decided = _are_below_curve(
        words[places], table.levels[cells[places]], generator
    )
    lazy.update({int(places[at]): noise for at, noise in decided.items()})
    for at in np.flatnonzero(cells[others] == table.num_piled):
        noise, accepted[at] = _tail(int(words[others[at]]) >> 63, generator)
        lazy[int(others[at])] = noise
    rejected = others[~accepted]
    if rejected.size:
        words[rejected], again = _normal_words(rejected.size, generator)
        for place in lazy.keys() & {*rejected.tolist()}:
            del lazy[place]
        lazy |= {int(rejected[at]): noise for at, noise in again.items()}
    return words, lazy


def _are_below_curve(
    words: IntArray, levels: IntArray, generator: np.random.Generator
) -> tuple[BoolArray, dict[int, LazyReal]]:
    """Return whether points at the abscissas of ``words``, in cells, lie below the curve."""
    heights = generator.integers(2**64, size=words.size, dtype=np.uint64)
    magnitudes = words ^ words >> 63
    strips = magnitudes >> _OFFSET_BITS
    beyond = (magnitudes & (1 << _OFFSET_BITS) - 1) * 2.0**-_DIGITS
    # within a strip the curve falls by exp(-fall), where fall is below 0.134
    fall = beyond * (strips / 32 + beyond / 2)
    lead = _cells().curve[strips] * _decay(fall) - (levels + heights * 2.0**-64)
    below, lazy = lead > 0, {}
    for at in np.flatnonzero(np.abs(lead) < _MARGIN).tolist():
        lazy[at] = LazyReal(int(words[at]), _DIGITS)
        below[at] = lazy[at].is_below_curve(
            LazyReal(int(levels[at]) << 64 | int(heights[at]), 64), generator
        )
    return below, lazy


def _tail(sign: int, generator: np.random.Generator) -> tuple[LazyReal, bool]:
    """Draw a point from the tail's rectangles, the i-th ``2^-(4 + i)`` cells high.

    Each is a quarter wide.
    """
    rectangle = 0
    while not (word := _word(generator)):
        rectangle += 64
    rectangle += 64 - word.bit_length()
    noise = LazyReal((17 + rectangle << 64 | _word(generator)) ^ sign, 66)
    height = LazyReal(_word(generator), 68 + rectangle)
    near = _curve_in_floats(noise.digits * 2.0**-66)
    lead = near - height.digits * 2.0**-height.length
    if abs(lead) > _MARGIN * near + 2.0 ** (1 - height.length):
        return noise, lead > 0
    return noise, noise.is_below_curve(height, generator)


UInt64Array = NDArray[np.uint64]

# a share has 2^30 steps of its grid in a standard deviation, or up to twice as many
_FINE_BITS = 30
_ROOM = 2.0**62  # of steps, which the noise of 2^20 silos does not fill


def share_sigma(sigma: float, num_honest: int) -> float:
    """Return the standard deviation of a share if ``num_honest`` shares make noise of ``sigma``."""
    require_positive(sigma=sigma)
    require_count(1, num_honest=num_honest)
    return sigma / math.sqrt(num_honest)


def share_grid(sigma: float) -> float:
    """Return the grid of shares: a power of two between ``sigma / 2^31`` and ``sigma / 2^30``."""
    return 2.0 ** (math.floor(math.log2(sigma)) - _FINE_BITS)


def failure(num_shares: int) -> float:
    """Return a bound on the probability that a sum of shares is none of the rounded normal law."""
    # (n - 1) / (24 * 2^60), plus a bound that is too small to matter
    return num_shares * 2.0 ** -(2 * _FINE_BITS + 4)


def require_room(num_teachers: int, *, sigma: float) -> None:
    """Raise ``ValueError`` unless counts of so many teachers are multiples of the grid in range."""
    grid = share_grid(sigma)
    limits = (
        f"shares of noise between {num_teachers * 2**-30:.2g} and 2^30 votes"
        f" for {num_teachers} teachers"
    )
    require(grid <= 1 and num_teachers / grid < _ROOM, limits, share_sigma=sigma)


def summand(counts: ArrayLike, sigma: float, generator: np.random.Generator) -> UInt64Array:
    """Return integer ``counts`` with a share of noise, in steps of `share_grid`, modulo 2^64.

    Args:
        counts: integers of at least 0.
        sigma: standard deviation of the share, in votes.
        generator: source of the noise.
    """
    whole, grid = np.asarray(counts), share_grid(sigma)
    require(whole.dtype.kind in "iu", "integer counts", dtype=str(whole.dtype))
    require_room(int(whole.max(initial=0)), sigma=sigma)
    noise = rounded_normal(np.zeros(whole.shape), sigma / grid, generator).astype(np.int64)
    return whole.astype(np.uint64) * np.uint64(1 / grid) + noise.view(np.uint64)


def decode(total: UInt64Array, sigma: float, num_shares: int) -> FloatArray:
    """Return noisy counts from a sum of ``num_shares`` shares, rounded as `add_gaussian` rounds."""
    coarse = grid_of(sigma * math.sqrt(num_shares))
    return np.asarray(np.rint(total.view(np.int64) * (share_grid(sigma) / coarse)) * coarse)
