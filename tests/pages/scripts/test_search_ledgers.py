"""The search for a printed total below the truth: honest ledgers pass, and faults are found."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate._core.settings import Partial
from pate.aggregators import NoisyVotes, ScoreVotes
from scripts import search_ledgers
from scripts.search_ledgers import Planned, made_up, make, neighbors, search, sequence, totals

BY_RECORD, BY_GROUP = Planned(unit="record"), Planned(unit="group")


def figures(folder: Path, releases: Sequence[Planned], whom: str) -> list[tuple[float, float]]:
    """Return each printed total for neighbors of a kind, and the true one."""
    generator = np.random.default_rng(0)
    table = made_up(generator)
    first = make(folder / "records", table, releases)
    found = []
    for number, neighbor in enumerate(neighbors(table, releases, generator)):
        if neighbor.whom == whom:
            place, changed = folder / f"{number}", neighbor.changed(table)
            second = make(place, changed, releases, kept=first, absent=neighbor.absent)
            found += [each[1:] for each in totals(releases, neighbor, first, second)]
    return found


def test_a_group_stays_within_what_is_printed_and_is_near_it(tmp_path: Path) -> None:
    printed, true = zip(*figures(tmp_path, [BY_GROUP], "group"), strict=True)
    assert len(printed) == 2 and 0.3 < true[0] / printed[0] <= 1


def test_less_noise_than_stated_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    event = ScoreVotes.event

    def understated(aggregator: ScoreVotes, *arguments: Any) -> Any:
        return event(aggregator.scaled(8.0), *arguments)

    monkeypatch.setattr(ScoreVotes, "event", understated)
    printed, true = figures(tmp_path, [BY_GROUP], "group")[0]
    assert true > 1.5 * printed


@pytest.mark.slow
@pytest.mark.parametrize("whom", ["record", "group"])
def test_one_record_that_moved_does_not_decide_which_totals_there_are(
    whom: str, tmp_path: Path
) -> None:
    releases = [BY_GROUP, replace(BY_GROUP, regrouped=True), replace(BY_GROUP, regrouped=True)]
    found = figures(tmp_path, releases, whom)
    assert len(found) >= 2 and all(true <= total for total, true in found)


@pytest.mark.slow
@pytest.mark.parametrize("imported", [False, True])
def test_releases_from_several_files_add_up(imported: bool, tmp_path: Path) -> None:
    """Of the same groups, under other ids and in other units, and of a part of the records."""
    chosen = Partial(NoisyVotes) if imported else None
    one = replace(BY_GROUP, num_teachers=8, imported=imported, aggregator=chosen)
    releases = [replace(one, file=file) for file in search_ledgers.FILES]
    found = figures(tmp_path, releases, search_ledgers.WORD if imported else "group")
    assert all(true <= total for total, true in found)
    totals = [total for total, _ in found]
    assert len(totals) >= 3 and max(totals) > 1.5 * min(totals)


def test_the_command_names_faults_and_ends_with_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    neighbor = search_ledgers.Neighbor(whom="group", units=1, rows=np.arange(30))
    fault = search_ledgers.Fault(neighbor, "1.455 printed, 9.660 true", 6.6)
    results = iter([[], [fault]])
    monkeypatch.setattr(
        search_ledgers, "search", lambda *_: search_ledgers.Searched(3, 20, next(results))
    )
    with pytest.raises(SystemExit) as ended:
        search_ledgers.main(["--ledgers", "2", "--seed", "4"])
    assert ended.value.code == 1
    printed = capsys.readouterr().out
    assert "ledger 5, 1 faults; 1 group(s) with 30 records removed: 1.455 printed" in printed
    assert "2 ledgers, 6 releases, 40 totals: 1 ledgers print" in printed


@pytest.mark.slow
def test_random_ledgers(tmp_path: Path) -> None:
    faults, compared = list[Any](), 0
    for seed in range(8):
        generator = np.random.default_rng(seed)
        (tmp_path / f"{seed}").mkdir()
        found = search(generator, tmp_path / f"{seed}", sequence(generator))
        faults, compared = [*faults, *found.faults], compared + found.compared
    assert compared > 100 and not faults
