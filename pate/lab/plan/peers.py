"""Second opinions on epsilon: other packages' figures, each package in a process of its own.

They fail, or take hours and terabytes, on some events that have a figure here at once. So a process
has `SECONDS` and `BYTES`, and a missing figure has a reason.
"""

import json
import math
import os
import pickle
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from importlib.util import find_spec
from typing import Any, NamedTuple

from pate._core.accounting.accountant import RDPAccountant
from pate._core.accounting.cost import DEFAULT_ORDERS, NeighboringRelation
from pate._core.accounting.events import BoundedRangeEvent, Event, GaussianEvent
from pate._core.accounting.proofs import Accountant, Composed, Guarantee
from pate._core.validation import one_line
from pate.lab.plan.autodp import AutodpAccountant


class PLDAccountant(Accountant):
    """Composes privacy-loss distributions of Gaussian events; with choices, curves of zCDP."""

    def supports(self, event: Event) -> bool:
        return type(event) in (GaussianEvent, BoundedRangeEvent)

    def guarantee(
        self, composed: Composed, *, delta: float, below: float = math.inf
    ) -> Guarantee | None:
        import dp_accounting
        from dp_accounting import pld, rdp

        parts: list[Any] = []
        gaussian = True
        for leaf, number in composed.leaves():
            if isinstance(leaf, GaussianEvent):
                single = dp_accounting.GaussianDpEvent(leaf.noise_multiplier)
            else:
                assert isinstance(leaf, BoundedRangeEvent)
                single, gaussian = dp_accounting.ZCDpEvent(leaf.eta**2 / 8), False
            parts.append(dp_accounting.SelfComposedDpEvent(single, number))
        accountant = (
            pld.PLDAccountant()
            if gaussian
            else rdp.RdpAccountant(orders=DEFAULT_ORDERS[:-1].tolist())
        )
        accountant.compose(dp_accounting.ComposedDpEvent(parts))
        epsilon = float(accountant.get_epsilon(delta))
        return composed.proven(epsilon, delta) if epsilon < below else None


PEERS: Mapping[str, Accountant] = {
    "autodp": AutodpAccountant(),
    "dp_accounting": PLDAccountant(),
}
"""Accountants of other packages, by the name of the package."""
SECONDS = 20
BYTES = 2 << 30  # of address space, on Linux: macOS does not limit it
_LONGEST = 60  # characters of a reason


class Opinion(NamedTuple):
    """The epsilon of another package, or None and the reason, a predicate of its name."""

    epsilon: float | None
    reason: str = ""


def opinions(
    peer: str, events: Mapping[NeighboringRelation, Event], *, count: int, delta: float
) -> dict[NeighboringRelation, Opinion]:
    """Return a package's epsilons of ``count`` events under each relation.

    Args:
        peer: one of `PEERS`.
        events: an event under each relation.
        count: the number of events.
        delta: the delta of each epsilon.
    """
    if not _is_installed(peer):
        return dict.fromkeys(events, Opinion(None, "is not installed"))
    if unknown := PEERS[peer].unsupported(events.values()):
        nothing = f"has no mechanism for {', '.join(unknown)}"
        return dict.fromkeys(events, Opinion(None, nothing))
    return dict(zip(events, _asked((peer, [*events.values()], count, delta)), strict=True))


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ImportError:  # of a finder that hides it
        return False


def _asked(request: tuple[str, Sequence[Event], int, float]) -> list[Opinion]:
    """Return the opinions on all events of a request, made in a process with a budget."""
    command = [sys.executable, "-P", "-c", f"from {__name__} import answer; answer()"]
    try:
        done = subprocess.run(
            command,
            input=pickle.dumps(request),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=SECONDS,
            env=os.environ | {"OMP_NUM_THREADS": "1"},  # a thread takes address space
        )
        lines, missing = done.stdout, f"ended with status {done.returncode}"
    except subprocess.TimeoutExpired as error:
        lines, missing = error.stdout or b"", f"took more than {SECONDS} seconds"
    made = [Opinion(*json.loads(line)) for line in lines.splitlines()]
    return made + [Opinion(None, missing)] * (len(request[1]) - len(made))


def answer() -> None:
    """Answer the request on standard input by a line of JSON for each event."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    if sys.platform == "linux" and (hard == resource.RLIM_INFINITY or hard > BYTES):
        resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    peer, events, count, delta = pickle.load(sys.stdin.buffer)
    for event in events:
        with redirect_stdout(sys.stderr):  # packages print
            opinion = _opinion(peer, event, count, delta)
        print(json.dumps(opinion), flush=True)


def _opinion(peer: str, event: Event, count: int, delta: float) -> Opinion:
    total = RDPAccountant(relation=event.neighboring_relation).compose(event, count)
    try:
        epsilon = total.guarantee(delta=delta, by=[PEERS[peer]]).epsilon
    except MemoryError:
        return Opinion(None, f"takes more than {BYTES >> 30} GiB of memory")
    except Exception as error:  # of code that is not ours
        said = one_line(f"{type(error).__name__}: {error}")
        return Opinion(None, f"fails with {said[:_LONGEST]}")
    if math.isinf(epsilon):
        return Opinion(None, "finds no number")
    return Opinion(epsilon)
