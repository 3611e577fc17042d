"""Mutants: small faults in a copy of the package, one by one, and the tests that notice them.

    python -m scripts.mutants reach REACH [--part 0 2]
    python -m scripts.mutants try REACH --output KILLS [--num 300] [--seed 0] [--part 0 2] [--all_killers]
    python -m scripts.mutants read KILLS [KILLS ..]
    python -m scripts.mutants deliberate REACH

A mutant swaps an operator, a comparison, a constant or a function such as `min` at a place drawn
from core, labeling and networks, types and messages left out; or it is one of
`deliberate_faults.tsv`, faults that would break the guarantee.

`reach` runs each file of tests in a process of its own and records the functions that it enters:
a file reaches a mutant if it enters the function around it, or anything of the module for what
runs at import. Files that start other processes reach everything. `try` runs the files that reach
a mutant, fast tests first, and adds a line of JSON for each mutant to KILLS: until the first test
that fails, or, with `--all_killers`, all of them (the kill matrix, a night on many cores). The
same command goes on after an interruption. `read` prints how many of the mutants that any test
kills the fast tests kill, and the survivors, to be read: many are equivalent.
"""

import argparse
import ast
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).parents[1]
ZONES = ("pate/_core", "pate/_labeling", "pate/_networks")
FAULTS = Path(__file__).with_name("deliberate_faults.tsv")
STARTS = re.compile(r"\bsubprocess\b|\bstart\(|multiprocessing|\bfork\b")
HEAVY = ("scipy.stats", "torch", "pytorch_lightning", "mpmath", "pytest", "jsonargparse")
SECONDS = (
    30  # of a processor: a mutant under which one test takes longer is killed, as a hang is noticed
)
PATIENCE = 1200  # seconds, for tests that wait and compute nothing
SWAPS: dict[type[ast.AST], str] = {
    **{ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "=="},
    **{
        ast.Add: "-",
        ast.Sub: "+",
        ast.Mult: "/",
        ast.Div: "*",
        ast.FloorDiv: "*",
        ast.Pow: "*",
        ast.Mod: "*",
    },
    **{ast.And: "or", ast.Or: "and", ast.BitAnd: "|", ast.BitOr: "&"},
}
NAMES = {
    "min": "max",
    "max": "min",
    "minimum": "maximum",
    "maximum": "minimum",
    "ceil": "floor",
    "floor": "ceil",
}
NAMES |= {
    "any": "all",
    "all": "any",
    "log1p": "log",
    "expm1": "exp",
    "argmin": "argmax",
    "argmax": "argmin",
}


class Mutant(NamedTuple):
    """A replacement in a file."""

    path: str
    start: int
    end: int
    text: str

    def show(self) -> str:
        """The line, as it was and as it is."""
        source = source_of(self.path)
        line = source.count("\n", 0, self.start) + 1
        first, last = source.rfind("\n", 0, self.start) + 1, source.find("\n", self.end)
        changed = source[first : self.start] + self.text + source[self.end : last]
        return f"{self.path}:{line}\n    - {source[first:last].strip()}\n    + {changed.strip()}"

    def enclosing(self) -> str:
        """The innermost function around it, as path:line of its start; line 0 outside of all."""
        source = source_of(self.path)
        line = source.count("\n", 0, self.start) + 1
        first = 0
        for node in ast.walk(ast.parse(source)):
            # defaults and decorators run at import
            if isinstance(node, ast.FunctionDef) and (
                node.body[0].lineno <= line <= (node.end_lineno or 0)
            ):
                start = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                first = max(first, start)
        return f"{self.path}:{first}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Record what tests reach, try mutants on them, or read what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("reach", "try", "read", "deliberate"))
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--output", type=Path, help="where `try` adds a line for each mutant")
    parser.add_argument("--num", type=int, default=300, help="how many are drawn")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--part", type=int, nargs=2, default=(0, 1), help="0 2 and 1 2 are halves")
    parser.add_argument("--all_killers", action="store_true", help="do not stop at the first")
    options = parser.parse_args(arguments)
    part, num_parts = options.part
    if options.action == "read":
        print(summary([json.loads(line) for file in options.files for line in file.open()]))
    elif options.action == "reach":
        with copied():
            record_reach(test_files()[part::num_parts], options.files[0].absolute())
    elif options.action == "try":
        drawn = list(enumerate(draw(options.num, options.seed), 1))[part::num_parts]
        reach = [json.loads(line) for line in options.files[0].open()]
        done = options.output.read_text().splitlines() if options.output.exists() else []
        tried = {json.loads(line)["number"] for line in done}
        with options.output.absolute().open("a") as output, copied():
            for number, mutant in drawn:
                if number not in tried:
                    kills = try_one(mutant, reach, every=options.all_killers)
                    output.write(json.dumps({"number": number, **kills}) + "\n")
                    output.flush()
    else:
        reach = [json.loads(line) for line in options.files[0].open()]
        with copied():
            for mutant in deliberate_faults():
                kills = try_one(mutant, reach, every=False)
                print(f"{'killed' if kills['fast'] else 'SURVIVED'} {kills['mutant']}", flush=True)


def summary(kills: list[dict[str, Any]]) -> str:
    """Return the share that fast tests kill of what any test kills, and the survivors.

    >>> print(summary([{"fast": ["a"], "slow": [], "mutant": "x"}, {"fast": [], "slow": ["b"], "mutant": "y"}]))
    of 2 mutants 2 were killed: 1 by fast tests (50.0%), 1 by slow tests only
    y, by b
    """
    killed = [kill for kill in kills if kill["fast"] or kill["slow"]]
    missed = [kill for kill in killed if not kill["fast"]]
    num_fast = len(killed) - len(missed)
    lines = [
        f"of {len(kills)} mutants {len(killed)} were killed: {num_fast} by fast tests "
        f"({num_fast / max(1, len(killed)):.1%}), {len(missed)} by slow tests only"
    ]
    lines += [f"{kill['mutant']}, by {kill['slow'][0]}" for kill in missed]
    lines += [f"survived: {kill['mutant']}" for kill in kills if kill not in killed]
    return "\n".join(lines)


def draw(num: int, seed: int) -> list[Mutant]:
    """Return mutants drawn from all places of the three zones."""
    everything = [mutant for path in modules() for mutant in mutants_of(path)]
    drawn = np.random.default_rng(seed).permutation(len(everything))[:num]
    return [everything[i] for i in drawn]


def modules() -> list[str]:
    """Return the paths of the modules, sorted; contracts are tests and left out."""
    paths = (path for zone in ZONES for path in (ROOT / zone).rglob("*.py"))
    return sorted(str(path.relative_to(ROOT)) for path in paths if "testing" not in path.parts)


def test_files() -> list[str]:
    """Return the paths of the files of tests."""
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))


def deliberate_faults() -> list[Mutant]:
    """Return the faults of the file of faults."""
    rows = [line.split("\t") for line in FAULTS.read_text().splitlines()[1:]]
    return [deliberate(*row) for row in rows]


@cache
def source_of(path: str) -> str:
    """Return a module's source, as it is when it is first asked for."""
    return (ROOT / path).read_text()


def deliberate(path: str, old: str, new: str) -> Mutant:
    """Return a deliberate fault; its place must be unique."""
    source = source_of(path)
    if source.count(old) != 1:
        raise SystemExit(f"{path} has {source.count(old)} times {old!r}")
    start = source.index(old)
    return Mutant(path, start, start + len(old), new)


def mutants_of(path: str) -> Iterator[Mutant]:
    """Yield all mutants of a module."""
    source = source_of(path)
    begins = [0]
    for line in source.splitlines(keepends=True):
        begins.append(begins[-1] + len(line))

    def span(node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return begins[node.lineno - 1] + node.col_offset, begins[
            node.end_lineno - 1
        ] + node.end_col_offset

    def swap(left: ast.expr, right: ast.expr, operator: ast.AST) -> Iterator[Mutant]:
        start, end = span(left)[1], span(right)[0]
        between = source[start:end]
        sign = between.strip(" ()\n")
        if type(operator) in SWAPS and between.count(sign) == 1 and "#" not in between:
            at = start + between.index(sign)
            yield Mutant(path, at, at + len(sign), SWAPS[type(operator)])

    tree = ast.parse(source)
    words = {
        id(inner) for node in ast.walk(tree) for part in _words(node) for inner in ast.walk(part)
    }
    for node in ast.walk(tree):
        if id(node) in words:
            continue
        if isinstance(node, ast.BinOp):
            yield from swap(node.left, node.right, node.op)
        elif isinstance(node, ast.Compare) and len(node.ops) == 1:
            yield from swap(node.left, node.comparators[0], node.ops[0])
        elif isinstance(node, ast.BoolOp):
            yield from swap(node.values[0], node.values[1], node.op)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
            start = span(node)[0]
            yield Mutant(
                path, start, start + len("-" if isinstance(node.op, ast.USub) else "not "), ""
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
            value = node.value
            new = (
                (not value)
                if isinstance(value, bool)
                else value + 1
                if isinstance(value, int)
                else 2 * value or 1.0
            )
            yield Mutant(path, *span(node), repr(new))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            end = span(node.func)[1]
            if name == "sqrt" and len(node.args) == 1:
                yield Mutant(path, *span(node.func), "")
            elif name in NAMES:
                yield Mutant(path, end - len(name), end, NAMES[name])


def _words(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the descriptive parts of a node: types, and texts of errors."""
    yield from (
        part
        for name in ("annotation", "returns")
        if (part := getattr(node, name, None)) is not None
    )
    if isinstance(node, ast.ClassDef):  # whether a dataclass is frozen
        yield from node.decorator_list
    if isinstance(node, ast.Raise | ast.JoinedStr):
        yield node
    elif (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "expect"
    ):
        yield from (*node.args[1:], *node.keywords)


class copied:  # noqa: N801
    """A copy of the project, as the working directory and in front of the import path."""

    def __enter__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        tree = Path(self.folder.name, "tree")
        skipped = shutil.ignore_patterns(".git", ".venv*", ".mypy_cache", "site", "runs", "data")
        shutil.copytree(ROOT, tree, ignore=skipped)
        for folder in ("runs", "data"):  # those of the package and the tests are no outputs
            for place in ROOT.glob(f"*/**/{folder}"):
                shutil.copytree(place, tree / place.relative_to(ROOT), dirs_exist_ok=True)
        os.chdir(tree)
        os.environ["PYTHONPATH"] = str(tree)
        sys.path[:] = [str(tree), *(entry for entry in sys.path if entry not in ("", str(ROOT)))]
        for name in [name for name in sys.modules if name.partition(".")[0] in ("pate", "tests")]:
            del sys.modules[name]
        for name in HEAVY:  # once, for all children
            __import__(name)

    def __exit__(self, *_: object) -> None:
        os.chdir(ROOT)
        self.folder.cleanup()


def record_reach(files: Sequence[str], output: Path) -> None:
    """Add a line for each file of tests: the functions that it enters, and its seconds."""
    known = {json.loads(line)["file"] for line in output.open()} if output.exists() else set()
    for file in files:
        if file in known:
            continue
        begun = time.monotonic()
        with tempfile.NamedTemporaryFile("r") as found:
            run([file], "slow or not slow", _Reach(found.name), patience=PATIENCE)
            entered = found.read().split()
        row = {
            "file": file,
            "seconds": time.monotonic() - begun,
            "starts": bool(STARTS.search(Path(file).read_text())),
            "entered": entered,
        }
        with output.open("a") as lines:
            lines.write(json.dumps(row) + "\n")
        print(f"{file}: {len(entered)} functions in {row['seconds']:.0f} s", flush=True)


def try_one(mutant: Mutant, reach: list[dict[str, Any]], *, every: bool) -> dict[str, Any]:
    """Return the fast and the slow tests that notice a mutant; the first only, unless `every`."""
    place, stem = mutant.enclosing(), Path(mutant.path).stem
    rows = [
        row
        for row in reach
        if place in row["entered"]
        or (place.endswith(":0") and any(e.startswith(mutant.path) for e in row["entered"]))
    ]
    rows.sort(key=lambda row: (f"test_{stem}." not in row["file"], row["seconds"]))
    others = [row for row in reach if row["starts"] and row not in rows]
    files = [row["file"] for row in [*rows, *others] if Path(row["file"]).exists()]
    begun, kills = time.monotonic(), dict[str, list[str]](fast=[], slow=[])
    for speed, marked in (("fast", "not slow"), ("slow", "slow")):
        for file in files:
            if (kills["fast"] or kills["slow"]) and not every:
                break
            kills[speed] += failing(file, marked, mutant, every=every)
    state = "killed" if kills["fast"] else "slow" if kills["slow"] else "SURVIVED"
    print(f"{state} in {time.monotonic() - begun:.0f} s  {mutant.show()}", flush=True)
    return {"mutant": mutant.show(), **kills}


def failing(file: str, marked: str, mutant: Mutant, *, every: bool) -> list[str]:
    """Return the tests of a file that fail, or take too long, with a mutant in the copy."""
    path, source = Path(mutant.path), Path(mutant.path).read_text()
    path.write_text(source[: mutant.start] + mutant.text + source[mutant.end :])
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        compiled.unlink()
    with tempfile.NamedTemporaryFile("r") as found:
        status = run([file], marked, _Killers(found.name), *([] if every else ["-x"]))
        killers = found.read().splitlines()
    path.write_text(source)
    return killers or ([file] if status not in (0, 5) else [])  # 5: no such test


def run(
    files: Sequence[str], marked: str, plugin: Any, *words: str, patience: int = PATIENCE
) -> int:
    """Run tests in a child and return its status."""
    child = os.fork()
    if not child:
        _test([*files, "-m", marked, *words], plugin)
    limit = time.monotonic() + patience
    while time.monotonic() < limit:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return 1


class _Killers:
    """Writes the tests that fail, and ends the process in a test that computes for too long."""

    def __init__(self, output: str) -> None:
        self.output = output

    def pytest_runtest_logstart(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            with open(self.output, "a") as output:
                output.write(report.nodeid + "\n")

    def pytest_collectreport(self, report: Any) -> None:
        self.pytest_runtest_logreport(report)


class _Reach:
    """Writes the functions of the package that tests enter, as path:line."""

    def __init__(self, output: str) -> None:
        self.output, self.entered = output, set[Any]()

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            self.entered.add(frame.f_code)

    def pytest_sessionstart(self) -> None:
        threading.setprofile(self.profile)
        sys.setprofile(self.profile)

    def pytest_sessionfinish(self) -> None:
        sys.setprofile(None)
        threading.setprofile(None)
        here = os.getcwd() + os.sep
        inside = [code for code in self.entered if code.co_filename.startswith(here + "pate")]
        lines = {
            f"{code.co_filename.removeprefix(here)}:"
            f"{0 if code.co_name == '<module>' else code.co_firstlineno}"
            for code in inside
        }
        Path(self.output).write_text("\n".join(sorted(lines)))


def _test(arguments: Sequence[str], plugin: Any) -> None:
    os.setpgid(0, 0)
    sys.dont_write_bytecode = True  # a fault must not outlive its run
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    silent = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silent, stream)
    import pytest

    words = [*arguments, "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    # what Lightning imports imports anyio, which is a plug-in of pytest too
    words += ["-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning"]
    status = 1
    try:
        status = int(pytest.main(words, plugins=[plugin]))
    finally:  # what is raised here must not go on, as the parent, to remove the copy
        os._exit(status)


if __name__ == "__main__":
    main()
