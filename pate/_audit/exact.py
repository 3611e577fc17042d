"""The exact leakage of one release on each canary, from the votes with either version of it.

Nothing is sampled. Chadha, Jagielski, Papernot, Choquette-Choo & Nasr (2024) audit private
prediction in this way, query by query.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.signal import fftconvolve
from scipy.special import ndtr, ndtri

from pate._validation import FloatArray
from pate.accounting._cost import gaussian_epsilon

Laws = tuple[FloatArray, FloatArray]
"""``[n, N]`` each: the chances of N outcomes of n steps, on votes and on their neighbors."""

_LOST = 0.01  # of epsilon, by rounding to the grid, unless the grid would have more cells than this
_CELLS = 2e7
_FFT_ERROR = 1e-14  # relative to the norms of both factors: far above the error of double precision
_LARGEST = 700.0  # epsilon: exp overflows beyond it


@dataclass(frozen=True)
class Exact:
    """The leakage of each answer of a release, and of all together, on the version of a canary.

    Attributes:
        steps: the number of answers: queries, or rounds of noisy sums.
        mean: the success rate of the best guess by one answer, on average over canaries and
            answers.
        largest: the largest success rate over canaries and answers.
        epsilon: the epsilon, at the delta of the statement, of all answers on the canary that they
            reveal most.
        paid: the epsilon that was paid for the release.
    """

    steps: int
    mean: float
    largest: float
    epsilon: float
    paid: float

    @classmethod
    def of_moves(cls, moves: FloatArray, *, paid: float, delta: float) -> Exact:
        """Return the leakage of Gaussian answers with ``moves`` ``[m, steps]`` in deviations."""
        right = ndtr(moves / 2)
        epsilon = gaussian_epsilon(delta, float(np.sqrt((moves**2).sum(axis=1)).max()))
        return cls(moves.shape[1], float(right.mean()), float(right.max()), epsilon, paid)

    @classmethod
    def of_laws(cls, pairs: Iterable[Laws], *, steps: int, paid: float, delta: float) -> Exact:
        """Return the leakage of answers with the laws ``pairs``, one of each canary.

        The canary that they reveal most is found by the Gaussian noise with the same success rate,
        answer by answer.
        """
        largest, most = 0.5, -1.0
        means, worst = [], None
        for pair in pairs:
            right = 0.5 + np.abs(pair[0] - pair[1]).sum(axis=1) / 4
            means.append(0.5 + float((right - 0.5).sum()) / steps)
            largest = max(largest, float(right.max(initial=0.5)))
            mu_squared = float((ndtri(np.minimum(right, 1 - 1e-12)) ** 2).sum())
            if mu_squared > most:
                most, worst = mu_squared, pair
        assert worst is not None, "there are canaries"
        return cls(steps, float(np.mean(means)), largest, joint_epsilon(*worst, delta=delta), paid)

    @property
    def refuted(self) -> bool:
        """Whether a canary leaks more than was paid; the margin is far above rounding errors."""
        return self.epsilon > self.paid * (1 + 1e-6)

    @property
    def text(self) -> str:
        """The largest epsilon and success rates in words."""
        return (
            f"epsilon = {self.epsilon:.3f} at least, where {self.paid:.3f} was paid; the best guess"
            f" by one of {self.steps} answers is right in {self.mean:.1%}, at most"
            f" {self.largest:.1%}"
        )


def joint_epsilon(p: FloatArray, q: FloatArray, *, delta: float) -> float:
    """Return the epsilon at ``delta > 0`` of independent answers with the laws p and q ``[n, N]``.

    Both orders of p and q count. Privacy losses are rounded to a grid, so that their sums are
    convolutions, and their means are kept (Gopi, Lee & Wutschitz (2021)). The result is a lower
    bound, `_LARGEST` at most. The possible excess by rounding, but for a thousandth of ``delta`` by
    Hoeffding's inequality, and by transforms is subtracted.
    """
    return max(_one_way(p, q, delta), _one_way(q, p, delta)) if len(p) else 0.0


def _one_way(p: FloatArray, q: FloatArray, delta: float) -> float:
    with np.errstate(divide="ignore", invalid="ignore"):
        losses = np.where(p > 0, np.log(p) - np.log(q), np.nan)
        only_p = np.minimum(np.where(losses == np.inf, p, 0.0).sum(axis=1), 1.0)  # sums err
        impossible = -math.expm1(float(np.log1p(-only_p).sum()))
    if impossible > delta:
        return _LARGEST
    shared = np.isfinite(losses)
    failing = delta / 1000
    deviations = math.sqrt(len(p) * math.log(1 / failing) / 2)
    spread = np.where(shared, losses, -np.inf).max(axis=1) - np.where(shared, losses, np.inf).min(
        axis=1
    )
    cell = max(_LOST / deviations, float(spread.sum()) / _CELLS)
    shift, parts, first = -cell * deviations, [], 0
    for chances, row, valid in zip(p, losses, shared, strict=True):
        places = np.rint(row[valid] / cell).astype(np.int64)
        shift += float(np.average(row[valid] - cell * places, weights=chances[valid]))
        first += int(places.min())
        parts.append(np.bincount(places - places.min(), weights=chances[valid]).astype(np.float64))
    masses, offset = _sum_of(parts)
    total = np.minimum(cell * (first + offset + np.arange(len(masses))) + shift, _LARGEST)
    masses, total = masses[total > 0], total[total > 0]
    # the mass of all losses from each on, under either law
    above, scaled = (np.cumsum(part[::-1])[::-1] for part in (masses, masses * np.exp(-total)))
    room = delta + failing - impossible
    if not len(total) or above[0] - scaled[0] <= room:
        return 0.0
    i = int(np.argmax(above - np.exp(total) * scaled <= room))
    return math.log((above[i] - room) / scaled[i])


def _sum_of(parts: list[FloatArray]) -> tuple[FloatArray, int]:
    """Return a lower bound on the law of a sum of independent places, and its first place."""
    if len(parts) == 1:
        return parts[0], 0
    (left, first), (right, second) = (
        _sum_of(parts[: len(parts) // 2]),
        _sum_of(parts[len(parts) // 2 :]),
    )
    error = _FFT_ERROR * np.linalg.norm(left) * np.linalg.norm(right)
    masses = np.maximum(fftconvolve(left, right) - error, 0.0)
    (kept,) = masses.nonzero()
    return masses[kept[0] : kept[-1] + 1], first + second + int(kept[0])
