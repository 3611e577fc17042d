"""The place of a ledger."""

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "ledger.sqlite"
