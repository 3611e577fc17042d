"""Speed of the selection mechanisms: medians of processor times, as Markdown tables.

One draw of each mechanism from d = 17,770 scores, against the papers' pseudo-code in plain O(dk)
numpy; batches of votes against a Python loop of single calls; and draws of a release, whose noise
is exact, beside the same draw by plain numpy, whose noise is floats.
The scores are the Netflix vector of Shekelyan & Loukides (2022) if ``PATE_DATA`` names a
folder that holds ``topk/NETFLIX.n17770.npy``, or else a synthetic vector of the same length.

    python -m scripts.bench_mechanisms [--runs 7]
"""

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from pate import mechanisms as m
from pate._core.mechanisms.noise import ChoiceNoise
from pate.accounting import NeighboringRelation
from tests.core.mechanisms import oracles

NUM_ITEMS = 17_770
NUM_TEACHERS, NUM_QUERIES, NUM_LABELS, K = 200, 50_000, 40, 5
SCALE, MANY = 20.0, 1000  # of the noise; items of one long list that are chosen
SINGLES = 500  # rows of the loop of single calls
SLOW = 1.0  # seconds; slower calls run only once

Scores = NDArray[np.int64]
Array = NDArray[Any]
Draw = Callable[..., object]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the three tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=7, help="runs that a median is taken of")
    runs = parser.parse_args(arguments).runs
    scores, source = load_scores()
    threads = os.environ.get("OMP_NUM_THREADS", "all")
    print(f"Python {platform.python_version()}, numpy {np.__version__}, {threads} thread(s).")
    print(f"\nOne draw from {source}, milliseconds, sorting included.\n")
    print(table(("mechanism", "k", "here", "plain O(dk)", "ratio"), one_draw_rows(scores, runs)))
    print(
        f"\nBatches of {NUM_QUERIES:,} queries, {NUM_LABELS} labels, k = {K}, queries per second.\n"
    )
    print(table(("mechanism", "batch", "loop of single calls", "ratio"), batch_rows(runs)))
    print("\nDraws of a release beside numpy's, in turn, milliseconds.\n")
    cases = noise_cases(scores, source)
    rows = [[name, *milliseconds(here, plain, runs)] for name, here, plain in cases]
    print(table(("draw", "here, ms", "numpy, ms", "ratio"), rows))


def load_scores() -> tuple[Scores, str]:
    """Return the scores and their name."""
    path = Path(os.environ.get("PATE_DATA", "")) / "topk" / "NETFLIX.n17770.npy"
    if path.is_file():
        return np.load(path), f"NETFLIX, d = {NUM_ITEMS:,}"
    counts: Scores = np.rint(100_000 / np.arange(1, NUM_ITEMS + 1) ** 0.9).astype(np.int64)
    return m.seeded_generator(0).permutation(
        counts
    ), f"synthetic Zipf-like scores, d = {NUM_ITEMS:,}"


def one_draw_rows(scores: Scores, runs: int) -> list[list[str]]:
    """Time one draw of each mechanism at epsilon 1, for counts in a window of one vote."""
    generator = m.seeded_generator(0)
    peel = 1000.0  # of epsilon 1
    cases: list[tuple[str, int, Draw, Draw | None]] = [
        ("only sorting", 0, lambda: np.sort(scores), None)
    ]
    canonicals: list[tuple[int, float, ChoiceNoise]] = [
        (1000, 0.5, "gumbel"),
        (1000, 1.0, "gumbel"),
        (10, 0.5, "exponential"),
        (1000, 0.5, "exponential"),
    ]
    for k, gamma, noise in canonicals:
        canonical = m.CanonicalMechanism(k=k, scale=1.0, gamma=gamma, noise=noise)
        fast = partial(canonical, scores, generator=generator)
        plain = partial(oracles.canonical_slow, scores, k, 1.0, gamma, noise, generator)
        cases.append((f"canonical, gamma {gamma:g}, {noise} noise", k, fast, plain))
    for k in (10, 100, 1000):
        fast = partial(m.JointMechanism(k=k, scale=2.0), scores, generator=generator)
        cases.append(("joint", k, fast, partial(oracles.joint_slow, scores, k, 2.0, generator)))
    fast = partial(m.GumbelPeeling(k=1000, scale=peel), scores, generator=generator)
    cases.append(
        ("CDP-peel", 1000, fast, partial(oracles.cdp_peel_slow, scores, 1000, peel, generator))
    )
    fast = partial(m.NoisyTopK(k=1000, scale=peel, noise="laplace"), scores, generator=generator)
    cases.append(("one-shot set, Laplace noise", 1000, fast, None))
    rows = []
    for name, k, here, slow in cases:
        seconds = median_seconds(here, runs)
        row = [name, f"{k:,}" if k else "", f"{1e3 * seconds:.2f}", "", ""]
        if slow:
            slow_seconds = median_seconds(slow, runs)
            row[3:] = [f"{1e3 * slow_seconds:,.0f}", f"{slow_seconds / seconds:,.0f}"]
        rows.append(row)
    return rows


def batch_of_votes() -> Scores:
    """Return vote counts of a batch, whose noise is a tenth of the teachers."""
    generator = m.seeded_generator(1)
    rates = generator.beta(0.5, 2.0, size=(NUM_QUERIES, NUM_LABELS))
    votes: Scores = generator.binomial(NUM_TEACHERS, rates)
    return votes


STABLE: dict[str, Any] = {
    "num_teachers": NUM_TEACHERS,
    "num_labels": NUM_LABELS,
    "scale_gap": SCALE,
    "sigma_test": SCALE,
    "delta_test": 1e-6,
    "shift": 2,
}


def batch_rows(runs: int) -> list[list[str]]:
    """Time batches of vote counts."""
    generator, counts = m.seeded_generator(2), batch_of_votes()
    noise: dict[str, Any] = {"k": K, "scale": SCALE}
    bounded = noise | {"kbar": 10, "delta": 1e-6, "relation": NeighboringRelation.REPLACE_RECORD}
    z = -float(ndtri(STABLE["delta_test"]))
    mechanisms: list[tuple[str, m.Mechanism[object]]] = [
        ("StableTopK", m.StableTopKMechanism(**STABLE)),
        (
            "StableTopK with fixed k",
            m.FixedTopKMechanism(k=K, rank_penalty=1.0, scale_peel=20.0, **STABLE),
        ),
        ("one-shot Gumbel, set", m.NoisyTopK(**noise)),
        ("CDP-peel", m.GumbelPeeling(**noise)),
        ("PNF-peel", m.PermuteAndFlipPeeling(**noise)),
        ("canonical, gamma 0.5", m.CanonicalMechanism(**noise)),
        (
            "canonical, gamma 0.5, exponential noise",
            m.CanonicalMechanism(noise="exponential", **noise),
        ),
        ("joint", m.JointMechanism(**noise)),
        ("joint, exponential noise", m.JointMechanism(noise="exponential", **noise)),
        ("limited domain, kbar = 10", m.LimitedDomain(**bounded)),
    ]
    rows = []
    for name, made in mechanisms:
        mechanism = partial(made, generator=generator)
        batched = NUM_QUERIES / median_seconds(partial(mechanism, counts), runs)
        single = SINGLES / median_seconds(partial(loop, mechanism, counts), runs)
        rows.append([name, f"{batched:,.0f}", f"{single:,.0f}", f"{batched / single:,.0f}"])

    def plain(row: Scores) -> object:
        return oracles.stable_top_k_slow(row, NUM_TEACHERS, 20.0, 20.0, z, 2, generator)

    rate = SINGLES / median_seconds(partial(loop, plain, counts), runs)
    rows.append(["StableTopK, the paper's pseudo-code in plain Python", "", f"{rate:,.0f}", ""])
    return rows


def noise_cases(scores: Scores, source: str) -> list[tuple[str, Draw, Draw]]:
    """Return each draw here and by plain numpy."""
    generator, plain = m.private_generator(), np.random.default_rng(0)
    votes = batch_of_votes()
    counts: Array = np.arange(10**6) % 800

    def long_list() -> object:
        return top_set((scores + plain.gumbel(0, MANY, scores.shape))[None], MANY)

    def gumbel() -> Array:
        return votes + plain.gumbel(0, SCALE, votes.shape)

    def laplace() -> Array:
        return votes + plain.laplace(0, SCALE, votes.shape)

    def normal() -> Array:
        return counts + plain.normal(0, 80.0, counts.size)

    million: list[tuple[str, Draw]] = [
        ("Gaussian", partial(m.add_gaussian, counts, sigma=80.0)),
        ("Gaussian thresholds", partial(m.exceeds, counts, 400.0, sigma=80.0)),
    ]
    batches: list[tuple[str, m.Mechanism[Any], Draw]] = [
        ("NoisyTopK of one", m.NoisyTopK(k=1, scale=SCALE), lambda: gumbel().argmax(axis=1)),
        ("NoisyTopK", m.NoisyTopK(k=K, scale=SCALE), lambda: top_set(gumbel(), K)),
        ("GumbelPeeling", m.GumbelPeeling(k=K, scale=SCALE), lambda: top_list(gumbel(), K)),
        ("OneShotLaplace", m.OneShotLaplace(k=K, scale=SCALE), lambda: top_list(laplace(), K)),
        ("StableTopK", m.StableTopKMechanism(**STABLE), lambda: stable_sets(votes, plain)),
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
            (
                f"{name}, {NUM_QUERIES:,} rows of {NUM_LABELS}",
                partial(made, votes, generator=generator),
                other,
            )
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
    np.put_along_axis(members, order, (np.arange(NUM_LABELS) <= chosen[:, None]) & passed, axis=1)
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


def loop(mechanism: Callable[[Scores], object], counts: Scores) -> None:
    """Run a mechanism on the first rows one by one."""
    for row in counts[:SINGLES]:
        mechanism(row)


def median_seconds(draw: Draw, runs: int) -> float:
    """Return the median of ``runs`` timings after a first run, or the first where it is slow."""
    first = seconds(draw)
    return first if first > SLOW else statistics.median(seconds(draw) for _ in range(runs))


def seconds(draw: Draw) -> float:
    """Return the seconds of the processor that one draw takes."""
    start = time.process_time()
    draw()
    return time.process_time() - start


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table, numbers to the right."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, rule, *rows))


if __name__ == "__main__":
    main()
