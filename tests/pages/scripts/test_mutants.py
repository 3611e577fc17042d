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


def test_faults_are_drawn_from_all_zones_and_know_their_statement() -> None:
    modules = mutants.modules()
    assert all(any(path.startswith(zone) for path in modules) for zone in mutants.ZONES)
    path = "pate/_core/accounting/cost.py"
    lines = mutants.source_of(path).splitlines()
    for mutant in list(mutants.mutants_of(path))[::20]:
        around = "\n".join(lines[line - 1].strip() for line in mutant.lines())
        assert mutant.show().splitlines()[1].removeprefix("    - ") in around


def test_a_mutant_is_tried_by_the_tests_that_run_its_line() -> None:
    mutant = next(m for m in mutants.mutants_of("pate/_core/accounting/cost.py"))
    here, elsewhere = str(mutant.lines()[0]), str(mutant.lines()[-1] + 1)
    tests = [["own", 2.0, False, False], ["short", 1.0, True, False], ["far", 1.0, False, False]]
    tests += [["starts", 0.0, False, True]]
    lines = {mutant.path: {here: [0, 1], elsewhere: [2]}}
    found = mutants.reaching(mutant, [{"file": "a.py", "tests": tests, "lines": lines}])
    assert [test.name for test in found] == ["short", "own", "starts"]
    lines = {mutant.path: {here: [-1], elsewhere: [-1, 2]}}  # at import
    found = mutants.reaching(mutant, [{"file": "a.py", "tests": tests, "lines": lines}])
    assert [test.name for test in found] == ["far", "starts"]


@pytest.mark.parametrize("path", ["pate/_core/mechanisms/gaps.py", "pate/_core/accounting/cost.py"])
def test_every_mutant_is_another_program(path: str) -> None:
    source = (mutants.ROOT / path).read_text()
    plain, made = ast.dump(ast.parse(source)), list(mutants.mutants_of(path))
    assert len(made) > 40
    gone = [mutant for mutant in made if mutant.text == ""]
    for mutant in made[::25] + gone[::5]:
        changed = source[: mutant.start] + mutant.text + source[mutant.end :]
        assert ast.dump(ast.parse(changed)) != plain, mutant.show()
        assert mutant.show().startswith(path) and mutant.show().count("\n") == 2
