"""A relay for silos that share no folder: the files of an exchange over HTTPS.

The relay serves the folder of `pate label --silos`. Each silo has a copy of the exchange: it takes
the files of the others from the relay, and sends its own. A silo signs each request, so nobody else
can read the files, or take the place of a file. The relay is as little trusted as a folder: all
files are signed, and a silo checks them in its copy.
"""

import json
import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer
from threading import BoundedSemaphore
from typing import Any, TypeVar
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from pate._core.files.reading import read_json
from pate._core.validation import one_line, require
from pate.lab.silos.exchange import INVITATION, AwaitedError, Exchange, Invitation, say, sha256
from pate.lab.silos.secrets import SigningKey, is_signed

LOOPBACK = ("127.0.0.1", "localhost")
POLL_SECONDS = 2.0
_SECONDS = 60  # without a byte from the other side
_MOST_BYTES = 2**28  # of an invitation; those of other files follow from it
_MOST_LINE = 1000  # bytes of a refusal
_MOST_CONNECTIONS = 256  # at a time
_BLOCK = 2**16
_READ = ("invitation", "keys", "shares", "survivors")
"""The kinds of files that silos take from a relay; masked vectors are for the server only."""
_Result = TypeVar("_Result")


def _signed_text(invitation: str, name: str, method: str, path: str, digest: str) -> bytes:
    """Return what a silo signs; only the invitation is asked for before its digest is known."""
    known = "" if path == f"/{INVITATION}" else invitation
    return json.dumps(["pate silo relay", known, name, method, path, digest]).encode()


class _RefusedError(ValueError):
    """The relay refused a request."""


class _Direct(HTTPRedirectHandler):
    """Follows no redirect, which could lead to an address that is not encrypted."""

    def redirect_request(self, *_: object) -> None:
        """Return no request."""


class Relay(ThreadingTCPServer):
    """A server of the files of one exchange.

    Args:
        folder: the folder of the exchange.
        host: the address to listen at.
        port: the port; 0 for any.
        certificate: a PEM file with a certificate and its chain; None only on the loopback.
        certificate_key: a PEM file with the certificate's key; None if it is in ``certificate``.
        tell: takes a line for people on each file that arrives.

    Raises:
        ValueError: without certificate elsewhere than on the loopback, or with files that are none.
    """

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        folder: Path,
        host: str,
        port: int,
        *,
        certificate: Path | None = None,
        certificate_key: Path | None = None,
        tell: Callable[[str], None] = say,
    ) -> None:
        require(
            certificate is not None or host in LOOPBACK,
            "a certificate, unless the host is 127.0.0.1",
            host=host,
        )
        context = None
        if certificate is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            try:
                context.load_cert_chain(certificate, certificate_key)
            except OSError as error:
                raise ValueError(
                    f"Expected PEM files of a certificate and its key, got {certificate} ({error})"
                ) from None
        self.exchange, self.tell = Exchange(folder), tell
        self._free = BoundedSemaphore(_MOST_CONNECTIONS)
        try:
            super().__init__((host, port), _Answer)
        except (OSError, OverflowError) as error:
            raise ValueError(
                f"Expected a host and a free port of this machine, got {host}:{port} ({error})"
            ) from None
        if context is not None:
            # each handshake in the thread of its request, so that a slow one holds up no other
            self.socket = context.wrap_socket(
                self.socket, server_side=True, do_handshake_on_connect=False
            )

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a thread of its own, or close it if there are too many."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a connection, and make room for another one."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Print no traceback for a connection that ends early, such as a scan of ports."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    @property
    def url(self) -> str:
        """The address."""
        scheme = "https" if isinstance(self.socket, ssl.SSLSocket) else "http"
        host, port = self.server_address[:2]
        return f"{scheme}://{host!s}:{port}"


class _Answer(BaseHTTPRequestHandler):
    server: Relay
    timeout = _SECONDS
    unread = 0  # bytes of the request

    def do_GET(self) -> None:
        """Answer with the list of files, or with a file."""
        self._answer()

    def do_PUT(self) -> None:
        """Write a silo's own file, once."""
        self._answer()

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing for a request."""

    def _answer(self) -> None:
        try:
            status, content = self._result(self.server.exchange)
        except AwaitedError as error:
            status, content = HTTPStatus.NOT_FOUND, f"waiting for {error}".encode()
        except ValueError as error:
            status, content = HTTPStatus.CONFLICT, str(error).encode()
        # who still sends does not read why the content is refused
        while 0 < self.unread <= _MOST_BYTES and self.rfile.read(min(self.unread, _BLOCK)):
            self.unread -= _BLOCK
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _result(self, exchange: Exchange) -> tuple[HTTPStatus, bytes]:
        headers = self.headers
        size = headers.get("Content-Length", "0")
        self.unread = int(size) if size.isdecimal() else 0
        terms = exchange.invitation
        name, path = unquote(headers.get("Silo", "")), unquote(self.path)
        digest = headers.get("Digest", "")
        text = _signed_text(terms.digest, name, self.command, path, digest)
        if not is_signed(text, headers.get("Signature", ""), terms.keys.get(name, "")):
            return HTTPStatus.FORBIDDEN, b"Expected a request that an invited silo signed"
        if not size.isdecimal() or self.unread > most_bytes(exchange):
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, b"Expected a file of an exchange"
        content, self.unread = self.rfile.read(self.unread), 0
        if sha256(content) != digest:
            return HTTPStatus.BAD_REQUEST, b"Expected the signed content"
        if path == "/":
            present = [path for path in exchange.files if (exchange.folder / path).is_file()]
            return HTTPStatus.OK, json.dumps(present).encode()
        path = path.removeprefix("/")
        kind, sender = exchange.files.get(path, ("", ""))
        if not (kind in _READ if self.command == "GET" else sender == name):
            return HTTPStatus.FORBIDDEN, b"Expected a file that a silo reads or its own"
        place = exchange.folder / path
        if not place.resolve().is_relative_to(exchange.folder.resolve()):
            return HTTPStatus.FORBIDDEN, b"Expected files in the exchange, not links out of it"
        if self.command == "GET":
            if not place.is_file():
                raise AwaitedError(path)
            return HTTPStatus.OK, place.read_bytes()
        new = not place.is_file()
        exchange.send(place, content)
        if new:
            self.server.tell(f"{name} sent {kind}. {exchange.progress}")
        return HTTPStatus.CREATED, b""


def most_bytes(exchange: Exchange) -> int:
    """Return a bound on the size of each file of a silo."""
    terms = exchange.invitation
    return 8 * len(terms.ids) * len(terms.label_names) + 2048 * len(terms.teachers) + 2**16


@dataclass(frozen=True)
class Relayed:
    """A silo's copy of an exchange, and the relay that has the others' files.

    Args:
        url: the address of the relay, ``https://HOST:PORT``.
        exchange: the copy.
        name: the name of the silo.
        key: the key by which it signs.

    Raises:
        ValueError: if the address is not encrypted, except on the loopback.
    """

    url: str
    exchange: Exchange
    name: str
    key: SigningKey

    def __post_init__(self) -> None:
        wanted = "a relay at https://HOST:PORT"
        try:
            parts = urlsplit(self.url)
            plain = urlunsplit((parts.scheme, parts.netloc, parts.path, "", "")) == self.url
            known = parts.port is None or parts.port > 0
        except ValueError as error:
            raise ValueError(f"Expected {wanted}, got {self.url!r} ({error})") from None
        encrypted = parts.scheme == "https" or (
            parts.scheme == "http" and parts.hostname in LOOPBACK
        )
        clear = plain and known and parts.hostname and not {*" @"} & {*self.url}
        require(encrypted and clear, wanted, relay=self.url)

    def around(self, step: Callable[[], _Result]) -> Callable[[], _Result]:
        """Return ``step`` between the files of others and its own.

        It raises `AwaitedError` as long as the relay cannot be reached, and ``ValueError`` if the
        relay refuses a request.
        """

        def exchanged() -> _Result:
            place = self.exchange.folder / INVITATION
            if not place.is_file():
                content = self._request("GET", INVITATION)
                Invitation.of(content)  # a copy keeps what it takes
                self.exchange.send(place, content)
            present = self._present()
            self._take(present)
            try:
                result = step()
            except AwaitedError:
                self._give(present)
                raise
            self._give(present)
            return result

        return exchanged

    def _present(self) -> list[str]:
        """Return the paths of the files that the relay has."""
        try:
            present = read_json(self._request("GET", ""))
            require(
                isinstance(present, list) and all(isinstance(path, str) for path in present),
                "a list of texts",
            )
        except (TypeError, UnicodeError, ValueError) as error:
            if isinstance(error, _RefusedError):
                raise
            raise ValueError(
                f"Expected the list of files of a `pate silo relay` at {self.url}, got another answer"
            ) from None
        return list(present)

    def _take(self, present: list[str]) -> None:
        for path, (kind, _) in self.exchange.files.items():
            place = self.exchange.folder / path
            if path in present and kind in _READ and not place.is_file():
                self.exchange.send(place, self._request("GET", path))

    def _give(self, present: list[str]) -> None:
        for path, (_, sender) in self.exchange.files.items():
            place = self.exchange.folder / path
            if sender == self.name and path not in present and place.is_file():
                self._request("PUT", path, place.read_bytes())

    def _request(self, method: str, path: str, content: bytes = b"") -> bytes:
        digest = sha256(content)
        invitation = "" if path == INVITATION else self.exchange.invitation.digest
        signature = self.key.sign(_signed_text(invitation, self.name, method, f"/{path}", digest))
        request = Request(
            f"{self.url.rstrip('/')}/{quote(path)}",
            content if method == "PUT" else None,
            {"Silo": quote(self.name), "Digest": digest, "Signature": signature},
            method=method,
        )
        most = _MOST_BYTES if path in ("", INVITATION) else most_bytes(self.exchange)
        local = urlsplit(self.url).hostname in LOOPBACK
        opener = build_opener(_Direct, *([ProxyHandler({})] if local else []))
        try:
            try:
                with opener.open(request, timeout=_SECONDS) as response:
                    received: bytes = response.read(most + 1)
            except HTTPError as error:
                text = one_line(error.read(_MOST_LINE).decode(errors="replace"))
                if error.code == HTTPStatus.NOT_FOUND or error.code >= 500:
                    raise AwaitedError(text or f"{self.url} ({error.reason})") from None
                raise _RefusedError(
                    f"Expected a relay that takes {method} /{path}, got status {error.code}: {text}"
                ) from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise _RefusedError(
                    f"Expected a certificate of {self.url} that this machine trusts; SSL_CERT_FILE"
                    f" names another ({reason.verify_message})"
                ) from None
            raise AwaitedError(f"the relay at {self.url} ({reason})") from None
        require(len(received) <= most, f"a file of at most {most} bytes at {self.url}/{path}")
        return received
