"""`pate topk`, as a stranger would run it."""

import csv
import importlib
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate import cli
from pate._core.release import top_k
from pate._core.release.histogram import Histogram
from pate._core.release.top_k import TopKSettings
from pate._core.testing.laws import chi_square_p_value
from pate.accounting import NeighboringRelation, RDPAccountant, event_from_dict, read_ledger
from pate.mechanisms import TopKMechanism, seeded_generator
from tests.core.mechanisms import oracles

USERS = 400


@pytest.fixture
def checkins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Users who were at place 0 all, at place 1 nine in ten, and so on; and one at a place that
    nobody knows."""
    monkeypatch.chdir(tmp_path)
    lines = [
        "user,item",
        *(f"u{user},place{i}" for user in range(USERS) for i in range(10) if user % 10 >= i),
    ]
    Path("checkins.csv").write_text("\n".join([*lines, "u7,secret lair"]) + "\n")
    Path("places.txt").write_text("\n".join(f"place{i}" for i in range(10)) + "\n")
    return tmp_path


def topk(*options: str, output: str = "top.csv") -> int:
    source = ("--pairs", "checkins.csv", "--items", "places.txt")
    return cli.main(
        ["topk", *source, "--k", "3", "--target_epsilon", "4", "--output", output, *options]
    )


def rows(path: str) -> list[dict[str, str]]:
    return list(csv.DictReader(Path(path).read_text().splitlines()))


def statement(path: str) -> Any:
    return json.loads(Path(path).read_text())


def test_the_places_that_most_users_saw(checkins: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert topk() == 0
    assert [row["item"] for row in rows("top.csv")] == ["place0", "place1", "place2"]
    assert [row["rank"] for row in rows("top.csv")] == ["1", "2", "3"]
    text = capsys.readouterr().out
    assert "\nThe top 3 of 10 items in order, by\n    GumbelPeeling(" in text
    assert text.startswith(
        "epsilon = 4.000 at delta = 1e-06 under ADD_REMOVE_TEACHER:\n    neighbors are data sets where"
    )
    assert "where all that one user contributes is there or not (" in text
    assert text.startswith(Path("top.privacy.txt").read_text())
    found = statement("top.privacy.json")
    for relation in NeighboringRelation:
        event = event_from_dict(found["releases"][0]["events"][relation.value])
        accountant = RDPAccountant(relation=relation).compose(event)
        assert accountant.get_epsilon(delta=1e-6) == pytest.approx(
            found["this_release"][relation.value]["epsilon"]
        )
    assert found["private"] and found["this_release"]["add_remove_teacher"]["epsilon"] <= 4
    # the window is twice as wide
    assert found["this_release"]["replace_record"]["epsilon"] > 6
    book = read_ledger(Path("checkins.ledger.sqlite"))
    assert [(entry.description, entry.settled) for entry in book.entries] == [
        ("GumbelPeeling", True)
    ]


def test_releases_add_up_until_the_budget_is_spent(
    checkins: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert topk("--max_epsilon", "8") == 0
    assert topk("--mechanism", "canonical", output="second.json") == 0
    assert sorted(statement("second.json")["items"]) == ["place0", "place1", "place2"]
    assert not statement("second.json")["ordered"]
    second = statement("second.privacy.json")
    assert 4 < second["costs"]["add_remove_teacher"]["epsilon"] < 8
    assert second["guarantees"]["add_remove_teacher"]["epsilon"] == 8
    text = capsys.readouterr().out
    assert (
        "epsilon at delta = 1e-06 under ADD_REMOVE_TEACHER: this release 4.000; all releases of these data 8.000:"
        in text
    )
    unkept = (
        "It has none under REPLACE_RECORD: that epsilon holds if no release"
        " decided the number, kinds or costs of later ones."
    )
    assert f"\n{unkept}\n" in text
    assert topk(output="third.csv") == 2
    error = capsys.readouterr().err
    assert error.startswith("pate topk: Expected") and len(error.splitlines()) == 1
    assert (
        not Path("third.csv").exists()
        and len(read_ledger(Path("checkins.ledger.sqlite")).entries) == 2
    )


@pytest.mark.parametrize(("kind", "bound"), [("renyi", "max_rdp"), ("gaussian", "max_mu_squared")])
def test_the_filter_of_a_budget_is_named(kind: str, bound: str, checkins: Path) -> None:
    assert topk("--max_epsilon", "8", "--max_delta0", "3e-8", "--budget_filter", kind) == 0
    book = read_ledger(Path("checkins.ledger.sqlite"))
    assert (
        book.filter is not None
        and bound in book.filter.to_dict()
        and book.filter.max_delta0 == 3e-8
    )


def test_a_budget_that_comes_later_says_so(
    checkins: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert topk() == 0
    assert "all releases of these data" not in capsys.readouterr().out
    assert topk("--max_epsilon", "12", output="second.csv") == 0
    text = capsys.readouterr().out
    condition = "it holds if neither that nor its figures followed from what release 1 showed."
    assert (
        "Under ADD_REMOVE_TEACHER this is the budget of the ledger: no release is made beyond it"
        in text
    )
    assert "all releases of these data 12.000:" in text
    assert f"whatever earlier ones showed. It was declared after release 1: {condition}\n" in text
    verify = [
        "ledger",
        "verify",
        "--ledger",
        "checkins.ledger.sqlite",
        "--statement",
        "second.privacy.json",
    ]
    assert cli.main(verify) == 0
    made = statement("second.privacy.json")
    Path("second.privacy.json").write_text(json.dumps(made | {"declared_after": 0}))
    capsys.readouterr()
    assert cli.main(verify) == 2
    assert "Expected declared_after=1, " in capsys.readouterr().err


def test_one_user_more_changes_nothing_public_but_the_draw(
    checkins: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is printed and stated does not depend on the pairs."""
    options = ["--k", "3", "--noise_seed", "1", "--scale", "1e-6"]
    told = []
    for name, more in (("first", ""), ("second", "new,place9\nnew,another lair\n")):
        with Path("checkins.csv").open("a") as file:
            file.write(more)
        source = ["--pairs", "checkins.csv", "--items", "places.txt", "--ledger", f"{name}.sqlite"]
        assert cli.main(["topk", *source, *options, "--output", f"{name}.csv"]) == 0
        out = capsys.readouterr()
        told.append((out.out.replace(name, "NAME"), out.err, Path(f"{name}.csv").read_text()))
    assert told[0] == told[1]
    assert told[0][0].startswith("NOT PRIVATE: ")


def unlisted(pairs: str, output: str, *options: str) -> int:
    noise = (
        options
        if {"--scale", "--target_epsilon"} & set(options)
        else (*options, "--target_epsilon", "4")
    )
    wanted = ["--pairs", pairs, "--mechanism", "limited_domain", "--k", "3", "--output", output]
    return cli.main(["topk", *wanted, *noise])


def test_items_need_not_be_public(checkins: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert unlisted("checkins.csv", "top.csv") == 0
    assert [row["item"] for row in rows("top.csv")] == ["place0", "place1", "place2"]
    text, found = capsys.readouterr().out, statement("top.privacy.json")
    assert (
        "\nThe top 3 of the items that users have, in order, or fewer, by\n    LimitedDomain("
        in text
    )
    assert "The list of all items is private: " in text and "taken to be public" not in text
    assert found["num_items"] is None
    assert found["mechanism"]["kbar"] == 30 and found["mechanism"]["delta"] == 1e-7
    # the failure is a part of delta, and what is left of delta meets the target
    stated = found["this_release"]["add_remove_teacher"]
    assert stated["delta"] == 1e-6 and 4 * (1 - 1e-5) < stated["epsilon"] <= 4
    # the threshold is that of the wider window
    assert found["this_release"]["replace_record"]["delta0"] == pytest.approx(1e-7)
    assert stated["delta0"] == pytest.approx(1e-7 * math.exp(-1 / found["mechanism"]["scale"]))
    event = event_from_dict(found["releases"][0]["events"]["add_remove_teacher"])
    accountant = RDPAccountant(relation=NeighboringRelation.ADD_REMOVE_TEACHER).compose(event)
    assert accountant.get_epsilon(delta=1e-6) == pytest.approx(stated["epsilon"])


def test_limited_domain_of_public_items(checkins: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As wide as there are items, if that is less; a public list says so."""
    options = ["--mechanism", "limited_domain", "--delta_domain", "1e-7", "--neighbors", "replace"]
    assert topk(*options) == 0
    found, text = statement("top.privacy.json"), capsys.readouterr().out
    assert found["num_items"] == 10 and found["mechanism"]["kbar"] == 9
    assert found["this_release"]["replace_record"]["delta0"] == pytest.approx(1e-7)
    assert "The top 3 of 10 items in order, or fewer, by" in text and "taken to be public" in text
    assert [row["item"] for row in rows("top.csv")] == ["place0", "place1", "place2"]


@pytest.mark.parametrize("more", ["", "".join(f"new,word{i}\n" for i in range(300))])
@pytest.mark.parametrize("options", [(), ("--max_each", "2", "--max_items", "3")])
def test_nothing_tells_how_many_items_there_are(
    more: str, options: tuple[str, ...], checkins: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is printed and left by two data sets whose largest counts are the same."""
    told = []
    for name, rest in (("alpha", "u1,secret lair\n"), ("omega", more)):
        Path(f"{name}.csv").write_text(
            "user,item\n" + "".join(f"u{i},word\n" for i in range(USERS)) + rest
        )
        assert unlisted(f"{name}.csv", f"top {name}.csv", "--noise_seed", "1", *options) == 0
        files = sorted(path.name for path in checkins.glob(f"*{name}*"))
        found = {
            key: value
            for key, value in statement(f"top {name}.privacy.json").items()
            if key != "ledger"
        }
        assert found["releases"][0].pop("at")
        told.append((*capsys.readouterr(), Path(f"top {name}.csv").read_text(), files, found))
    first, second = (
        repr(each).replace(name, "NAME")
        for each, name in zip(told, ("alpha", "omega"), strict=True)
    )
    assert first == second
    assert "secret" not in first and "word0" not in second


@pytest.mark.parametrize("content", ["", "a,b\nb,c\nc,d\n"])
def test_an_empty_list_is_a_list(
    content: str, checkins: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """However few there are, what is printed is the same, and so is the status."""
    Path("few.csv").write_text(f"user,item\n{content}")
    assert unlisted("few.csv", "few.json", "--scale", "1") == 0
    assert statement("few.json") == {"items": [], "ordered": True}
    printed = capsys.readouterr().out
    assert "epsilon = " in printed
    assert "Nothing is listed: the list ended before its first item, and" in printed
    assert ", or --mechanism peeling on a public list of --items, which always lists," in printed


def test_a_gap_that_fails_lists_nothing(checkins: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("even.csv").write_text("item,count\n" + "".join(f"{item},9\n" for item in "abcdef"))
    words = ["--counts=even.csv", "--k=3", "--target_epsilon=1", "--output=even.json"]
    assert cli.main(["topk", "--mechanism=stable", *words]) == 0
    assert statement("even.json")["items"] == []
    printed = capsys.readouterr().out
    assert "Nothing is listed: no gap between counts passed its noisy test, and" in printed
    assert ", another --k, or --mechanism peeling, which always lists, change that;" in printed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--k", "200000"), "Expected kbar <= 1000000, got kbar=2000000"),
        (("--max_epsilon", "1"), "Expected"),
        (
            ("--output", "no/top.csv"),
            "Expected a folder that can be written to, got output='no/top.csv'",
        ),
    ],
)
def test_errors_say_nothing_of_items_that_are_not_public(
    options: tuple[str, ...], message: str, checkins: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    errors = []
    for content in ("u,lair\n", "".join(f"u{i},word{i % 40}\n" for i in range(500))):
        Path("pairs.csv").write_text(f"user,item\n{content}")
        assert unlisted("pairs.csv", "top.csv", *options) == 2
        errors.append(capsys.readouterr().err)
    assert errors[0] == errors[1]
    assert message in errors[0] and len(errors[0].splitlines()) == 1
    assert not re.search(r"lair|word|(?<![\d.])(500|40)(?![\d.])", errors[0])


def test_a_link_to_the_data_leads_to_their_ledger(checkins: Path) -> None:
    (checkins / "links").mkdir()
    Path("links/others.csv").symlink_to(checkins / "checkins.csv")
    assert topk() == 0 and topk("--pairs", "links/others.csv", output="second.csv") == 0
    assert len(read_ledger(Path("checkins.ledger.sqlite")).entries) == 2
    assert [path.name for path in Path("links").iterdir()] == ["others.csv"]


def test_what_the_page_says_of_gaps() -> None:
    found = []
    for mechanism, public in (("limited_domain", False), ("peeling", True)):
        histogram = Histogram(
            tuple(f"item{i}" for i in range(1000)), np.zeros(1000), 1.0, "", public=public
        )
        made = TopKSettings(k=10, mechanism=mechanism, target_epsilon=1.0).mechanism_for(histogram)
        found.append(round(made.gap_to_answer(probability=0.9, num_items=1000)))
    assert found == [159, 67]
    text = (Path(__file__).parents[3] / "docs" / "topk.md").read_text()
    assert all(f"{gap} users" in text or f"needs {gap}" in text for gap in found)


def test_items_that_are_not_public_are_refused_from_python_too() -> None:
    histogram = Histogram(("lair",), np.ones(1), 1.0, "", public=False)
    with pytest.raises(ValueError, match=r"^Expected `items` [^\n]*got mechanism='joint'$"):
        TopKSettings(k=1, mechanism="joint", scale=1.0).mechanism_for(histogram)


def test_both_guarantees_hold_however_little_noise_there_is(checkins: Path) -> None:
    assert unlisted("checkins.csv", "top.csv", "--scale", "0.1") == 0
    for stated in statement("top.privacy.json")["this_release"].values():
        assert stated["epsilon"] < math.inf and stated["delta0"] <= 1e-7 * (1 + 1e-9)


def test_counts_need_no_pairs(checkins: Path) -> None:
    np.savez("counts.npz", counts=np.array([0.5, 3.5, 2.0]), items=np.array(["x", "y", "z"]))
    options = [
        "--counts",
        "counts.npz",
        "--sensitivity",
        "0.01",
        "--k",
        "1",
        "--target_epsilon",
        "1",
    ]
    assert cli.main(["topk", *options, "--neighbors", "replace", "--output", "top.csv"]) == 0
    assert rows("top.csv") == [{"rank": "1", "item": "y"}]
    found = statement("top.privacy.json")
    assert (
        found["mechanism"]["sensitivity"] == 0.01
        and found["neighboring_relation"] == "replace_record"
    )
    assert found["this_release"]["replace_record"]["epsilon"] == pytest.approx(1, rel=1e-5)
    assert "promises" in found["guarantees"]["replace_record"]["neighbors"]
    # means move both ways as a user comes or goes, and are not covered by the narrow window
    assert (
        "and all in one direction where a user is there or not"
        in found["guarantees"]["add_remove_teacher"]["neighbors"]
    )
    release = [
        "ledger",
        "verify",
        "--ledger",
        "counts.ledger.sqlite",
        "--statement",
        "top.privacy.json",
    ]
    assert cli.main(release) == 0


@pytest.mark.parametrize("mechanism", ["peeling", "permute_and_flip", "canonical", "joint"])
def test_what_is_released_follows_the_law(mechanism: Any) -> None:
    """The mechanism that is stated is the one that draws, with noise for the sensitivity of the
    histogram."""
    histogram = Histogram(("a", "b", "c", "d"), np.array([6, 4, 2, 0]), 2.0, "")
    settings = TopKSettings(k=2, mechanism=mechanism, target_epsilon=2.0)
    made: Any = settings.mechanism_for(histogram)
    # a pure epsilon is not below the one at delta
    assert made.event(settings.relation).cost().rdp[-1] >= 2 * (1 - 1e-6)
    scaled = tuple((histogram.scores / made.scale).tolist())
    assert isinstance(made, TopKMechanism)
    if mechanism == "canonical":
        listing, law = oracles.sets(4, 2), oracles.softmax(oracles.subset_utilities(scaled, 2, 0.5))
    else:
        listing = oracles.sequences(4, 2)
        law = (
            oracles.softmax(-oracles.sequence_losses(scaled, 2))
            if mechanism == "joint"
            else oracles.peel_law(
                scaled, listing, oracles.softmax if mechanism == "peeling" else oracles.flip_law
            )
        )
    drawn = made(np.tile(histogram.scores, (5000, 1)), generator=seeded_generator(0)).tolist()
    observed = np.bincount([listing.index(tuple(row)) for row in drawn], minlength=len(listing))
    assert chi_square_p_value(observed, 5000 * law) > 1e-4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--pairs", "checkins.csv"],
            "Expected --items with --pairs, a public list (an item that one user alone has",
        ),
        (
            ["--pairs", "none.csv", "--mechanism", "canonical"],
            "or --mechanism limited_domain, which needs none, got mec",
        ),
        (
            ["--pairs", "checkins.csv", "--counts", "x.npy"],
            "Expected either --pairs or --counts, got",
        ),
        ([], "Expected either --pairs or --counts, got"),
        (
            ["--counts", "x.npy", "--max_each", "2"],
            "Expected no --max_each with --counts, got max_each='2'",
        ),
        (
            ["--pairs", "checkins.csv", "--items", "x.txt", "--sensitivity", "2"],
            "Expected --max_each with --pairs",
        ),
        (
            ["--pairs", "checkins.csv", "--items", "none.txt"],
            "Expected a file of items, got path='none.txt'",
        ),
        (["--counts", "none.npy"], "Expected a file of counts, got path='none.npy'"),
    ],
)
def test_sources_that_are_refused(
    options: list[str], message: str, checkins: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["topk", *options, "--k", "3", "--scale", "1", "--output", "top.csv"]) == 2
    error = capsys.readouterr().err
    assert message in error and len(error.splitlines()) == 1
    assert not list(checkins.glob("*.sqlite"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--k", "11"], "Expected k <= 10 for 10 items and this mechanism, got k=11"),
        (
            ["--k", "10", "--mechanism", "canonical"],
            "Expected k <= 9 for 10 items and this mechanism, got k=10",
        ),
        (
            ["--scale", "1"],
            "Expected either target_epsilon or scale, got target_epsilon=4.0, scale=1.0",
        ),
        (["--delta", "1"], "Expected 0 < delta < 1, got delta=1.0"),
        (["--target_epsilon", "-1"], "Expected target_epsilon > 0, got target_epsilon=-1.0"),
        (
            ["--output", "top.txt"],
            "Expected an output that is a .csv or a .json, got output='top.txt'",
        ),
        (
            ["--output", "no/top.csv"],
            "Expected a folder that can be written to, got output='no/top.csv'",
        ),
        (["--max_epsilon", "1"], "got epsilon=4.0"),
        (["--max_epsilon", "1"], ": 0 such queries can be paid"),
        (
            ["--budget_filter", "renyi"],
            "Expected max_epsilon with budget_filter, got budget_filter='renyi'",
        ),
        (["--max_delta0", "1e-8"], "Expected max_epsilon with max_delta0, got max_delta0=1e-08"),
        (
            ["--max_epsilon", "8", "--max_delta0", "1"],
            "Expected 0 <= max_delta0 < 1e-06, got max_delta0=1.0",
        ),
        (["--kbar", "5"], "Expected no kbar with the mechanism peeling, got kbar=5"),
        (
            ["--mechanism", "limited_domain", "--k", "10"],
            "Expected k <= 9 for 10 items and this mechanism, got k=10",
        ),
        (["--mechanism", "limited_domain", "--kbar", "10"], "Expected kbar <= 9, got kbar=10"),
        (["--mechanism", "limited_domain", "--kbar", "2"], "Expected kbar >= k = 3, got kbar=2"),
        (
            ["--mechanism", "limited_domain", "--delta_domain", "1e-6"],
            "Expected delta_domain < delta = 1e-06, got delta_domain=1e-06",
        ),
    ],
)
def test_settings_that_are_refused_cost_nothing(
    options: list[str], message: str, checkins: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert topk(*options) == 2
    error = capsys.readouterr().err
    assert message in error and len(error.splitlines()) == 1
    assert not list(checkins.glob("top.*"))
    path = Path("checkins.ledger.sqlite")
    assert not path.exists() or not read_ledger(path).entries


def test_an_output_is_never_overwritten(checkins: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert topk() == 0
    said, before = capsys.readouterr().out, Path("top.csv").read_text()
    assert topk() == 0  # done already
    assert capsys.readouterr().out == said
    for other in (["--k=2"], ["--delta=1e-7"], ["--max_epsilon=50"], ["--noise_seed=1"], []):
        if not other:  # the same words on other private data
            with Path("checkins.csv").open("a") as file:
                file.write("u0,tea\n")
        assert topk(*other) == 2
        assert (
            "Expected another output, because every release is paid for" in capsys.readouterr().err
        )
    assert Path("top.csv").read_text() == before
    assert len(read_ledger(Path("checkins.ledger.sqlite")).entries) == 1


STEPS = [
    "pate._core.release.transaction.PendingRelease.write",
    "pate._core.accounting.ledger.Ledger.reserve",
    "pate._core.release.top_k._chosen",
    "pate._core.accounting.ledger.Ledger.settle",
    "pate._core.release.transaction.write_json",
    "pate._core.release.transaction.write_text",
    "pate._core.release.top_k.write_text",
    "pate._core.release.top_k._table",
    "pate._core.release.transaction.destroy",
]


# in the fast suite where it has paid and drawn nothing
KILLS = [(step, after) for step in STEPS for after in (False, True)]


@pytest.mark.parametrize(
    ("step", "after"),
    [
        kill if kill == (STEPS[1], True) else pytest.param(*kill, marks=pytest.mark.slow)
        for kill in KILLS
    ],
)
def test_killed_at_any_step_it_goes_on_and_pays_once(
    step: str, after: bool, checkins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The noise is large, so that another draw would give another list, and the items that count
    are drawn too."""
    options = [
        "--scale",
        "300",
        "--max_items",
        "2",
        "--k",
        "8",
        "--mechanism",
        "peeling",
        "--output",
        "top.csv",
    ]
    words = ["topk", "--pairs", "checkins.csv", "--items", "places.txt", *options]
    *owner, name = step.split(".")
    module = importlib.import_module(".".join(each for each in owner if each.islower()))
    whole = getattr(module, owner[-1]) if not owner[-1].islower() else module
    real, seen = getattr(whole, name), []

    def killed(*args: Any, **kwargs: Any) -> None:
        if after:
            real(*args, **kwargs)
        raise KeyboardInterrupt

    def noticed(*args: Any, **kwargs: Any) -> Any:
        seen.append(real_chosen(*args, **kwargs))
        return seen[-1]

    real_chosen = top_k._chosen
    with monkeypatch.context() as patch:
        patch.setattr(top_k, "_chosen", noticed)
        patch.setattr(whole, name, killed)
        assert cli.main(words) == 130
    assert Path("top.privacy.json").exists() or not Path("top.csv").exists()
    with monkeypatch.context() as patch:
        patch.setattr(top_k, "_chosen", noticed)
        assert cli.main(words) == 0
    assert [row["item"] for row in rows("top.csv")] == seen[-1]
    assert all(each == seen[0] for each in seen), "a second draw"
    assert [entry.settled for entry in read_ledger(Path("checkins.ledger.sqlite")).entries] == [
        True
    ]
    assert len(statement("top.privacy.json")["releases"]) == 1
    assert not Path("checkins.ledger.pending").exists()


def test_another_question_has_noise_of_its_own(
    checkins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a killed command left serves that command on those files alone."""
    with monkeypatch.context() as patch:
        patch.setattr("pate._core.release.transaction.write_json", _interrupt)
        assert topk() == 130
    (left,) = Path("checkins.ledger.pending").iterdir()
    assert left.stat().st_mode & 0o077 == 0 and left.parent.stat().st_mode & 0o077 == 0
    assert topk(output="other.csv") == 0 and topk("--k", "4", output="third.csv") == 0
    with Path("checkins.csv").open("a") as file:
        file.write("new,place0\n")
    assert topk() == 0
    assert len(statement("top.privacy.json")["releases"]) == 4
    assert left.exists()


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_where_the_data_lie_is_not_told(checkins: Path) -> None:
    assert topk() == 0
    assert (
        str(checkins)
        not in Path("top.privacy.json").read_text() + Path("top.privacy.txt").read_text()
    )


def test_anyone_who_has_the_ledger_can_verify_a_statement(
    checkins: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert topk("--max_epsilon", "20") == 0
    assert (
        topk(
            "--mechanism",
            "joint",
            "--max_items",
            "4",
            "--neighbors",
            "add_remove",
            output="second.json",
        )
        == 0
    )
    words = ["ledger", "verify", "--ledger", "checkins.ledger.sqlite", "--statement"]
    capsys.readouterr()
    assert cli.main([*words, "second.privacy.json"]) == 0
    assert (
        "\nsecond.privacy.json: every epsilon follows from the events.\n" in capsys.readouterr().out
    )
    assert cli.main([*words, "top.privacy.json"]) == 0
    said = "top.privacy.json: every epsilon follows from the events of its release and those before; 1 more followed.\n"
    assert said in capsys.readouterr().out
    made = statement("top.privacy.json")
    guarantees = made["guarantees"]
    changed = made | {
        "guarantees": guarantees | {"replace_record": guarantees["add_remove_teacher"]}
    }
    del made["release"]
    for found, message in (
        (changed, "Expected all keys in guarantees.replace_record, got missing="),
        (made, "Expected a whole topk statement, got: KeyError('release')"),
        (
            {"mechanism": 1},
            "Expected a readable statement at top.privacy.json, got: Expected a statement of a kind among",
        ),
    ):
        Path("top.privacy.json").write_text(json.dumps(found))
        assert cli.main([*words, "top.privacy.json"]) == 2
        error = capsys.readouterr().err
        assert message in error and len(error.splitlines()) == 1


@pytest.mark.parametrize(
    "mechanism",
    [
        "peeling",
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in ("permute_and_flip", "joint", "limited_domain")
        ),
    ],
)
def test_one_outlying_count_leaves_the_noise_of_the_others(
    mechanism: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A count as large as integers are, as a marker for what is missing may be, drowned all that
    was below it."""
    monkeypatch.chdir(tmp_path)
    options = (
        ["--kbar", "3", "--delta", "1e-3", "--delta_domain", "9e-4"]
        if mechanism == "limited_domain"
        else []
    )
    below = "none,-500000\nnever,-500000\n" if mechanism == "limited_domain" else ""
    for vote in (512, 514):
        Path("counts.csv").write_text(f"item,count\nmissing,{2**63 - 1}\na,{vote}\nb,513\n{below}")
        seconds: set[str] = set()
        seed = 0
        while len(seconds) < 2 and seed < 20:
            output = f"top_{vote}_{seed}.csv"
            arguments = [
                "--mechanism",
                mechanism,
                "--target_epsilon",
                "0.1",
                "--noise_seed",
                str(seed),
                *options,
            ]
            # one ledger has no delta left after the first
            arguments.append(f"--ledger={vote}_{seed}.sqlite")
            assert (
                cli.main(
                    ["topk", "--counts", "counts.csv", "--k", "2", "--output", output, *arguments]
                )
                == 0
            )
            first, second = (row["item"] for row in rows(output))
            assert first == "missing"
            seconds.add(second)
            seed += 1
        assert seconds == {"a", "b"}, vote
