"""`pate.label`: the private step on votes that a program holds."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pate
from pate import StatedLabels, cli
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
        match=r"that `pate label` of runs/mine was begun with, got .*sigma_votes=3.0 \(was 2.0\).*"
        "new labels cost again$",
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


def test_a_student_is_trained_on_what_it_released(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    votes = made_votes()
    pate.label(votes, settings(), run="runs/mine")
    released = pate.label(votes, settings(), run="runs/mine", data="recipe/data.yaml")
    assert released.release == 1
    assert cli.main(["student", "fit", "--config=recipe/student.yaml", "--run=runs/mine"]) == 0
    place = Path("runs/mine/public/student/model")
    assert capsys.readouterr().out.startswith(f"Student: {place}. On the test set: pate student")
    assert (place / "model.json").is_file()


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
