"""Scripts of papers say what they are for, and without data they make nothing."""

from pathlib import Path

import pytest

from tests.test_scripts import SCRIPTS, load

NAMES = sorted(path.stem for path in SCRIPTS.glob("reproduce_*.py"))
DATA = [name for name in NAMES if "PATE_DATA" in (SCRIPTS / f"{name}.py").read_text()]


@pytest.mark.parametrize("name", [name for name in NAMES if "shekelyan" in name or "gillen" in name or "zhu_w" in name])
def test_help_names_the_script(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        load(name).main(["--help"])
    assert stopped.value.code == 0
    out = capsys.readouterr().out
    assert f"python scripts/{name}.py" in out and "--full" in out and "--seed" in out


@pytest.mark.parametrize("name", [name for name in DATA if "shekelyan" in name or "gillen" in name or "zhu_w" in name])
def test_without_data_nothing_is_made(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PATE_DATA", raising=False)
    load(name).main(["--output", str(tmp_path)])
    assert "Expected PATE_DATA to name a folder" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]
