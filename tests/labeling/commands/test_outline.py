"""What the source of a class says of its options, where it cannot be imported."""

import sys
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Literal, get_args

import pytest

from pate._core.lazy import MissingExtraError
from pate._labeling.commands.outline import outline

SOURCE = '''
"""No import of this ends well."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import heavy
from heavy import Network
from unread._kinds import _KIND as _KINDS

raise SystemExit("imported")

Made = Callable[[int], heavy.nn.Module]


@dataclass
class Plan:
    """A plan.

    Args:
        make: makes a network.
    """

    make: Made
    network: Network | None = None
    kind: _KINDS = "a"
    steps: int = heavy.STEPS


class Fit:
    def __init__(self, size: int, rate: float = 0.5, *, loud: bool, quiet=None) -> None:
        """Fit it."""

    def run(self, times: int = 3) -> None:
        """Run it."""
'''


@pytest.fixture
def unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = tmp_path / "unread"
    folder.mkdir()
    (folder / "__init__.py").write_text(SOURCE)
    (folder / "_kinds.py").write_text('from typing import Literal\n_KIND = Literal["a", "b"]\n')
    monkeypatch.syspath_prepend(tmp_path)
    return "unread"


def described(place: str) -> dict[str, Any]:
    return {each.name: (each.type, each.default) for each in fields(outline(place))}


def test_a_dataclass_has_its_fields(unread: str) -> None:
    found = described(f"{unread}:Plan")
    arguments, made = get_args(found["make"][0])
    assert arguments == [int] and made.__name__ == "Module" and found["make"][1] is MISSING
    network, none = get_args(found["network"][0])
    assert (network.__name__, none) == ("Network", type(None)) and found["network"][1] is None
    assert found["kind"] == (Literal["a", "b"], "a")
    assert repr(found["steps"][1]) == "heavy.STEPS"
    assert "makes a network" in str(outline(f"{unread}:Plan").__doc__)
    assert unread not in sys.modules


def test_a_class_has_the_parameters_of_its_constructor(unread: str) -> None:
    assert described(f"{unread}:Fit") == {
        "size": (int, MISSING),
        "rate": (float, 0.5),
        "loud": (bool, MISSING),
        "quiet": (Any, None),
    }
    assert outline(f"{unread}:Fit").__doc__ == "Fit it."
    assert described(f"{unread}:Fit.run") == {"times": (int, 3)}


@pytest.mark.parametrize("place", ["no_such_package:Plan", "pate._labeling.no_such:Plan"])
def test_what_is_not_there_is_said(place: str) -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such") as raised:
        outline(place)
    assert isinstance(raised.value, MissingExtraError) == place.startswith("pate.")
