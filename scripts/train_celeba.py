"""Train a private multi-label classifier on CelebA from Python: a script to copy and change.

    python scripts/train_celeba.py --data data/celeba --num_teachers 800 --target_epsilon 2

Where there is no such folder, faces are drawn and used in its place, which takes a minute. Started
again, the script goes on where it was stopped. `docs/python.md` explains the steps.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

import pate
from pate.data import CelebA, PublicPCA
from pate.data.faces import write_celeba_folder
from pate.models import Linear


def main(arguments: Sequence[str] | None = None) -> None:
    """Train teachers, release labels, train a student, and print its accuracy and cost."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, default=Path("data/celeba"), help="a folder in CelebA's format"
    )
    parser.add_argument(
        "--num_faces", type=int, default=20_000, help="faces to draw where there is no such folder"
    )
    parser.add_argument(
        "--run", type=Path, default=Path("runs/train_celeba"), help="folder of the run"
    )
    parser.add_argument("--size", type=int, default=32, help="pixels of a picture's side")
    parser.add_argument(
        "--num_components", type=int, default=128, help="components of the public pictures"
    )
    parser.add_argument("--num_teachers", type=int, default=400)
    parser.add_argument("--num_steps", type=int, default=30, help="optimizer steps of each teacher")
    parser.add_argument("--workers", type=int, default=1, help="processes that train teachers")
    parser.add_argument("--target_epsilon", type=float, default=2.0)
    parser.add_argument("--delta", type=float, default=1e-6)
    options = parser.parse_args(arguments)

    if not options.data.is_dir():
        options.data = options.data.with_name(f"{options.data.name}_faces_{options.num_faces}")
        print(f"Faces are drawn for want of CelebA, in {options.data}")
        write_celeba_folder(
            options.data, num=options.num_faces, private_fraction=0.8, public_fraction=0.1
        )

    # a projection fitted on public pictures keeps the task of a teacher simple
    data = CelebA(options.data, size=options.size, features=PublicPCA(options.num_components))
    run = pate.Pipeline(options.run, data)

    # any network will do that is made for a shape and a number of labels: partial(SmallCNN,
    # widths=(16, 32)), your own
    plan = pate.TeacherPlan(
        network=Linear,
        num_teachers=options.num_teachers,
        num_steps=options.num_steps,
        batch_size=32,
        optimizer=partial(torch.optim.AdamW, lr=0.05, weight_decay=2.0),
        positive_weight_power=0.5,
        chunk_size=50,
    )
    workers = pate.Execution(workers=options.workers)
    run.fit_teachers(plan, workers)
    run.vote(workers)

    # the one step that spends privacy; your own mechanism comes first:
    # LabelSettings(pate.Partial(pate.StableTopK), ...)
    released = run.label(
        pate.LabelSettings(delta=options.delta, target_epsilon=options.target_epsilon)
    )
    print(
        f"\n{released.answered.sum()} of {len(released.ids)} public pictures have labels\n\n{released.describe()}"
    )

    # public from here on: as many students as you like
    run.fit_student(pate.StudentPlan())
    # run.student().predict(["new.jpg"]) labels new pictures
    figures = run.test_student()
    for name, title in (
        ("student", "the student"),
        ("released_constant", "always the same answer"),
    ):
        print(
            f"{title:<24} accuracy {figures[name]['accuracy']:.3f}  macro-F1 {figures[name]['macro_f1']:.3f}"
        )


if __name__ == "__main__":
    main()
