"""Statements of Shekelyan & Loukides (2022) that need no data: as printed, as probably meant, and computed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import get_args

import numpy as np

from pate._core.mechanisms.noise import Noise, log_survival
from pate.mechanisms import CanonicalMechanism
from scripts.reproduction.canonical_classes import class_probabilities
from scripts.reproduction.findings import Claim, Effort, Finding, Reason, Row
from scripts.reproduction.shekelyan import PAPER, probability_within, zipf_scores

EQUAL, CHOSEN = 20, 2
"""Equal scores and size of the set at which Lemmas 5.3 and 5.4 are computed."""

STEP = (2, 2, 0, 0)
"""Other scores for Lemma 5.4."""

EXAMPLE = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
"""The scores of the example of Lemma A.24, which are the names of the items too."""


def statements(effort: Effort) -> Finding:
    """Compute the statements of the text on losses, laws and bounds."""
    claims: list[Claim] = []
    rows: list[Row] = []
    states = (leaps, peeling_leaps, expected_leaps, bounds, single_bound, gammas, weights, laws)
    for state in (*states, example):
        claim, values = state()
        claims.append(claim)
        rows += [
            {"where": claim.where, "quantity": name, "value": value}
            for name, value in values.items()
        ]
    return Finding(
        title="Statements of the text: lemmas, Algorithm 1 and the appendix",
        paper=PAPER,
        method="Nothing is drawn, and no data are needed. If a formula as printed cannot be intended, both are computed: "
        "as printed, and as the proof or the text around it reads. None of this touches the mechanisms as they "
        "run, the proof of their privacy (Theorem 4.1) or the experiments. Scores are in the paper's unit, in "
        "which one user changes each by 1 at most.",
        claims=tuple(claims),
        rows=rows,
    )


def leaps() -> tuple[Claim, dict[str, float]]:
    """Lemma 5.3 at gamma 1 for equal scores, where every set is as likely."""
    sets = math.comb(EQUAL, CHOSEN)
    values = {
        "5.3: sets that share an item with the top-k": 1 - math.comb(EQUAL - CHOSEN, CHOSEN) / sets,
        "5.3: Pr[X > 0]": sets / (sets + 1),
        "5.3: sets, the dummy among them, other than the top-k": sets / (sets + 1),
    }
    shared, leap, other = values.values()
    claim = Claim(
        where="Lemma 5.3, canonical",
        published="y and OPT share an item with at least Pr[X > x_[1] - x_[d]]; y is not OPT with at most"
        " Pr[X < x_[k] - x_[k+1]]",
        ours=f"{shared:.3f} where at least {leap:.3f} is stated, {other:.3f} where at most {1 - leap:.3f};"
        f" {EQUAL} equal scores, k = {CHOSEN}",
        reason=Reason.MISPRINT if shared < leap <= other else Reason.NONE,
        why="the proof gives the probable meaning: if the largest noise leaps ahead of the top-k, y "
        f"is not OPT ({other:.3f}, for {leap:.3f}), and where it fails to overtake, y is OPT "
        f"({1 - other:.3f}, for {1 - leap:.3f}). With gamma 1 both hold of all scores. Equal "
        "scores make all sets, and the dummy, as likely, so these are shares of sets",
        headline=True,
    )
    return claim, values


def peeling_leaps() -> tuple[Claim, dict[str, float]]:
    """Lemma 5.4, as printed and as Lemma 5.3 is meant."""
    left = EQUAL - 1  # items of peeling, from which one is removed beforehand
    values = {
        "5.4: sets that share an item with the top-k": 1
        - math.comb(left - CHOSEN, CHOSEN) / math.comb(left, CHOSEN),
        "5.4: Pr[X' > 0]": leap_by_peeling(EQUAL, CHOSEN, 0),
        "5.4: the top-k": 1 / math.comb(left, CHOSEN),
        "5.4: sets other than the top-k of 2, 2, 0, 0": 1 - top_by_peeling(STEP[:-1], CHOSEN),
        "5.4: Pr[X' > 2]": leap_by_peeling(len(STEP), CHOSEN, STEP[0] - STEP[-1]),
    }
    shared, leap, top, other, far_leap = values.values()
    fails_as_meant = top < 1 - leap and other < far_leap
    claim = Claim(
        where="Lemma 5.4, peeling",
        published="the same for X' in place of X, where peeling begins without the last item",
        ours=f"{shared:.3f} where at least {leap:.3f} is stated; as 5.3 is meant {other:.3f} where at least"
        f" {far_leap:.3f}, scores 2, 2, 0, 0",
        reason=Reason.REFUTED if shared < leap and fails_as_meant else Reason.MISPRINT,
        why=f"k = {CHOSEN}; the former of {EQUAL} equal scores. Of 2, 2 and 0, without the last 0, both items of 2 are"
        " chosen with probability 2 e / (2 e + 1) times e / (e + 1), and X' = 2 (log 2 + Logistic) exceeds 2 with"
        f" 2 / (2 + e). As meant the second inequality fails too: of equal scores OPT has {top:.3f}, where at least"
        f" {1 - leap:.3f} is stated. X' compares the largest noise with that of one item of OPT in one round, where"
        " another may win; where X' is small, some item of OPT is kept, as the proof shows. Theorem"
        " 5.5 is only about X and X'",
        headline=True,
    )
    return claim, values


def leap_by_peeling(d: int, k: int, distance: float) -> float:
    """Return the probability that X' of Lemma 5.4 exceeds ``distance``."""
    noises = (d - 1 - k) * k
    return noises / (noises + math.exp(distance / k))


def top_by_peeling(scores: Sequence[float], k: int) -> float:
    """Return the probability that peeling with epsilon = 2 Delta chooses the first k items, in any order."""
    weights = [math.exp(score / k) for score in scores]
    probability = 0.0
    for sequence in itertools.permutations(weights[:k]):
        left = [sum(weights) - sum(sequence[:place]) for place in range(k)]
        probability += math.prod(sequence) / math.prod(left)
    return probability


def expected_leaps() -> tuple[Claim, dict[str, float]]:
    """Theorem 5.5: the ratio of the expectations of X' and X, at gamma 1 and d = 10 k."""
    values = {}
    for k in (10, 100, 1000):
        d = 10 * k
        peeling = k * math.log((d - 1 - k) * k)
        canonical = math.lgamma(d + 1) - math.lgamma(k + 1) - math.lgamma(d - k + 1)
        values[f"E[X'] / E[X] at k = {k}"] = peeling / canonical
    ratios = list(values.values())
    steps = np.diff(ratios)
    claim = Claim(
        where="Theorem 5.5, peeling over canonical",
        published='"E[X\'] / E[X] = Omega(log k)" for d / k = O(1)',
        ours=f"d = 10 k, gamma 1: {', '.join(f'{ratio:.2f}' for ratio in ratios)} at k = 10, 100 and 1,000",
        reason=Reason.NONE if steps.min() > 0.9 * steps.max() else Reason.MISPRINT,
        why=f"for each factor of ten in k the ratio grows by {steps[0]:.2f} and {steps[1]:.2f}, as a logarithm does:"
        " k log((d - 1 - k) k) over log binom(d, k), the means of the logistic noise being 0",
        headline=True,
    )
    return claim, values


def bounds() -> tuple[Claim, dict[str, float]]:
    """Theorem 5.6 for canonical with gamma 1 and for peeling, at epsilon = 2 Delta, on eight scores 5 apart."""
    scores, k, alpha = np.arange(35, -1, -5), 3, 0.1
    rooms = {
        "canonical": k * math.log(scores.size / k) + math.log(1 / alpha) + k,
        "peeling": peeling_room(scores.size, k, alpha),
    }
    last = {name: int((scores > scores[k - 1] - room).sum()) for name, room in rooms.items()}
    tails = class_probabilities(CanonicalMechanism(k=k, scale=1.0, gamma=1.0), scores).tails
    meant = {
        "canonical": float(tails[: last["canonical"] - k + 1].sum()),
        "peeling": probability_within(
            scores.astype(float), k=k, scale=float(k), noise="gumbel", head=0, tail=last["peeling"]
        ),
    }
    values = {f"E, {name}": room for name, room in rooms.items()}
    values |= {f"probability as meant, {name}": probability for name, probability in meant.items()}
    claim = Claim(
        where="Theorem 5.6, Lemmas A.20 and A.21, at k = 3",
        published="x_[T] < x_[k] + 2 Delta E / (gamma epsilon) with probability at least 1 - alpha",
        ours="true of every set as printed; as meant, x_[T] > x_[k] - .., with "
        + " and ".join(f"{probability:.5f} ({name})" for name, probability in meant.items()),
        reason=Reason.MISPRINT if min(meant.values()) >= 1 - alpha else Reason.REFUTED,
        why="no last score of a set is above the score of rank k. The loss is minus the last score, so that a bound on "
        f"the loss from above is one on the score from below. Scores 35, 30 .. 0, k = {k}, gamma 1, alpha "
        f"{alpha:g}, epsilon 2 Delta: E = {rooms['canonical']:.2f}, for peeling {rooms['peeling']:.2f}",
    )
    return claim, values


def peeling_room(d: int, k: int, alpha: float, spared: float = 0.06) -> float:
    """Return the E' of Theorem 5.6, which spares 6 / 100 in each round."""
    return k * math.log(d * k) + k * math.log(1 / alpha) - spared * k


def worst_miss(d: int, k: int, alpha: float, spared: float = 0.06) -> float:
    """Return how often peeling at epsilon = 2 Delta takes an item that lies E' below rank k, as d - k of d do."""
    return 1 - top_by_peeling([0.0] * k + [-peeling_room(d, k, alpha, spared)] * (d - k), k)


def single_bound() -> tuple[Claim, dict[str, float]]:
    """Theorem 5.6 for peeling at k = 1, which is one exponential mechanism."""
    d, alpha, sizes = 1000, 0.01, (2, 3, 4)
    missed, without = worst_miss(d, 1, alpha), worst_miss(d, 1, alpha, spared=0.0)
    others = {k: worst_miss(d, k, alpha) for k in sizes}
    claim = Claim(
        where="Theorem 5.6, peeling, at k = 1",
        published="the same with E' = k log(dk) + k log(1 / alpha) - (6 / 100) k, alpha in (0, 0.1]",
        ours=f"true of every item as printed; as meant an item E' below the best is chosen with {missed:.5f}, where at"
        f" most {alpha:g} is stated; d = {d:,}",
        reason=Reason.MISPRINT
        if missed > alpha >= without
        else Reason.NONE
        if missed <= alpha
        else Reason.REFUTED,
        why=f"one score of 0 and {d - 1} of -E' = -{peeling_room(d, 1, alpha):.3f}, epsilon 2 Delta: {d - 1} w / (1 +"
        f" {d - 1} w), w = exp(-E') = alpha exp(0.06) / d. Lemma A.21 subtracts k log r of E', with r = 1 at k = 1;"
        " the theorem subtracts a bound from above on that, 6 / 100, where one from below is due. Without it the share"
        f" is {without:.5f}, and the bound holds. Of k scores of 0 and {d:,} in all it holds at k = "
        + ", ".join(map(str, sizes))
        + " as it stands: "
        + ", ".join(f"{share:.5f}" for share in others.values()),
    )
    values = {"miss at k = 1": missed, "miss at k = 1 without 6 / 100": without}
    return claim, values | {f"miss at k = {k}": share for k, share in others.items()}


def gammas() -> tuple[Claim, dict[str, float]]:
    """Lemma 5.1 and Corollary 5.2: less gamma at more epsilon, by the probability of the top-k."""
    scores, k, epsilon = zipf_scores(0.04, 1.5e8), 10, 0.05
    # a count moves by 1, and the loss of the paper is of counts over 1/2
    one, half = (
        class_probabilities(
            CanonicalMechanism(k=k, scale=gamma / epsilon, gamma=gamma, loss="published"), scores
        ).top
        for gamma in (1.0, 0.5)
    )
    values = {"top-k at gamma 1, epsilon": one, "top-k at gamma 1/2, 2 epsilon": half}
    apart = {gamma: law_of_sets((3, 2, 1, 0), 2, gamma, 1 / gamma) for gamma in (1.0, 0.5)}
    quotient = abs(apart[0.5][0, 3] - apart[0.5][1, 2]) / abs(apart[1.0][0, 3] - apart[1.0][1, 2])
    values["quotient of two other sets"] = quotient
    claim = Claim(
        where="Lemma 5.1 and Corollary 5.2",
        published='for Gamma_2 > Gamma_1 and "epsilon_1 = (Gamma_2 / Gamma_1) epsilon_2 < epsilon_2" Gamma_1 is better',
        ours=f"no epsilons meet the premise; with epsilon_1 > epsilon_2 the top-10 has {half:.4f}, not {one:.4f}",
        reason=Reason.MISPRINT if half > one else Reason.REFUTED,
        why="Gamma_2 / Gamma_1 is above 1, so that epsilon_1 is the larger, as the proof and Corollary 5.2 have it."
        " Then the odds of every other set against the top-k do not rise, since x_[h+1] >= x_[k], and"
        " the quotient that the lemma prints, of differences of probabilities, is at least 1 where y' is the top-k. Of"
        f" any two sets it need not be: of scores 3, 2, 1, 0 it is {quotient:g} for the sets of ranks 1 and 4, 2 and 3."
        f" 10,000 scores by Zipf's law, exponent 0.04: gamma 1 at epsilon {epsilon:g}, gamma 1/2 at {2 * epsilon:g}",
    )
    return claim, values


def law_of_sets(
    scores: Sequence[float], k: int, gamma: float, epsilon: float
) -> dict[tuple[int, ...], float]:
    """Return the probability of each set of ranks from 0 by Theorem 3.5 with Gumbel noise, for descending scores."""
    weights = {}
    for chosen in itertools.combinations(range(len(scores)), k):
        head = next((rank for rank in range(k) if rank not in chosen), k - 1)
        weights[chosen] = math.exp(
            epsilon / 2 * (gamma * scores[chosen[-1]] - (1 - gamma) * scores[head])
        )
    total = sum(weights.values())
    return {chosen: weight / total for chosen, weight in weights.items()}


def printed_weight(h: int, t: int, k: int) -> float:
    """Return exp(m) of class (h, t) after the updates of Algorithm 1 as printed, for gamma < 1."""
    log_weight = 0.0
    for head in range(k - 1, h - 1, -1):
        if k - (head + 1) > 0:
            log_weight += math.log((t - (head + 1)) / (k - (head + 1)))
    return math.exp(log_weight)


def weights() -> tuple[Claim, dict[str, float]]:
    """Algorithm 1: how many sets it takes a class to have."""
    h, t, k = 0, 4, 3
    printed, right = printed_weight(h, t, k), math.comb(t - h - 2, k - h - 1)
    claim = Claim(
        where="Algorithm 1, the weight of a class",
        published=f"m grows by log((t - (h+1)) / (k - (h+1))): a weight of {printed:.0f} at k = {k}, h = {h}, t = {t}",
        ours=f"{right} set is in that class, the one of items 2, 3 and 4",
        reason=Reason.MISPRINT if not math.isclose(printed, right) else Reason.NONE,
        why="the comment on the line, Theorem A.1 and the authors' public code have t - (h+2): "
        "binom(t - h - 2, k - h - 1) sets. Likewise the branch of gamma = 1 begins with x_[k], "
        "where epsilon / 2 times it is meant, as for every other t; the code has that too",
        headline=True,
    )
    return claim, {"weight as printed": printed, "sets in the class": float(right)}


def laws() -> tuple[Claim, dict[str, float]]:
    """Theorems A.3 to A.13: log(1 - F) is 1-Lipschitz for five laws."""
    at = np.linspace(-20, 20, 4001)
    values = {
        noise: float(np.max(np.abs(np.diff(log_survival(at, noise)) / np.diff(at))))
        for noise in get_args(Noise)
    }
    claim = Claim(
        where="Theorems A.3, A.6, A.11, A.12 and A.13",
        published="log(1 - F) is 1-Lipschitz for exponential, Gumbel, Laplace, logistic and half-logistic noise",
        ours=f"its steepest slope on [-20, 20] is {max(values.values()):.6f}",
        reason=Reason.NONE if max(values.values()) <= 1 + 1e-9 else Reason.MISPRINT,
        why="by law: "
        + ", ".join(f"{name.replace('_', '-')} {slope:.6f}" for name, slope in values.items()),
    )
    return claim, values


def example() -> tuple[Claim, dict[str, float]]:
    """Lemma A.24: its example of a set that canonical loss puts further from the top-k than joint's."""
    values = dict(zip(("canonical", "joint"), losses((1, 5, 10), EXAMPLE), strict=True))
    claim = Claim(
        where="Lemma A.24, example",
        published="scores 1 .. 10, y = {1, 5, 10}: canonical 4, joint 7/2",
        ours=f"canonical {values['canonical']:g}, joint {values['joint']:g}",
        reason=Reason.NONE if values == {"canonical": 4.0, "joint": 3.5} else Reason.REFUTED,
        why="(9 - 1) / 2, for 9 is the best score left out and 1 the worst chosen; max(10 - 10, 9 -"
        " 5, 8 - 1) / 2. The formula of the lemma has x_[h], A.23 and the example have x_[h+1]",
        headline=True,
    )
    return claim, values


def losses(chosen: Sequence[int], scores: Sequence[int]) -> tuple[float, float]:
    """Return the canonical loss (Lemma A.23) and the joint loss (Lemma A.24) of a set of scores that are distinct."""
    best = sorted(scores, reverse=True)
    mine = sorted(chosen, reverse=True)
    out = [score for score in best if score not in mine]
    canonical = max(out[0] - mine[-1], 0) / 2
    return canonical, max(b - m for b, m in zip(best, mine, strict=False)) / 2
