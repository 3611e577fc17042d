"""Measure score votes of few records, for each purpose, beside private learning without votes.

    export PATE_DATA=...    # the folder that holds multilabel/
    python -m scripts.measure_small
    python -m scripts.measure_small yeast --sizes 300 --epsilons 1 --samples 1
    python -m scripts.measure_small yeast emotions --constants    # whole tables

Tables are sub-sampled: so many records are private, up to 500 of the rest public and up to 2,000 of
the others test. `celeba5` is 10 of CelebA's attributes, drawn with seed 5, that the other 30
predict. Means over sub-samples and, of votes, over draws of the noise, at delta 1e-6 under
REPLACE_RECORD; a rival has one draw for each sub-sample. All ways see the features of
`PublicScaling`. The constant answer is the majority of each label among the private records,
without noise. Constants of the mechanism were chosen on other tables: `emotions`, `medical`,
`cal500`, `tmc2007_500` and other attributes of CelebA.

With `--constants` three of five folds of a table are private, one is public and one is the test set
(`birds` has folds drawn with seed 0), and 40 releases, of which only the noise differs, are compared
with the constant answer.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pate import Outlook, Votes
from pate._core.validation import MOST_VOTERS
from pate._labeling.aggregators.score_votes import Purpose
from pate._labeling.data.feature_maps import PublicScaling
from pate._labeling.linear import student_of
from pate._labeling.runs.released import average_precision
from pate.accounting import NeighboringRelation
from pate.aggregators import Geometry, Moments, RecordVoters, Scores, ScoreVotes
from pate.data import ArrayFeatures, Records
from scripts.rivals.contest import Arena, hold, rivals_of
from scripts.rivals.contributions import Contributions, PublicScale
from scripts.rivals.descent import Descent

TASKS = ("birds", "yeast", "enron", "celeba5")
SIZES = (300, 500, 1000)
EPSILONS = (0.5, 1.0)
DELTA = 1e-6
RELEASES = 40
MOST = 0.002  # of accuracy, by which a release may be below the constant answer
PURPOSES: tuple[Purpose, ...] = ("accuracy", "never_below_constant", "ranking")
RIVALS = ("least squares, public features", "logistic regression by DP-SGD")
_RANKED = ("accuracy", "ranking", *RIVALS)  # never_below_constant ranks as accuracy does
_PUBLIC, _TEST, _LEAST = 500, 2000, 200
_ATTRIBUTES, _LABELS, _DRAWN = 162_770, 10, 6000

Array = NDArray[Any]
Figures = tuple[float, float]
"""Accuracy and mAP."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES))
    parser.add_argument("--epsilons", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--first_seed", type=int, default=0)
    parser.add_argument("--constants", action="store_true", help="against the constant answer")
    parser.add_argument("--purpose", choices=PURPOSES, default="never_below_constant")
    options = parser.parse_args(arguments)
    (against_constants if options.constants else against_rivals)(options)


def against_constants(options: argparse.Namespace) -> None:
    """Print a row of Markdown for each table and epsilon."""
    print(
        f"| task | epsilon | constant | mean accuracy | least | more than {MOST} below | mean mAP |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name in options.tasks:
        features, labels, folds = folds_of(name)
        private, public, test = folds < 3, folds == 3, folds == 4
        scaled = scaled_by(features, public)
        votes = votes_of_records(scaled[private], labels[private], scaled[public])
        constant = float(((labels[private].mean(axis=0) > 0.5) == labels[test]).mean())
        for epsilon in options.epsilons:
            voting = voting_of(options.purpose, votes, epsilon)
            seeds = range(options.first_seed, options.first_seed + RELEASES)
            found = [student_figures(voting, votes, scaled, public, test, labels, s) for s in seeds]
            rest, precisions = zip(*found, strict=True)
            below = sum(accuracy < constant - MOST for accuracy in rest)
            print(
                f"| {name} | {epsilon:g} | {constant:.4f} | {np.mean(rest):.4f} | {min(rest):.4f}"
                f" | {below} of {len(rest)} | {np.mean(precisions):.4f} |",
                flush=True,
            )


def against_rivals(options: argparse.Namespace) -> None:
    """Print a row of Markdown for each table, number of records and epsilon."""
    titles = [
        *(f"accuracy: {way}" for way in ("constant", *PURPOSES, *RIVALS)),
        *(f"mAP: {way}" for way in _RANKED),
    ]
    print("| table | records | epsilon | " + " | ".join(titles) + " |")
    print("|---|" + "---:|" * (2 + len(titles)))
    for name in options.tasks:
        features, labels = table_of(name)
        for num in options.sizes:
            if num > len(features) - _LEAST:
                continue
            for epsilon in options.epsilons:
                seeds = range(options.first_seed, options.first_seed + options.samples)
                samples = [figures(features, labels, num, epsilon, s, options.draws) for s in seeds]
                constants, ways = zip(*samples, strict=True)
                means = {
                    way: np.mean([each[way] for each in ways], axis=0)
                    for way in (*PURPOSES, *RIVALS)
                }
                values = [np.mean(constants), *(mean[0] for mean in means.values())]
                values += [means[way][1] for way in _RANKED]
                cells = " | ".join(f"{value:.3f}" for value in values)
                print(f"| {name} | {num:,} | {epsilon:g} | {cells} |", flush=True)


def table_of(name: str) -> tuple[Array, Array]:
    """Return features and labels of a table, or of drawn attributes of CelebA."""
    folder = Path(os.environ["PATE_DATA"]) / "multilabel"
    if not name.startswith("celeba"):
        arrays = np.load(folder / "mulan" / f"{name}.npz")
        return arrays["x"].astype(np.float32), arrays["y"].astype(np.uint8)
    generator = np.random.default_rng(int(name.removeprefix("celeba")))
    rows = generator.choice(_ATTRIBUTES, _DRAWN, replace=False)
    attributes = np.load(folder / "celeba_attributes.npz")["attr"][rows] > 0
    order = generator.permutation(attributes.shape[1])
    labels, others = order[:_LABELS], order[_LABELS:]
    return attributes[:, others].astype(np.float32) * 2 - 1, attributes[:, labels].astype(np.uint8)


def folds_of(name: str) -> tuple[Array, Array, Array]:
    """Return features, labels and folds, from 0 to 4, of a table."""
    arrays = np.load(Path(os.environ["PATE_DATA"]) / "multilabel" / "mulan" / f"{name}.npz")
    drawn = np.random.default_rng(0).permutation(len(arrays["x"])) % 5
    folds = arrays["fold5"].astype(int) - 1 if "fold5" in arrays else drawn
    return arrays["x"].astype(np.float32), arrays["y"].astype(np.uint8), folds


def scaled_by(features: Array, public: Array) -> Array:
    """Return features that the ``public`` rows scale."""
    scaling = PublicScaling().fit(ArrayFeatures(features[public]))
    return scaling.transform(ArrayFeatures(features)).astype(np.float64)


def votes_of_records(private: Array, labels: Array, public: Array) -> Moments:
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


def student_figures(
    voting: ScoreVotes,
    votes: Moments,
    scaled: Array,
    public: Array,
    test: Array,
    labels: Array,
    seed: int,
) -> Figures:
    """Return the figures of the student of one release."""
    release = voting.aggregate(votes, generator=np.random.default_rng(seed))
    logits = student_of(release, scaled[public], votes.num_teachers).logits(scaled[test])
    precision = float(average_precision(logits, labels[test] > 0).mean())
    return float(((logits > 0) == labels[test]).mean()), precision


def figures(
    features: Array, labels: Array, num: int, epsilon: float, seed: int, draws: int
) -> tuple[float, dict[str, Figures]]:
    """Return the accuracy of the constant answer on a sub-sample, and the figures of each way."""
    order = np.random.default_rng((seed, num)).permutation(len(features))
    rest = len(features) - num
    private, others = order[:num], order[num:]
    num_public = min(_PUBLIC, rest // 2)
    public, test = others[:num_public], others[num_public:][:_TEST]
    scaled = scaled_by(features, public)
    majority = labels[private].mean(axis=0) > 0.5
    votes = votes_of_records(scaled[private], labels[private], scaled[public])
    found: dict[str, Figures] = {}
    for purpose in PURPOSES:
        voting = voting_of(purpose, votes, epsilon)
        scores = [
            student_figures(voting, votes, scaled, public, test, labels, d) for d in range(draws)
        ]
        accuracy, precision = np.mean(scores, axis=0)
        found[purpose] = (float(accuracy), float(precision))
    rows = {"private": private, "public": public, "test": test}
    found |= of_rivals(scaled.astype(np.float32), labels, rows, epsilon)
    return float((majority == labels[test]).mean()), found


def voting_of(purpose: Purpose, votes: Scores | Moments, epsilon: float) -> ScoreVotes:
    """Return score votes for a purpose, with the noise for epsilon."""
    outlook = Outlook(
        shape=votes.shape,
        relation=NeighboringRelation.REPLACE_RECORD,
        num_queries=votes.num_queries,
        delta=DELTA,
    )
    voting = ScoreVotes(multiplier_scores=1.0, purpose=purpose)
    calibrated = voting.calibrated(outlook.target(epsilon=epsilon), votes.shape)
    assert calibrated is not None
    return calibrated


def of_rivals(
    features: Array, labels: Array, rows: dict[str, Array], epsilon: float
) -> dict[str, Figures]:
    """Return the figures of private learning without votes, one draw of the noise."""
    private, public, test = (
        Records(
            features=ArrayFeatures(features[each]),
            labels=labels[each],
            ids=np.array([f"{name} {row}" for row in each]),
        )
        for name, each in rows.items()
    )
    scale = PublicScale.of(public.features)
    arena = Arena(
        private=Contributions.of(private, scale, private.ids),
        public=scale(public.features).astype(np.float64),
        test=scale(test.features).astype(np.float64),
        truth=test.labels,
    )
    rivals = [each for each in rivals_of(arena, Descent()) if each.name in RIVALS]
    scores = hold(arena, rivals, (epsilon,), range(1), DELTA)
    return {each.rival: (each.accuracy, each.mAP) for each in scores if each.rival in RIVALS}


if __name__ == "__main__":
    main()
