"""A run with networks is stopped, or told its forecast, before it is paid for."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pate import LabelSettings, RunPlan, TeacherPlan
from pate._core.settings import Partial
from pate._labeling.release.forecast import SIZES
from pate.aggregators import NoisyVotes, StableTopK
from pate.data import Arrays
from pate.models import Linear

ASKED = LabelSettings(Partial(StableTopK), delta=1e-6, target_epsilon=8.0, num_queries=40)


@pytest.mark.parametrize(
    ("changes", "refused", "words"),
    [
        ({}, False, "where each has 256 records, of 40 queries"),
        ({"nominal_records": 1920}, False, "where each has 16 records, of 40 queries"),
        ({"nominal_records": 480, "target_epsilon": 4.0}, True, "about 4 records"),
        ({"nominal_records": 480, "target_epsilon": 4.0, "allow_few": True}, False, "at least"),
        ({"aggregator": NoisyVotes(sigma_votes=30.0), "target_epsilon": None}, False, None),
    ],
)
def test_a_run_stops_below_one_expected_answer(
    changes: dict[str, object],
    refused: bool,
    words: str | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    random = np.random.default_rng(0)
    Z = random.normal(size=(400, 6))
    X, Y = Z @ random.normal(size=(6, 50)), Z @ random.normal(size=(6, 20)) > 1
    file = tmp_path / "data.npz"
    np.savez(file, X=X.astype(np.float32), Y=Y, ids=[f"r{i}" for i in range(400)])
    plan = RunPlan(
        tmp_path / "run",
        Arrays(file, public_fraction=0.3),
        teachers=TeacherPlan(network=Linear, num_teachers=120, num_steps=1, batch_size=4),
        labels=replace(ASKED, **changes),  # type: ignore[arg-type]
    )
    if refused:
        with pytest.raises(ValueError, match=f"^Expected one of 40 queries answered .*{words}"):
            plan.execute()
        assert not plan.root.exists() and not plan.run.ledger_path.exists()
        return
    plan.check()
    plan.rehearse()
    plan.describe()
    printed = capsys.readouterr().out
    assert ("Forecast" in printed) == (words is not None) and (words or "") in printed
    if words is not None:
        table = printed[printed.index("teachers  queries  epsilon") :].splitlines()
        assert len(table) == 10
        assert len(table[0].split("  if ")) == (1 if changes else 1 + len(SIZES))
