"""Nothing of these tests is to outlive a power cut; and silos that have sent their first files."""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.lab.silos.exchanges import Hospitals


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture(scope="session")
def advanced(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Hospitals]:
    """Make silos that have advanced by some rounds, once for all tests; the fourth reveals shares."""

    @cache
    def make(rounds: int, **settings: Any) -> Hospitals:
        place = tmp_path_factory.mktemp("silos")
        hospitals = Hospitals(place / "made", **settings)
        hospitals.advance(rounds=rounds) if rounds < 4 else hospitals.reveal()
        # where it was made there is none any more, so that the ledgers of copies are ledgers moved
        hospitals.folder = hospitals.folder.rename(place / "moved")
        return hospitals

    return make


@pytest.fixture
def after(advanced: Callable[..., Hospitals], tmp_path: Path) -> Callable[..., Hospitals]:
    """Return silos of the test's own that have advanced by some rounds."""
    return lambda rounds, **settings: advanced(rounds, **settings).copied(tmp_path)
