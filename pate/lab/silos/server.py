"""The server's part in labels from silos that mask their votes.

It invites the silos, lists those in the sum, and opens the sum once they reveal shares.
"""

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pate._core.settings import Partial
from pate._core.validation import require, require_given, require_known
from pate._labeling.aggregators.noisy_votes import SiloVotes
from pate._labeling.data.records import Role, as_text
from pate._labeling.data.source import DataSource
from pate._labeling.plan import RunPlan
from pate._labeling.release.completion import resolve_settings
from pate._labeling.release.label_settings import LabelSettings, queries_on
from pate._labeling.release.labels import StatedLabels
from pate._labeling.runs.named_votes import Silos
from pate._labeling.runs.vote_store import VoteFacts
from pate._labeling.stages.votes_import import VotesFrom
from pate._labeling.votes.kinds import MaskedTotal, Votes, VoteShape
from pate.lab.silos.exchange import (
    INVITATION,
    SERVER,
    AwaitedError,
    Exchange,
    Invitation,
    require_private,
    say,
    waiting,
)
from pate.lab.silos.secrets import (
    SigningKey,
    WordArray,
    is_share,
    read_public_keys,
    rebuilt,
    unmasked,
)

Revealed = Mapping[str, Mapping[str, bytes]]
"""The shares that silos revealed, by their holder and their dealer."""


@dataclass(frozen=True)
class Server:
    """The server of an exchange, and the sum that it invites silos to.

    Args:
        exchange: the exchange that all share.
        key: its key for signing the list of silos in the sum.
        terms: the invitation.
        without: silos that are left out if they have not sent their masked vectors.
        wait: the longest wait for others, in seconds. None for no limit.
    """

    exchange: Exchange
    key: SigningKey
    terms: Invitation
    without: Collection[str] = ()
    wait: float | None = 0.0

    def invite(self) -> None:
        """Write the invitation. Raises ``ValueError`` if the exchange has another."""
        self.exchange.send(INVITATION, self.terms.content)

    def collect(self) -> None:
        """Invite the silos, and wait for the masked vectors of all that are not left out.

        Raises:
            AwaitedError: if some are late.
            ValueError: if the exchange has another invitation, or a file in it is damaged.
        """
        self.invite()
        waiting(self.exchange, self.survivors, self.wait)

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
        return waiting(self.exchange, self._opened, self.wait)

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
                f"Expected shares as they were dealt in {exchange.place('unmasking', name)}, got"
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

    def _require_enough(self, revealed: Revealed, silent: int, refusals: Sequence[str]) -> None:
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
        exchange: the folder, or the URL of a store, through which they send.
        teachers: the nominal number of teachers of each silo, by its name.
        public_keys: a folder with the public key of each silo, by its name.
        signing_key: the file of the server's private key. PRIVATE.
        without: silos that are left out if they have not sent their masked vectors.
        wait: the number of seconds to wait for others. None to wait without end.
    """

    exchange: str | Path
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
