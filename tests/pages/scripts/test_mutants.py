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


def test_faults_are_drawn_from_all_zones_and_know_their_function() -> None:
    found = mutants.modules()
    assert all(any(path.startswith(zone) for path in found) for zone in mutants.ZONES)
    path = "pate/_core/accounting/cost.py"
    lines = mutants.source_of(path).splitlines()
    for mutant in list(mutants.mutants_of(path))[::20]:
        place, _, line = mutant.enclosing().partition(":")
        assert place == path
        assert line == "0" or lines[int(line) - 1].lstrip().startswith(("def ", "@"))


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
