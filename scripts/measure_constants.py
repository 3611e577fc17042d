"""Measure releases of score votes from few records against the best constant answer.

    export PATE_DATA=...    # the folder that holds multilabel/
    python -m scripts.measure_constants
    python -m scripts.measure_constants emotions medical --epsilons 0.1 1 --seeds 40
    python -m scripts.measure_constants emotions --purpose accuracy
    python -m scripts.measure_constants yeast birds emotions --teachers 100 --seeds 20

Each record is its own voter, noise has the target epsilon at delta 1e-6 under REPLACE_RECORD, and
only the noise differs between seeds. The best constant answer is the majority of each label among
the private records, without noise. The mAP is of the students' rankings. Three of five folds are private, one is public and one is the
test set; `birds` has folds drawn with seed 0. With `--teachers`, so many linear teachers give bits
to up to 500 public samples, each the ridge solution on a part of the records, and two `Rounds`
release them.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from pate import Outlook, Votes
from pate._core.validation import MOST_VOTERS
from pate._labeling.aggregators.moment_learner import Purpose
from pate._labeling.data.features.numeric import PublicScaling
from pate._labeling.linear import student_of
from pate._labeling.student.metrics import average_precision
from pate.accounting import NeighboringRelation
from pate.aggregators import Ballots, Geometry, Moments, RecordVoters, Rounds, Scores, ScoreVotes
from pate.data import ArrayFeatures

TASKS = ("yeast", "cal500", "birds", "corel5k")
EPSILONS = (0.1, 0.25, 0.5, 1.0)
MOST = 0.002  # of accuracy, by which a release may be below the constant answer


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row of Markdown for each task and epsilon."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--epsilons", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--first_seed", type=int, default=0)
    parser.add_argument("--teachers", type=int, default=0)
    parser.add_argument("--purpose", choices=get_args(Purpose), default="never_below_constant")
    options = parser.parse_args(arguments)
    print(
        f"| task | epsilon | constant | mean accuracy | least | more than {MOST} below | mean mAP |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|")
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    for name in options.tasks:
        arrays = arrays_of(Path(os.environ["PATE_DATA"]) / "multilabel" / "mulan" / f"{name}.npz")
        for epsilon in options.epsilons:
            (constant, _), *pairs = figures(
                *arrays,
                epsilon=epsilon,
                seeds=seeds,
                teachers=options.teachers,
                purpose=options.purpose,
            )
            rest, precisions = zip(*pairs, strict=True)
            below = sum(accuracy < constant - MOST for accuracy in rest)
            print(
                f"| {name} | {epsilon:g} | {constant:.4f} | {np.mean(rest):.4f} | {min(rest):.4f}"
                f" | {below} of {len(rest)} | {np.mean(precisions):.4f} |",
                flush=True,
            )


def arrays_of(file: Path) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return features, labels and folds, from 0 to 4, of a table."""
    arrays = np.load(file)
    drawn = np.random.default_rng(0).permutation(len(arrays["x"])) % 5
    folds = arrays["fold5"].astype(int) - 1 if "fold5" in arrays else drawn
    return arrays["x"].astype(np.float32), arrays["y"].astype(np.uint8), folds


def figures(
    features: NDArray[Any],
    labels: NDArray[Any],
    folds: NDArray[Any],
    *,
    epsilon: float,
    seeds: Iterable[int],
    teachers: int = 0,
    purpose: Purpose = "never_below_constant",
) -> Iterator[tuple[float, float]]:
    """Yield test accuracy and mAP of the constant answer, then of the student of each release."""
    private, public, test = folds < 3, folds == 3, folds == 4
    scaling = PublicScaling().fit(ArrayFeatures(features[public]))
    scaled = scaling.transform(ArrayFeatures(features)).astype(np.float64)
    aggregator = Rounds if teachers else ScoreVotes
    votes: Ballots | Scores | Moments
    if teachers:
        votes = bits_of(scaled[private], labels[private], scaled[public][:500], teachers)
    else:
        votes = votes_of_records(scaled[private], labels[private], scaled[public])
    terms: dict[str, Any] = {"num_queries": votes.num_queries, "delta": 1e-6}
    outlook = Outlook(shape=votes.shape, relation=NeighboringRelation.REPLACE_RECORD, **terms)
    (proposal,) = aggregator.proposals(outlook)
    if isinstance(proposal, ScoreVotes):
        proposal = replace(proposal, purpose=purpose)
    voting = proposal.calibrated(outlook.target(epsilon=epsilon), votes.shape)
    assert voting is not None
    shares = np.broadcast_to(labels[private].mean(axis=0), labels[test].shape)
    yield _scored(shares - 0.5, labels[test])
    for seed in seeds:
        release = voting.aggregate(votes, generator=np.random.default_rng(seed))
        student = student_of(release, scaled[public][: votes.num_queries], votes.num_teachers)
        yield _scored(student.logits(scaled[test]), labels[test])


def votes_of_records(private: NDArray[Any], labels: NDArray[Any], public: NDArray[Any]) -> Moments:
    """Return the votes on public samples ``[P, F]`` of records ``[N, F]`` that vote by moments."""
    geometry = Geometry.of(public)
    voters = RecordVoters(
        geometry=geometry,
        num_voters=MOST_VOTERS,  # nominal, as in a run: how many there are is private
        num_labels=labels.shape[1],
        coordinates=geometry.coordinates(private),
        labels=labels,
    )
    votes = Votes.from_voters(voters, public)
    assert isinstance(votes, Moments)
    return votes


def bits_of(
    features: NDArray[Any], labels: NDArray[Any], public: NDArray[Any], teachers: int
) -> Ballots:
    """Return bits of teachers on random parts of the records: ridge solutions around their means.

    The penalty is the mean square of a public sample around the public mean.
    """
    center = public.mean(axis=0)
    inner, outer = features - center, public - center
    penalty = float((outer**2).sum(axis=1).mean())
    part = np.random.default_rng(1).integers(teachers, size=len(inner))
    ballots = np.zeros((len(public), teachers, labels.shape[1]), dtype=np.uint8)
    for teacher in np.unique(part):
        x, y = inner[part == teacher], labels[part == teacher].astype(np.float64)
        level = y.mean(axis=0)
        weights = np.linalg.solve(x @ x.T + penalty * np.eye(len(x)), y - level)
        ballots[:, teacher] = outer @ (x.T @ weights) + level > 0.5
    return Votes.from_ballots(ballots).with_public(features=public)


def _scored(logits: NDArray[Any], labels: NDArray[Any]) -> tuple[float, float]:
    accuracy = float(((logits > 0) == labels).mean())
    return accuracy, float(average_precision(logits, labels > 0).mean())


if __name__ == "__main__":
    main()
