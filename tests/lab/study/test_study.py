"""`pate study`: cells at one price, compared with the exact top k, which are never made twice."""

import json
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from joblib import Parallel

from pate import Votes, cli
from pate._core.settings import Partial
from pate.accounting import NeighboringRelation
from pate.aggregators import Aggregator, Canonical, Joint, Peeling, PermuteAndFlip
from pate.lab.study.sources import Steps, Zipf, counts_of
from pate.lab.study.study import Study, Top, run_study
from pate.teachers import Execution

COUNTS = [900, 700, 400, 399, 30, 20]


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


def test_made_up_histograms_have_their_shape_and_counts_of_a_file_are_counts(
    tmp_path: Path,
) -> None:
    assert Steps(num_items=4, top=9, rest=2).counts(1).tolist() == [9, 2, 2, 2]
    assert Zipf(num_items=3, exponent=1.0, total=11).counts(2).tolist() == [6, 3, 2]
    np.save(tmp_path / "counts.npy", [[3, -1]])
    with pytest.raises(ValueError, match=r"^Expected counts that are whole numbers >= 0"):
        counts_of(tmp_path / "counts.npy")
    with pytest.raises(ValueError, match=r"^Expected no num_queries with histograms alone"):
        small(tmp_path / "counts.npy", num_queries=3)


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


@pytest.mark.parametrize("content", ["{}", "[]", '{"cells": [{}]}', '{"cells": [[], 1]}'])
def test_a_file_without_whole_cells_is_made_again_and_said(
    content: str, histogram: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study, folder = small(histogram), tmp_path / "study"
    first = run_study(study, folder)
    file, *_ = sorted((folder / "cells").iterdir())
    whole = file.read_text()
    file.write_text(content)
    capsys.readouterr()
    assert run_study(study, folder).rows == first.rows and file.read_text() == whole
    said = [line for line in capsys.readouterr().err.splitlines() if "cells" in line]
    assert said == [f"pate study: no cells in {file}; they are made again"]


def test_there_is_a_process_for_each_core_at_most(
    histogram: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[int] = []

    def counted(n_jobs: int, **more: Any) -> Parallel:
        jobs.append(n_jobs)
        return Parallel(n_jobs=1, **more)

    monkeypatch.setattr("os.sched_getaffinity", lambda process: {1, 2, 5}, raising=False)
    monkeypatch.setattr("pate.lab.study.study.Parallel", counted)
    run_study(small(histogram, seeds=1), tmp_path / "study", workers=10_000)
    assert jobs == [3, 3] and Execution(workers=10_000).workers == 3


def test_noise_is_kept_as_soon_as_it_is_found(
    histogram: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search that is stopped at its third noise goes on with that one, for the same cells."""
    study, priced, searched = small(histogram), Study.priced, list[float]()

    def stopping(*arguments: Any) -> Aggregator:
        searched.append(arguments[2])
        if len(searched) == 3:
            raise KeyboardInterrupt
        return priced(*arguments)

    monkeypatch.setattr(Study, "priced", stopping)
    with pytest.raises(KeyboardInterrupt):
        run_study(study, tmp_path / "study")
    rows = run_study(study, tmp_path / "study").rows
    assert len(searched) == 5 and rows == run_study(study, tmp_path / "other").rows
    # other epsilons, deltas and relations have noise of their own, and a damaged file is named
    for changed in ({"epsilons": (2.0,)}, {"delta": 1e-5}, {"delta": 0.0}):
        before = len(searched)
        run_study(small(histogram, **changed), tmp_path / "study")
        assert len(searched) == before + 4
    for path in (tmp_path / "study" / "cells").iterdir():
        path.unlink()
    for path in (tmp_path / "study" / "noise").iterdir():
        path.write_text('{"class_path": "Peeling"')
    with pytest.raises(ValueError, match=r"^Expected noise in .*/noise/\w+\.json \(delete it"):
        run_study(study, tmp_path / "study")


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


def test_a_finished_study_is_not_overwritten_silently(
    histogram: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "study.png").write_text("a figure")
    words = ["--mechanisms=[Peeling]", "--k=[1]", "--epsilons=[1]", f"--counts=[{histogram}]"]
    assert cli.main(["study", *words, f"--output={folder}"]) == 2
    assert "not there yet, or --overwrite, got output=" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["study.png"]
