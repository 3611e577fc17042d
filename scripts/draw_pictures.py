"""All pictures of the pages in docs/, drawn anew by the code of today.

    python -m scripts.draw_pictures docs/images               # some minutes on one core
    python -m scripts.draw_pictures /tmp/images --small       # a minute, to see that all are drawn

The demo's run of `configs/faces` shows the faces.
"""

import argparse
import json
import shlex
from collections.abc import Callable, Sequence
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import imread
from PIL import Image

from pate import ReleasedLabels, cli
from pate._labeling.linear import student_of
from pate._labeling.runs.run import Run, load_data
from pate._labeling.votes.kinds import rows_of
from pate.aggregators import Release
from pate.data import CelebA, Role
from pate.lab.report.report import INK, SERIES, chart
from scripts.faces.drawing import write_celeba_folder

ROOT = Path(__file__).parents[1]
FACES = 4  # with their labels, an even number


def call(words: Sequence[str]) -> None:
    """Run a command of pate.

    Raises:
        RuntimeError: if it is refused.
    """
    if cli.main(list(words)):
        raise RuntimeError(f"Expected a command that ends well, got pate {shlex.join(words)}")


def _demo(small: bool) -> Path:
    """Return the demo's run on faces, made if it is missing."""
    run, num = Path("runs/faces"), 4000 if small else 34000
    if not run.exists():
        write_celeba_folder(
            Path("data/faces"), num=num, private_fraction=0.88, public_fraction=0.05
        )
        call(["run", str(ROOT / "configs/faces")])
    return run


def _faces(picture: Path, small: bool) -> None:
    """Draw the first faces of the demo, in rows of 12."""
    _demo(small)
    sheet = Image.new("RGB", (12 * 64, 5 * 64))
    for i, path in enumerate(sorted(Path("data/faces/img_align_celeba").iterdir())[:60]):
        with Image.open(path) as face:
            sheet.paste(face.resize((64, 64)), (i % 12 * 64, i // 12 * 64))
    sheet.save(picture)


def _release(picture: Path, small: bool) -> None:
    """Draw the first queried faces of the demo with the labels that the student of its release gives them.

    Red labels are wrong; labels in brackets are missing.
    """
    run = Run(_demo(small))
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
    figure = Figure(figsize=(7.2, 1.05 * FACES), layout="constrained")
    panels = figure.subplots(FACES // 2, 4, width_ratios=(1, 1.9, 1, 1.9))
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
    figure.savefig(picture, dpi=100, bbox_inches="tight")


_RESULTS = ROOT / "scripts" / "results" / "pictures.json"
_LINES = {
    "**pate**": "pate",
    "DP-SGD on the same map": "DP-SGD, same map",
    "convolutional network by DP-SGD": "DP-SGD, network",
}
_LEVELS = {"logistic regression, not private": "no privacy", "constant answer": "constant answer"}
_INK = (
    "color: #212121; --line-1: #00695c; --line-2: #a63c06; --line-3: #5c4a99",
    "color: #e2e4e9; --line-1: #4dd0c0; --line-2: #ffa578; --line-3: #b9a8ff",
)


def _epsilon(picture: Path, _: bool) -> None:
    """Draw mAP against epsilon, from the results of 20,000 digits, for a light or a dark page."""
    rows = json.loads(_RESULTS.read_text())["rows"]

    def draw(axes: Axes) -> None:
        for (name, title), color in zip(_LINES.items(), SERIES, strict=False):
            points = [(float(row[1]), float(row[3])) for row in rows if row[0] == name]
            width = 2.6 if title == "pate" else 1.4
            axes.plot(*zip(*points, strict=True), ".-", color=color, label=title, linewidth=width)
        for name, title in _LEVELS.items():
            (level,) = (float(row[3]) for row in rows if row[0] == name)
            axes.axhline(level, color=INK, linestyle=":", linewidth=1)
            axes.annotate(title, (0.25, level), (0, 3), textcoords="offset points", va="bottom")
        axes.set(xscale="log", xticks=(0.25, 0.5, 1, 2), xticklabels=("0.25", "0.5", "1", "2"))
        axes.set(ylabel="mAP", ylim=(0, 1.1))
        axes.minorticks_off()
        axes.legend(loc="center right")

    caption = "mAP against epsilon on 20,000 private digits of 14 x 14 pixels"
    svg = chart(caption, "epsilon", draw, (5.0, 3.3)).source
    light, dark = (f":root {{ {ink} }}" for ink in _INK)
    style = f"<style>{light} @media (prefers-color-scheme: dark) {{ {dark} }}</style>"
    names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    head = f'<svg {names} font-family="system-ui, sans-serif"'
    picture.write_text(svg.replace("<svg", head, 1).replace(">", f">{style}", 1))


PICTURES: dict[str, Callable[[Path, bool], None]] = {
    "faces.jpg": _faces,
    "release.png": _release,
    "epsilon.svg": _epsilon,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw all pictures, or those that are named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path, help="folder of the pictures")
    parser.add_argument("--only", nargs="+", choices=PICTURES, default=list(PICTURES))
    parser.add_argument("--small", action="store_true", help="few labels and faces")
    options = parser.parse_args(arguments)
    output = options.output.absolute()
    output.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="pictures") as folder, chdir(folder):
        for name in options.only:
            PICTURES[name](output / name, options.small)


if __name__ == "__main__":
    main()
