"""What one release leaks of each canary, computed from the votes with its one version and with its other: no sampling.

Chadha, Jagielski, Papernot, Choquette-Choo & Nasr (2024) audit private prediction so, query by query.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pate._typing import FloatArray
from pate.accounting._gaussian import gaussian_epsilon


@dataclass(frozen=True)
class Exact:
    """By how many standard deviations of its noise each Gaussian step of a release moves when a canary is turned.

    Attributes:
        steps: how many steps there are: queries whose counts are noisy, or rounds of noisy sums.
        mean: the ``mu`` of a step, on average over canaries and steps.
        largest: the largest one.
        mu: that of all steps together, for the canary of which most is told.
        epsilon: the epsilon at the delta of the statement that belongs to ``mu``.
        paid: the epsilon that was paid for the release.
    """

    steps: int
    mean: float
    largest: float
    mu: float
    epsilon: float
    paid: float

    @classmethod
    def of(cls, moves: FloatArray, *, paid: float, delta: float) -> Exact:
        """Return what moves ``[m, steps]`` of canaries say of a release for which an epsilon of ``paid`` is paid."""
        mu = float(np.sqrt((moves**2).sum(axis=1)).max())
        return cls(moves.shape[1], float(moves.mean()), float(moves.max()), mu, gaussian_epsilon(delta, mu), paid)

    @property
    def refuted(self) -> bool:
        """Whether a canary leaks more than was paid for; float arithmetic errs by far less than the margin."""
        return self.epsilon > self.paid * (1 + 1e-6)

    @property
    def text(self) -> str:
        """All figures in words."""
        return (
            f"Exactly, if the noise is what it should be: where a canary is turned, each of {self.steps} noisy answers"
            f" moves\nby {self.mean:.3f} of its standard deviations on average, and by {self.largest:.3f} at most;"
            f" together these answers leak\nepsilon = {self.epsilon:.3f} at most, where {self.paid:.3f} was paid for"
            " all that is released."
        )
