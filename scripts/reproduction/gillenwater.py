"""Gillenwater et al. (2022): errors of the joint mechanism and its rivals on vectors of counts, trial by trial."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pate._core.validation import BoolArray, FloatArray, IntArray, stage_bar
from pate.accounting import NeighboringRelation, RDPAccountant
from pate.mechanisms import (
    GumbelPeeling,
    JointMechanism,
    OneShotLaplace,
    PermuteAndFlipPeeling,
    joint_window,
)
from scripts.reproduction.canonical_classes import good_bounds, great_bounds
from scripts.reproduction.findings import Claim, Effort, Finding, Reason, Row

PAPER = (
    "Gillenwater, Joseph, Munoz Medina & Ribero (2022), A joint"
    " exponential mechanism for differentially private top-k"
)
EPSILON, DELTA = 1.0, 1e-6
RELATION = NeighboringRelation.ADD_REMOVE_TEACHER
SIZES = range(5, 205, 10)
"""The sizes of the paper's experiments."""

VECTORS = {
    "BOOKS": "BOOKS_goodreads_ratings_count.npy",
    "GAMES": "GAMES_steam_play_users.npy",
    "NETFLIX": "NETFLIX.n17770.npy",
}
"""Files of the folder ``topk``: other releases of the paper's books and games, and films in place of its films."""

DATA = (
    "Counts: BOOKS is another release of the paper's set (13,719 books for its 11,000+), GAMES counts the users who"
    " play a game (3,600 games) where the paper counts purchases (5,000+ games), and NETFLIX (17,770 films) stands in"
    " for its 62,000+ movies; its foods, news and tweets are not among the data. So shapes are compared, not numbers."
)
"""Which counts these are, for a reader."""

QUANTILES = {"low": 0.25, "median": 0.5, "high": 0.75}

Draw = Callable[[IntArray, int, np.random.Generator], IntArray]


@dataclass(frozen=True)
class Rival:
    """A mechanism of the comparison.

    Attributes:
        name: as the paper has it.
        draw: returns sequences of k items, ``[B, k]``, given counts ``[B, d]``, k and a generator.
    """

    name: str
    draw: Draw


def load(effort: Effort) -> dict[str, IntArray]:
    """Return the counts by vector, int64.

    Raises:
        MissingDataError: if a file is not there.
    """
    return {
        name: np.load(effort.path(f"topk/{file}")).astype(np.int64)
        for name, file in VECTORS.items()
    }


def _joint(counts: IntArray, k: int, generator: np.random.Generator) -> IntArray:
    scale = joint_window(k=k, relation=RELATION) / EPSILON
    return JointMechanism(k=k, scale=scale)(counts, generator=generator)


def _cdp_peel(counts: IntArray, k: int, generator: np.random.Generator) -> IntArray:
    return GumbelPeeling(k=k, scale=1 / round_epsilon(k))(counts, generator=generator)


def _pnf_peel(counts: IntArray, k: int, generator: np.random.Generator) -> IntArray:
    return PermuteAndFlipPeeling(k=k, scale=k / EPSILON)(counts, generator=generator)


def _laplace(counts: IntArray, k: int, generator: np.random.Generator) -> IntArray:
    return OneShotLaplace(k=k, scale=k / EPSILON)(counts, generator=generator)


def _gamma(counts: IntArray, k: int, generator: np.random.Generator) -> IntArray:
    # Steinke & Ullman (2015), Theorem 4.1: a radius of a gamma law, and a point of the cube
    radii = generator.gamma(counts.shape[1] + 1, 1 / EPSILON, size=(len(counts), 1))
    noisy = counts + radii * generator.uniform(-1, 1, size=counts.shape)
    largest = np.argpartition(-noisy, k - 1, axis=1)[:, :k]
    order = np.argsort(-np.take_along_axis(noisy, largest, axis=1), axis=1)
    return np.take_along_axis(largest, order, axis=1)


RIVALS = (
    Rival("joint", _joint),
    Rival("CDP-peel", _cdp_peel),
    Rival("PNF-peel", _pnf_peel),
    Rival("Laplace", _laplace),
    Rival("gamma", _gamma),
)


def round_epsilon(k: int) -> float:
    """Return the epsilon of each of k rounds of CDP-peel at `EPSILON` and `DELTA`, as the paper has it.

    k choices of bounded range e are ``k e^2 / 8``-zCDP, and rho-zCDP is
    ``(rho + 2 sqrt(rho log(1 / delta)), delta)``-DP; or pure ``k e``, if that is better.
    """
    log_delta = math.log(1 / DELTA)
    return max(
        EPSILON / k,
        (math.sqrt(8 * (log_delta + EPSILON)) - math.sqrt(8 * log_delta)) / math.sqrt(k),
    )


def trial_rows(
    name: str,
    counts: IntArray,
    sizes: Sequence[int],
    trials: int,
    effort: Effort,
    done: Callable[[], object],
) -> list[Row]:
    """Return quantiles of all errors over the trials, a row for each k and rival; ``done`` is called after each k."""
    batch = np.broadcast_to(counts, (trials, counts.size))
    vector = list(VECTORS).index(name)
    rows: list[Row] = []
    for k in sizes:
        for place, rival in enumerate(RIVALS):
            chosen = rival.draw(batch, k, effort.generator(vector, k, place))
            errors = {error: measure(batch, chosen) for error, measure in ERRORS.items()}
            row: dict[str, str | int | float] = {"vector": name, "k": k}
            row |= {"mechanism": rival.name, "trials": trials}
            for error, values in errors.items():
                for quantile, share in QUANTILES.items():
                    row[f"{error}_{quantile}"] = float(np.quantile(values, share))
            rows.append(row)
        done()
    return rows


class Grade(NamedTuple):
    """Grades of subsets (Shekelyan & Loukides (2022), 7.2, A.2), each ``[]`` or ``[B]``."""

    top: BoolArray
    """It is the top-k."""
    great: BoolArray
    """It has the best ``ceil(k / 10)`` items and none of rank beyond ``1.1 k``."""
    good: BoolArray
    """It has the best ``ceil(k / 100)`` items and none of rank beyond ``1.5 k``."""


def grade(scores: ArrayLike, chosen: ArrayLike) -> Grade:
    """Grade subsets ``[k]`` or ``[B, k]`` of items, ties ranked by index."""
    order = np.argsort(-np.asarray(scores, dtype=np.float64), axis=-1, kind="stable")
    places = np.sort(
        np.take_along_axis(np.argsort(order, axis=-1), np.asarray(chosen), axis=-1), axis=-1
    )
    k = places.shape[-1]
    ends = ((k, k), great_bounds(k), good_bounds(k))
    return Grade(
        *((places[..., head - 1] == head - 1) & (places[..., -1] < tail) for head, tail in ends)
    )


def linf_error(scores: ArrayLike, chosen: ArrayLike) -> FloatArray:
    """Return the largest ``abs(x_(i) - x_{s_i})`` of a sequence.

    Gillenwater et al. (2022), Definition 2.2, as the next two.
    """
    best, found = _ranked(scores, chosen)
    return np.asarray(np.abs(best - found).max(axis=-1))


def l1_error(scores: ArrayLike, chosen: ArrayLike) -> FloatArray:
    """Return the sum of ``abs(x_(i) - x_{s_i})`` over a sequence."""
    best, found = _ranked(scores, chosen)
    return np.asarray(np.abs(best - found).sum(axis=-1))


def k_relative_error(scores: ArrayLike, chosen: ArrayLike) -> FloatArray:
    """Return the largest ``x_(k) - x_{s_i}`` of a set or sequence, at least 0."""
    best, found = _ranked(scores, chosen)
    return np.asarray(np.maximum((best[..., -1:] - found).max(axis=-1), 0.0))


def _ranked(scores: ArrayLike, chosen: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return the k largest scores, descending, and those that were chosen."""
    rows, items = np.asarray(scores, dtype=np.float64), np.asarray(chosen)
    best = -np.sort(-rows, axis=-1)[..., : items.shape[-1]]
    return best, np.take_along_axis(rows, items, axis=-1)


ERRORS: dict[str, Callable[[IntArray, IntArray], FloatArray]] = {
    "l_inf": linf_error,
    "l_1": l1_error,
    "k_relative": k_relative_error,
}


_SETTINGS = (
    "Epsilon 1 for neighbors that differ by adding or removing one user, who adds at most 1 to each count"
    " (ADD_REMOVE_TEACHER); CDP-peel has delta 1e-6, all others delta 0."
)


def errors(effort: Effort) -> Finding:
    """Make the figures of errors against k."""
    sizes = SIZES if effort.full else SIZES[::2]
    trials = effort.trials(20, 50)
    rows: list[Row] = []
    with stage_bar(len(VECTORS) * len(sizes), "errors", unit="size") as bar:
        for name, counts in load(effort).items():
            rows += trial_rows(name, counts, sizes, trials, effort, bar.update)
    return Finding(
        title="Figures 1, 5 and 6: errors of joint, CDP-peel, PNF-peel, Laplace and gamma against k",
        paper=PAPER,
        method=f"{DATA} {_SETTINGS} {trials} trials for each k and mechanism.",
        claims=(
            *(_pure_claim(rows, error) for error in ERRORS),
            _moderate_claim(rows),
            _dominated_claim(rows),
            _round_claim(sizes),
        ),
        rows=rows,
    )


def _medians(rows: Sequence[Row], error: str) -> dict[tuple[str, int], dict[str, float]]:
    medians: dict[tuple[str, int], dict[str, float]] = {}
    for row in rows:
        medians.setdefault((str(row["vector"]), int(row["k"])), {})[str(row["mechanism"])] = float(
            row[f"{error}_median"]
        )
    return medians


def _pure_claim(rows: Sequence[Row], error: str) -> Claim:
    medians = _medians(rows, error)
    pure = ("PNF-peel", "Laplace", "gamma")
    ahead = [median["joint"] <= min(median[name] for name in pure) for median in medians.values()]
    lost = sorted({name for (name, _), ok in zip(medians, ahead, strict=True) if not ok})
    at = {name: medians[name, max(k for _, k in medians)] for name in VECTORS}
    return Claim(
        where=f"Section 5 and figures of errors, {error}",
        published='"almost always improves on existing pure DP methods"',
        ours=f"joint has the least median of the pure ones in {sum(ahead)} of {len(ahead)} places (vector, k)",
        reason=Reason.OTHER_DATA if sum(ahead) >= 0.9 * len(ahead) else Reason.NOT_AT_HAND,
        why="other counts than theirs; "
        + ("the other places are all of " + ", ".join(lost) + "; " if lost else "")
        + f"medians of joint and PNF-peel at k = {max(k for _, k in medians)}: "
        + ", ".join(
            f"{name} {median['joint']:,.0f} and {median['PNF-peel']:,.0f}"
            for name, median in at.items()
        ),
        headline=error == "l_inf",
    )


def _moderate_claim(rows: Sequence[Row]) -> Claim:
    medians = _medians(rows, "l_inf")
    last = {
        name: max(
            (
                k
                for (v, k), median in medians.items()
                if v == name and median["joint"] < median["CDP-peel"]
            ),
            default=0,
        )
        for name in VECTORS
    }
    return Claim(
        where="abstract and 4.3.1, against CDP-peel",
        published='"improves upon even approximate differential privacy methods for moderate k"',
        ours="its median largest error is the smaller up to k = "
        + ", ".join(f"{k} ({v})" for v, k in last.items()),
        reason=Reason.OTHER_DATA
        if 5 < last["GAMES"] < min(last["BOOKS"], last["NETFLIX"])
        else Reason.NOT_AT_HAND,
        why="other counts than theirs; the largest k of the grid at which the median of joint is below that of"
        " CDP-peel, 0 if at none; longer, as in 4.3.1, where gaps are large. CDP-peel has delta 1e-6, joint delta 0",
        headline=True,
    )


def _dominated_claim(rows: Sequence[Row]) -> Claim:
    medians = _medians(rows, "l_inf")
    pairs = (("PNF-peel", "gamma"), ("CDP-peel", "Laplace"))
    ahead = {
        pair: sum(median[pair[0]] <= median[pair[1]] for median in medians.values())
        for pair in pairs
    }
    return Claim(
        where="C.3 and Figure 6",
        published='gamma and Laplace "are respectively dominated by PNF-Peel and CDP-Peel", on movies',
        ours=", ".join(
            f"{better} at most {worse} in {ahead[better, worse]}" for better, worse in pairs
        )
        + f" of {len(medians)} places",
        reason=Reason.OTHER_DATA
        if min(ahead.values()) >= 0.9 * len(medians)
        else Reason.NOT_AT_HAND,
        why="other counts than theirs; medians of the largest error at each vector and k; at NETFLIX, in place of"
        " movies, "
        + ", ".join(
            f"{sum(m[better] <= m[worse] for (v, _), m in medians.items() if v == 'NETFLIX')} for {better}"
            for better, worse in pairs
        )
        + f" of {sum(v == 'NETFLIX' for v, _ in medians)}",
    )


def _round_claim(sizes: Sequence[int]) -> Claim:
    k = sizes[-1]
    accountant = RDPAccountant(relation=RELATION)
    accountant.compose(GumbelPeeling(k=k, scale=1 / round_epsilon(k)).event(RELATION))
    spent = accountant.get_epsilon(delta=DELTA)
    return Claim(
        where="Lemma 4.2, CDP-peel",
        published="k choices are CDP by their bounded range, and (epsilon, delta)-DP by Bun & Steinke (2016), Proposition 1.3",
        ours=f"{k} choices of {round_epsilon(k):.5f} each, for epsilon {EPSILON:g}, cost epsilon {spent:.4f} at delta"
        f" {DELTA:g}",
        reason=Reason.NONE if spent <= EPSILON else Reason.REFUTED,
        why=f"{k} x {round_epsilon(k):.5f}^2 / 8 = {k * round_epsilon(k) ** 2 / 8:.5f} = rho, and rho + 2 sqrt(rho"
        " log(1 / delta)) = 1, as in the authors' code: the formula is missing in the text that was read. By the"
        f" conversion of Canonne, Kamath & Steinke (2020) the same noise costs {1 - spent:.1%} less, so that CDP-peel"
        " could be somewhat better than drawn",
    )
