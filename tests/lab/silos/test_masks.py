"""Sums under masks: what comes out, whoever drops out, and what one masked vector says."""

from functools import cache
from itertools import combinations, product

import numpy as np
import pytest
from scipy.stats import chisquare

from pate.lab.silos import secrets as masks
from pate.lab.silos.secrets import (
    PublicKeys,
    Secrets,
    WordArray,
    commitment,
    is_share,
    masked,
    rebuilt,
    unmasked,
)

CONTEXT = "the digest of an invitation"
NAMES = ("north", "south", "west", "east")


THRESHOLD = 3


def secrets_of(name: str, number: int = 0) -> Secrets:
    return Secrets(
        np.random.default_rng([number, *name.encode()]).bytes(32), CONTEXT, name, THRESHOLD
    )


def setting(
    names: tuple[str, ...], number: int = 0
) -> tuple[dict[str, Secrets], dict[str, PublicKeys]]:
    secrets = {name: secrets_of(name, number) for name in names}
    return secrets, {name: silo.public for name, silo in secrets.items()}


def words(*values: int) -> WordArray:
    return np.array([value % 2**64 for value in values], dtype=np.uint64)


@pytest.mark.parametrize("num_silos", [2, 3])
def test_the_sum_is_that_of_all_summands_for_every_small_case(num_silos: int) -> None:
    secrets, roster = setting(NAMES[:num_silos])
    for summands in product((-1, 0, 2), repeat=num_silos):
        vectors = [
            masked(words(value, 7 * value), silo, roster)
            for value, silo in zip(summands, secrets.values(), strict=True)
        ]
        seeds = [silo.own_mask_seed for silo in secrets.values()]
        total = unmasked(
            vectors, own_mask_seeds=seeds, pairs_keys={}, roster=roster, context=CONTEXT
        )
        np.testing.assert_array_equal(total, words(sum(summands), 7 * sum(summands)))


@pytest.mark.parametrize("dropped", [(), *combinations(NAMES, 1)])
@pytest.mark.parametrize("silent", [(), *combinations(NAMES, 1)])
def test_whoever_drops_out_the_rest_is_summed(
    dropped: tuple[str, ...], silent: tuple[str, ...]
) -> None:
    """From shares that silos hold of each other, of any that are enough."""
    secrets, roster = setting(NAMES)
    dealt = {name: silo.deal(roster) for name, silo in secrets.items()}
    survivors = [name for name in NAMES if name not in dropped]
    answering = [name for name in survivors if name not in silent]
    if len(answering) < THRESHOLD:
        return
    shares = {
        name: {
            place: secrets[holder].open(name, roster, dealt[name][holder])
            for place, holder in enumerate(NAMES)
            if holder in answering
        }
        for name in NAMES
    }
    own = {
        name: rebuilt({place: share.own_mask for place, share in shares[name].items()})
        for name in survivors
    }
    pairs = {
        name: rebuilt({place: share.pairs for place, share in shares[name].items()})
        for name in dropped
    }
    assert all(commitment(seed) == roster[name].own_mask[0] for name, seed in own.items())
    assert all(commitment(key) == roster[name].pairs[0] for name, key in pairs.items())
    values = {name: words(10**place, -(10**place)) for place, name in enumerate(NAMES)}
    total = unmasked(
        (masked(values[name], secrets[name], roster) for name in survivors),
        own_mask_seeds=own.values(),
        pairs_keys=pairs,
        roster=roster,
        context=CONTEXT,
    )
    np.testing.assert_array_equal(total, sum(values[name] for name in survivors))


def test_fewer_shares_than_the_threshold_rebuild_another_seed() -> None:
    secrets, roster = setting(NAMES)
    north = secrets["north"]
    dealt = north.deal(roster)
    shares = [secrets[name].open("north", roster, dealt[name]).own_mask for name in NAMES]
    for holders in (holders for size in (1, 2) for holders in combinations(range(4), size)):
        assert rebuilt({place: shares[place] for place in holders}) != north.own_mask_seed
    for holders in combinations(range(4), THRESHOLD):
        assert rebuilt({place: shares[place] for place in holders}) == north.own_mask_seed


def test_a_share_is_for_one_silo_from_one_silo_and_as_it_was_sent() -> None:
    secrets, roster = setting(NAMES)
    dealt = secrets["north"].deal(roster)
    changed = bytes([*dealt["south"][:30], dealt["south"][30] ^ 1, *dealt["south"][31:]])
    for holder, sender, sealed in (
        ("south", "north", changed),
        ("south", "north", dealt["south"][:20]),
        ("west", "north", dealt["south"]),
        ("south", "west", dealt["south"]),
    ):
        with pytest.raises(
            ValueError,
            match=f"^Expected a share that {sender} sealed to {holder}, got a changed one$",
        ):
            secrets[holder].open(sender, roster, sealed)
    other_sum = Secrets(secrets["south"].root, "another invitation", "south", THRESHOLD)
    with pytest.raises(ValueError, match="got a changed one"):
        other_sum.open("north", roster, dealt["south"])


def test_a_share_fits_its_place_and_its_commitments_alone() -> None:
    secrets, roster = setting(NAMES)
    coefficients = secrets["north"]._coefficients("own mask")
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    # the polynomial, by its definition
    numbers = [int.from_bytes(coefficient, "big") for coefficient in coefficients]
    for place in (0, 1, 2, 3, 11, 39):
        value = sum(number * (place + 1) ** power for power, number in enumerate(numbers)) % order
        right = value.to_bytes(32, "big")
        assert is_share(right, place, roster["north"].own_mask)
        for wrong, at in (
            (right, place + 1),
            (((value + 1) % order).to_bytes(32, "big"), place),
            (bytes(32), place),
        ):
            assert not is_share(wrong, at, roster["north"].own_mask)
        assert not is_share(right, place, roster["north"].pairs)
        # the same number modulo the order is no other share
        assert not is_share((value + order).to_bytes(33, "big"), place, roster["north"].own_mask)


def p_of_uniform(vectors: WordArray) -> float:
    """Return the chi-square p-value of the lowest and of the highest four bits of words."""
    nibbles = np.concatenate([vectors & np.uint64(15), vectors >> np.uint64(60)]).astype(np.int64)
    return float(chisquare(np.bincount(nibbles, minlength=16)).pvalue)


@cache
def settings_of_two() -> list[tuple[dict[str, Secrets], dict[str, PublicKeys]]]:
    return [setting(("north", "south"), number) for number in range(100)]


def views(summand: int, known: str) -> WordArray:
    """Return what the server sees of north in many sums of the same summand, less the masks
    ``known`` to it."""
    seen = []
    for secrets, roster in settings_of_two():
        north = secrets["north"]
        vector = masked(words(*[summand] * 8), north, roster)
        if known == "own":
            vector -= masks._own_mask(north.own_mask_seed, 8)
        elif known == "pairs":
            vector -= masks._pair_mask(
                north.pairs_key, "north", "south", roster["south"], CONTEXT, 8
            )
        seen.append(vector)
    return np.concatenate(seen)


@pytest.mark.parametrize(
    ("summand", "known"),
    [
        (5, "own"),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in ((0, "nothing"), (-3, "pairs"))),
    ],
)
def test_one_masked_vector_is_uniform_whatever_the_summand(summand: int, known: str) -> None:
    """Also to a server that rebuilt one of its masks: of a survivor its own, of one that came late
    those of pairs."""
    assert p_of_uniform(views(summand, known)) > 1e-4


def test_without_both_masks_it_is_not_uniform() -> None:
    assert p_of_uniform(words(*[5] * 2400)) < 1e-9


def test_masks_of_a_pair_cancel_and_serve_one_sum() -> None:
    secrets, roster = setting(("north", "south"))
    pair = [masked(words(0, 0, 0), silo, roster) for silo in secrets.values()]
    own = [masks._own_mask(silo.own_mask_seed, 3) for silo in secrets.values()]
    np.testing.assert_array_equal(pair[0] - own[0], np.negative(pair[1] - own[1]))
    assert not np.array_equal(pair[0] - own[0], words(0, 0, 0))
    again = [Secrets(silo.root, "another sum", silo.name, THRESHOLD) for silo in secrets.values()]
    other = masked(words(0, 0, 0), again[0], {silo.name: silo.public for silo in again})
    assert not np.intersect1d(pair[0], other).size
