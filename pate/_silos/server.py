"""The server's part in a sum: it lists the silos in it, and opens it once they reveal shares."""

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pate._silos.exchange import INVITATION, SERVER, AwaitedError, Exchange, Invitation
from pate._silos.secrets import SigningKey, WordArray, is_share, rebuilt, unmasked
from pate._validation import require, require_known

Revealed = Mapping[str, Mapping[str, bytes]]
"""The shares that silos revealed, by their holder and their dealer."""


@dataclass(frozen=True)
class Server:
    """The server of an exchange.

    Args:
        exchange: the folder that all share.
        key: the key by which it signs the list of silos in the sum.
        without: silos that are left out if they have not sent their masked vectors.
    """

    exchange: Exchange
    key: SigningKey
    without: Collection[str] = ()

    def survivors(self) -> tuple[str, ...]:
        """Return the silos that are in the sum, or will be. Writes nothing.

        Raises:
            AwaitedError: if silos that are not left out have to send something first.
            ValueError: if more are left out than may drop out.
        """
        exchange, terms = self.exchange, self.exchange.invitation
        if exchange.place("survivors", SERVER).is_file():
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

    def open(self) -> tuple[WordArray, int]:
        """Return the sum ``[Q, C]``, which must be paid before, and the number of silos in it.

        The list of survivors is written; from then on silos reveal the shares that unmask the sum.
        If the shares of one silo do not fit and others are enough, a line on stderr names it.

        Raises:
            AwaitedError: if not enough silos have revealed their shares yet.
            ValueError: if revealed shares do not fit the dealt ones, and the others are not enough.
        """
        exchange, terms, survivors = self.exchange, self.exchange.invitation, self.survivors()
        require(
            self.key.public == terms.server_key,
            "the signing key of the invitation",
        )
        listed = exchange.message("survivors", SERVER, self.key, survivors=survivors)
        exchange.send(exchange.place("survivors", SERVER), listed)
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
            # it signed them, and everybody can compare them with the signed shares of their dealers
            place = exchange.place("unmasking", name)
            refusals.append(
                f"Expected shares as they were dealt in {place}, got others that {name} signed"
            )
            del revealed[name]
        self._require_enough(revealed, silent, refusals)
        for refusal in refusals:
            print(f"pate label: {refusal}. The shares of others are enough", file=sys.stderr)
        secrets = {name: self._rebuilt(name, revealed) for name in terms.teachers}
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
        absent = [
            name for name in exchange.survivors if not exchange.place("unmasking", name).is_file()
        ]
        raise AwaitedError(f"unmasking of {', '.join(absent)} ({threshold} of all are enough)")

    def _fit(self, holder: str, shares: Mapping[str, bytes]) -> bool:
        """Whether a silo revealed the shares that it was dealt."""
        place = [*self.exchange.invitation.teachers].index(holder)
        return all(
            is_share(share, place, self._commitments(name)) for name, share in shares.items()
        )

    def _commitments(self, name: str) -> tuple[bytes, ...]:
        """Return a silo's commitments to the one of its secrets that is revealed."""
        keys = self.exchange.roster[name]
        return keys.own_mask if name in self.exchange.survivors else keys.pairs

    def _rebuilt(self, name: str, revealed: Revealed) -> bytes:
        """Return the secret of a silo, from as many shares as are needed."""
        places = {holder: place for place, holder in enumerate(self.exchange.invitation.teachers)}
        chosen = [*revealed][: self.exchange.invitation.threshold]
        return rebuilt({places[holder]: revealed[holder][name] for holder in chosen})


def invite(exchange: Exchange, terms: Invitation) -> None:
    """Write the invitation. Raises ``ValueError`` if the folder has another."""
    exchange.send(exchange.folder / INVITATION, terms.content)
