"""What no later stage could use is refused where it enters: before anything is trained or spent."""

from pathlib import Path

import numpy as np
import pytest

from pate import cli
from pate._core.validation import require_label_names
from tests.conftest import make_arrays, recipe

NAMES = {
    "nul": "a\0b",
    "newline": "a\nb",
    "escape": "\x1b[2J",
    "none": "",
    "blank": "  ",
    "long": "a" * 100_000,
    "surrogate": "a\ud800",
    "separator": "a\u2028b",
    "control": "a\x9bb",
}


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert cli.main(words) == 2
    error = capsys.readouterr().err
    assert (
        len(error.splitlines()) == 1
        and len(error) < 1000
        and error.isascii()
        and error[:-1].isprintable()
    )
    return error


# every name where it is cheap, as a name of votes; here what is long, and what is no character
@pytest.mark.parametrize(
    "name",
    [
        name if key in ("long", "surrogate") else pytest.param(name, marks=pytest.mark.slow)
        for key, name in NAMES.items()
    ],
    ids=list(NAMES),
)
def test_a_sources_label_names(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    label_names = np.array(["a", name, "c", "d"])
    np.savez(tmp_path / "data.npz", **(make_arrays() | {"label_names": label_names}))  # type: ignore[arg-type]
    folder = recipe(tmp_path / "recipe", tmp_path / "data.npz")
    words = [f"--config={folder / part}.yaml" for part in ("data", "teachers")]
    assert "label names" in refused(
        ["teachers", "fit", *words, f"--run={tmp_path / 'run'}"], capsys
    )
    assert "label names" in refused(
        ["run", str(folder), f"--run={tmp_path / 'run'}", "--dry_run"], capsys
    )
    assert not (tmp_path / "run").exists() and not list(tmp_path.glob("*.sqlite"))


def test_names_of_all_languages_are_label_names() -> None:
    require_label_names(
        "label names", ["effusion", "Größe", "می‌خواهم", "👩‍⚕️", "two words", "a" * 1000, "a\u00a0b"]
    )
