"""One silo's part in a sum: what it sends, when, and only once."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pate._json import read_json
from pate._runs import digest
from pate._runs.files import naming_output, write_once
from pate._silos.exchange import INVITATION, SURVIVORS, Exchange, packed
from pate._silos.masks import masked
from pate._silos.secrets import ROOT_BYTES, Secrets
from pate._typing import IntArray
from pate._validation import expect
from pate._votes import rows_of
from pate._votes_file import read_votes
from pate.accounting._budget import Budget
from pate.accounting._ledger import Ledger
from pate.accounting._place import one_ledger
from pate.mechanisms._noise import private_generator
from pate.mechanisms._noise_shares import summand

_STATE = "secrets.json"


@dataclass(frozen=True)
class Member:
    """One silo of an exchange.

    Whatever it sends is first kept in its private folder, and is sent again as it is: there is one draw of noise and
    one masked vector, however often the same command is killed and repeated.

    Args:
        exchange: the folder that all share.
        name: the name of the silo.
        votes: the file of its votes. PRIVATE.
        state: a folder of its own for this exchange, made if it is missing. PRIVATE.
        ledger: the ledger of the silo's private data; None for that beside the votes.
        budget: what all sums in which it took part may cost together by this ledger, or None.
    """

    exchange: Exchange
    name: str
    votes: Path
    state: Path
    ledger: Path | None = None
    budget: Budget | None = None

    def advance(self) -> tuple[str, ...]:
        """Send all that can be sent now, and return the names of the silos in the sum once its part is done.

        Raises:
            AwaitedError: if others have to send something first.
            ValueError: if the votes do not fit the invitation, the ledger cannot pay for the sum, or somebody sent
                another file than before; nothing of the votes is sent then, and no share revealed.
        """
        exchange, name, terms = self.exchange, self.name, self.exchange.invitation
        expect(name in terms.teachers, f"a silo among {', '.join(terms.teachers)}", name=name)
        kept = self._secrets()
        public = {kind: key.hex() for kind, key in kept.public._asdict().items()}
        self._send("keys", lambda: exchange.message(**public))
        roster, context = exchange.roster, exchange.roster_digest
        expect(roster[name] == kept.public, f"the keys of {name} in {exchange.folder}", keys="others")

        def deal() -> bytes:
            shares = {holder: share.hex() for holder, share in kept.deal(terms.threshold, roster).items()}
            return exchange.message(context=context, shares=shares)

        self._send("shares", deal)
        dealt = exchange.shares
        held = {sender: kept.open(sender, roster[sender], shares[name]) for sender, shares in dealt.items()}
        ended = (exchange.folder / SURVIVORS).is_file()
        if ended:
            left = f"{name} among the survivors, who were listed before its masked vector came"
            expect(name in exchange.survivors, left, survivors=list(exchange.survivors))

        def mask() -> bytes:
            expect(not ended, "a list of survivors after all masked vectors alone", before_that_of=name)
            self._reserve(kept)
            words = summand(self._counts(), terms.mechanism.share_sigma, private_generator(kept.noise_key))
            return packed(masked(words.ravel(), kept, roster), context)

        self._send("masked", mask)
        survivors = exchange.survivors

        def reveal() -> bytes:
            shares = {
                sender: (share.own_mask if sender in survivors else share.pairs).hex() for sender, share in held.items()
            }
            return exchange.message(context=context, survivors=survivors, shares=shares)

        self._send("unmasking", reveal)
        exchange.unmasking(name)  # raises if it answered another list before
        return survivors

    def facts(self) -> Iterator[str]:
        """Yield what a person should know before the masked vector is sent, as far as it is known by now."""
        exchange = self.exchange
        if (exchange.folder / INVITATION).is_file():
            yield str(exchange.invitation)
            if not exchange.absent("keys"):
                yield f"the digest of all keys, the same at each silo, is {exchange.roster_digest}"

    def _secrets(self) -> Secrets:
        """Return the secrets, which are drawn when they are first needed."""
        terms, path = self.exchange.invitation, self.state / _STATE
        fingerprint = digest(self.votes) if self.votes.is_file() else None
        if not path.is_file():
            self._counts()  # votes that do not fit are refused first
            drawn = secrets.token_bytes(ROOT_BYTES).hex()
            kept = {"invitation": terms.digest, "name": self.name, "votes": fingerprint, "root": drawn}
            self._keep(path, json.dumps(kept).encode())
        try:
            content = read_json(path.read_text())
            invitation, name, votes = (content[key] for key in ("invitation", "name", "votes"))
            root = bytes.fromhex(content["root"])
        except (ValueError, KeyError, TypeError):
            # what is in it is not to be printed
            raise ValueError(f"Expected secrets that `pate silo` wrote, got a damaged {path}") from None
        own = f"{self.state} for this exchange and this silo alone"
        expect((invitation, name) == (terms.digest, self.name), own, state="another's")
        expect(votes == fingerprint, f"the votes with which {self.name} began", votes="others")
        return Secrets(root, terms.digest, self.name)

    def _reserve(self, kept: Secrets) -> None:
        """Write the cost of the sum to the silo's own ledger, once, whatever the server counts."""
        terms, path = self.exchange.invitation, self._ledger_path
        Ledger(path, home=path).reserve(
            terms.mechanism.events(terms.panel),
            count=len(terms.ids),
            run=self.exchange.folder.resolve().name,
            description=type(terms.mechanism).__name__,
            seeded=False,
            budget=self.budget,
            token=kept.public.sealing.hex(),
        )

    @property
    def _ledger_path(self) -> Path:
        """The ledger that is named, or that of the votes. Raises ``ValueError`` if another may count them too."""
        beside = self.votes.resolve().with_suffix(".ledger.sqlite")
        return one_ledger(beside) if self.ledger is None else self.ledger.resolve()

    def _send(self, kind: str, make: Callable[[], bytes]) -> None:
        """Send what was kept, or else what ``make`` returns, which is kept first."""
        place = self.exchange.place(kind, self.name)
        kept = self.state / f"{kind}{place.suffix}"
        if not kept.is_file():
            self._keep(kept, make())
        self.exchange.send(place, kept.read_bytes())

    def _keep(self, path: Path, content: bytes) -> None:
        with naming_output(path):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.parent.chmod(0o700)  # one that was there, too
            write_once(path, content, mode=0o600)

    def _counts(self) -> IntArray:
        """Return the counts ``[Q, C]`` of the silo's teachers. Raises ``ValueError`` if they are not as invited."""
        terms, votes = self.exchange.invitation, read_votes(self.votes)
        names = ", ".join(terms.label_names)
        expect(votes.label_names == tuple(terms.label_names), f"label_names {names}", label_names=votes.label_names)
        ids = np.array(terms.ids)
        missing = np.setdiff1d(ids, votes.ids)
        expect(missing.size == 0, f"votes on all {ids.size} samples of the invitation", missing=missing[:3].tolist())
        invited = terms.teachers[self.name]
        expect(votes.num_teachers == invited, f"votes of {invited} teachers", num_teachers=votes.num_teachers)
        expect(votes.scores is None, "ballots or counts, which can be summed", scores=self.votes.name)
        assert votes.counts is not None
        return votes.counts[rows_of(ids, votes.ids)]
