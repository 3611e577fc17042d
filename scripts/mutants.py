"""Mutants: small faults in a copy of the package, one by one, and whether a fast test fails.

python -m scripts.mutants [--sample 150] [--seed 0] [--part 0 1] [--only 3 17] [--deliberate]
[--near] [--all]

A mutant swaps an operator, a comparison, a constant or a function such as `min` at a place drawn
from the modules on which the guarantee rests, types and messages left out; or it is one of
`DELIBERATE`, faults that would break it. The pinned outputs run first, then the tests that mirror
the module, the tests of its package that import from it (all of them with ``--near``), and the
tests of the house. Deliberate faults must be noticed without the pins. Survivors are printed with
their numbers, to be read, since many are equivalent, or change the quality of a search and not the
guarantee; and to be tried on all fast tests, with ``--all --only`` and the numbers.
"""

import argparse
import ast
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).parents[1]
MODULES = (
    *(
        "pate/_core/mechanisms/*.py",
        "pate/_labeling/aggregators/*.py",
        "pate/_core/accounting/*.py",
        "pate/_core/release/*.py",
        "pate/_labeling/release/*.py",
    ),
    *(
        "pate/_labeling/data/records.py",
        "pate/_networks/teachers/plan.py",
        "pate/_labeling/linear.py",
        "pate/_labeling/votes/voters.py",
    ),
)
HEAVY = ("scipy.stats", "torch", "pytorch_lightning", "mpmath", "pytest", "jsonargparse")
SECONDS = 30  # of a processor: a mutant under which one fast test takes longer is killed, as a hang is noticed
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

NOISE = "pate/_labeling/aggregators/"
CHOICE = "pate/_core/mechanisms/"
DELIBERATE: tuple[tuple[str, str, str], ...] = (
    # half the noise, of every caller
    (NOISE + "noisy_votes.py", "sigma=self.sigma_votes", "sigma=self.sigma_votes / 2"),
    (NOISE + "clipped_votes.py", "clip), sigma=sigma,", "clip), sigma=sigma / 2,"),
    (
        NOISE + "clipped_votes.py",
        "-num_voters / 2, sigma=sigma",
        "-num_voters / 2, sigma=sigma / 2",
    ),
    (NOISE + "clipped_votes.py", "sigma=self.sigma_tau,", "sigma=self.sigma_tau / 2,"),
    (
        NOISE + "score_votes.py",
        "sigma=noise_multiplier, generator",
        "sigma=noise_multiplier / 2, generator",
    ),
    (NOISE + "score_votes.py", "clip), sigma=deviation", "clip), sigma=deviation / 2"),
    (NOISE + "noisy_votes.py", "threshold, sigma=sigma,", "threshold, sigma=sigma / 2,"),
    (NOISE + "noisy_votes.py", "sigma=num * sigma,", "sigma=num * sigma / 2,"),
    (
        NOISE + "noisy_votes.py",
        "votes.num_labels, self.scale_powerset",
        "votes.num_labels, self.scale_powerset / 2",
    ),
    (CHOICE + "peeling.py", "sigma=self.sigma,", "sigma=self.sigma / 2,"),
    (CHOICE + "gaps.py", "sigma=self.sigma, generator", "sigma=self.sigma / 2, generator"),
    (CHOICE + "gaps.py", "scale=[self.scale, 0.0]", "scale=[self.scale / 2, 0.0]"),
    (CHOICE + "gaps.py", "sigma=self.scale", "sigma=self.scale / 2"),
    (
        CHOICE + "gaps.py",
        "noise=self.noise, scale=self.scale",
        "noise=self.noise, scale=self.scale / 2",
    ),
    (
        CHOICE + "limited_domain.py",
        'noise="gumbel", scale=self.scale, generator',
        'noise="gumbel", scale=self.scale / 2, generator',
    ),
    (
        CHOICE + "limited_domain.py",
        'noise="laplace", scale=scales',
        'noise="laplace", scale=scales / 2',
    ),
    (
        CHOICE + "limited_domain.py",
        'peeled, k, noise="gumbel", scale=self.scale_peel',
        'peeled, k, noise="gumbel", scale=self.scale_peel / 2',
    ),
    (
        CHOICE + "limited_domain.py",
        'below[~passed], k, noise="gumbel", scale=self.scale_peel',
        'below[~passed], k, noise="gumbel", scale=self.scale_peel / 2',
    ),
    (
        CHOICE + "peeling.py",
        'self.k, self.scale, "laplace"',
        'self.k, self.scale / 2, "laplace"',
    ),
    (CHOICE + "noisy_counts.py", "1), scale=self.scale", "1), scale=self.scale / 2"),
    (
        CHOICE + "noisy_counts.py",
        "add_cube(rows, scale=self.scale",
        "add_cube(rows, scale=self.scale / 2",
    ),
    (
        CHOICE + "peeling.py",
        'one_shot(rows, self.k, self.scale, "gumbel"',
        'one_shot(rows, self.k, self.scale / 2, "gumbel"',
    ),
    (
        CHOICE + "peeling.py",
        'below, 1, noise="exponential", scale=self.scale',
        'below, 1, noise="exponential", scale=self.scale / 2',
    ),
    (
        CHOICE + "peeling.py",
        "FlipRounds(scores[0], self.scale, generator)",
        "FlipRounds(scores[0], self.scale / 2, generator)",
    ),
    (CHOICE + "flips.py", "wait) / rate", "wait) / rate / 2"),
    (
        CHOICE + "noise.py",
        "_round(beyond, sigma / grid,",
        "_round(beyond, sigma / grid / 2,",
    ),
    (
        NOISE + "clipped_votes.py",
        "sigma=self.num_teachers / MEDIAN_ERRORS",
        "sigma=self.num_teachers / MEDIAN_ERRORS / 2",
    ),
    # paid and unpaid steps
    (NOISE + "score_votes.py", "left -= SPENDING.count", "left -= 0"),
    (NOISE + "score_votes.py", "math.sqrt(left * share)", "math.sqrt(share)"),
    (NOISE + "score_votes.py", "noise_multiplier / math.sqrt(1 - paid)", "noise_multiplier"),
    (
        NOISE + "score_votes.py",
        "steps * (noise_multiplier / sigma) ** 2",
        "(noise_multiplier / sigma) ** 2",
    ),
    (NOISE + "score_votes.py", "question.reach * clip", "question.reach / 2 * clip"),
    (NOISE + "score_votes.py", "noise_multiplier / math.sqrt(SPENDING.count)", "noise_multiplier"),
    (
        NOISE + "clipped_votes.py",
        "math.sqrt(min(2 * clip, mask.size))",
        "math.sqrt(min(clip, mask.size))",
    ),
    (NOISE + "clipped_votes.py", "math.sqrt(min(2 * clip, mask.size))", "1.0"),
    (NOISE + "clipped_votes.py", "/ math.sqrt(1 - share_spent)", ""),
    (
        NOISE + "clipped_votes.py",
        "np.flatnonzero(sizes > clip)",
        "np.flatnonzero(sizes > 2 * clip)",
    ),
    (
        NOISE + "clipped_votes.py",
        "self.multiplier_clipped / math.sqrt(len(mask))",
        "self.multiplier_clipped / len(mask)",
    ),
    (
        NOISE + "noisy_votes.py",
        "self.sigma_votes / math.sqrt(shape.num_labels)",
        "self.sigma_votes",
    ),
    # composition
    ("pate/_core/accounting/cost.py", "return 2 if self", "return 1 if self"),
    ("pate/_core/accounting/proofs.py", "mu = math.sqrt(mu_squared)", "mu = mu_squared"),
    ("pate/_core/accounting/adaptive.py", "for ways in reversed(plays):", "for ways in plays:"),
    ("pate/_core/accounting/adaptive.py", "density @ _chord(1 - within, step)", "0.0"),
    ("pate/_core/accounting/filters.py", "math.sqrt(cost.mu_squared)", "cost.mu_squared"),
    (
        "pate/_core/accounting/proofs.py",
        "gaussian_delta(epsilon, math.sqrt(mu_squared))",
        "gaussian_delta(epsilon, mu_squared)",
    ),
    (
        "pate/_core/accounting/cost.py",
        "self.mu_squared + other.mu_squared",
        "max(self.mu_squared, other.mu_squared)",
    ),
    ("pate/_core/accounting/cost.py", "self.rdp + other.rdp", "np.maximum(self.rdp, other.rdp)"),
    # a teacher's votes from the records of others
    (
        "pate/_networks/teachers/training.py",
        "chunk.label_shares, 0",
        "chunk.label_shares.nanmean(0, keepdim=True), 0",
    ),
)


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


def main(arguments: Sequence[str] | None = None) -> None:
    """Try the mutants and print those that no test noticed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sample", type=int, default=150, help="how many are drawn")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument(
        "--part",
        type=int,
        nargs=2,
        default=(0, 1),
        help="of how many, for two processes: 0 2 and 1 2",
    )
    parser.add_argument(
        "--only", type=int, nargs="+", help="the numbers of those to try, as they are printed"
    )
    parser.add_argument(
        "--deliberate", action="store_true", help="try the deliberate faults instead"
    )
    parser.add_argument(
        "--near", action="store_true", help="run all tests of the module's package too"
    )
    parser.add_argument(
        "--all", action="store_true", help="run all fast tests of the project at the end"
    )
    options = parser.parse_args(arguments)
    if options.deliberate:
        mutants = [deliberate(*fault) for fault in DELIBERATE]
    else:
        everything = [mutant for path in modules() for mutant in mutants_of(path)]
        drawn = np.random.default_rng(options.seed).permutation(len(everything))[: options.sample]
        mutants = [everything[i] for i in drawn]
        print(f"{len(everything):,} places in {len(modules())} modules")
    part, num_parts = options.part
    numbers = options.only or range(1, len(mutants) + 1)
    numbered = {number: mutants[number - 1] for number in numbers[part::num_parts]}
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        skipped = shutil.ignore_patterns(".git", ".venv", ".mypy_cache", "site", "node_modules")
        shutil.copytree(ROOT, tree, ignore=skipped)
        groups = partial(tests_of, pins=not options.deliberate, near=options.near, rest=options.all)
        survivors = try_all(numbered, tree, groups)
    print(f"{len(numbered) - len(survivors)} of {len(numbered)} were killed. Survivors:")
    for number, mutant in survivors.items():
        print(f"{number:4} {mutant.show()}")


@cache
def source_of(path: str) -> str:
    """Return a module's source, as it is when it is first asked for."""
    return (ROOT / path).read_text()


def modules() -> list[str]:
    """Return the paths of the modules, sorted."""
    return sorted(str(path.relative_to(ROOT)) for pattern in MODULES for path in ROOT.glob(pattern))


def deliberate(path: str, old: str, new: str) -> Mutant:
    """Return a fault of `DELIBERATE`; its place must be unique."""
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
    if isinstance(node, ast.Raise | ast.JoinedStr):
        yield node
    elif (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "expect"
    ):
        yield from (*node.args[1:], *node.keywords)


def try_all(
    mutants: dict[int, Mutant], tree: Path, groups: Callable[[str], list[tuple[str, ...]]]
) -> dict[int, Mutant]:
    """Return the mutants that the tests in a copy of the project do not notice."""
    os.chdir(tree)
    os.environ["PYTHONPATH"] = str(tree)
    sys.path[:] = [str(tree), *(entry for entry in sys.path if entry not in ("", str(ROOT)))]
    for name in [name for name in sys.modules if name.partition(".")[0] in ("pate", "tests")]:
        del sys.modules[name]
    for name in HEAVY:  # once, for all children
        __import__(name)
    clean: set[tuple[str, ...]] = set()
    survivors = {}
    for number, mutant in mutants.items():
        begun, killed = time.monotonic(), False
        for tests in groups(mutant.path):
            if killed := fails(tests, mutant):
                if tests not in clean and fails(tests):
                    raise SystemExit(f"fails without a mutant: {' '.join(tests)}")
                clean.add(tests)
                break
        if not killed:
            survivors[number] = mutant
        state = "killed" if killed else "SURVIVED"
        print(
            f"{number:4} {state} in {time.monotonic() - begun:.0f} s  {mutant.show()}", flush=True
        )
    return survivors


def tests_of(path: str, *, pins: bool, near: bool, rest: bool) -> list[tuple[str, ...]]:
    """Return the tests of a module in the order in which they are run."""
    folder, name = Path(path).parent, Path(path).stem.lstrip("_")
    package = Path("tests", *(part.lstrip("_") for part in folder.parts[1:]))
    mirror = package / f"test_{name}.py"
    dotted = re.compile(re.escape(path.removesuffix(".py").replace("/", ".")) + r"\b")
    users = [
        str(file) for file in sorted(package.glob("test_*.py")) if dotted.search(file.read_text())
    ]
    groups: list[tuple[str, ...]] = [("tests/test_seeded.py",)] if pins else []
    if mirror.is_file():
        groups.append((str(mirror),))
    groups.append(tuple(user for user in users if user != str(mirror)))
    if near or not (mirror.is_file() or users):
        groups.append((str(package),))
    groups.append(("tests/test_house.py",))
    return [*(group for group in groups if group), *([("tests",)] if rest else [])]


def fails(tests: Sequence[str], mutant: Mutant | None = None) -> bool:
    """Return whether the tests fail, or take too long, with a mutant in the current folder."""
    source = ""
    if mutant is not None:
        source = Path(mutant.path).read_text()
        Path(mutant.path).write_text(source[: mutant.start] + mutant.text + source[mutant.end :])
        for compiled in Path(mutant.path).parent.glob(
            f"__pycache__/{Path(mutant.path).stem}.*.pyc"
        ):
            compiled.unlink()
    child = os.fork()
    if not child:
        _test(tests, write=mutant is None)
    limit, ended, status = time.monotonic() + PATIENCE, 0, 1
    while not ended and (mutant is None or time.monotonic() < limit):
        time.sleep(0.05)
        ended, status = os.waitpid(child, os.WNOHANG)
    if not ended:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        status = 1
    if mutant is not None:
        Path(mutant.path).write_text(source)
    return status != 0


class _Clock:
    """Ends the process, by the signal's default action, in a test that computes for too long."""

    def pytest_runtest_logstart(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)


def _test(tests: Sequence[str], *, write: bool) -> None:
    os.setpgid(0, 0)
    if not write:  # a fault must not outlive its run
        sys.dont_write_bytecode = True
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    silent = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silent, stream)
    import pytest

    arguments = [*tests, "-x", "-q", "-n", "0", "-m", "not slow", "-p", "no:cacheprovider"]
    # what Lightning imports imports anyio, which is a plug-in of pytest too
    arguments += ["-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning"]
    status = 1
    try:
        status = int(pytest.main(arguments, plugins=[_Clock()]))
    finally:  # what is raised here must not go on, as the parent, to remove the copy
        os._exit(status)


if __name__ == "__main__":
    main()
