"""Settings that would pay for nothing are refused by public facts, or told to the owner of records."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate import ClosedFormPlan, LabelSettings, NamedVotes, RunPlan, label
from pate._core.settings import Partial
from pate._labeling.release.forecast import (
    describe_hopeless,
    describe_unlike,
    effective_columns,
    refuse_hopeless,
)
from pate._labeling.runs.vote_store import VoteFacts
from pate._labeling.votes.kinds import MaskedTotal
from pate.aggregators import NoisyVotes, SiloVotes, StableTopK
from pate.data import Arrays

RANDOM = np.random.default_rng(0)


def run(*, columns: int = 20, labels: int = 5, public: int = 60, **settings: Any) -> None:
    """Check a run of records that vote."""
    total = 100 + public
    X, Y = RANDOM.normal(size=(total, columns)), RANDOM.integers(0, 2, (total, labels))
    split, ids = np.repeat([0, 1], [100, public]), [f"r{i}" for i in range(total)]
    np.savez("data.npz", X=X.astype(np.float32), Y=Y.astype(np.uint8), ids=ids, split=split)
    labels_of = LabelSettings(delta=1e-6, **{"target_epsilon": 2.0} | settings)
    plan = RunPlan(
        Path("run"), Arrays(Path("data.npz")), teachers=ClosedFormPlan(), labels=labels_of
    )
    plan.check()


def from_votes(aggregator: Any, epsilon: float) -> None:
    """Check a release of the votes of 60 teachers who all agree."""
    ids, names = [f"r{i}" for i in range(40)], tuple("abcde")
    ballots = np.ones((40, 60, 5), dtype=np.uint8)
    votes = NamedVotes(ids=np.array(ids), label_names=names, ballots=ballots, features=np.eye(40))
    label(votes, LabelSettings(aggregator, delta=1e-6, target_epsilon=epsilon), run="run")


def silos(sigma: float) -> None:
    votes = VoteFacts(
        ids=np.arange(40).astype(str), label_names="abc", num_teachers=60, kind=MaskedTotal
    )
    refuse_hopeless(LabelSettings(SiloVotes(sigma_silos=sigma, silos=3), delta=1e-6), votes)


FEW = {"nominal_records": 420}
NOISY = {"aggregator": Partial(NoisyVotes)}
STABLE = {"aggregator": Partial(StableTopK)}
TEN = "at least 10% of the queries answered"


@pytest.mark.parametrize(
    ("use", "same", "hopeless", "honest", "message"),
    [
        (run, FEW, {"columns": 5000}, {"columns": 500}, "at most 10 columns for each of 420"),
        (run, FEW, {"labels": 500}, {"labels": 5}, "nominal_records >= 773"),
        (
            run,
            {},
            {"target_epsilon": 1e-4},
            {"target_epsilon": 0.1},
            "must state more than 100,000, got target",
        ),
        (run, {}, {"public": 1}, {"public": 2}, "two public samples or more"),
        (from_votes, NOISY, {"epsilon": 0.05}, {"epsilon": 1.0}, "num_teachers >= 310"),
        (from_votes, {"aggregator": None}, {"epsilon": 0.05}, {"epsilon": 1.0}, "num_teachers >= "),
        (from_votes, STABLE, {"epsilon": 0.5}, {"epsilon": 16.0}, TEN),
        (silos, {}, {"sigma": 200.0}, {"sigma": 180.0}, "num_teachers >= 63"),
    ],
)
def test_settings_that_pay_for_nothing_are_refused_unpaid(
    use: Any,
    same: dict[str, Any],
    hopeless: dict[str, Any],
    honest: dict[str, Any],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=f"^Expected .*{message}") as it:
        use(**same, **hopeless)
    assert "\n" not in str(it.value)
    assert not Path("run").exists() and not [*Path().glob("*.sqlite")]
    use(**same, **honest)


def test_what_private_records_tell_is_told_to_their_owner() -> None:
    settings, plan = LabelSettings(NoisyVotes(sigma_votes=3.0), delta=1e-5), ClosedFormPlan()
    assert not [*describe_hopeless(plan, settings, 420, num_labels=5, columns=4200.0)]
    (line,) = describe_hopeless(plan, settings, 420, num_labels=5, columns=4201.0)
    assert "420 private records (or groups) for 4,201 columns" in line
    (line,) = describe_hopeless(plan, settings, 59, num_labels=100)
    assert "for noise of 3 votes and 100 labels" in line
    assert not [*describe_hopeless(plan, settings, 60, num_labels=100)]
    X = RANDOM.normal(size=(400, 7))
    assert not [*describe_unlike(X[:200], X[200:])] and not [*describe_unlike(X[:20], 3 * X[200:])]
    for other in (3**0.5 * X[200:], X[200:] + 4):
        (line,) = describe_unlike(X[:200], other)
        assert line.startswith("100% of the columns") and "`shifted: true`" in line


def test_columns_that_follow_from_others_are_not_counted() -> None:
    X = RANDOM.normal(size=(300, 2000))
    assert abs(effective_columns(X) / 2000 - 1) < 0.1
    assert effective_columns(X[:, :8] @ RANDOM.normal(size=(8, 2000))) < 9
    assert effective_columns(np.ones((9, 3))) == 0
