"""Labels from silos that mask their votes: the invitation, and the sum that is released."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pate._pipeline import Pipeline
from pate._planning.completion import resolve_settings
from pate._release.label_settings import LabelSettings, queries_on
from pate._release.statements import StatedLabels
from pate._silos.exchange import Exchange, Invitation, require_private, waiting
from pate._silos.secrets import SigningKey, read_public_keys
from pate._silos.server import Server, invite
from pate._stages.votes_import import VotesFrom
from pate._validation import require, require_given
from pate._votes import MaskedTotal, Votes, VoteShape
from pate._votes.named import Silos
from pate._votes.store import VoteManifest
from pate.aggregators import Partial, SiloVotes
from pate.data import DataSource, Role
from pate.data._checks import as_text


@dataclass(frozen=True, kw_only=True)
class SiloSum:
    """The request of `pate label --silos` to silos.

    Attributes:
        exchange: the folder through which they send.
        teachers: the nominal number of teachers of each silo, by its name.
        public_keys: a folder with the public key of each silo, by its name.
        signing_key: the file of the server's private key. PRIVATE.
        without: silos that are left out if they have not sent their masked vectors.
        wait: the number of seconds to wait for others; None to wait without end.
    """

    exchange: Path
    teachers: Mapping[str, int]
    public_keys: Path
    signing_key: Path
    without: Sequence[str] = ()
    wait: float | None = None


@dataclass(frozen=True, eq=False)
class MaskedSilos(Silos):
    """Silos that mask their votes; only the invitation to them is known."""

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


@dataclass(frozen=True)
class InvitedSum:
    """The sum of invited silos, which may still send their shares.

    Attributes:
        server: the server of the exchange.
        terms: the invitation.
        wait: the longest wait in seconds; None for no limit.
    """

    server: Server
    terms: Invitation
    wait: float | None

    def collect(self) -> None:
        """Invite the silos, and wait for the masked vectors of all that are not left out.

        Raises:
            AwaitedError: if some are late.
            ValueError: if the folder has another invitation, or a file in it is damaged.
        """
        invite(self.server.exchange, self.terms)
        waiting(self.server.survivors, self.wait)

    @property
    def identity(self) -> str:
        """The digest of all keys, which determine the masks; other keys mean other noise."""
        return self.server.exchange.roster_digest

    def open(self) -> tuple[NDArray[np.uint64], int]:
        """Wait until the sum ``[Q, C]`` can be unmasked; return it and the number of its silos."""
        return waiting(self.server.open, self.wait)


def label_silos(
    pipeline: Pipeline, settings: LabelSettings, request: SiloSum, *, unit: str | None = None
) -> StatedLabels:
    """Release labels as `Pipeline.label` does, from silos that mask their votes on public records.

    Raises ``AwaitedError`` if a silo is late.
    """
    require_private(request.exchange, run=pipeline.folder)
    complete, silos, total = invited(request, settings, pipeline.data)
    return pipeline._released(complete, VotesFrom(silos=silos, unit=unit), total)


def invited(
    request: SiloSum, settings: LabelSettings, data: DataSource | None
) -> tuple[LabelSettings, MaskedSilos, InvitedSum]:
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
    require(
        complete.query_choice is None,
        "no query_choice with silos, which agree on a seeded order",
        query_choice=complete.query_choice,
    )
    manifest = VoteManifest(
        num_teachers=shape.num_teachers,
        label_names=names,
        made_by={},
        chunks={},
        ids=ids.tolist(),
        ballots="masked",
    )
    require_private(
        request.exchange, signing_key=request.signing_key, public_keys=request.public_keys
    )
    key, teachers = SigningKey.read(request.signing_key), dict(sorted(request.teachers.items()))
    terms = Invitation(
        teachers=teachers,
        keys=read_public_keys(request.public_keys, teachers),
        server_key=key.public,
        ids=queries_on(manifest, complete).ids.tolist(),
        label_names=list(names),
        sigma_silos=float(mechanism.sigma_silos),
        colluding=mechanism.colluding,
        dropouts=mechanism.dropouts,
        delta=float(complete.delta),
    )
    server = Server(Exchange(request.exchange), key, request.without)
    return (
        complete,
        MaskedSilos(ids, tuple(names), None, (), terms),
        InvitedSum(server, terms, request.wait),
    )
