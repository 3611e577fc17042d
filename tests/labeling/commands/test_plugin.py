"""`pate plugin new`: a package that passes its tests at once, and fails them where it is wrong."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pate import cli


def passes(folder: Path) -> str:
    """Return what pytest says on a plug-in in an interpreter of its own."""
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--color=no", "-x"]
    done = subprocess.run([*words, "."], cwd=folder, capture_output=True, text=True)
    return done.stdout


def test_a_plugin_has_the_name_that_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["plugin", "new", "NoisyMean"]) == 0
    files = {path.name: path.read_text() for path in (tmp_path / "noisy_mean").iterdir()}
    assert set(files) == {"pyproject.toml", "noisy_mean.py", "test_noisy_mean.py"}
    text = "\n".join(files.values())
    assert "class NoisyMean(MechanismAggregator[NoisyMeanMechanism], tag=" in text
    assert "scale_noisy_mean" in text and "mine" not in text and "my_votes" not in text.lower()
    assert "python -m pytest noisy_mean" in capsys.readouterr().out
    assert cli.main(["plugin", "new", "NoisyMean"]) == 2
    assert "a new or empty folder noisy_mean" in capsys.readouterr().err


def test_a_name_that_python_or_pate_has_is_refused_before_files_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (
        "Numpy",
        "Json",
        "Class",
        "Import",
        "Gumbel",
        "StableTopK",
        "mine",
        "../A",
    ):
        assert cli.main(["plugin", "new", name]) == 2
        assert re.fullmatch("pate plugin new: Expected a name .*\n", capsys.readouterr().err), name
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_new_plugin_passes_its_own_tests_and_a_wrong_one_fails_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["plugin", "new", "NoisyMean", "--output=mine"]) == 0
    assert " passed" in (out := passes(Path("mine"))) and "failed" not in out
    module = Path("mine/noisy_mean.py")
    right = module.read_text()
    for sound, wrong in (
        ("relation.score_range / self.scale", "0.5 * relation.score_range / self.scale"),
        ("+ self.scale * gumbel", "+ 0.7 * self.scale * gumbel"),
    ):
        assert right.count(sound) == 1
        module.write_text(right.replace(sound, wrong))
        assert "FAILED test_noisy_mean.py::TestNoisyMeanMechanism" in passes(Path("mine"))
