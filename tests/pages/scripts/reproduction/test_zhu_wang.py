"""Recall of sets of k items, and the figures of Zhu & Wang (2022)."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtr

from pate._core.mechanisms.ranking import Rows
from pate.mechanisms import GumbelPeeling, TopItems
from scripts.reproduction import Effort, Verdict, zhu_wang_figures
from scripts.reproduction.__main__ import main
from scripts.reproduction.findings import Row
from scripts.reproduction.zhu_wang import (
    ADAPTIVE,
    COLORS,
    DOMAIN,
    FIXED,
    PEELING,
    TOP_STABLE,
    Contest,
    advanced_share,
    members_of,
    quantiles,
    recall_of,
    share_of,
)

COUNTS = np.array([[9, 7, 7, 1], [0, 1, 2, 3]])


def test_recall_and_share_by_hand() -> None:
    members = np.array([[True, False, True, False], [False, False, True, False]])
    # the tie at 7 counts as found, and of the second row one of two is missing
    assert recall_of(COUNTS, members, 2).tolist() == [1.0, 0.5]
    assert share_of(COUNTS, members, 2).tolist() == [1.0, 2 / 5]


def test_lists_become_members() -> None:
    found = TopItems(np.array([[2, 0, -1]]), np.array([[True, True, False]]))
    assert members_of(found, 4).tolist() == [[True, False, True, False]]


def test_bands_hold_four_fifths() -> None:
    assert quantiles(np.arange(11.0)) == {"mean": 5.0, "low": 1.0, "high": 9.0}


def test_with_a_large_budget_all_find_the_best_and_with_a_small_one_some_nothing() -> None:
    counts = np.tile(np.array([0, 900, 800, 10, 5, 1000, 3]), (20, 1))
    generator = np.random.default_rng(0)
    for contender in Contest(k=3, num_items=7, upper=1000, epsilon=20.0, delta=1e-6).contenders():
        assert recall_of(counts, contender.choose(counts, generator), 3).mean() > 0.95, (
            contender.name
        )
    sizes = {
        contender.name: contender.choose(counts, generator).sum(axis=1)
        for contender in Contest(
            k=3, num_items=7, upper=1000, epsilon=0.05, delta=1e-6, releases=10, substitute=True
        ).contenders()
    }
    assert sizes[ADAPTIVE].max() == 0 and sizes[DOMAIN].max() < 3
    assert all((sizes[name] == 3).all() for name in (PEELING, TOP_STABLE, FIXED))


def test_budgets_are_split_as_published() -> None:
    contest = Contest(k=16, num_items=100, upper=1000, epsilon=1.0, delta=1e-6, releases=4)
    adaptive, fixed = contest._adaptive(), contest._fixed()
    assert adaptive.scale_gap == adaptive.sigma_test
    # rho of Algorithm 3: one half is Algorithm 2 of rho / 2, the other 16 rounds of Gumbel noise
    rho = 2 / fixed.sigma_test**2
    assert fixed.scale_gap == pytest.approx(math.sqrt(2 / rho)) and fixed.fallback
    assert 16 / (8 * fixed.scale_peel**2) == pytest.approx(rho / 2)
    # of what section 3.3 names, sqrt(2 k) over 2 sqrt(rho)
    assert fixed.scale_peel == pytest.approx(
        math.sqrt(2 * 16) / (2 * math.sqrt(rho)) / math.sqrt(2)
    )
    # the threshold of the paper, of a failure of half of delta over four releases
    assert ndtr(-math.sqrt(2 * math.log(8e6))) == adaptive.delta_test
    # the published rho, by the conversion of zCDP, is no more than the tightest one allows
    published = (math.sqrt(1 + math.log(2e6)) - math.sqrt(math.log(2e6))) ** 2 / 4
    assert published < 1 / adaptive.sigma_test**2 < 2 * published


def test_advanced_composition_by_hand() -> None:
    share = advanced_share(0.1, 1e-6, 10)
    assert share * math.sqrt(20 * math.log(2e6)) + 10 * share * math.expm1(share) == pytest.approx(
        0.1
    )


def test_recall_on_the_published_bins_by_its_closed_form() -> None:
    k, trials = 150, 10
    adaptive = Contest(k=k, num_items=15_000, upper=1000, epsilon=0.15, delta=1e-6)._adaptive()
    others = 14_998 * math.exp(-700 / adaptive.scale_gap)
    passed = float(ndtr(699 / adaptive.sigma_test - math.sqrt(2 * math.log(2e6))))
    expected = passed / (1 + others)
    assert expected > 0.97
    counts = np.tile(np.where(np.arange(15_000) < k, 700, 0), (trials, 1))
    members = adaptive(counts, generator=np.random.default_rng(0))[0]
    error = math.sqrt(expected * (1 - expected) / trials)
    assert recall_of(counts, members, k).mean() == pytest.approx(expected, abs=4 * error)


def rho_of_lemma_4(epsilon: float, delta: float) -> float:
    log = math.log(1 / delta)
    return (math.sqrt(log + epsilon) - math.sqrt(log)) ** 2


def test_by_the_papers_own_conversion_the_published_bins_say_the_same() -> None:
    root = math.sqrt(rho_of_lemma_4(0.15, 5e-7))
    passed = ndtr(699 * root - math.sqrt(2 * math.log(2e6))) / (1 + 14_850 * math.exp(-700 * root))
    counts = np.tile(np.where(np.arange(15_000) < 150, 700, 0), (5, 1))
    peeling = GumbelPeeling(k=150, scale=math.sqrt(150 / (8 * rho_of_lemma_4(0.15, 1e-6))))
    found = (peeling(counts, generator=np.random.default_rng(0)) < 150).mean()
    assert passed > 0.98 and found < 0.25


def rows_of(found: dict[str, list[float]]) -> list[Row]:
    return [
        {"mechanism": name, "mean": value} for name, values in found.items() for value in values
    ]


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
    rows = [
        dict(row, k=10) for row in rows_of({name: [0.4, 0.4] for name in COLORS} | {ADAPTIVE: mine})
    ]
    assert zhu_wang_figures.bins_claim(rows).verdict is verdict


def test_claims_of_four_intervals_follow_from_recall() -> None:
    means = dict.fromkeys(COLORS, 0.5) | {PEELING: 0.9, DOMAIN: 0.1, FIXED: 0.8}
    recalls = {name: [mean + day / 100 for day in range(4)] for name, mean in means.items()}
    assert {claim.verdict for claim in zhu_wang_figures.covid_claims(rows_of(recalls))} == {
        Verdict.REPRODUCED
    }
    other = zhu_wang_figures.covid_claims(rows_of(recalls | {DOMAIN: [0.95] * 4, FIXED: [0.3] * 4}))
    assert [claim.verdict for claim in other] == [Verdict.REFUTED] + [Verdict.DIFFERENT] * 4
    nothing = zhu_wang_figures.covid_claims(rows_of(recalls | {DOMAIN: [0.0] * 4}))
    assert [claim.verdict for claim in nothing].index(
        Verdict.DIFFERENT
    ) == 2 and "lists none" in nothing[1].why
    assert "3 of 4 rise" in nothing[2].ours and DOMAIN not in nothing[2].ours


def test_the_published_table_is_whole_and_says_what_its_sentence_says() -> None:
    lines = zhu_wang_figures.published_recalls().splitlines()
    assert len(lines) == 2 + 18 and sum(line.count(".") for line in lines[2:]) == 18 * 4
    assert "| BrightKite | 10 | 0.4 | 0.77 | 0.47 | 0.91 |" in lines
    assert "| Foursquare | 50 | 1.0 | 0.18 | 0.28 | 0.67 |" in lines
    rows: list[Row] = [
        {"vector": "x", **row} for row in rows_of({name: [0.4, 0.4] for name in COLORS})
    ]
    claim = zhu_wang_figures.table_claim(rows)
    assert claim.verdict is Verdict.UNTESTABLE
    assert "ahead in 12, level in 6 and behind in 0 of 18 cells" in claim.why


def test_the_table_of_recalls() -> None:
    rows: list[Row] = [
        {"vector": "x", "k": k, "epsilon": 0.1, "mechanism": name, "mean": mean}
        for k, name, mean in ((10, "a", 1.0), (10, "b", 0.5), (50, "a", 0.25), (50, "b", 0.0))
    ]
    assert zhu_wang_figures.recalls_in_markdown(rows).splitlines() == [
        "| counts | k | epsilon | a | b |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| x | 10 | 0.1 | 1.000 | 0.500 |",
        "| x | 50 | 0.1 | 0.250 | 0.000 |",
    ]


@pytest.mark.parametrize(
    "values", [np.ones((2, 2), dtype=int), np.array([0.5, 1.5]), np.array([-1, 2])]
)
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
    assert len(found.rows) == 4 * 4 and len(found.claims) == 4
    bins = zhu_wang_figures.bins(Effort())
    assert {row["k"] for row in bins.rows} == {10, 50, 150, 500, 1500}
    assert bins.claims[0].verdict is Verdict.REPRODUCED


@pytest.mark.slow
def test_the_table_takes_counts_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "mine.npy", np.arange(60) ** 3)
    main(
        [
            "zhu_wang_table",
            "--counts",
            str(tmp_path / "mine.npy"),
            "--output",
            str(tmp_path / "found"),
        ]
    )
    assert "mine ahead in" in capsys.readouterr().out
    assert "\nmine,50,0.8," in (tmp_path / "found" / "zhu_wang_table.csv").read_text()
