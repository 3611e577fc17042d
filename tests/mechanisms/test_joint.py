"""The joint mechanism beyond the few items of the contract."""

from importlib import import_module

import numpy as np
import pytest

from pate import mechanisms as m
from pate.accounting import NeighboringRelation
from pate.mechanisms.joint import JointNoise
from tests.contracts.mechanism_contract import chi_square_p_value
from tests.mechanisms import oracles

module = import_module("pate.mechanisms.joint")  # the package offers the function by this name
SCORES = np.round(30 / np.arange(1, 25), 2)


@pytest.mark.parametrize("rejected", [0.9, 0.999])
@pytest.mark.parametrize("noise", ["gumbel", "exponential"])
def test_single_rows_of_many_items_follow_the_law(
    noise: JointNoise, rejected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The more candidates may be rejected, the looser the envelope."""
    monkeypatch.setattr(module, "_REJECTED", rejected)
    listing = oracles.sequences(len(SCORES), 2)
    index = {sequence: i for i, sequence in enumerate(listing)}
    draws, scale = 3000, 4.0
    generator = m.seeded_generator(0)
    observed = np.zeros(len(listing))
    for _ in range(draws):
        observed[index[tuple(m.joint(SCORES, k=2, scale=scale, noise=noise, generator=generator).tolist())]] += 1

    def law(scale: float) -> oracles.Array:
        chances = np.exp(-oracles.sequence_losses(SCORES, 2) / scale)
        uniform = np.ones(len(listing))
        return oracles.flip_class_law(chances, uniform) if noise == "exponential" else chances / chances.sum()

    assert chi_square_p_value(observed, draws * law(scale)) > 1e-4
    assert chi_square_p_value(observed, draws * law(0.8 * scale)) < 1e-6


def test_counts_in_a_batch_and_floats_have_one_law() -> None:
    scores = np.tile([9, 8, 8, 4, 0, 0, 0], (4000, 1))
    tabled = m.joint(scores, k=3, scale=3.0, generator=m.seeded_generator(0))
    drawn = m.joint(scores.astype(float), k=3, scale=3.0, generator=m.seeded_generator(1))
    for place in range(3):
        first, second = (np.bincount(chosen[:, place], minlength=7) for chosen in (tabled, drawn))
        assert (np.abs(first - second) < 5 * np.sqrt(first + second + 1)).all()


@pytest.mark.parametrize("blocks", [1, 5, 32, 1000])
@pytest.mark.parametrize("scale", [3.0, 40.0])
def test_losses_of_a_batch_in_blocks_follow_the_law(blocks: int, scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the width of the blocks in which losses are proposed; a row of another spread shares the table."""
    monkeypatch.setattr(module, "_LEVEL_BLOCKS", blocks)
    scores = np.array([260, 251, 251, 230, 117, 60])
    draws = 60_000
    rows = np.concatenate((np.tile(scores, (draws, 1)), [[900, 1, 0, 0, 0, 0]]))
    chosen = m.joint(rows, k=3, scale=scale, generator=m.seeded_generator(blocks))[:-1]
    listing = oracles.sequences(len(scores), 3)
    index = {sequence: i for i, sequence in enumerate(listing)}
    values, counts = np.unique(chosen, axis=0, return_counts=True)
    observed = np.zeros(len(listing))
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        observed[index[tuple(value)]] = count

    def expected(scale: float) -> oracles.Array:
        chances = np.exp(-oracles.sequence_losses(scores, 3) / scale)
        return np.asarray(draws * chances / chances.sum())

    assert chi_square_p_value(observed, expected(scale)) > 1e-4
    assert chi_square_p_value(observed, expected(0.9 * scale)) < 1e-6


def test_rows_of_a_batch_keep_their_own_law() -> None:
    """Rows of different spreads are tabulated together."""
    rows = np.array([[90, 0, 0, 0], [0, 0, 3, 90]] * 50)
    chosen = m.joint(rows, k=1, scale=1.0, generator=m.seeded_generator(0))[:, 0]
    np.testing.assert_array_equal(chosen, [0, 3] * 50)


def test_scores_too_small_to_be_normal() -> None:
    scores = np.array([5e-324, 0.0, 0.0, 1e-320])
    assert sorted(m.joint(scores, k=4, scale=1.0, generator=m.seeded_generator(0)).tolist()) == [0, 1, 2, 3]


def test_window_of_one_item_is_that_of_a_count() -> None:
    for relation in NeighboringRelation:
        assert m.joint_window(k=1, neighboring_relation=relation) == relation.count_window
        assert m.joint_window(k=2, neighboring_relation=relation) == 2 * relation.count_window


def test_noise_that_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^Expected a noise among .*, got noise='laplace'$"):
        m.joint(SCORES, k=2, scale=1.0, noise="laplace", generator=m.seeded_generator(0))  # type: ignore[arg-type]
