"""What the package offers."""

import inspect
from pathlib import Path

from pate import mechanisms

OFFERED = {
    name: value
    for name, value in ((name, getattr(mechanisms, name)) for name in dir(mechanisms))
    if name[0] != "_" and not inspect.ismodule(value)
}


def test_every_name_that_is_offered_is_documented() -> None:
    assert [name for name, value in OFFERED.items() if not value.__doc__] == []


def test_every_mechanism_has_a_contract() -> None:
    """A mechanism without a contract would be a mechanism without a proof."""
    offered = {name for name, value in OFFERED.items() if is_mechanism(value)}
    assert len(offered) > 10
    texts = [file.read_text() for file in Path(__file__).parent.glob("test_*.py")]
    for name in offered:
        assert any(f"return m.{name}(" in text and "MechanismContract" in text for text in texts), (
            name
        )


def test_parameters_of_mechanisms_have_names() -> None:
    """A scale that is taken for a sigma would be half a guarantee."""
    for mechanism in filter(is_mechanism, OFFERED.values()):
        parameters = inspect.signature(mechanism).parameters.values()
        assert {parameter.kind for parameter in parameters} == {inspect.Parameter.KEYWORD_ONLY}, (
            mechanism
        )


def is_mechanism(offered: object) -> bool:
    return (
        isinstance(offered, type)
        and issubclass(offered, mechanisms.Mechanism)
        and not inspect.isabstract(offered)
    )
