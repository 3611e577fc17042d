"""Laws of what aggregators release of a query, on votes with a canary's one version and with its other.

They follow from the definitions of the mechanisms and share no code with what draws.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from functools import reduce
from itertools import combinations, permutations
from typing import Any

import numpy as np

from pate._audit.exact import Laws
from pate._typing import BoolArray, FloatArray
from pate._votes import Ballots, CountArray
from pate.aggregators._base import Aggregator
from pate.aggregators._powerset import Powerset
from pate.aggregators._stable_majority import StableMajority
from pate.aggregators._stable_topk import StableTopK
from pate.aggregators._top_k import Canonical, Joint, Peeling, PermuteAndFlip
from pate.mechanisms._gaps import sort_counts

MOST_OUTCOMES = 4096
"""How many outcomes of a query are listed."""
MOST_FLIPPED = 128
"""How many there may be where each chance is an integral over all others, as with exponential noise."""


class NotAtHandError(ValueError):
    """A law is not known here, or has too many outcomes."""


def laws(aggregator: Aggregator, votes: Ballots, turned: Ballots) -> Laws:
    """Return the laws of all queries on ``votes`` and on ``turned``; outcomes that tell the same may be one.

    Raises:
        NotAtHandError: if the law of the aggregator is not known here, or has too many outcomes.
    """
    law = _LAWS.get(type(aggregator))  # a subclass may have another
    if law is None:
        raise _unknown(aggregator)
    return law(aggregator, votes, turned)


def _of_subsets(aggregator: Canonical, votes: Ballots, turned: Ballots) -> Laws:
    num_labels, k, gamma = votes.num_labels, aggregator.k, aggregator.gamma
    _require_few(math.comb(num_labels, k), aggregator.noise_law)
    inside = np.array(list(combinations(range(num_labels), k)))
    outside = np.array([sorted(set(range(num_labels)) - set(row)) for row in inside.tolist()])

    def law(counts: CountArray) -> FloatArray:
        best_left_out = reduce(np.maximum, (counts[:, column] for column in outside.T))
        if aggregator.loss == "published":
            best_left_out = np.maximum(best_left_out, np.sort(counts, axis=1)[:, -k, None])
        least = reduce(np.minimum, (counts[:, column] for column in inside.T))
        return _choose(
            (gamma * least - (1 - gamma) * best_left_out) / aggregator.scale_canonical,
            aggregator.noise_law,
        )

    return law(votes.counts), law(turned.counts)


def _of_sequences(aggregator: Joint, votes: Ballots, turned: Ballots) -> Laws:
    k = aggregator.k
    _require_few(math.perm(votes.num_labels, k), aggregator.noise_law)
    # those of a set one after another, because sets are released
    sequences = np.array(
        [row for chosen in combinations(range(votes.num_labels), k) for row in permutations(chosen)]
    )

    def law(counts: CountArray) -> FloatArray:
        ranked = -np.sort(-counts.astype(np.int64), axis=1)
        losses = reduce(
            np.maximum,
            (ranked[:, i, None] - counts[:, column] for i, column in enumerate(sequences.T)),
        )
        chances = _choose(-losses / aggregator.scale_joint, aggregator.noise_law)
        return np.asarray(
            chances.reshape(len(counts), math.comb(votes.num_labels, k), math.factorial(k)).sum(
                axis=2
            )
        )

    return law(votes.counts), law(turned.counts)


def _of_peeling(aggregator: Peeling, votes: Ballots, turned: Ballots) -> Laws:
    if aggregator.noise_law != "gumbel":
        raise _unknown(aggregator, aggregator.noise_law)
    return _peel(votes, turned, aggregator.k, aggregator.scale_peel, "gumbel")


def _of_flips(aggregator: PermuteAndFlip, votes: Ballots, turned: Ballots) -> Laws:
    return _peel(votes, turned, aggregator.k, aggregator.scale_flip, "exponential")


def _of_gaps(aggregator: StableTopK, votes: Ballots, turned: Ballots) -> Laws:
    if aggregator.noise_law not in ("gumbel", "exponential"):
        raise _unknown(aggregator, aggregator.noise_law)
    num_labels, mechanism = votes.num_labels, aggregator.mechanism(votes.shape)
    ranks = np.arange(num_labels + 1)
    least, most = (0, num_labels) if aggregator.allow_empty else (1, num_labels - 1)
    allowed = (ranks >= least) & (ranks <= min(most, aggregator.kbar or most))
    preferred = np.where(
        allowed, 0.0 if aggregator.regularizer is None else aggregator.regularizer, -np.inf
    )
    passed, failed, members = [], [], []
    for side in (votes, turned):
        ranked = sort_counts(
            side.counts, upper=side.num_teachers, majority_weight=mechanism.majority_weight
        )
        gaps = ranked.gaps.astype(np.float64)
        chances = _choose((gaps + preferred) / aggregator.scale_gap, aggregator.noise_law)
        passed.append(chances * mechanism.test.probability(gaps))
        failed.append(chances * mechanism.test.failure(gaps))
        places = np.argsort(np.argsort(-side.counts, axis=1, kind="stable"), axis=1)
        members.append(places[:, :, None] < ranks)
    return _released(passed, failed, (members[0] == members[1]).all(axis=1))


def _of_majority(aggregator: StableMajority, votes: Ballots, turned: Ballots) -> Laws:
    test, leads = (
        aggregator.mechanism(votes.shape),
        [2 * side.counts - side.num_teachers for side in (votes, turned)],
    )
    distances = [np.abs(lead).min(axis=1, keepdims=True) / 2 for lead in leads]
    passed, failed = (
        [chance(distance) for distance in distances] for chance in (test.probability, test.failure)
    )
    return _released(passed, failed, ((leads[0] > 0) == (leads[1] > 0)).all(axis=1, keepdims=True))


def _of_powerset(aggregator: Powerset, votes: Ballots, turned: Ballots) -> Laws:
    """Sets whose number of votes stays as it is are one outcome: their chances change by one factor."""
    scale, most = aggregator.scale_powerset, 2.0**votes.num_labels
    rows = []
    for ballots in zip(votes.ballots, turned.ballots, strict=True):
        before, after = (Counter(map(bytes, side)) for side in ballots)
        moved = sorted(code for code in before | after if before[code] != after[code])
        chances = []
        for counted in (before, after):
            highest = max(counted.values())
            weights = {code: math.exp((count - highest) / scale) for code, count in counted.items()}
            unseen = math.exp(-highest / scale)
            others = [weight for code, weight in weights.items() if code not in moved]
            rest = sum(others) + (most - len(moved) - len(others)) * unseen
            parts = [*(weights.get(code, unseen) for code in moved), rest]
            chances.append([part / sum(parts) for part in parts])
        rows.append(chances)
    widest = max((len(first) for first, _ in rows), default=1)
    padded = np.array(
        [[side + [0.0] * (widest - len(side)) for side in row] for row in rows]
    ).reshape(-1, 2, widest)
    return padded[:, 0], padded[:, 1]


def _peel(votes: Ballots, turned: Ballots, k: int, scale: float, noise: str) -> Laws:
    """Return the laws of sets that are peeled: a set comes of each of its members as the last one."""
    _require_few(sum(math.comb(votes.num_labels, size) for size in range(1, k + 1)), "gumbel")

    def law(counts: CountArray) -> FloatArray:
        chances: dict[tuple[int, ...], FloatArray] = {(): np.ones(len(counts))}
        for _ in range(k):
            longer: dict[tuple[int, ...], FloatArray] = {}
            for chosen, chance in chances.items():
                left = [label for label in range(votes.num_labels) if label not in chosen]
                for label, part in zip(
                    left, _choose(counts[:, left] / scale, noise).T, strict=True
                ):
                    members = tuple(sorted((*chosen, label)))
                    longer[members] = longer.get(members, 0.0) + chance * part
            chances = longer
        return np.column_stack(list(chances.values()))

    return law(votes.counts), law(turned.counts)


def _choose(utilities: FloatArray, noise: str) -> FloatArray:
    """Return the chances ``[Q, N]`` of the largest of ``utilities`` with noise of scale 1."""
    weights = np.exp(utilities - utilities.max(axis=1, keepdims=True))
    if noise == "gumbel":
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))
    # permute and flip: an outcome comes at a uniform time, and is taken if no coin before it showed
    # heads
    nodes, parts = np.polynomial.legendre.leggauss(utilities.shape[1] // 2 + 1)
    chances = np.zeros(utilities.shape)
    for time, part in zip((nodes + 1) / 2, parts / 2, strict=True):
        still = np.log1p(-weights * time)
        chances += part * weights * np.exp(still.sum(axis=1, keepdims=True) - still)
    return chances


def _released(passed: list[FloatArray], failed: list[FloatArray], same: BoolArray) -> Laws:
    """Return the laws of outcomes that have ``passed``, the ``same`` ones or others; those that ``failed`` are nothing.

    The chance of nothing is no difference from 1, which would be 0 on one side alone where both are
    small.
    """
    first, second = passed
    nothing = [side.sum(axis=1, keepdims=True) for side in failed]
    none = np.zeros(first.shape)
    return (
        np.hstack((first * same, first * ~same, none, nothing[0])),
        np.hstack((second * same, none, second * ~same, nothing[1])),
    )


def _require_few(outcomes: int, noise: str) -> None:
    most = MOST_FLIPPED if noise == "exponential" else MOST_OUTCOMES
    if outcomes > most:
        raise NotAtHandError(
            f"a query has {outcomes:,} outcomes, of which {most:,} are listed at most"
        )


def _unknown(aggregator: Any, noise: str | None = None) -> NotAtHandError:
    kind = type(aggregator).__name__ + (f" with {noise} noise" if noise else "")
    return NotAtHandError(f"the law of what {kind} releases is not known to an audit")


_LAWS: Mapping[type, Callable[[Any, Ballots, Ballots], Laws]] = {
    Canonical: _of_subsets,
    Joint: _of_sequences,
    Peeling: _of_peeling,
    PermuteAndFlip: _of_flips,
    StableTopK: _of_gaps,
    StableMajority: _of_majority,
    Powerset: _of_powerset,
}
