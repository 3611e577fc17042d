"""The counts of what tests reach into."""

import ast

import pytest

from scripts import measure_tests


@pytest.mark.parametrize(
    ("statement", "count"),
    [
        ("from pate import Votes", 0),
        ("from pate.data import Records, Role", 0),
        ("from pate._labeling.votes import Votes", 1),
        ("from pate._labeling.data.records import Records, Role", 1),
        ("from pate.accounting import _ledger", 1),
        ("import pate._labeling.votes", 1),
        ("from numpy._core import multiarray", 0),
    ],
)
def test_imports_of_private_modules(statement: str, count: int) -> None:
    assert measure_tests.private_imports(ast.parse(statement)) == count


def test_patches_are_methods() -> None:
    tree = ast.parse("monkeypatch.setattr(a, 'b', 1); patch.setattr(a, 'b', 1); setattr(a, 'b', 1)")
    assert measure_tests.patches(tree) == 2


def test_a_zone_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        measure_tests.main(["core", "cor"])
    assert (
        "Expected zones among all, core, labeling, networks, lab, pages, got cor"
        in capsys.readouterr().err
    )
