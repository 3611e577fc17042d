"""A top k that is asked for twice: after it was killed, at the same time, or where others wrote
meanwhile."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pate._core.accounting.charges import account
from pate._core.accounting.privacy_unit import EACH
from pate._core.files.writing import locked_output
from pate._core.release import top_k, transaction
from pate._core.release.histogram import Histogram, HistogramFiles
from pate._core.release.top_k import TopKSettings, release_top_k
from pate._core.validation import IntArray
from pate._labeling.release.labels import verify_published
from pate.accounting import Event, Ledger, NeighboringRelation, PrivacyUnit, Statement, read_ledger
from pate.mechanisms import GumbelPeeling, TopKMechanism


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pairs.csv").write_text(
        "user,item\n" + "".join(f"u{i},{item}\n" for item in "abcdef" for i in range(9))
    )
    Path("items.txt").write_text("\n".join("abcdef"))


def release(output: str, k: int = 3, ledger: str = "ledger.sqlite") -> Statement:
    """The noise is large: two draws hardly ever agree."""
    source = HistogramFiles(pairs=Path("pairs.csv"), items=Path("items.txt"))
    return release_top_k(
        source, TopKSettings(k=k, scale=1e3), output=Path(output), ledger=Path(ledger)
    )


def killed(at: str, output: str = "top.csv") -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transaction if at == "write_json" else top_k, at, interrupt)
        with pytest.raises(KeyboardInterrupt):
            release(output)


def left(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.glob("top.*"))}


@pytest.mark.parametrize("output", ["top.csv", "top.json"])
@pytest.mark.parametrize("ledger", ["ledger.sqlite", "another.sqlite"])
def test_what_another_release_wrote_meanwhile_is_kept(
    output: str, ledger: str, tmp_path: Path
) -> None:
    """A .csv and a .json of one name have one statement."""
    killed("_chosen")
    assert not left(tmp_path)
    release(output, k=5, ledger=ledger)
    before = left(tmp_path)
    with pytest.raises(
        ValueError,
        match=r"^Expected another output, because every release is paid for, got existing=",
    ):
        release("top.csv")
    assert left(tmp_path) == before
    for path in tmp_path.glob("top.*"):
        path.unlink()
    # it is paid for already
    release("top.csv")
    assert len(read_ledger(Path("ledger.sqlite")).entries) == (
        2 if ledger == "ledger.sqlite" else 1
    )


def test_a_statement_in_words_is_not_overwritten(tmp_path: Path) -> None:
    Path("top.privacy.txt").write_text("of a list that was moved")
    with pytest.raises(
        ValueError, match=r"^Expected another output[^\n]*got existing='top.privacy.txt'$"
    ):
        release("top.csv")
    assert not Path("ledger.sqlite").exists()


def test_a_statement_ends_where_its_release_was_settled_though_it_was_killed() -> None:
    killed("write_json")
    release("other.csv")
    found = release("top.csv")
    assert found["release"] == 1 and len(found["releases"]) == 1
    made = Statement.read(Path("top.privacy.json"))
    assert made.verify(ledger=Path("ledger.sqlite"), released=Path("top.csv")) == 1


def test_two_at_once_do_not_both_pay(tmp_path: Path) -> None:
    with (
        locked_output(tmp_path / "top.json"),
        pytest.raises(
            ValueError,
            match=r"^Expected an output that no other process writes, got [^\n]*top.csv in use",
        ),
    ):
        release("top.csv")
    assert not Path("ledger.sqlite").exists() and not Path("ledger.pending").exists()
    release("top.csv")
    assert not list(tmp_path.glob(".*"))


def test_files_that_change_while_they_are_read_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise of what was asked for is not that of something else."""
    real = HistogramFiles.read

    def changed(source: HistogramFiles, generator: Any) -> Any:
        with Path("pairs.csv").open("a") as file:
            file.write("u9,f\n")
        return real(source, generator)

    monkeypatch.setattr(HistogramFiles, "read", changed)
    with pytest.raises(
        ValueError, match=r"^Expected files that nobody writes while they are read, got changed="
    ):
        release("top.csv")
    assert not Path("ledger.sqlite").exists()


def test_a_ledger_goes_by_any_name(tmp_path: Path) -> None:
    release("first.csv")
    Path("link.sqlite").symlink_to("ledger.sqlite")
    killed("_chosen")
    release("top.csv", ledger="link.sqlite")
    assert len(read_ledger(Path("ledger.sqlite")).entries) == 2


def test_nobody_else_reads_the_seed_of_a_release_under_way() -> None:
    Path("ledger.pending").mkdir(mode=0o755)
    killed("_chosen")
    (file,) = Path("ledger.pending").iterdir()
    assert (file.parent.stat().st_mode | file.stat().st_mode) & 0o077 == 0


def test_no_message_has_the_digest_of_private_data(tmp_path: Path) -> None:
    """The file of a release under way is named by one."""
    killed("_chosen")
    (file,) = Path("ledger.pending").iterdir()
    file.write_text("{")
    with pytest.raises(
        ValueError, match=r"^Expected what [^\n]* got damaged files in [^\n]*ledger.pending$"
    ) as raised:
        release("top.csv")
    assert file.stem not in str(raised.value)
    file.unlink()
    file.parent.rmdir()
    Path("ledger.pending").write_text("in the way")
    with pytest.raises(
        ValueError, match=r"^Expected a folder for releases under way, got "
    ) as raised:
        release("top.csv")
    assert file.stem not in str(raised.value) and str(raised.value).endswith(
        f"ledger.pending ({os.strerror(17)})"
    )


def test_the_same_files_by_other_paths_are_the_same_question(tmp_path: Path) -> None:
    killed("write_text")
    source = HistogramFiles(pairs=tmp_path / "pairs.csv", items=tmp_path / "items.txt")
    settings = TopKSettings(k=3, scale=1e3)
    release_top_k(source, settings, output=tmp_path / "top.csv", ledger=tmp_path / "ledger.sqlite")
    assert len(read_ledger(Path("ledger.sqlite")).entries) == 1


def test_what_all_releases_cost_was_fixed_before_their_noise() -> None:
    """Others in the ledger may be settled for less, by what came out."""
    events = GumbelPeeling(k=3, scale=1e3).events()
    book = Ledger(Path("ledger.sqlite"))
    first = book.reserve(
        events,
        count=5,
        run="labels",
        description="a screen",
        seeded=False,
        privacy_unit=PrivacyUnit(unit="user", partition=EACH),
    )
    book.settle(first, realised=[(events, 1)])
    stated = release("top.csv")
    for relation in NeighboringRelation:
        reserved = account([(events, 6)], relation).get_epsilon(delta=1e-6)
        assert stated["guarantees"][relation.value]["epsilon"] == pytest.approx(reserved)
    assert stated.verify(ledger=Path("ledger.sqlite")) == 0


def test_each_step_of_a_release_moves_its_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    bars: list[tuple[int, list[int]]] = []

    @contextmanager
    def counted(total: int, _: str) -> Iterator[Any]:
        moves: list[int] = []
        bars.append((total, moves))
        yield SimpleNamespace(update=lambda: moves.append(1))

    monkeypatch.setattr(transaction, "step_bar", counted)
    release("top.csv")
    assert [(total, len(moves)) for total, moves in bars] == [(4, 4)]


@pytest.mark.parametrize("suffix", [".csv", ".json"])
def test_a_list_has_its_ranks_from_one_and_is_paid_for_once(suffix: str) -> None:
    source = HistogramFiles(pairs=Path("pairs.csv"), items=Path("items.txt"))
    counts = [
        release(f"one{suffix}", ledger="named.sqlite")["ledger"]["counts"],
        release(f"two{suffix}", ledger=str(source.ledger_path))["ledger"]["counts"],
    ]
    assert counts == ["named", "private data"]
    assert [entry.count for entry in read_ledger(Path("named.sqlite")).entries] == [1]
    text = Path(f"one{suffix}").read_text()
    if suffix == ".csv":
        header, *rows = text.splitlines()
        assert header == "rank,item" and [row[:2] for row in rows] == ["1,", "2,", "3,"]
        items = [row[2:] for row in rows]
    else:
        items = json.loads(text)["items"]
        assert text == json.dumps({"items": items, "ordered": True}, indent=2) + "\n"
    assert len({*items}) == 3 and {*items} < {*"abcdef"}
    Path(f"one{suffix}").unlink()
    with pytest.raises(ValueError, match=r"^Expected the released file, got missing='one\.csv'$"):
        verify_published(Path("one.privacy.json"), None)


def test_a_file_is_no_folder_for_a_list() -> None:
    with pytest.raises(
        ValueError,
        match=r"^Expected a folder that can be written to, got output='items.txt/top.csv'$",
    ):
        release("items.txt/top.csv")
    assert not Path("ledger.sqlite").exists()


class OfUnstated(TopKSettings):
    def mechanism_for(self, histogram: Histogram) -> TopKMechanism:
        assert histogram.public
        return OneOfAKind(k=self.k, scale=1.0)


@dataclass(frozen=True, kw_only=True)
class OneOfAKind(TopKMechanism):
    """A choice whose accuracy cannot be found."""

    def _accuracy(self, gap: float, num_items: int) -> float:
        raise ValueError("Expected an accuracy that can be found")

    def _select(self, rows: Any, generator: np.random.Generator) -> IntArray:
        return np.tile(np.arange(self.k), (len(rows), 1))

    def event(self, relation: NeighboringRelation) -> Event:
        return GumbelPeeling(k=self.k, scale=self.scale).event(relation)


def test_a_list_that_could_not_be_stated_is_not_paid_for() -> None:
    """All that a statement says of a mechanism is found before the reservation."""
    source = HistogramFiles(pairs=Path("pairs.csv"), items=Path("items.txt"))
    with pytest.raises(ValueError, match=r"^Expected an accuracy that can be found$"):
        release_top_k(
            source,
            OfUnstated(k=3, scale=1.0),
            output=Path("top.csv"),
            ledger=Path("ledger.sqlite"),
        )
    assert not left(Path()) and not Path("ledger.sqlite").exists()
