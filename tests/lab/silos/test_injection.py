"""Silos and their server on a disk that fails, and killed, at any operation."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pate import ReleasedLabels, cli
from tests.injection import EVERYWHERE, MODES, Case, Ended, Injector, injector, try_points
from tests.lab.silos.test_command import agreed, words
from tests.lab.silos.test_label import Labelling

STEPS = ("keys", "shares", "masked", "pays", "unmasking", "opens")


class Place(Labelling):
    """The silos in a folder, and the words of the server's command."""

    def served(self) -> list[str]:
        with pytest.MonkeyPatch.context() as patch:
            taken: list[list[str]] = []
            patch.setattr(cli, "main", taken.append)
            self.label()
        return taken[0]


def take_part(folder: Path) -> None:
    """Begin a sum, for what it imports."""
    silos = Place(folder)
    cli.main(silos.served())
    for name in silos.teachers:
        cli.main([*words(silos, name, *agreed(silos)), "--wait", "0"])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Injector]:
    with injector(tmp_path_factory.mktemp("injector"), f"{__name__}:take_part") as server:
        yield server


def bits(place: Path, ended: Ended) -> list[Any]:
    """Return the masked vector of the north, and the labels."""
    masked, labels = place / "exchange" / "masked" / "north.npz", place / "run" / "public"
    made: list[Any] = [masked.read_bytes()] if masked.is_file() else []
    if (labels / "labels.npz").is_file():
        made.append(ReleasedLabels.load(place / "run").labels.tolist())
    return made


def case_of(step: str, folder: Path) -> Case:
    """Return the command of the north, or of the server, that takes a step, after all others."""
    before, place = folder / "before", folder / "place"
    place.mkdir()
    silos = Place(place)
    north = [*words(silos, "north", *agreed(silos)), "--wait", "0"]
    number = STEPS.index(step)
    assert cli.main(silos.served()) == 0
    for each in range(min(number, 2) + 1):
        for name in silos.teachers:
            if each < min(number, 2) or (name != "north" or number > 2):
                assert cli.main([*words(silos, name, *agreed(silos)), "--wait", "0"]) == 0
    if number > 3:
        assert cli.main(silos.served()) == 0
        for name in silos.teachers:
            if name != "north" or number > 4:
                assert cli.main([*words(silos, name, *agreed(silos)), "--wait", "0"]) == 0
    shutil.copytree(place, before)
    work = silos.served() if step in ("pays", "opens") else north

    def stated(place: Path) -> bool:
        return (place / "run" / "public" / "privacy.txt").is_file()

    return Case(work, before, place, bits, stated)


@pytest.mark.parametrize("step", ["masked"])
def test_a_sample_of_operations_pays_once(step: str, run: Injector, tmp_path: Path) -> None:
    assert try_points(run, case_of(step, tmp_path), MODES[1:], most=4) == 4


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES[1:])
@pytest.mark.parametrize("step", STEPS)
def test_every_operation_pays_once(step: str, mode: str, run: Injector, tmp_path: Path) -> None:
    most = None if mode in EVERYWHERE else 40
    assert try_points(run, case_of(step, tmp_path), [mode], most=most) > 10
