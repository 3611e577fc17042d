"""Time of 3,000 linear teachers in closed form, against a loop over scikit-learn.

The table has 99,000 private records, 5,000 public samples, 128 features and 25 labels. Of the
teachers in closed form all stages up to the released labels are timed, since only then are they
asked; `records` are 99,000 teachers of one record each. The loop fits a logistic regression for
each label of each teacher and lets it vote on the public samples; it is timed on a few teachers,
the first of which is left out. Times are processor times, in one process after its imports.

    python scripts/bench_closed_form.py [--teachers 3000] [--records 33] [--loop 10]
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

import pate
from pate.data import Arrays

PUBLIC, FEATURES, LABELS = 5_000, 128, 25


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row for each way."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--teachers", type=int, default=3_000)
    parser.add_argument("--records", type=int, default=33, help="records of a teacher")
    parser.add_argument("--loop", type=int, default=10, help="teachers that the loop is timed on")
    options = parser.parse_args(arguments)
    num_private = options.teachers * options.records
    plans = {
        "teachers in closed form": pate.ClosedFormPlan(num_teachers=options.teachers),
        "records in closed form": pate.ClosedFormPlan(),
    }
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        np.savez(folder / "data.npz", **make_table(100))  # type: ignore[arg-type]
        # which imports its modules
        seconds_of_stages(folder, "nothing", pate.ClosedFormPlan(num_teachers=10))
        arrays = make_table(num_private)
        np.savez(folder / "data.npz", **arrays)  # type: ignore[arg-type]
        loop = options.teachers * seconds_of_a_loop(arrays, options.loop, options.records)
        print("| | seconds | of them fit | ratio of the loop |\n| --- | ---: | ---: | ---: |")
        print(f"| a loop over scikit-learn | {loop:.0f} | | 1 |", flush=True)
        for name, plan in plans.items():
            fit, all_stages = seconds_of_stages(folder, name, plan)
            print(
                f"| {name} | {all_stages:.1f} | {fit:.1f} | {loop / all_stages:.0f} |", flush=True
            )


def seconds_of_stages(place: Path, name: str, plan: pate.ClosedFormPlan) -> tuple[float, float]:
    """Return the seconds until teachers are there, and until labels are released."""
    start = time.process_time()
    run = pate.Pipeline(place / name, Arrays(place / "data.npz"))
    run.fit_teachers(plan)
    fitted = time.process_time() - start
    run.vote()
    run.label(pate.LabelSettings(target_epsilon=1.0, delta=1e-6, noise_seed=0))
    return fitted, time.process_time() - start


def seconds_of_a_loop(arrays: dict[str, np.ndarray], teachers: int, records: int) -> float:
    """Return the seconds that a teacher takes to learn and to vote."""
    public = arrays["X"][arrays["split"] == 1]
    starts = []
    for teacher in range(teachers + 1):
        starts.append(time.process_time())
        rows = slice(teacher * records, (teacher + 1) * records)
        for labels in arrays["Y"][rows].T:
            if labels.min() < labels.max():
                LogisticRegression().fit(arrays["X"][rows], labels).predict(public)
    return (time.process_time() - starts[1]) / teachers


def make_table(num_private: int) -> dict[str, np.ndarray]:
    """Make records with labels from linear scores and noise, private ones first."""
    generator = np.random.default_rng(0)
    split = np.repeat([0, 1, 2], [num_private, PUBLIC, 10])
    features = generator.standard_normal((len(split), FEATURES), dtype=np.float32)
    weights = generator.standard_normal((FEATURES, LABELS)) / np.sqrt(FEATURES)
    scores = features @ weights + generator.standard_normal((len(split), LABELS)) / 2
    ids = np.char.mod("r%06d", np.arange(len(split)))
    return {"X": features, "Y": (scores > 1).astype(np.uint8), "split": split, "ids": ids}


if __name__ == "__main__":
    main()
