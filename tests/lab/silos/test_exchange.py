"""Sums through files: in any order, after kills, with silos that drop out, and with files that
somebody changed."""

import json
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate._core.accounting.charges import account
from pate._core.files import writing
from pate._core.mechanisms.noise import decode, share_grid
from pate.accounting import Budget, Ledger, NeighboringRelation
from pate.lab.silos.exchange import SERVER, AwaitedError, Invitation
from pate.lab.silos.secrets import Secrets, SigningKey, WordArray
from tests.lab.silos.exchanges import Hospitals

After = Callable[..., Hospitals]


def require_same(opened: tuple[WordArray, int], curators: tuple[WordArray, int]) -> None:
    np.testing.assert_array_equal(opened[0], curators[0])
    assert opened[1] == curators[1]


def test_what_is_released_is_the_curators_sum_to_the_bit(tmp_path: Path) -> None:
    hospitals = Hospitals(tmp_path)
    assert hospitals.advance() == ["keys of south, west", "keys of west", "shares of north, south"]
    assert hospitals.advance() == ["shares of south", *2 * ["the list of silos in the sum"]]
    with pytest.raises(AwaitedError, match=r"^masked of north$"):
        hospitals.server().survivors()
    hospitals.advance()
    with pytest.raises(AwaitedError, match=r"^unmasking of north, south, west "):
        hospitals.server().open()
    assert hospitals.advance() == 3 * ["done: north, south, west"]
    opened = hospitals.server().open()
    require_same(opened, hospitals.curators())
    # scans in the order of the invitation, and noise of about three votes
    exact = np.sum([*hospitals.counts.values()], axis=0)[::-1]
    noisy_counts = decode(opened[0], hospitals.terms.mechanism.share_sigma, 3)
    assert 0 < np.abs(noisy_counts - exact).max() < 20


def test_the_server_sees_the_sum_alone(after: After) -> None:
    """What silos send before they are masked fits any votes: with other votes, all files but one
    are the same."""
    hospitals = after(3)
    sent = {path for path in hospitals.shared.rglob("*") if path.is_file()}
    masked = [hospitals.exchange.masked(name) for name in hospitals.teachers]
    assert len(sent) == 2 + 3 * 3
    for vector, counts in zip(masked, hospitals.counts.values(), strict=True):
        differences = (vector - counts[::-1].ravel().astype(np.uint64)).view(np.int64)
        # of votes, and the noise has 3
        assert np.abs(differences * share_grid(hospitals.terms.mechanism.share_sigma)).min() > 1e6


OF_FIVE = [*product([()], combinations(range(5), 2)), *product(combinations(range(5), 2), [()])]
CASES = [
    *((3, (0,), ()), (3, (), (2,))),
    *(pytest.param(5, *each, marks=pytest.mark.slow) for each in (((1, 4), ()), ((3,), (0,)))),
    *(pytest.param(5, *each, marks=pytest.mark.slow) for each in OF_FIVE),
]


@pytest.mark.parametrize(("silos", "gone", "quiet"), CASES)
def test_as_many_may_drop_out_as_the_terms_say(
    after: After, silos: int, gone: tuple[int, ...], quiet: tuple[int, ...]
) -> None:
    """Before their masked vectors come (``gone``) or after it (``quiet``): the sum is that of all
    who are listed."""
    hospitals = after(2, silos=silos, **({} if silos == 3 else {"dropouts": 2, "colluding": 2}))
    names = [*hospitals.teachers]
    survivors = [name for place, name in enumerate(names) if place not in gone]
    for place in gone:
        hospitals.sent("masked", names[place]).unlink(missing_ok=True)
    hospitals.advance(*survivors)
    server = hospitals.server(*[names[place] for place in gone])
    with pytest.raises(AwaitedError):
        server.open()
    assert hospitals.exchange.survivors == tuple(survivors)
    hospitals.advance(*[name for name in survivors if names.index(name) not in quiet])
    require_same(server.open(), hospitals.curators(*survivors))


def test_a_silo_that_comes_late_reveals_nothing(after: After) -> None:
    hospitals = after(2)
    hospitals.sent("masked", "west").unlink()
    hospitals.advance("north")
    server = hospitals.server("west")
    with pytest.raises(AwaitedError):
        server.open()
    with pytest.raises(
        ValueError, match=r"^Expected west among the survivors, who were listed before"
    ):
        hospitals.advance("west")
    assert hospitals.exchange.absent("masked") == ["west"]
    hospitals.advance("north", "south")
    require_same(server.open(), hospitals.curators("north", "south"))
    for name in ("north", "south"):
        revealed, held = hospitals.exchange.unmasking(name), hospitals.member(name)
        assert revealed is not None
        exchange, secrets = held.exchange, held._secrets
        for sender, share in revealed.items():
            shares = secrets.open(sender, exchange.roster, exchange.shares[sender][name])
            assert share == (shares.pairs if sender == "west" else shares.own_mask)


class _KilledError(BaseException):
    """What ends a process."""


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(each, marks=pytest.mark.slow) for each in (1, 2))]
)
def test_a_silo_that_is_killed_sends_the_same_again(
    tmp_path: Path, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after each of the files that it writes; every third of these moments is in one
    exchange, so that it goes on for a file or two after each."""
    hospitals = Hospitals(tmp_path)
    real, written = writing.write_once, list[Path]()
    left = set(range(first, 18, 3))

    def end(moment: int) -> None:
        if moment in left:
            left.remove(moment)
            raise _KilledError

    def dying(path: Path, content: bytes, *, mode: int = 0o666) -> None:
        if path not in written:
            written.append(path)
        end(2 * written.index(path))
        real(path, content, mode=mode)
        end(2 * written.index(path) + 1)

    seen: dict[Path, bytes] = {}

    def advance(name: str) -> None:
        hospitals.advance(name)
        for path in hospitals.folder.rglob("*"):
            if path.is_file():
                assert seen.setdefault(path, path.read_bytes()) == path.read_bytes()

    for _ in range(6):
        for module in ("parties", "exchange"):
            monkeypatch.setattr(f"pate.lab.silos.{module}.write_once", dying)
        killed = True
        while killed:
            try:
                advance("north")
                killed = False
            except _KilledError:
                pass
        for module in ("parties", "exchange"):
            monkeypatch.setattr(f"pate.lab.silos.{module}.write_once", real)
        for name in hospitals.teachers:
            advance(name)
        with suppress(AwaitedError):
            opened = hospitals.server().open()
            break
    require_same(opened, hospitals.curators())
    assert len(written) == 9 and not left
    (paid,) = Ledger(hospitals.votes("north").with_suffix(".ledger.sqlite")).entries()
    assert paid.count == 4
    for path in (tmp_path / "north" / "private").iterdir():
        assert path.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "north" / "private").stat().st_mode & 0o777 == 0o700


def test_a_silo_answers_one_list_of_survivors(tmp_path: Path) -> None:
    hospitals = Hospitals(tmp_path, silos=4)
    hospitals.advance(rounds=3)
    with pytest.raises(AwaitedError):
        hospitals.server().open()
    hospitals.advance("north")
    before = hospitals.sent("unmasking", "north").read_bytes()
    names = [*hospitals.teachers]
    hospitals.forge("survivors", SERVER, by="server", survivors=names[:3])
    with pytest.raises(
        ValueError, match=r"^Expected .*unmasking/north.json for these survivors, got survivors="
    ):
        hospitals.advance("north")
    assert hospitals.sent("unmasking", "north").read_bytes() == before
    hospitals.forge("survivors", SERVER, by="server", survivors=names[:2])
    with pytest.raises(ValueError, match=r"^Expected 3 survivors or more, got survivors="):
        hospitals.advance("south")
    hospitals.forge("survivors", SERVER, by="server", survivors=[*names[1:], "north"])
    with pytest.raises(
        ValueError, match=r"^Expected survivors among north, south, west, east, in this order"
    ):
        hospitals.advance("south")
    assert not hospitals.sent("unmasking", "south").exists()


def test_a_silo_cannot_make_up_the_keys_of_others(tmp_path: Path) -> None:
    """West writes what absent silos would, to read north's counts under noise of which it knows
    most."""
    hospitals = Hospitals(tmp_path, dropouts=0)
    hospitals.advance("north")
    for name in ("south", "west"):
        made_up = Secrets(bytes(32), hospitals.terms.digest, name, hospitals.terms.threshold).public
        points = {
            kind: [point.hex() for point in getattr(made_up, kind)]
            for kind in ("own_mask", "pairs")
        }
        key, path = (
            SigningKey.read(hospitals.signing_key("west")),
            hospitals.exchange.path("keys", name),
        )
        keys = {"sealing": made_up.sealing.hex(), **points}
        hospitals.exchange.send(path, hospitals.exchange.message("keys", name, key, **keys))
    with pytest.raises(ValueError, match=r"^Expected .*keys/south.json as south signed it$"):
        hospitals.advance("north")
    assert hospitals.exchange.absent("shares") == ["north", "south", "west"]


@pytest.mark.parametrize("kind", ["unmasking", pytest.param("survivors", marks=pytest.mark.slow)])
def test_what_another_signed_is_refused(after: After, kind: str) -> None:
    """Of the right form, in the place of another; the list of silos in the sum is the server's."""
    hospitals = after(4)
    exchange, name = hospitals.exchange, SERVER if kind == "survivors" else "south"
    hospitals.forge(kind, name, by="west")
    with pytest.raises(ValueError, match=rf"^Expected .*\.json as {name} signed it$"):
        _ = exchange.survivors if kind == "survivors" else exchange.unmasking("south")


@pytest.mark.parametrize("key", [bytes(32), b"\1" + bytes(31), b"\0"])
@pytest.mark.parametrize("kind", ["sealing", "pairs"])
def test_a_key_with_which_all_agree_on_the_same_is_refused(
    after: After, kind: str, key: bytes
) -> None:
    hospitals = after(1)
    points = json.loads(hospitals.sent("keys", "south").read_text())["pairs"]
    changes: dict[str, Any] = {kind: key.hex() if kind == "sealing" else [key.hex(), *points[1:]]}
    hospitals.forge("keys", "south", **changes)
    refusal = r"^Expected keys of X25519 and P-256 in .*keys/south.json$"
    for reader in ("north", "west"):
        with pytest.raises(ValueError, match=refusal):
            hospitals.advance(reader)
    assert hospitals.exchange.absent("masked") == ["north", "south", "west"]


def lie(hospitals: Hospitals, *liars: str) -> None:
    """Let silos sign shares that nobody dealt to them."""
    for name in liars:
        shares = json.loads(hospitals.sent("unmasking", name).read_text())["shares"]
        hospitals.forge(
            "unmasking",
            name,
            shares={each: f"{number + 1:064x}" for number, each in enumerate(shares)},
        )


def blamed(printed: str) -> list[str]:
    """Return the silos of which lines say that they signed others' shares, each line one."""
    line = r"pate label: Expected shares as they were dealt in [^\n]*, got others that (\w+) signed\. [^\n]*enough"
    lines = printed.splitlines()
    assert all(re.fullmatch(line, each) for each in lines), printed
    return [re.sub(line, r"\1", each) for each in lines]


@pytest.mark.parametrize(
    "liars",
    [(1, 4), *(pytest.param(each, marks=pytest.mark.slow) for each in combinations(range(5), 2))],
)
def test_as_many_may_lie_as_may_drop_out_and_nobody_else_is_blamed(
    after: After, liars: tuple[int, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Wherever they stand: three shares that fit what their dealers committed to are enough."""
    hospitals = after(4, silos=5, dropouts=2, colluding=2)
    names = [[*hospitals.teachers][place] for place in liars]
    lie(hospitals, *names)
    require_same(hospitals.server().open(), hospitals.curators())
    assert blamed(capsys.readouterr().err) == names


@pytest.mark.parametrize("which", ["own_mask", pytest.param("pairs", marks=pytest.mark.slow)])
def test_rubbish_shares_are_found_before_anybody_has_paid(after: After, which: str) -> None:
    """A silo that seals one share of another secret to another is refused by that one, and nothing
    of votes is sent."""
    hospitals = after(1, silos=5, dropouts=2, colluding=2)
    exchange, south = hospitals.exchange, hospitals.member("south")._secrets
    dealer = replace(south)
    public = dealer.public
    sealed = dealer.deal(exchange.roster)
    # of a secret whose commitments nobody has seen
    strange = Secrets(bytes(32), south.context, "south", south.threshold)
    coefficients = {kind: south._coefficients(kind) for kind in ("own mask", "masks of pairs")}
    name = "own mask" if which == "own_mask" else "masks of pairs"
    coefficients[name] = strange._coefficients(name)
    object.__setattr__(dealer, "_coefficients", coefficients.__getitem__)
    rubbish = dealer.deal(exchange.roster)["west"]
    assert dealer.public == public
    shares = {holder: share.hex() for holder, share in (sealed | {"west": rubbish}).items()}
    for name in ("north", "west", "east", "mercy", "south"):
        if name == "south":
            signing_key = SigningKey.read(hospitals.signing_key("south"))
            message = exchange.message(
                "shares", "south", signing_key, context=exchange.roster_digest, shares=shares
            )
            exchange.send(exchange.path("shares", "south"), message)
        else:
            hospitals.advance(name)
    with pytest.raises(
        ValueError, match=r"^Expected a share of south that fits the commitments of south"
    ):
        hospitals.advance("west")
    assert "west" in exchange.absent("masked")
    assert not hospitals.votes("west").with_suffix(".ledger.sqlite").exists()


@pytest.mark.slow
def test_a_silo_counts_the_sums_it_took_part_in(tmp_path: Path) -> None:
    """In its own ledger, whatever the server counts: a second exchange is beyond the budget of the
    first."""
    hospitals = Hospitals(tmp_path, queries=40)
    mechanism = hospitals.terms.mechanism
    cost = mechanism.events(hospitals.terms.shape)
    relation = NeighboringRelation.REPLACE_RECORD
    epsilon = account([(cost, 40)], relation).guarantee(delta=1e-6).epsilon
    budget = Budget(max_epsilon=1.2 * epsilon, delta=1e-6, neighboring_relation=relation)
    hospitals.advance(rounds=3)
    ledger = Ledger(hospitals.votes("north").with_suffix(".ledger.sqlite"))
    (paid,) = ledger.entries()
    assert (paid.events, paid.count, paid.run) == (cost, 40, "exchange")
    hospitals.advance()
    hospitals.folder = tmp_path / "again"
    for name in (*hospitals.teachers, "server"):
        shutil.copytree(
            tmp_path / name,
            hospitals.folder / name,
            ignore=lambda *_: ["private", "votes.ledger.sqlite"],
        )
    hospitals.invite(hospitals.terms)
    hospitals.advance("south", "west")
    with pytest.raises(ValueError, match=r"^Expected epsilon <= .* with all earlier releases, got"):
        replace(hospitals.member("north", budget=budget), ledger=ledger.path).advance()
    assert hospitals.exchange.absent("keys") == ["north"] and len(ledger.entries()) == 1
    more = replace(budget, max_epsilon=2 * epsilon)
    for _ in range(2):
        with pytest.raises(AwaitedError):
            replace(hospitals.member("north", budget=more), ledger=ledger.path).advance()
        hospitals.advance("south", "west")
    assert "north" not in hospitals.exchange.absent("masked") and len(ledger.entries()) == 2


def test_terms_that_protect_nobody_are_refused() -> None:
    keys = {name: f"{number:064x}" for number, name in enumerate("abc")}
    terms: dict[str, Any] = {
        "teachers": {"a": 1, "b": 1, "c": 1},
        "keys": keys,
        "server_key": "f" * 64,
        "delta": 1e-6,
        "ids": ["x"],
        "label_names": ["y"],
        "sigma_silos": 1.0,
    }
    Invitation(**terms, colluding=2, dropouts=0)
    said = "can open the counts of one silo by themselves, with all of the stated noise"
    assert said in str(Invitation(**terms, colluding=1, dropouts=1, single_sums=True))
    assert said not in str(Invitation(**terms, colluding=2, dropouts=0, single_sums=True))
    with pytest.raises(ValueError, match=r"silos - colluding; `single_sums` lets a server open"):
        Invitation(**terms, colluding=1, dropouts=1)
    for colluding, dropouts in ((3, 0), (2, 1), (1, 2), (0, 1)):
        with pytest.raises(
            ValueError, match=r"^Expected (dropouts <|one of 3 silos that neither|an integer)"
        ):
            Invitation(**terms, colluding=colluding, dropouts=dropouts)
    for name in ("../a", ""):
        with pytest.raises(ValueError, match=r"^Expected silos with names of letters"):
            Invitation(**{**terms, "teachers": {name: 1, "b": 1}}, colluding=1, dropouts=0)
    for changed in (
        {"keys": {"a": keys["a"]}},
        {"keys": keys | {"b": keys["a"]}},
        {"keys": keys | {"b": "x"}},
    ):
        with pytest.raises(
            ValueError, match=r"^Expected (a key for each silo|keys that occur once|public keys)"
        ):
            Invitation(**{**terms, **changed}, colluding=1, dropouts=0)
