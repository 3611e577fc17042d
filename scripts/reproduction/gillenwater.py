"""Gillenwater et al. (2022): errors of the joint mechanism and its rivals on vectors of counts, trial by trial."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pate._core.validation import FloatArray, IntArray
from pate.accounting import NeighboringRelation
from pate.mechanisms import (
    GammaCounts,
    GumbelPeeling,
    JointMechanism,
    OneShotLaplace,
    PermuteAndFlipPeeling,
    joint_window,
    scale_for_epsilon,
)
from scripts.reproduction.findings import Effort, Row
from scripts.reproduction.measures import k_relative_error, l1_error, linf_error

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

ERRORS: dict[str, Callable[[IntArray, IntArray], FloatArray]] = {
    "l_inf": linf_error,
    "l_1": l1_error,
    "k_relative": k_relative_error,
}
QUANTILES = {"low": 0.25, "median": 0.5, "high": 0.75}

Draw = Callable[[IntArray, int, np.random.Generator], IntArray]


@dataclass(frozen=True)
class Rival:
    """A mechanism of the comparison.

    Attributes:
        name: as the paper has it.
        color: of its curves.
        draw: returns sequences of k items, ``[B, k]``, given counts ``[B, d]``, k and a generator.
    """

    name: str
    color: str
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
    scale = scale_for_epsilon(EPSILON, window=joint_window(k=k, relation=RELATION))
    return JointMechanism(k=k, scale=scale)(counts, generator=generator)


def _cdp_peel(counts: IntArray, k: int, generator: np.random.Generator) -> IntArray:
    return GumbelPeeling(k=k, scale=1 / round_epsilon(k))(counts, generator=generator)


def _pnf_peel(counts: IntArray, k: int, generator: np.random.Generator) -> IntArray:
    return PermuteAndFlipPeeling(k=k, scale=k / EPSILON)(counts, generator=generator)


def _laplace(counts: IntArray, k: int, generator: np.random.Generator) -> IntArray:
    return OneShotLaplace(k=k, scale=k / EPSILON)(counts, generator=generator)


def _gamma(counts: IntArray, k: int, generator: np.random.Generator) -> IntArray:
    noisy = GammaCounts(scale=1 / EPSILON)(counts, generator=generator)
    largest = np.argpartition(-noisy, k - 1, axis=1)[:, :k]
    order = np.argsort(-np.take_along_axis(noisy, largest, axis=1), axis=1)
    return np.take_along_axis(largest, order, axis=1)


RIVALS = (
    Rival("joint", "#cc3377", _joint),
    Rival("CDP-peel", "#2299dd", _cdp_peel),
    Rival("PNF-peel", "#663399", _pnf_peel),
    Rival("Laplace", "#117733", _laplace),
    Rival("gamma", "#e69900", _gamma),
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


def error_place(counts: IntArray, chosen: IntArray) -> IntArray:
    """Return the first place ``[B]``, from 1, at which ``c_(i) - c_{s_i}`` is largest, for sequences ``[B, k]``."""
    best = -np.sort(-counts, axis=1)[:, : chosen.shape[1]]
    place: IntArray = np.argmax(best - np.take_along_axis(counts, chosen, axis=1), axis=1) + 1
    return place


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
            errors["place"] = error_place(batch, chosen).astype(np.float64)
            row: dict[str, str | int | float] = {
                "vector": name,
                "k": k,
                "mechanism": rival.name,
                "trials": trials,
            }
            for error, values in errors.items():
                for quantile, share in QUANTILES.items():
                    row[f"{error}_{quantile}"] = float(np.quantile(values, share))
            rows.append(row)
        done()
    return rows
