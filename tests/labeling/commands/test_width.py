"""Results that commands print are at most 100 columns wide, but for paths and words as long.

A refusal is one line, however long, and a statement has the lines of its file.
"""

from pathlib import Path

import pytest

from pate import cli

SIMULATED = ["--simulate.num_labels=3", "--simulate.num_teachers=50", "--simulate.num_public=60"]


def widest(text: str, *parts: Path) -> str:
    for part in parts:
        text = text.replace(str(part), "")
    return max(text.splitlines(), key=len)


@pytest.mark.parametrize(
    "words",
    [
        ["ledger", "show", "--ledger={run}/ledger.sqlite"],
        ["status", "{run}"],
        [
            *("account", "--aggregator=StableTopK", "--aggregator.scale_gap=40"),
            *("--aggregator.sigma_test=10", "--aggregator.delta_test=1e-9", "--num_queries=100"),
            *("--delta=1e-5", "--num_teachers=800", "--num_labels=40"),
        ],
    ],
    ids=" ".join,
)
def test_results_fit_a_terminal(
    copied: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([word.format(run=copied) for word in words]) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) > 1
    assert len(widest(out, copied)) <= 100


@pytest.mark.slow
def test_the_table_of_a_frontier_fits_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ["--epsilons=[8]", "--num_queries=40", f"--output={tmp_path}"]
    assert cli.main(["frontier", *SIMULATED, "--student=true", "--variants=true", *few]) == 0
    out = capsys.readouterr().out
    assert "Rounds (" in out and len(widest(out, tmp_path)) <= 100
