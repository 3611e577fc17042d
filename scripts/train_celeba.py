"""Train a private multi-label classifier of pictures from Python: a script to copy and change.

    python scripts/train_celeba.py --data data/celeba --num_teachers 800 --target_epsilon 4
    python scripts/train_celeba.py --network resnet50 --aggregator Rounds

Networks on disjoint partitions of the private pictures vote, and an aggregator releases labels of
public ones. All teachers start from a student that is released first, so that they agree, which is
the condition under which StableTopK answers. Where there is no folder of CelebA, faces are drawn
and used in its place; all of it then takes some minutes. Started again, the script goes on where it
was stopped. `docs/python.md` explains the steps.
"""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

import pate
from pate.aggregators import Canonical, Peeling
from pate.data import CelebA
from pate.models import ResNet8, ResNet50, SmallCNN
from scripts.faces.drawing import write_celeba_folder

NETWORKS: dict[str, Callable[[tuple[int, ...], int], torch.nn.Module]] = {
    # without GroupNorm and with channels last, convolutions are fast on a processor
    "small_cnn": partial(SmallCNN, widths=(16, 32, 64), groups=0, channels_last=True),
    "resnet8": ResNet8,
    "resnet50": ResNet50,  # for a GPU; partial(ResNet50, weights="DEFAULT") has public weights
}
AGGREGATORS: dict[str, pate.Partial[Any]] = {
    "StableTopK": pate.Partial(pate.StableTopK),
    "Canonical": pate.Partial(Canonical, k=6),
    "Peeling": pate.Partial(Peeling, k=6),
    "Rounds": pate.Partial(pate.Rounds),
}


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
    parser.add_argument("--network", choices=NETWORKS, default="small_cnn")
    parser.add_argument("--num_teachers", type=int, default=500)
    parser.add_argument("--num_steps", type=int, default=6, help="optimizer steps of each teacher")
    parser.add_argument("--epochs", type=int, default=60, help="passes of each student's training")
    parser.add_argument("--workers", type=int, default=1, help="processes that train teachers")
    parser.add_argument("--aggregator", choices=AGGREGATORS, default="StableTopK")
    parser.add_argument("--num_queries", type=int, default=180)
    parser.add_argument(
        "--first_epsilon",
        type=float,
        default=0.7,
        help="cost of the student that teachers start from",
    )
    parser.add_argument(
        "--target_epsilon", type=float, default=4.0, help="cost of the labels that teachers release"
    )
    parser.add_argument("--delta", type=float, default=1e-6)
    options = parser.parse_args(arguments)

    if not options.data.is_dir():
        options.data = options.data.with_name(f"{options.data.name}_faces_{options.num_faces}")
        print(f"Faces are drawn for want of CelebA, in {options.data}")
        write_celeba_folder(
            options.data, num=options.num_faces, private_fraction=0.8, public_fraction=0.1
        )

    # any network will do that is made for a shape and a number of labels, such as your own
    network = NETWORKS[options.network]
    data = CelebA(options.data, size=options.size)
    student = pate.StudentPlan(
        network=network,
        optimizer=partial(torch.optim.AdamW, lr=0.003),
        data={"batch_size": 64},
        trainer={"max_epochs": options.epochs, "enable_progress_bar": False},
    )

    # first release: every record votes for itself, on all public pictures
    first = pate.RunPlan(
        options.run / "first",
        data,
        teachers=pate.ClosedFormPlan(),
        labels=pate.LabelSettings(delta=options.delta, target_epsilon=options.first_epsilon),
        student=student,
    )
    first.execute()

    # teachers start from its student; without `start_from` they start afresh
    teachers = pate.TeacherPlan(
        network=network,
        num_teachers=options.num_teachers,
        num_steps=options.num_steps,
        batch_size=16,
        optimizer=partial(torch.optim.AdamW, lr=0.001),
        start_from=str(options.run / "first"),
    )
    # second release, of labels; your own mechanism would be named here
    labels = pate.LabelSettings(
        AGGREGATORS[options.aggregator],
        delta=options.delta,
        target_epsilon=options.target_epsilon,
        num_queries=options.num_queries,
    )
    run = pate.RunPlan(
        options.run,
        data,
        teachers=teachers,
        labels=labels,
        student=pate.StudentPlan(),  # few pictures are enough for a linear one
        execution=pate.Execution(workers=options.workers),
    )
    released = run.execute()
    print(
        f"\n{released.answered.sum()} of {len(released.ids)} public pictures have labels\n\n"
        f"{released.describe()}"
    )

    # public from here on: as many students as you like
    # pate.load_student(options.run).predict(["new.jpg"]) labels new pictures
    figures = {"the first student": first.test_student()["student"]}
    figures["the student"] = run.test_student()["student"]
    figures["always the same answer"] = run.test_student()["released_constant"]
    for title, figure in figures.items():
        print(f"{title:<24} accuracy {figure['accuracy']:.3f}  macro-F1 {figure['macro_f1']:.3f}")


if __name__ == "__main__":
    main()
