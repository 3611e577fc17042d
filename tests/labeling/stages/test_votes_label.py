"""`pate.label`: the private step on votes that a program holds."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

import pate
from pate import StatedLabels, cli
from pate._labeling.commands.check import verify_file
from pate.accounting import read_ledger
from tests.conftest import made_votes
from tests.labeling.stages.test_votes_import import NAMES, part, place

__all__ = ["place"]


def settings(sigma: float = 2.0, *, seed: int | None = None) -> pate.LabelSettings:
    return pate.LabelSettings(
        pate.NoisyVotes(sigma_votes=sigma), num_queries=40, delta=1e-3, noise_seed=seed
    )


def test_labels_come_with_their_statement(place: Path) -> None:
    votes = made_votes()
    released = pate.label(votes, settings(), run="runs/mine", unit="patient")
    assert isinstance(released, StatedLabels) and isinstance(released, pate.ReleasedLabels)
    assert (
        released.labels.shape == (40, 4) and released.mask.all() and released.label_names == NAMES
    )
    released.statement.verify(released=Path("runs/mine/public/labels.npz"))
    assert released.describe() == Path("runs/mine/public/privacy.txt").read_text()
    assert (
        "one patient of" in released.describe()
        and "ledger of this run alone" in released.describe()
    )
    assert not Path("runs/mine/.lock").exists()
    # the same again is what is there
    again = pate.label(votes, settings(), run="runs/mine")
    assert (again.labels == released.labels).all() and again.release == released.release == 1
    with pytest.raises(
        ValueError,
        match=r"that `pate label` of runs/mine was begun with, got .*sigma_votes=3.0 \(was 2.0",
    ):
        pate.label(votes, settings(3.0), run="runs/mine")
    assert pate.label(votes, settings(3.0), run="runs/mine", overwrite=True).release == 2
    assert len(read_ledger(Path("runs/mine/ledger.sqlite")).entries) == 2


def test_it_is_what_the_command_releases(place: Path) -> None:
    """The same votes, queries and seed: in memory, as silos, from a file and on the command
    line."""
    votes = made_votes()
    silos = [part(votes, slice(0, 5)), part(votes, slice(5, 20), counts=True)]
    found = [
        pate.label(votes, settings(seed=7), run="runs/whole"),
        pate.label(silos, settings(seed=7), run="runs/silos", ledger="own.sqlite"),
        pate.label("votes.npz", settings(seed=7), run="runs/file"),
    ]
    assert [Path(name).exists() for name in ("own.sqlite", "votes.ledger.sqlite")] == [True, True]
    words = [
        "--aggregator=NoisyVotes",
        "--aggregator.sigma_votes=2",
        "--num_queries=40",
        "--delta=1e-3",
    ]
    own = ["--votes=votes.npz", "--ledger=other.sqlite", "--noise_seed=7", "--run=runs/command"]
    assert cli.main(["label", *words, *own]) == 0
    with np.load("runs/command/public/labels.npz") as archive:
        for labels in found:
            assert (labels.labels == archive["labels"]).all() and (
                labels.ids == archive["ids"]
            ).all()
            assert labels.statement["private"] is False


@pytest.mark.slow
def test_a_program_and_a_command_know_each_others_labels(place: Path) -> None:
    """However a class, an enum and a number are written; and a killed one is taken up by the
    other."""
    words = [
        "--aggregator=pate._labeling.aggregators.noisy_votes.NoisyVotes",
        "--aggregator.sigma_votes=2",
        "--num_queries=40",
        "--delta=1e-3",
    ]
    command = ["label", *words, "--votes=votes.npz"]
    settings = pate.LabelSettings(pate.NoisyVotes(sigma_votes=2), num_queries=40, delta=1e-3)
    assert cli.main([*command, "--run=runs/first"]) == 0
    first = Path("runs/first/public/labels.npz").read_bytes()
    pate.label("votes.npz", settings, run="runs/first")
    assert Path("runs/first/public/labels.npz").read_bytes() == first
    pate.label("votes.npz", settings, run="runs/second")
    second = Path("runs/second/public/labels.npz").read_bytes()
    assert cli.main([*command, "--run=runs/second"]) == 0
    pate.RunPlan(Path("runs/second"), labels=settings).label()
    assert Path("runs/second/public/labels.npz").read_bytes() == second
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pate.ReleasedLabels, "save", interrupt)
        with pytest.raises(KeyboardInterrupt):
            pate.label("votes.npz", settings, run="runs/third")
    assert cli.main([*command, "--run=runs/third"]) == 0
    assert len(read_ledger(Path("votes.ledger.sqlite")).entries) == 3


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_student_is_trained_on_what_it_released(place: Path) -> None:
    votes = made_votes()
    pate.label(votes, settings(), run="runs/mine")
    released = pate.label(votes, settings(), run="runs/mine", data="recipe/data.yaml")
    assert released.release == 1
    assert cli.main(["student", "fit", "--config=recipe/student.yaml", "--run=runs/mine"]) == 0
    assert Path("runs/mine/public/student/model/model.json").is_file()


def test_a_target_takes_the_place_of_noise(place: Path) -> None:
    """The scales that are given count as proportions; the settings that are found find the labels
    again."""
    votes = made_votes()
    asked = replace(settings(7.0), target_epsilon=2.0)
    released = pate.label(votes, asked, run="runs/mine")
    assert 2 * (1 - 1e-4) < released.statement["guarantees"]["replace_record"]["epsilon"] <= 2
    sigma = released.aggregator["init_args"]["sigma_votes"]
    assert sigma > 7
    kept = yaml.safe_load(Path("runs/mine/public/label.yaml").read_text())
    assert kept["aggregator"]["init_args"]["sigma_votes"] == sigma and kept["target_epsilon"] == 2
    assert pate.label(votes, asked, run="runs/mine").release == 1
    assert (
        pate.label(votes, replace(settings(sigma), target_epsilon=2.0), run="runs/mine").release
        == 1
    )
    with pytest.raises(ValueError, match=r"^Expected target_epsilon <= 1\.0 \(`max_epsilon`\)"):
        pate.label(votes, replace(asked, max_epsilon=1.0), run="runs/other")
    assert (
        not Path("runs/other/ledger.sqlite").exists()
        or not read_ledger(Path("runs/other/ledger.sqlite")).entries
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "a data.yaml that names public and test records, got missing='data.yaml'"),
        ("data: 3\n", "a source of records under `data:` in data.yaml"),
        ("other: 3\n", "a source of records under `data:` in data.yaml"),
    ],
)
def test_data_that_are_none_leave_nothing(content: str | None, message: str, place: Path) -> None:
    if content is not None:
        Path("data.yaml").write_text(content)
    with pytest.raises(ValueError, match=message):
        pate.label("votes.npz", settings(), run="runs/mine", data="data.yaml")
    assert not Path("runs").exists() and not Path("votes.ledger.sqlite").exists()


def test_a_refusal_releases_the_lock(place: Path) -> None:
    first, second = made_votes(), made_votes(seed=2)
    pate.label(first, settings(), run="runs/mine")
    for _ in range(2):
        with pytest.raises(ValueError, match="was begun with, got other votes"):
            pate.label(second, settings(), run="runs/mine")
        assert not Path("runs/mine/.lock").exists()
    assert len(read_ledger(Path("runs/mine/ledger.sqlite")).entries) == 1


@pytest.mark.slow
def test_a_finished_run_states_what_was_released_since(place: Path) -> None:
    """Another run on the same data released more: labels that are there are stated with all that
    the ledger holds."""
    first = pate.label("votes.npz", settings(), run="runs/first")
    pate.label("votes.npz", settings(), run="runs/second")
    ledger, stated = Path("votes.ledger.sqlite"), Path("runs/first/public/privacy.json")
    with pytest.raises(ValueError, match=r"the same `pate label` makes it, got more=1$"):
        verify_file(stated, ledger=ledger)
    again = pate.label("votes.npz", settings(), run="runs/first")
    assert (again.labels == first.labels).all() and again.release == 1
    both = again.statement["guarantees"]["replace_record"]["epsilon"]
    assert (
        len(again.statement["releases"]) == 2
        and both > first.statement["guarantees"]["replace_record"]["epsilon"]
    )
    assert again.statement["this_release"] == first.statement["this_release"]
    assert again.describe() == Path("runs/first/public/privacy.txt").read_text()
    again.statement.verify(ledger=ledger, released=Path("runs/first/public/labels.npz"))
    verify_file(stated, ledger=ledger)


def test_units_that_reach_several_teachers(place: Path) -> None:
    """The target and the headline are for as many teachers as are declared, by wider windows."""
    wanted = replace(settings(), target_epsilon=2.0, max_teachers_per_unit=2)
    released = pate.label("votes.npz", wanted, run="runs/shared", unit="patient")
    stated = released.statement
    assert 2 * (1 - 1e-4) < stated["guarantees"]["replace_record"]["epsilon"] <= 2
    assert stated["reach"][1]["replace_record"] == stated["guarantees"]["replace_record"]["epsilon"]
    alone = pate.label(
        "votes.npz",
        replace(settings(), target_epsilon=2.0),
        run="runs/alone",
        ledger="other.sqlite",
    )
    assert released.noise_std == pytest.approx(2 * (alone.noise_std or 0), rel=1e-4)
    assert (
        "one patient of the private data, which reaches 2 teachers at most, is added"
        in released.describe()
    )
    stated.verify(
        ledger=Path("votes.ledger.sqlite"), released=Path("runs/shared/public/labels.npz")
    )
    with pytest.raises(ValueError, match=r"^Expected an integer max_teachers_per_unit >= 1, got"):
        replace(settings(), max_teachers_per_unit=0)


@pytest.mark.parametrize("counts", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_copied_silo_is_refused(place: Path, counts: bool) -> None:
    """Each record of a file that was copied reaches two teachers."""
    votes = made_votes()
    first, rest = part(votes, slice(0, 5), counts=counts), part(votes, slice(5, 20))
    message = r"^Expected silos that are no copies of each other, or max_teachers_per_unit >= 2, got [^\n]*=1$"
    with pytest.raises(ValueError, match=message):
        pate.label([first, rest, first], settings(), run="runs/mine")
    others = part(votes, slice(0, 5), counts=True), part(votes, slice(4, None, -1))
    for copy in others:  # its counts, and its teachers in another order
        with pytest.raises(ValueError, match=message):
            pate.label([first, rest, copy], settings(), run="runs/mine")
    assert not Path("runs/mine/private").exists()
    shared = replace(settings(), max_teachers_per_unit=2)
    assert pate.label([first, rest, first], shared, run="runs/mine").num_teachers == 25
    # silos that stay away answer alike
    away = replace(first, ballots=np.zeros((len(first.ids), 5, 4), np.uint8), counts=None)
    assert pate.label([away, rest, away], settings(), run="runs/away").num_teachers == 25


@pytest.mark.slow
def test_a_ledger_that_is_not_beside_the_votes_is_called_named(place: Path) -> None:
    """The data have a ledger already, which counts what this one does not."""
    first = pate.label("votes.npz", settings(), run="runs/first")
    other = pate.label("votes.npz", settings(), run="runs/other", ledger="other.sqlite")
    assert (
        first.statement["ledger"]["counts"] == "private data" and "adds up" not in first.describe()
    )
    assert (
        other.statement["ledger"]["counts"] == "named"
        and "The ledger of the private data" not in other.describe()
    )
    assert (
        "What another ledger of the same private data holds, such as one beside them, is not in it"
        in other.describe()
    )
    again = pate.label("votes.npz", settings(), run="runs/third", ledger="votes.ledger.sqlite")
    assert again.statement["ledger"]["counts"] == "private data"
