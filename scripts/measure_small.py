"""Measure score votes of few records, for each purpose, beside private learning without votes.

    export PATE_DATA=...    # the folder that holds multilabel/
    python -m scripts.measure_small
    python -m scripts.measure_small yeast --sizes 300 --epsilons 1 --samples 1

Tables are sub-sampled: so many records are private, up to 500 of the rest public and up to 2,000 of
the others test. `celeba5` is 10 of CelebA's attributes, drawn with seed 5, that the other 30
predict. Means over sub-samples and, of votes, over draws of the noise, at delta 1e-6 under
REPLACE_RECORD; a rival has one draw for each sub-sample. All ways see the features of
`PublicScaling`. The constant answer is the majority of each label among the private records,
without noise. Constants of the mechanism were chosen on other tables: `emotions`, `medical`,
`cal500`, `tmc2007_500` and other attributes of CelebA.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pate import Outlook
from pate._labeling.aggregators.moment_learner import Purpose
from pate._labeling.data.features.numeric import PublicScaling
from pate._labeling.linear import student_of
from pate._labeling.student.metrics import average_precision
from pate.accounting import NeighboringRelation
from pate.aggregators import Moments, Scores, ScoreVotes
from pate.data import ArrayFeatures, Records
from scripts.measure_constants import votes_of_records
from scripts.rivals.contest import Arena, Contest, hold, rivals_of
from scripts.rivals.contributions import Contributions, PublicScale
from scripts.rivals.descent import Descent

TASKS = ("birds", "yeast", "enron", "celeba5")
SIZES = (300, 500, 1000)
EPSILONS = (0.5, 1.0)
DELTA = 1e-6
PURPOSES: tuple[Purpose, ...] = ("accuracy", "never_below_constant", "ranking")
RIVALS = ("least squares, public features", "logistic regression by DP-SGD")
_RANKED = ("accuracy", "ranking", *RIVALS)  # never_below_constant ranks as accuracy does
_PUBLIC, _TEST, _LEAST = 500, 2000, 200
_ATTRIBUTES, _LABELS, _DRAWN = 162_770, 10, 6000

Array = NDArray[Any]
Figures = tuple[float, float]
"""Accuracy and mAP."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row of Markdown for each table, number of records and epsilon."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES))
    parser.add_argument("--epsilons", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--first_seed", type=int, default=0)
    options = parser.parse_args(arguments)
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


def figures(
    features: Array, labels: Array, num: int, epsilon: float, seed: int, draws: int
) -> tuple[float, dict[str, Figures]]:
    """Return the accuracy of the constant answer on a sub-sample, and the figures of each way."""
    order = np.random.default_rng((seed, num)).permutation(len(features))
    rest = len(features) - num
    private, others = order[:num], order[num:]
    num_public = min(_PUBLIC, rest // 2)
    public, test = others[:num_public], others[num_public:][:_TEST]
    scaling = PublicScaling().fit(ArrayFeatures(features[public]))
    scaled = scaling.transform(ArrayFeatures(features)).astype(np.float64)
    truth = labels[test]
    majority = labels[private].mean(axis=0) > 0.5
    votes = votes_of_records(scaled[private], labels[private], scaled[public])
    found: dict[str, Figures] = {}
    for purpose in PURPOSES:
        voting = voting_of(purpose, votes, epsilon)
        scores = []
        for draw in range(draws):
            release = voting.aggregate(votes, generator=np.random.default_rng(draw))
            student = student_of(release, scaled[public], votes.num_teachers)
            logits = student.logits(scaled[test])
            right = float(((logits > 0) == truth).mean())
            scores.append((right, float(average_precision(logits, truth > 0).mean())))
        found[purpose] = (
            float(np.mean([a for a, _ in scores])),
            float(np.mean([m for _, m in scores])),
        )
    rows = {"private": private, "public": public, "test": test}
    found |= of_rivals(scaled.astype(np.float32), labels, rows, epsilon)
    return float((majority == truth).mean()), found


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
    scale = PublicScale.of(public.features, standardise=False)
    arena = Arena(
        private=Contributions.of(private, scale, private.ids),
        public=scale(public.features).astype(np.float64),
        test=scale(test.features).astype(np.float64),
        truth=test.labels,
        unit="record",
    )
    contest = Contest(epsilons=(epsilon,), delta=DELTA, seeds=1)
    scores = hold(
        arena, [each for each in rivals_of(arena, Descent()) if each.name in RIVALS], contest
    )
    return {each.rival: (each.accuracy, each.mAP) for each in scores.scores if each.rival in RIVALS}


if __name__ == "__main__":
    main()
