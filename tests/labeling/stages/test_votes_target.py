"""`pate label --votes` with a target epsilon, and with aggregators that see features of the
queries."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate import NamedVotes, cli
from pate._core.accounting.charges import account
from pate.accounting import NeighboringRelation, read_ledger
from tests.conftest import made_votes
from tests.labeling.stages.test_votes_import import (
    NAMES,
    Captured,
    label,
    part,
    place,
    refused,
    released,
    spent,
)

__all__ = ["place"]

KNOWN = (
    "--aggregator=tests.labeling.aggregators.test_features.VotesWhereKnown",
    "--aggregator.init_args.sigma_votes=0.1",
    "--noise_seed=1",
)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--max_epsilon=1",), "target_epsilon <= 1.0 (--max_epsilon)"),
        (("--max_teachers_per_unit=21",), "Expected max_teachers_per_unit <= 20, got"),
    ],
)
def test_votes_of_a_refused_target_stay_where_they_were(
    words: tuple[str, ...], message: str, place: Path, capsys: Captured
) -> None:
    error = refused(
        capsys,
        "--votes=votes.npz",
        "--target_epsilon=2",
        *words,
        aggregator=("--aggregator=NoisyVotes",),
    )
    assert message in error and not Path("runs/mine").exists() and spent() == 0


KINDS = [
    ("NoisyVotes",),
    ("Peeling", "k=2"),
    ("StableTopK",),
    ("pate.aggregators.ConfidentScreen",),
]
# what is read from the votes depends on whether a class chooses its noise by their number, and on
# what they are
FAST = [(KINDS[0], "votes.npz")]
PAIRS = [(kind, votes) for kind in KINDS for votes in ("votes.npz", "silos")]


@pytest.mark.parametrize(
    ("aggregator", "votes"),
    [each if each in FAST else pytest.param(*each, marks=pytest.mark.slow) for each in PAIRS],
    ids=lambda given: given if isinstance(given, str) else given[0],
)
def test_a_name_and_a_target_are_enough(
    aggregator: tuple[str, ...], votes: str, place: Path
) -> None:
    whole = made_votes()
    for name, teachers in (("a", slice(0, 8)), ("b", slice(8, 20))):
        part(whole, teachers).save(Path(f"silos/{name}.npz"))
    name, *given = aggregator
    words = (f"--aggregator={name}", *(f"--aggregator.{each}" for each in given))
    # the same command, with the votes and without
    for asked in (f"--votes={votes}",), (f"--votes={votes}",), ():
        assert label("--target_epsilon=12", "--num_queries=20", *asked, aggregator=words) == 0
    statement = json.loads(Path("runs/mine/public/privacy.json").read_text())
    assert released().release == 1 and released().num_teachers == 20
    # the settings that it wrote find these labels
    assert cli.main(["label", "--config=runs/mine/public/label.yaml", "--run=runs/mine"]) == 0
    ledger = "silos/ledger.sqlite" if votes == "silos" else "votes.ledger.sqlite"
    assert spent(ledger) == 1
    # target and statement count the order of choices and tests
    charges, relation = read_ledger(Path(ledger)).reserved(), NeighboringRelation.REPLACE_RECORD
    total = account(charges, relation).get_epsilon(delta=statement["delta"])
    assert statement["guarantees"][relation.value]["epsilon"] <= total
    assert 12 * (1 - 1e-4) < total <= 12


def features_of(ids: np.ndarray) -> np.ndarray:
    """Two features, the first of which is above 0 for every third id."""
    numbers = np.array([int(name.strip("r")) for name in ids.tolist()])
    return np.stack([np.where(numbers % 3 == 0, 1.0, -1.0), numbers], axis=1)


def bringing(votes: NamedVotes, features: np.ndarray | None) -> NamedVotes:
    return replace(votes, features=features)


def in_one_file(votes: NamedVotes) -> None:
    bringing(votes, features_of(votes.ids)).save(Path("votes.npz"))


def in_one_silo(votes: NamedVotes) -> None:
    """Of three silos, the second brings them."""
    Path("votes.npz").unlink()
    for number, teachers in enumerate((slice(0, 5), slice(5, 9), slice(9, 20))):
        silo = part(votes, teachers)
        bringing(silo, features_of(votes.ids) if number == 1 else None).save(
            Path(f"votes.npz/{number}.npz")
        )


@pytest.mark.parametrize("bring", [in_one_file, pytest.param(in_one_silo, marks=pytest.mark.slow)])
def test_features_may_come_with_the_votes(bring: Callable[[NamedVotes], Any], place: Path) -> None:
    """No data are named; the features of each query reach the aggregator."""
    bring(made_votes())
    assert label("--votes=votes.npz", aggregator=KNOWN) == 0
    found = released()
    known = features_of(found.ids)[:, 0] > 0
    assert (
        not found.labels[~known].any() and found.labels[known].any() and found.label_names == NAMES
    )
    # teachers are voters by the same features
    voters = ("--aggregator=ScoreVotes", "--target_epsilon=2000", "--noise_seed=1")
    assert label("--votes=votes.npz", run="runs/voters", aggregator=voters) == 0
    answers = released("runs/voters")
    assert answers.linear and answers.noisy_counts is not None
    design = np.column_stack((features_of(answers.ids), np.ones(len(answers.ids))))
    fitted = design @ np.linalg.lstsq(design, answers.noisy_counts)[0]
    np.testing.assert_allclose(answers.noisy_counts, fitted, atol=1e-6)
    assert np.ptp(fitted, axis=0).max() > 1e-3
    # lost ones are told, and brought again
    file = Path("runs/mine/private/votes/features.npy")
    file.unlink()
    assert label("--votes=votes.npz", aggregator=KNOWN) == 0
    assert file.is_file() and released().release == 1
