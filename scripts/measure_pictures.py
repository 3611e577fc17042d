"""Measure `pate run` on pictures, with a linear student and a convolutional one, as Markdown.

    export PATE_DATA=...    # the folder that holds multilabel/
    python -m scripts.measure_pictures
    python -m scripts.measure_pictures pictures:0.5 --ways votes students

Recipes are as `pate init` writes them; only the epsilon is chosen, for the faces the size, and for
`mnist` the delta. Figures are medians over seeds.

- `pictures` are MNIST's digits in 14 x 14 pixels as 13 labels, 20,000 private, 4,000 public, 10,000
  of the test.
- `mnist` has the protocol of PATE (Papernot et al. (2017)): 60,000 private digits of 28 x 28
  pixels, the first 9,000 of the test set public, the other 1,000 tested by their largest answer,
  delta 1e-5.
- `rendered` are 8,000 private faces of `python -m scripts.faces` in 32 x 32 pixels with 500 public
  ones.
- `posters_32` are 4,393 private posters of movies in 32 x 32 pixels with 25 genres, 500 public.
- `small_digits` are scikit-learn's of 8 x 8 pixels, 1,000 private and 400 public.
- `textures`, `silhouettes`, `shapes` and `scenes` are drawn here: 4,000 private pictures, 500 public
  and 2,000 of the test.

Ways: `votes`; a convolutional student (`students`), which sees the pixels and learns from the same
release; logistic regression by DP-SGD on the same map (`descents`), also without privacy, and a
convolutional network by DP-SGD (`networks`). Settings of the last two are the best of `MAP_GRID`
and `NETWORK_GRID` on a fifth of the private records, on the first seed. This choice is not paid
for. All of the records are then learned from.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.datasets import load_digits

from pate._core.accounting.accountant import COARSE_ORDERS
from pate._labeling.runs.released import average_precision
from pate._labeling.runs.run import read_data
from pate.accounting import Target, calibrate_scale
from pate.data import CelebA, Role
from scripts.faces.drawing import write_celeba_folder
from scripts.measure_runs import (
    CONSTANT,
    FIGURES,
    PRIVATE,
    PUBLIC,
    TEST,
    TITLES,
    VOTES,
    Row,
    Task as RunTask,
    arrays_of,
    asked,
    call,
    figures_of,
    labels_of,
    table,
)
from scripts.rivals.contest import arena_of, figures, fit_without_privacy
from scripts.rivals.contributions import Contributions
from scripts.rivals.convolutions import NetworkDescent, descend_network
from scripts.rivals.descent import Descent, descend

_TASKS = ("mnist", "rendered", "posters_32", "textures", "small_digits")
TASKS = {"pictures": (0.25, 0.5, 2.0)} | dict.fromkeys(
    (*_TASKS, "silhouettes", "shapes", "scenes"), (0.5, 2.0)
)
RENDERED = 32  # pixels along the side of a face
STUDENT = "**pate**, convolutional student"
ON_MAP, NETWORK = "DP-SGD on the same map", "convolutional network by DP-SGD"
ON_MAP_WITHOUT = "logistic regression, not private"
WAYS = (CONSTANT, VOTES, STUDENT, ON_MAP, NETWORK, ON_MAP_WITHOUT)
MAP_GRID = tuple(
    Descent(num_steps=steps, sampling_rate=rate, speed=speed)
    for (steps, rate), speed in product(((200, 0.05), (100, 0.3)), (0.3, 1.0, 3.0))
)
NETWORK_GRID = tuple(NetworkDescent(speed=speed) for speed in (0.03, 0.1, 0.3, 1.0))

Settings = TypeVar("Settings", bound=Descent)
Rows = NDArray[np.int64]
Logits = Callable[[Any], NDArray[Any]]
Values = tuple[float, ...]
Drawn = tuple[NDArray[Any], NDArray[Any]]
"""Pictures up to 255, and labels."""


class Task(RunTask):
    """A task of pictures, with the recipe of `pate init`."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(name, folder)
        self.is_rendered = name == "rendered"
        self.exclusive = name == "mnist"
        self.delta = 1e-5 if self.exclusive else 1e-6
        self.titles = ("largest answer right",) if self.exclusive else TITLES

    @cached_property
    def data(self) -> Path:
        """The records: a folder of faces or a file of arrays."""
        folder = self.folder / ("faces" if self.is_rendered else "records.npz")
        if not folder.exists() and self.is_rendered:
            write_celeba_folder(folder, num=10_000, public_fraction=0.05)
        elif not folder.exists():
            records = records_of(self.name, Path(os.environ.get("PATE_DATA", "")) / "multilabel")
            np.savez(folder, allow_pickle=False, **records)
        return folder

    @property
    def recipe(self) -> Path:
        """The folder of the recipe, written if it is missing."""
        recipe = self.folder / "recipe"
        if not recipe.exists():
            call("init", str(recipe), f"--data={self.data}")
        return recipe

    def options(self, way: str) -> list[str]:
        """Return the words of `pate run`."""
        place = [f"--run={self.folder / way}", f"--ledger={self.folder / 'ledgers' / way}.sqlite"]
        size = [f"--data.init_args.size={RENDERED}"] * self.is_rendered
        delta = [f"--label.delta={self.delta}"] * self.exclusive
        return [str(self.recipe), *size, *delta, *place, "--overwrite"]

    def released(self, epsilon: float, seed: int) -> Path:
        """Return the run of a release, after it has been made."""
        words = (f"--label.target_epsilon={epsilon}", f"--label.noise_seed={seed}")
        call("run", *self.options("votes"), *words)
        return self.folder / "votes"

    def student(self, run: Path) -> Values:
        """Return the figures of the student of a run."""
        if not self.exclusive:
            return figures_of(run, "student")
        output = self.folder / "predictions.npz"
        test = self.folder / "test.npz"
        with np.load(self.data) as arrays:
            np.savez(test, X=arrays["X"][arrays["split"] == TEST])
            truth = arrays["Y"][arrays["split"] == TEST]
        call("predict", str(run), str(test), f"--output={output}", "--overwrite")
        with np.load(output) as predicted:
            return self.judged(predicted["probabilities"], predicted["probabilities"], truth)

    def judged(self, public: NDArray[Any], test: NDArray[Any], truth: NDArray[Any]) -> Values:
        """Return the figures of probabilities of public and test samples."""
        if self.exclusive:
            return (float((test.argmax(axis=1) == truth.argmax(axis=1)).mean()),)
        found = figures(public, test, truth)
        return tuple(found[figure] for figure in FIGURES)

    def measure_votes(self, epsilon: float, seed: int, *, convolutional: bool) -> None:
        """Add the rows of a release: its linear student and, if asked, a convolutional one."""
        missing = convolutional and not self.has(STUDENT, epsilon, seed)
        if self.has(VOTES, epsilon, seed) and not missing:
            return
        start = time.perf_counter()
        run = self.released(epsilon, seed)
        if not self.has(VOTES, epsilon, seed):
            seconds = time.perf_counter() - start
            self.add(Row(self.name, VOTES, epsilon, seed, self.student(run), seconds))
        if not self.exclusive and not self.has(CONSTANT, math.inf, 0):
            self.add(Row(self.name, CONSTANT, math.inf, 0, figures_of(run, "all_majority")))
        if missing:
            start = time.perf_counter()
            plan = self.recipe / "student_network.yaml"
            call("student", "fit", f"--run={run}", "--overwrite", f"--config={plan}")
            call("student", "test", f"--run={run}")
            seconds = time.perf_counter() - start
            self.add(Row(self.name, STUDENT, epsilon, seed, self.student(run), seconds))

    def measure_descents(self, epsilons: Sequence[float], seeds: range) -> None:
        """Add rows of DP-SGD on the map that the votes have, and of no privacy."""
        arena = arena_of(read_data(self.folder / "votes" / "data.yaml"), "record")
        eigenvalues = np.linalg.eigvalsh(arena.products).astype(np.float64)
        known, features = arena.private.labels, arena.private.features

        def learn(rows: Rows, settings: Descent, noise: float, seed: int) -> Logits:
            private = Contributions(
                features=features[rows], labels=known[rows], starts=np.arange(len(rows))
            )
            generator = np.random.default_rng(seed)
            weights = descend(private, eigenvalues, settings, noise, generator=generator)
            return lambda shown: shown @ weights

        shown = (features, arena.public, arena.test)
        if not self.has(ON_MAP_WITHOUT, math.inf, 0):
            weights = fit_without_privacy(arena.private)
            values = self.judged(expit(shown[1] @ weights), expit(shown[2] @ weights), arena.truth)
            self.add(Row(self.name, ON_MAP_WITHOUT, math.inf, 0, values))
        self.add_best(ON_MAP, MAP_GRID, learn, shown, (known, arena.truth), epsilons, seeds)

    def measure_networks(self, epsilons: Sequence[float], seeds: range) -> None:
        """Add rows of a convolutional network by DP-SGD on pixels."""
        shown, (labels, _, truth) = self.pictures()
        known = torch.from_numpy(labels).float()

        def learn(rows: Rows, settings: NetworkDescent, noise: float, seed: int) -> Logits:
            generator = np.random.default_rng(seed)
            private, of_them = shown[PRIVATE][rows], known[rows]
            return descend_network(private, of_them, settings, noise, generator=generator)

        self.add_best(NETWORK, NETWORK_GRID, learn, shown, (labels, truth), epsilons, seeds)

    def pictures(self) -> tuple[list[torch.Tensor], list[NDArray[Any]]]:
        """Return private, public and test pictures ``[N, channels, height, width]``, and labels."""
        if self.is_rendered:
            source = CelebA(self.data, size=RENDERED)
            records = [source.records(role) for role in (Role.PRIVATE, Role.PUBLIC, Role.TEST)]
            found = [each.features[np.arange(len(each))] for each in records]
            labels = [each.labels for each in records]
        else:
            with np.load(self.data) as arrays:
                every, truth, split = arrays["X"], arrays["Y"], arrays["split"]
            found, labels = (
                [values[split == role] for role in (PRIVATE, PUBLIC, TEST)]
                for values in (every, truth)
            )
        mean, deviation = found[PUBLIC].mean(), found[PUBLIC].std()
        return [torch.from_numpy((each - mean) / deviation).float() for each in found], labels

    def add_best(
        self,
        way: str,
        grid: Sequence[Settings],
        learn: Callable[[Rows, Settings, float, int], Logits],
        shown: Sequence[Any],
        labels: tuple[NDArray[Any], NDArray[Any]],
        epsilons: Sequence[float],
        seeds: range,
    ) -> None:
        """Add rows of the settings that are best by mAP on private records that are held out.

        Args:
            way: the name of the rows.
            grid: the settings.
            learn: what learns from rows of the private records, with a noise and a seed.
            shown: private, public and test features.
            labels: of the private and of the test records.
            epsilons: the targets.
            seeds: of the draws. The first one chooses.
        """
        private, public, test = shown
        order = np.random.default_rng(0).permutation(len(private))
        held, rest = np.split(order, [len(order) // 5])
        kept = f"settings of {way}"
        for epsilon in epsilons:
            missing = [seed for seed in seeds if not self.has(way, epsilon, seed)]
            if not missing:
                continue
            chosen = [row.figures for row in self.rows if (row.way, row.epsilon) == (kept, epsilon)]
            target = Target(epsilon=epsilon, delta=self.delta, num_queries=1)
            for number, each in enumerate(() if chosen else grid):
                noise = calibrate_scale(each.event, target, tolerance=1e-4, orders=COARSE_ORDERS)
                logits = learn(rest, each, noise, seeds.start)(private[held])
                precision = average_precision(logits, labels[0][held] > 0).mean()
                chosen.append((float(precision), noise, number))
            _, noise, best = max(chosen)
            if len(chosen) > 1:
                self.add(Row(self.name, kept, epsilon, seeds.start, max(chosen)))
            for seed in missing:
                of = learn(order, grid[int(best)], noise, seed)
                values = self.judged(expit(of(public)), expit(of(test)), labels[1])
                self.add(Row(self.name, way, epsilon, seed, values))


def records_of(name: str, folder: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of a task, as `pate.data.Arrays` reads them."""
    if name == "posters_32":
        posters = np.load(folder / "movie_posters_32.npz")
        others, tested = (np.flatnonzero(posters["is_test"] == each) for each in (0, 1))
        rows = np.concatenate((others[:4893], tested))
        split = np.repeat([PRIVATE, PUBLIC, TEST], [4393, 500, len(tested)])
        return _pictures(posters["x"][rows].transpose(0, 3, 1, 2), posters["y"][rows], split)
    if name in DRAWN:
        pictures, labels = DRAWN[name](6500, np.random.default_rng(0))
        return _pictures(pictures, labels, np.repeat([PRIVATE, PUBLIC, TEST], [4000, 500, 2000]))
    if name == "small_digits":
        small = load_digits()
        pictures = small.images[:, None] * (255 / 16)
        order = np.random.default_rng(0).permutation(len(pictures))
        split = np.full(len(pictures), TEST)
        split[order[:1400]] = np.repeat([PRIVATE, PUBLIC], [1000, 400])
        return _pictures(pictures, labels_of(small.target), split)
    arrays = np.load(folder / "mnist.npz")
    every = np.concatenate((arrays["x_train"], arrays["x_test"]))
    digits = np.concatenate((arrays["y_train"], arrays["y_test"]))
    if name == "mnist":
        split = np.repeat([PRIVATE, PUBLIC, TEST], [60_000, 9_000, 1_000])
        return _pictures(every[:, None], np.eye(10)[digits], split)
    rows = np.r_[:20_000, 50_000:54_000, 60_000:70_000]
    pictures = every.reshape(-1, 1, 14, 2, 14, 2).mean(axis=(3, 5))[rows]
    split = np.repeat([PRIVATE, PUBLIC, TEST], [20_000, 4_000, 10_000])
    return _pictures(pictures, labels_of(digits[rows]), split)


def textures(num: int, generator: np.random.Generator) -> Drawn:
    """Return gray pictures ``[N, 1, 32, 32]`` up to 255, and which of 8 textures each has.

    A label is in 3 of 10 pictures: waves of three directions and of high frequency, checkers,
    spots, scratches, and noise that is smooth. Place, phase and contrast are random.
    """
    side = 32
    y, x = np.mgrid[:side, :side].astype(np.float64)
    labels = generator.random((num, 8)) < 0.3
    pictures = generator.normal(scale=0.6, size=(num, side, side))
    for picture, has in zip(pictures, labels, strict=True):
        phase, length = generator.uniform(0, 2 * np.pi, 4), generator.uniform(5, 9, 4)
        contrast = generator.uniform(0.5, 1, 8)
        slant = x + generator.choice([-1, 1]) * y
        axes = (x / length[0], y / length[1], slant / (1.4 * length[2]), (x - slant) / 2.6)
        waves = [np.sin(2 * np.pi * axis + p) for axis, p in zip(axes, phase, strict=True)]
        checkers = np.sign(np.sin(x * np.pi / 4 + phase[0]) * np.sin(y * np.pi / 4 + phase[1]))
        spots, scratches = np.zeros((2, side, side))
        for _ in range(6):
            (at_y, at_x), turn = generator.uniform(0, side, 2), generator.uniform(0, np.pi)
            far = np.hypot(y - at_y, x - at_x)
            spots += 3 * (far < 2.5)
            across = (y - at_y) * np.cos(turn) + (x - at_x) * np.sin(turn)
            scratches -= 3 * ((np.abs(across) < 0.7) & (far < 5))
        rough = np.fft.rfft2(generator.normal(size=(side, side)))
        rough[6:-5], rough[:, 6:] = 0, 0
        smooth = np.fft.irfft2(rough, s=(side, side)) * 4
        kinds = np.stack((*waves, checkers, spots, scratches, smooth))
        picture += np.tensordot(contrast * has, kinds, axes=1)
    return 255 / (1 + np.exp(-pictures[:, None])), labels


def silhouettes(num: int, generator: np.random.Generator) -> Drawn:
    """Return gray pictures ``[N, 1, 24, 24]`` of one dark shape each, and 11 labels.

    They are which of the 8 shapes of `_mask` it is, whether it has no dent or hole, whether its outline is
    curved, and whether it is large. Place, turn, brightness and grain are random.
    """
    kinds, radii = generator.integers(8, size=num), generator.uniform(5, 10, num)
    pictures = generator.uniform(0.5, 1, (num, 1, 1, 1)) * np.ones((1, 24, 24))
    for picture, kind, radius in zip(pictures, kinds, radii, strict=True):
        place, turn = generator.uniform(9, 15, 2), generator.uniform(0, 2 * np.pi)
        mask = _mask(24, kind, place, radius, turn)
        picture *= 1 - generator.uniform(0.4, 0.9) * mask
    sets = (np.isin(kinds, (0, 2, 3, 4)), np.isin(kinds, (0, 1, 6, 7)), radii > 7.5)
    return _grained(pictures, generator), np.column_stack((np.eye(8)[kinds], *sets))


def shapes(num: int, generator: np.random.Generator) -> Drawn:
    """Return colored pictures ``[N, 3, 24, 24]`` of one shape each, and 12 attributes.

    It is a disc, a square, a triangle or a cross; red, green or blue; large, striped, framed, on
    dark ground, and left of the middle.
    """
    kinds, colors = generator.integers(4, size=num), generator.integers(3, size=num)
    attributes = generator.random((num, 5)) < 0.5
    pictures = np.empty((num, 3, 24, 24))
    for row, (large, striped, framed, dark, left) in enumerate(attributes):
        place = generator.uniform(9, 15), generator.uniform(7, 11) + 6 * (not left)
        radius = generator.uniform(4, 5.5) + 3 * large
        color = generator.uniform(0, 0.4, (3, 1, 1))
        color[colors[row]] = generator.uniform(0.7, 1)
        color = color * np.where(np.arange(24) % 4 < 2, 1 - 0.7 * striped, 1)[:, None]
        picture = np.full((3, 24, 24), generator.uniform(0.05, 0.3) + 0.6 * (not dark))
        turn = generator.uniform(0, 2 * np.pi)
        for size, tint in ((radius + 1.5, np.float64(dark)), (radius, color)):
            mask = _mask(24, (0, 2, 4, 5)[kinds[row]], place, size, turn)
            picture += mask * (tint - picture) * (framed or size == radius)
        pictures[row] = picture
    kinds_and_colors = np.eye(4)[kinds], np.eye(3)[colors]
    return _grained(pictures, generator), np.column_stack((*kinds_and_colors, attributes))


def scenes(num: int, generator: np.random.Generator) -> Drawn:
    """Return colored pictures ``[N, 3, 32, 32]`` of several objects, and which of 8 kinds are there.

    Each kind is in 3 of 10 pictures, and half of them once more. Later ones may hide others.
    """
    labels = generator.random((num, 8)) < 0.3
    pictures = generator.uniform(0, 0.4, (num, 3, 1, 1)) * np.ones((32, 32))
    for picture, has in zip(pictures, labels, strict=True):
        there = np.repeat(np.flatnonzero(has), generator.integers(1, 3, has.sum()))
        for kind in generator.permutation(there):
            place, radius = generator.uniform(5, 27, 2), generator.uniform(3.5, 5.5)
            mask = _mask(32, kind, place, radius, generator.uniform(0, 2 * np.pi))
            picture += mask * (generator.uniform(0.5, 1, (3, 1, 1)) - picture)
    return _grained(pictures, generator), labels


def _mask(side: int, kind: int, place: ArrayLike, radius: float, turn: float) -> NDArray[Any]:
    """Return the soft mask of a disc, ring, square, bar, triangle, cross, flower or crescent."""
    y, x = (np.mgrid[:side, :side] + 0.5 - np.reshape(place, (2, 1, 1))) / radius
    u, v = x * np.cos(turn) + y * np.sin(turn), y * np.cos(turn) - x * np.sin(turn)
    far, wide, high = np.hypot(u, v), np.abs(u), np.abs(v)
    bar = np.minimum(1 - wide, 0.35 - high)
    inside = (
        1 - far,
        0.3 - np.abs(far - 0.7),
        0.8 - np.maximum(wide, high),
        bar,
        0.5 - np.maximum(v, 0.866 * wide - v / 2),
        np.maximum(bar, np.minimum(0.35 - wide, 1 - high)),
        0.65 + 0.35 * np.cos(5 * np.arctan2(v, u)) - far,
        np.minimum(1 - far, np.hypot(u - 0.5, v) - 0.75),
    )
    return np.clip(inside[kind] * radius + 0.5, 0, 1)


def _grained(pictures: NDArray[Any], generator: np.random.Generator) -> NDArray[Any]:
    return 255 * np.clip(pictures + generator.normal(scale=0.06, size=pictures.shape), 0, 1)


DRAWN = {each.__name__: each for each in (textures, silhouettes, shapes, scenes)}


def _pictures(
    pictures: NDArray[Any], labels: NDArray[Any], split: NDArray[Any]
) -> dict[str, NDArray[Any]]:
    return arrays_of(pictures / 255, labels, split, "picture")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure missing figures, and print a table for each task."""
    every = ["votes", "students", "descents", "networks"]
    for folder, epsilons, ways, seeds in asked(arguments, __doc__, TASKS, every):
        task = Task(folder.name, folder)
        for seed, epsilon in product(seeds, epsilons):
            if {"votes", "students"} & set(ways):
                task.measure_votes(epsilon, seed, convolutional="students" in ways)
        if "descents" in ways:
            task.measure_descents(epsilons, seeds)
        if "networks" in ways:
            task.measure_networks(epsilons, seeds)
        shown = table(task.rows, epsilons, task.titles, WAYS)
        print(f"\n{task.name}\n\n{shown}", flush=True)


if __name__ == "__main__":
    main()
