"""Mutants: small faults in a copy of the package, one by one, and the tests that notice them.

    python -m scripts.mutants reach REACH [--part 0 2]
    python -m scripts.mutants try REACH --output KILLS [--num 300] [--seed 0] [--part 0 2]
        [--fast | --all_killers]
    python -m scripts.mutants read KILLS [KILLS ..]
    python -m scripts.mutants deliberate REACH

A mutant swaps an operator, a comparison, a constant or a function such as `min` at a place drawn
from core, labeling and networks, types and messages left out; or it is one of
`deliberate_faults.tsv`, faults that would break the guarantee.

`reach` runs each file of tests in a process of its own, under coverage, and records the lines that
each test runs. What a shared fixture runs is reached by all tests of a file that use one. Tests
that start other processes reach everything. A line that runs at import is reached by the tests
that run any line of its module. `try` runs the tests that reach a mutant, fast tests first, and
adds a line of JSON for each mutant to KILLS: until the first test that fails, or, with
`--all_killers`, all of them (the kill matrix, a night on many cores). With `--fast` it leaves the
slow tests to a later `try`. The same command goes on after an interruption. `read` prints how many
of the mutants that any test kills the fast tests kill, and the survivors, to be read: many are
equivalent.
"""

import argparse
import ast
import inspect
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).parents[1]
ZONES = ("pate/_core", "pate/_labeling", "pate/_networks")
FAULTS = Path(__file__).with_name("deliberate_faults.tsv")
STARTS = re.compile(r"\bsubprocess\b|\bstart\(|multiprocessing|\bfork\b|\bkill_at\(")
CACHES = re.compile(r"^@(functools\.)?(lru_)?cache", re.MULTILINE)
HEAVY = ("scipy.stats", "torch", "pytorch_lightning", "mpmath", "pytest", "jsonargparse")
HEAVY += ("hypothesis", "coverage")
# a mutant under which one test takes longer than this, and than ten times as long as without, is
# killed, as a hang is noticed: seconds of a processor
SECONDS = 5.0
PATIENCE = 1800  # seconds, for tests that wait and compute nothing
BATCHES = {"fast": (2.0, 20.0, 1e9), "slow": (20.0, 1e9)}  # seconds of the tests of each process
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

    def lines(self) -> range:
        """The lines of the innermost statement around it; of a compound one, of its head."""
        source = source_of(self.path)
        line = source.count("\n", 0, self.start) + 1
        around = range(line, line + 1)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.stmt):
                body = getattr(node, "body", [])
                end = body[0].lineno - 1 if body else node.end_lineno or 0
                first = min([node.lineno, *(n.lineno for n in getattr(node, "decorator_list", ()))])
                if first <= line <= end:
                    around = range(first, end + 1)
        return around


class Test(NamedTuple):
    """A test that reaches a mutant."""

    file: str
    name: str
    seconds: float
    slow: bool
    starts: bool


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
    parser.add_argument("--fast", action="store_true", help="leave the slow tests for later")
    parser.add_argument("--all_killers", action="store_true", help="do not stop at the first")
    options = parser.parse_args(arguments)
    part, num_parts = options.part
    if options.action == "read":
        print(summary([kill for file in options.files for kill in kills_of(file).values()]))
    elif options.action == "reach":
        with copied():
            record_reach(test_files()[part::num_parts], options.files[0].absolute())
    else:
        reach = [json.loads(line) for line in options.files[0].open()]
        with copied():
            if options.action == "try":
                drawn = list(enumerate(draw(options.num, options.seed), 1))[part::num_parts]
                try_all(drawn, reach, options.output, fast=options.fast, every=options.all_killers)
            else:
                for mutant in deliberate_faults():
                    kills = try_one(mutant, reach, ("fast",))
                    state = "killed" if kills["fast"] else "SURVIVED"
                    print(f"{state} {kills['mutant']}", flush=True)


def kills_of(file: Path) -> dict[int, dict[str, Any]]:
    """Return the mutants that were tried, by number; the last line of each."""
    rows = [json.loads(line) for line in file.open()] if file.exists() else []
    return {row["number"]: row for row in rows}


def summary(kills: list[dict[str, Any]]) -> str:
    """Return the share that fast tests kill of what any test kills, and the survivors.

    >>> print(summary([{"fast": ["a"], "slow": [], "mutant": "x"}, {"fast": [], "slow": ["b"], "mutant": "y"}]))
    of 2 mutants 2 were killed: 1 by fast tests (50.0%), 1 by slow tests only
    y, by b
    """
    killed = [kill for kill in kills if kill["fast"] or kill.get("slow")]
    missed = [kill for kill in killed if not kill["fast"]]
    num_fast = len(killed) - len(missed)
    lines = [
        f"of {len(kills)} mutants {len(killed)} were killed: {num_fast} by fast tests "
        f"({num_fast / max(1, len(killed)):.1%}), {len(missed)} by slow tests only"
    ]
    lines += [f"{kill['mutant']}, by {kill['slow'][0]}" for kill in missed]
    for kill in kills:
        if kill not in killed:
            lines += [("survived: " if "slow" in kill else "no fast test: ") + kill["mutant"]]
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
        run(test_files(), "", _Compiled(), "--collect-only")

    def __exit__(self, *_: object) -> None:
        os.chdir(ROOT)
        self.folder.cleanup()


def record_reach(files: Sequence[str], output: Path) -> None:
    """Add a line for each file of tests: its tests, and by module which of them run each line."""
    recorded = {json.loads(line)["file"] for line in output.open()} if output.exists() else set()
    for file in files:
        if file in recorded:
            continue
        begun = time.monotonic()
        with tempfile.NamedTemporaryFile("r") as found:
            run([file], "slow or not slow", _Reach(found.name))
            row = json.loads(found.read() or '{"tests": [], "failing": ["all"], "lines": {}}')
        with output.open("a") as lines:
            lines.write(json.dumps({"file": file, **row}) + "\n")
        failing = f", FAILING {row['failing']}" if row["failing"] else ""
        print(
            f"{file}: {len(row['tests'])} in {time.monotonic() - begun:.0f} s{failing}", flush=True
        )


def reaching(mutant: Mutant, reach: list[dict[str, Any]]) -> list[Test]:
    """Return the tests that reach a mutant: of its own module's file first, and short ones first."""
    stem, found = Path(mutant.path).stem, []
    for row in reach:
        by_line = row["lines"].get(mutant.path, {})
        hit = {i for line in mutant.lines() for i in by_line.get(str(line), ())}
        if hit == {-1}:  # at import
            hit = {i for tests in by_line.values() for i in tests}
        hit |= {i for i, (*_, starts) in enumerate(row["tests"]) if starts}
        found += [Test(row["file"], *row["tests"][i]) for i in sorted(hit - {-1})]
    mirrors = f"/test_{stem}.py"
    return sorted(
        found, key=lambda test: (test.starts, not test.file.endswith(mirrors), test.seconds)
    )


def try_all(
    drawn: Sequence[tuple[int, Mutant]],
    reach: list[dict[str, Any]],
    output: Path,
    *,
    fast: bool,
    every: bool,
) -> None:
    """Add a line for each mutant, and for those that only slow tests may still kill."""
    tried = kills_of(output)
    for number, mutant in drawn:
        kills = tried.get(number, {})
        if "fast" not in kills:
            kills |= try_one(mutant, reach, ("fast",), every=every)
        elif "slow" in kills or fast:
            continue
        if not fast and (every or not kills["fast"]):
            kills |= try_one(mutant, reach, ("slow",), every=every)
        elif kills["fast"]:
            kills["slow"] = []
        with output.open("a") as lines:
            lines.write(json.dumps({"number": number, **kills}) + "\n")


def try_one(
    mutant: Mutant, reach: list[dict[str, Any]], speeds: Sequence[str], *, every: bool = False
) -> dict[str, Any]:
    """Return the tests of each speed that notice a mutant; the first only, unless `every`."""
    begun, kills = time.monotonic(), dict[str, Any](mutant=mutant.show())
    tests = reaching(mutant, reach)
    for speed in speeds:
        left = [test for test in tests if test.slow == (speed == "slow")]
        kills[speed] = []
        for seconds in BATCHES[speed][-1:] if every else BATCHES[speed]:
            sums = np.cumsum([test.seconds for test in left])
            num = max(1, int(np.searchsorted(sums, seconds)))
            if left and (every or not kills[speed]):
                kills[speed] += failing(left[:num], mutant, every=every)
            left = left[num:]
    state = ", ".join(f"{speed} {kills[speed] or 'SURVIVED'}" for speed in speeds)
    print(f"{state} in {time.monotonic() - begun:.0f} s  {mutant.show()}", flush=True)
    return kills


def failing(tests: Sequence[Test], mutant: Mutant, *, every: bool) -> list[str]:
    """Return the tests that fail, or take too long, with a mutant in the copy."""
    path, source = Path(mutant.path), Path(mutant.path).read_text()
    path.write_text(source[: mutant.start] + mutant.text + source[mutant.end :])
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        compiled.unlink()
    files = list(dict.fromkeys(test.file for test in tests))
    with tempfile.NamedTemporaryFile("r") as found:
        status = run(files, "", _Killers(found.name, tests), *([] if every else ["-x"]))
        begun, failed = [], []
        for line in found.read().splitlines():
            state, _, name = line.partition(" ")
            (begun if state == "begun" else failed).append(name)
    path.write_text(source)
    if status not in (0, 1, 5):  # a test that ends or hangs the process; 5: no tests
        failed += begun[-1:] or [files[0]]
    return failed


def run(files: Sequence[str], marked: str, plugin: Any, *words: str) -> int:
    """Run tests in a child and return its status."""
    child = os.fork()
    if not child:
        _test([*files, *(["-m", marked] if marked else []), *words], plugin)
    limit = time.monotonic() + PATIENCE
    while time.monotonic() < limit:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -signal.SIGKILL


class _Compiled:
    """Keeps the compiled tests and modules of the copy, for all runs."""


class _Killers:
    """Runs some tests, writes those that fail, and ends the process in one that computes for too long."""

    def __init__(self, output: str, tests: Sequence[Test]) -> None:
        self.output = output
        self.seconds = {test.name: test.seconds for test in tests}

    def write(self, line: str) -> None:
        with open(self.output, "a") as output:
            output.write(line + "\n")

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if item.nodeid in self.seconds]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.write(f"begun {nodeid}")
        signal.setitimer(signal.ITIMER_PROF, max(SECONDS, 10 * self.seconds[nodeid]))

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.write(f"failed {report.nodeid}")

    def pytest_collectreport(self, report: Any) -> None:
        self.pytest_runtest_logreport(report)


class _Reach:
    """Writes the tests of a file, and by module which of them run each line; -1 is the import."""

    def __init__(self, output: str) -> None:
        self.output = output
        self.tests: dict[str, list[Any]] = {}
        self.shared: dict[str, set[str]] = {}
        self.failing: list[str] = []

    def pytest_sessionstart(self) -> None:
        import coverage

        self.coverage = coverage.Coverage(
            data_file=None, include=[f"{os.getcwd()}/pate/*"], config_file=False
        )
        self.coverage.start()

    def pytest_runtest_setup(self, item: Any) -> None:
        name, source = item.nodeid, Path(item.path).read_text()
        try:
            own = inspect.getsource(item.function)
        except (AttributeError, TypeError, OSError):  # a docstring's example
            own = ""
        helpers = re.findall(r"^def (\w+)(.*\n(?:(?:    .*)?\n)*)", source, re.MULTILINE)
        starting = [helper for helper, body in helpers if STARTS.search(body)]
        starts = bool(STARTS.search(own) or any(f"{helper}(" in own for helper in starting))
        slow = item.get_closest_marker("slow") is not None
        self.tests[name] = [name, 0.0, slow, starts]
        fixtures = item._fixtureinfo.name2fixturedefs if hasattr(item, "_fixtureinfo") else {}
        self.shared[name] = {
            fixture
            for fixture, made in fixtures.items()
            if made[-1].scope != "function" and made[-1].baseid != ""
        }
        if CACHES.search(source):
            self.shared[name].add("cache")
        self.coverage.switch_context(f"{'shared' if self.shared[name] else 'own'} {name}")

    def pytest_runtest_call(self, item: Any) -> None:
        kind = "shared" if "cache" in self.shared[item.nodeid] else "own"
        self.coverage.switch_context(f"{kind} {item.nodeid}")

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.nodeid in self.tests:  # not where a mark skips it before its setup
            self.tests[report.nodeid][1] += report.duration
        if report.failed:
            self.failing.append(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self.coverage.stop()
        data, here = self.coverage.get_data(), os.getcwd() + os.sep
        names = [name for name in self.tests if name not in self.failing]
        reached: dict[str, set[int]] = {"": {-1}}
        for name in self.tests:
            mine = {names.index(name)} if name in names else set()
            reached[f"own {name}"] = mine
            reached[f"shared {name}"] = mine | {
                i for i, other in enumerate(names) if self.shared[name] & self.shared[other]
            }
        lines = {
            file.removeprefix(here): {
                line: sorted(set().union(*(reached[context] for context in contexts)))
                for line, contexts in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
        }
        tests = [self.tests[name] for name in names]
        with open(self.output, "w") as output:
            json.dump({"tests": tests, "failing": self.failing, "lines": lines}, output)


def _test(arguments: Sequence[str], plugin: Any) -> None:
    os.setpgid(0, 0)
    if isinstance(plugin, _Compiled):
        sys.dont_write_bytecode = False
    else:
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
