"""Noise follows its law, and no two streams meet."""

import math
from typing import Any, get_args

import numpy as np
import pytest
from scipy.stats import kstest

from pate._core.mechanisms.noise import KEY_BITS, Noise, draw_key, log_survival, quantile
from pate.mechanisms import GumbelPeeling, private_generator, seeded_generator
from tests.core.mechanisms import oracles


@pytest.mark.parametrize("noise", ["gumbel", "exponential", "laplace", "logistic", "half_logistic"])
def test_quantiles_of_uniform_numbers_follow_the_law(noise: Noise) -> None:
    draws = quantile(seeded_generator(1).random(20_000), noise)
    assert draws.dtype == np.float64
    assert kstest(draws, oracles.NOISES[noise][1]).pvalue > 1e-3
    assert kstest(0.8 * draws, oracles.NOISES[noise][1]).pvalue < 1e-9


@pytest.mark.parametrize("noise", get_args(Noise))
def test_chances_of_exceeding_are_those_of_the_law(noise: Noise) -> None:
    """Below all that the noise can be, too."""
    values = np.array([-3.0, -0.5, 0.0, 0.5, 3.0])
    draws = quantile(seeded_generator(2).random((20_000, 1)), noise)
    chances = np.exp(log_survival(values, noise))
    assert (chances <= 1).all() and np.abs(
        (draws > values).mean(axis=0) - chances
    ).max() < 4.5 * 0.5 / 20_000**0.5


@pytest.mark.parametrize("noise", [*get_args(Noise), "gaussian"])
def test_chances_are_right_to_the_last_digits(noise: Noise) -> None:
    """Far out too, where they round to 0 or to 1."""
    values = np.concatenate((np.linspace(-3.0, 30.0, 67), [-1e-9, 1e-9]))
    np.testing.assert_allclose(
        np.exp(log_survival(values, noise)), oracles.NOISES[noise][2](values), rtol=1e-11
    )
    below, far_below = log_survival(np.array([-20.0, -1e4]), noise)
    assert -1e-8 < below <= 0 == far_below
    assert log_survival(np.array([200.0]), noise)[0] < -199
    if noise in get_args(Noise):
        tails = np.array([1e-300, 1e-9, 0.2, 0.5, 0.8, 1 - 2.0**-20, 1 - 2.0**-53])
        np.testing.assert_allclose(
            -np.expm1(log_survival(quantile(tails, noise), noise)), 1 - tails, rtol=1e-7
        )
    if noise in ("laplace", "logistic"):
        surely, nearly = quantile(np.array([1.0, 1 - 2.0**-53]), noise)
        assert -1e3 < surely <= nearly == pytest.approx(-53 * math.log(2), abs=0.7)


def test_seeded_streams_repeat_and_differ_between_releases() -> None:
    first = seeded_generator(3).random(4)
    np.testing.assert_array_equal(first, seeded_generator(3).random(4))
    for other in (
        seeded_generator(3, release=1),
        seeded_generator(4),
        private_generator(),
        private_generator(),
    ):
        assert not np.isin(other.random(4), first).any()
    np.testing.assert_array_equal(first, seeded_generator(3, release=0).random(4))


@pytest.mark.parametrize("seed", [-1, 1.5, None])
def test_seed_that_is_refused(seed: int) -> None:
    with pytest.raises(ValueError, match=f"^Expected an integer seed >= 0, got seed={seed}$"):
        seeded_generator(seed)


def test_a_seed_of_the_system_gives_its_noise_again() -> None:
    seeds = [draw_key() for _ in range(4)]
    assert len(set(seeds)) == 4
    first, again, other = (
        private_generator(seed).random(8) for seed in (seeds[0], seeds[0], seeds[1])
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).all()
    assert max(seeds) >> 230
    assert KEY_BITS == 8 * 32  # the bytes of a key in RFC 8439
    private_generator(2**KEY_BITS - 1)


@pytest.mark.parametrize(
    ("key", "block", "expected"),
    [
        (0, 0, "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"),
        (0, 1, "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"),
        (1 << 248, 1, "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"),
    ],
)
def test_private_noise_is_the_stream_of_chacha20(key: int, block: int, expected: str) -> None:
    """Appendix A.1 of RFC 8439, the first half of blocks of a nonce of zeros."""
    words = private_generator(key).integers(2**64, size=8 * block + 4, dtype=np.uint64)[8 * block :]
    assert words.astype("<u8").tobytes().hex() == expected


@pytest.mark.parametrize("seed", [0, None, np.random.RandomState(0)])
def test_a_seed_is_no_generator(seed: Any) -> None:
    told = r"^Expected a generator such as pate.private_generator\(\), got generator="
    with pytest.raises(ValueError, match=told):
        GumbelPeeling(k=1, scale=1.0)(np.array([[5, 3, 1]]), generator=seed)
