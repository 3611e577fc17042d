"""Personal budgets through whole commands: a table with a column of them, and what is refused."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import pate
from pate import cli
from pate._core.accounting.filters import personal_figures, personal_weights
from pate._labeling.commands.check import check_run
from pate.accounting import PersonalEvent, Statement, read_ledger
from pate.data import NumberTable, Role

BUDGETS = (0.5, 1.0, 2.0)
LABEL = ("--label.target_epsilon=2", "--label.delta=1e-6")


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command of a run of a small table, in its folder."""
    generator = np.random.default_rng(0)
    features = generator.standard_normal((300, 3))
    labels = (features[:, :2] + 0.3 * generator.standard_normal((300, 2)) > 0).astype(int)
    roles = np.repeat(["private", "public", "test"], [200, 60, 40])
    lines = ["id,split,budget,x,y,z,gout,asthma"]
    for i, (row, given) in enumerate(zip(features.round(3), labels, strict=True)):
        budget = BUDGETS[i % 3] if roles[i] == "private" else ""
        values = [f"r{i}x", roles[i], budget, *row, *given]
        lines.append(",".join(map(str, values)))
    (tmp_path / "table.csv").write_text("\n".join(lines))
    recipe = tmp_path / "recipe"
    shutil.copytree(Path(pate.__file__).parents[1] / "configs" / "table", recipe)
    (recipe / "data.yaml").write_text(
        "data:\n  class_path: NumberTable\n  init_args:\n    path: table.csv\n"
        "    labels: [gout, asthma]\n    budgets: [0.5, 1, 2]\n    features: AutoFeatures\n"
    )
    monkeypatch.chdir(tmp_path)
    return ["run", "recipe", "--run", "mine"]


@pytest.mark.slow
def test_a_column_of_budgets_from_the_table_to_the_statement(
    table: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*table, *LABEL, "--dry_run"]) == 0
    assert "by PersonalVotes with" in capsys.readouterr().out
    assert cli.main([*table, *LABEL]) == 0
    printed, ledger = capsys.readouterr().out, Path("table.ledger.sqlite")
    weights = personal_weights(BUDGETS, 1e-6)
    for event in read_ledger(ledger).entries[0].events.values():
        assert isinstance(event, PersonalEvent)
        assert (event.budgets, event.weights, event.delta) == (BUDGETS, weights, 1e-6)
    statement = Statement.read(Path("mine/public/privacy.json"))
    stated = [row["replace_record"]["epsilon"] for row in statement["budgets"]]
    np.testing.assert_allclose(stated, BUDGETS, rtol=1e-3)
    assert all(
        epsilon <= budget * (1 + 1e-9) for epsilon, budget in zip(stated, BUDGETS, strict=True)
    )
    assert statement["guarantees"]["replace_record"]["epsilon"] == stated[-1]
    for budget in ("0.5", "1", "2"):
        assert f"For a record of budget {budget} all releases" in printed
    statement.verify(ledger=ledger, released=Path("mine/public/labels.npz"))
    statement.verify()
    assert not check_run(Path("mine")).problems
    assert cli.main(["ledger", "verify", "--ledger", str(ledger)]) == 0
    assert "For a record of budget 0.5 all" in capsys.readouterr().out
    assert cli.main(["report", "mine", "--disclosure"]) == 0
    assert "budget 0.5" in Path("mine/public/disclosure/README.md").read_text()
    # nothing public says whose budget is which, or how many there are
    manifest = json.loads(Path("mine/private/votes/manifest.json").read_text())
    assert manifest["budgets"] == list(BUDGETS)
    with np.load("mine/public/labels.npz") as released:
        assert not any("budget" in name for name in released.files)


@pytest.mark.slow
def test_a_second_release_goes_beyond_all_budgets(
    table: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*table, *LABEL]) == 0
    again = ["run", "recipe", "--run", "again", "--label.target_epsilon=0.3"]
    capsys.readouterr()
    assert cli.main(again) == 2
    error = capsys.readouterr().err
    assert "Expected epsilon <= 0.5 at delta = 1e-06" in error and "for its records" in error
    assert not Path("again").exists() and len(read_ledger(Path("table.ledger.sqlite")).entries) == 1


@pytest.mark.slow
def test_a_choice_is_paid_by_each_budget_and_told(
    table: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*table, "--label.target_epsilon=1", "--label.delta=1e-6"]) == 0
    shutil.copytree("mine/public/student/model", "other")
    choice = "choose mine/public/student/model other --run mine --output choice.csv --delta 1e-6"
    assert cli.main([*choice.split(), "--target_epsilon=0.1"]) == 0
    assert Path("choice.csv").exists()
    capsys.readouterr()
    assert cli.main(["ledger", "verify", "--ledger", "table.ledger.sqlite"]) == 0
    assert "For a record of budget 0.5 all" in capsys.readouterr().out
    assert cli.main([*choice.replace("choice", "more").split(), "--target_epsilon=1"]) == 2
    assert "for its records" in capsys.readouterr().err


@pytest.mark.slow
def test_several_releases_share_each_budget(table: list[str]) -> None:
    """Half of the largest budget, and a fifth: what a record of each budget has spent adds up."""
    for name, epsilon in (("one", 1.0), ("two", 0.4)):
        words = ["run", "recipe", "--run", name, f"--label.target_epsilon={epsilon}"]
        assert cli.main(words) == 0
    figures = personal_figures(read_ledger(Path("table.ledger.sqlite")).reserved())
    first, second, last = (row["replace_record"] for row in figures)
    assert 0.25 < first["epsilon"] < 0.3 and 1.0 < last["epsilon"] < 1.2
    for row, weight in zip((first, second), personal_weights(BUDGETS, 1e-6), strict=False):
        assert row["mu"] == pytest.approx(weight * last["mu"])
    statement = Statement.read(Path("two/public/privacy.json"))
    assert [row["replace_record"]["mu"] for row in statement["budgets"]][2] == last["mu"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--teachers.num_teachers 20", "where records have personal budgets"),
        ("--teachers.unit group", "where records have personal budgets"),
        ("--teachers.start_from first --label.aggregator NoisyVotes", "records have personal"),
        pytest.param("--teachers.fit steps", "where records have personal", marks=pytest.mark.slow),
        ("--label.aggregator Rounds", "ScoreVotes of records that have personal budgets"),
        ("--label.target_epsilon 3", "target_epsilon <= 2, the largest budget"),
        (
            "--label.target_epsilon null --label.aggregator ScoreVotes"
            " --label.aggregator.multiplier_scores 9",
            "for its records",
        ),
        ("--label.max_teachers_per_unit 2", "max_teachers_per_unit = 1 in a ledger of"),
        ("--label.target_epsilon 2 --label.max_epsilon 1", "target_epsilon <= 1"),
        ("--data.init_args.budgets [0.5,1]", "a budget among 0.5, 1 in column `budget`"),
        ("--data.init_args.budgets [1,0.5,2]", "budgets that ascend"),
    ],
)
def test_what_cannot_be_weighed_is_refused_before_any_work(
    words: str, message: str, table: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    if "steps" in words:
        words += " --teachers.num_teachers 10 --teachers.num_steps 4 --teachers.batch_size 8 --teachers.network pate.models.Linear"
    before = set(Path().rglob("*"))
    assert cli.main([*table, *words.split()]) in (2, "2")
    error = capsys.readouterr().err
    assert re.search(message, error) and len(error.splitlines()) == 1
    assert set(Path().rglob("*")) == before


def test_score_votes_without_weights_are_refused_for_records_with_budgets(table: list[str]) -> None:
    """Another way to the votes, such as a `Pipeline`, meets the same refusals."""
    data = NumberTable(Path("table.csv"), labels=["gout", "asthma"], budgets=list(BUDGETS))
    pipeline = pate.Pipeline("mine", data)
    with pytest.raises(ValueError, match="where records have personal budgets"):
        pipeline.fit_teachers(pate.ClosedFormPlan(num_teachers=10))
    pipeline.fit_teachers(pate.ClosedFormPlan())
    pipeline.vote()
    given = pate.aggregators.ScoreVotes(multiplier_scores=200.0)
    released = pipeline.label(pate.LabelSettings(given, delta=1e-6))
    assert released.statement["aggregator"]["class_path"] == "pate.aggregators.PersonalVotes"
    other = pate.aggregators.PersonalVotes(
        multiplier_scores=200.0, budgets=(0.4, 1.0, 2.0), delta=1e-6
    )
    with pytest.raises(ValueError, match=r"the budgets .* of the records"):
        pate.Pipeline("mine", overwrite=True).label(pate.LabelSettings(other, delta=1e-6))


def test_init_takes_the_list_and_never_reads_it_off_the_records(
    table: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["init", "mine", "--data", "table.csv"]) == 2
    assert "`budgets`, the list of personal budgets in column `budget`" in capsys.readouterr().err
    assert cli.main(["init", "mine", "--data", "table.csv", "--budgets", "[0.5,1,2]"]) == 0
    described = Path("mine/data.yaml").read_text()
    assert "    # From --budgets.\n    budgets: [0.5, 1.0, 2.0]\n" in described
    assert "- budget" not in described
    assert cli.main(["run", "mine", "--dry_run"]) == 0
    assert "by PersonalVotes with" in capsys.readouterr().out
    words = ["init", "other", "--kind", "folder", "--data", ".", "--budgets", "[1,2]"]
    assert cli.main(words) == 2


def test_imported_votes_know_no_budgets(table: list[str]) -> None:
    source = NumberTable(Path("table.csv"), labels=["gout", "asthma"], budgets=list(BUDGETS))
    ids = source.load(Role.PUBLIC).ids
    ballots = np.ones((len(ids), 20, 2), dtype=np.uint8)
    votes = pate.NamedVotes(ids=ids, label_names=("gout", "asthma"), ballots=ballots)
    settings = pate.LabelSettings(pate.NoisyVotes(sigma_votes=5.0), delta=1e-6)
    with pytest.raises(ValueError, match="no `budgets` of data whose votes are imported"):
        pate.label(votes, settings, run="mine", data=Path("recipe/data.yaml"))
    assert not Path("mine").exists()


def test_weights_of_records_without_budgets_are_refused_before_they_are_paid_for(
    table: list[str],
) -> None:
    data = NumberTable(
        Path("table.csv"), labels=["gout", "asthma"], columns=["x", "y", "z"], budgets=[0.5, 1, 2]
    )
    text = Path("table.csv").read_text().replace("budget", "note", 1)
    Path("plain.csv").write_text(text)
    plain = NumberTable(Path("plain.csv"), labels=["gout", "asthma"], columns=["x", "y", "z"])
    votes = pate.aggregators.PersonalVotes(multiplier_scores=200.0, budgets=(1.0, 2.0), delta=1e-6)
    rounds = pate.Rounds(rounds=(votes, votes))
    for name, source, asked in (
        ("one", plain, votes),
        ("two", plain, rounds),
        ("three", data, rounds),
        ("four", data, votes),
    ):
        pipeline = pate.Pipeline(name, source)
        pipeline.fit_teachers(pate.ClosedFormPlan())
        pipeline.vote()
        with pytest.raises(ValueError, match="budgets"):
            pipeline.label(pate.LabelSettings(asked, delta=1e-6))
    for ledger in Path().glob("*.ledger.sqlite"):
        assert not read_ledger(ledger).entries


def test_weights_of_records_without_budgets_are_refused_before_any_work(
    table: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for file, old, new in (
        ("table.csv", "budget", "note"),
        ("recipe/data.yaml", "budgets: [0.5, 1, 2]", "columns: [x, y, z]"),
    ):
        Path(file).write_text(Path(file).read_text().replace(old, new, 1))
    before = set(Path().rglob("*"))
    weighing = "--label.aggregator PersonalVotes --label.aggregator.budgets [1,2]"
    assert cli.main([*table, *LABEL, *weighing.split()]) == 2
    assert "records with personal budgets for PersonalVotes" in capsys.readouterr().err
    assert set(Path().rglob("*")) == before
