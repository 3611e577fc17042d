"""A mechanism from another package in the commands of the lab: `account`, `frontier` and `audit`."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate import cli
from pate.accounting import NeighboringRelation
from pate.aggregators import MechanismAggregator, Outlook
from pate.lab.plan.frontier import candidates
from tests.conftest import make_arrays
from tests.labeling.aggregators.test_labelling import outsider as outsider
from tests.labeling.aggregators.test_outside_mechanism import (
    SHAPE,
    PickLabel,
    SilentLabel,
    installed as installed,
)
from tests.networks.conftest import recipe


@pytest.mark.parametrize("relation", list(NeighboringRelation))
def test_it_is_a_candidate(relation: NeighboringRelation, installed: Path) -> None:
    outlook = Outlook(
        shape=SHAPE, num_queries=50, delta=1e-5, relation=relation, labels_per_sample=1
    )
    assert [each.name for each in candidates(outlook)].count("PickLabel") == 1


def test_an_aggregator_of_an_entry_point_is_a_candidate(outsider: None) -> None:
    outlook = Outlook(
        shape=SHAPE,
        num_queries=9,
        delta=1e-6,
        relation=NeighboringRelation.REPLACE_RECORD,
        labels_per_sample=2,
    )
    found = [each.aggregator.display_name for each in candidates(outlook)]
    assert found.count("NoisyMean") == 1


def test_pate_account_prints_its_settings_and_guarantee(
    installed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--num_teachers=200", "--num_labels=5", "--num_queries=50", "--delta=1e-5"]
    words = ["account", "--aggregator=PickLabel", *asked]
    assert cli.main([*words, "--aggregator.scale_pick=20"]) == 0
    printed = capsys.readouterr().out
    assert "scale_pick=20.0" in printed and "replace_record" in printed
    assert cli.main(words) == 2
    assert capsys.readouterr().err.endswith("Expected --aggregator.scale_pick of PickLabel\n")


def test_pate_frontier_compares_it(installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {"num_labels": 3, "num_teachers": 60, "num_public": 60}
    words = ["frontier", *(f"--simulate.{name}={size}" for name, size in sizes.items())]
    words += [
        "--aggregators+=PickLabel",
        "--aggregators.scale_pick=1",
        "--num_queries=20",
        "--epsilons=[8]",
    ]
    assert cli.main([*words, "--seeds=1"]) == 0
    assert "PickLabel" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("kind", [PickLabel, SilentLabel])
def test_pate_audit_uses_its_law_or_says_that_there_is_none(
    kind: type[MechanismAggregator[Any]], installed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(installed / "data.npz", **make_arrays())  # type: ignore[arg-type]
    folder = recipe(installed / "mine", installed / "data.npz")
    (noise,) = kind.noise_parameters
    (folder / "label.yaml").write_text(
        f"aggregator:\n  class_path: {kind.__name__}\n  init_args:\n    {noise}: 2.0\n"
        "num_queries: 80\ndelta: 0.001\n"
    )
    words = ["audit", "mine", "--output=audited", "--canaries=8"]
    # status 3 says that a part has no test
    with nullcontext() if kind is PickLabel else pytest.raises(SystemExit, match="3"):
        assert cli.main(words) == 0
    printed = capsys.readouterr().out
    content = json.loads(Path("audited/audit.json").read_text())
    if kind is PickLabel:
        assert content["exact"]["epsilon"] > 0
    else:
        assert content["exact"] == "the law of Silent is not known" and content["exact"] in printed
