"""`pate label`: nothing is spent on what cannot be released, and the statement is always of the
labels beside it."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from pate import ReleasedLabels, cli
from pate._labeling.runs.run import LABEL
from pate.accounting import NeighboringRelation, read_ledger
from pate.aggregators import NoisyVotes, Release

Aggregators = dict[str, Any]
STABLE: Aggregators = {
    "class_path": "StableTopK",
    "init_args": {"scale_gap": 1, "sigma_test": 0.5, "delta_test": 1e-6},
}
NOISY: Aggregators = {"class_path": "NoisyVotes", "init_args": {"sigma_votes": 3.0}}


def label(run: Path, aggregator: Aggregators, *more: str) -> int:
    config = run.parent / "label.yaml"
    config.write_text(yaml.safe_dump({"aggregator": aggregator, "num_queries": 60, "delta": 1e-3}))
    return cli.main(["label", "--config", str(config), "--run", str(run), *more])


def spent(run: Path) -> int:
    return len(read_ledger(run / "ledger.sqlite").entries)


def public(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (run / "public").iterdir() if path.is_file()}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--noise_seed=-1",), "noise_seed >= 0, got noise_seed=-1"),
        (("--query_seed=-1",), "query_seed >= 0, got query_seed=-1"),
        (("--num_queries=0",), "num_queries >= 1"),
        (("--delta=2",), "0 < delta < 1"),
        (
            ("--predictions=x.npz",),
            "no --predictions, which StableTopK does not use, got predictions='x.npz'",
        ),
    ],
)
def test_bad_settings_spend_nothing(
    words: tuple[str, ...], message: str, copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = public(copied)
    assert label(copied, STABLE, "--overwrite", *words) == 2
    error = capsys.readouterr().err
    assert message in error and len(error.splitlines()) == 1
    assert spent(copied) == 1
    assert public(copied) == before


def refuse(*_: object, **__: object) -> Release:
    raise ValueError("Expected something else")


def misshapen(self: NoisyVotes, votes: Any, **_: object) -> Release:
    return Release(
        np.zeros((votes.num_queries, 1), dtype=np.uint8),
        np.ones((votes.num_queries, 1), dtype=np.bool_),
    )


def short_tiers(self: NoisyVotes, votes: Any, **_: object) -> Release:
    return Release(votes.counts > 0, votes.counts >= 0, tiers=np.zeros(3, dtype=np.int64))


@pytest.mark.parametrize("aggregate", [refuse, misshapen, short_tiers])
def test_what_an_aggregator_refuses_spends_nothing(
    aggregate: Callable[..., Release],
    copied: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(NoisyVotes, "aggregate", aggregate)
    assert label(copied, NOISY, "--overwrite") == 2
    assert "Expected" in capsys.readouterr().err
    assert spent(copied) == 1


def test_labels_that_cannot_be_replaced_spend_nothing(
    copied: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As files of another user in a folder that all may write, or files that are immutable."""
    link = os.link

    def refuse(source: Path, target: Path) -> None:
        if source.name == "labels.npz":
            raise PermissionError(errno.EPERM, "Operation not permitted")
        link(source, target)

    monkeypatch.setattr(os, "link", refuse)
    before = public(copied)
    assert label(copied, STABLE, "--overwrite") == 2
    assert "Expected a run that labels can be written to" in capsys.readouterr().err
    assert (public(copied), spent(copied)) == (before, 1)


def test_labels_are_drafted_in_the_private_folder(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that is killed leaves nothing half-written among what may be published."""
    drafts: dict[str, list[str]] = {}
    save = ReleasedLabels.save

    def looked(self: ReleasedLabels, *arguments: Any) -> None:
        for folder in ("public", "private"):
            names = sorted(path.name for path in (copied / folder).iterdir())
            drafts[folder] = [name for name in names if name.startswith(".")]
        save(self, *arguments)

    (copied / "public" / ".labels.npz.0123456789abcdef").touch()  # by an earlier version
    monkeypatch.setattr(ReleasedLabels, "save", looked)
    assert label(copied, NOISY, "--overwrite") == 0
    assert drafts["public"] == []
    (draft,) = drafts["private"]
    assert draft.startswith(".labels.npz.")
    assert not (copied / "private" / draft).exists()


def test_old_labels_put_back_are_told(
    copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Labels of this very run, sealed by its key, but of an earlier release."""
    old = (copied / "public" / "labels.npz").read_bytes()
    state = json.loads((copied / LABEL.state).read_text())
    config = ["--config", str(copied / "public" / "label.yaml"), "--run", str(copied)]
    (copied / "public" / "labels.npz").unlink()
    assert cli.main(["label", *config, "--overwrite"]) == 0
    assert json.loads((copied / LABEL.state).read_text())["release"] == state["release"] + 1
    (copied / "public" / "labels.npz").write_bytes(old)
    assert cli.main(["label", *config]) == 2
    assert "that this command left, got changed='all'" in capsys.readouterr().err
    assert spent(copied) == 2


def test_the_statement_is_made_again_where_it_is_missing(copied: Path) -> None:
    config = ["--config", str(copied / "public" / "label.yaml"), "--run", str(copied)]
    before = public(copied)
    (copied / "public" / "privacy.txt").unlink()
    assert cli.main(["label", *config]) == 0
    after = public(copied)
    assert after.keys() == before.keys()
    assert after["labels.npz"] == before["labels.npz"]
    statement = json.loads(after["privacy.json"])
    assert statement["ledger"]["counts"] == "run"  # the copy has a ledger of its own
    assert "ledger of this run alone holds" in after["privacy.txt"].decode()
    assert set(statement["guarantees"]) == {relation.value for relation in NeighboringRelation}
    assert spent(copied) == 1


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(None, marks=pytest.mark.slow),
        pytest.param('{"key": "zz"}', marks=pytest.mark.slow),
        '{"key": "' + "ab" * 32 + '"}',
    ],
)
def test_labels_that_could_not_be_sealed_spend_nothing(
    content: str | None, copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = copied / "private" / "partition.json"
    if content is None:
        key.unlink()
    else:
        key.write_text(content)
    before, paid = public(copied), spent(copied)
    for words in ((), ("--overwrite",)):
        assert label(copied, STABLE, *words) == 2
        error = capsys.readouterr().err
        assert "key" in error and "partition.json" in error and "ut it back" in error
        assert len(error.splitlines()) == 1
    assert (public(copied), spent(copied)) == (before, paid)
