"""A run with networks is stopped, or told its forecast, before it is paid for."""

from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate import LabelSettings, RunPlan, TeacherPlan
from pate._core.settings import Partial
from pate._core.validation import owner_reads
from pate._labeling.teachers import FIRST
from pate.aggregators import NoisyVotes, StableTopK
from pate.data import Arrays
from pate.models import Linear

ASKED = LabelSettings(Partial(StableTopK), delta=1e-6, target_epsilon=8.0, num_queries=40)


@pytest.mark.parametrize(
    ("changes", "refused", "words"),
    [
        ({}, True, "a public nominal_records that promises one answer, or allow_few.* 256 records"),
        (
            {"nominal_records": 1920},
            True,
            "a forecast of one answer, or allow_few.*: 120 teachers answer 0 to 8 where each has"
            " 16 records, of 40 .*Half need 500 teachers of 16, or a first release",
        ),
        ({"nominal_records": 1920, "allow_few": True}, False, "0 to 8 where each has 16 records"),
        ({"nominal_records": 19200}, False, "8 to 32 where each has 160 records, of 40 queries"),
        (
            {"start_from": FIRST, "target_epsilon": 4.0},
            True,
            ".* an upper end.* Half need at least",
        ),
        pytest.param(
            {"start_from": FIRST, "nominal_records": 480},
            False,
            "0 to 18 where each has 4",
            marks=pytest.mark.slow,
        ),
        ({"aggregator": NoisyVotes(sigma_votes=30.0), "target_epsilon": None}, False, None),
    ],
)
def test_a_run_stops_below_one_expected_answer(
    changes: dict[str, Any],
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
    asked = {name: value for name, value in changes.items() if name != "start_from"}
    plan = RunPlan(
        tmp_path / "run",
        Arrays(file, public_fraction=0.3),
        teachers=TeacherPlan(
            network=Linear,
            num_teachers=120,
            num_steps=1,
            batch_size=4,
            start_from=changes.get("start_from"),
        ),
        labels=replace(ASKED, **asked),
    )
    if refused:
        for refuses in (plan.execute, plan.describe)[: 1 + (changes == {})]:
            with pytest.raises(ValueError, match=f"^Expected {words}"):
                refuses()
        assert not plan.root.exists() and not plan.run.ledger_path.exists()
        return
    plan.check()
    plan.rehearse()
    as_owner = copy_context()
    as_owner.run(owner_reads.set, True)
    as_owner.run(plan.describe)
    printed = capsys.readouterr()
    assert ("Forecast" in printed.out) == (words is not None) and (words or "") in printed.out
    if words is not None:
        assert "where each has 1.96 records" in printed.err
        table = printed.out[printed.out.index("teachers  queries  epsilon") :].splitlines()
        assert len(table) == 11
