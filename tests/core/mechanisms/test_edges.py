"""Inputs at the edge of what is allowed, and beyond it, for every mechanism that selects k of d."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from pate import mechanisms, mechanisms as m
from pate._core.mechanisms.noise import ChoiceNoise, Noise
from pate.accounting import NeighboringRelation

RELATION = NeighboringRelation.ADD_REMOVE_TEACHER
Make = Callable[..., m.Mechanism[Any]]
"""Makes a mechanism that chooses k of d with noise of one scale."""


def canonical(noise: ChoiceNoise, gamma: float) -> Make:
    return lambda k, scale: m.CanonicalMechanism(k=k, scale=scale, noise=noise, gamma=gamma)


def noisy_top_k(noise: Noise) -> Make:
    return lambda k, scale: m.NoisyTopK(k=k, scale=scale, noise=noise)


def limited_domain(k: Any, scale: float) -> m.LimitedDomain:
    return m.LimitedDomain(k=k, kbar=k, scale=scale, delta=0.4, relation=RELATION)


def top_stable(k: Any, scale: float) -> m.TopStable:
    return m.TopStable(
        k=k,
        kbar=k,
        scale_threshold=scale,
        scale_gap=scale,
        scale_peel=scale,
        delta=0.4,
        relation=RELATION,
    )


SEQUENCES: dict[str, Make] = {
    "gumbel peeling": lambda k, scale: m.GumbelPeeling(k=k, scale=scale),
    "permute-and-flip peeling": lambda k, scale: m.PermuteAndFlipPeeling(k=k, scale=scale),
    "joint": lambda k, scale: m.JointMechanism(k=k, scale=scale),
    "joint flip": lambda k, scale: m.JointMechanism(k=k, scale=scale, noise="exponential"),
    "one-shot Laplace": lambda k, scale: m.OneShotLaplace(k=k, scale=scale),
}
SETS = {f"noisy top-k {noise}": noisy_top_k(noise) for noise in get_args(Noise)}
PROPER = {
    f"canonical {noise} {gamma}": canonical(noise, gamma)
    for noise in get_args(ChoiceNoise)
    for gamma in (0.0, 0.5, 1.0)
}
LISTS: dict[str, Make] = {"limited domain": limited_domain, "top stable": top_stable}
SELECTIONS = SEQUENCES | SETS | PROPER
ALL = SELECTIONS | LISTS


def each(mechanisms: dict[str, Make]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("make", list(mechanisms.values()), ids=list(mechanisms))


def run(make: Make, scores: ArrayLike, *, k: int, scale: float = 1.0) -> NDArray[np.int64]:
    chosen = make(k, scale)(scores, generator=m.seeded_generator(0))
    return chosen.items if isinstance(chosen, m.TopItems) else np.asarray(chosen)


@each(ALL)
def test_only_differences_of_scores_matter_whatever_their_type(make: Make) -> None:
    """Unsigned numbers do not wrap and large ones keep their last digit."""
    near_zero = np.tile([1, 0, 3, 2, 0, 3], (20, 1))
    expected = run(make, near_zero, k=2)
    assert len(np.unique(expected, axis=0)) > 1  # there is noise to repeat
    for dtype in (np.uint8, np.int32, np.uint64):
        np.testing.assert_array_equal(run(make, near_zero.astype(dtype), k=2), expected)
    for offset in (2**40, 2**62, -(2**62)):
        np.testing.assert_array_equal(run(make, near_zero + offset, k=2), expected)
    np.testing.assert_array_equal(
        run(make, near_zero.astype(np.uint64) + np.uint64(2**63), k=2), expected
    )
    np.testing.assert_array_equal(
        run(make, near_zero[0] + 2**33, k=2), run(make, near_zero[0] - 0.0, k=2)
    )


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
