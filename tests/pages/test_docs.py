"""What README and docs show is run, and what is shipped works."""

import json
import re
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

import models
import pate
from pate import cli
from pate._labeling.commands.table import command_of, commands
from pate._labeling.data.records import Role
from pate._labeling.runs.run import Run, load_data
from pate._labeling.stages.student import WEIGHTS, Solved
from pate.data import CelebA
from tests.networks.student.test_carried import carried, student_on

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CARDS = sorted((DOCS / "mechanisms").glob("*.md"))
PAGES = sorted(
    [
        *(ROOT / "README.md", ROOT / "CONTRIBUTING.md"),
        *(*DOCS.glob("*.md"), *(DOCS / "appendix").glob("*.md"), *CARDS),
    ]
)
MOST_WORDS = 28_000
"""The most words that the navigation leads to. Lower it when pages get shorter."""


@pytest.fixture
def left(finished: Path, faces: Path, tmp_path: Path) -> Path:
    """A folder with what runs left, by the names that the pages use: two students, and new samples
    for them."""
    source = CelebA(faces, size=12)
    carried(
        tmp_path / "runs" / "faces" / "public" / "student",
        student_on(source, models.Linear),
        "pate.models.Linear",
        source,
    )
    (tmp_path / "runs" / "table").symlink_to(finished)
    (tmp_path / "photos").mkdir()
    shutil.copy(faces / "img_align_celeba" / "000241.jpg", tmp_path / "photos")
    np.savez(tmp_path / "new.npz", X=np.zeros((3, 6)))
    return tmp_path


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.stem
)
def test_python_blocks_run(page: Path, left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page share their names, as a reader would type them."""
    monkeypatch.chdir(left)
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks(page, "python"):
        exec(compile(block, page.name, "exec"), names)


COMMANDS = [
    (page.stem, line.split("#")[0].strip())
    for page in PAGES
    for block in blocks(page, "console")
    for line in block.splitlines()
    if line.removeprefix("$ ").startswith("pate ")
]


def without_data(words: list[str]) -> list[str]:
    """Return the words of `pate init` for data that come later."""
    place = words.index("--data") if "--data" in words else len(words)
    return words[:place] + words[place + 2 :]


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_commands_are_understood(
    page: str,
    line: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """Those that take long are parsed only; `test_shipped_configs` runs the recipes."""
    words = shlex.split(line.removeprefix("$ "))[1:]
    if words[0] == "account":
        assert cli.main(words) == 0
        assert "epsilon" in capsys.readouterr().out
        return
    if words[0] == "predict":
        monkeypatch.chdir(request.getfixturevalue("left"))
        assert cli.main(words) == 0
        return
    if "--neighbor" in words:
        monkeypatch.chdir(tmp_path)
        assert cli.main(words) == 2 and "`pate label` to be finished" in capsys.readouterr().err
        return
    if words[0] == "audit":
        assert cli.main([*words, "--print_config"]) == 0
        assert capsys.readouterr().out.startswith("# NOT PRIVATE")
        return
    if words[0] == "run":
        monkeypatch.chdir(tmp_path)
        for _, recipe in (
            command
            for command in COMMANDS
            if command[0] == page and f"init {words[1]} " in command[1]
        ):
            assert cli.main(without_data(shlex.split(recipe.removeprefix("$ "))[1:])) == 0
        capsys.readouterr()
        assert (
            cli.main([*words, *(["--print_config"] if "--print_config" not in words else [])]) == 0
        )
        assert capsys.readouterr().out.count("\n---\n") == 3
        return
    if words[0] == "init":
        monkeypatch.chdir(tmp_path)
        assert cli.main(words) == 2 and "missing=" in capsys.readouterr().err
        assert cli.main(without_data(words)) == 0
        return
    name = command_of(words)
    assert name is not None
    given = words[len(name.split()) :]
    with pytest.raises(SystemExit) as stopped:
        cli.main([*name.split(), *given, "--print_config"])
    assert stopped.value.code == 0


def test_sentences_speak_of_commands_that_exist() -> None:
    names = tuple(f"{name} " for name in commands())
    for page in PAGES:
        for spoken in re.findall(r"`pate\s+([a-z][^`]*)`", page.read_text()):
            command = " ".join(spoken.split()) + " "
            groups = (name for name in names if name.startswith(command))  # such as `pate ledger`
            assert command.startswith(names) or any(groups), (page, spoken)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def pages_of(navigation: object) -> Iterator[str]:
    if isinstance(navigation, str):
        yield navigation
    elif isinstance(navigation, list | dict):
        inner = navigation.values() if isinstance(navigation, dict) else navigation
        for each in inner:
            yield from pages_of(each)


def words_of(page: Path) -> int:
    """Return the words of a page, its tables and code included, or those of a notebook's cells."""
    if page.exists():
        return len(page.read_text().split())
    cells = json.loads(page.with_suffix(".ipynb").read_text())["cells"]
    return sum(len("".join(cell["source"]).split()) for cell in cells)


def test_the_pages_of_the_navigation_are_short() -> None:
    """Proofs and measurements belong in the appendix, which is linked and not in the navigation."""
    text = (ROOT / "mkdocs.yml").read_text()
    pages = list(pages_of(yaml.safe_load(text[text.index("\nnav:") :])["nav"]))
    words = {page: words_of(DOCS / page) for page in pages}
    assert len(words) == len(pages) > 40
    assert sum(words.values()) <= MOST_WORDS, words


def test_the_readme_has_at_most_400_words_outside_of_code() -> None:
    text = (ROOT / "README.md").read_text()
    words = len(re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE).split())
    assert 200 < words <= 400


def test_the_network_of_the_front_pages_is_that_of_the_tutorial() -> None:
    """Which runs it, with these options."""
    network, lines = (
        re.compile(rf"^```{fence}\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
        for fence in ('python title="cnn.py"', "sh")
    )
    tutorial = (DOCS / "tutorials" / "pictures.md").read_text()
    for page in (ROOT / "README.md", DOCS / "index.md"):
        text = page.read_text()
        assert network.findall(text) == network.findall(tutorial) != []
        options = set(re.findall(r"--[\w.]+", lines.findall(text)[1]))
        assert len(options) > 8 and options <= set(re.findall(r"--[\w.]+", tutorial))


def test_the_picture_and_the_table_choose_among_the_same_aggregators() -> None:
    page = (ROOT / "docs" / "which.md").read_text()
    rows = re.findall(r"^\| \[?`(\w+)`", page.partition("## Scores")[0], flags=re.MULTILINE)
    picture = (ROOT / "docs" / "images" / "choice.svg").read_text()
    answers = re.findall(r"→ (.*)</text>", picture)
    assert [name for answer in answers for name in re.findall(r"[A-Z]\w+", answer)] == rows
    assert len(rows) == 7 and all(hasattr(pate.aggregators, name) for name in rows)


PARTS = ["Algorithm", "Theorem", "Example"]


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.stem)
def test_a_card_has_all_parts(card: Path) -> None:
    """Pseudo-code, a theorem with its proof and displayed costs, a gap, an example, and the paper."""
    text = card.read_text()
    parts = re.findall(r"^## (.*)", text, flags=re.MULTILINE)
    assert [part for part in parts if part not in ("Fixed k", "Gap and law")][:3] == PARTS
    assert parts[-1] in ("The paper", "The papers")
    assert "**Question.**" in text and "**Proof.**" in text and " ∎" in text
    assert all(blocks(card, language) for language in ("text", "math", "python"))
    assert f"mechanisms/{card.name}" in (DOCS / "mechanisms.md").read_text()


def test_every_dependency_is_explained() -> None:
    text = (ROOT / "pyproject.toml").read_text().split("[tool.")[0]
    said = (ROOT / "CONTRIBUTING.md").read_text()
    for name in re.findall(
        r'^    "([A-Za-z][\w-]*)', text[text.index("dependencies = [") :], flags=re.MULTILINE
    ):
        assert name in said, name


def test_the_versions_of_a_page_are_those_of_the_package() -> None:
    """All bounds but the ones of what builds, documents or tests the package itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras, left = project["optional-dependencies"], ("docs", "dev", "nightly")
    bounds = [f"python{project['requires-python']}", *project["dependencies"]]
    bounds += [each for extra, named in extras.items() if extra not in left for each in named]
    (block,) = blocks(DOCS / "appendix" / "reliability.md", "text")
    assert block.splitlines() == [re.sub(r"\[.*\]", "", each) for each in bounds]


NOISELESS = [
    "--label.aggregator.init_args.scale_gap=0.1",
    "--label.aggregator.init_args.sigma_test=0.1",
]
LOUD = ["--label.target_epsilon=1e5", "--data.init_args.size=12"]
SMALL = {
    "faces": [*LOUD, "--teachers.num_teachers=200"],
    "faces_stable_topk": [*LOUD, "--teachers.num_teachers=12"],
    # some steps learn a band of the pictures; eight teachers who agree are three votes from a tie, and more
    "celeba": [
        *("--label.target_epsilon=1e3", "--data.init_args.size=16"),
        *("--student.trainer.max_epochs=2", "--student.trainer.enable_progress_bar=false"),
    ],
    "celeba_networks": [
        *NOISELESS,
        *("--teachers.num_teachers=8", "--teachers.num_steps=25"),
        *("--data.init_args.size=16", '--data.init_args.labels=["Bald"]'),
        *("--teachers.network.init_args.weights=null", "--student.trainer.max_epochs=1"),
        "--student.model.network.init_args.weights=null",
        "--student.trainer.enable_progress_bar=false",
    ],
    # twelve teachers start from a release that hardly has noise
    "faces_networks": [
        *("--label.target_epsilon=1e5", "--data.init_args.size=12"),
        *("--teachers.num_teachers=12", "--student.trainer.max_epochs=5"),
    ],
}


@pytest.mark.parametrize(
    "name",
    [
        "faces",
        # teachers of pictures that start from a release
        pytest.param("faces_stable_topk", marks=pytest.mark.slow),
        pytest.param("faces_networks", marks=pytest.mark.slow),
        pytest.param("celeba", marks=pytest.mark.slow),
        pytest.param("celeba_networks", marks=pytest.mark.slow),
    ],
)
def test_shipped_configs(
    name: str, faces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A recipe runs as it is shipped but for sizes, and for noise that twelve teachers can be heard
    through."""
    # the same teachers in every session: whether they agree is not left to chance
    private = tmp_path / "run" / "private"
    private.mkdir(parents=True, mode=0o700)
    (private / "partition.json").write_text(json.dumps({"key": "5e" * 32}))
    words = [
        *(
            "run",
            f"configs/{name}",
            "--run",
            str(tmp_path / "run"),
            # the faces are those of other tests, which spend too
            f"--ledger={tmp_path / 'ledger.sqlite'}",
            f"--data.init_args.root={faces}",
        ),
        *("--label.num_queries=20", "--label.max_epsilon=null", *SMALL[name]),
    ]
    assert cli.main(words) == 0
    out = capsys.readouterr().out
    assert "private student" in out
    if name == "faces":
        require_carried(tmp_path / "run", faces)


def require_carried(run: Path, faces: Path) -> None:
    """What left the run says of the pictures what the student in its run says of the test set."""
    test = load_data(Run(run)).records(Role.TEST)
    solved = Solved.read(run / "public" / "student" / WEIGHTS, "accuracy")
    expected = solved.predictor.decided(test.features[np.arange(len(test))])[0]
    student = pate.load_student(run / "public" / "student" / "model")
    paths = [faces / "img_align_celeba" / str(name) for name in test.ids]
    assert np.abs(student.predict_proba(paths) - expected).max() < 1e-6 and np.ptp(expected) > 0.5


def test_every_recipe_is_whole() -> None:
    recipes = {path for path in (ROOT / "configs").iterdir() if path.name != "studies"}
    assert len(recipes) > 5
    for recipe in recipes:
        for part in ("data", "teachers", "label", "student"):
            assert yaml.safe_load((recipe / f"{part}.yaml").read_text()), recipe
