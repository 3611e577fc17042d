"""Lipschitz mechanisms: add noise to every score once and report the largest.

Shekelyan & Loukides (2022), "Differentially private top-k selection via canonical Lipschitz mechanism".
"""

import numpy as np
from numpy.typing import ArrayLike

from pate.accounting.events import BoundedRangeEvent, Event, PureDPEvent, RepeatedEvent
from pate.accounting.relation import NeighboringRelation
from pate.mechanisms._scores import ROWS, IntArray, as_rows, expect_k, noisy_deficits
from pate.mechanisms.noise import Noise, expect_noise
from pate.validation import expect_count, expect_positive


def lipschitz_top_k(
    scores: ArrayLike, *, k: int = 1, scale: float, noise: Noise = "gumbel", generator: np.random.Generator
) -> IntArray:
    """Report the SET of the k largest of ``scores + scale * noise`` (one-shot).

    Args:
        scores: ``[d]`` or ``[B, d]``, integers or floats.
        k: size of the set, 1..d.
        scale: scale of the noise, in votes: ``k w / epsilon`` for a pure ``epsilon`` with scores that move in
        a window w.
        noise: ``gumbel``, ``exponential``, ``laplace``, ``logistic`` or ``half_logistic``.
        generator: source of the noise.

    Returns:
        Indices in ascending order, int64 ``[k]`` or ``[B, k]``. The order of the noisy scores is not
        released: the proof below is for the set.

    Privacy: `lipschitz_event`. Given the noise of the items left out, each member must exceed a threshold
    that moves by at most w against it, and the chance of that changes by a factor of ``exp(w / scale)`` at
    most.

    Raises:
        ValueError: on scores that are not finite, ``k`` outside 1..d, an unknown noise or ``scale <= 0``.
    """
    rows, single = as_rows(scores)
    expect_positive(scale=scale)
    expect_k(k, rows.shape[1])
    chosen = np.empty((len(rows), k), dtype=np.int64)
    for start in range(0, len(rows), ROWS):
        noisy = noisy_deficits(rows[start : start + ROWS], noise, scale, generator)
        if k == 1:
            chosen[start : start + ROWS, 0] = np.argmin(noisy, axis=1)
        else:
            chosen[start : start + ROWS] = np.argpartition(noisy, k - 1, axis=1)[:, :k]
    chosen.sort(axis=1)
    return chosen[0] if single else chosen


def lipschitz_event(*, noise: Noise, k: int = 1, scale: float, neighboring_relation: NeighboringRelation) -> Event:
    """Event of `lipschitz_top_k` on vote counts.

    Gumbel noise: k bounded-range choices of ``eta = w / scale`` (Durfee & Rogers (2019), Lemma 4.2; Dong,
    Durfee & Rogers (2020)). Any other noise: pure DP of ``k w / scale`` (Shekelyan & Loukides (2022)), with
    ``w`` the count window, 1 under ADD_REMOVE_TEACHER and 2 under REPLACE_RECORD.
    """
    relation = NeighboringRelation(neighboring_relation)
    expect_positive(scale=scale)
    expect_count(1, k=k)
    expect_noise(noise)
    eta = relation.count_window / scale
    if noise != "gumbel":
        return PureDPEvent(neighboring_relation=relation, epsilon=k * eta)
    choice = BoundedRangeEvent(neighboring_relation=relation, eta=eta)
    return choice if k == 1 else RepeatedEvent(event=choice, count=k)


def exponential_mechanism(scores: ArrayLike, *, scale: float, generator: np.random.Generator) -> IntArray:
    """Choose one item with probability proportional to ``exp(score / scale)`` (McSherry & Talwar (2007)).

    Shapes and errors as in `lipschitz_top_k`, without the last axis: ``[]`` or ``[B]``. Privacy:
    `lipschitz_event` with Gumbel noise.
    """
    return lipschitz_top_k(scores, scale=scale, noise="gumbel", generator=generator)[..., 0]


def permute_and_flip(scores: ArrayLike, *, scale: float, generator: np.random.Generator) -> IntArray:
    """Choose one item by permute-and-flip (McKenna & Sheldon (2020)), drawn as report-noisy-max with
    exponential noise.

    The two have one law (Ding et al. (2021)). Shapes and errors as in `exponential_mechanism`. Privacy:
    `lipschitz_event` with exponential noise.
    """
    return lipschitz_top_k(scores, scale=scale, noise="exponential", generator=generator)[..., 0]


def report_noisy_max(
    scores: ArrayLike, *, scale: float, noise: Noise = "laplace", generator: np.random.Generator
) -> IntArray:
    """Choose the item of the largest noisy score (Dwork & Roth (2014), Claim 3.9). Privacy:
    `lipschitz_event`.
    """
    return lipschitz_top_k(scores, scale=scale, noise=noise, generator=generator)[..., 0]


def one_shot_exponential_mechanism(
    scores: ArrayLike, *, k: int, scale: float, generator: np.random.Generator
) -> IntArray:
    """One-shot set with Gumbel noise: `pate.mechanisms.peeling.cdp_peel` without its order. See
    `lipschitz_top_k`.
    """
    return lipschitz_top_k(scores, k=k, scale=scale, noise="gumbel", generator=generator)


def one_shot_permute_and_flip(scores: ArrayLike, *, k: int, scale: float, generator: np.random.Generator) -> IntArray:
    """One-shot set with exponential noise. See `lipschitz_top_k`."""
    return lipschitz_top_k(scores, k=k, scale=scale, noise="exponential", generator=generator)


def scale_for_epsilon(epsilon: float, *, window: float, draws: int = 1) -> float:
    """Return the noise scale ``draws * window / epsilon`` at which a mechanism of this package is pure
    ``epsilon``-DP.

    ``draws`` is k for the one-shot and peeling mechanisms and 1 for the canonical and the joint one;
    ``window`` is the count window, or that of `pate.mechanisms.joint.joint_window`.
    """
    expect_positive(epsilon=epsilon, window=window)
    expect_count(1, draws=draws)
    return draws * window / epsilon
