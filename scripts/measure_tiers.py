"""Compare budgets of persons with one budget for all, as Markdown.

    export PATE_DATA=...    # the folder that holds multilabel/
    python -m scripts.measure_tiers yeast tmc2007_500 digits 20ng

Each record draws one of the budgets 0.5, 1 and 2 (of 34, 43 and 23 of 100 records, as Boenisch et
al. (2022) suppose), at random: tiers are independent of records and labels, so that no label or
feature tells a tier. Three ways keep each record within its budget, by one release of `ScoreVotes`:

- everybody has the smallest budget;
- a release at 1 or at 2, of the records that have this budget, with nothing of the others;
- a release of `PersonalVotes` at 2, in which a record of a smaller budget has a smaller weight.

Beside them stands a release at 2 of all records, which breaks the budgets. The figure is the mAP of
the linear answers on the test set, the mean over seeds, each with tiers of its own.
"""

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pate import VoteShape
from pate._core.validation import MOST_VOTERS, BoolArray, FloatArray
from pate._labeling.aggregators.score_votes import released
from pate._labeling.data.features.numeric import AutoFeatures
from pate._labeling.data.records import ArrayFeatures
from pate._labeling.student.metrics import average_precision
from pate.accounting import Target
from pate.aggregators import Geometry, PersonalVotes, RecordVoters, ScoreVotes
from pate.mechanisms import seeded_generator
from scripts.measure_runs import PRIVATE, PUBLIC, TEST, records_of

DELTA = 1e-6
BUDGETS, SHARES = (0.5, 1.0, 2.0), (0.34, 0.43, 0.23)
WAYS = ("0.5 for all", "1 for those above 0.5", "2 for those at 2", "tiers", "2 for all")


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

    def mean_precision(
        self, epsilon: float, kept: BoolArray, seed: int, budgets: FloatArray | None = None
    ) -> float:
        """Return the mAP of a release at an epsilon of the records ``[N]`` that are kept."""
        target = Target(epsilon=epsilon, delta=DELTA, num_queries=self.queries)
        shape = VoteShape(MOST_VOTERS, self.labels.shape[1])
        plain: ScoreVotes = ScoreVotes(multiplier_scores=1.0)
        if budgets is not None:
            plain = PersonalVotes(multiplier_scores=1.0, budgets=BUDGETS, delta=DELTA)
        aggregator = plain.calibrated(target, shape)
        assert aggregator is not None, "noise can be found"
        voters = RecordVoters(
            geometry=self.geometry,
            num_voters=MOST_VOTERS,
            num_labels=shape.num_labels,
            coordinates=self.coordinates[kept],
            labels=self.labels[kept],
            budgets=budgets,
        )
        *_, last = released(aggregator, voters, self.queries, seeded_generator(seed))
        answers, _ = last.learner.answers(self.test.astype(np.float64))
        known = np.ones(self.right.shape, dtype=np.bool_)
        return float(np.mean(average_precision(answers, self.right > 0, known)))

    def measure(self, seed: int) -> dict[str, float]:
        """Return the figure of each way, for the budgets and the noise of a seed."""
        generator = np.random.default_rng(seed)
        budgets = np.array(BUDGETS)[generator.choice(3, len(self.labels), p=SHARES)]
        everybody = budgets > 0
        return {
            "0.5 for all": self.mean_precision(0.5, everybody, seed),
            "1 for those above 0.5": self.mean_precision(1.0, budgets >= 1, seed),
            "2 for those at 2": self.mean_precision(2.0, budgets == 2, seed),
            "tiers": self.mean_precision(2.0, everybody, seed, budgets),
            "2 for all": self.mean_precision(2.0, everybody, seed),
        }


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
