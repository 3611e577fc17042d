"""Public faces of a run with their released labels, as one picture.

    python scripts/draw_release.py runs/faces docs/images/release.png

Next to each face are the labels that the student of the release gives it. Red labels are wrong;
labels in brackets are missing. The faces are the first ones that were queried. The type is legible
at half the size, on a small screen.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.image import imread

from pate import ReleasedLabels
from pate._labeling.linear import student_of
from pate._labeling.runs.run import Run, load_data
from pate._labeling.votes.kinds import rows_of
from pate.aggregators import Release
from pate.data import CelebA, Role


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="folder of the run, on a folder of faces")
    parser.add_argument("output", type=Path, help="the picture")
    parser.add_argument("--faces", type=int, default=4, help="an even number")
    options = parser.parse_args(arguments)
    run = Run(options.run)
    data, released = load_data(run), ReleasedLabels.load(run.root)
    assert isinstance(data, CelebA), "a run on a folder of faces"
    public = data.records(Role.PUBLIC)
    rows = rows_of(released.ids, public.ids)
    features = np.asarray(public.features[rows], dtype=np.float64)
    release = Release(
        released.labels,
        released.mask,
        released.noisy_counts,
        released.noise_std,
        linear=released.linear,
    )
    given_labels = student_of(release, features, released.num_teachers).predict(features) > 0.5
    names = [name.replace("_", " ") for name in data.label_names]
    figure = Figure(figsize=(7.2, 1.05 * options.faces), layout="constrained")
    panels = figure.subplots(options.faces // 2, 4, width_ratios=(1, 1.9, 1, 1.9))
    for i, (face, words) in enumerate(panels.reshape(-1, 2)):
        face.imshow(imread(data.root / "img_align_celeba" / released.ids[i]))
        face.set_anchor("N")
        truth = public.labels[rows[i]] > 0
        lines = [
            (name, "black" if truth[j] else "tab:red")
            for j, name in enumerate(names)
            if given_labels[i, j]
        ]
        lines += [
            (f"[{name}]", "dimgray")
            for j, name in enumerate(names)
            if truth[j] and not given_labels[i, j]
        ]
        for k, (text, color) in enumerate(lines):
            place = (0.0, 1 - 0.125 * k)
            words.annotate(
                text, place, xycoords="axes fraction", va="top", fontsize=16, color=color
            )
        face.axis("off")
        words.axis("off")
    figure.savefig(options.output, dpi=100, bbox_inches="tight")


if __name__ == "__main__":
    main()
