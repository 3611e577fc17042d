"""Noise follows its law, and no two streams meet."""

import math
from typing import Any, get_args

import numpy as np
import pytest
from randomgen import AESCounter
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


def test_a_seed_of_the_system_gives_its_noise_again() -> None:
    seeds = [draw_key() for _ in range(4)]
    assert len(set(seeds)) == 4
    first, again, other = (
        private_generator(seed).random(8) for seed in (seeds[0], seeds[0], seeds[1])
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).all()
    assert max(seeds) >> 110
    assert KEY_BITS == 8 * 16  # the bytes of a key of AES-128
    private_generator(2**KEY_BITS - 1)


@pytest.mark.parametrize(
    ("key", "block", "expected"),
    [
        ("00" * 16, "00" * 16, "66e94bd4ef8a2c3b884cfa59ca342b2e"),
        (
            "000102030405060708090a0b0c0d0e0f",
            "00112233445566778899aabbccddeeff",
            "69c4e0d86a7b0430d8cdb78070b4c55a",
        ),
    ],
)
def test_private_noise_is_aes_in_counter_mode(key: str, block: str, expected: str) -> None:
    """Appendix C.1 of FIPS 197, and the block of zeros; the one after it encrypts the next
    number."""
    generator = private_generator(int.from_bytes(bytes.fromhex(key), "little"))
    state: Any = generator.bit_generator.state
    counter = int.from_bytes(bytes.fromhex(block), "little")
    assert state["s"]["counter"][:2].tolist() == [0, 0]
    moved = AESCounter(key=state["s"]["seed"][:2], counter=counter)
    words = np.random.Generator(moved).integers(2**64, size=2, dtype=np.uint64)
    assert words.astype("<u8").tobytes().hex() == expected
    if not counter:
        first = generator.integers(2**64, size=4, dtype=np.uint64)
        np.testing.assert_array_equal(first[:2], words)
        after = np.random.Generator(AESCounter(key=0, counter=1))
        np.testing.assert_array_equal(first[2:], after.integers(2**64, size=2, dtype=np.uint64))


@pytest.mark.parametrize("seed", [0, None, np.random.RandomState(0)])
def test_a_seed_is_no_generator(seed: Any) -> None:
    told = r"^Expected a generator such as pate.private_generator\(\), got generator="
    with pytest.raises(ValueError, match=told):
        GumbelPeeling(k=1, scale=1.0)(np.array([[5, 3, 1]]), generator=seed)
