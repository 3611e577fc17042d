"""`pate silo`."""

import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pate import cli
from pate.accounting import Budget, GaussianEvent, Ledger, NeighboringRelation
from pate.lab.silos.exchange import SERVER
from pate.lab.silos.secrets import read_public_keys
from tests.lab.silos.exchanges import Hospitals
from tests.statements import RECORDS


def words(hospitals: Hospitals, name: str, *more: str) -> list[str]:
    folder = hospitals.folder
    files = ["--votes", str(hospitals.votes(name)), "--state", str(folder / name / "private")]
    files += ["--signing_key", str(hospitals.signing_key(name))]
    return ["silo", str(hospitals.shared), "--name", name, *files, *more]


def agreed(hospitals: Hospitals) -> list[str]:
    """Return the options of a silo whose people know the others' keys, and accept any cost."""
    return [
        "--public_keys",
        str(hospitals.folder / "keys"),
        "--max_epsilon",
        "100",
        "--delta",
        "1e-6",
    ]


def require_nothing_sent(hospitals: Hospitals, name: str) -> None:
    sent = sorted(path.name for path in hospitals.shared.rglob("*"))
    assert sent == ["invitation.json", "invitation_signature.json"]
    assert not hospitals.votes(name).with_suffix(".ledger.sqlite").exists()
    assert not (hospitals.folder / name / "private").exists()


def test_nothing_is_sent_to_silos_of_other_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Silos gave each other their keys: not those of a server that made them up."""
    hospitals = Hospitals(tmp_path)
    limits = ["--max_epsilon", "100", "--delta", "1e-6", "--wait", "0"]
    # who wrote the invitation signs for south as well
    strange = tmp_path / "strange"
    assert cli.main(["silo", "key", str(strange / "south.pem"), str(strange / "south.pub")]) == 0
    made_up = read_public_keys(strange, ["south"])
    path = tmp_path / "exchange" / "invitation.json"
    path.write_bytes(replace(hospitals.terms, keys=dict(hospitals.terms.keys) | made_up).content)
    assert (
        cli.main(words(hospitals, "north", "--public_keys", str(tmp_path / "keys"), *limits)) == 2
    )
    err = capsys.readouterr().err
    assert (
        err
        == "pate silo: Expected an invitation with the keys that north knows, got others=['south']\n"
    )
    require_nothing_sent(hospitals, "north")
    assert (
        cli.main(words(hospitals, "south", "--public_keys", str(tmp_path / "keys"), *limits)) == 2
    )
    assert "Expected the key of south in the invitation" in capsys.readouterr().err
    require_nothing_sent(hospitals, "south")


@pytest.mark.parametrize("signed", [False, True])
def test_nothing_is_sent_by_terms_that_the_server_did_not_sign(
    tmp_path: Path, signed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Terms with the right keys, from who can write to the exchange, or from another silo."""
    hospitals = Hospitals(tmp_path)
    path = tmp_path / "exchange" / "invitation.json"
    path.write_bytes(replace(hospitals.terms, sigma_silos=2.0).content)
    if signed:
        hospitals.forge("invitation_signature", SERVER, by="west")
    assert cli.main(words(hospitals, "north", *agreed(hospitals), "--wait", "0")) == 2
    wrong = "as the server signed it" if signed else "for the invitation in"
    assert f"invitation_signature.json {wrong}" in capsys.readouterr().err
    require_nothing_sent(hospitals, "north")


def test_nothing_is_sent_before_its_cost_is_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hospitals = Hospitals(tmp_path)
    hospitals.invite(replace(hospitals.terms, sigma_silos=0.001))
    known = ["--public_keys", str(tmp_path / "keys"), "--wait", "0"]
    for more, refusal in (
        (
            [],
            "--max_epsilon with --delta, a budget in the ledger, or a yes at a terminal: taking part costs epsilon =",
        ),
        (["--max_epsilon", "8", "--delta", "1e-6"], "epsilon <= 8 at delta = 1e-06"),
    ):
        assert cli.main(words(hospitals, "north", *known, *more)) == 2
        printed = capsys.readouterr()
        assert (
            printed.err.startswith(f"pate silo: Expected {refusal}")
            and printed.err.count("\n") == 1
        )
        (cost,) = (line for line in printed.out.splitlines() if "taking part costs" in line)
        parties, world = (
            float(each.replace(",", ""))
            for each in re.findall(r"(?:=|and) ([\d,.]+) against", cost)
        )
        assert parties > 1.5 * world > 1e6
        require_nothing_sent(hospitals, "north")
    hospitals.invite(hospitals.terms)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    for answer in ("no", "", "y"):
        monkeypatch.setattr("builtins.input", lambda _, answer=answer: answer)
        assert cli.main(words(hospitals, "north", *known)) == 2
        require_nothing_sent(hospitals, "north")
    monkeypatch.setattr("builtins.input", lambda _: "yes")
    assert cli.main(words(hospitals, "north", *known)) == 0
    assert hospitals.exchange.absent("keys") == ["south", "west"]
    # a budget that the ledger has is an answer, too
    monkeypatch.setattr("builtins.input", lambda _: pytest.fail("asked"))
    relation = NeighboringRelation.REPLACE_RECORD
    for most, status in ((1.0, 2), (100.0, 0)):
        ledger = tmp_path / f"{most}.sqlite"
        small = {
            each: GaussianEvent(noise_multiplier=1e3, neighboring_relation=each)
            for each in NeighboringRelation
        }
        limit = Budget(max_epsilon=most, delta=1e-6, neighboring_relation=relation)
        Ledger(ledger).reserve(
            small,
            count=1,
            run="earlier",
            description="a sum",
            seeded=False,
            budget=limit,
            privacy_unit=RECORDS,
        )
        assert cli.main(words(hospitals, "south", *known, "--ledger", str(ledger))) == status
        assert ("south" in hospitals.exchange.absent("keys")) == bool(status)


@pytest.mark.parametrize(
    ("option", "how"),
    [
        *(("state", "inside"), ("votes", "linked"), ("ledger", "itself"), ("ledger", "around")),
        ("signing_key", "inside"),
    ],
)
def test_what_is_private_lies_outside_of_the_exchange(
    tmp_path: Path, option: str, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    hospitals = Hospitals(tmp_path)
    shared = hospitals.shared
    place = {"inside": shared / "deep" / "north", "itself": shared, "around": tmp_path}.get(
        how, tmp_path / "link" / "n"
    )
    if how == "linked":
        (tmp_path / "link").symlink_to(shared, target_is_directory=True)
    private = {
        "votes": hospitals.votes("north"),
        "signing_key": hospitals.signing_key("north"),
    }.get(option)
    if private is not None and how in ("inside", "linked"):
        place.parent.mkdir(exist_ok=True)
        shutil.copyfile(private, place)
    before = set(shared.rglob("*"))
    assert (
        cli.main(
            words(hospitals, "north", *agreed(hospitals), "--wait", "0", f"--{option}", str(place))
        )
        == 2
    )
    err = capsys.readouterr().err
    where = "that does not hold" if how == "around" else "outside of"
    if option in ("state", "ledger") or how in ("inside", "linked"):
        assert err.startswith(
            f"pate silo: Expected a place {where} {shared}, which all others read, got {option}="
        )
    assert set(shared.rglob("*")) == before
    assert cli.main(words(hospitals, "north", *agreed(hospitals), "--wait", "0")) == 0


def test_no_sum_is_released_at_a_delta_that_promises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = "silo exchange --name north --votes votes.npz --state state --signing_key key.pem --public_keys keys"
    assert cli.main([*words.split(), "--max_epsilon", "1", "--delta", "0.9"]) == 2
    assert "Expected delta <" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
