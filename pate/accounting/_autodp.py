"""The one file that imports autodp."""

from collections.abc import Callable
from typing import Any

import numpy as np
from autodp.autodp_core import Mechanism

from pate.accounting.accountant import remaining_delta
from pate.accounting.curves import FloatArray, renyi_curve_rdp


class AutodpMechanism(Mechanism):  # type: ignore[misc]
    """A composed curve as an autodp mechanism.

    autodp 0.2.3 asks for the curve at any order and forgets ``delta0``, which is taken off ``delta`` before autodp
    sees it.
    """

    approxDP: Callable[[float], Any]  # noqa: N815

    def __init__(self, orders: FloatArray, rdp: FloatArray, log_survival: float) -> None:
        super().__init__()
        self.name = "pate"
        known = np.isfinite(rdp)
        orders, rdp = orders[known], rdp[known]

        def curve(alpha: float) -> float:
            return float(renyi_curve_rdp(alpha, orders, rdp)) if orders.size else float("inf")

        self.propagate_updates(curve, "RDP")
        convert = self.approxDP

        def with_delta0(delta: float) -> Any:
            rest = remaining_delta(delta, log_survival)
            return convert(rest) if rest > 0 else float("inf")

        self.approxDP = with_delta0
