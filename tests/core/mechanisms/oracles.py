"""Plain definitions: exact laws by enumeration, and the papers' O(dk) pseudo-code.

No fast path is shared
with the package.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, gammaln, ndtr, ndtri

Array = NDArray[Any]
Scores = Sequence[float] | Array

# exact laws


def softmax(utilities: Scores) -> Array:
    """Law of the exponential mechanism at scale 1."""
    u = np.asarray(utilities, dtype=float)
    mass: Array = np.exp(u - u.max())
    law: Array = mass / mass.sum()
    return law


def flip_law(utilities: Scores) -> Array:
    """Law of permute-and-flip at scale 1: item i comes at a uniform time s, when no coin before it
    showed heads.
    """
    u = np.asarray(utilities, dtype=float)
    p = np.exp(u - u.max())
    nodes, weights = np.polynomial.legendre.leggauss(len(p) // 2 + 1)
    s = (nodes + 1) / 2
    tails = 1 - p[:, None] * s
    return np.array(
        [p[i] * (weights / 2) @ np.prod(np.delete(tails, i, axis=0), axis=0) for i in range(len(p))]
    )


def flip_class_law(chances: Scores, sizes: Scores) -> Array:
    """Law of permute-and-flip over classes of equal items, by quadrature: ``sizes`` items of
    ``chances`` each."""
    p, n = np.asarray(chances, dtype=float), np.asarray(sizes, dtype=float)
    nodes, weights = np.polynomial.legendre.leggauss(24)
    # panels that halve toward 0, where the first of many items comes
    ends = np.append(0, 0.5 ** np.arange(60)[::-1])
    low, high = ends[:-1, None], ends[1:, None]
    s = ((low + high) / 2 + (high - low) / 2 * nodes).ravel()
    weights = ((high - low) / 2 * weights).ravel()
    still = np.log1p(-p[:, None] * s)
    law: Array = n * p * (np.exp(n @ still - still) @ weights)
    return law


def peel_law(
    scores: Scores, sequences: Sequence[tuple[int, ...]], choice: Callable[[Scores], Array]
) -> Array:
    """Law of rounds of ``choice`` without replacement."""

    @cache
    def rest(taken: frozenset[int]) -> dict[int, float]:
        left = [i for i in range(len(scores)) if i not in taken]
        return dict(zip(left, choice([scores[i] for i in left]), strict=True))

    return np.array(
        [math.prod(rest(frozenset(s[:i]))[s[i]] for i in range(len(s))) for s in sequences]
    )


def sets(num_items: int, k: int) -> list[tuple[int, ...]]:
    """All sets of size k."""
    return list(itertools.combinations(range(num_items), k))


def sequences(num_items: int, k: int) -> list[tuple[int, ...]]:
    """All ordered sequences of k distinct items."""
    return list(itertools.permutations(range(num_items), k))


# density, distribution and survival function of each noise
NOISES: dict[str, tuple[Callable[..., Array], ...]] = {
    "gumbel": (
        lambda z: np.exp(-z - np.exp(-z)),
        lambda z: np.exp(-np.exp(-z)),
        lambda z: -np.expm1(-np.exp(-z)),
    ),
    "exponential": (
        lambda z: np.where(z > 0, np.exp(-np.maximum(z, 0)), 0),
        lambda z: np.where(z > 0, -np.expm1(-np.maximum(z, 0)), 0),
        lambda z: np.where(z > 0, np.exp(-np.maximum(z, 0)), 1),
    ),
    "laplace": (
        lambda z: np.exp(-np.abs(z)) / 2,
        lambda z: np.where(z > 0, 1 - np.exp(-np.abs(z)) / 2, np.exp(-np.abs(z)) / 2),
        lambda z: np.where(z > 0, np.exp(-np.abs(z)) / 2, 1 - np.exp(-np.abs(z)) / 2),
    ),
    "logistic": (lambda z: expit(z) * expit(-z), expit, lambda z: expit(-z)),
    "half_logistic": (
        lambda z: np.where(z > 0, 2 * expit(z) * expit(-z), 0),
        lambda z: np.where(z > 0, 2 * expit(z) - 1, 0),
        lambda z: np.where(z > 0, 2 * expit(-z), 1),
    ),
    "gaussian": (lambda z: np.exp(-z * z / 2) / math.sqrt(2 * math.pi), ndtr, lambda z: ndtr(-z)),
}


def _panels(kinks: Scores) -> tuple[Array, Array]:
    """Nodes and weights of a quadrature over the real line, smooth between the kinks."""
    kinks = sorted(set(kinks))
    steps = [0.5, 1, 2, 3, 4.5, 6, 9, 13, 20, 40]
    ends = sorted({*kinks, *(kinks[0] - s for s in steps), *(kinks[-1] + s for s in steps)})
    nodes, weights = np.polynomial.legendre.leggauss(24)
    low, high = np.array(ends[:-1])[:, None], np.array(ends[1:])[:, None]
    return ((low + high) / 2 + (high - low) / 2 * nodes).ravel(), (
        (high - low) / 2 * weights
    ).ravel()


def one_shot_set_law(scores: Scores, k: int, noise: str) -> Array:
    """Law of the SET of the k largest of scores with noise of scale 1."""
    x = np.asarray(scores, dtype=float)
    rest = tuple(sorted(x.tolist()))
    return np.array(
        [
            _set_chance(rest, tuple(sorted(x[list(members)].tolist())), noise)
            for members in sets(len(x), k)
        ]
    )


@cache
def _set_chance(scores: tuple[float, ...], members: tuple[float, ...], noise: str) -> float:
    """Chance that all members exceed the largest of the others, which depends on nothing but their
    scores."""
    f, cdf, survival = NOISES[noise]
    others = _without(scores, members)
    if not others:
        return 1.0
    z, weights = _panels([score for score in scores if math.isfinite(score)])
    below = [cdf(z - score) for score in others]
    density = sum(
        f(z - score) * np.prod(below[:j] + below[j + 1 :], axis=0) for j, score in enumerate(others)
    )
    return float(weights @ (density * np.prod([survival(z - score) for score in members], axis=0)))


def _without(scores: tuple[float, ...], members: tuple[float, ...]) -> list[float]:
    others = list(scores)
    for score in members:
        others.remove(score)
    return others


def max_law(scores: Scores, noise: str) -> Array:
    """Law of report-noisy-max at scale 1; minus infinity rules an item out."""
    x = np.asarray(scores, dtype=float)
    law = np.zeros(len(x))
    finite = np.flatnonzero(np.isfinite(x))
    law[finite] = one_shot_set_law(x[finite], 1, noise) if finite.size > 1 else 1.0
    return law


def one_shot_order_law(scores: Scores, k: int, noise: str) -> Array:
    """Law of the ORDERED k largest of scores with noise of scale 1."""
    x = np.asarray(scores, dtype=float)
    rest = tuple(sorted(x.tolist()))
    return np.array(
        [_order_chance(rest, tuple(x[list(s)].tolist()), noise) for s in sequences(len(x), k)]
    )


@cache
def _order_chance(scores: tuple[float, ...], chosen: tuple[float, ...], noise: str) -> float:
    """Chance of an order by nested integrals over a fine grid; it depends on nothing but the scores
    in their order."""
    f, cdf, _ = NOISES[noise]
    # a whole number of steps between any two scores, and no node on a kink
    step = 1 / 96
    z = scores[0] + np.arange(-30 / step, (scores[-1] - scores[0] + 30) / step) * step + step / 2
    below = np.prod(
        [np.ones_like(z), *(cdf(z - score) for score in _without(scores, chosen))], axis=0
    )
    for score in reversed(chosen):
        mass = f(z - score) * below * step
        below = np.cumsum(mass) - mass / 2
    return float(mass.sum())


def subset_utilities(scores: Scores, k: int, gamma: float, loss: str = "lead") -> Array:
    """Utility of every k-subset for the canonical mechanism: by our loss, or by that of Shekelyan &
    Loukides (2022)."""
    x = list(scores)
    if loss == "lead":
        return np.array(
            [
                gamma * min(x[i] for i in s)
                - (1 - gamma) * max(x[j] for j in range(len(x)) if j not in s)
                for s in sets(len(x), k)
            ]
        )
    # their Algorithm 1: by head and tail, the top-k being that of head k - 1 and tail k
    order = ranks(x)
    utilities = []
    for s in sets(len(x), k):
        places = sorted(order.index(i) for i in s)
        head = min(next((h for h in range(k) if places[h] != h), k), k - 1)
        utilities.append(gamma * x[order[places[-1]]] - (1 - gamma) * x[order[head]])
    return np.array(utilities)


def sequence_losses(scores: Scores, k: int) -> Array:
    """Loss of every k-sequence for the joint mechanism."""
    x = list(scores)
    best = sorted(x, reverse=True)
    return np.array([max(best[i] - x[s[i]] for i in range(k)) for s in sequences(len(x), k)])


def ranks(scores: Scores) -> list[int]:
    """Indices in descending order of score, ties by index."""
    return sorted(range(len(scores)), key=lambda i: (-scores[i], i))


def gaps(scores: Scores, upper: float) -> list[float]:
    """Gaps between sorted counts with the sentinels ``upper`` and 0."""
    h = [upper, *(scores[i] for i in ranks(scores)), 0]
    return [h[j] - h[j + 1] for j in range(len(h) - 1)]


def majority_gaps(scores: Scores, upper: float, weight: int) -> list[float]:
    """Gaps between sorted counts, and in place of the sentinels how far majorities are against all
    and for all."""
    h = sorted(scores, reverse=True)
    inner = [h[j] - h[j + 1] for j in range(len(h) - 1)]
    return [weight * (upper / 2 - h[0]), *inner, weight * (h[-1] - upper / 2)]


def laplace_panels(scale: float, kinks: Scores) -> tuple[Array, Array]:
    """Nodes and probability weights of Laplace noise of ``scale``, smooth between the kinks."""
    z, weights = _panels([0.0, *(k / scale for k in kinks)])
    return z * scale, weights * NOISES["laplace"][0](z)


# the papers' pseudo-code, O(dk), for one row: what speed is measured against


def canonical_slow(
    scores: Array,
    k: int,
    scale: float,
    gamma: float,
    noise: str,
    generator: np.random.Generator,
    loss: str = "lead",
) -> list[int]:
    """Shekelyan & Loukides (2022): for every class the largest noise of its members, then a uniform member.

    The loss is ours, or theirs if ``loss`` is ``published``.
    """
    order = np.argsort(-scores, kind="stable")
    x = scores[order].astype(float)
    d = len(x)
    log_factorial = gammaln(np.arange(1, d + 1))
    tails = np.arange(k + 1, d + 1)
    head, tail = k, k
    outside = x[k] if loss == "lead" else x[k - 1]
    best = (gamma * x[k - 1] - (1 - gamma) * outside) / scale + _largest_of(
        np.zeros(1), noise, generator
    )[0]
    for h in range(k):
        log_sizes = (
            log_factorial[tails - h - 2] - log_factorial[k - h - 1] - log_factorial[tails - k - 1]
        )
        noisy = (gamma * x[k:] - (1 - gamma) * x[h]) / scale + _largest_of(
            log_sizes, noise, generator
        )
        place = int(np.argmax(noisy))
        if noisy[place] > best:
            head, tail, best = h, k + 1 + place, noisy[place]
    if tail == k:
        return [int(i) for i in order[:k]]
    body = generator.choice(np.arange(head + 1, tail - 1), size=k - head - 1, replace=False)
    return [int(order[i]) for i in (*range(head), *body, tail - 1)]


def _largest_of(log_sizes: Array, noise: str, generator: np.random.Generator) -> Array:
    """The largest of ``exp(log_sizes)`` draws of noise, for each size."""
    y = np.log(generator.standard_exponential(log_sizes.shape)) - log_sizes
    # far below zero the two are one
    largest: Array = np.where(y < -40, -y, -np.log(-np.expm1(-np.exp(np.maximum(y, -40)))))
    return -y if noise == "gumbel" else largest


def joint_slow(scores: Array, k: int, scale: float, generator: np.random.Generator) -> list[int]:
    """Gillenwater et al. (2022), Algorithm 1: all d k losses sorted, their counts of sequences, a
    draw, a sequence.
    """
    order = np.argsort(-scores, kind="stable")
    c = scores[order].astype(float)
    d = len(c)
    places, ranks = np.arange(k)[:, None], np.arange(d)[None, :]
    # tie-breaking terms make all losses distinct, so that each is the loss of a well-defined number
    # of sequences
    losses = c[:k, None] - c + 1e-6 * (d * (k - places) - d + ranks) / (d * k)
    entries = np.flatnonzero(ranks >= places)
    entries = entries[np.argsort(losses.ravel()[entries], kind="stable")]
    place, rank = np.divmod(entries, d)
    old = np.log(np.maximum(rank - place, 1))
    rise = np.log(rank - place + 1) - old
    log_sizes = np.cumsum(rise) - rise - old
    log_sizes[np.cumsum(rank == place) < k] = -np.inf
    last = int(
        np.argmax(log_sizes - losses.ravel()[entries] / scale + generator.gumbel(size=entries.size))
    )
    reach = np.bincount(place[: last + 1], minlength=k) + np.arange(k)
    fixed = int(place[last])
    chosen = {fixed: int(rank[last])}
    for i in range(k):
        while i not in chosen:
            candidate = int(generator.integers(reach[i]))
            if candidate not in chosen.values():
                chosen[i] = candidate
    return [int(order[chosen[i]]) for i in range(k)]


def cdp_peel_slow(scores: Array, k: int, scale: float, generator: np.random.Generator) -> list[int]:
    """Peeling with Gumbel noise: k passes over d items."""
    return _peel_slow(scores, k, scale, lambda size: generator.gumbel(size=size))


def _peel_slow(scores: Array, k: int, scale: float, noise: Callable[[int], Array]) -> list[int]:
    left = scores / scale
    chosen: list[int] = []
    for _ in range(k):
        chosen.append(int(np.argmax(left + noise(left.size))))
        left[chosen[-1]] = -np.inf
    return chosen


def stable_top_k_slow(
    counts: Array,
    upper: int,
    scale: float,
    sigma: float,
    z: float,
    shift: int,
    generator: np.random.Generator,
) -> list[int] | None:
    """Zhu & Wang (2022), Algorithm 2, with majorities for none and all, for one row."""
    order = ranks(counts.tolist())
    q = majority_gaps(counts.tolist(), upper, shift)
    k = max(range(len(q)), key=lambda j: q[j] - scale * math.log(generator.standard_exponential()))
    passed = max(shift, q[k]) + sigma * generator.standard_normal() - z * sigma > shift
    return order[:k] if passed else None


def passing(gap: float, shift: float, sigma: float, delta: float) -> float:
    """Return the chance of passing a stability test."""
    return float(ndtr((max(gap, shift) - shift) / sigma + ndtri(delta)))
