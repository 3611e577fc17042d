"""Results of the commands that plan are at most 100 columns wide, but for paths."""

from pathlib import Path

import pytest

from pate import cli
from tests.labeling.commands.test_width import widest

SIMULATED = ["--simulate.num_labels=3", "--simulate.num_teachers=50", "--simulate.num_public=60"]


def test_an_account_fits_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["account", "--aggregator=StableTopK", "--aggregator.scale_gap=40"]
    words += ["--aggregator.sigma_test=10", "--aggregator.delta_test=1e-9", "--num_queries=100"]
    assert cli.main([*words, "--delta=1e-5", "--num_teachers=800", "--num_labels=40"]) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) > 1 and len(widest(out)) <= 100


@pytest.mark.slow
def test_the_table_of_a_frontier_fits_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ["--epsilons=[8]", "--num_queries=40", f"--output={tmp_path}"]
    assert cli.main(["frontier", *SIMULATED, "--student=true", "--variants=true", *few]) == 0
    out = capsys.readouterr().out
    assert "Rounds (" in out and len(widest(out, tmp_path)) <= 100
