"""Shekelyan & Loukides (2022): how likely the exact, a great or a good top-k is at which epsilon."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
from scipy.optimize import brentq

from pate._core.mechanisms.canonical import CanonicalLoss
from pate._core.mechanisms.noise import Noise
from pate._core.mechanisms.ranking import good_bounds, great_bounds
from pate._core.validation import FloatArray, require, require_in_open_unit_interval
from pate.mechanisms import CanonicalMechanism
from scripts.reproduction.one_shot_law import probability_within

PAPER = "Shekelyan & Loukides (2022), Differentially private top-k selection via canonical Lipschitz mechanism"
SURE = 0.999
"""The probability at which the paper compares budgets."""

VECTORS = {
    "NETFLIX": "NETFLIX.n17770.npy",
    "ZIPFIAN": "ZIPFIAN.n10000.npy",
    "HEPTH": "HEPTH.n4096.npy",
    "INCOME": "INCOME.n4096.npy",
    "MEDCOST": "MEDCOST.n4096.npy",
    "PATENT": "PATENT.n4096.npy",
    "SEARCHLOGS": "SEARCHLOGS.n4096.npy",
}
"""Files of the folder ``topk`` by the names that the paper has for them."""

GradeName = Literal["top", "great", "good"]
GRADES: tuple[GradeName, ...] = get_args(GradeName)

_WIDEST = (1e-7, 1e7)  # epsilons between which everything happens


@dataclass(frozen=True)
class Contender:
    """A mechanism of the comparison.

    Attributes:
        name: as the paper has it, but for ours.
        within: returns the probability that the set has the ``head`` best items and none of rank
            beyond ``tail``, given the scores in descending order, k, epsilon, head and tail.
    """

    name: str
    within: Callable[[FloatArray, int, float, int, int], float]

    def probability(self, scores: FloatArray, k: int, epsilon: float, grade: GradeName) -> float:
        """Return the probability of one grade."""
        head, tail = {"top": (k, k), "great": great_bounds(k), "good": good_bounds(k)}[grade]
        return self.within(scores, k, epsilon, head, min(tail, scores.size))


def zipf_scores(exponent: float, total: float) -> FloatArray:
    """Return 10,000 scores by Zipf's law, in descending order, with their sum."""
    weights = np.arange(1, 10_001) ** -exponent
    scores: FloatArray = total * weights / weights.sum()
    return scores


class Crossing(NamedTuple):
    """Where a mechanism reaches `SURE`."""

    contender: str
    k: int
    grade: GradeName
    epsilon: float


def canonical(name: str, *, gamma: float = 0.5, loss: CanonicalLoss = "published") -> Contender:
    """Return the canonical mechanism with Gumbel noise: one choice, for scores that move within a window of 1."""

    def within(scores: FloatArray, k: int, epsilon: float, head: int, tail: int) -> float:
        mechanism = CanonicalMechanism(k=k, scale=1 / epsilon, gamma=gamma, loss=loss)
        return mechanism.class_probabilities(scores).within(head=head, tail=tail)

    return Contender(name, within)


def one_shot(name: str, noise: Noise) -> Contender:
    """Return noise added once, at ``epsilon / k`` for each of k choices; with Gumbel noise it is peeling."""

    def within(scores: FloatArray, k: int, epsilon: float, head: int, tail: int) -> float:
        return probability_within(scores, k=k, scale=k / epsilon, noise=noise, head=head, tail=tail)

    return Contender(name, within)


CONTENDERS = (
    canonical("canonical (ours)", loss="lead"),
    canonical("canonical"),
    canonical("canonical, gamma 1", gamma=1.0),
    one_shot("one-shot exponential", "exponential"),
    one_shot("peeling", "gumbel"),
)
"""The four of the paper, and the canonical mechanism with the loss that this package prefers."""


def load(path: Path) -> FloatArray:
    """Return the scores of a file, float64 in descending order."""
    return -np.sort(-np.load(path).astype(np.float64))


def epsilon_at(
    contender: Contender, scores: FloatArray, k: int, grade: GradeName, probability: float = SURE
) -> float:
    """Return the epsilon at which a grade has ``probability``, to five digits; infinity if ties deny it.

    Raises:
        ValueError: on a probability outside (0, 1), or one that no epsilon gives because
            chance exceeds it.
    """
    require_in_open_unit_interval(probability=probability)

    def excess(log_epsilon: float) -> float:
        reached = contender.probability(scores, k, math.exp(log_epsilon), grade)
        return _logit(reached) - _logit(probability)

    low, high = (math.log(end) for end in _WIDEST)
    chance = contender.probability(scores, k, _WIDEST[0], grade)
    require(
        chance < probability,
        f"a {grade} set less likely by chance than {probability}",
        chance=chance,
    )
    if contender.probability(scores, k, _WIDEST[1], grade) < probability:
        return math.inf
    # the curve is flat far from the crossing: halve until its steep part is near
    while high - low > 1.0:
        middle = (low + high) / 2
        low, high = (low, middle) if excess(middle) > 0 else (middle, high)
    return math.exp(float(brentq(excess, low, high, xtol=1e-5)))


def crossings(
    contenders: Sequence[Contender], scores: FloatArray, k: int, done: Callable[[], object]
) -> list[Crossing]:
    """Return where each contender reaches `SURE`, by grade; ``done`` is called after each."""
    found = []
    for contender in contenders:
        for grade in GRADES:
            found.append(
                Crossing(contender.name, k, grade, epsilon_at(contender, scores, k, grade))
            )
        done()
    return found


def ratio(
    crossings: Iterable[Crossing], k: int, grade: GradeName, worse: str, better: str
) -> float:
    """Return how many times the epsilon of ``better`` the contender ``worse`` needs."""
    epsilons = {
        crossing.contender: crossing.epsilon
        for crossing in crossings
        if (crossing.k, crossing.grade) == (k, grade)
    }
    return epsilons[worse] / epsilons[better]


def arrow(times: float) -> float:
    """Return the number of which the authors' plots write the whole part on an arrow between two epsilons.

    One of them is ``times`` the other. Their public code lets the arrow begin and end a hundredth
    of its length inside, so that the number is never above 99.
    """
    return (0.01 + 0.99 * times) / (0.99 + 0.01 * times)


def _logit(probability: float) -> float:
    held = min(max(probability, 1e-15), 1 - 1e-15)
    return math.log(held / (1 - held))
