"""Gaussian noise has the exact law: no decision depends on rounding, and attacks on rounded noise
find nothing."""

import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import chisquare, kstest, norm

import pate
from pate._core.mechanisms import noise as _noise
from pate._core.mechanisms.noise import LazyReal, rounded_normal
from pate._core.validation import FloatArray
from pate.mechanisms import add_gaussian, exceeds
from tests.core.mechanisms.scripted import Scripted

ROOT = Path(pate.__file__).parent

OFFSET, SIGMA = 0.3, 2.5


def misfit(drawn: FloatArray, *, offset: float = OFFSET, sigma: float = SIGMA) -> float:
    """Return the p-value of integers under the law of normal numbers that are rounded to them."""
    ends = np.arange(-math.ceil(4 * sigma), math.ceil(4 * sigma) + 2) - 0.5
    below = np.concatenate(([0.0], ndtr((ends - offset) / sigma), [1.0]))
    counts = np.histogram(drawn, np.concatenate(([-np.inf], ends, [np.inf])))[0]
    return float(chisquare(counts, drawn.size * np.diff(below)).pvalue)


def test_rounded_noise_follows_its_law() -> None:
    drawn = rounded_normal(np.full((800, 500), OFFSET), SIGMA, np.random.default_rng(0))
    assert misfit(drawn.ravel()) > 1e-3
    assert misfit(drawn.ravel(), sigma=1.01 * SIGMA) < 1e-4
    assert misfit(drawn.ravel(), offset=OFFSET + 0.05) < 1e-4


def test_what_floats_decide_is_what_integers_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left to floats in the second half, and all comes out the same."""
    values = np.linspace(-3, 3, 20_000)

    def drawn() -> tuple[FloatArray, FloatArray]:
        generator = np.random.default_rng(5)
        return add_gaussian(values, sigma=0.7, generator=generator), rounded_normal(
            values / 4, 1.3, generator
        )

    expected = drawn()
    monkeypatch.setattr(_noise, "_MARGIN", math.inf)
    np.testing.assert_array_equal(drawn(), expected)
    # the grid is too fine for any decision by floats
    coarse = rounded_normal(np.zeros(300), 2.0**30, np.random.default_rng(6))
    fine = rounded_normal(np.zeros(300), 2.0**48, np.random.default_rng(6))
    np.testing.assert_allclose(fine / 2.0**18, coarse, atol=0.51)


@pytest.mark.parametrize("sigma", [1e-3, 2.0])
def test_comparisons_are_those_of_exact_numbers(sigma: float) -> None:
    generator = np.random.default_rng(7)
    values, thresholds = generator.integers(-4, 5, (2, 100_000)) / 2
    passed = exceeds(values, thresholds, sigma=sigma, generator=generator)
    chance = ndtr((values - thresholds) / sigma)
    for lead in np.unique(values - thresholds):
        drawn = passed[values - thresholds == lead]
        deviation = math.sqrt(
            max(chance[values - thresholds == lead][0] * ndtr(-lead / sigma), 1e-300) / drawn.size
        )
        assert abs(drawn.mean() - ndtr(lead / sigma)) <= 4.5 * deviation


def test_ties_of_floats_are_decided_by_further_digits() -> None:
    """The threshold lies next to the noise itself: floats cannot tell them apart, further digits
    can."""
    words, lazy = _noise._normal_words(2000, np.random.default_rng(8))
    noise = words * 2.0**-54
    passed = exceeds(np.zeros(2000), noise, sigma=1.0, generator=np.random.default_rng(8))
    # a float of more than 53 digits is rounded, and may lie above the number
    assert not lazy and passed.tolist() == [int(float(word)) <= word for word in words.tolist()]
    assert 100 < passed.sum() < 1900


def test_the_cells_cover_the_curve() -> None:
    cells = _noise._cells()
    assert cells.num_piled < 2**14 and len(cells.curve) == 136
    positive, negative = np.split(cells.strips, [2**14])
    np.testing.assert_array_equal(negative, ~positive)
    mpmath.mp.dps = 40
    curve = [401 * mpmath.exp(-((mpmath.mpf(strip) / 32) ** 2) / 2) for strip in range(137)]
    strips = cells.strips[: cells.num_piled] >> 49
    levels = cells.levels
    for strip in range(136):
        inside = np.sort(levels[: cells.num_inside][strips[: cells.num_inside] == strip])
        piled = np.sort(levels[strips == strip])
        np.testing.assert_array_equal(inside, np.arange(len(inside)))
        np.testing.assert_array_equal(piled, np.arange(len(piled)))
        assert len(inside) <= curve[strip + 1] and curve[strip] <= len(piled)
        assert abs(cells.curve[strip] - curve[strip]) < 2**-40
    # the tail's rectangles are 2^-(4 + i) cells high at 4.25 + i / 4, and the curve falls by more
    # than a half from one to the next; their areas, a quarter wide where cells are 1 / 32, add up
    # to one cell
    assert curve[136] < 2.0**-4 and mpmath.exp(-mpmath.mpf(17) / 4 / 4) < 0.5
    assert sum(Fraction(8, 2 ** (4 + i)) for i in range(60)) == 1 - Fraction(1, 2**60)


def test_bounds_on_the_curve_hold() -> None:
    mpmath.mp.dps = 200
    for numerator, length in (
        (1, 4),
        (3 << 60 | 12345, 62),
        (7 << 120 | 99, 122),
        (40 << 300 | 5, 302),
    ):
        low, high = _noise._curve(Fraction(numerator, 1 << length), length)
        exact = 401 * mpmath.exp(-((mpmath.mpf(numerator) / 2**length) ** 2) / 2)
        bounds = [mpmath.mpf(bound.numerator) / bound.denominator for bound in (low, high)]
        assert (
            bounds[0] < exact < bounds[1]
            and bounds[1] - bounds[0] < exact * mpmath.mpf(2) ** -length
        )


def test_the_tail_follows_its_law() -> None:
    generator = np.random.default_rng(9)
    proposed = [_noise._tail(sign, generator) for sign in (0, -1) for _ in range(1000)]
    drawn = np.array([float(noise.ends[0]) for noise, accepted in proposed if accepted])
    assert 0.3 < (drawn < 0).mean() < 0.7 and abs(drawn).min() > 4.25
    share = 401 * 32 * math.sqrt(2 * math.pi) * norm.sf(4.25)  # the tail's area, in cells
    assert len(drawn) / 2000 == pytest.approx(share, abs=4 * math.sqrt(share / 2000))
    assert kstest(norm.sf(abs(drawn)) / norm.sf(4.25), "uniform").pvalue > 1e-3


def test_a_lazy_number_is_extended_until_it_decides() -> None:
    generator, close = np.random.default_rng(10), LazyReal(2**53, 54)
    for number, integer in ((close, {0, 1}), (LazyReal(-(2**53) - 1, 54), {0, -1})):
        assert number.rounded(Fraction(0), Fraction(1), generator) in integer
    assert close.length == 54 or close.digits.bit_length() > 54
    below = [LazyReal(3, 0).is_below_curve(LazyReal(0, 0), generator) for _ in range(1000)]
    share = quad(lambda x: min(1.0, 401 * math.exp(-(x**2) / 2)), 3, 4)[0]
    assert np.mean(below) == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / 1000))


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint64, np.float64])
@pytest.mark.parametrize("sigma", [0.3, 1e4, 2.0**31])
def test_noise_knows_nothing_of_the_value_below_the_grid(kind: type, sigma: float) -> None:
    """The same draws on a value that is moved by whole steps of the grid are moved by as many."""
    grid = max(2.0 ** math.ceil(math.log2(sigma) - 20), 1.0)
    values: NDArray[Any] = np.array([0, 3, 1000, 12_345], dtype=kind)
    moved = values + np.asarray(4 * grid, dtype=kind)
    first, second = (
        add_gaussian(v, sigma=sigma, generator=np.random.default_rng(11)) for v in (values, moved)
    )
    np.testing.assert_array_equal(first + 4 * grid, second)
    assert np.all(first * 2.0 ** (20 - math.ceil(math.log2(sigma))) % 1 == 0)


def test_nothing_private_draws_another_normal() -> None:
    rooms = [
        path
        for room in (
            "_core/mechanisms",
            "_core",
            "_labeling/aggregators",
            "_labeling/release",
        )
        for path in (ROOT / room).glob("*.py")
    ]
    drawing = [
        path.name
        for path in rooms
        if re.search(r"generator\.(standard_)?normal\(", path.read_text())
    ]
    assert len(rooms) > 20 and drawing == []


def curve_at(word: int) -> Fraction:
    """The curve at an abscissa of ``2^54`` to a unit, in cells, by 40 digits."""
    with mpmath.workdps(40):
        return Fraction(mpmath.nstr(401 * mpmath.exp(-((mpmath.mpf(word) / 2**54) ** 2) / 2), 40))


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is left to further digits, in order."""
    names: list[str] = []

    def watch(name: str) -> None:
        decide = getattr(LazyReal, name)

        def watched(*arguments: Any) -> Any:
            names.append(name)
            return decide(*arguments)

        monkeypatch.setattr(LazyReal, name, watched)

    for name in ("rounded", "exceeds", "is_below_curve"):
        watch(name)
    return names


def test_a_word_names_its_cell_its_place_and_its_sign() -> None:
    """Every cell once: of those that the curve may cross the points below it are taken, others are
    drawn anew."""
    cells, generator = _noise._cells(), np.random.default_rng(13)
    numbers = np.arange(2**14)
    places, signs = generator.integers(2**49, size=2**14) | 1, generator.integers(2, size=2**14)
    heights = generator.integers(2**64, size=cells.num_piled - cells.num_inside, dtype=np.uint64)
    strips = cells.strips[numbers] >> 49
    expected = (strips << 49 | places) ^ -signs
    crossed = np.arange(cells.num_inside, cells.num_piled)
    lead = (
        401 * np.exp(-((((strips << 49 | places) * 2.0**-54)[crossed]) ** 2) / 2)
        - cells.levels[crossed]
    )
    rejected = [*crossed[lead < heights * 2.0**-64], *range(cells.num_piled + 1, 2**14)]
    first = signs * -(2**63) + (numbers << 49) + places
    again = np.arange(len(rejected)) + 12_345
    # a point of the tail: the first rectangle, its first place, at the bottom
    words, lazy = _noise._normal_words(2**14, Scripted(first, heights, 2**63, 0, 0, again, []))
    expected[rejected] = again
    tail = lazy.pop(cells.num_piled)
    assert not lazy and tail.ends[-signs[cells.num_piled]] == Fraction(17, 4) * (
        1 - 2 * int(signs[cells.num_piled])
    )
    kept = numbers != cells.num_piled
    np.testing.assert_array_equal(words[kept], expected[kept])


def test_a_point_near_the_curve_is_decided_by_digits_and_no_other(decided: list[str]) -> None:
    """All that floats err is far less than the margin."""
    generator, margin = np.random.default_rng(14), Fraction(1, 2**36)
    words = generator.integers(136 << 49, size=400) ^ -generator.integers(2, size=400)
    shares = np.tile([-1.02, -0.98, -0.1, 0.1, 0.98, 1.02], 67)[:400]
    # how far the points lie below the curve
    heights = [
        curve_at(word) - Fraction(share) * margin
        for word, share in zip(words.tolist(), shares, strict=True)
    ]
    levels = np.array([math.floor(height) for height in heights])
    digits = [int((height % 1) * 2**64) for height in heights]
    below, lazy = _noise._are_below_curve(
        words, levels, Scripted(np.array(digits, dtype=np.uint64))
    )
    np.testing.assert_array_equal(below, shares > 0)
    assert sorted(lazy) == np.flatnonzero(abs(shares) < 1).tolist() and len(decided) == len(lazy)


def test_numbers_near_the_middle_of_steps_are_left_to_digits_and_no_others(
    decided: list[str],
) -> None:
    for sigma in (1.0, 64.0):
        words, _ = _noise._normal_words(2000, np.random.default_rng(15))
        noise = words * (sigma * 2.0**-54)
        noise = np.where(abs(noise) < 0.45, noise, 0.0)
        shares = np.tile([-1.05, -0.95, 0.95, 1.05], 500)
        offsets = np.where(
            noise == 0, 0.0, np.copysign(0.5, noise) + shares * (sigma + 1) * 2.0**-48 - noise
        )
        decided.clear()
        rounded_normal(offsets, sigma, np.random.default_rng(15))
        assert 0 < len(decided) == ((noise != 0) & (abs(shares) < 1)).sum()


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        (np.array([2**60 + 2**54 - 1, 2**53 + 1, 5, 2**64 - 1], dtype=np.uint64), 2.0**80),
        (np.array([2**62 - 1, -(2**62) - 3, -1]), 2.0**34),
        (np.array([7, -7], dtype=np.int32), 0.3),
        (np.array([0.1, -1e6 / 3, 1e308, -5e-324]), 0.3),
    ],
)
def test_values_are_split_without_rounding(values: NDArray[Any], scale: float) -> None:
    on_grid, beyond, grid = _noise.split(values, scale)
    assert (abs(beyond) < 1).all() and math.log2(grid).is_integer() and grid <= scale / 2**19
    for value, part, rest in zip(values.tolist(), on_grid.tolist(), beyond.tolist(), strict=True):
        assert Fraction(part) + Fraction(rest) * Fraction(grid) == Fraction(value)
        assert Fraction(part) % Fraction(grid) == 0


def test_the_tail_is_drawn_by_its_digits() -> None:
    """A rectangle for each zero before the first one, however many there are."""
    for zeros, words in (
        (0, [2**63]),
        (3, [2**60 + 5]),
        (64, [0, 2**63 + 1]),
        (130, [0, 0, 2**61]),
    ):
        for sign in (0, -1):
            noise, accepted = _noise._tail(sign, Scripted(*words, 7, *[0] * 60))
            assert accepted and noise.digits >> noise.length - 66 == (17 + zeros << 64 | 7) ^ sign
    # rectangles that are 2^-(4 + zeros) cells high, just below the curve and just above it
    for zeros in (0, 3, 9):
        at = (17 + zeros << 52) + 12_345
        share = curve_at(at) * 2 ** (4 + zeros)
        for factor in (0.999, 1.001):
            height = int(share * Fraction(factor) * 2**64)
            assert _noise._tail(0, Scripted(2 ** (63 - zeros), 12_345 << 12, height))[1] == (
                factor < 1
            )
