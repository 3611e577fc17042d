"""Seeded outputs stay what they are, bit for bit, whatever is moved in the house.

`python -m tests.test_seeded` writes the digests anew, where an output was changed on purpose.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pate import VoteShape, mechanisms as m
from pate._core.mechanisms.noise import ChoiceNoise, Noise
from pate._labeling.data.records import partition_records
from pate._labeling.votes.kinds import pack_ballots
from pate.accounting import NeighboringRelation
from pate.aggregators import (
    Aggregator,
    Ballots,
    Canonical,
    ClippedVotes,
    ConfidentScreen,
    FixedStableTopK,
    InteractiveScreen,
    Joint,
    LimitedDomainTopK,
    NoisyVotes,
    Peeling,
    PermuteAndFlip,
    Rounds,
    StableTopK,
    TauVoting,
    TopStableTopK,
)
from scripts.faces.drawing import write_celeba_folder

PINS = Path(__file__).with_name("seeded.json")
RELATIONS = tuple(NeighboringRelation)
NUM_TEACHERS, NUM_LABELS = 25, 6

Draw = Callable[[Any, np.random.Generator], Any]


def seeded(mechanism: m.Mechanism[Any]) -> Draw:
    return lambda scores, generator: mechanism(scores, generator=generator)


def gap(**settings: Any) -> Draw:
    choose = m.GapChoice(num_labels=NUM_LABELS, scale=2.0, **settings)
    return lambda counts, generator: choose(
        m.sort_counts(counts, upper=NUM_TEACHERS).gaps, generator=generator
    )


NOISE: tuple[Noise, ...] = ("gumbel", "exponential", "laplace", "logistic", "half_logistic")
CANONICAL_NOISE: tuple[ChoiceNoise, ...] = ("gumbel", "exponential")
TEST: dict[str, Any] = {"delta_test": 1e-2, "shift": 2}
PANEL: dict[str, Any] = {"num_teachers": NUM_TEACHERS, "num_labels": NUM_LABELS}
STABLE: dict[str, Any] = {"scale_gap": 1.0, "sigma_test": 1.0, **TEST, **PANEL}
TOP_STABLE: dict[str, Any] = {
    "scale_threshold": 0.5,
    "scale_gap": 1.0,
    "scale_peel": 2.0,
    "delta": 1e-2,
}
RANKED: dict[str, Draw] = {
    "one-shot exponential": seeded(m.NoisyTopK(k=3, scale=2.0)),
    "one-shot permute and flip": seeded(m.NoisyTopK(k=3, scale=2.0, noise="exponential")),
    **{f"noisy top-k {noise}": seeded(m.NoisyTopK(k=3, scale=2.0, noise=noise)) for noise in NOISE},
    "cdp peel": seeded(m.GumbelPeeling(k=3, scale=2.0)),
    "pnf peel": seeded(m.PermuteAndFlipPeeling(k=3, scale=2.0)),
    "one-shot laplace": seeded(m.OneShotLaplace(k=3, scale=2.0)),
    **{
        f"canonical {noise} {gamma}": seeded(
            m.CanonicalMechanism(k=3, scale=2.0, gamma=gamma, noise=noise)
        )
        for noise in CANONICAL_NOISE
        for gamma in (0.5, 1.0)
    },
    "joint gumbel": seeded(m.JointMechanism(k=3, scale=2.0)),
    "joint exponential": seeded(m.JointMechanism(k=3, scale=2.0, noise="exponential")),
    **{
        f"limited domain {relation}": seeded(
            m.LimitedDomain(k=2, kbar=3, scale=2.0, delta=1e-2, relation=relation)
        )
        for relation in RELATIONS
    },
    **{
        f"top stable {relation}": seeded(m.TopStable(k=2, kbar=4, relation=relation, **TOP_STABLE))
        for relation in RELATIONS
    },
}
COUNTED: dict[str, Draw] = {
    **{
        f"choose gap {noise} {empty}": gap(noise=noise, allow_empty=empty)
        for noise in ("gumbel", "exponential", "laplace", "gaussian")
        for empty in (True, False)
    },
    "choose gap kbar": gap(kbar=3, regularizer=tuple(-np.arange(7.0))),
    "stability test": seeded(m.StabilityTest(num_teachers=NUM_TEACHERS, sigma=2.0, **TEST)),
    "stable top-k": seeded(m.StableTopKMechanism(**STABLE)),
    "fixed stable top-k": seeded(
        m.FixedTopKMechanism(k=3, rank_penalty=1.0, scale_peel=1.0, **STABLE)
    ),
}


def aggregators(relation: NeighboringRelation) -> dict[str, Aggregator]:
    """Return every aggregator of the package, most of them in more than one form."""
    common: dict[str, Any] = {"neighboring_relation": relation}
    tested: dict[str, Any] = {"scale_gap": 1.0, "sigma_test": 1.0, "delta_test": 1e-2}
    stable_top_k = partial(StableTopK, **tested, **common)
    noisy = NoisyVotes(sigma_votes=2.0, **common)
    stable = FixedStableTopK(
        k=2,
        rank_penalty=0.5,
        **{f"{name}_fixed": value for name, value in tested.items()},
        scale_peel_fixed=1.0,
        **common,
    )
    screen: dict[str, Any] = {"sigma_interactive": 1.0, "threshold_interactive": 6.0}
    clipped = ClippedVotes(multiplier_clipped=5.0, **common)
    around = ClippedVotes(multiplier_clipped=4.0, around_predictions=True, **common)
    return {
        "noisy": noisy,
        "hard": NoisyVotes(sigma_votes=2.0, soft=False, **common),
        "threshold": NoisyVotes(sigma_votes=2.0, min_lead=2.0, soft=False, **common),
        "tau": TauVoting(tau=1.5, sigma_tau=2.0, threshold_tau=12.0, **common),
        "tau l1": TauVoting(tau=2.0, sigma_tau=2.0, threshold_tau=12.0, norm="l1", **common),
        "tau around": TauVoting(
            tau=1.5, sigma_tau=2.0, threshold_tau=12.0, around_predictions=True, **common
        ),
        "stable": stable_top_k(),
        "stable, not empty": stable_top_k(allow_empty=False),
        "gaussian stable": stable_top_k(noise_law="gaussian"),
        "fixed": stable,
        "fixed with a fallback": replace(stable, fallback=True, scale_noise_with_rounds=True),
        "peeling": Peeling(k=2, scale_peel=2.0, **common),
        "peeling by laplace": Peeling(k=2, scale_peel=2.0, noise_law="laplace", **common),
        "permute and flip": PermuteAndFlip(k=2, scale_flip=2.0, **common),
        "limited domain": LimitedDomainTopK(
            k=2, kbar=3, scale_domain=1.0, delta_domain=1e-2, **common
        ),
        "top stable with a fallback": TopStableTopK(
            k=2,
            kbar=4,
            scale_threshold_stable=0.5,
            scale_gap_stable=1.0,
            scale_peel_stable=2.0,
            delta_stable=1e-2,
            fallback=True,
            **common,
        ),
        "joint by permute and flip": Joint(k=2, scale_joint=2.0, noise_law="exponential", **common),
        "canonical by permute and flip": Canonical(
            k=2, scale_canonical=2.0, noise_law="exponential", **common
        ),
        "joint": Joint(k=2, scale_joint=2.0, **common),
        "canonical": Canonical(k=2, scale_canonical=2.0, **common),
        "confident": ConfidentScreen(
            answers=noisy, sigma_confident=2.0, threshold_confident=8.0, **common
        ),
        "clipped": clipped,
        "clipped around": around,
        "clipped, too few teachers": ClippedVotes(multiplier_clipped=9.0, **common),
        "rounds": Rounds(rounds=(clipped, around), **common),
        "rounds before a screen": Rounds(
            rounds=(clipped, InteractiveScreen(answers=noisy, **screen, **common)), **common
        ),
        "interactive": InteractiveScreen(answers=noisy, **screen, **common),
    }


def votes() -> Ballots:
    """Return votes on forty queries, with ballots, predictions and features."""
    generator = np.random.default_rng(7)
    likely = generator.random((40, 1, NUM_LABELS)) ** 2
    ballots = (generator.random((40, NUM_TEACHERS, NUM_LABELS)) < likely).astype(np.uint8)
    predictions, features = generator.random((40, NUM_LABELS)), np.sqrt(likely[:, 0])
    return Ballots(ballots=ballots, predictions=predictions, features=features)


def digest(value: Any) -> str:
    """Return a hash of arrays in any nesting; floats count up to the ninth digit."""
    hashed = hashlib.sha256()

    def add(part: Any) -> None:
        if isinstance(part, tuple | list):
            for each in part:
                add(each)
        elif isinstance(part, np.ndarray) and part.dtype.kind == "f":
            hashed.update(
                repr(part.shape).encode()
                + " ".join(f"{each:.9g}" for each in part.ravel()).encode()
            )
        elif isinstance(part, np.ndarray):
            hashed.update(repr(part.shape).encode() + np.ascontiguousarray(part).tobytes())
        else:
            hashed.update((f"{part:.9g}" if isinstance(part, float) else str(part)).encode())

    add(value)
    return hashed.hexdigest()[:16]


def seeded_mechanisms() -> Iterator[tuple[str, str]]:
    generator = np.random.default_rng(3)
    counts = generator.integers(0, NUM_TEACHERS + 1, (40, NUM_LABELS))
    scores = 9 * generator.random((12, NUM_LABELS))
    for name, draw in (RANKED | COUNTED).items():
        inputs = [counts, counts[0]] + ([scores, scores[0]] if name in RANKED else [])
        yield (
            name,
            digest([draw(each, m.seeded_generator(1, release=i)) for i, each in enumerate(inputs)]),
        )


def seeded_aggregators() -> Iterator[tuple[str, str]]:
    asked = votes()
    for relation in RELATIONS:
        for name, aggregator in aggregators(relation).items():
            released = aggregator.aggregate(asked, generator=m.seeded_generator(2))
            yield f"aggregator {name}, {relation}", digest(list(released[:5]))


def seeded_events() -> Iterator[tuple[str, str]]:
    for made_for in RELATIONS:
        for name, aggregator in aggregators(made_for).items():
            events = [
                aggregator.event(VoteShape(NUM_TEACHERS, NUM_LABELS), asked) for asked in RELATIONS
            ]
            described = [json.dumps(event.to_dict(), sort_keys=True) for event in events]
            yield f"event {name}, {made_for}", digest(described)


def seeded_data() -> Iterator[tuple[str, str]]:
    ids = np.char.mod("r%03d", np.arange(200))
    yield "partition", digest(partition_records(ids, ids, num_teachers=7, key=bytes(32)))
    groups = np.char.mod("g%02d", np.arange(200) // 5)
    yield (
        "partition by group",
        digest(partition_records(ids, groups, num_teachers=7, key=bytes(32))),
    )
    ballots = votes().ballots
    yield "packed ballots", digest(pack_ballots(ballots))


def outputs() -> dict[str, str]:
    return dict([*seeded_mechanisms(), *seeded_aggregators(), *seeded_events(), *seeded_data()])


PINNED: dict[str, str] = json.loads(PINS.read_text()) if PINS.is_file() else {}


@pytest.fixture(scope="module")
def seeded_digests() -> dict[str, str]:
    return outputs()


@pytest.mark.parametrize("name", sorted(PINNED))
def test_seeded_output_is_what_it_was(name: str, seeded_digests: dict[str, str]) -> None:
    assert seeded_digests[name] == PINNED[name]


def test_every_output_is_pinned(seeded_digests: dict[str, str]) -> None:
    assert set(seeded_digests) == set(PINNED)


def test_faces_are_what_they_were(tmp_path: Path) -> None:
    write_celeba_folder(
        tmp_path, num=12, private_fraction=0.5, public_fraction=0.25, progress=False
    )
    hashed = hashlib.sha256()
    for file in sorted(tmp_path.glob("*.txt")):
        hashed.update(file.read_bytes())
    for file in sorted((tmp_path / "img_align_celeba").iterdir()):
        hashed.update(np.asarray(Image.open(file)).tobytes())
    assert hashed.hexdigest()[:16] == "136c38045b8d0044"


if __name__ == "__main__":
    PINS.write_text(json.dumps(outputs(), indent=1, sort_keys=True) + "\n")
