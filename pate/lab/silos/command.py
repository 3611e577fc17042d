"""The commands of a silo: `pate silo` takes part in labels without a curator.

`pate silo key` makes its key.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pate._core.accounting.charges import Budget
from pate._core.accounting.cost import NeighboringRelation
from pate._core.transaction import require_promise
from pate._core.validation import require
from pate._labeling.commands.parsing import run_command

_Result = TypeVar("_Result")


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """What a silo takes part in, and at what cost at most.

    Args:
        public_keys: a folder with NAME.pub, the public key of each silo, and server.pub, obtained
            from their people, never from the exchange.
        ledger: ledger of the silo's private data, which counts each sum with its masked votes; by
            default one next to the votes.
        max_epsilon: the budget of that ledger at --delta. Nothing is sent to a sum that would take
            the total beyond it. Without a budget a person must accept at a terminal.
        delta: the delta of --max_epsilon.
    """

    public_keys: Path
    ledger: Path | None = None
    max_epsilon: float | None = None
    delta: float | None = None

    @property
    def budget(self) -> Budget | None:
        """The budget, if there is one."""
        limits: dict[str, Any] = {"max_epsilon": self.max_epsilon, "delta": self.delta}
        require(list(limits.values()).count(None) in (0, 2), "--max_epsilon with --delta", **limits)
        if self.delta is None:
            return None
        require_promise(self.delta)
        return Budget(neighboring_relation=NeighboringRelation.REPLACE_RECORD, **limits)


def take_part(
    exchange: Path,
    agreement: Agreement,
    *,
    name: str,
    votes: Path,
    state: Path,
    signing_key: Path,
    wait: float | None = None,
) -> None:
    """Take part in labels from silos that keep their votes secret.

    Send keys, shares, the masked counts with a share of the noise, and the shares that unmask the
    sum of all, each as soon as the others have sent their part. Nothing is sent unless the
    invitation has the keys of all silos, and its cost, printed first, is accepted. After a kill,
    run the command again: it continues, and sends the same.

    Args:
        exchange: folder that all silos and the server read and write.
        agreement: what is agreed to.
        name: the silo's name in the invitation.
        votes: its votes, an .npz as for `pate label --votes`, never sent. PRIVATE.
        state: a folder for its keys and its noise, one for each exchange and never inside it.
            PRIVATE; kept until the end.
        signing_key: its signing key for all exchanges, written by `pate silo key`. PRIVATE.
        wait: seconds to wait for others, 0 to do only the steps that are possible now; by default
            without limit.
    """
    budget, public_keys = agreement.budget, agreement.public_keys

    from pate.lab.silos.exchange import (
        SERVER,
        AwaitedError,
        Exchange,
        require_private,
        say,
        waiting,
    )
    from pate.lab.silos.parties import Consent, Member
    from pate.lab.silos.secrets import read_public_keys

    def tell(line: str) -> None:
        say(f"{name}: {line}")

    def accepts(_: str) -> bool:
        if sys.stdin is None or not sys.stdin.isatty():
            return False
        return input(f"{name}: take part? (yes/no) ").strip().lower() == "yes"

    shared = Exchange(exchange)

    def awaited(step: Callable[[], _Result]) -> _Result:
        return waiting(step, wait, tell)

    def invited() -> Member:
        names = shared.invitation.teachers
        require_promise(shared.invitation.delta, num_units=sum(names.values()))
        require_private(exchange, public_keys=public_keys)
        (server,) = read_public_keys(public_keys, ["server"]).values()
        known = read_public_keys(public_keys, names) | {SERVER: server}
        consent = Consent(public_keys=known, budget=budget, accepts=accepts)
        return Member(shared, name, votes, state, signing_key, consent, agreement.ledger)

    try:
        member = awaited(invited)
        for fact in member.facts():
            tell(fact)
        tell(f"done. In the sum: {', '.join(awaited(member.advance))}")
    except AwaitedError as error:
        tell(f"waiting for {error}. The same command continues from here")


def make_signing_key(private: Path, public: Path) -> None:
    """Make the signing key of a silo, or of the server, once for all exchanges.

    The public key is for all others, who should get it from a person they know. An existing private
    key is kept.

    Args:
        private: file of the private key, never in an exchange. PRIVATE.
        public: file of the public key, NAME.pub for the silo NAME.
    """
    from pate.lab.silos.secrets import make_key

    print(f"{public}: {make_key(private, public)}")


main = partial(run_command, "silo", take_part, grouped={"agreement": Agreement})
key = partial(run_command, "silo key", make_signing_key)
