"""`pate label --target_epsilon`: the noise of any aggregator is scaled until its release costs no
more than asked."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from pate import LabelSettings, Partial, ReleasedLabels, VoteShape, cli
from pate._labeling.release.label_settings import (
    first_settings,
    resolve_settings,
    scale_to_target,
    teachers_for,
)
from pate.accounting import (
    Budget,
    NeighboringRelation,
    RDPAccountant,
    Target,
    epsilon_of,
    read_ledger,
)
from pate.aggregators import Aggregator, Moments, NoisyVotes, ScoreVotes, StableTopK

Printed = pytest.CaptureFixture[str]
RELATION = NeighboringRelation.REPLACE_RECORD
PANEL = VoteShape(10, 4)


def label(run: Path, *words: str) -> int:
    options = [
        "--num_queries=50",
        "--delta=1e-3",
        "--noise_seed=1",
        "--overwrite",
        "--run",
        str(run),
    ]
    return cli.main(["label", *options, *words])


def aggregator_settings(run: Path) -> dict[str, Any]:
    settings: dict[str, Any] = yaml.safe_load((run / "public" / "label.yaml").read_text())[
        "aggregator"
    ]["init_args"]
    return settings


def spent(run: Path) -> float:
    """Return the epsilon of the last release alone, under its own relation."""
    released, entry = ReleasedLabels.load(run), read_ledger(run / "ledger.sqlite").entries[-1]
    relation = NeighboringRelation[released.aggregator["init_args"]["neighboring_relation"]]
    return epsilon_of(entry.events[relation], count=entry.count, delta=released.delta)


GIVEN = [
    ("NoisyVotes", ()),
    ("NoisyVotes", ("sigma_votes=3", "neighboring_relation=ADD_REMOVE_TEACHER")),
    ("StableTopK", ("delta_test=1e-6", "scale_gap=1", "sigma_test=2")),
]
# what differs from these in the calibration alone, which the contract of each aggregator checks
ALIKE = [
    ("StableTopK", ("delta_test=1e-6", "allow_empty=false")),
    ("NoisyVotes", ("soft=false", "min_lead=1")),
    ("TauVoting", ("tau=1.5", "threshold_tau=4")),
    ("FixedStableTopK", ("k=2",)),
    ("Canonical", ("k=2",)),
    ("ClippedVotes", ()),
]


@pytest.mark.parametrize(
    ("name", "settings"),
    [*GIVEN, *(pytest.param(*each, marks=pytest.mark.slow) for each in ALIKE)],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_release_costs_what_was_asked_at_most(
    name: str, settings: tuple[str, ...], copied: Path
) -> None:
    """By name alone, with some settings, or with all noise in some proportion."""
    words = [f"--aggregator={name}", *(f"--aggregator.{each}" for each in settings)]
    assert label(copied, *words, "--target_epsilon=400") == 0
    assert 400 * (1 - 1e-4) < spent(copied) <= 400
    released, entries = (
        ReleasedLabels.load(copied),
        len(read_ledger(copied / "ledger.sqlite").entries),
    )
    found = released.aggregator["init_args"]
    for each in settings:
        setting, _, value = each.partition("=")
        if not setting.startswith(("scale", "sigma", "neighboring")):
            assert found[setting] == yaml.safe_load(value) or found[setting] == float(value)
    if {"scale_gap=1", "sigma_test=2"} <= set(settings):
        assert found["sigma_test"] / found["scale_gap"] == pytest.approx(2, rel=1e-12)
    noise = {
        key: value
        for key, value in found.items()
        if key.startswith(("scale", "sigma", "multiplier"))
    }
    assert noise and noise.items() <= aggregator_settings(copied).items()
    # the same command, and the settings that it wrote, find these labels
    for again in (
        [*words, "--target_epsilon=400"],
        ["--config", str(copied / "public" / "label.yaml")],
    ):
        before = (copied / "public" / "labels.npz").read_bytes()
        assert label(copied, *again) == 0
        assert (copied / "public" / "labels.npz").read_bytes() == before
    assert len(read_ledger(copied / "ledger.sqlite").entries) == entries


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("NoisyVotes", "--aggregator.sigma_votes of NoisyVotes, or --target_epsilon"),
        ("Peeling --target_epsilon=1", "k (--aggregator.k) of Peeling"),
        ("NoisyVotes --target_epsilon=2 --max_epsilon=1", "target_epsilon <= 1.0 (--max"),
        (
            "StableTopK --aggregator.scale_gap=1 --target_epsilon=2",
            "all noise of StableTopK or none of it, got missing='--aggregator.sigma_test'",
        ),
        (
            "FixedStableTopK --aggregator.k=2 --aggregator.delta_test_fixed=1e-3 --target_epsilon=2",
            "a target that some noise reaches, with delta = 0.001, got target_epsilon=2.0",
        ),
    ],
)
def test_what_cannot_be_met_is_one_line_and_spends_nothing(
    words: str, message: str, copied: Path, capsys: Printed
) -> None:
    before = (copied / "public" / "labels.npz").read_bytes()
    assert label(copied, *f"--aggregator={words}".split()) == 2
    error = capsys.readouterr().err
    assert f"Expected {message}" in error and len(error.splitlines()) == 1
    assert len(read_ledger(copied / "ledger.sqlite").entries) == 1
    assert (copied / "public" / "labels.npz").read_bytes() == before


def test_proportions_are_kept() -> None:
    target = Target(epsilon=2, delta=1e-4, num_queries=50, neighboring_relation=RELATION)
    start: Aggregator = StableTopK(scale_gap=1.0, sigma_test=3.0, delta_test=1e-7)
    found = scale_to_target(start, target, PANEL)
    assert found.noise["sigma_test"] / found.noise["scale_gap"] == pytest.approx(3, rel=1e-12)
    with pytest.raises(ValueError, match=r"^Expected a target that some noise reaches, with delta"):
        scale_to_target(StableTopK(scale_gap=1.0, sigma_test=1.0, delta_test=1e-3), target, PANEL)
    with pytest.raises(ValueError, match=r"^Expected target_epsilon <= 1\.0"):
        scale_to_target(
            NoisyVotes(sigma_votes=1),
            target,
            PANEL,
            Budget(max_epsilon=1, delta=1e-4, neighboring_relation=RELATION),
        )


SHAPE, FIRST_SHAPE, SIZE = VoteShape(2000, 5), VoteShape(1 << 23, 5), 400


def asked(epsilon: float = 1.0, reach: int = 1) -> LabelSettings:
    return LabelSettings(
        Partial(NoisyVotes),
        delta=1e-6,
        target_epsilon=epsilon,
        num_queries=50,
        max_teachers_per_unit=reach,
    )


@pytest.mark.parametrize("reach", [1, 2])
def test_both_releases_together_meet_the_target(reach: int) -> None:
    settings = asked(reach=reach)
    first = resolve_settings(first_settings(settings), FIRST_SHAPE, SIZE, Moments)
    assert isinstance(first.aggregator, ScoreVotes)
    before = first.charge(FIRST_SHAPE)
    second = resolve_settings(settings, SHAPE, SIZE, before=[before])
    accountant = RDPAccountant(relation=NeighboringRelation.REPLACE_RECORD)
    after = second.charge(SHAPE)
    assert after is not None
    for events, count in (before, after):
        event = events[NeighboringRelation.REPLACE_RECORD].for_group_size(reach)
        accountant.compose(event, count)
    assert 0.999 < accountant.get_epsilon(delta=1e-6) <= 1.0
    alone = resolve_settings(settings, SHAPE, SIZE).mechanism
    ratio = second.mechanism.sigma_votes / alone.sigma_votes  # type: ignore[attr-defined]
    assert 1.41 < ratio < 1.42


def test_half_of_the_squared_budget_is_for_the_first() -> None:
    def whole(epsilon: float) -> ScoreVotes:
        settings = LabelSettings(Partial(ScoreVotes), delta=1e-6, target_epsilon=epsilon)
        chosen = resolve_settings(settings, FIRST_SHAPE, SIZE, Moments).aggregator
        assert isinstance(chosen, ScoreVotes)
        return chosen

    first = first_settings(asked())
    assert first.target_epsilon is not None
    ratio = whole(first.target_epsilon).multiplier_scores / whole(1.0).multiplier_scores
    assert ratio**2 == pytest.approx(2, rel=1e-4)


def test_more_budget_needs_fewer_teachers() -> None:
    numbers = [teachers_for(asked(epsilon), 5, SIZE, []) for epsilon in (0.5, 1.0, 4.0)]
    assert numbers == sorted(numbers, reverse=True) and numbers[0] > 2 * numbers[-1]
    assert all(number % 10 == 0 or number < 100 for number in numbers)


def test_the_first_release_is_paid_before_teachers_start_from_it() -> None:
    first = resolve_settings(first_settings(asked()), FIRST_SHAPE, SIZE, Moments)
    number = teachers_for(asked(), 5, SIZE, [first.charge(FIRST_SHAPE)])
    assert 1.3 < number / teachers_for(asked(), 5, SIZE, []) < 1.6
