"""Between releases a version names the commit of the code."""

import re
import subprocess
from pathlib import Path

import pytest

import pate
from pate._core import version

ROOT = Path(pate.__file__).parents[1]


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
    monkeypatch.setattr(version, "RELEASE", "0.7.0.dev0")
    first = git("rev-parse", "HEAD", folder=checkout).strip()
    assert version._version(str(checkout)) == f"0.7.0.dev0+g{first[:8]}"
    git("worktree", "add", "--quiet", "-b", "other", str(tmp_path / "other"), folder=checkout)
    git("commit", "--quiet", "--allow-empty", "--message=two", folder=tmp_path / "other")
    second = git("rev-parse", "other", folder=checkout).strip()
    assert version._version(str(tmp_path / "other")) == f"0.7.0.dev0+g{second[:8]}"
    git("pack-refs", "--all", folder=checkout)
    git("checkout", "--quiet", "--detach", folder=checkout)
    for folder, commit in ((checkout, first), (tmp_path / "other", second)):
        assert version._version(str(folder)) == f"0.7.0.dev0+g{commit[:8]}"
    monkeypatch.setattr(version, "RELEASE", "0.7.0")
    assert version._version(str(checkout)) == "0.7.0"


def test_an_installed_package_has_the_commit_that_it_was_built_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version, "RELEASE", "0.7.0.dev0")
    for installed, found in (
        ("0.7.0.dev0+g12345678", "0.7.0.dev0+g12345678"),
        ("0.6.0", "0.7.0.dev0"),  # of another copy
    ):
        monkeypatch.setattr(version, "_built", lambda installed=installed: installed)
        assert version._version(str(tmp_path)) == found


def test_the_citation_names_the_last_release_and_the_holders_of_the_license() -> None:
    citation, changes = ((ROOT / name).read_text() for name in ("CITATION.cff", "CHANGELOG.md"))
    released = re.search(r"^## \[([\d.]+)\] - (\S+)$", changes, flags=re.MULTILINE)
    assert released is not None
    assert f"\nversion: {released[1]}\ndate-released: {released[2]}\n" in citation
    (holders,) = re.findall(r"Copyright \(c\) \d+ (.*)", (ROOT / "LICENSE").read_text())
    assert f'- name: "{holders}"' in citation
    assert released[1] == version.RELEASE or version.RELEASE.endswith(".dev0")
