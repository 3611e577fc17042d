"""Mutants are faults in programs that still parse, at places that are there."""

import ast

import pytest

from scripts import mutants


@pytest.mark.slow  # the table follows the code, and need not with each commit
def test_deliberate_faults_have_one_place() -> None:
    for mutant in mutants.deliberate_faults():
        source = (mutants.ROOT / mutant.path).read_text()
        ast.parse(source[: mutant.start] + mutant.text + source[mutant.end :])
        with pytest.raises(SystemExit, match="has 0 times 'none of it'"):
            mutants.deliberate(mutant.path, "none of it", "")


@pytest.mark.slow
def test_faults_are_drawn_from_all_zones_and_know_their_statement() -> None:
    modules = mutants.modules()
    assert all(any(path.startswith(zone) for path in modules) for zone in mutants.ZONES)
    path = "pate/_core/accounting/cost.py"
    lines = mutants.source_of(path).splitlines()
    inside = [mutant for mutant in mutants.mutants_of(path) if mutant.lines()]
    for mutant in inside[::20]:
        around = "\n".join(lines[line - 1].strip() for line in mutant.lines() or ())
        assert mutant.show().splitlines()[1].removeprefix("    - ") in around


def test_a_mutant_is_tried_by_the_tests_that_run_its_line() -> None:
    some = [*mutants.mutants_of("pate/_core/accounting/cost.py")][::12]
    by_kind = {bool(mutant.lines()): mutant for mutant in some}
    tests = [["a.py::own", 2.0, False], ["b.py::short", 1.0, True], ["a.py::far", 1.0, False]]
    around = by_kind[True].lines()
    assert around is not None
    here, elsewhere = str(around[0]), str(around[-1] + 1)
    row = {"tests": tests, "lines": {by_kind[True].path: {here: [0, 1], elsewhere: [2]}}}
    for inside, names in (
        (True, ["b.py::short", "a.py::own"]),
        (False, ["b.py::short", "a.py::far", "a.py::own"]),
    ):
        assert [test.name for test in mutants.reaching(by_kind[inside], [row])] == names


@pytest.mark.parametrize(
    "path", ["pate/_core/mechanisms/peeling.py", "pate/_core/accounting/cost.py"]
)
def test_every_mutant_is_another_program(path: str) -> None:
    source = (mutants.ROOT / path).read_text()
    plain, made = ast.dump(ast.parse(source)), list(mutants.mutants_of(path))
    assert len(made) > 40
    gone = [mutant for mutant in made if mutant.text == ""]
    for mutant in made[::25] + gone[::5]:
        changed = source[: mutant.start] + mutant.text + source[mutant.end :]
        assert ast.dump(ast.parse(changed)) != plain, mutant.show()
        assert mutant.show().startswith(path) and mutant.show().count("\n") == 2
