"""Laws of aggregators on one query by their plain definitions; no code is shared with the
package."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import ndtr

from pate import Votes
from pate._labeling.testing.aggregators import Law, Outcome
from pate.aggregators import Counts
from tests.core.mechanisms import oracles


def counts(votes: Votes) -> list[int]:
    """Return the counts of one query as a list."""
    assert isinstance(votes, Counts)
    return [int(count) for count in votes.counts[0]]


def answered(labels: Sequence[int], tier: int = 0) -> Outcome:
    """Return the outcome of a query answered for all labels."""
    return (*labels, *(1 for _ in labels), tier)


def unanswered(num_labels: int, tier: int = 0) -> Outcome:
    """Return the outcome of a query answered with nothing."""
    return (*(0 for _ in range(2 * num_labels)), tier)


def stable_law(
    votes: Votes, shift: int, sigma: float, delta: float, choice: Callable[[np.ndarray], np.ndarray]
) -> Law:
    """Law of StableTopK whose rank is chosen with the law ``choice`` of the gaps; a majority weighs
    the ``shift``."""
    h = counts(votes)
    gaps, order = oracles.majority_gaps(h, votes.num_teachers, shift), oracles.ranks(h)
    law: dict[Outcome, float] = defaultdict(float)
    for k, chance in enumerate(choice(np.array(gaps, dtype=float)).tolist()):
        p = oracles.passing(gaps[k], shift, sigma, delta)
        law[answered([int(i in order[:k]) for i in range(len(h))])] += chance * p
        law[unanswered(len(h))] += chance * (1 - p)
    return law


def fixed_law(
    votes: Votes,
    *,
    k: int,
    rank_penalty: float,
    scale: float,
    sigma: float,
    delta: float,
    shift: int,
    scale_peel: float,
    fallback: bool = False,
    by_root: bool = False,
) -> Law:
    """Law of StableTopK with k given, the number of rounds released too."""
    h = counts(votes)
    gaps, order = oracles.gaps(h, votes.num_teachers), oracles.ranks(h)
    law: dict[Outcome, float] = defaultdict(float)
    chances = oracles.softmax(
        (np.array(gaps) - rank_penalty * np.abs(np.arange(len(gaps)) - k)) / scale
    )
    for j, chance in enumerate(chances.tolist()):
        p = oracles.passing(gaps[j], shift, sigma, delta)
        if fallback:
            peels = oracles.sequences(len(h), k)
            parts = oracles.peel_law(tuple(np.array(h) / scale_peel), peels, oracles.softmax)
            for peel, part in zip(peels, parts, strict=True):
                law[answered([int(i in peel) for i in range(len(h))], k)] += (
                    chance * (1 - p) * float(part)
                )
        else:
            law[unanswered(len(h))] += chance * (1 - p)
        inside, outside = order[:j], order[j:]
        fill, drop = j <= k, k < j <= 2 * k
        pool = outside if fill else inside
        rounds = abs(j - k) if fill or drop else k
        peels = oracles.sequences(len(pool), rounds)
        width = scale_peel * ((rounds / k) ** 0.5 if by_root and rounds else 1)
        utilities = [(-1 if drop else 1) * h[i] / width for i in pool]
        for peel, part in zip(
            peels, oracles.peel_law(tuple(utilities), peels, oracles.softmax), strict=True
        ):
            picked = {pool[i] for i in peel}
            chosen = set(inside) | picked if fill else (set(inside) - picked if drop else picked)
            law[answered([int(i in chosen) for i in range(len(h))], rounds)] += (
                chance * p * float(part)
            )
    return law


def sets_law(chosen: Sequence[Sequence[int]], chances: np.ndarray, num_labels: int) -> Law:
    """Law of a mechanism that releases sets, given as indices in any order."""
    law: dict[Outcome, float] = defaultdict(float)
    for members, chance in zip(chosen, chances.tolist(), strict=True):
        law[answered([int(i in members) for i in range(num_labels)])] += chance
    return law


def gaussian_labels_law(means: Sequence[float], sigma: float, lead: float = 0.0) -> Law:
    """Law of labels given above ``lead``, denied below ``-lead`` and else left out, with Gaussian
    noise on each."""
    law: dict[Outcome, float] = {}
    yes, no = ndtr((np.array(means) - lead) / sigma), ndtr((-np.array(means) - lead) / sigma)
    for kinds in itertools.product(("yes", "no", "none"), repeat=len(means)):
        chances = [
            {"yes": y, "no": n, "none": 1 - y - n}[kind]
            for kind, y, n in zip(kinds, yes, no, strict=True)
        ]
        outcome = (
            *(int(kind == "yes") for kind in kinds),
            *(int(kind != "none") for kind in kinds),
            0,
        )
        if lead > 0 or "none" not in kinds:
            law[outcome] = float(np.prod(chances))
    return law
