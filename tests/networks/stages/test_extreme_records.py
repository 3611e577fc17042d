"""Whole runs of networks on numbers of all sizes, and on labels that are unknown."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.conftest import fix_key, make_arrays
from tests.labeling.stages.test_extreme_records import LARGEST, MAPS, WIDE
from tests.networks.conftest import recipe
from tests.processes import run_here


@pytest.mark.parametrize(
    "features",
    [name if name == "PublicPCA" else pytest.param(name, marks=pytest.mark.slow) for name in MAPS],
)
def test_runs_on_numbers_of_all_sizes(features: str, tmp_path: Path) -> None:
    """Four records of large numbers of both signs; warnings are errors."""
    arrays = make_arrays(300)
    arrays["X"] = arrays["X"].astype(np.float64)
    arrays["X"][:40:10] = np.resize([*WIDE, -LARGEST], (4, 6))
    np.savez(tmp_path / "data.npz", **arrays)  # type: ignore[arg-type]
    folder = recipe(tmp_path / "recipe", tmp_path / "data.npz", steps=3)
    data = yaml.safe_load((folder / "data.yaml").read_text())
    data["data"]["init_args"]["features"] = MAPS[features]
    (folder / "data.yaml").write_text(yaml.safe_dump(data))
    (folder / "label.yaml").write_text("aggregator: NoisyVotes\ntarget_epsilon: 50\ndelta: 0.001\n")
    fix_key(tmp_path / "run")
    words = ["--label.noise_seed=1", "--label.num_queries=20"]
    ended = run_here("run", "recipe", "--run", "run", *words, folder=tmp_path)
    assert ended.code == 0, ended.err
    assert "arning" not in ended.err + ended.out
    statement = json.loads((tmp_path / "run" / "public" / "privacy.json").read_text())
    assert statement["guarantees"]["replace_record"]["epsilon"] > 0
