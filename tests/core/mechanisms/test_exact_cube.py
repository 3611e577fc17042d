"""Noise of the cube is rounded as if it had all its digits."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import kstest, laplace

from pate._core.mechanisms import peeling as cube
from pate._core.mechanisms.noise import LazyReal
from pate._core.mechanisms.peeling import add_cube


def test_what_floats_decide_is_what_digits_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).integers(-9, 9, (30, 4)) / 3

    def drawn() -> Any:
        return add_cube(values, scale=0.7, generator=np.random.default_rng(1))

    expected = drawn()
    # whatever floats err is too much
    monkeypatch.setattr(np, "abs", lambda numbers: numbers * np.nan)
    np.testing.assert_array_equal(drawn(), expected)


def test_a_number_in_doubt_is_decided_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Floats keep what they decided for the others of its row."""
    values = np.zeros((5, 3))

    def drawn() -> Any:
        return add_cube(values, scale=0.7, generator=np.random.default_rng(1))

    expected = drawn()
    monkeypatch.setattr(
        np, "abs", lambda numbers: np.where(np.arange(3) == 1, np.nan, np.absolute(numbers))
    )
    monkeypatch.setattr(cube, "_rounded", lambda *_: 2**40)
    np.testing.assert_array_equal(drawn()[:, [0, 2]], expected[:, [0, 2]])
    assert (drawn()[:, 1] == 2.0**20).all()


def test_numbers_half_way_between_steps_are_left_to_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no others: the scores are such that noise carries them to the middle, as far as floats
    can tell."""
    generator, grid, decided = np.random.default_rng(4), 2.0**-20, []
    tails, places = generator.random((50, 2)), generator.random((50, 1))
    moved = -np.log(tails).sum(axis=1, keepdims=True) * (2 * places - 1) / grid
    decide = cube._rounded

    def count(*arguments: Any) -> int:
        decided.append(decide(*arguments))
        return decided[-1]

    monkeypatch.setattr(cube, "_rounded", count)
    middle = np.floor(moved) + 0.5 - moved
    add_cube(middle * grid, scale=1.0, generator=np.random.default_rng(4))
    assert len(decided) == 50 and 5 < (np.array(decided) - np.floor(moved).ravel()).sum() < 45
    add_cube((middle + 0.25) * grid, scale=1.0, generator=np.random.default_rng(4))
    assert len(decided) == 50


def test_one_count_has_laplace_noise_on_a_grid() -> None:
    drawn = add_cube(np.zeros((50_000, 1)), scale=3.0, generator=np.random.default_rng(2)).ravel()
    assert np.all(drawn * 2.0**18 % 1 == 0)
    assert kstest(drawn, laplace(scale=3.0).cdf).pvalue > 1e-3
    assert kstest(drawn, laplace(scale=3.2).cdf).pvalue < 1e-3


def test_digits_that_are_open_decide_as_often_as_they_should() -> None:
    """Half of the places that begin with one digit lie beyond three quarters, where the product is
    above a half."""
    generator, draws = np.random.default_rng(3), 200
    # exp(-1): a radius of 1
    one = int(Fraction("0.36787944117144232159552377016146086744581113103176") * 2**150)

    def rounded(offset: Fraction, place: LazyReal) -> int:
        return cube._rounded(offset, Fraction(1), [LazyReal(one, 150)], place, generator)

    assert {rounded(Fraction(1, 2), LazyReal(0, 2)) for _ in range(20)} == {0}
    assert (
        abs(np.mean([rounded(Fraction(0), LazyReal(1, 1)) for _ in range(draws)]) - 1 / 2)
        < 4 * (1 / 4 / draws) ** 0.5
    )
