"""Results that commands print are at most 100 columns wide, but for paths and words as long.

A refusal is one line, however long, and a statement has the lines of its file.
"""

from pathlib import Path

import pytest

from pate import cli


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
            *("account", "--target_epsilon=8", "--aggregator=NoisyVotes", "--num_queries=100"),
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
