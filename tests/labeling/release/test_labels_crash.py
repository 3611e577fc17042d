"""`pate label` that is killed at any step pays once, draws once, and leaves no statement of other
labels."""

import json
import stat
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate import LabelSettings
from pate._core.files.reading import digest
from pate._core.mechanisms.noise import KEY_BITS
from pate._labeling.release.labels import label as label_stage
from pate._labeling.runs.run import LABEL, Run
from pate._labeling.runs.vote_store import finished_votes
from pate.accounting import read_ledger
from pate.aggregators import ConfidentScreen, NoisyVotes

SCREEN = ConfidentScreen(
    answers=NoisyVotes(sigma_votes=3), sigma_confident=1, threshold_confident=4
)


class Killed(KeyboardInterrupt):
    pass


def resolve(dotted: str) -> Any:
    parts = dotted.split(".")
    for n in range(len(parts) - 1, 0, -1):
        try:
            found: Any = import_module(".".join(parts[:n]))
        except ImportError:
            continue
        for part in parts[n:]:
            found = getattr(found, part)
        return found
    raise LookupError(dotted)


def release_screened(
    root: Path, *, noise_seed: int | None = None, screen: ConfidentScreen = SCREEN
) -> None:
    """What `pate label --overwrite` calls."""
    run = Run(root, overwrite=True)
    label_stage(
        run,
        finished_votes(run),
        LabelSettings(screen, num_queries=60, delta=1e-3, noise_seed=noise_seed),
    )


def seeds(run: Path) -> list[Path]:
    folder = run / "private" / "label"
    return list(folder.iterdir()) if folder.is_dir() else []


def labels(run: Path) -> bytes:
    return (run / "public" / "labels.npz").read_bytes()


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Seeds 1, 2, 3 and so on in place of the system's; what is returned begins again at 1."""
    numbers = count(1)

    def restart() -> None:
        nonlocal numbers
        numbers = count(1)

    monkeypatch.setattr("pate._core.transaction.draw_key", lambda: next(numbers))
    return restart


def cut(*_: object, **__: object) -> None:
    raise Killed


def kill(monkeypatch: pytest.MonkeyPatch, step: str, run: Path, **options: Any) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(step, cut)
        with pytest.raises(Killed):
            release_screened(run, **options)


SAVE = "pate._labeling.runs.released.ReleasedLabels.save"


def test_a_seed_is_for_its_owner_alone(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kill(monkeypatch, SAVE, copied)
    (file,) = seeds(copied)
    assert (
        stat.S_IMODE(file.stat().st_mode) == 0o600
        and stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    )
    content = json.loads(file.read_text())
    assert 2**90 < int(content["key"], 16) < 2**KEY_BITS
    assert read_ledger(copied / "ledger.sqlite").entries[-1].token == content["token"]
    assert content["key"].encode() not in (copied / "ledger.sqlite").read_bytes()


def test_another_command_pays_for_itself_and_destroys_the_seed(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill(monkeypatch, SAVE, copied)
    first = seeds(copied)
    release_screened(copied, screen=replace(SCREEN, threshold_confident=3.0))
    assert not seeds(copied)
    entries = read_ledger(copied / "ledger.sqlite").entries
    assert [entry.settled for entry in entries] == [True, False, True]
    # the first command is a new release now, with another seed
    kill(monkeypatch, SAVE, copied)
    assert seeds(copied) == first
    assert len({entry.token for entry in read_ledger(copied / "ledger.sqlite").entries}) == 4


def test_a_command_that_is_refused_leaves_the_seed_of_another(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill(monkeypatch, SAVE, copied)
    kept = {file: file.read_bytes() for file in seeds(copied)}
    run = Run(copied, overwrite=True)
    with pytest.raises(ValueError, match=r"Expected epsilon <= 0\.001"):
        label_stage(
            run,
            finished_votes(run),
            LabelSettings(SCREEN, num_queries=60, delta=1e-3, max_epsilon=0.001),
        )
    assert {file: file.read_bytes() for file in seeds(copied)} == kept
    release_screened(copied)
    assert len(read_ledger(copied / "ledger.sqlite").entries) == 2


def test_a_release_that_other_code_began_is_not_paid_for_twice_without_a_word(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The digest of a request holds the version of the code, so an update makes it another one."""
    settings = LabelSettings(SCREEN, num_queries=60, delta=1e-3)
    Run(copied, overwrite=True).clear(LABEL)

    def ask() -> None:
        label_stage(Run(copied), finished_votes(Run(copied)), settings)

    with monkeypatch.context() as patch:
        patch.setattr(SAVE, cut)
        with pytest.raises(Killed):
            ask()
    (begun,) = seeds(copied)
    other = begun.rename(begun.with_name("0.json"))
    with pytest.raises(ValueError, match=r"^Expected the settings, votes and version [^\n]*$"):
        ask()
    assert len(read_ledger(copied / "ledger.sqlite").entries) == 2
    other.rename(begun)
    ask()
    assert len(read_ledger(copied / "ledger.sqlite").entries) == 2 and not seeds(copied)


def test_other_votes_are_another_question(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise of a release is never added to other votes."""
    kill(monkeypatch, SAVE, copied)
    (first,) = seeds(copied)
    state, manifest = (
        copied / "private" / "votes_import.json",
        copied / "private" / "votes" / "manifest.json",
    )
    before = digest(manifest)
    votes = sorted((copied / "private" / "votes").glob("*.npy"))[0]
    content, old = np.load(votes), digest(votes)
    np.save(votes, ~content)
    manifest.write_text(manifest.read_text().replace(old, digest(votes)))
    state.write_text(
        state.read_text().replace(old, digest(votes)).replace(before, digest(manifest))
    )
    kill(monkeypatch, SAVE, copied)
    (second,) = seeds(copied)
    assert second != first and len(read_ledger(copied / "ledger.sqlite").entries) == 3


def test_a_budget_that_the_release_itself_uses_up_lets_it_go_on(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is reserved already is not counted once more against the budget."""
    release_screened(copied)
    said = json.loads((copied / "public" / "privacy.json").read_text())
    both = said["guarantees"]["replace_record"]["epsilon"]

    def spend() -> None:
        run = Run(copied, overwrite=True)
        label_stage(
            run,
            finished_votes(run),
            LabelSettings(SCREEN, num_queries=60, delta=1e-3, max_epsilon=3 * both),
        )

    with monkeypatch.context() as patch:
        patch.setattr(SAVE, cut)
        with pytest.raises(Killed):
            spend()
    spend()
    assert len(read_ledger(copied / "ledger.sqlite").entries) == 3
