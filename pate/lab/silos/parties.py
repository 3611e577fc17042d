"""Both sides of a sum: a silo sends each of its files in turn, and once; the server opens the sum.

The server invites the silos, lists those in the sum, and opens it once they reveal shares.
"""

import json
import secrets
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

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
from pate._core.files.reading import LARGE, digest, load_json, read_bytes
from pate._core.files.writing import output_errors, remove_abandoned, write_once
from pate._core.mechanisms.noise import private_generator, summand
from pate._core.settings import Partial
from pate._core.transaction import unfinished
from pate._core.validation import IntArray, require, require_given, require_known
from pate._labeling.aggregators.noisy_votes import SiloVotes
from pate._labeling.data.records import Role, as_text
from pate._labeling.data.source import DataSource
from pate._labeling.plan import RunPlan
from pate._labeling.release.label_settings import LabelSettings, queries_on, resolve_settings
from pate._labeling.release.labels import StatedLabels
from pate._labeling.runs.vote_store import VoteFacts
from pate._labeling.stages.votes_import import Silos, VotesFrom, read_votes
from pate._labeling.votes.kinds import Counts, MaskedTotal, Votes, VoteShape, rows_of
from pate.lab.silos.exchange import (
    SERVER,
    AwaitedError,
    Exchange,
    Invitation,
    require_private,
    say,
    waiting,
)
from pate.lab.silos.secrets import (
    ROOT_BYTES,
    Secrets,
    Share,
    SigningKey,
    WordArray,
    is_share,
    masked,
    read_public_keys,
    rebuilt,
    unmasked,
)

_STATE = "secrets.json"
_RELATION = NeighboringRelation.REPLACE_RECORD


@dataclass(frozen=True, kw_only=True)
class Consent:
    """The consent of the people of a silo. Without it the silo sends nothing.

    Attributes:
        public_keys: the keys of all silos and of the server, in hexadecimal, that people gave each
            other before.
        budget: the limit on the total cost of all sums in the silo's ledger. None for the budget
            that the ledger has, or for a yes.
        accepts: asks a person to accept the cost that it is given, where there is no budget.
    """

    public_keys: Mapping[str, str]
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
        require(roster[name] == kept.public, f"the keys of {name} in {exchange.folder}")

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
            exchange.folder,
            state=self.state,
            votes=self.votes,
            signing_key=self.signing_key,
            ledger=self._ledger_path,
        )
        require(
            self._key.public == terms.keys[name],
            f"the key of {name} in the invitation",
        )
        invited = {**terms.keys, SERVER: terms.server_key}
        others = [each for each, key in invited.items() if consent.public_keys.get(each) != key]
        require(not others, f"an invitation with the keys that {name} knows", others=others)
        exchange.require_invited()  # or who can write here could have silos pay for nothing
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
            content = load_json(path)
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
            run=self.exchange.folder.resolve().name,
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
        kept = self.state / f"{kind}{path.suffix}"
        remove_abandoned(kept)
        if not kept.is_file():
            self._keep(kept, make())
        self.exchange.send(path, read_bytes(kept, LARGE))

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
        rows, ballots = rows_of(ids, votes.ids), votes.ballots
        if ballots is None:
            return np.asarray(votes.counts)[rows]
        return np.asarray(ballots[rows].sum(axis=1, dtype=np.int64))


@dataclass(frozen=True)
class Server:
    """The server of an exchange, and the sum that it invites silos to.

    Args:
        exchange: the exchange that all share.
        key: its key for signing the invitation and the list of silos in the sum.
        terms: the invitation.
        without: silos that are left out if they have not sent their masked vectors.
        wait: the longest wait for others, in seconds. None for no limit.
    """

    exchange: Exchange
    key: SigningKey
    terms: Invitation
    without: Collection[str] = ()
    wait: float | None = 0.0

    def collect(self) -> None:
        """Invite the silos, and wait for the masked vectors of all that are not left out.

        Raises:
            AwaitedError: if some are late.
            ValueError: if the exchange has another invitation, or a file in it is damaged.
        """
        self.exchange.invite(self.terms, self.key)
        waiting(self.survivors, self.wait)

    @property
    def identity(self) -> str:
        """The digest of all keys, which determine the masks; other keys mean other noise."""
        return self.exchange.roster_digest

    def open(self) -> tuple[WordArray, int]:
        """Return the sum ``[Q, C]``, which must be paid before, and the number of silos in it.

        The list of survivors is written; from then on silos reveal the shares that unmask the sum.
        If the shares of one silo do not fit and others are enough, a line on stderr names it.

        Raises:
            AwaitedError: if not enough silos have revealed their shares in time.
            ValueError: if revealed shares do not fit the dealt ones, and the others are not enough.
        """
        return waiting(self._opened, self.wait)

    def survivors(self) -> tuple[str, ...]:
        """Return the silos that are in the sum, or will be. Writes nothing.

        Raises:
            AwaitedError: if silos that are not left out have to send something first.
            ValueError: if more are left out than may drop out.
        """
        exchange, terms = self.exchange, self.exchange.invitation
        if exchange.has("survivors", SERVER):
            return exchange.survivors
        require_known("`without`", self.without, terms.teachers)
        _ = exchange.roster, exchange.shares  # of all: none can drop out before
        absent = exchange.absent("masked")
        damaged = [name for name in self.without if name not in absent and not self._is_whole(name)]
        absent = [name for name in terms.teachers if name in (*absent, *damaged)]
        if awaited := [name for name in absent if name not in self.without]:
            raise AwaitedError(f"masked of {', '.join(awaited)}")
        require(
            len(absent) <= terms.dropouts,
            f"{terms.dropouts} silos at most to be left out",
            without=absent,
        )
        survivors = tuple(name for name in terms.teachers if name not in absent)
        for name in survivors:
            exchange.masked(name)  # damaged ones are refused while nothing is revealed
        return survivors

    def _opened(self) -> tuple[WordArray, int]:
        exchange, terms, survivors = self.exchange, self.exchange.invitation, self.survivors()
        require(
            self.key.public == terms.server_key,
            "the signing key of the invitation",
        )
        exchange.send(
            exchange.path("survivors", SERVER),
            exchange.message("survivors", SERVER, self.key, survivors=survivors),
        )
        revealed: dict[str, dict[str, bytes]] = {}
        refusals: list[str] = []
        for name in survivors:
            try:
                if (shares := exchange.unmasking(name)) is not None:
                    revealed[name] = shares
            except ValueError as error:
                refusals.append(str(error))  # others may be enough
        silent = len(survivors) - len(revealed) - len(refusals)
        self._require_enough(revealed, silent, refusals)
        for name in [name for name, shares in revealed.items() if not self._fit(name, shares)]:
            # it signed them, and anyone can compare them with the signed shares of their dealers
            refusals.append(
                f"Expected shares as they were dealt in {exchange.path('unmasking', name)}, got"
                f" others that {name} signed"
            )
            del revealed[name]
        self._require_enough(revealed, silent, refusals)
        for refusal in refusals:
            say(f"pate label: {refusal}. The shares of others are enough", file=sys.stderr)
        places = {holder: place for place, holder in enumerate(terms.teachers)}
        chosen = [*revealed][: terms.threshold]
        secrets = {
            name: rebuilt({places[holder]: revealed[holder][name] for holder in chosen})
            for name in terms.teachers
        }
        total = unmasked(
            map(exchange.masked, survivors),
            own_mask_seeds=[secrets[name] for name in survivors],
            pairs_keys={name: secret for name, secret in secrets.items() if name not in survivors},
            roster=exchange.roster,
            context=terms.digest,
        )
        return total.reshape(len(terms.ids), len(terms.label_names)), len(survivors)

    def _is_whole(self, name: str) -> bool:
        """Whether the masked vector of a silo is there as the silo signed it."""
        try:
            self.exchange.masked(name)
        except ValueError:
            return False
        return True

    def _require_enough(
        self, revealed: Collection[str], silent: int, refusals: Sequence[str]
    ) -> None:
        """Raise `AwaitedError`, or ``ValueError`` if no more can come, unless shares suffice."""
        exchange, threshold = self.exchange, self.exchange.invitation.threshold
        if len(revealed) >= threshold:
            return
        if len(revealed) + silent < threshold:
            raise ValueError(refusals[0])
        late = exchange.absent("unmasking")
        absent = [name for name in exchange.survivors if name in late]
        raise AwaitedError(f"unmasking of {', '.join(absent)} ({threshold} of all are enough)")

    def _fit(self, holder: str, shares: Mapping[str, bytes]) -> bool:
        """Whether a silo revealed the shares that it was dealt, of one secret of each silo."""
        place, in_sum = [*self.exchange.roster].index(holder), self.exchange.survivors
        return all(
            is_share(shares[name], place, keys.own_mask if name in in_sum else keys.pairs)
            for name, keys in self.exchange.roster.items()
        )


@dataclass(frozen=True, kw_only=True)
class SiloSum:
    """The request of `pate label --silos` to silos.

    Attributes:
        exchange: the folder through which they send.
        teachers: the nominal number of teachers of each silo, by its name.
        public_keys: a folder with the public key of each silo, by its name.
        signing_key: the file of the server's private key. PRIVATE.
        without: silos that are left out if they have not sent their masked vectors.
        wait: the number of seconds to wait for others. None to wait without end.
    """

    exchange: Path
    teachers: Mapping[str, int]
    public_keys: Path
    signing_key: Path
    without: Sequence[str] = ()
    wait: float | None = None


@dataclass(frozen=True, eq=False)
class MaskedSilos(Silos):
    """Silos that mask their votes. Only the invitation to them is known."""

    terms: Invitation

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """The digest of the invitation."""
        return (self.terms.digest,)

    @property
    def num_teachers(self) -> int:
        """The nominal number of teachers of all silos."""
        return self.terms.shape.num_teachers

    @property
    def kind(self) -> type[Votes]:
        """A masked sum, because the ballots are unknown."""
        return MaskedTotal


def label_silos(plan: RunPlan, request: SiloSum, *, unit: str | None = None) -> StatedLabels:
    """Execute a plan of labels by silos that mask their votes on public records.

    Raises ``AwaitedError`` if a silo is late.
    """
    require_private(request.exchange, run=plan.root)
    labels = require_given(plan.labels, "labels of a plan")
    complete, silos, total = invited(request, labels, plan.data)
    imported = VotesFrom(silos=silos, unit=unit, total=total)
    return replace(plan, labels=complete, imported=imported).execute()


def invited(
    request: SiloSum, settings: LabelSettings, data: DataSource | None
) -> tuple[LabelSettings, MaskedSilos, Server]:
    """Return complete settings, the silos, and the sum that they are invited to.

    Writes nothing.

    Raises:
        ValueError: without public records, or if no noise meets the target, the aggregator is not
            `SiloVotes` of as many silos, or the noise has a seed.
    """
    data = require_given(data, "`data` with the public records that the silos vote on")
    require(
        settings.noise_seed is None,
        "no noise_seed with `silos`, which draw the noise",
        seed=settings.noise_seed,
    )
    ids, names = np.sort(as_text(data.load(Role.PUBLIC).ids)), data.label_names
    shape = VoteShape(sum(request.teachers.values()), len(names))
    silos, aggregator = len(request.teachers), settings.aggregator or Partial(SiloVotes)
    if isinstance(aggregator, Partial) and "silos" in aggregator.missing:
        aggregator = aggregator.complete(silos=silos)
    complete = resolve_settings(
        replace(settings, aggregator=aggregator), shape, len(ids), MaskedTotal
    )
    mechanism = complete.mechanism
    require(
        isinstance(mechanism, SiloVotes),
        "SiloVotes, which says how many silos draw which noise",
        aggregator=type(mechanism).__name__,
    )
    assert isinstance(mechanism, SiloVotes)
    require(mechanism.silos == silos, f"silos={silos}, as `teachers` names", silos=mechanism.silos)
    votes = VoteFacts(ids=ids, label_names=names, num_teachers=shape.num_teachers, kind=MaskedTotal)
    require_private(
        request.exchange, signing_key=request.signing_key, public_keys=request.public_keys
    )
    key, teachers = SigningKey.read(request.signing_key), dict(sorted(request.teachers.items()))
    terms = Invitation(
        teachers=teachers,
        keys=read_public_keys(request.public_keys, teachers),
        server_key=key.public,
        ids=queries_on(votes, complete).ids.tolist(),
        label_names=list(names),
        sigma_silos=float(mechanism.sigma_silos),
        colluding=mechanism.colluding,
        dropouts=mechanism.dropouts,
        single_sums=mechanism.single_sums,
        delta=float(complete.delta),
    )
    return (
        complete,
        MaskedSilos(ids, tuple(names), None, (), terms),
        Server(Exchange(request.exchange), key, terms, request.without, request.wait),
    )
