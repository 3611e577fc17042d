"""Public samples that are drawn: one target, one ledger, paid for once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from pate import LabelSettings, Pipeline, cli
from pate._labeling.release import between_runs
from pate.accounting import NeighboringRelation, Statement, read_ledger
from pate.data import Arrays, DrawnPublic
from pate.mechanisms import Moments, NoisyMoments
from tests.conftest import make_arrays

SETTINGS = LabelSettings(delta=1e-6, target_epsilon=4.0, noise_seed=3)
STAGES = {
    "teachers": {"fit": "closed_form", "unit": "record"},
    "label": {"target_epsilon": 4.0, "delta": 1e-6, "noise_seed": 3},
    "student": {"model": {"network": "pate.models.Linear"}},
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    arrays = make_arrays(6000) | {"group": np.repeat(np.arange(3000), 2)}
    np.savez(tmp_path / "data.npz", **arrays)  # type: ignore[arg-type]
    return tmp_path / "data.npz"


def source(data: Path) -> DrawnPublic:
    return DrawnPublic(Arrays(data), samples=data.with_name("samples.npz"), bounds=[-4, 4])


def recipe(data: Path) -> Path:
    folder = data.parent / "recipe"
    folder.mkdir()
    described = {
        "class_path": "DrawnPublic",
        "init_args": {
            "source": {"class_path": "Arrays", "init_args": {"path": str(data)}},
            "samples": str(data.with_name("samples.npz")),
            "bounds": [-4, 4],
        },
    }
    for name, content in ({"data": {"data": described}} | STAGES).items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
    return folder


def draw(data: Path, root: str = "run") -> Pipeline:
    pipeline = Pipeline(data.parent / root, source(data))
    pipeline.draw_public_samples(SETTINGS)
    return pipeline


def run(data: Path, *words: str) -> int:
    folder = data.parent / "recipe"
    made = folder if folder.exists() else recipe(data)
    return cli.main(["run", str(made), "--run", str(data.parent / "run"), *words])


def test_a_run_without_public_samples_draws_and_pays_for_them(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = data.parent / "run"
    assert run(data, "--dry_run") == 0
    assert not data.with_suffix(".ledger.sqlite").exists()
    assert "Public samples with noise multiplier" in capsys.readouterr().out
    assert run(data) == 0
    book = read_ledger(data.with_suffix(".ledger.sqlite"))
    assert [entry.description for entry in book.entries] == ["DrawnPublic", "ScoreVotes"]
    stated = Statement.read(root / "public" / "privacy.json")
    assert 3.99 < stated["guarantees"]["replace_record"]["epsilon"] <= 4
    assert stated.verify(ledger=data.with_suffix(".ledger.sqlite")) == 0
    samples = Statement.read(data.with_name("samples.privacy.json"))
    assert samples["num_samples"] == 1200 and "noisy moments of all records" in samples.text
    words = ["ledger", "verify", "--ledger", str(data.with_suffix(".ledger.sqlite"))]
    assert cli.main([*words, "--statement", str(data.with_name("samples.privacy.json"))]) == 0
    scores = yaml.safe_load((root / "public" / "student" / "metrics.json").read_text())
    assert scores["student"]["accuracy"] > scores["all_majority"]["accuracy"] + 0.2
    before = (root / "public" / "labels.npz").read_bytes()
    assert run(data) == 0
    assert (root / "public" / "labels.npz").read_bytes() == before
    assert len(read_ledger(data.with_suffix(".ledger.sqlite")).entries) == 2


def test_runs_share_samples_that_are_paid_for_once(data: Path) -> None:
    draw(data)
    content = data.with_name("samples.npz").read_bytes()
    draw(data, "another")
    assert data.with_name("samples.npz").read_bytes() == content
    assert len(read_ledger(data.with_suffix(".ledger.sqlite")).entries) == 1


@pytest.mark.parametrize("step", ["draw", "settlement", "publish"])
def test_a_kill_at_any_step_pays_once_and_draws_the_same(
    data: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    original: Callable[..., object] = getattr(between_runs.SamplesRelease, step)

    def killed(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(between_runs.SamplesRelease, step, killed)
    with pytest.raises(Killed):
        draw(data)
    assert not data.with_name("samples.npz").exists()
    monkeypatch.setattr(between_runs.SamplesRelease, step, original)
    draw(data)
    content = data.with_name("samples.npz").read_bytes()
    assert len(read_ledger(data.with_suffix(".ledger.sqlite")).entries) == 1
    for path in (data.with_suffix(".ledger.sqlite"), *data.parent.glob("samples*")):
        path.unlink()
    draw(data)
    assert data.with_name("samples.npz").read_bytes() == content


def test_samples_that_protect_records_protect_no_groups(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw(data)
    recipe(data)
    assert run(data, "--teachers.unit=group") == 2
    assert "Expected samples for unit: group, got unit='record'" in capsys.readouterr().err
    assert len(read_ledger(data.with_suffix(".ledger.sqlite")).entries) == 1


def test_noise_is_drawn_at_the_multiplier_that_the_ledger_holds(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[NoisyMoments] = []
    exact = NoisyMoments.__call__

    def recorded(mechanism: NoisyMoments, *blocks: Any, **settings: Any) -> Moments:
        drawn.append(mechanism)
        return exact(mechanism, *blocks, **settings)

    monkeypatch.setattr(NoisyMoments, "__call__", recorded)
    draw(data)
    (entry,) = read_ledger(data.with_suffix(".ledger.sqlite")).entries
    assert entry.count == len(drawn) == 1
    for relation in NeighboringRelation:
        assert entry.events[relation] == drawn[0].event(relation)


def test_samples_of_others_are_refused(data: Path) -> None:
    pipeline = draw(data)
    arrays = dict(np.load(data.with_name("samples.npz")))
    arrays["X"][0] += 1
    np.savez(data.with_name("samples.npz"), **arrays)
    with pytest.raises(ValueError, match="drawn from these records and paid for"):
        pipeline.draw_public_samples(SETTINGS)
    recipe(data)
    assert run(data) == 2


def test_a_budget_is_refused_before_anything_is_spent(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe(data)
    assert run(data, "--label.max_epsilon", "5") == 2
    assert "one target covers several releases" in capsys.readouterr().err
    assert not data.with_suffix(".ledger.sqlite").exists()


def test_pictures_are_refused(tmp_path: Path) -> None:
    arrays = make_arrays(60)
    arrays["X"] = np.zeros((60, 3, 8, 8), dtype=np.float32)
    np.savez(tmp_path / "data.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Expected records that are rows of numbers"):
        draw(tmp_path / "data.npz")
    assert not (tmp_path / "data.ledger.sqlite").exists()


def test_samples_may_lie_in_a_folder_that_is_yet_to_be_made(data: Path) -> None:
    place = data.parent / "public" / "drawn" / "samples.npz"
    source = DrawnPublic(Arrays(data), samples=place, bounds=[-4, 4])
    Pipeline(data.parent / "run", source, ledger=data.parent / "ledger").draw_public_samples(
        SETTINGS
    )
    Statement.read(place.with_suffix(".privacy.json")).verify(released=place)
