"""Compare budgets of persons with one budget for all, as Markdown.

    export PATE_DATA=...    # the folder that holds multilabel/
    python -m scripts.measure_tiers yeast tmc2007_500 digits 20ng

Each record draws one of the budgets 0.5, 1 and 2 (of 34, 43 and 23 of 100 records, as Boenisch et
al. (2022) suppose), at random: tiers are independent of records and labels, so that no label or
feature tells a tier. Three ways keep each record within its budget, by one release of `ScoreVotes`:

- everybody has the smallest budget;
- a release at 1 or at 2, of the records that have this budget, with nothing of the others;
- a release at 2 in which a record of a smaller budget has a clip, and a weight in the number of
  voters and in comparisons, that are smaller by the ratio of its ``mu`` to the ``mu`` of 2.

Beside them stands a release at 2 of all records, which breaks the budgets. The figure is the mAP of
the linear answers on the test set, the mean over seeds, each with tiers of its own.
"""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np

from pate import VoteShape
from pate._validation import MOST_VOTERS, FloatArray, IntArray
from pate._votes.geometry import Geometry
from pate._votes.voters import MomentQuery, RecordVoters
from pate.accounting import Target
from pate.aggregators import ScoreVotes
from pate.aggregators._score_votes import released
from pate.data._records import ArrayFeatures
from pate.data.features import AutoFeatures
from pate.mechanisms import seeded_generator
from pate.mechanisms._exact_normal import exceeds
from pate.student._metrics import average_precision
from scripts.measure_runs import PRIVATE, PUBLIC, TEST, records_of

DELTA = 1e-6
BUDGETS, SHARES = (0.5, 1.0, 2.0), (0.34, 0.43, 0.23)
WAYS = ("0.5 for all", "1 for those above 0.5", "2 for those at 2", "tiers", "2 for all")


@dataclass(frozen=True, eq=False, kw_only=True)
class WeighedVoters(RecordVoters):
    """Records with weights ``[N]`` in (0, 1], by which everything that they move is smaller."""

    weights: FloatArray

    @property
    def num_private(self) -> float:  # type: ignore[override]
        """The sum of the weights."""
        return float(self.weights.sum())

    def clipped_sum(self, question: MomentQuery, clip: float) -> FloatArray:
        """Return the sum of ballots, each clipped and then weighed."""
        total, done = np.zeros((self.geometry.num_directions + 1, self.num_labels)), 0
        for basis, residuals, norms in self.parts(question):
            weights = self.weights[done : done + len(norms)]
            done += len(norms)
            factors = weights * np.minimum(1, clip * (1 - 2**-30) / np.maximum(norms, 1e-300))
            total += basis.T @ np.trunc(residuals * factors[:, None])
        return total / 2.0**28


def weighed_median(weights: FloatArray) -> object:
    """Return the noisy bisection in which each voter counts with its weight."""

    def median(
        sizes: FloatArray,
        candidates: FloatArray,
        *,
        num_voters: float,
        sigma: float,
        generator: np.random.Generator,
    ) -> float:
        low, high = 0, len(candidates) - 1
        while low < high:
            middle = (low + high) // 2
            above = float(weights[sizes > candidates[middle]].sum())
            enough = exceeds(-above, -num_voters / 2, sigma=sigma, generator=generator)
            low, high = (low, middle) if enough else (middle + 1, high)
        return float(candidates[high])

    return median


class Table:
    """A task: its voters, and its test set."""

    def __init__(self, name: str) -> None:
        records = records_of(name, Path(os.environ["PATE_DATA"]) / "multilabel")
        self.name, split = name, records["split"]
        features = [ArrayFeatures(records["X"][split == role]) for role in (PRIVATE, PUBLIC, TEST)]
        fitted = AutoFeatures().fit(features[1])
        private, public, self.test = (fitted.transform(part) for part in features)
        self.labels, self.right = records["Y"][split == PRIVATE], records["Y"][split == TEST]
        self.geometry = Geometry.of(public, fitted.widths)
        self.coordinates, self.queries = self.geometry.coordinates(private), len(public)

    def mean_precision(self, epsilon: float, weights: FloatArray, seed: int) -> float:
        """Return the mAP of a release at an epsilon of records with weights ``[N]``."""
        target = Target(epsilon=epsilon, delta=DELTA, num_queries=self.queries)
        shape = VoteShape(MOST_VOTERS, self.labels.shape[1])
        aggregator, kept = ScoreVotes.for_target(target, shape), weights > 0
        assert aggregator is not None, "noise can be found"
        voters = WeighedVoters(
            geometry=self.geometry,
            num_voters=MOST_VOTERS,
            num_labels=shape.num_labels,
            coordinates=self.coordinates[kept],
            labels=self.labels[kept],
            weights=weights[kept],
        )
        median = weighed_median(voters.weights)
        with patch("pate.aggregators._score_votes.noisy_median", median):
            *_, last = released(aggregator, voters, self.queries, seeded_generator(seed))
        answers, _ = last.learner.answers(self.test.astype(np.float64))
        known = np.ones(self.right.shape, dtype=np.bool_)
        return float(np.mean(average_precision(answers, self.right > 0, known)))

    def measure(self, seed: int) -> dict[str, float]:
        """Return the figure of each way, for the tiers and the noise of a seed."""
        generator = np.random.default_rng(seed)
        tiers: IntArray = generator.choice(3, len(self.labels), p=SHARES)
        mus = np.array([_mu(epsilon) for epsilon in BUDGETS])
        weights = {
            "0.5 for all": (0.5, np.ones(len(tiers))),
            "1 for those above 0.5": (1.0, (tiers >= 1).astype(float)),
            "2 for those at 2": (2.0, (tiers == 2).astype(float)),
            "tiers": (2.0, (mus / mus[2])[tiers]),
            "2 for all": (2.0, np.ones(len(tiers))),
        }
        return {way: self.mean_precision(*weights[way], seed) for way in WAYS}


def _mu(epsilon: float) -> float:
    target = Target(epsilon=epsilon, delta=DELTA, num_queries=1)
    aggregator = ScoreVotes.for_target(target, VoteShape(MOST_VOTERS, 2))
    assert aggregator is not None, "noise can be found"
    return 1 / aggregator.multiplier_scores


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure missing seeds, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path("runs/tiers.jsonl"))
    options = parser.parse_args(arguments)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.touch()
    print(f"| | {' | '.join(WAYS)} |\n| --- |{' ---: |' * len(WAYS)}")
    for name in options.tasks:
        rows = [json.loads(line) for line in options.output.read_text().splitlines()]
        done = {seed for task, seed, _ in rows if task == name}
        missing = [seed for seed in range(options.seeds) if seed not in done]
        table = Table(name) if missing else None
        for seed in missing:
            assert table is not None, "seeds are missing"
            with options.output.open("a") as file:
                file.write(json.dumps([name, seed, table.measure(seed)]) + "\n")
        rows = [json.loads(line) for line in options.output.read_text().splitlines()]
        figures = [figures for task, _, figures in rows if task == name]
        means = [np.mean([each[way] for each in figures]) for way in WAYS]
        print(f"| {name} | {' | '.join(f'{mean:.3f}' for mean in means)} |", flush=True)


if __name__ == "__main__":
    main()
