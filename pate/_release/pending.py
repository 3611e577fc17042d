"""Releases under way, which a killed command resumes without paying or drawing again. PRIVATE.

Before a release is reserved, its token and the seed of its noise are written to a file named by a
digest of the request. The same command finds that file: the token leads to its reservation in the
ledger, the seed to its noise. A seed serves one request on the same votes: no two requests ever
share noise.
"""

import json
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pate._files import atomic_write, read_json
from pate._validation import require
from pate.accounting import LedgerHead, read_ledger
from pate.mechanisms._noise import KEY_BITS

_TOKEN_BYTES = 16


@dataclass(frozen=True)
class PendingRelease:
    """A release under way.

    Attributes:
        file: its file, of mode 0600.
        token: the token of its reservation in the ledger.
        key: the key of its noise.
    """

    file: Path
    token: str
    key: int = field(repr=False)

    def write(self) -> None:
        """Write the file, unless it exists, to a folder of mode 0700; it is on disk on return.

        Raises:
            ValueError: if it cannot be written.
        """
        if self.file.is_file():
            return
        try:
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.file.parent.chmod(0o700)  # also an existing folder
            with atomic_write(self.file, "w") as file:
                os.fchmod(file.fileno(), 0o600)
                json.dump({"token": self.token, "key": f"{self.key:x}"}, file)
            # a reservation must never outlive the only way to find it
            folder = os.open(self.file.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            # the name of the file is a digest of PRIVATE data
            wanted = f"a folder for releases under way, got {self.file.parent}"
            raise ValueError(f"Expected {wanted} ({error.strerror})") from None

    def matches_statement(self, statement_file: Path, ledger: Path) -> bool:
        """Return whether a statement describes this release, killed after writing it.

        The statement then names a row of the ledger, and the ledger's number for this token.
        """
        if not (self.file.is_file() and ledger.is_file()):
            return False
        book = read_ledger(ledger)
        number = next((entry.release for entry in book.entries if entry.token == self.token), None)
        try:
            statement = read_json(statement_file.read_text(encoding="utf-8"))
            head = LedgerHead(statement["ledger"]["rows"], statement["ledger"]["digest"])
            return number is not None and number == statement["release"] and book.follows(head)
        except (OSError, ValueError, KeyError, TypeError):
            return False


def pending_release(folder: Path, request_digest: str, key: int) -> PendingRelease:
    """Return the release under way of the same request, or else a new one, not yet written.

    Args:
        folder: the folder of releases under way.
        request_digest: a digest of everything that determines the answers, except the noise.
        key: the noise key of a new release; ignored if one is under way.

    Raises:
        ValueError: if its file is damaged.
    """
    file = folder / f"{request_digest}.json"
    return (
        _read(file)
        if file.is_file()
        else PendingRelease(file, secrets.token_hex(_TOKEN_BYTES), key)
    )


def delete_other_seeds(pending: PendingRelease) -> None:
    """Delete the seeds of all other releases in the folder; their reservations stay counted."""
    for file in pending.file.parent.iterdir():
        if file != pending.file:
            file.unlink()


def destroy(folder: Path, token: str | None) -> None:
    """Delete the seed of the release with ``token``, if any, and the folder once it is empty."""
    for file in folder.glob("*.json"):
        with suppress(FileNotFoundError):  # another process has destroyed its own
            if token is not None and token in file.read_text():
                file.unlink()
    with suppress(OSError):
        folder.rmdir()


def _read(file: Path) -> PendingRelease:
    try:
        content = read_json(file.read_text())
        token, key = content["token"], int(content["key"], 16)
        require(isinstance(token, str) and token, "a token", token=type(token).__name__)
        require(0 <= key < 2**KEY_BITS, f"a key of {KEY_BITS} bits")
    except (ValueError, KeyError, TypeError):
        # neither the content nor the name, a digest of PRIVATE data, may be printed
        again = "Delete its folder, and the same command makes a new release, which costs again"
        requirement = f"what a command that was killed left. {again}"
        raise ValueError(f"Expected {requirement}, got damaged files in {file.parent}") from None
    return PendingRelease(file, token, key)
