"""Mutants: small faults in the package, one by one, and the tests that notice them.

    python -m scripts.mutants reach REACH [--fast]
    python -m scripts.mutants try REACH --output KILLS [--num 300] [--seed 0] [--part 0 2]
        [--fast | --all_killers] [--limit 40]
    python -m scripts.mutants read KILLS [KILLS ..]
    python -m scripts.mutants deliberate REACH

A mutant swaps an operator, a comparison, a constant or a function such as `min` at a place drawn
from core, labeling and networks, types and messages left out; or it is one of
`deliberate_faults.tsv`, faults that would break the guarantee.

A process that has imported nothing of the package forks for each mutant, which is imported in the
place of its module. No file changes; processes that tests start see no mutant.

`reach` records, under coverage, which lines each test runs, file by file. What a shared fixture
runs is reached by all tests of the file that use it; a mutant outside of functions, by the tests
that run any line of its module. `try` runs the tests that reach a mutant, fast tests first, and
adds a line of JSON for each mutant to KILLS: until the first test that fails, or, with
`--all_killers`, all of them (the kill matrix, a night on many cores). With `--fast` it leaves the
slow tests to a later `try`; `--limit` tries the nearest tests alone, of so many seconds in all.
The same command goes on after an interruption. `read` prints how many of the mutants that any test
kills the fast tests kill, and the survivors, to be read: many are equivalent.
"""

import argparse
import ast
import functools
import importlib.machinery
import importlib.util
import itertools
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
ZONES = ("pate/_core", "pate/_labeling", "pate/_networks")
FAULTS = Path(__file__).with_name("deliberate_faults.tsv")
CACHES = re.compile(r"^@(functools\.)?(lru_)?cache", re.MULTILINE)
HEAVY = (
    *("scipy.stats", "torch", "pytorch_lightning", "mpmath", "pytest", "jsonargparse"),
    *("hypothesis", "coverage"),
)
# a mutant under which one test takes longer than this, and than ten times as long as without, is
# killed, as a hang is noticed: seconds of a processor
SECONDS = 5.0
PATIENCE = 1800  # seconds, for tests that wait and compute nothing
BATCHES = {"fast": (2.0, 20.0, 1e9), "slow": (20.0, 1e9)}  # seconds of the tests of each process
SWAPS: dict[type[ast.AST], str] = {
    **{ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "=="},
    **{ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.Pow: "*"},
    **{ast.Mod: "*", ast.And: "or", ast.Or: "and", ast.BitAnd: "|", ast.BitOr: "&"},
}
PAIRS = "min max", "minimum maximum", "ceil floor", "any all", "argmin argmax"
NAMES = {"log1p": "log", "expm1": "exp"}
NAMES |= {one: two for pair in PAIRS for one, two in itertools.permutations(pair.split())}


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

    def lines(self) -> range | None:
        """The lines of the innermost statement around it; None outside of functions."""
        source, inside = source_of(self.path), False
        line = source.count("\n", 0, self.start) + 1
        around = range(line, line + 1)
        for node in ast.walk(ast.parse(source)):
            body = getattr(node, "body", [])
            body = body if isinstance(body, list) else [body]  # of a lambda
            if isinstance(node, ast.FunctionDef | ast.Lambda):
                inside |= body[0].lineno <= line <= (node.end_lineno or 0)
            if isinstance(node, ast.stmt):
                end = body[0].lineno - 1 if body else node.end_lineno or 0
                first = min([node.lineno, *(n.lineno for n in getattr(node, "decorator_list", ()))])
                if first <= line <= end:
                    around = range(first, end + 1)
        return around if inside else None

    def text_of(self) -> str:
        """The source of the module with the mutant in it."""
        source = source_of(self.path)
        return source[: self.start] + self.text + source[self.end :]


class Test(NamedTuple):
    """A test that reaches a mutant."""

    name: str
    seconds: float
    slow: bool

    @property
    def file(self) -> str:
        """The path of its file."""
        return self.name.partition("::")[0]


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
    parser.add_argument(
        "--limit", type=float, default=math.inf, help="seconds of tests that a mutant is tried on"
    )
    options = parser.parse_args(arguments)
    part, num_parts = options.part
    os.chdir(ROOT)
    if options.action == "read":
        print(summary([kill for file in options.files for kill in kills_of(file).values()]))
        return
    for name in HEAVY:  # once, for all children
        __import__(name)
    if options.action == "reach":
        with tempfile.TemporaryDirectory() as folder:
            plugin = _Collected(options.files[0], fast=options.fast)
            raise SystemExit(pytest_main(["tests", "-s", f"--basetemp={folder}/pt"], plugin))
    reach = [json.loads(line) for line in options.files[0].open()]
    if options.action == "try":
        drawn = list(enumerate(draw(options.num, options.seed), 1))[part::num_parts]
        speeds, output = ("fast", "slow")[: 1 if options.fast else 2], options.output
        every = options.all_killers
        if not output.exists():
            output.write_text(json.dumps(heading(options)) + "\n")
        try_all(drawn, reach, output, speeds, every=every, limit=options.limit)
    else:
        with tempfile.NamedTemporaryFile() as file:
            try_all(list(enumerate(deliberate_faults())), reach, Path(file.name), ("fast",))


def kills_of(file: Path) -> dict[int, dict[str, Any]]:
    """Return the mutants that were tried, by number; the last line of each."""
    rows = [json.loads(line) for line in file.open()] if file.exists() else []
    return {row["number"]: row for row in rows if "number" in row}


def heading(options: argparse.Namespace) -> dict[str, Any]:
    """Return what was drawn, from which commit and under which versions."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    versions = {"python": sys.version.split()[0]}
    versions |= {name: version(name) for name in ("numpy", "scipy", "torch", "pytest")}
    drawn = {"num": options.num, "seed": options.seed, "commit": commit.stdout.strip()}
    return drawn | {"versions": versions}


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
        first, last = begins[node.lineno - 1], begins[node.end_lineno - 1]
        return first + node.col_offset, last + node.end_col_offset

    def swap(left: ast.expr, right: ast.expr, operator: ast.AST) -> Iterator[Mutant]:
        start, end = span(left)[1], span(right)[0]
        between = source[start:end]
        sign = between.strip(" ()\n")
        if type(operator) in SWAPS and between.count(sign) == 1 and "#" not in between:
            at = start + between.index(sign)
            yield Mutant(path, at, at + len(sign), SWAPS[type(operator)])

    tree = ast.parse(source)
    parts = [part for node in ast.walk(tree) for part in _words(node)]
    words = {id(inner) for part in parts for inner in ast.walk(part)}
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
            yield Mutant(path, start, start + (1 if isinstance(node.op, ast.USub) else 4), "")
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
            value = node.value
            new = value + 1 if isinstance(value, int) else 2 * value or 1.0
            yield Mutant(path, *span(node), repr(not value if isinstance(value, bool) else new))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            end = span(node.func)[1]
            if name == "sqrt" and len(node.args) == 1:
                yield Mutant(path, *span(node.func), "")
            elif name in NAMES:
                yield Mutant(path, end - len(name), end, NAMES[name])


def _words(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the descriptive parts of a node: types, and texts of errors."""
    types = (getattr(node, name, None) for name in ("annotation", "returns"))
    yield from (part for part in types if part is not None)
    if isinstance(node, ast.ClassDef):  # whether a dataclass is frozen
        yield from node.decorator_list
    if isinstance(node, ast.Raise | ast.JoinedStr):
        yield node
    elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "expect":
        yield from (*node.args[1:], *node.keywords)


def pytest_main(words: Sequence[str], plugin: object) -> int:
    """Run pytest in this process."""
    words = [*words, "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    # what Lightning imports imports anyio, which is a plug-in of pytest too
    words += ["-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning"]
    return int(pytest.main(words, plugins=[plugin]))


def fork(work: Callable[[], int], *, quiet: bool = False, patience: float = math.inf) -> int:
    """Do something in a child, and return its status; the negative of a signal that ended it."""
    child = os.fork()
    if not child:
        status = 1
        try:
            os.setpgid(0, 0)
            if quiet:
                silent = os.open(os.devnull, os.O_RDWR)
                for stream in (0, 1, 2):
                    os.dup2(silent, stream)
            status = work()
        except BaseException:
            traceback.print_exc()
        finally:  # what is raised here must not go on, as the parent
            os._exit(status)
    limit = time.monotonic() + patience
    while time.monotonic() < limit:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -signal.SIGKILL


class _Collected:
    """Adds a line for the fast and the slow tests of each file, which are run in children."""

    def __init__(self, output: Path, *, fast: bool) -> None:
        self.output, self.fast = output, fast

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        rows = [json.loads(line) for line in self.output.open()] if self.output.exists() else []
        recorded = {(row["file"], row["slow"]) for row in rows}
        for (slow, file), group in itertools.groupby(sorted(session.items, key=_part), _part):
            if (file, slow) in recorded or (slow and self.fast):
                continue
            with tempfile.NamedTemporaryFile("r") as reached:
                run = functools.partial(run_items, session, list(group), _Reach(reached.name))
                fork(run, quiet=True, patience=PATIENCE)
                row = json.loads(reached.read() or '{"tests": [], "failing": ["all"], "lines": {}}')
            with self.output.open("a") as lines:
                lines.write(json.dumps({"file": file, "slow": slow, **row}) + "\n")
            failing = f", FAILING {row['failing']}" if row["failing"] else ""
            print(f"{file}: {len(row['tests'])}{failing}", flush=True)
        return True


def _part(item: pytest.Item) -> tuple[bool, str]:
    return is_slow(item), item.nodeid.partition("::")[0]


def is_slow(item: pytest.Item) -> bool:
    """Return whether a test is marked as slow."""
    return item.get_closest_marker("slow") is not None


def run_items(session: pytest.Session, items: Sequence[pytest.Item], plugin: "_Reach") -> int:
    """Run some tests, which remember nothing of this process."""
    session.config.pluginmanager.register(plugin)
    modules = [m for name, m in sys.modules.items() if name.partition(".")[0] in ("pate", "tests")]
    held = [value for module in modules for value in vars(module).values()]
    classes = (value for value in held if isinstance(value, type))
    for value in (*held, *(value for each in classes for value in vars(each).values())):
        getattr(value, "cache_clear", lambda: None)()
    plugin.begin()
    for item, following in itertools.zip_longest(items, items[1:]):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    plugin.end()
    return 0


def reaching(mutant: Mutant, reach: list[dict[str, Any]]) -> list[Test]:
    """Return the tests that reach a mutant: of its own module's file first, and short ones first."""
    found = []
    for row in reach:
        by_line = row["lines"].get(mutant.path, {})
        hit = {i for line in mutant.lines() or by_line for i in by_line.get(str(line), ())}
        found += [Test(*row["tests"][i]) for i in sorted(hit)]
    mirrors = f"/test_{Path(mutant.path).stem}.py"
    return sorted(found, key=lambda test: (not test.file.endswith(mirrors), test.seconds))


def try_all(
    drawn: Sequence[tuple[int, Mutant]],
    reach: list[dict[str, Any]],
    output: Path,
    speeds: Sequence[str],
    *,
    every: bool = False,
    limit: float = math.inf,
) -> None:
    """Add a line for each mutant that is not tried yet, on the nearest tests within a limit."""
    tried = kills_of(output)
    for number, mutant in drawn:
        kills = tried.get(number, {"mutant": mutant.show()})
        left = [speed for speed in speeds if speed not in kills]
        if not left:
            continue
        tests = reaching(mutant, reach)
        for speed in left:
            begun, kills[speed] = time.monotonic(), []
            if every or not kills["fast"]:
                chosen = [test for test in tests if test.slow == (speed == "slow")]
                spent = np.cumsum([test.seconds for test in chosen])
                chosen = chosen[: int(np.searchsorted(spent, limit, side="right"))]
                kills[speed] = killers(chosen, mutant, BATCHES[speed], every=every)
                state = f"{speed} {kills[speed] or 'SURVIVED'}"
                print(f"{state} in {time.monotonic() - begun:.0f} s  {mutant.show()}", flush=True)
        with output.open("a") as lines:
            lines.write(json.dumps({"number": number, **kills}) + "\n")


def killers(
    tests: Sequence[Test], mutant: Mutant, batches: Sequence[float], *, every: bool
) -> list[str]:
    """Return the tests that fail, or take too long, under a mutant."""
    found: list[str] = []
    for seconds in batches[-1:] if every else batches:
        num = max(1, int(np.searchsorted(np.cumsum([test.seconds for test in tests]), seconds)))
        batch, tests = tests[:num], tests[num:]
        if not batch or (found and not every):
            break
        with tempfile.NamedTemporaryFile("r") as file:
            plugin = _Killers(file.name, batch)
            run = functools.partial(run_anew, mutant, batch, plugin, every=every)
            status = fork(run, quiet=True, patience=PATIENCE)
            rows = [line.split(" ", 1) for line in file.read().splitlines()]
        found += [name for state, name in rows if state == "failed"]
        if status < 0:  # a test that ends the process, or hangs
            found += [name for state, name in rows if state == "begun"][-1:]
    return found


def run_anew(mutant: Mutant, tests: Sequence[Test], plugin: Any, *, every: bool) -> int:
    """Run tests in a process that imports the mutant."""
    name = mutant.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    class Finder:
        @staticmethod
        def find_spec(fullname: str, *_: object) -> Any:
            if fullname != name:
                return None
            loader = importlib.machinery.SourceFileLoader(name, str(ROOT / mutant.path))
            loader.get_code = lambda _: compile(mutant.text_of(), mutant.path, "exec")  # type: ignore[method-assign, assignment]
            return importlib.util.spec_from_loader(name, loader)

    sys.meta_path.insert(0, Finder)
    files = list(dict.fromkeys(test.file for test in tests))
    with tempfile.TemporaryDirectory() as folder:
        words = [*files, f"--basetemp={folder}/pt", *([] if every else ["-x"])]
        status = pytest_main(words, plugin)
    if status not in (0, 1, 5):  # tests that cannot even be collected
        plugin.write(f"failed {files[0]}")
    return 0


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
    """Writes the tests of a file, and by module which of them run each line."""

    def __init__(self, output: str) -> None:
        self.output = output
        self.tests: dict[str, list[Any]] = {}
        self.shared: dict[str, set[str]] = {}
        self.failing: list[str] = []

    def begin(self) -> None:
        import coverage

        self.coverage = coverage.Coverage(
            data_file=None, include=[f"{ROOT}/pate/*"], config_file=False, messages=False
        )
        self.coverage.start()

    def pytest_runtest_setup(self, item: Any) -> None:
        name = item.nodeid
        self.tests[name] = [name, 0.0, is_slow(item)]
        fixtures = item._fixtureinfo.name2fixturedefs if hasattr(item, "_fixtureinfo") else {}
        self.shared[name] = {
            fixture
            for fixture, made in fixtures.items()
            if made[-1].scope != "function" and made[-1].baseid != ""
        }
        if CACHES.search(Path(item.path).read_text()):
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

    def end(self) -> None:
        self.coverage.stop()
        data, here = self.coverage.get_data(), f"{ROOT}/"
        names = [name for name in self.tests if name not in self.failing]
        reached: dict[str, set[int]] = {"": set()}
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


if __name__ == "__main__":
    main()
