"""`pate study`: cells at one price, compared with the exact top k, which are never made twice."""

import csv
import json
import math
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
import yaml
from scipy.stats import t as student_t

from pate import Votes, cli
from pate._core.settings import Partial
from pate._core.validation import BoolArray
from pate._labeling.aggregators.base import AnyAggregator
from pate._labeling.runs.named_votes import NamedVotes
from pate.accounting import NeighboringRelation
from pate.aggregators import (
    Aggregator,
    Canonical,
    Joint,
    NoisyVotes,
    Peeling,
    PermuteAndFlip,
    Release,
    StableTopK,
)
from pate.lab.study import study as study_module
from pate.lab.study.output import method_text, study_text
from pate.lab.study.sources import CountsFile, Simulation, Source, Steps, Zipf
from pate.lab.study.study import (
    FREE,
    PRIVATE,
    PUBLIC,
    Group,
    Judge,
    Study,
    Top,
    calibrated,
    name_of,
    run_study,
)
from scripts.reproduction.gillenwater import grade

COUNTS = [900, 700, 400, 399, 30, 20]
SIMULATED = Simulation(num_labels=5, num_teachers=100, num_public=40)


@pytest.fixture
def histogram(tmp_path: Path) -> Path:
    path = tmp_path / "films.npy"
    np.save(path, np.array(COUNTS))
    return path


def small(histogram: Path, **changed: object) -> Study:
    settings: dict[str, object] = {
        "mechanisms": [Partial(Peeling), Partial(Canonical)],
        "k": (1, 3),
        "epsilons": (1.0,),
        "counts": (histogram,),
        "seeds": 2,
    }
    return Study(**settings | changed)  # type: ignore[arg-type]


def test_hits_are_the_most_that_any_top_k_has() -> None:
    generator = np.random.default_rng(0)
    for _ in range(200):
        counts, k = generator.integers(0, 4, (1, 5)), int(generator.integers(1, 5))
        released = generator.random((1, 5)) < 0.5
        best = max(counts[0, list(some)].sum() for some in combinations(range(5), k))
        tops = [some for some in combinations(range(5), k) if counts[0, list(some)].sum() == best]
        expected = max(int(released[0, list(some)].sum()) for some in tops)
        assert Top(counts, k).hits(released).tolist() == [expected]


def test_a_cell_for_each_setting_at_one_price(histogram: Path, tmp_path: Path) -> None:
    result = run_study(small(histogram), tmp_path / "study")
    assert len(result.rows) == 8 and len([*(tmp_path / "study/cells").iterdir()]) == 4
    for row in result.rows:
        # no noise that is less would do: the whole of epsilon is spent
        assert 1 - 1e-4 < row["spent"] <= 1
        assert row["num_queries"] == 1 and row["num_teachers"] is None
    by_peeling = [row for row in result.rows if row["mechanism"] == "Peeling"]
    noise = [json.loads(row["noise"])["scale_peel"] for row in by_peeling]
    assert noise[0] == noise[1] < noise[2] == noise[3]  # three choices cost more than one


@pytest.mark.parametrize(("epsilon", "found"), [(1e3, True), (1e-3, False)])
def test_much_epsilon_finds_the_top_k_and_little_does_not(
    epsilon: float, found: bool, histogram: Path, tmp_path: Path
) -> None:
    study = small(histogram, epsilons=(epsilon,), seeds=20, k=(2,))
    result = run_study(study, tmp_path / "study")
    for name in ("Peeling", "Canonical"):
        exact, _ = result.interval("exact", mechanism=name)
        assert (exact == 1) == found and (exact < 0.6) == (not found)
        recall, precision = (
            result.values(each, mechanism=name) for each in ("recall", "precision")
        )
        assert (recall == precision).all()  # sets of two, of two that are right


def test_finished_cells_are_kept_and_others_made_again(histogram: Path, tmp_path: Path) -> None:
    study, folder = small(histogram), tmp_path / "study"
    first = run_study(study, folder)
    files = sorted((folder / "cells").iterdir())
    made = {path: path.stat().st_mtime_ns for path in files}
    content = files[3].read_text()
    files[3].unlink()
    assert run_study(study, folder).rows == first.rows
    assert files[3].read_text() == content
    kept = [path for path in files if path.stat().st_mtime_ns == made[path]]
    assert kept == files[:3]
    # what is in a file is not drawn again, neither for more seeds nor for fewer
    cells = json.loads(files[0].read_text())["cells"]
    files[0].write_text(json.dumps({"cells": [{**cell, "recall": 0.125} for cell in cells]}))
    more = run_study(small(histogram, seeds=3), folder)
    assert len(more.rows) == 12 and [row["recall"] for row in more.rows].count(0.125) == 2
    fewer = run_study(small(histogram, seeds=1), folder)
    assert [row["seed"] for row in fewer.rows] == [0] * 4


def test_a_damaged_cell_is_named(histogram: Path, tmp_path: Path) -> None:
    study, folder = small(histogram), tmp_path / "study"
    run_study(study, folder)
    cell = min((folder / "cells").iterdir())
    cell.write_text("{")
    with pytest.raises(ValueError, match=f"finished cells in {cell} .delete it") as refused:
        run_study(study, folder)
    assert "\n" not in str(refused.value)


@pytest.mark.slow
def test_changed_counts_are_other_cells(histogram: Path, tmp_path: Path) -> None:
    study, folder = small(histogram), tmp_path / "study"
    run_study(study, folder)
    np.save(histogram, np.array(COUNTS[::-1]))
    assert run_study(study, folder).rows and len([*(folder / "cells").iterdir()]) == 8


@pytest.mark.slow
def test_noise_is_that_of_account(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """StableTopK by its bare name, which needs more than one factor."""
    study = Study(
        mechanisms=[Partial(StableTopK), Partial(NoisyVotes)],
        k=(2,),
        epsilons=(4.0,),
        simulate=(SIMULATED,),
        num_queries=3,
        seeds=1,
    )
    for row in run_study(study, tmp_path / "study").rows:
        asked = f"--aggregator {row['mechanism']} --target_epsilon 4 --num_queries 3 --delta 1e-6"
        words = f"account {asked} --num_teachers 100 --num_labels 5"
        assert cli.main(words.split()) == 0
        out = capsys.readouterr().out
        for name, scale in json.loads(row["noise"]).items():
            assert f"{name}: {scale}"[:16] in out


@pytest.mark.slow
def test_intervals_are_students(histogram: Path, tmp_path: Path) -> None:
    study = small(histogram, epsilons=(0.02,), seeds=6, k=(3,))
    result = run_study(study, tmp_path / "study")
    values = result.values("recall", mechanism="Peeling")
    mean, half = result.interval("recall", mechanism="Peeling")
    assert len(values) == 6 and values.std() > 0
    assert math.isclose(mean, values.mean())
    expected = student_t(5).ppf(0.975) * values.std(ddof=1) / math.sqrt(6)
    assert math.isclose(half, expected)
    one = run_study(small(histogram, seeds=1), tmp_path / "study")
    assert math.isnan(one.interval("recall", mechanism="Peeling", k=3)[1])


@pytest.mark.parametrize("relation", NeighboringRelation)
@pytest.mark.parametrize(
    "mechanism", [Peeling, Canonical, pytest.param(PermuteAndFlip, marks=pytest.mark.slow), Joint]
)
def test_at_delta_0_no_outcome_is_likelier_by_more_than_epsilon(
    mechanism: type[Aggregator], relation: NeighboringRelation, histogram: Path
) -> None:
    """By the laws of all neighbors of small counts, of which the worst comes near."""
    study = small(histogram, delta=0.0, neighboring_relation=relation)
    worst = 0.0
    for counts in ([3, 2, 1, 0], [2, 2, 1, 1], [4, 0, 0, 0]):
        votes = Votes.from_counts([counts], 8)
        priced = study.priced(Partial(mechanism, k=2, neighboring_relation=relation), 1.5, votes)
        assert study.cost(priced, votes) == pytest.approx(1.5)
        steps = (0, 1) if relation is NeighboringRelation.ADD_REMOVE_TEACHER else (-1, 0, 1)
        for change in product(steps, repeat=4):
            other = Votes.from_counts([np.maximum(np.add(counts, change), 0)], 8)
            p, q = priced.laws(votes, other)
            worst = max(worst, np.abs(np.log(p[p > 0]) - np.log(q[p > 0])).max())
    assert 0.6 < worst <= 1.5 + 1e-9


def test_great_and_good_sets_are_those_of_the_paper() -> None:
    generator = np.random.default_rng(0)
    scores, k = generator.permutation(300)[None], 100
    judge = Judge(Source("", "", Votes.from_counts(scores, 300)), k)
    best, seen = np.argsort(-scores[0]), set()
    for _ in range(300):
        length = int(generator.choice([100, 105, 112, 140, 151]))
        chosen = generator.permutation(best[:length])[:k]
        if generator.random() < 0.5:
            chosen = np.unique([*best[:10], *chosen])[:k]
        if len(chosen) < k:
            continue
        labels = np.isin(np.arange(300), chosen)[None]
        figures = judge.figures(Release(labels.astype(np.uint8), np.ones((1, 300), dtype=np.bool_)))
        expected = grade(scores[0], chosen)
        found = figures["exact"], figures["great"], figures["good"]
        assert found == tuple(map(float, expected))
        seen.add(found)
    assert len(seen) > 2


def test_histograms_of_a_given_shape_and_of_rows_of_a_file(tmp_path: Path) -> None:
    assert Steps(num_items=4, top=7, rest=1).counts(2).tolist() == [7, 7, 1, 1]
    assert Zipf(num_items=3, exponent=1.0, total=110.0).counts(1).tolist() == [60, 30, 20]
    path = tmp_path / "days.npz"
    np.savez(path, daily=np.array([[5, -2, 1], [3, 4, 0], [9, 9, 9]]), states=np.array(["a"]))
    file = CountsFile(path=path, array="daily", rows=(0, 2), negative_as_zero=True)
    assert file.read().tolist() == [[5, 0, 1], [3, 4, 0]]
    study = small(path, counts=(file,), k=(1,), simulate=(Steps(num_items=4, top=7),))
    rows = run_study(study, tmp_path / "study").rows
    assert {row["votes"]: row["num_queries"] for row in rows} == {
        "days.npz daily[0:2]": 2,
        "steps (num_items 4, top 7)": 1,
    }
    for changed, message in (
        ({"negative_as_zero": False}, "whole numbers >= 0"),
        ({"rows": (2, 4)}, "rows within 0..3"),
        ({"array": "weekly"}, "weekly"),
    ):
        other = small(path, counts=(replace(file, **changed),), k=(1,))
        with pytest.raises(ValueError, match=message):
            run_study(other, tmp_path / "study")


@pytest.mark.slow
def test_noise_is_found_once_for_all_k_and_votes_that_share_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []

    def counted(group: Group, settings: Study) -> Aggregator:
        found.append(group.words)
        return calibrated(group, settings)

    monkeypatch.setattr(study_module, "calibrated", counted)
    simulate = (SIMULATED, replace(SIMULATED, seed=1))
    mechanisms: list[AnyAggregator] = [Partial(NoisyVotes), Partial(Peeling)]
    study = Study(mechanisms=mechanisms, k=(1, 2), epsilons=(1.0,), simulate=simulate, seeds=1)
    rows = run_study(study, tmp_path / "study").rows
    assert len(rows) == 8 and len(found) == 3  # Peeling has a k, and votes without one share all
    assert len({row["noise"] for row in rows}) == 3


def votes_file(path: Path) -> tuple[Path, BoolArray]:
    truth = np.random.default_rng(1).random((30, 4)) < 0.5
    counts = np.where(truth, 90, 10)
    ids = np.array([f"s{i:02}" for i in range(30)])
    named = NamedVotes(ids=ids, label_names=tuple("abcd"), counts=counts, num_teachers=100)
    named.save(path)
    return path, truth


def test_a_truth_takes_the_place_of_the_top_k(tmp_path: Path) -> None:
    votes, truth = votes_file(tmp_path / "votes.npz")
    shuffled = np.random.default_rng(2).permutation(30)
    ids = np.array([f"s{i:02}" for i in range(30)])[shuffled]
    right, wrong = tmp_path / "right.npz", tmp_path / "wrong.npz"
    np.savez(right, ids=ids, Y=truth[shuffled].astype(np.uint8))
    np.savez(wrong, ids=ids, Y=~truth[shuffled])
    for path, accuracy in ((right, 1.0), (wrong, 0.0)):
        study = Study(
            mechanisms=[Partial(NoisyVotes)],
            k=(1,),
            epsilons=(1000.0,),
            votes=(votes,),
            truth=path,
            seeds=1,
            num_queries=20,
        )
        (row,) = run_study(study, tmp_path / "study").rows
        assert row["accuracy"] == row["recall"] == accuracy and row["num_queries"] == 20


def test_names_have_the_settings_that_are_not_the_default(histogram: Path) -> None:
    laplace = Partial(Peeling, noise_law="laplace")
    study = small(histogram, mechanisms=[laplace, Partial(Peeling, noise_law="gumbel")])
    assert [*map(name_of, study.partials)] == ["Peeling (noise_law=laplace)", "Peeling"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"k": (3, 0)}, r"k\[1\] >= 1"),
        ({"counts": ()}, "votes, counts or simulate"),
        ({"mechanisms": [Partial(Peeling)] * 2}, "names of mechanisms that occur once"),
        ({"mechanisms": [Partial(Peeling, k=3)]}, "k of the study, not of Peeling"),
        ({"delta": -1e-6}, "delta"),
        (
            {"mechanisms": [Partial(Peeling, neighboring_relation="add_remove_teacher")]},
            "Peeling for the relation of the study, replace_record",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    changed: dict[str, object], message: str, histogram: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        small(histogram, **changed)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"k": (1, 6)}, r"k < 6, the number of items, got k=6 \(Peeling, k = 6, epsilon = 1"),
        ({"mechanisms": [Partial(Peeling), Partial(StableTopK, delta_test=1e-3)]}, "delta"),
        ({"counts": (Path("none.npy"),)}, "none.npy"),
        ({"counts": (Path("means.npy"),)}, "whole numbers"),
        ({"delta": 0.0, "mechanisms": [Partial(NoisyVotes)]}, "pure epsilon at delta = 0"),
    ],
)
def test_nothing_is_released_where_one_cell_cannot_be(
    changed: dict[str, object],
    message: str,
    histogram: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("means.npy", np.array([0.5, 1.5, 2.5, 3.5]))
    folder = tmp_path / "study"
    with pytest.raises(ValueError, match=message) as refused:
        run_study(small(histogram, **changed), folder)
    assert "\n" not in str(refused.value)
    assert not (folder / "cells").exists()


def test_results_say_whether_they_are_private(histogram: Path, tmp_path: Path) -> None:
    assert small(histogram).notice == PRIVATE and small(histogram, public=True).notice == PUBLIC
    assert small(histogram, counts=(), simulate=(SIMULATED,)).notice == FREE
    result = run_study(small(histogram), tmp_path / "study")
    assert study_text(result).startswith(PRIVATE)
    assert "REPLACE_RECORD" in method_text(result) and "numpy" in method_text(result)


@pytest.mark.slow
def test_the_command_reads_a_file_and_writes_a_table(
    histogram: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    file, folder = tmp_path / "study.yaml", tmp_path / "private" / "study"
    file.write_text(
        "mechanisms:\n- Peeling\n- {class_path: Peeling, init_args: {noise_law: laplace}}\n"
        f"k: [2]\nepsilons: [1]\ncounts: [{histogram}]\nseeds: 2\n"
    )
    assert cli.main(["study", str(file)]) == 0 and folder.stat().st_mode & 0o77 == 0
    assert capsys.readouterr().out.startswith(PRIVATE)
    head, *lines = (folder / "study.csv").read_text().splitlines()
    rows = [*csv.DictReader(lines)]
    assert head == f"# {PRIVATE}"
    names = [row["mechanism"] for row in rows]
    assert names == ["Peeling"] * 2 + ["Peeling (noise_law=laplace)"] * 2
    written = {path.name for path in folder.iterdir()}
    assert {"cells", "study.csv", "study.png", "study.txt"} <= written


@pytest.mark.slow
def test_a_class_of_ones_own_is_compared_in_processes(
    histogram: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine_for_study.py").write_text(
        "from dataclasses import dataclass\nfrom pate.aggregators import NoisyVotes\n\n"
        "@dataclass(frozen=True, kw_only=True)\nclass Mine(NoisyVotes):\n    pass\n"
    )
    monkeypatch.chdir(tmp_path)
    words = f"--mechanisms [NoisyVotes,mine_for_study.Mine] --k [2] --epsilons [1] --counts [{histogram}]"
    assert cli.main(["study", "--code=.", *words.split(), "--seeds=2", "--workers=2"]) == 0
    lines = (tmp_path / "private/study/study.csv").read_text().splitlines()[1:]
    ours, theirs = (
        [r for r in csv.DictReader(lines) if r["mechanism"] == name]
        for name in ("NoisyVotes", "Mine")
    )
    assert len(ours) == len(theirs) == 2
    assert [row["noise"] for row in ours] == [row["noise"] for row in theirs]


def test_the_page_has_a_study_of_two_k_and_six_mechanisms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "study.md").read_text()
    file = tmp_path / "study.yaml"
    file.write_text(page.split("```yaml\n")[1].split("```")[0])
    with pytest.raises(SystemExit) as stopped:
        cli.main(["study", str(file), "--print_config"])
    assert stopped.value.code == 0
    printed = yaml.safe_load(capsys.readouterr().out)
    assert len(printed["mechanisms"]) == 6 and printed["k"] == [2, 5]


STUDIES = sorted((Path(__file__).parents[3] / "configs" / "studies").glob("*.yaml"))


@pytest.mark.slow
@pytest.mark.parametrize("file", STUDIES, ids=lambda file: file.stem)
def test_a_shipped_study_goes_by_its_name(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On small counts under the names of the papers' files, with one k and one epsilon."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "topk").mkdir()
    generator = np.random.default_rng(2)
    np.save("topk/NETFLIX.n17770.npy", generator.permutation(900))
    np.savez("topk/US_COVID19_STATES.npz", daily=generator.integers(-3, 3000, (40, 20)))
    words = [file.stem, "--seeds=2", "--output=study", "--k=[10]", "--epsilons=[0.5]"]
    assert len(STUDIES) == 3 and len(file.read_text().splitlines()) <= 25
    assert cli.main(["study", *words]) == 0
    written = (tmp_path / "study" / "study.csv").read_text()
    assert "peeling" in written or "EM-CDP" in written
