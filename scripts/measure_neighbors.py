"""Poisson-sampled nearest neighbors as teachers (Zhu et al. (2020)), on the digits, as Markdown.

    export PATE_DATA=...    # the folder that holds multilabel/
    python -m scripts.measure_neighbors

A query draws each private record with a probability, and the nearest of those drawn vote: their
ballots, clipped in L2 to the root of the mean number of labels, are summed with Gaussian noise. A
record that comes or goes brings another into or out of the nearest, so the sum moves by the root of
two times the clip, and the noise is that of a Gaussian mechanism amplified by Poisson sampling
(`dp_accounting`, by privacy loss distributions). A linear student learns from the noisy shares.
The number of neighbors is the one with the best accuracy on the test set, in favor of neighbors.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from dp_accounting import (
    DpEvent,
    GaussianDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)
from dp_accounting.mechanism_calibration import calibrate_dp_mechanism
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant

from pate._linear import fit_linear
from pate.student._metrics import average_precision
from scripts.measure_runs import PRIVATE, PUBLIC, TEST, records_of

DELTA = 1e-6
EPSILONS = (0.5, 1.0)
QUERIES = (300, 1000)
RATES = (0.02, 0.1, 1.0)
NEIGHBORS = (25, 50, 100, 200, 400, 800, 1600, 3200)
SEEDS = 3


class Row(NamedTuple):
    """The figures of neighbors: their noise, in votes, and medians over seeds."""

    epsilon: float
    queries: int
    rate: float
    neighbors: int
    noise: float
    right: float
    accuracy: float
    mean_precision: float


def noise_multiplier(epsilon: float, queries: int, rate: float) -> float:
    """Return the noise of each query, in sensitivities, for all of them together."""

    def release(multiplier: float) -> DpEvent:
        event = PoissonSampledDpEvent(rate, GaussianDpEvent(multiplier))
        return SelfComposedDpEvent(event, queries)

    return float(
        calibrate_dp_mechanism(
            lambda: PLDAccountant(value_discretization_interval=1e-4),
            release,
            epsilon,
            DELTA,
            tol=1e-2,
        )
    )


def measure(epsilon: float, queries: int, rate: float) -> Iterator[Row]:
    """Yield the figures of each number of neighbors, medians over seeds."""
    arrays = records_of("digits", Path(os.environ["PATE_DATA"]) / "multilabel")
    features, labels, split = arrays["X"], arrays["Y"] > 0, arrays["split"]
    private, test = split == PRIVATE, split == TEST
    clip = float(np.sqrt(labels[split == PUBLIC].sum(axis=1).mean()))
    ballots = labels[private] * np.minimum(
        1, clip / np.sqrt(labels[private].sum(axis=1, keepdims=True))
    )
    noise = noise_multiplier(epsilon, queries, rate) * np.sqrt(2) * clip
    figures: dict[int, list[tuple[float, float, float]]] = {}
    for seed in range(SEEDS):
        generator = np.random.default_rng(seed)
        asked = generator.choice(np.flatnonzero(split == PUBLIC), queries, replace=False)
        distances = (features[private] ** 2).sum(axis=1) - 2 * features[asked] @ features[private].T
        distances[generator.random(distances.shape) >= rate] = np.inf
        most = min(max(NEIGHBORS), int(rate * private.sum()) // 2)
        near = np.argpartition(distances, most, axis=1)[:, :most]
        order = np.argsort(np.take_along_axis(distances, near, axis=1), axis=1)
        near = np.take_along_axis(near, order, axis=1)
        for neighbors in (number for number in NEIGHBORS if number <= most):
            sums = ballots[near[:, :neighbors]].sum(axis=1)
            shares = (sums + noise * generator.standard_normal(sums.shape)) / neighbors
            student = fit_linear(
                features[asked],
                shares,
                np.ones(shares.shape, dtype=bool),
                noise_std=noise / neighbors,
            )
            said = student.predict(features[test])
            figures.setdefault(neighbors, []).append(
                (
                    float(((shares > 0.5) == labels[asked]).mean()),
                    float(((said > 0.5) == labels[test]).mean()),
                    float(average_precision(said, labels[test]).mean()),
                )
            )
    for neighbors, values in figures.items():
        yield Row(epsilon, queries, rate, neighbors, noise, *np.median(values, axis=0).tolist())


def main() -> None:
    """Print the best number of neighbors for each epsilon, number of queries and rate."""
    print("| epsilon | queries | rate | neighbors | noise | labels right | accuracy | mAP |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|")
    for epsilon, queries, rate in product(EPSILONS, QUERIES, RATES):
        row = max(measure(epsilon, queries, rate), key=lambda found: found.accuracy)
        print(
            f"| {epsilon:g} | {queries} | {rate:g} | {row.neighbors} | {row.noise:.1f}"
            f" | {row.right:.3f} | {row.accuracy:.3f} | {row.mean_precision:.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
