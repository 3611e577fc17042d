"""The server's part in a sum: who is in it, and what it is once the silos reveal it."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pate._silos.exchange import INVITATION, SURVIVORS, AwaitedError, Exchange
from pate._silos.invitation import Invitation
from pate._silos.masks import WordArray, unmasked
from pate._silos.secrets import commitment_to, public_of_pairs, rebuilt
from pate._validation import expect, expect_known


@dataclass(frozen=True)
class Server:
    """The server of an exchange.

    Args:
        exchange: the folder that all share.
        without: silos that are left out if they have not sent their masked vectors.
    """

    exchange: Exchange
    without: Collection[str] = ()

    def survivors(self) -> tuple[str, ...]:
        """Return the silos that are to be in the sum, or that are. Writes nothing.

        Raises:
            AwaitedError: if silos that are not left out have to send something first.
            ValueError: if more are left out than may drop out.
        """
        exchange, terms = self.exchange, self.exchange.invitation
        if (exchange.folder / SURVIVORS).is_file():
            return exchange.survivors
        expect_known("--without", self.without, terms.teachers)
        _ = exchange.roster, exchange.shares  # of all: none can drop out before
        absent = exchange.absent("masked")
        if awaited := [name for name in absent if name not in self.without]:
            raise AwaitedError(f"masked of {', '.join(awaited)}")
        expect(len(absent) <= terms.dropouts, f"{terms.dropouts} silos at most to be left out", without=absent)
        survivors = tuple(name for name in terms.teachers if name not in absent)
        for name in survivors:
            exchange.masked(name)  # damaged ones are refused while nothing is revealed
        return survivors

    def open(self) -> tuple[WordArray, int]:
        """Return the sum ``[Q, C]`` of summands, which has to be paid for before, and the number of silos in it.

        The list of survivors is written, and from then on silos reveal what unmasks the sum. Of a silo whose file was
        left out, since others are enough, a line on stderr says so.

        Raises:
            AwaitedError: if not enough silos have done so yet.
            ValueError: if what they reveal does not fit what they sent before, and no others are enough.
        """
        exchange, terms, survivors = self.exchange, self.exchange.invitation, self.survivors()
        names = json.dumps({"invitation": terms.digest, "survivors": survivors})
        exchange.send(exchange.folder / SURVIVORS, names.encode())
        revealed, refusals = {}, []
        for name in survivors:
            try:
                if (shares := exchange.unmasking(name)) is not None:
                    revealed[name] = shares
            except ValueError as error:
                refusals.append(str(error))  # others may be enough
        if len(revealed) < terms.threshold:
            if refusals:
                raise ValueError(refusals[0])
            silent = [name for name in survivors if name not in revealed]
            raise AwaitedError(f"unmasking of {', '.join(silent)} ({terms.threshold} of all are enough)")
        seeds = {}
        for name in terms.teachers:
            seeds[name], liar = self._seed(name, revealed)
            if liar is not None:
                refusals.append(
                    f"Expected shares as they were dealt in {exchange.place('unmasking', liar)}, got others"
                )
        for refusal in dict.fromkeys(refusals):
            print(f"pate label: {refusal}. The shares of others are enough", file=sys.stderr)
        total = unmasked(
            map(exchange.masked, survivors),
            own_mask_seeds=[seeds[name] for name in survivors],
            pairs_seeds={name: seed for name, seed in seeds.items() if name not in survivors},
            roster=exchange.roster,
            context=terms.digest,
        )
        return total.reshape(len(terms.ids), len(terms.label_names)), len(survivors)

    def _seed(self, name: str, revealed: Mapping[str, Mapping[str, bytes]]) -> tuple[bytes, str | None]:
        """Return the seed of a silo, and the holder whose share had to be left out, if there is one."""
        exchange, terms, holders = self.exchange, self.exchange.invitation, [*revealed]
        places = {holder: place for place, holder in enumerate(terms.teachers)}
        for first in range(len(holders)):  # so that each is left out once, where there are more than needed
            chosen = [*holders[first:], *holders[:first]][: terms.threshold]
            seed = rebuilt({places[holder]: revealed[holder][name] for holder in chosen})
            keys, context = exchange.roster[name], terms.digest
            fits = (
                commitment_to(seed, context, name) == keys.commitment
                if name in exchange.survivors
                else public_of_pairs(seed, context, name) == keys.pairs
            )
            if fits:  # the choice before differed by one holder, and did not fit
                return seed, holders[first - 1] if first else None
        who = ", ".join(holders)
        raise ValueError(f"Expected shares of {name}'s secret, from {who}, as it dealt them, got shares='others'")


def invite(exchange: Exchange, terms: Invitation) -> None:
    """Write the invitation. Raises ``ValueError`` if the folder has another."""
    exchange.send(exchange.folder / INVITATION, terms.content)
