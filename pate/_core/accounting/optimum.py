"""The accountants of the best adaptive adversary, against equal rounds and releases in their order.

Their bounds are in `pate._core.accounting.adaptive`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence

from pate._core.accounting.adaptive import Profile, equal_rounds, is_known, ordered_profile
from pate._core.accounting.base import Event
from pate._core.accounting.events import BoundedRangeEvent, FailureEvent, PureDPEvent
from pate._core.accounting.proofs import LEFT, Accountant, Composed, Guarantee, ProofText, Term


class _Optimum(Accountant):
    @abstractmethod
    def _profile(self, composed: Composed, below: float) -> tuple[int, Profile] | None:
        """Return the number of rounds or steps, and the bound on all adversaries, if any."""

    def guarantee(
        self, composed: Composed, *, delta: float, below: float = math.inf
    ) -> Guarantee | None:
        left = composed.left(delta)
        if left <= 0 or (found := self._profile(composed, below)) is None:
            return None
        number, profile = found
        epsilon = profile.at(left)
        (figure,) = self.figures
        return composed.proven(epsilon, delta, **{figure: number}) if epsilon < below else None


class EqualRoundsAccountant(_Optimum):
    """Plays rounds that are all one choice, or all one pure release."""

    figures = ("rounds",)
    theorem = (
        "the optimum of rounds that are all equal"
        " (Kairouz, Oh & Viswanath (2017), Theorem 3.3, if they are pure)"
    )

    def supports(self, event: Event) -> bool:
        return isinstance(event, BoundedRangeEvent | PureDPEvent | FailureEvent)

    def _profile(self, composed: Composed, below: float) -> tuple[int, Profile] | None:
        return equal_rounds(composed.parts())

    def get_delta(self, composed: Composed, epsilon: float) -> float:
        found = equal_rounds(composed.parts())
        return 1.0 if found is None else composed.with_failures(found[1].delta_at(epsilon))

    def words(self, guarantee: Guarantee, terms: Sequence[Term]) -> ProofText:
        formulas: tuple[str, ...]
        if any(isinstance(term.event, PureDPEvent) for term in terms):
            formulas = (
                LEFT,
                "    d = sum over k < n/2 of C(n, k) max(0, exp((n - k) e) - exp(epsilon + k e))"
                " / (1 + exp(e))^n, e: of one round",
                "    (Kairouz, Oh & Viswanath (2017), Theorem 3.3)",
            )
        else:
            formulas = (
                f"{LEFT}, which no adversary exceeds in n choices",
                "    (The adaptive optimum, docs/accounting.md; a round is as Dong, Durfee & Rogers"
                " (2020) have it)",
            )
        total = f"n = {guarantee.rounds} rounds"
        return ProofText("as rounds that are all equal", [""] * len(terms), total, formulas)


class OrderedAccountant(_Optimum):
    """Plays all releases in their order, where it is known and they are not all equal.

    Its grid reaches as far as an epsilon that another accountant has proved.
    """

    figures = ("in_order",)
    theorem = "all releases in the order of their ledger"
    only_where_used = True

    def supports(self, event: Event) -> bool:
        return is_known(event)

    def _profile(self, composed: Composed, below: float) -> tuple[int, Profile] | None:
        if not composed.in_order or equal_rounds(composed.parts()) is not None:
            return None
        spread = math.sqrt(2 * float(composed.cost.rdp[0]) / float(composed.orders[0]))
        return ordered_profile(list(composed.parts()), epsilon=below, spread=spread)

    def words(self, guarantee: Guarantee, terms: Sequence[Term]) -> ProofText:
        return ProofText(
            "in the order of the ledger",
            [""] * len(terms),
            f"n = {guarantee.in_order} steps",
            (
                f"{LEFT}, which no adversary exceeds against these releases in this order, if"
                " queries",
                "    of one release are answered one by one, or each part of all queries before the"
                " next part",
                "    (The order of releases, docs/accounting.md)",
            ),
        )
