"""A mechanism from another package: one class, and its aggregator of two lines, go through everything.

`pate label` and `account` know it by its name, and no table of this package does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import ArrayLike

from pate import Votes, VoteShape, cli
from pate._core.validation import FloatArray, IntArray
from pate.accounting import BoundedRangeEvent, Event, NeighboringRelation, Target
from pate.aggregators import MechanismAggregator, Release, registered
from pate.mechanisms import Law, NotStatedError, ScoreMechanism, seeded_generator
from pate.testing import MechanismContract
from tests.core.accounting.oracles import exact_epsilon
from tests.core.mechanisms import oracles


@dataclass(frozen=True, kw_only=True)
class PickOne(ScoreMechanism[IntArray]):
    """Pick one item with probability proportional to ``exp(score / scale)``.

    Privacy: one bounded-range choice of ``w / scale`` (McSherry & Talwar (2007)).

    Args:
        scale: scale of the noise, in votes.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("scale",)

    scale: float

    def __call__(self, scores: ArrayLike, *, generator: np.random.Generator) -> IntArray:
        rows = np.atleast_2d(np.asarray(scores, dtype=np.float64))
        gumbel = -np.log(-np.log1p(-generator.random(rows.shape)))
        picked = np.argmax(rows - rows.max(axis=1, keepdims=True) + self.scale * gumbel, axis=1)
        return np.asarray(picked[:, None])

    def event(self, relation: NeighboringRelation) -> Event:
        return BoundedRangeEvent(
            neighboring_relation=relation, eta=self.window(relation) / self.scale
        )

    def answer(self, counts: ArrayLike, *, generator: np.random.Generator) -> Release:
        return Release.of_sets(self(counts, generator=generator), np.shape(counts)[1])

    def law(self, scores: Any) -> Law:
        weights = np.exp((scores - scores.max(axis=1, keepdims=True)) / self.scale)
        chances = weights / weights.sum(axis=1, keepdims=True)
        return Law(chances, np.eye(scores.shape[1], dtype=np.bool_))


@dataclass(frozen=True, kw_only=True)
class PickLabel(MechanismAggregator[PickOne], tag="pick"):
    """Give the label that `PickOne` picks. ``scale_pick`` is the scale of its noise, in votes."""

    scale_pick: float


class Silent(PickOne):
    """The same with an item that is never picked, of which it states nothing."""

    def __call__(self, scores: ArrayLike, *, generator: np.random.Generator) -> IntArray:
        return super().__call__(np.asarray(scores)[..., 1:], generator=generator) + 1


@dataclass(frozen=True, kw_only=True)
class SilentLabel(MechanismAggregator[Silent], tag="silent"):
    """Give the label that `Silent` picks."""

    scale_silent: float


class TestPickOne(MechanismContract):
    outlier = shift = 0

    def make(self, relation: NeighboringRelation) -> PickOne:
        return PickOne(scale=1.0)

    def outcomes(self) -> list[tuple[int, ...]]:
        return [(0,), (1,), (2,)]

    def law(self, mechanism: PickOne, scores: IntArray) -> FloatArray:
        return oracles.softmax(np.asarray(scores) / mechanism.scale)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    record = tmp_path / "site" / "picks-1.0.dist-info"
    record.mkdir(parents=True)
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: picks\nVersion: 1.0\n")
    (record / "entry_points.txt").write_text(
        f"[pate.aggregators]\nPickLabel = {__name__}:PickLabel\n"
        f"SilentLabel = {__name__}:SilentLabel\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


SHAPE = VoteShape(200, 5)


def test_it_labels_votes_and_is_calibrated_and_compared(installed: Path) -> None:
    assert registered()["PickLabel"] is PickLabel
    counts = np.tile([180, 20, 0, 0, 0], (500, 1))
    release = PickLabel(scale_pick=20.0).aggregate(
        Votes.from_counts(counts, 200), generator=seeded_generator(0)
    )
    assert release.labels.sum(axis=1).tolist() == [1] * 500 and release.labels[:, 0].mean() > 0.99
    relation = NeighboringRelation.REPLACE_RECORD
    target = Target(epsilon=2.0, delta=1e-5, num_queries=50, neighboring_relation=relation)
    found = PickLabel(scale_pick=1.0).calibrated(target, SHAPE)
    assert found is not None and found.noise["scale_pick"] > 1
    with pytest.raises(ValueError, match=r"^Expected scale_pick > 0, got scale_pick=-1\.0$"):
        PickLabel(scale_pick=-1.0)


def test_its_law_is_audited_and_one_without_a_law_is_told_so() -> None:
    sides = [Votes.from_ballots(np.array([rows])) for rows in (((1, 0), (1, 0)), ((0, 1), (1, 0)))]
    p, q = PickLabel(scale_pick=1.0).laws(*sides)
    epsilon = exact_epsilon(p[0].tolist(), q[0].tolist(), delta=0.0)
    assert 0.5 < epsilon <= 2
    with pytest.raises(NotStatedError, match=r"^the law of Silent is not known$"):
        SilentLabel(scale_silent=1.0).laws(*sides)


def test_the_commands_know_and_explain_it(
    installed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--num_teachers=200", "--num_labels=5", "--num_queries=50", "--delta=1e-5"]
    command = ["account", "--aggregator=PickLabel", "--target_epsilon=2"]
    assert cli.main([*command, *asked]) == 0
    assert "scale_pick: " in capsys.readouterr().out
    assert isinstance(PickLabel.names, Mapping) and "scale_pick" in (PickLabel.__doc__ or "")
