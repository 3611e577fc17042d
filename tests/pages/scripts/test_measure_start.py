"""The times and the memory that a table takes."""

import re

import pytest

from scripts import measure_start


def test_each_row_is_compared_with_the_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = {"nothing": ["-c", ""], "a table": ["-c", "open('table.npz').close()"]}
    monkeypatch.setattr(measure_start, "ROWS", rows)
    measure_start.main(["--repeats", "1", "--records", "30"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and re.fullmatch(r"\| nothing \| [\d.]+ \| 1\.0 \| \d+ \|", lines[2])
    monkeypatch.setattr(measure_start, "ROWS", {"fails": ["-c", "raise ValueError('why')"]})
    with pytest.raises(SystemExit, match="why"):
        measure_start.main(["--repeats", "1"])
