"""What the bars of teachers say."""

from pathlib import Path
from typing import Any

import pytest

from pate import cli
from pate._core.progress import stage_bar
from tests.conftest import Write, make_arrays
from tests.networks.conftest import recipe


@pytest.mark.slow
def test_bars_of_teachers_say_nothing_of_the_records(
    write_arrays: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many there are is PRIVATE; steps and chunks are public."""
    told: list[tuple[object, object]] = []

    def recorded(total: int | None, name: str, **options: Any) -> Any:
        told.append((total, name))
        return stage_bar(total, name, **options)

    monkeypatch.setattr("pate._networks.teachers.stage.stage_bar", recorded)
    arrays = make_arrays()
    for world, rows in (("integer_scores", slice(0, None)), ("less", slice(37, None))):
        data = write_arrays(
            f"{world}.npz", **{name: arrays[name][rows] for name in ("X", "Y", "ids", "split")}
        )
        made = recipe(tmp_path / f"{world}_recipe", data, steps=2)
        words = [
            f"--config={made}/data.yaml",
            f"--config={made}/teachers.yaml",
            f"--run={tmp_path / world}",
        ]
        assert cli.main(["teachers", "fit", *words]) == 0
        assert cli.main(["teachers", "vote", f"--run={tmp_path / world}"]) == 0
    assert told == [(6, "teachers"), (3, "votes")] * 2
