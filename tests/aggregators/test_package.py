"""What is true of all aggregators together."""

import inspect
from itertools import combinations
from pathlib import Path

import pytest

import pate.aggregators
from pate.aggregators import Aggregator

CLASSES = [cls for cls in vars(pate.aggregators).values() if inspect.isclass(cls) and issubclass(cls, Aggregator)]
CONCRETE = [cls for cls in CLASSES if cls is not Aggregator]


def test_no_two_aggregators_share_the_name_of_a_noise_parameter() -> None:
    for first, second in combinations(CONCRETE, 2):
        assert not set(first.noise_parameters) & set(second.noise_parameters)


@pytest.mark.parametrize("cls", CONCRETE)
def test_a_docstring_says_when_to_choose_it_and_what_it_guarantees(cls: type[Aggregator]) -> None:
    text = inspect.getdoc(cls) or ""
    for word in ("Choose it", "Privacy:", "REPLACE_RECORD", "Args:", "Raises:", "neighboring_relation:"):
        assert word in text or (word == "REPLACE_RECORD" and "That of `NoisyVotes`" in text.replace("that", "That"))


@pytest.mark.parametrize("cls", CONCRETE)
def test_every_aggregator_keeps_the_contract(cls: type[Aggregator]) -> None:
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert f"return {cls.__name__}(" in tests
