"""What `pate topk` is asked for, at the ends of what is allowed, and the mechanism that this
makes."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from pate import cli
from pate._core.mechanisms.base import own_choices
from pate._core.release import top_k
from pate._core.release.histogram import Histogram
from pate._core.release.top_k import TopKSettings, top_k_statement_fields
from pate.accounting import NeighboringRelation, RDPAccountant
from pate.mechanisms import GumbelPeeling, LimitedDomain, seeded_generator

ITEMS = Histogram(tuple("abcdefgh"), np.arange(8), sensitivity=2.0, bound="two of each")
HIDDEN = Histogram(
    tuple("abcdefgh"), np.arange(8), sensitivity=2.0, bound="two of each", public=False
)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"k": 0, "scale": 1.0}, "k >= 1"),
        ({"k": 1}, "either target_epsilon or scale"),
        ({"k": 1, "scale": 1.0, "target_epsilon": 1.0}, "either target_epsilon or scale"),
        ({"k": 1, "scale": 0.0}, "scale > 0"),
        ({"k": 1, "target_epsilon": -1.0}, "target_epsilon > 0"),
        ({"k": 1, "scale": 1.0, "delta": 1.0}, "0 < delta < 1"),
        ({"k": 1, "scale": 1.0, "noise_seed": -1}, "noise_seed >= 0"),
        ({"k": 1, "scale": 1.0, "kbar": 3}, "no kbar with the mechanism peeling"),
        (
            {"k": 1, "scale": 1.0, "delta_domain": 1e-9},
            "no delta_domain with the mechanism peeling",
        ),
        ({"k": 3, "scale": 1.0, "kbar": 2, "mechanism": "limited_domain"}, "kbar >= k = 3"),
        (
            {"k": 1, "scale": 1.0, "delta_domain": 1e-6, "mechanism": "limited_domain"},
            "delta_domain < delta = 1e-06",
        ),
        ({"k": 1, "scale": 1.0, "mechanism": "best"}, "a mechanism among canonical, "),
    ],
)
def test_what_is_out_of_range_is_refused(settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError) as refused:
        TopKSettings(**settings)
    assert expected in str(refused.value) and "\n" not in str(refused.value)


def test_every_mechanism_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    """In the help, by its own words."""
    with pytest.raises(SystemExit):
        cli.main(["topk", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert len(own_choices()) >= 8
    for name, cls in own_choices().items():
        assert cls.short_help and f"{name}, {cls.short_help}" in told


@dataclass(frozen=True, kw_only=True)
class Needy(GumbelPeeling):
    """A mechanism with a field that no option sets."""

    gamma: float
    weights: tuple[float, ...] = field(default_factory=tuple)


def test_a_mechanism_that_needs_more_than_options_give_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(top_k, "choice", lambda name: Needy)
    told = r"^Expected defaults of all other fields of the mechanism needy, got fields=\['gamma'\]$"
    with pytest.raises(ValueError, match=told):
        TopKSettings(k=1, scale=1.0, mechanism="needy")


def test_the_ends_of_ranges_are_allowed() -> None:
    TopKSettings(k=1, scale=1.0, noise_seed=0)
    assert TopKSettings(k=1, scale=1.0).delta == 1e-6
    assert TopKSettings(k=1, scale=1.0, mechanism="limited_domain", kbar=1).num_candidates == 1
    limited = TopKSettings(k=3, scale=1.0, mechanism="limited_domain", kbar=3, delta_domain=0.99e-6)
    assert (limited.num_candidates, limited.failure_probability) == (3, 0.99e-6)
    assert TopKSettings(
        k=3, scale=1.0, mechanism="limited_domain"
    ).failure_probability == pytest.approx(1e-7)
    assert [
        TopKSettings(k=1, scale=1.0, mechanism=name).ordered for name in ("canonical", "joint")
    ] == [False, True]


@pytest.mark.parametrize("mechanism", ["peeling", "permute_and_flip", "canonical", "joint"])
def test_an_item_is_left_out_of_every_choice_that_needs_one(mechanism: Any) -> None:
    spare = int(mechanism == "canonical")
    for k in (8 - spare, 9 - spare):
        settings = TopKSettings(k=k, scale=3.0, mechanism=mechanism)
        if k == 8 - spare:
            made: Any = settings.mechanism_for(ITEMS)
            assert (made.k, made.sensitivity) == (k, 2.0)
        else:
            with pytest.raises(
                ValueError,
                match=rf"^Expected k <= {8 - spare} for 8 items and this mechanism, got k=",
            ):
                settings.mechanism_for(ITEMS)


def test_a_limited_domain_leaves_one_public_item_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(histogram: Histogram, **settings: Any) -> LimitedDomain:
        mechanism = TopKSettings(scale=3.0, mechanism="limited_domain", **settings).mechanism_for(
            histogram
        )
        assert (
            isinstance(mechanism, LimitedDomain)
            and mechanism.relation is NeighboringRelation.REPLACE_RECORD
        )
        return mechanism

    # wider by itself than there are items, it is as wide as they are; asked to be, it is refused
    assert (
        made(ITEMS, k=2).kbar == made(ITEMS, k=7).kbar == 7 and made(ITEMS, k=2, kbar=7).kbar == 7
    )
    for settings, most in (({"k": 2, "kbar": 8}, "kbar <= 7"), ({"k": 8}, "k <= 7")):
        with pytest.raises(ValueError, match=f"^Expected {most}"):
            made(ITEMS, **settings)
    # of hidden items nobody knows how many there are
    assert made(HIDDEN, k=2).kbar == 20 and made(HIDDEN, k=2, kbar=1_000_000).kbar == 1_000_000
    with pytest.raises(ValueError, match=r"^Expected kbar <= 1000000, got kbar=1000001$"):
        made(HIDDEN, k=2, kbar=1_000_001)
    monkeypatch.setattr(top_k, "_MOST_CANDIDATES", 20)
    assert made(HIDDEN, k=2, kbar=20).kbar == 20
    with pytest.raises(ValueError, match=r"^Expected kbar <= 20, got kbar=21$"):
        made(HIDDEN, k=2, kbar=21)
    with pytest.raises(ValueError, match=r"which needs none, got mechanism='peeling'$"):
        TopKSettings(k=2, scale=1.0).mechanism_for(HIDDEN)


@pytest.mark.parametrize("neighbors", ["add_remove", "replace"])
@pytest.mark.parametrize("mechanism", ["peeling", "limited_domain"])
def test_a_target_is_met_by_one_release_and_hardly_more(neighbors: Any, mechanism: Any) -> None:
    settings = TopKSettings(k=2, target_epsilon=1.5, mechanism=mechanism, neighbors=neighbors)
    event = settings.mechanism_for(ITEMS).event(settings.relation)
    cost = (
        RDPAccountant(relation=settings.relation).compose(event).get_epsilon(delta=settings.delta)
    )
    assert 1.5 * (1 - 1e-3) <= cost <= 1.5


@pytest.mark.parametrize("histogram", [ITEMS, HIDDEN], ids=["public", "hidden"])
def test_what_is_published_of_a_limited_domain_follows_from_it_alone(histogram: Histogram) -> None:
    settings = TopKSettings(k=2, kbar=5, scale=3.0, mechanism="limited_domain")
    mechanism = settings.mechanism_for(histogram)
    assert isinstance(mechanism, LimitedDomain)
    facts = top_k_statement_fields(settings, mechanism, histogram, "user")
    # five that may be named, and the one below them
    assert facts["gap"] == {
        "counts": mechanism.gap_to_answer(probability=0.9, num_items=6),
        "probability": 0.9,
    }
    assert (
        facts["num_items"] == (8 if histogram.public else None)
        and facts["max_teachers_per_unit"] == 1
        and facts["unit"] == "user"
    )


def test_what_is_published_of_a_choice_among_all_items_counts_them() -> None:
    settings = TopKSettings(k=2, scale=3.0)
    mechanism = settings.mechanism_for(ITEMS)
    facts = top_k_statement_fields(settings, mechanism, ITEMS, "user")
    assert facts["gap"]["counts"] == mechanism.gap_to_answer(probability=0.9, num_items=8)


@pytest.mark.parametrize("neighbors", ["add_remove", "replace"])
@pytest.mark.parametrize("mechanism", ["stable", "stable_fixed", "top_stable"])
def test_stable_sets_are_released_whole_or_not_at_all(mechanism: str, neighbors: Any) -> None:
    """Of counts that lie far apart, at a target that is met; of equal ones nothing."""
    settings = TopKSettings(k=3, target_epsilon=2.0, mechanism=mechanism, neighbors=neighbors)
    scores = np.array([4000, 10, 4010, 9, 3990, 8, 7, 6])
    far = replace(ITEMS, scores=scores, sensitivity=1.0)
    made = settings.mechanism_for(far)
    cost = RDPAccountant(relation=settings.relation).compose(made.event(settings.relation))
    assert 2 * (1 - 1e-3) <= cost.get_epsilon(delta=settings.delta) <= 2
    chosen = [made.choose(scores, generator=seeded_generator(seed)) for seed in range(20)]
    assert sum(sorted(each.tolist()) == [0, 2, 4] for each in chosen) >= 18
    # beyond the bound, and below 0, as marks for what is missing may be
    marked = np.where(scores == 6, -(2**62), np.where(scores == 4010, 2**62, scores))
    found = made.choose(marked, generator=seeded_generator(0)).tolist()
    assert set(found) <= {0, 2, 4}
    equal = np.full(8, 500)
    assert not any(made.choose(equal, generator=seeded_generator(seed)).size for seed in range(20))
    facts = top_k_statement_fields(settings, made, far, "user")
    assert facts["gap"]["probability"] == 0.9 and not facts["ordered"]
    assert made.accuracy(gap=facts["gap"]["counts"], num_items=8) == pytest.approx(0.9)
    with pytest.raises(ValueError, match=r"^Expected `items` with `pairs`"):
        settings.mechanism_for(HIDDEN)
