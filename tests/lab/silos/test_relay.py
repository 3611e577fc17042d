"""Sums of silos that share no folder: the relay between their copies of an exchange."""

import json
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from pate import cli
from pate.lab.silos import relay as relays
from pate.lab.silos.exchange import AwaitedError, Exchange, sha256, waiting
from pate.lab.silos.member import Member
from pate.lab.silos.relay import Relay, Relayed, most_bytes
from pate.lab.silos.secrets import SigningKey
from tests.lab.silos.exchanges import Hospitals
from tests.lab.silos.test_exchange import require_same


@contextmanager
def served(hospitals: Hospitals, **settings: object) -> Iterator[tuple[str, list[str]]]:
    """Run a relay of an exchange on the loopback; yield its address and the lines it says."""
    lines: list[str] = []
    with Relay(hospitals.exchange.folder, "127.0.0.1", 0, tell=lines.append, **settings) as server:  # type: ignore[arg-type]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.url, lines
        finally:
            server.shutdown()
            thread.join()


def relayed(hospitals: Hospitals, name: str, url: str, *, by: str | None = None) -> Relayed:
    key = SigningKey.read(hospitals.signing_key(by or name))
    return Relayed(url, Exchange(hospitals.folder / name / "copy"), name, key)


def advance(hospitals: Hospitals, name: str, url: str) -> str:
    """Do all that a silo can do through a relay, and return whom it awaits or knows in the sum."""
    remote, home = relayed(hospitals, name, url), hospitals.folder / name

    def step() -> tuple[str, ...]:
        return Member(
            remote.exchange,
            name,
            hospitals.votes(name),
            home / "private",
            hospitals.signing_key(name),
            hospitals.consent(),
        ).advance()

    try:
        return "done: " + ", ".join(remote.around(step)())
    except AwaitedError as error:
        return str(error)


def signed(hospitals: Hospitals, name: str, method: str, path: str, content: bytes) -> str:
    terms, digest = hospitals.exchange.invitation.digest, sha256(content)
    return SigningKey.read(hospitals.signing_key(name)).sign(
        relays._signed_text(terms, name, method, path, digest)
    )


def request(
    url: str, method: str, path: str, signature: str, name: str, content: bytes = b""
) -> tuple[int, bytes]:
    """Send a request as a silo would, or somebody who pretends to be one."""
    headers = {"Silo": name, "Digest": sha256(content), "Signature": signature}
    sent = Request(url + path, content or None, headers, method=method)
    try:
        with urlopen(sent, timeout=5) as response:
            return response.status, response.read()
    except HTTPError as error:
        return error.code, error.read()


def test_a_sum_through_a_relay_is_the_sum_through_a_folder(tmp_path: Path) -> None:
    hospitals = Hospitals(tmp_path)
    with served(hospitals) as (url, lines):
        for _ in range(3):
            awaited = [advance(hospitals, name, url) for name in hospitals.teachers]
        assert awaited == ["the list of silos in the sum"] * 3
        with suppress(AwaitedError):
            hospitals.server().open()
        done = [advance(hospitals, name, url) for name in hospitals.teachers]
    assert done == ["done: north, south, west"] * 3
    require_same(hospitals.server().open(), hospitals.curators())
    assert lines[0] == "north sent keys. Waiting for keys of south, west"
    assert lines[-1] == "west sent unmasking. All silos have sent all files"
    # a silo has no masked vector but its own
    copy = hospitals.folder / "north" / "copy"
    assert [path.name for path in (copy / "masked").iterdir()] == ["north.npz"]


def test_a_silo_goes_on_after_a_loss_of_its_copy_or_of_the_relay(tmp_path: Path) -> None:
    hospitals = Hospitals(tmp_path)
    with served(hospitals) as (url, _):
        advance(hospitals, "north", url)
    assert advance(hospitals, "north", url).startswith(f"the relay at {url} (")
    shutil.rmtree(hospitals.folder / "north" / "copy")
    with served(hospitals) as (url, lines):
        for _ in range(3):
            for name in hospitals.teachers:
                advance(hospitals, name, url)
        assert not any(line.startswith("north sent keys") for line in lines)
    hospitals.reveal()
    require_same(hospitals.server().open(), hospitals.curators())


def test_only_invited_silos_read_and_write_and_each_its_own_files(tmp_path: Path) -> None:
    hospitals = Hospitals(tmp_path)
    hospitals.advance(rounds=3)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with served(hospitals) as (url, lines):
        for method, path, by, name, status in (
            ("GET", "/", "north", "north", 200),
            ("GET", "/keys/south.json", "north", "north", 200),
            ("GET", "/", "south", "north", 403),
            ("GET", "/", "server", "server", 403),
            ("GET", "/masked/south.npz", "north", "north", 403),
            ("GET", "/masked/north.npz", "north", "north", 403),
            ("GET", "/../north/silo.pem", "north", "north", 403),
            ("GET", "/%2e%2e/north/silo.pem", "north", "north", 403),
            ("GET", "//etc/passwd", "north", "north", 403),
            ("PUT", "/keys/south.json", "north", "north", 403),
            ("PUT", "/survivors.json", "north", "north", 403),
            ("PUT", "/invitation.json", "north", "north", 403),
            ("PUT", "/unmasking/../keys/north.json", "north", "north", 403),
            ("PUT", "/keys/north.json", "north", "north", 409),  # another content
            ("POST", "/keys/north.json", "north", "north", 501),
        ):
            content = b"x" if method in ("PUT", "POST") else b""
            signature = signed(hospitals, by, method, path, content)
            assert request(url, method, path, signature, name, content)[0] == status, (path, name)
        large = b"x" * (most_bytes(hospitals.exchange) + 1)
        with suppress(ConnectionError):  # the relay closes without reading it
            signature = signed(hospitals, "north", "PUT", "/unmasking/north.json", large)
            path = "/unmasking/north.json"
            assert request(url, "PUT", path, signature, "north", large)[0] == 413
        with pytest.raises(HTTPError, match="403"):
            urlopen(url + "/", timeout=5)
        # a signature for one content does not carry another
        path = "/unmasking/north.json"
        signature = signed(hospitals, "north", "PUT", path, b"mine")
        assert request(url, "PUT", path, signature, "north", b"other")[0] == 403
    assert not lines
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_a_relay_that_cheats_is_noticed(tmp_path: Path) -> None:
    """It shows another invitation, or files that it changed; names that it invents are ignored."""
    hospitals = Hospitals(tmp_path)
    hospitals.advance("south", "west")
    digest = hospitals.exchange.invitation.digest
    path = hospitals.exchange.place("keys", "south")
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"sealing": "00" * 32}))
    with (
        served(hospitals) as (url, _),
        pytest.raises(ValueError, match=r"keys/south\.json as south signed it$"),
    ):
        advance(hospitals, "north", url)
    other = Hospitals(tmp_path / "other")
    other.exchange.folder.joinpath("invitation.json").write_bytes(
        replace(hospitals.terms, sigma_silos=0.1).content
    )
    consent = other.consent(digest=digest)
    with served(other) as (url, _):
        remote = relayed(hospitals, "west", url)
        member = Member(
            remote.exchange,
            "west",
            hospitals.votes("west"),
            tmp_path / "state",
            hospitals.signing_key("west"),
            consent,
        )
        with pytest.raises(ValueError, match="the invitation that was confirmed"):
            remote.around(member.advance)()
        assert not (other.exchange.folder / "keys").exists()


def test_a_name_in_any_script(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.lab.silos.exchanges.TEACHERS", {"北": 5, "süd": 7, "west": 4})
        hospitals = Hospitals(tmp_path)
    with served(hospitals) as (url, lines):
        assert advance(hospitals, "北", url) == "keys of süd, west"
        assert advance(hospitals, "süd", url) == "keys of west"
    assert lines[0] == "北 sent keys. Waiting for keys of süd, west"


def test_a_connection_that_ends_early_prints_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hospitals = Hospitals(tmp_path)
    with served(hospitals) as (url, _):
        host, port = url.removeprefix("http://").split(":")
        for sent in (b"", b"GET", b"\x16\x03\x01\x00", b"PUT / HTTP/1.1\r\nContent-Length: 9\r\n"):
            with socket.create_connection((host, int(port)), timeout=5) as scan:
                scan.sendall(sent)
                # closes with a reset, which the relay meets as an error
                scan.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert advance(hospitals, "north", url) == "keys of south, west"
    assert capsys.readouterr().err == ""


def test_a_large_file_is_refused_in_words(tmp_path: Path) -> None:
    """Also where the relay need not read it to know: it would seem out of reach."""
    hospitals = Hospitals(tmp_path)
    large = bytes(most_bytes(hospitals.exchange) + 2**24)
    with served(hospitals) as (url, _):
        place = "/keys/north.json"
        right = signed(hospitals, "north", "PUT", place, large)
        for signature, status in ((right, 413), ("none", 403)):
            code, said = request(url, "PUT", place, signature, "north", large)
            assert code == status and said.startswith(b"Expected a ")


def test_connections_beyond_a_number_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relays, "_MOST_CONNECTIONS", 2)
    hospitals = Hospitals(tmp_path)
    with served(hospitals) as (url, _):
        host, port = url.removeprefix("http://").split(":")
        idle = [socket.create_connection((host, int(port)), timeout=5) for _ in range(2)]
        assert f"the relay at {url}" in advance(hospitals, "north", url)
        for connection in idle:
            connection.close()
        for _ in range(500):
            if (said := advance(hospitals, "north", url)) == "keys of south, west":
                break
            time.sleep(0.01)
        assert said == "keys of south, west"


def test_a_request_to_one_relay_is_none_to_another(tmp_path: Path) -> None:
    """Keys are for all exchanges: who runs a relay could else show requests to others."""
    hospitals, other = Hospitals(tmp_path / "one"), Hospitals(tmp_path / "other")
    shutil.copy(hospitals.signing_key("north"), other.signing_key("north"))
    keys = dict(other.terms.keys) | {"north": hospitals.terms.keys["north"]}
    terms = replace(other.terms, keys=keys, sigma_silos=4.0)
    (other.exchange.folder / "invitation.json").write_bytes(terms.content)
    with served(hospitals) as (url, lines):
        for method, path in (("GET", "/"), ("PUT", "/keys/north.json")):
            content = b"another's" if method == "PUT" else b""
            replayed = signed(other, "north", method, path, content)
            assert request(url, method, path, replayed, "north", content)[0] == 403
    assert not lines


def test_a_link_does_not_lead_out_of_the_exchange(tmp_path: Path) -> None:
    hospitals = Hospitals(tmp_path)
    shared, outside = hospitals.exchange.folder, tmp_path / "outside"
    outside.mkdir()
    (shared / "keys").mkdir()
    (shared / "keys" / "south.json").symlink_to(hospitals.signing_key("server"))
    (shared / "shares").symlink_to(outside, target_is_directory=True)
    with served(hospitals) as (url, _):
        for method, path in (("GET", "/keys/south.json"), ("PUT", "/shares/north.json")):
            content = b"x" if method == "PUT" else b""
            signature = signed(hospitals, "north", method, path, content)
            status, answer = request(url, method, path, signature, "north", content)
            assert status == 403 and b"PRIVATE" not in answer
    assert not [*outside.iterdir()]


@pytest.mark.parametrize(
    ("status", "body", "refusal"),
    [
        *(
            (200, body, "the list of files of a")
            for body in (b"null", b"5", b"<html>", b"", b"\xff")
        ),
        *(
            (200, body, "the list of files of a")
            for body in (b'{"a": 1}', b'"a"', b"[1]", b"9" * 5000)
        ),
        (302, b"", r"a relay that takes GET /, got status 302"),
        (403, b"a\nb\x1b[31m", r"status 403: a\\nb\\x1b\[31m$"),
    ],
)
def test_an_answer_of_another_server_is_one_line(
    tmp_path: Path, status: int, body: bytes, refusal: str
) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = hospitals.terms.content if "invitation" in self.path else body
            self.send_response(200 if "invitation" in self.path else status)
            self.send_header("Location", "http://127.0.0.1:9/clear")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    hospitals = Hospitals(tmp_path)
    with ThreadingTCPServer(("127.0.0.1", 0), Other) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            with pytest.raises(ValueError, match=refusal) as raised:
                advance(hospitals, "north", f"http://127.0.0.1:{server.server_address[1]}")
        finally:
            server.shutdown()
            thread.join()
    assert "\n" not in str(raised.value)


def test_an_invitation_that_is_none_is_not_kept(tmp_path: Path) -> None:
    """As of a network that shows its own page before one signs in."""
    hospitals, other = Hospitals(tmp_path), Hospitals(tmp_path / "other")
    page = other.exchange.folder / "invitation.json"
    remote = relayed(hospitals, "north", "http://127.0.0.1:9")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Relayed, "_request", lambda *_: b"<html>sign in</html>")
        with pytest.raises(ValueError, match=r"an invitation\.json of `pate label --silos`"):
            remote.around(lambda: None)()
    assert page.is_file() and not remote.exchange.folder.exists()
    with served(hospitals) as (url, _):
        assert advance(hospitals, "north", url) == "keys of south, west"


@pytest.mark.parametrize(
    "url",
    [
        "http://relay.example:80",
        "ftp://relay.example",
        "relay",
        "",
        "http://127.0.0.1:abc",
        "https://ex ample",
        "https://user:word@relay.example",
        "https://relay.example/?a",
        "https://[::1",
    ],
)
def test_an_address_is_encrypted(tmp_path: Path, url: str) -> None:
    hospitals = Hospitals(tmp_path)
    with pytest.raises(ValueError, match=r"^Expected a relay at https://HOST:PORT, got "):
        relayed(hospitals, "north", url)


def test_a_relay_for_others_has_a_certificate(tmp_path: Path) -> None:
    words = ["silo", "relay", str(tmp_path / "exchange"), "--host", "0.0.0.0"]
    assert cli.main(words) == 2
    with pytest.raises(
        ValueError, match=r"^Expected a certificate, unless the host is 127\.0\.0\.1"
    ):
        Relay(tmp_path, "0.0.0.0", 0)
    with pytest.raises(ValueError, match=r"^Expected PEM files of a certificate and its key, got "):
        Relay(tmp_path, "0.0.0.0", 0, certificate=tmp_path / "none.pem")
    with pytest.raises(ValueError, match=r"^Expected a host and a free port of this machine, got "):
        Relay(tmp_path, "127.0.0.1", 99999)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_a_relay_with_a_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj"
    files = [
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-keyout",
        str(key),
        "-out",
        str(certificate),
    ]
    subprocess.run(
        [*words.split(), "/CN=relay", *files],
        check=True,
        capture_output=True,
    )
    hospitals = Hospitals(tmp_path)
    with served(hospitals, certificate=certificate, certificate_key=key) as (url, lines):
        assert url.startswith("https://127.0.0.1:")
        with pytest.raises(ValueError, match=r"^Expected a certificate of https:.*SSL_CERT_FILE"):
            advance(hospitals, "north", url)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert advance(hospitals, "north", url) == "keys of south, west"
    assert lines == ["north sent keys. Waiting for keys of south, west"]


def test_the_commands_finish_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pate.lab.silos.exchange._POLL_SECONDS", 0.01)
    monkeypatch.setattr(relays, "POLL_SECONDS", 0.01)
    hospitals = Hospitals(tmp_path)
    with served(hospitals) as (url, _):
        silos = []
        for name in hospitals.teachers:
            home = tmp_path / name
            words = ["silo", str(home / "copy"), "--name", name, "--relay", url]
            words += ["--votes", str(hospitals.votes(name)), "--state", str(home / "private")]
            words += ["--signing_key", str(hospitals.signing_key(name))]
            words += ["--public_keys", str(tmp_path / "keys"), "--max_epsilon", "100"]
            words += ["--delta", "1e-6"]
            silos.append(threading.Thread(target=cli.main, args=(words,)))
        for silo in silos:
            silo.start()
        waiting(hospitals.server().open, 30)
        for silo in silos:
            silo.join()
    printed = capsys.readouterr().out
    assert "west: done. In the sum: north, south, west" in printed
    assert "waiting for masked of" in printed  # of the server
