"""Statements of Shekelyan & Loukides (2022) that need no data: as printed, as probably meant, and computed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import get_args

import numpy as np

from pate._core.mechanisms.noise import Noise, log_survival
from pate.mechanisms import CanonicalMechanism
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
    states = (
        leaps,
        peeling_leaps,
        expected_leaps,
        bounds,
        single_bound,
        gammas,
        weights,
        laws,
        signs,
        example,
    )
    for state in (*states, *MISPRINTS):
        claim, values = state()
        claims.append(claim)
        rows += [
            {"where": claim.where, "quantity": name, "value": value}
            for name, value in values.items()
        ]
    return Finding(
        title="Statements of the text: lemmas, Algorithm 1 and the appendix",
        paper=PAPER,
        method="Nothing is drawn, and no data are needed. If a formula as printed cannot be intended,"
        " both are computed: as printed, and as the proof or the text around it reads. None of"
        " this touches the mechanisms as"
        " they run, the proof of their privacy (Theorem 4.1) or the experiments. Scores are in the paper's unit, in"
        " which one user changes each by 1 at most.",
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
        why="the proof gives the probable meaning: if the largest noise leaps ahead of the top-k, y"
        f" is not OPT ({other:.3f}, for {leap:.3f}), and where it fails to overtake, y is OPT"
        f" ({1 - other:.3f}, for"
        f" {1 - leap:.3f}). With gamma 1 both hold of all scores. Equal scores make all sets, and the dummy, as likely,"
        " so these are shares of sets",
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
    tails = CanonicalMechanism(k=k, scale=1.0, gamma=1.0).class_probabilities(scores).tails
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
        why="no last score of a set is above the score of rank k. The loss is minus the last score,"
        " so that a bound on the"
        f" loss from above is one on the score from below. Scores 35, 30 .. 0, k = {k}, gamma 1, alpha {alpha:g},"
        f" epsilon 2 Delta: E = {rooms['canonical']:.2f}, for peeling {rooms['peeling']:.2f}",
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
        CanonicalMechanism(k=k, scale=gamma / epsilon, gamma=gamma, loss="published")
        .class_probabilities(scores)
        .top
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
        why="the comment on the line, Theorem A.1 and the authors' public code have t - (h+2):"
        " binom(t - h - 2,"
        " k - h - 1) sets. Likewise the branch of gamma = 1 begins with x_[k], where epsilon / 2 times it is meant, as"
        " for every other t; the code has that too",
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


def signs() -> tuple[Claim, dict[str, float]]:
    """Appendix A.3: quantiles of symmetric laws with the sign reversed."""
    p = 0.9
    printed = {"Laplace": math.log(1 - abs(2 * p - 1)), "logistic": -math.log(p / (1 - p))}
    right = {"Laplace": -math.log(2 * (1 - p)), "logistic": math.log(p / (1 - p))}
    claim = Claim(
        where="Appendix A.3, inverse distributions",
        published="Laplace sgn(p - 1/2) log(1 - abs(2p - 1)); logistic -log(p / (1 - p))",
        ours="at p = 0.9 "
        + ", ".join(f"{printed[law]:.3f} for {right[law]:.3f} ({law})" for law in printed)
        + ": minus is missing, or too many",
        reason=Reason.MISPRINT
        if all(math.isclose(printed[law], -right[law]) for law in printed)
        else Reason.REFUTED,
        why="both laws are symmetric, so that noise drawn either way has the same law, and the"
        " authors' code has the right signs. Next to it F of the Laplace law is 1/2 exp(-x) for x"
        " >= 0, which falls: 1 minus it is meant (and"
        " likewise 1 minus F(-x) in Lemma A.10, with a conclusion that holds, as the slopes show);"
        " and A.5 begins with the"
        " inverse of the exponential law for Gumbel noise, which Theorem A.7 has right",
    )
    return claim, {f"{law}, as printed": value for law, value in printed.items()} | right


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


def classes() -> tuple[Claim, dict[str, float]]:
    """Definition 3.4: in how many of the printed classes a set lies."""
    d, k = 6, 3
    tails = {h: range(k + 1, d + 1) if h < k - 1 else range(k, d + 1) for h in range(k)}
    printed = [len(sets_of_class(h, t, k, h + 1)) for h in tails for t in tails[h]]
    meant = [len(sets_of_class(h, t, k, h + 2)) for h in tails for t in tails[h]]
    all_sets = math.comb(d, k)
    holds = sum(meant) == all_sets < sum(printed)
    from_one = sum(len(sets_of_class(h, t, k, h + 1)) for h in tails for t in tails[h] if h)
    claim = Claim(
        where="Definition 3.4, utility class",
        published="{j_1, .., j_h}, B and {j_t}, with B among {j_(h+1), .., j_(t-1)} and h + size of B + 1 = k",
        ours=f"d = {d}, k = {k}: with h from 0 the classes have {sum(printed)} sets, of which there are {all_sets};"
        f" with j_(h+2) {sum(meant)}",
        reason=Reason.MISPRINT if holds else Reason.REFUTED,
        why="B must not hold j_(h+1), of which the text says 'The integer h relates to the highest missing rank':"
        " else a set lies in more classes than one. The text has 'h in {1, .., k - 1}', by which they have"
        f" {from_one} sets: h is 0 where the best item is missing. Theorem A.1 counts binom(t - h - 2, k - 1 - h) sets,"
        " without it",
    )
    return claim, {
        "sets of the printed classes": float(sum(printed)),
        "sets of the classes meant": float(sum(meant)),
    }


def sets_of_class(h: int, t: int, k: int, first: int) -> list[tuple[int, ...]]:
    """Return the sets of the first h ranks, rank t, and others from rank ``first`` up to the one before t."""
    return [
        (*range(1, h + 1), *body, t)
        for body in itertools.combinations(range(first, t), k - h - 1)
        if t > h
    ]


def shifts() -> tuple[Claim, dict[str, float]]:
    """The shifting trick of the introduction: the least sensitivity that a multiple of the number of users leaves."""
    pairs = ((0.0, 1.0), (1.0, 1.0), (2.0, 3.0))
    least = [least_sensitivity(*pair) for pair in pairs]
    printed, meant = [abs(b - a) / 2 for a, b in pairs], [(a + b) / 2 for a, b in pairs]
    claim = Claim(
        where="Introduction, the shifting trick",
        published="a sensitivity '(-Delta_1, +Delta_2)' is reduced to 'abs(Delta_2 - Delta_1) / 2 (cf. Theorem A.15)'",
        ours="the least sensitivities are "
        + ", ".join(f"{value:g}" for value in least)
        + " where "
        + ", ".join(f"{value:g}" for value in printed)
        + " is printed",
        reason=Reason.MISPRINT
        if np.allclose(least, meant) and not np.allclose(least, printed)
        else Reason.REFUTED,
        why="Delta_1, Delta_2 = 0 and 1, 1 and 1, 2 and 3. Theorem A.15 has (Delta_1 + Delta_2) / 2, which is right:"
        " with c added for each user, scores move by -Delta_1 + c to Delta_2 + c. Its proof has a misprint too: of"
        " g(y, a) - g(y, b) it takes (Delta_1 + Delta_2) / 2 for (Delta_1 - Delta_2) / 2. Both formulas say 1/2 of"
        " counts, which all experiments are of",
    )
    return claim, {
        f"sensitivity of {a:g} and {b:g}": value for (a, b), value in zip(pairs, least, strict=True)
    }


def least_sensitivity(down: float, up: float) -> float:
    """Return the least, over a shift c, of the largest move of a score that moves by ``-down + c`` to ``up + c``."""
    at = np.linspace(-5, 5, 100_001)
    return float(np.maximum(np.abs(at - down), np.abs(at + up)).min())


def exponents() -> tuple[Claim, dict[str, float]]:
    """Theorem A.7: the exponential mechanism of two losses, by its printed exponent and by the mechanism."""
    epsilon, delta = 2.0, 0.5
    printed, meant = (
        1 / (1 + math.exp(-power)) for power in (1 / (epsilon / (2 * delta)), epsilon / (2 * delta))
    )
    claim = Claim(
        where="Theorem A.7, exponential mechanism",
        published="Pr[Y = y] is proportional to exp(-LOSS(y) / (epsilon / (2 Delta)))",
        ours=f"of losses 0 and 1 the former has {meant:.4f}, where {printed:.4f} is printed; epsilon {epsilon:g}, Delta"
        f" {delta:g}",
        reason=Reason.MISPRINT if meant > printed else Reason.REFUTED,
        why="as printed more epsilon means less utility. Theorem A.1 divides losses by 2 / epsilon, Lemma A.19 has"
        " exp(epsilon LOSS / (-2 Delta)): LOSS over 2 Delta / epsilon is meant. The fraction is as in the text that was"
        " read, in the theorem and in its proof, which holds of any rate",
    )
    return claim, {"as printed": printed, "as meant": meant}


def corrections() -> tuple[Claim, dict[str, float]]:
    """Lemma A.18: the ratio of two corrections for k tests."""
    failures, sizes = (0.001, 0.01, 0.1, 0.5, 0.9), (1, 2, 10, 1000)
    ratios = {(alpha, k): correction_ratio(alpha, k) for alpha in failures for k in sizes}
    bounds = {alpha: -math.log1p(-alpha) / alpha for alpha in failures}
    holds = all(1 - 1e-12 <= ratio <= bounds[alpha] for (alpha, _), ratio in ratios.items())
    rises = list(bounds.values()) == sorted(bounds.values())
    claim = Claim(
        where="Lemma A.18",
        published="1 < (1 - (1 - alpha)^(1/k)) / (alpha / k) <= log(1 / (1 - alpha)) / alpha for k in N, the latter"
        " 'being strictly decreasing'",
        ours=f"the ratio is {ratios[0.1, 1]:g} at k = 1; the bound grows with alpha: "
        + ", ".join(f"{bounds[alpha]:.3f} at {alpha:g}" for alpha in (0.01, 0.1, 0.5)),
        reason=Reason.MISPRINT if holds and rises else Reason.REFUTED,
        why="1 <= holds, with equality at k = 1, where both corrections are alpha. Increasing is meant, by which the"
        " bounds for alpha of at most 0.5 and 0.1, log(4) = 1.386 and 1.06, follow as stated",
    )
    named = {f"ratio at alpha {alpha:g}, k = {k}": ratio for (alpha, k), ratio in ratios.items()}
    return claim, named | {f"bound at alpha {alpha:g}": bound for alpha, bound in bounds.items()}


def correction_ratio(alpha: float, k: int) -> float:
    """Return the Sidak correction over Bonferroni's."""
    return -math.expm1(math.log1p(-alpha) / k) / (alpha / k)


MISPRINTS: Sequence[Callable[[], tuple[Claim, dict[str, float]]]] = (
    classes,
    shifts,
    exponents,
    corrections,
)
"""What makes each claim, with its numbers."""
