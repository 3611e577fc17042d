"""`pate label` with every kind of aggregator: what it needs, what it releases, what it settles."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from pate import ReleasedLabels, cli
from pate.accounting import NeighboringRelation, Statement, read_ledger
from tests.conftest import make_arrays


@pytest.fixture
def run(copied: Path) -> Path:
    """A copy of the finished run, to be labelled again."""
    return copied


SCREEN: dict[str, Any] = {
    "class_path": "ConfidentScreen",
    "init_args": {
        "answers": {"class_path": "NoisyVotes", "init_args": {"sigma_votes": 2.0}},
        "sigma_confident": 1.0,
        "threshold_confident": 4.0,
    },
}


def relabel(run: Path, aggregator: dict[str, Any], *more: str) -> int:
    config = run.parent / "label.yaml"
    config.write_text(yaml.safe_dump({"aggregator": aggregator, "num_queries": 60, "delta": 1e-3}))
    return cli.main(
        [
            "label",
            "--config",
            str(config),
            "--run",
            str(run),
            "--overwrite",
            "--noise_seed=1",
            *more,
        ]
    )


@pytest.mark.slow
def test_soft_values_are_kept_with_their_noise(run: Path) -> None:
    assert relabel(run, {"class_path": "NoisyVotes", "init_args": {"sigma_votes": 3.0}}) == 0
    released = ReleasedLabels.load(run)
    assert (
        released.noisy_counts is not None
        and released.noisy_counts.shape == released.labels.shape == (60, 4)
    )
    assert released.noise_std == 3.0 and released.num_teachers == 10
    np.testing.assert_array_equal(released.labels, released.noisy_counts > 5)


@pytest.mark.slow
def test_a_query_with_one_label_of_several_counts_as_answered(run: Path) -> None:
    threshold = {
        "class_path": "NoisyVotes",
        "init_args": {"sigma_votes": 0.5, "soft": False, "min_lead": 4.5},
    }
    assert relabel(run, threshold) == 0
    mask = ReleasedLabels.load(run).mask
    statement = json.loads((run / "public" / "privacy.json").read_text())
    assert mask.all(axis=1).sum() < statement["num_answered"] == mask.any(axis=1).sum() < 60


@pytest.mark.slow
def test_ballots_are_loaded_where_they_are_needed(run: Path) -> None:
    assert relabel(run, {"class_path": "Powerset", "init_args": {"scale_powerset": 1.0}}) == 0
    assert ReleasedLabels.load(run).mask.all()


def test_a_screen_settles_what_was_asked(run: Path) -> None:
    assert relabel(run, SCREEN) == 0
    released = ReleasedLabels.load(run)
    assert released.tiers is not None
    asked = int((released.tiers > 0).sum())
    assert 0 < asked < 60
    np.testing.assert_array_equal(released.mask.any(axis=1), released.tiers > 0)
    entry = read_ledger(run / "ledger.sqlite").entries[-1]
    assert entry.settled and entry.realised is not None
    assert sorted(count for _, count in entry.realised) == sorted((60 - asked, asked))
    for relation in NeighboringRelation:
        assert all(
            events[relation].neighboring_relation is relation for events, _ in entry.realised
        )
    statement = json.loads((run / "public" / "privacy.json").read_text())
    Statement.from_json(statement).verify(released=run / "public" / "labels.npz")
    assert statement["aggregator"]["init_args"]["answers"]["class_path"].endswith("NoisyVotes")
    assert statement["num_answered"] == asked


def test_a_crash_before_settling_settles_the_same(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def crash(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("pate._labeling.plan.rehearse", lambda *_, **__: None)  # it would settle, too
        patch.setattr("pate._core.accounting.ledger.Ledger.settle", crash)
        assert relabel(run, SCREEN) == 130
    before = ReleasedLabels.load(run)
    assert not read_ledger(run / "ledger.sqlite").entries[-1].settled
    assert relabel(run, SCREEN) == 0
    np.testing.assert_array_equal(ReleasedLabels.load(run).tiers, before.tiers)
    entry = read_ledger(run / "ledger.sqlite").entries[-1]
    assert entry.realised is not None and sum(count for _, count in entry.realised) == 60


@pytest.mark.slow
def test_a_student_is_asked_before_the_teachers(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    interactive: dict[str, Any] = {
        "class_path": "InteractiveScreen",
        "init_args": {
            "answers": {"class_path": "NoisyVotes", "init_args": {"sigma_votes": 2.0}},
            "sigma_interactive": 0.5,
            "threshold_interactive": 2.0,
            "min_confidence": 0.6,
        },
    }
    assert relabel(run, interactive) == 2
    assert "Expected --predictions, which InteractiveScreen needs" in capsys.readouterr().err
    arrays, predictions = make_arrays(), run.parent / "predictions.npz"
    public = arrays["split"] == 1
    np.savez(run.parent / "public.npz", X=arrays["X"][public], ids=arrays["ids"][public])
    words = [str(run / "public/student/model"), str(run.parent / "public.npz")]
    assert cli.main(["predict", *words, f"--output={predictions}"]) == 0
    with np.load(predictions) as archive:
        says = {name: archive[name] for name in archive.files}
    # what no teacher says
    says["probabilities"][::2] = np.where(says["probabilities"][::2] > 0.5, 0.01, 0.99)
    np.savez(predictions, **says)
    assert relabel(run, interactive, f"--predictions={predictions}") == 0
    released = ReleasedLabels.load(run)
    assert released.tiers is not None and {0, 1} == set(released.tiers.tolist())
    with np.load(predictions) as archive:
        known = dict(zip(archive["ids"].tolist(), archive["probabilities"], strict=True))
    for name, labels, mask, tier in zip(
        released.ids.tolist(), released.labels, released.mask, released.tiers, strict=True
    ):
        if tier == 0:
            np.testing.assert_array_equal(labels[mask], (known[name] > 0.5)[mask])
            np.testing.assert_array_equal(mask, np.maximum(known[name], 1 - known[name]) >= 0.6)
