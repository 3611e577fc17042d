"""One silo's part in a sum: it sends each of its files in turn, and only once."""

import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

import numpy as np

from pate._core.accounting.charges import Budget, Charge, account, to_world
from pate._core.accounting.cost import NeighboringRelation, format_epsilon, format_exact
from pate._core.accounting.history import RECORD
from pate._core.accounting.ledger import (
    Ledger,
    ledger_beside,
    one_ledger,
    read_ledger,
    require_payable,
)
from pate._core.files.reading import digest, read_json
from pate._core.files.writing import output_errors, remove_abandoned, write_once
from pate._core.mechanisms.noise import private_generator, summand
from pate._core.release.transaction import unfinished
from pate._core.validation import IntArray, require
from pate._labeling.runs.named_votes import read_votes
from pate._labeling.votes.kinds import Counts, rows_of
from pate.lab.silos.exchange import SERVER, Exchange, Invitation, require_private
from pate.lab.silos.secrets import ROOT_BYTES, Secrets, Share, SigningKey, masked

_STATE = "secrets.json"
_RELATION = NeighboringRelation.REPLACE_RECORD


@dataclass(frozen=True, kw_only=True)
class Consent:
    """The consent of the people of a silo. Without it the silo sends nothing.

    Attributes:
        digest: the digest of the invitation, if the people of all other silos read out the same; or
        public_keys: the keys of all silos and of the server, in hexadecimal, that people gave each
            other before.
        budget: the limit on the total cost of all sums in the silo's ledger. None for the budget
            that the ledger has, or for a yes.
        accepts: asks a person to accept the cost that it is given, where there is no budget.
    """

    digest: str | None = None
    public_keys: Mapping[str, str] | None = None
    budget: Budget | None = None
    accepts: Callable[[str], bool] = lambda _: False


@dataclass(frozen=True)
class Member:
    """One silo of an exchange.

    It keeps each file in its private folder before it sends it, and sends the same file again. So
    there is one draw of noise and one masked vector, however often the command is killed and
    repeated.

    Args:
        exchange: the exchange that all share.
        name: the name of the silo.
        votes: the file of its votes. PRIVATE.
        state: a folder of its own for this exchange, made if it is missing. PRIVATE.
        signing_key: the file of its signing key. PRIVATE.
        consent: the consent of its people.
        ledger: the ledger of the silo's private data. None for the one next to the votes.
    """

    exchange: Exchange
    name: str
    votes: Path
    state: Path
    signing_key: Path
    consent: Consent
    ledger: Path | None = None

    def advance(self) -> tuple[str, ...]:
        """Send all that can be sent now; return the silos in the sum once its part is done.

        Raises:
            AwaitedError: if others have to send something first.
            ValueError: if no consent covers the invitation or its cost, the votes do not fit it,
                the ledger cannot pay for the sum, or a file was replaced or is not its sender's.
                Nothing of the votes is sent then, and no share revealed.
            UnfinishedReleaseError: if the ledger may have paid for the sum.
        """
        with unfinished(self._is_reserved, self.state):
            return self._advance()

    def _advance(self) -> tuple[str, ...]:
        exchange, name, terms = self.exchange, self.name, self._terms
        kept, key = self._secrets, self._key
        points = {"own_mask": kept.public.own_mask, "pairs": kept.public.pairs}
        keys = {kind: [point.hex() for point in each] for kind, each in points.items()}
        sealing = kept.public.sealing.hex()
        self._send("keys", lambda: exchange.message("keys", name, key, sealing=sealing, **keys))
        roster, context = exchange.roster, exchange.roster_digest
        require(roster[name] == kept.public, f"the keys of {name} in {exchange.files}")

        def deal() -> bytes:
            shares = {holder: share.hex() for holder, share in kept.deal(roster).items()}
            return exchange.message("shares", name, key, context=context, shares=shares)

        self._send("shares", deal)
        held = self._held
        ended = exchange.has("survivors", SERVER)
        require(
            not ended or name in exchange.survivors,
            f"{name} among the survivors, who were listed before its masked vector came",
            survivors=list(exchange.survivors) if ended else None,
        )

        def mask() -> bytes:
            require(
                not ended, "a list of survivors only after all masked vectors", before_that_of=name
            )
            counts = self._counts()
            self._require_same_votes()
            self._reserve()
            words = summand(counts, terms.mechanism.share_sigma, private_generator(kept.noise_key))
            return exchange.packed(name, key, masked(words.ravel(), kept, roster))

        self._send("masked", mask)
        survivors = exchange.survivors
        require(
            name in survivors,
            f"{name} among the survivors, because its masked vector is there",
            survivors=survivors,
        )

        def reveal() -> bytes:
            shares = {
                sender: (share.own_mask if sender in survivors else share.pairs).hex()
                for sender, share in held.items()
            }
            return exchange.message(
                "unmasking", name, key, context=context, survivors=survivors, shares=shares
            )

        self._send("unmasking", reveal)
        exchange.unmasking(name)  # raises if it answered another list before
        return survivors

    def facts(self) -> Iterator[str]:
        """Yield the terms, their digest and the cost, for a person to read before anything is sent.

        Raises `AwaitedError` without an invitation.
        """
        terms = self.exchange.invitation
        yield str(terms)
        yield f"the digest of the invitation, the same at each silo, is {terms.digest}"
        yield self._cost

    @property
    def _cost(self) -> str:
        terms, budget = self.exchange.invitation, self.consent.budget
        delta = terms.delta if budget is None else budget.delta
        parties, world = (
            format_epsilon(account(charges, _RELATION).get_epsilon(delta=delta))
            for charges in ([self._charge], to_world([self._charge]))
        )
        known = (
            "each of which knows"
            if terms.colluding == 1
            else f"{terms.colluding} that put together"
        )
        return (
            f"taking part costs epsilon = {parties} against the other silos, {known} what it drew,"
            f" and {world} against"
            f" the world, at delta = {format_exact(delta)} under {_RELATION.value.upper()}"
        )

    @cached_property
    def _terms(self) -> Invitation:
        """The invitation, once it is known to be the one of all silos and its cost is accepted."""
        exchange, name, consent, terms = (
            self.exchange,
            self.name,
            self.consent,
            self.exchange.invitation,
        )
        require(name in terms.teachers, f"a silo among {', '.join(terms.teachers)}", name=name)
        require_private(
            exchange.where,
            state=self.state,
            votes=self.votes,
            signing_key=self.signing_key,
            ledger=self._ledger_path,
        )
        require(
            self._key.public == terms.keys[name],
            f"the key of {name} in the invitation",
        )
        require(
            consent.digest is not None or consent.public_keys is not None,
            "`confirm` with the digest of the invitation, once all others read out the same, or"
            " `public_keys`",
        )
        require(
            consent.digest in (None, terms.digest),
            f"the invitation that was confirmed, of digest {consent.digest}",
            digest=terms.digest,
        )
        if consent.public_keys is not None:
            invited = {**terms.keys, SERVER: terms.server_key}
            others = [each for each, key in consent.public_keys.items() if invited.get(each) != key]
            require(not others, f"an invitation with the keys that {name} knows", others=others)
            unknown = [each for each in invited if each not in consent.public_keys]
            require(not unknown, f"keys that {name} knows of all silos", unknown=unknown)
        self._require_accepted()
        return terms

    @cached_property
    def _key(self) -> SigningKey:
        return SigningKey.read(self.signing_key)

    @cached_property
    def _secrets(self) -> Secrets:
        """The secrets, which are drawn at their first use."""
        terms, path = self.exchange.invitation, self.state / _STATE
        if not path.is_file():
            self._counts()  # votes that do not fit are refused first
            kept = {
                "invitation": terms.digest,
                "name": self.name,
                "votes": digest(self.votes),
                "root": secrets.token_bytes(ROOT_BYTES).hex(),
            }
            self._keep(path, json.dumps(kept).encode())
        remove_abandoned(path)
        self._require_same_votes()
        return Secrets(bytes.fromhex(self._kept["root"]), terms.digest, self.name, terms.threshold)

    @property
    def _kept(self) -> Mapping[str, str]:
        """The file of secrets. Raises ``ValueError`` if it belongs to another exchange."""
        path = self.state / _STATE
        try:
            content = read_json(path.read_text())
            kept = {name: str(content[name]) for name in ("invitation", "name", "votes", "root")}
            bytes.fromhex(kept["root"])
        except (ValueError, KeyError, TypeError):
            # without its content, which is PRIVATE
            raise ValueError(
                f"Expected secrets that `pate silo` wrote, got a damaged {path}"
            ) from None
        require(
            (kept["invitation"], kept["name"]) == (self.exchange.invitation.digest, self.name),
            f"{self.state} only for this exchange and this silo",
        )
        return kept

    def _require_same_votes(self) -> None:
        require(
            self._kept["votes"] == (digest(self.votes) if self.votes.is_file() else None),
            f"the votes with which {self.name} began",
        )

    @cached_property
    def _held(self) -> dict[str, Share]:
        """The shares that all silos dealt to this one.

        Raises ``ValueError`` if one does not fit.
        """
        roster, dealt = self.exchange.roster, self.exchange.shares
        return {
            sender: self._secrets.open(sender, roster, shares[self.name])
            for sender, shares in dealt.items()
        }

    @cached_property
    def _charge(self) -> Charge:
        terms = self.exchange.invitation
        return terms.mechanism.events(terms.shape), len(terms.ids)

    def _require_accepted(self) -> None:
        """Raise ``ValueError`` unless a budget, a person or a reservation accepts the cost."""
        path, budget = self._ledger_path, self.consent.budget
        if path.is_file():
            if self._is_reserved():
                return
            budget = budget or read_ledger(path).budget
        # as the ledger will decide when the masked vector is made, and others have paid
        delta = self.exchange.invitation.delta if budget is None else budget.delta
        require_payable(
            path,
            self._charge,
            budget=self.consent.budget,
            delta=delta,
            max_teachers_per_unit=1,
            privacy_unit=RECORD,
        )
        if budget is None:
            ways = "`max_epsilon` with `delta`, a budget in the ledger, or a yes at a terminal"
            require(self.consent.accepts(self._cost), f"{ways}: {self._cost}")

    def _is_reserved(self) -> bool:
        path = self._ledger_path
        if not ((self.state / _STATE).is_file() and path.is_file()):
            return False
        return any(entry.token == self._token for entry in read_ledger(path).entries)

    @property
    def _token(self) -> str:
        return self._secrets.public.sealing.hex()

    def _reserve(self) -> None:
        """Write the cost of the sum to the silo's own ledger, once, whatever the server does."""
        (events, count), path, budget = self._charge, self._ledger_path, self.consent.budget
        Ledger(path, home=path).reserve(
            events,
            count=count,
            run=self.exchange.files.name,
            description=type(self.exchange.invitation.mechanism).__name__,
            seeded=False,
            budget=budget,
            delta=self.exchange.invitation.delta if budget is None else None,
            token=self._token,
            privacy_unit=RECORD,
        )

    @property
    def _ledger_path(self) -> Path:
        """The ledger that is named, or the one next to the votes.

        Raises ``ValueError`` if another may count them too.
        """
        default = ledger_beside(self.votes.resolve())
        return one_ledger(default) if self.ledger is None else self.ledger.resolve()

    def _send(self, kind: str, make: Callable[[], bytes]) -> None:
        """Send the kept file. If there is none, keep the content that ``make`` returns first."""
        path = self.exchange.path(kind, self.name)
        kept = self.state / f"{kind}{PurePosixPath(path).suffix}"
        remove_abandoned(kept)
        if not kept.is_file():
            self._keep(kept, make())
        self.exchange.send(path, kept.read_bytes())

    def _keep(self, path: Path, content: bytes) -> None:
        with output_errors(path):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.parent.chmod(0o700)  # one that was there, too
            write_once(path, content, mode=0o600)

    def _counts(self) -> IntArray:
        """Return the counts ``[Q, C]`` of the silo's teachers.

        Raises ``ValueError`` if they are not as invited.
        """
        terms, votes = self.exchange.invitation, read_votes(self.votes)
        require(
            votes.label_names == tuple(terms.label_names),
            f"label_names {', '.join(terms.label_names)}",
            label_names=votes.label_names,
        )
        ids = np.array(terms.ids)
        missing = np.setdiff1d(ids, votes.ids)
        require(
            missing.size == 0,
            f"votes on all {ids.size} samples of the invitation",
            missing=missing[:3].tolist(),
        )
        invited = terms.teachers[self.name]
        require(
            votes.num_teachers == invited,
            f"votes of {invited} teachers",
            num_teachers=votes.num_teachers,
        )
        require(
            issubclass(votes.kind, Counts),
            "ballots or counts, which can be summed",
            **{votes.kind.form: self.votes.name},
        )
        assert votes.counts is not None
        return votes.counts[rows_of(ids, votes.ids)]
