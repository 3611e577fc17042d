"""`pate label` with every kind of aggregator: what it needs, what it releases, what it settles."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from pate import ReleasedLabels, cli
from pate.accounting import NeighboringRelation, Statement, read_ledger


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
