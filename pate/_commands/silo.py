"""The command `pate silo`: the part of one silo in labels without a curator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pate._commands.parsing import new_parser
from pate._release.promise import expect_promise
from pate._validation import expect
from pate.accounting._budget import Budget
from pate.accounting._relation import NeighboringRelation


def main(args: Sequence[str]) -> None:
    """Run `pate silo`."""
    parser = new_parser(
        "silo",
        "Take part in labels from silos that show their votes to nobody: send keys, shares, the masked counts with a"
        " share of the noise, and what unmasks the sum of all, each as soon as the others have sent what it needs. A"
        " command that was killed goes on when it is given again, and sends the same.",
    )
    parser.add_argument("exchange", type=Path, help="folder that all silos and the server read and write")
    parser.add_argument("--name", required=True, help="the silo's name in the invitation")
    parser.add_argument(
        "--votes", type=Path, required=True, help="its votes, an .npz as for `pate label --votes`: never sent. PRIVATE"
    )
    parser.add_argument(
        "--state",
        type=Path,
        required=True,
        help="a folder of its own, one for each exchange, for its keys and its noise. PRIVATE; kept until the end",
    )
    parser.add_argument(
        "--ledger",
        type=Path | None,
        default=None,
        help="ledger of the silo's private data, which counts each sum that its masked votes are sent to; by default"
        " votes.ledger.sqlite beside votes.npz",
    )
    parser.add_argument(
        "--max_epsilon",
        type=float | None,
        default=None,
        help="the budget of that ledger at --delta: votes are not sent to a sum that would take all sums beyond it",
    )
    parser.add_argument("--delta", type=float | None, default=None, help="the delta of --max_epsilon")
    parser.add_argument(
        "--wait",
        type=float | None,
        default=None,
        help="seconds to wait for others, 0 to do what can be done now; by default for as long as it takes",
    )
    options = parser.parse_args(list(args))

    limits = {"max_epsilon": options.max_epsilon, "delta": options.delta}
    expect(list(limits.values()).count(None) in (0, 2), "--max_epsilon with --delta", **limits)
    if options.delta is not None:
        expect_promise(options.delta)
    relation = NeighboringRelation.REPLACE_RECORD
    budget = None if options.delta is None else Budget(neighboring_relation=relation, **limits)

    from pate._silos.exchange import AwaitedError, Exchange, waiting
    from pate._silos.member import Member

    member = Member(Exchange(options.exchange), options.name, options.votes, options.state, options.ledger, budget)
    shown: set[str] = set()

    def advance() -> tuple[str, ...]:
        try:
            return member.advance()
        except AwaitedError as error:
            for line in (*member.facts(), f"waiting for {error}"):
                if line not in shown:
                    shown.add(line)
                    print(f"{options.name}: {line}", flush=True)
            raise

    try:
        print(f"{options.name}: done. In the sum: {', '.join(waiting(advance, options.wait))}")
    except AwaitedError:
        print(f"{options.name}: the same command goes on from here")
