"""Runs that prove themselves, on made-up records."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

import pate
from pate import cli
from pate._core.release import transaction
from pate._labeling.stages.rehearsal import MadeUp
from pate.data import Role
from pate.lab.audit.isolation import Altered
from tests.lab.audit.worlds import Drawn


def test_made_up_records_hold_nothing_private(monkeypatch: pytest.MonkeyPatch) -> None:
    source, load = Drawn(50), Drawn.load

    def public_only(data: Drawn, role: Role) -> object:
        assert role is not Role.PRIVATE
        return load(data, role)

    monkeypatch.setattr(Drawn, "load", public_only)
    made_up = MadeUp(source)
    made_up.require_distinct()
    private, public = made_up.records(Role.PRIVATE), made_up.records(Role.PUBLIC)
    assert np.array_equal(private.features[:], public.features[:]) and private.groups is None
    assert 0.4 < private.labels.mean() < 0.6


def test_one_record_is_altered_or_removed_before_the_map() -> None:
    before = Altered(Drawn(50)).records(Role.PRIVATE)
    altered = Altered(Drawn(50), change="altered", row=7).records(Role.PRIVATE)
    assert np.array_equal(altered.ids, before.ids)
    differ = (altered.features[:] != before.features[:]).any(axis=1)
    assert np.flatnonzero(differ).tolist() == [7]
    assert np.flatnonzero((altered.labels != before.labels).any(axis=1)).tolist() == [7]
    removed = Altered(Drawn(50), change="removed", row=7).records(Role.PRIVATE)
    assert np.array_equal(removed.features[:], np.delete(before.features[:], 7, axis=0))
    assert removed.ids.tolist() == np.delete(before.ids, 7).tolist()


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command of a run of a small table."""
    generator = np.random.default_rng(0)
    features = generator.standard_normal((300, 5)).astype(np.float32)
    labels = (features[:, :3] + generator.standard_normal((300, 3)) > 0.5).astype(np.uint8)
    split, ids = np.repeat([0, 1, 2], [200, 60, 40]), np.char.mod("r%d", np.arange(300))
    np.savez(tmp_path / "table.npz", X=features, Y=labels, ids=ids, split=split)
    monkeypatch.chdir(tmp_path)
    table = "--data.init_args.path=table.npz"
    return ["run", "configs/table", "--run", "mine", table, "--prove"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    ["", "--teachers.start_from first --label.aggregator NoisyVotes"],
    ids=["table", "first"],
)
def test_a_run_proves_itself_and_leaves_the_tables(
    words: str, recipe: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*recipe, *words.split()]) == 0
    printed = capsys.readouterr().out
    assert "law and isolation passed; a test of this program" in printed
    proof = Path("mine/proof.txt").read_text()
    assert "Law: passed" in proof and "Isolation: passed" in proof
    assert ("first release" in proof) == bool(words)
    assert not list(Path().glob(".mine-*"))


@pytest.mark.slow
def test_public_samples_that_are_yet_to_be_drawn_are_made_up(
    recipe: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(Path(pate.__file__).parents[1] / "configs" / "table", "drawn")
    arrays = {"class_path": "Arrays", "init_args": {"path": "table.npz"}}
    drawn = {"class_path": "DrawnPublic", "init_args": {"source": arrays, "samples": "drawn.npz"}}
    Path("drawn/data.yaml").write_text(yaml.safe_dump({"data": drawn}))
    assert cli.main(["run", "drawn", "--run", "mine", "--prove"]) == 0
    assert "law and isolation passed" in capsys.readouterr().out
    proof = Path("mine/proof.txt").read_text()
    assert "moments of public samples" in proof and "price of public samples" in proof


@pytest.mark.slow
def test_a_refuted_run_spends_nothing(
    recipe: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "draw_key", lambda: 7)
    with pytest.raises(SystemExit) as ended:
        cli.main(recipe)
    assert ended.value.code == 1
    assert "REFUTED" in capsys.readouterr().out
    assert not list(Path().glob("*.sqlite")) and not Path("mine/private").exists()
