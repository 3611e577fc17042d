"""The price of exactness: mechanisms beside the same draw by plain numpy, whose noise is floats.

python -m scripts.bench_noise [--runs 7]

Times are of the processor, in turn with numpy's, which draws from its own default generator. Noise
here is that of a release, from `pate.private_generator`. NETFLIX is read where ``PATE_DATA`` has it.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pate import mechanisms as m
from scripts.bench_mechanisms import load_scores, table

NUM = 10**6
ROWS, LABELS, K, TEACHERS, SCALE = 50_000, 40, 5, 200, 20.0
MANY = 1000  # items of one long list that are chosen

Draw = Callable[..., object]
Array = NDArray[Any]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=7, help="runs that a median is taken of")
    runs = parser.parse_args(arguments).runs
    rows = [[name, *milliseconds(here, plain, runs)] for name, here, plain in cases()]
    print(table(("draw", "here, ms", "numpy, ms", "ratio"), rows))


def cases() -> list[tuple[str, Draw, Draw]]:
    """Return each draw here and by plain numpy."""
    generator, plain = m.private_generator(), np.random.default_rng(0)
    seeded = m.seeded_generator(1)
    rates = seeded.beta(0.5, 2.0, size=(ROWS, LABELS))
    votes: Array = seeded.binomial(TEACHERS, rates)
    scores, source = load_scores()
    counts: Array = np.arange(NUM) % 800
    stable = m.StableTopKMechanism(
        num_teachers=TEACHERS,
        num_labels=LABELS,
        scale_gap=SCALE,
        sigma_test=SCALE,
        delta_test=1e-6,
        shift=2,
    )

    def long_list() -> object:
        return top_set((scores + plain.gumbel(0, MANY, scores.shape))[None], MANY)

    def gumbel() -> Array:
        return votes + plain.gumbel(0, SCALE, votes.shape)

    def laplace() -> Array:
        return votes + plain.laplace(0, SCALE, votes.shape)

    def normal() -> Array:
        return counts + plain.normal(0, 80.0, NUM)

    million: list[tuple[str, Draw]] = [
        ("Gaussian", partial(m.add_gaussian, counts, sigma=80.0)),
        ("Gaussian thresholds", partial(m.exceeds, counts, 400.0, sigma=80.0)),
    ]
    batches: list[tuple[str, m.Mechanism[Any], Draw]] = [
        ("NoisyMax", m.NoisyMax(scale=SCALE), lambda: gumbel().argmax(axis=1)),
        ("NoisyTopK", m.NoisyTopK(k=K, scale=SCALE), lambda: top_set(gumbel(), K)),
        ("GumbelPeeling", m.GumbelPeeling(k=K, scale=SCALE), lambda: top_list(gumbel(), K)),
        ("OneShotLaplace", m.OneShotLaplace(k=K, scale=SCALE), lambda: top_list(laplace(), K)),
        ("StableTopK", stable, lambda: stable_sets(votes, plain)),
    ]
    singles: list[tuple[str, m.Mechanism[Any]]] = [
        ("NoisyTopK", m.NoisyTopK(k=MANY, scale=MANY)),
        ("canonical, gamma 1", m.CanonicalMechanism(k=MANY, scale=1.0, gamma=1.0)),
        ("canonical, gamma 0.5", m.CanonicalMechanism(k=MANY, scale=1.0)),
    ]
    return [
        *(
            (f"{name}, a million", partial(draw, generator=generator), normal)
            for name, draw in million
        ),
        *(
            (f"{name}, {ROWS:,} rows of {LABELS}", partial(made, votes, generator=generator), other)
            for name, made, other in batches
        ),
        *(
            (f"{name}, {MANY:,} of {source}", partial(made, scores, generator=generator), long_list)
            for name, made in singles
        ),
    ]


def top_set(noisy: Array, k: int) -> Array:
    """Return the k largest of each row in ascending order of index."""
    return np.sort(np.argpartition(-noisy, k - 1, axis=1)[:, :k], axis=1)


def top_list(noisy: Array, k: int) -> Array:
    """Return the k largest of each row in descending order."""
    chosen = np.argpartition(-noisy, k - 1, axis=1)[:, :k]
    order = np.argsort(np.take_along_axis(-noisy, chosen, axis=1), axis=1)
    return np.take_along_axis(chosen, order, axis=1)


def stable_sets(votes: Array, plain: np.random.Generator) -> Array:
    """Return what `StableTopKMechanism` does, by floats."""
    order = np.argsort(-votes, axis=1)
    gaps = -np.diff(np.take_along_axis(votes, order, axis=1), axis=1)
    chosen = (gaps + plain.gumbel(0, SCALE, gaps.shape)).argmax(axis=1)
    widths = np.take_along_axis(gaps, chosen[:, None], axis=1)
    passed = widths + plain.normal(0, SCALE, widths.shape) > 5 * SCALE
    members = np.zeros(votes.shape, dtype=np.bool_)
    np.put_along_axis(members, order, (np.arange(LABELS) <= chosen[:, None]) & passed, axis=1)
    return members


def milliseconds(here: Draw, plain: Draw, runs: int) -> tuple[str, str, str]:
    """Return medians of both, in turn and after a first run, and their ratio."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(runs + 1):
        for draw, kept in zip((here, plain), times, strict=True):
            start = time.process_time()
            draw()
            kept.append(1e3 * (time.process_time() - start))
    one, other = (statistics.median(kept[1:]) for kept in times)
    return f"{one:.2f}", f"{other:.2f}", f"{one / other:.2f}"


if __name__ == "__main__":
    main()
