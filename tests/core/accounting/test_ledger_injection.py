"""A reservation on a disk that fails once: it is there and told, or it is neither."""

import shutil
from pathlib import Path

import pytest

from pate.accounting import Ledger, read_ledger
from tests.core.accounting.ledgers import gaussian
from tests.injection import MODES, injector
from tests.statements import RECORDS


def reserve(folder: Path) -> None:
    Ledger(folder / "ledger.sqlite", home=folder.resolve() / "ledger.sqlite").reserve(
        gaussian(60),
        count=1,
        run="run",
        description="",
        seeded=False,
        delta=1e-6,
        token="token",
        privacy_unit=RECORDS,
    )


@pytest.mark.parametrize(
    ("mode", "part"),
    [("EIO", 3), *(pytest.param(mode, 1, marks=pytest.mark.slow) for mode in MODES[1:4])],
)
def test_a_commit_that_failed_is_read_by_a_fresh_connection(
    mode: str, part: int, tmp_path: Path
) -> None:
    """In its last ``part``, the reservation, or at any operation.

    The last sync of a commit may fail after its row is there: then it is reserved."""
    place, work = tmp_path / "place", f"{__name__}:reserve"
    reserved_in_spite = 0
    with injector(tmp_path, work) as run:
        place.mkdir()
        operations = run(work, folder=place).operations
        for number in range(operations - operations // part, operations):
            shutil.rmtree(place)
            place.mkdir()
            told = run(work, folder=place, number=number, mode=mode)
            path = place / "ledger.sqlite"
            paid = len(read_ledger(path).entries) if path.exists() else 0
            assert (told.code, paid) in ((0, 1), (2, 0)), (number, told)
            reserved_in_spite += paid
            assert run(work, folder=place).code == 0 and len(read_ledger(path).entries) == 1
    assert operations > 20 and reserved_in_spite > 0
