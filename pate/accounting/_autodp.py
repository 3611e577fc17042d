"""The one file that imports autodp."""

from typing import Any

import numpy as np
from autodp.autodp_core import Mechanism

from pate.accounting.accountant import remaining_delta
from pate.accounting.curves import FloatArray


class AutodpMechanism(Mechanism):  # type: ignore[misc]
    """A composed curve as an autodp mechanism.

    autodp 0.2.3 asks for the curve at any order and forgets ``delta0``. ``(alpha - 1) rdp(alpha)`` is convex, so the
    chord between two grid points bounds it from above; ``delta0`` is taken off ``delta`` before autodp sees it.
    """

    def __init__(self, orders: FloatArray, rdp: FloatArray, log_survival: float) -> None:
        super().__init__()
        self.name = "pate"
        scaled = (orders - 1) * rdp

        def curve(alpha: float) -> float:
            if alpha <= orders[0]:
                return float(rdp[0])
            if alpha > orders[-1]:
                return float("inf")
            return float(np.interp(alpha, orders, scaled) / (alpha - 1))

        self.propagate_updates(curve, "RDP")
        convert = self.approxDP

        def with_delta0(delta: float) -> Any:
            rest = remaining_delta(delta, log_survival)
            return convert(rest) if rest > 0 else float("inf")

        self.approxDP = with_delta0
