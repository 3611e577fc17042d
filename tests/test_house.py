"""The house stays as it is planned: few parameters, short functions, no circles."""

import ast
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import pate

ROOT = Path(pate.__file__).parents[1]
FILES = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for package in ("pate", "models", "scripts")
    for path in sorted((ROOT / package).rglob("*.py"))
}

TREES = {file: ast.parse(text) for file, text in FILES.items()}

MOST_PARAMETERS = 8
MOST_STATEMENTS = 45

# configurations, Lightning's command line and scikit-learn take settings from these constructors
MANY_PARAMETERS = {
    "pate/_labeling/data/source.py:Arrays.__init__",
    "pate/_labeling/estimator.py:PateClassifier.__init__",
    "pate/_labeling/commands/stages.py:predict",
    "pate/_core/accounting/ledger.py:Ledger.reserve",
    "pate/_labeling/data/tables.py:NumberTable.__init__",
    "pate/_labeling/data/pictures.py:PictureTable.__init__",
    "pate/_labeling/data/tables.py:TextTable.__init__",
    "pate/_networks/student/training.py:Student.__init__",
}
# three fields or fewer, or results that only the package makes
GUARDED = (
    *("pate/_core/accounting/", "pate/_labeling/aggregators/", "pate/_core/mechanisms/"),
    *("pate/_core/transaction.py", "pate/_labeling/release/"),
    *("pate/_labeling/linear.py", "pate/_labeling/votes/voters.py"),
    "pate/_networks/teachers/plan.py",
)
# in a base, in a subclass, under another name
ARRAYS_ELSEWHERE = {"Voters", "GroupedVoters", "StatedLabels", "_Losses"}
TAKEN_BY_PLACE = {
    *("LedgerSnapshot", "LabelSettings", "LazyReal", "PendingRelease"),
    *("Directions", "Geometry", "LinearStudent", "PartitionedRecords", "_Losses"),
}


def functions(
    tree: ast.AST, prefix: str = ""
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name, node
        name = (
            f"{prefix}{node.name}."
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            else prefix
        )
        if not isinstance(node, ast.expr):  # which holds no function with a name
            yield from functions(node, name)


def statements(node: ast.AST) -> int:
    """Count the statements within a function, docstrings aside."""
    inner = (each for each in ast.walk(node) if isinstance(each, ast.stmt) and each is not node)
    return sum(
        not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)) for each in inner
    )


def parameters(arguments: ast.arguments) -> int:
    """Count the parameters of a function, ``self`` and ``cls`` aside."""
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    rest = [each for each in (arguments.vararg, arguments.kwarg) if each is not None]
    return len([each for each in named if each.arg not in ("self", "cls")]) + len(rest)


def module_of(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imports(file: str, tree: ast.AST, modules: set[str]) -> set[str]:
    """The modules of the house that a file imports, wherever in it: those inside a function
    count."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} imports by dots"
            # a name that is imported from a package is a module, or something in the package's own
            # module
            found |= {
                f"{node.module}.{alias.name}"
                for alias in node.names
                if f"{node.module}.{alias.name}" in modules
            }
            if any(f"{node.module}.{alias.name}" not in modules for alias in node.names):
                found.add(str(node.module))
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & modules


def graph_of(files: dict[str, ast.Module]) -> dict[str, set[str]]:
    modules = {module_of(file) for file in files}
    return {module_of(file): imports(file, tree, modules) for file, tree in files.items()}


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Return the modules of a circle of imports, the first of them again at the end; nothing where
    there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


# marks of sentences without a noun, by the number per 10,000 words that is bearable
MOST_PER_10_000 = {r"what": 20, r"(?:that|those) of": 4, r"alone": 2, r"besides?": 2}


@pytest.mark.parametrize("room", ["pate", "docs"])
def test_sentences_have_their_nouns(room: str) -> None:
    """In docstrings and comments, and on pages without their code."""
    if room == "pate":
        texts = [text for file, text in FILES.items() if file.startswith("pate/")]
        prose = [
            part for text in texts for part in re.findall(r'"""(.*?)"""|# ([^\n]*)', text, re.S)
        ]
        words = " ".join(part for parts in prose for part in parts)
    else:
        pages = [page.read_text() for page in (ROOT / "docs").rglob("*.md")]
        words = re.sub(r"```.*?```|`[^`]*`", " ", "\n".join(pages), flags=re.S)
    total = len(re.findall(r"[A-Za-z][A-Za-z'-]*", words))
    assert total > 30_000
    shares = {
        mark: 1e4 * len(re.findall(rf"\b{mark}\b", words, re.IGNORECASE)) / total
        for mark in MOST_PER_10_000
    }
    assert {mark for mark, share in shares.items() if share >= MOST_PER_10_000[mark]} == set()


def test_functions_have_few_parameters() -> None:
    """Settings that belong together travel in a frozen dataclass, whose constructor is written by
    nobody."""
    found = {
        f"{file}:{name}"
        for file, tree in TREES.items()
        for name, node in functions(tree)
        if parameters(node.args) > MOST_PARAMETERS
    }
    assert found == MANY_PARAMETERS


def test_functions_are_short() -> None:
    found = {
        f"{file}:{name}"
        for file, tree in TREES.items()
        if file.startswith("pate/")
        for name, node in functions(tree)
        if statements(node) > MOST_STATEMENTS
    }
    assert found == set()


def test_settings_are_frozen_and_named() -> None:
    """What a mechanism, an event or an aggregator was checked for cannot be changed, or mistaken by
    its place."""
    classes = dataclasses_in(*GUARDED)
    assert {name for name, (flags, _) in classes.items() if "frozen=True" not in flags} == {
        "LazyReal"
    }
    assert {
        name for name, (flags, _) in classes.items() if "kw_only=True" not in flags
    } == TAKEN_BY_PLACE


def test_what_holds_arrays_is_not_compared() -> None:
    """Arrays have no truth value, and so ``==`` of what holds them would raise."""
    classes = dataclasses_in(*GUARDED)
    compared = {
        name for name, (flags, arrays) in classes.items() if arrays and "eq=False" not in flags
    }
    assert compared == set()
    assert {
        name for name, (flags, arrays) in classes.items() if not arrays and "eq=False" in flags
    } == ARRAYS_ELSEWHERE


def dataclasses_in(*places: str) -> dict[str, tuple[str, bool]]:
    """Return the flags of the dataclasses in some files, by name, and whether a field is an
    array."""
    return {
        node.name: (ast.unparse(decorator), any(_holds_array(statement) for statement in node.body))
        for file, tree in TREES.items()
        if file.startswith(places)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for decorator in node.decorator_list
        if ast.unparse(decorator).startswith("dataclass")
    }


def _holds_array(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.AnnAssign):
        return False
    kind = ast.unparse(statement.annotation)
    return "Array" in kind and "ClassVar" not in kind


def test_imports_make_no_circle() -> None:
    assert circle(graph_of(TREES)) == []


@pytest.mark.parametrize("late", [False, True])
def test_a_circle_is_found(late: bool) -> None:
    back = (
        "def name() -> None:\n    from house.room import wall" if late else "from house import room"
    )
    files = {
        "house/__init__.py": "",
        "house/room.py": "import house.door\nwall = 1",
        "house/door.py": back,
    }
    found = circle(graph_of({file: ast.parse(text) for file, text in files.items()}))
    assert found[0] == found[-1]
    assert set(found) == {"house.room", "house.door"}
