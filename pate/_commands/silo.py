"""The command `pate silo`, which takes part in labels without a curator, and its key and relay."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from pate._commands.parsing import new_parser
from pate._release.promise import require_promise
from pate._validation import require
from pate.accounting import Budget, NeighboringRelation

_Result = TypeVar("_Result")


def main(args: Sequence[str]) -> None:
    """Run `pate silo`."""
    parser = new_parser(
        "silo",
        "Take part in labels from silos that keep their votes secret: send keys, shares, the masked"
        " counts with a share of the noise, and the shares that unmask the sum of all, each as soon"
        " as the others have sent their part. Nothing is sent unless the invitation is confirmed"
        " and its cost, printed first, is accepted. After a kill, run the command again: it"
        " continues, and sends the same.",
    )
    parser.add_argument(
        "exchange",
        type=Path,
        help="folder that all silos and the server read and write; with --relay, the silo's copy",
    )
    parser.add_argument("--name", required=True, help="the silo's name in the invitation")
    parser.add_argument(
        "--votes",
        type=Path,
        required=True,
        help="its votes, an .npz as for `pate label --votes`: never sent. PRIVATE",
    )
    parser.add_argument(
        "--state",
        type=Path,
        required=True,
        help="a folder for its keys and its noise, one for each exchange and never inside it."
        " PRIVATE; kept until the end",
    )
    parser.add_argument(
        "--signing_key",
        type=Path,
        required=True,
        help="its signing key for all exchanges, written by `pate silo key`. PRIVATE",
    )
    parser.add_argument(
        "--confirm",
        type=str | None,
        default=None,
        help="the digest of the invitation, as the people of all other silos read it out. Without"
        " it: --public_keys",
    )
    parser.add_argument(
        "--public_keys",
        type=Path | None,
        default=None,
        help="in place of --confirm: a folder with NAME.pub, the public key of each silo, and"
        " server.pub, obtained from their people, never from the exchange",
    )
    parser.add_argument(
        "--ledger",
        type=Path | None,
        default=None,
        help="ledger of the silo's private data, which counts each sum with its masked votes; by"
        " default votes.ledger.sqlite next to votes.npz",
    )
    parser.add_argument(
        "--max_epsilon",
        type=float | None,
        default=None,
        help="the budget of that ledger at --delta: nothing is sent to a sum that would take the"
        " total beyond it. Without a budget a person must accept at a terminal",
    )
    parser.add_argument(
        "--delta", type=float | None, default=None, help="the delta of --max_epsilon"
    )
    parser.add_argument(
        "--wait",
        type=float | None,
        default=None,
        help="seconds to wait for others, 0 to do only the steps that are possible now; by default"
        " without limit",
    )
    parser.add_argument(
        "--relay",
        type=str | None,
        default=None,
        help="address of `pate silo relay`, https://HOST:PORT, where silos share no folder",
    )
    options = parser.parse_args(list(args))

    limits = {"max_epsilon": options.max_epsilon, "delta": options.delta}
    require(list(limits.values()).count(None) in (0, 2), "--max_epsilon with --delta", **limits)
    if options.delta is not None:
        require_promise(options.delta)
    relation = NeighboringRelation.REPLACE_RECORD
    budget = None if options.delta is None else Budget(neighboring_relation=relation, **limits)

    from pate._silos.exchange import SERVER, AwaitedError, Exchange, require_private, waiting
    from pate._silos.member import Consent, Member
    from pate._silos.relay import POLL_SECONDS, Relayed
    from pate._silos.secrets import SigningKey, read_public_keys

    def say(line: str) -> None:
        print(f"{options.name}: {line}", flush=True)

    def accepts(_: str) -> bool:
        if sys.stdin is None or not sys.stdin.isatty():
            return False
        return input(f"{options.name}: take part? (yes/no) ").strip().lower() == "yes"

    exchange = Exchange(options.exchange)
    relayed = None
    if options.relay is not None:
        signing_key = SigningKey.read(options.signing_key)
        relayed = Relayed(options.relay, exchange, options.name, signing_key)

    def awaited(step: Callable[[], _Result]) -> _Result:
        if relayed is None:
            return waiting(step, options.wait, say)
        return waiting(relayed.around(step), options.wait, say, POLL_SECONDS)

    def invited() -> Member:
        names = exchange.invitation.teachers
        require_promise(exchange.invitation.delta, num_units=sum(names.values()))
        known = None
        if options.public_keys is not None:
            require_private(options.exchange, public_keys=options.public_keys)
            (server,) = read_public_keys(options.public_keys, ["server"]).values()
            known = read_public_keys(options.public_keys, names) | {SERVER: server}
        consent = Consent(digest=options.confirm, public_keys=known, budget=budget, accepts=accepts)
        keys = options.signing_key
        return Member(
            exchange, options.name, options.votes, options.state, keys, consent, options.ledger
        )

    try:
        member = awaited(invited)
        for fact in member.facts():
            say(fact)
        say(f"done. In the sum: {', '.join(awaited(member.advance))}")
    except AwaitedError as error:
        say(f"waiting for {error}. The same command continues from here")


def relay(args: Sequence[str]) -> None:
    """Run `pate silo relay`."""
    parser = new_parser(
        "silo relay",
        "Serve the folder of an exchange over HTTPS to silos that share no folder, next to"
        " `pate label --silos`, and print a line on each file that arrives. Only invited silos"
        " read it, and each writes only its own files, once. Ctrl-C ends it; run it again to"
        " continue.",
    )
    parser.add_argument("exchange", type=Path, help="folder of `pate label --silos`")
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen at, 0.0.0.0 for all of this machine; a certificate is needed for"
        " all but 127.0.0.1, where a web server of your own may stand before it",
    )
    parser.add_argument("--port", type=int, default=8443, help="port to listen at")
    parser.add_argument(
        "--certificate",
        type=Path | None,
        default=None,
        help="PEM file with the certificate of this machine's name, and its chain",
    )
    parser.add_argument(
        "--certificate_key",
        type=Path | None,
        default=None,
        help="PEM file with its key, unless the certificate's file has it. PRIVATE",
    )
    options = parser.parse_args(list(args))

    from pate._silos.exchange import require_private
    from pate._silos.relay import Relay

    certificate, key = options.certificate, options.certificate_key
    files = {"certificate": certificate, "certificate_key": key}
    require_private(options.exchange, **{name: file for name, file in files.items() if file})
    with Relay(
        options.exchange,
        options.host,
        options.port,
        certificate=certificate,
        certificate_key=key,
        say=lambda line: print(line, flush=True),
    ) as server:
        print(f"Relay of {options.exchange} at {server.url}; Ctrl-C ends it", flush=True)
        server.serve_forever()


def key(args: Sequence[str]) -> None:
    """Run `pate silo key`."""
    parser = new_parser(
        "silo key",
        "Make the signing key of a silo, or of the server, once for all exchanges. The public key"
        " is for all others, who should get it from a person they know. An existing private key is"
        " kept.",
    )
    parser.add_argument(
        "private", type=Path, help="file of the private key, never in an exchange. PRIVATE"
    )
    parser.add_argument(
        "public", type=Path, help="file of the public key, NAME.pub for the silo NAME"
    )
    options = parser.parse_args(list(args))

    from pate._silos.secrets import make_key

    print(f"{options.public}: {make_key(options.private, options.public)}")
