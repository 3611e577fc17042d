"""Between releases a version names the commit of the code."""

import subprocess
from pathlib import Path

import pytest

from pate._core import package


def git(*words: str, folder: Path) -> str:
    named = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(named, cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / "pyproject.toml").write_text("[project]\n")
    git("init", "--quiet", folder=folder)
    git("add", "pyproject.toml", folder=folder)
    git("commit", "--quiet", "--message=one", folder=folder)
    return folder


def test_a_checkout_has_the_commit_of_its_head(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package, "RELEASE", "0.7.0.dev0")
    first = git("rev-parse", "HEAD", folder=checkout).strip()
    assert package._version(str(checkout)) == f"0.7.0.dev0+g{first[:8]}"
    git("worktree", "add", "--quiet", "-b", "other", str(tmp_path / "other"), folder=checkout)
    git("commit", "--quiet", "--allow-empty", "--message=two", folder=tmp_path / "other")
    second = git("rev-parse", "other", folder=checkout).strip()
    assert package._version(str(tmp_path / "other")) == f"0.7.0.dev0+g{second[:8]}"
    git("pack-refs", "--all", folder=checkout)
    git("checkout", "--quiet", "--detach", folder=checkout)
    for folder, commit in ((checkout, first), (tmp_path / "other", second)):
        assert package._version(str(folder)) == f"0.7.0.dev0+g{commit[:8]}"
    monkeypatch.setattr(package, "RELEASE", "0.7.0")
    assert package._version(str(checkout)) == "0.7.0"
