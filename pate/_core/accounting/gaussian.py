"""The accountants of Gaussian differential privacy: Gaussian mechanisms that dominate all events.

They dominate them one by one (Dong, Roth & Su (2022), Corollary 3.3), or as the many bits that they
are (docs/appendix/costs.md, "Many bits").
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from pate._core.accounting.base import Event
from pate._core.accounting.cost import (
    EXCESS_LIMIT,
    LOSS_LIMIT,
    WIDTHS,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_log_delta,
    lost_delta,
    many_bits_mu_squared,
)
from pate._core.accounting.events import GaussianEvent
from pate._core.accounting.proofs import LEFT, Accountant, Composed, Guarantee, ProofText, Term

_METHOD = "in Gaussian differential privacy"
_DELTA = "    d = Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu)"


class GaussianAccountant(Accountant):
    """Sums the ``mu^2`` of Gaussian mechanisms that dominate the events one by one.

    Its trade-off is exact (Balle & Wang (2018), Theorem 8) if all events are Gaussian.

    Args:
        exact: whether it supports Gaussian events only.
    """

    figures: ClassVar[tuple[str, ...]] = ("mu",)
    theorem = (
        "Balle & Wang (2018), Theorem 8, for the Gaussian mechanisms that dominate all releases,"
        " one by one or as many bits"
    )

    def __init__(self, *, exact: bool = False) -> None:
        self._exact = exact

    def supports(self, event: Event) -> bool:
        if self._exact:
            return isinstance(event, GaussianEvent)
        return event.cost().mu_squared < math.inf

    def _dominating(self, composed: Composed) -> tuple[float, float, dict[str, float]]:
        """Return ``mu^2``, infinite if none is known, the lost delta, and figures beside it."""
        return composed.cost.mu_squared, 0.0, {}

    def guarantee(
        self, composed: Composed, *, delta: float, below: float = math.inf
    ) -> Guarantee | None:
        mu_squared, lost, figures = self._dominating(composed)
        left = composed.left(delta) - lost
        if mu_squared == math.inf or left <= 0:
            return None
        mu = math.sqrt(mu_squared)
        if below < math.inf and mu > 0 and gaussian_log_delta(below, mu) > math.log(left):
            return None
        return composed.proven(gaussian_epsilon(left, mu), delta, mu=mu, **figures)

    def get_delta(self, composed: Composed, epsilon: float) -> float:
        mu_squared, lost, _ = self._dominating(composed)
        if mu_squared == math.inf:
            return 1.0
        return composed.with_failures(lost + gaussian_delta(epsilon, math.sqrt(mu_squared)))

    def words(self, guarantee: Guarantee, terms: Sequence[Term]) -> ProofText:
        return ProofText(
            _METHOD,
            [f"mu^2 = {term.cost.mu_squared!r}" for term in terms],
            f"mu^2, mu = {guarantee.mu!r}",
            (
                LEFT,
                _DELTA,
                "    (Dong, Roth & Su (2022), Corollary 3.3; Balle & Wang (2018), Theorem 8)",
            ),
        )


class ManyBitsAccountant(GaussianAccountant):
    """Sums the weights of choices and tests among many, at their best common width."""

    figures = ("mu", "width")
    theorem = ""

    def _dominating(self, composed: Composed) -> tuple[float, float, dict[str, float]]:
        cost = composed.cost
        if not cost.rounds:
            return math.inf, 0.0, {}
        totals = many_bits_mu_squared(cost.narrow_weights)
        best = int(np.argmin(totals))
        mu_squared = float(totals[best])
        if mu_squared == math.inf:
            return math.inf, 0.0, {}
        return mu_squared, lost_delta(cost.rounds, mu_squared), {"width": float(WIDTHS[best])}

    def words(self, guarantee: Guarantee, terms: Sequence[Term]) -> ProofText:
        assert guarantee.width is not None
        at = int(np.searchsorted(WIDTHS, guarantee.width))
        weights = [float(term.cost.narrow_weights[at]) for term in terms]
        total = sum(term.times * weight for term, weight in zip(terms, weights, strict=True))
        bits = sum(term.times * term.cost.rounds for term in terms)
        return ProofText(
            f"{_METHOD}, among many bits of width w = {guarantee.width!r} at most",
            [f"weight = {weight!r}" for weight in weights],
            f"weights t = {total!r} of n = {bits:.0f} bits, mu = {guarantee.mu!r}",
            (
                "    mu^2 = t + (pi/2 - 1) min(t, 5 w) + w log(1 + v), v = max(t/w - 5, 0),"
                f" at most {EXCESS_LIMIT:g}; + (t/w - 5 - v) w / {1 + EXCESS_LIMIT:g}",
                f"{LEFT} - 2 n Phi(sqrt(mu^2 + 1)/2 - {LOSS_LIMIT:g}), n = the number of bits",
                _DELTA,
                "    (Many bits, docs/accounting.md; Balle & Wang (2018), Theorem 8)",
            ),
        )
