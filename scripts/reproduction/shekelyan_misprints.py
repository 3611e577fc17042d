"""Misprints of Shekelyan & Loukides (2022): as printed, as the text around it reads, and computed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from scripts.reproduction.findings import Claim, Reason


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
