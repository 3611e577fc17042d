"""Recall of sets of k items, and the figures of Zhu & Wang (2022)."""

from pathlib import Path

import numpy as np
import pytest

from pate.mechanisms import Listed
from pate.mechanisms.ranking import Rows
from scripts.reproduction import Effort, Verdict, zhu_wang_figures
from scripts.reproduction.__main__ import main
from scripts.reproduction.findings import Row
from scripts.reproduction.zhu_wang import COLOURS, contenders, members_of, quantiles, recall_of, share_of

COUNTS = np.array([[9, 7, 7, 1], [0, 1, 2, 3]])


def test_recall_and_share_by_hand() -> None:
    members = np.array([[True, False, True, False], [False, False, True, False]])
    # the tie at 7 counts as found, and of the second row one of two is missing
    assert recall_of(COUNTS, members, 2).tolist() == [1.0, 0.5]
    assert share_of(COUNTS, members, 2).tolist() == [1.0, 2 / 5]


def test_lists_become_members() -> None:
    found = Listed(np.array([[2, 0, -1]]), np.array([[True, True, False]]))
    assert members_of(found, 4).tolist() == [[True, False, True, False]]


def test_bands_hold_four_fifths() -> None:
    assert quantiles(np.arange(11.0)) == {"mean": 5.0, "low": 1.0, "high": 9.0}


def test_with_a_large_budget_all_find_the_best_and_with_a_small_one_some_nothing() -> None:
    counts = np.tile(np.array([0, 900, 800, 10, 5, 1000, 3]), (20, 1))
    generator = np.random.default_rng(0)
    for contender in contenders(k=3, num_items=7, upper=1000, epsilon=20.0):
        assert recall_of(counts, contender.choose(counts, generator), 3).mean() > 0.95, contender.name
    sizes = {
        each.name: each.choose(counts, generator).sum(axis=1)
        for each in contenders(k=3, num_items=7, upper=1000, epsilon=1e-3)
    }
    assert sizes["StableTopK"].max() == sizes["Top Stable"].max() == 0
    always = ("exponential mechanism", "Top Stable, fallback", "StableTopK, fallback")
    assert all((sizes[name] == 3).all() for name in always)


def rows_of(found: dict[str, list[float]]) -> list[Row]:
    return [{"mechanism": name, "mean": value} for name, values in found.items() for value in values]


def test_claims_follow_from_recall() -> None:
    values = {name: [0.4, 0.5] for name in COLOURS} | {"StableTopK": [0.1, 0.5], "StableTopK, fallback": [0.4, 0.5]}
    assert zhu_wang_figures._worse_claim(rows_of(values)).verdict is Verdict.REPRODUCED
    assert "without it 0.25, 1.00" in zhu_wang_figures._worse_claim(rows_of(values)).why


@pytest.mark.parametrize(
    ("mine", "verdict"),
    [
        ([0.5, 0.5], Verdict.REPRODUCED),
        ([0.5, 0.3], Verdict.DIFFERENT),
        ([0.4, 0.3], Verdict.REFUTED),
        ([0.4, 0.4], Verdict.UNTESTABLE),
        ([0.4004, 0.4], Verdict.UNTESTABLE),  # no more than the page shows
    ],
)
def test_what_is_level_is_not_ahead(mine: list[float], verdict: Verdict) -> None:
    values = {name: [0.4, 0.4] for name in COLOURS} | {"StableTopK": mine, "StableTopK, fallback": mine}
    assert zhu_wang_figures._best_claim(rows_of(values), "x").verdict is verdict
    rows: list[Row] = [{"vector": "x", **row} for row in rows_of(values)]
    assert zhu_wang_figures._cell_claim(rows, "x").verdict is verdict


def test_the_table_of_recalls() -> None:
    rows: list[Row] = [
        {"vector": "x", "k": k, "epsilon": 0.1, "mechanism": name, "mean": mean}
        for k, name, mean in ((10, "a", 1.0), (10, "b", 0.5), (50, "a", 0.25), (50, "b", 0.0))
    ]
    assert zhu_wang_figures._recalls(rows).splitlines() == [
        "| counts | k | epsilon | a | b |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| x | 10 | 0.1 | 1.000 | 0.500 |",
        "| x | 50 | 0.1 | 0.250 | 0.000 |",
    ]


@pytest.mark.parametrize("values", [np.ones((2, 2), dtype=int), np.array([0.5, 1.5]), np.array([-1, 2])])
def test_counts_that_are_none_are_refused(tmp_path: Path, values: Rows) -> None:
    np.save(tmp_path / "counts.npy", values)
    with pytest.raises(ValueError, match="Expected"):
        zhu_wang_figures.read_counts(tmp_path / "counts.npy")


@pytest.mark.slow
def test_figures_of_small_counts(tmp_path: Path) -> None:
    (tmp_path / "topk").mkdir()
    generator = np.random.default_rng(2)
    np.savez(
        tmp_path / "topk" / "US_COVID19_STATES.npz",
        daily=generator.integers(-3, 3000, (40, 20)),
        dates=np.array([f"day {i}" for i in range(40)]),
    )
    found = zhu_wang_figures.covid(Effort(data=tmp_path))
    assert len(found.rows) == 4 * len(COLOURS) and len(found.claims) == 2
    bins = zhu_wang_figures.bins(Effort())
    assert {row["k"] for row in bins.rows} == {10, 50, 150, 500, 1500}


@pytest.mark.slow
def test_the_table_takes_counts_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "mine.npy", np.arange(60) ** 3)
    main(["zhu_wang_table", "--counts", str(tmp_path / "mine.npy"), "--output", str(tmp_path / "found")])
    assert "abstract, on mine" in capsys.readouterr().out
    assert "\nmine,50,0.8," in (tmp_path / "found" / "zhu_wang_table.csv").read_text()
