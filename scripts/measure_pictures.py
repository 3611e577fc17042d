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
- `rendered` are 20,000 private faces of `python -m scripts.faces` in 32 x 32 pixels with 2,500 public ones.
- `posters_64` are 4,393 private posters of movies in 64 x 64 pixels, with 25 genres.
- `textures` are drawn here: 5,000 private pictures of 32 x 32 pixels, with 8 labels.
- `small_digits` are scikit-learn's of 8 x 8 pixels, 1,000 private and 400 public.

Ways: `votes`; a convolutional student (`students`), which sees the pixels and learns from the same
release; logistic regression by DP-SGD on the same map (`descents`), and a convolutional network by
DP-SGD (`networks`), with settings that are the best of `MAP_GRID` and `NETWORK_GRID` by the test
set on the first seed; both also without privacy.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from io import BytesIO
from itertools import pairwise, product
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy.special import expit
from sklearn.datasets import load_digits

from pate._core.accounting.accountant import COARSE_ORDERS
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
    table,
)
from scripts.rivals.contest import Contest, arena_of, figures, fit_without_privacy
from scripts.rivals.convolutions import NetworkDescent, descend_network
from scripts.rivals.descent import Descent, descend

TASKS = {
    "pictures": (0.25, 0.5, 2.0),
    "mnist": (0.5, 2.0),
    "rendered": (0.5, 2.0),
    "posters_64": (0.5, 2.0),
    "textures": (0.5, 2.0),
    "small_digits": (0.5, 2.0),
}
RENDERED = 32  # pixels along the side of a face
STUDENT = "**pate**, convolutional student"
ON_MAP, NETWORK = "DP-SGD on the same map", "convolutional network by DP-SGD"
ON_MAP_WITHOUT, NETWORK_WITHOUT = "logistic regression, not private", "the network, not private"
WAYS = (CONSTANT, VOTES, STUDENT, ON_MAP, NETWORK, ON_MAP_WITHOUT, NETWORK_WITHOUT)
MAP_GRID = tuple(
    Descent(num_steps=steps, sampling_rate=rate, speed=speed)
    for (steps, rate), speed in product(((200, 0.05), (100, 0.3)), (0.3, 1.0, 3.0))
)
NETWORK_GRID = tuple(NetworkDescent(speed=speed) for speed in (0.5, 1.0, 2.0))

Settings = TypeVar("Settings", bound=Descent)
Values = tuple[float, ...]


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
            write_celeba_folder(folder, num=25000)
        elif not folder.exists():
            records = records_of(self.name, Path(os.environ["PATE_DATA"]) / "multilabel")
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
        call("predict", str(run), str(test), f"--output={output}")
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
            call("student", "test", f"--run={run}", "--verbose=false")
            seconds = time.perf_counter() - start
            self.add(Row(self.name, STUDENT, epsilon, seed, self.student(run), seconds))

    def measure_descents(self, epsilons: Sequence[float], seeds: range) -> None:
        """Add rows of DP-SGD on the map that the votes have, and of no privacy."""
        rows = product((ON_MAP,), epsilons, seeds)
        if self.has(ON_MAP_WITHOUT, math.inf, 0) and all(self.has(*row) for row in rows):
            return
        arena = arena_of(read_data(self.folder / "votes" / "data.yaml"), "record", Contest())
        eigenvalues = np.linalg.eigvalsh(arena.products).astype(np.float64)

        def judged(weights: NDArray[Any]) -> Values:
            logits = (arena.public @ weights, arena.test @ weights)
            public, test = map(expit, logits)
            return self.judged(public, test, arena.truth)

        def learn(settings: Descent, noise: float, seed: int) -> Values:
            generator = np.random.default_rng(seed)
            return judged(descend(arena.private, eigenvalues, settings, noise, generator=generator))

        if not self.has(ON_MAP_WITHOUT, math.inf, 0):
            values = judged(fit_without_privacy(arena.private))
            self.add(Row(self.name, ON_MAP_WITHOUT, math.inf, 0, values))
        self.add_best(ON_MAP, MAP_GRID, learn, epsilons, seeds)

    def measure_networks(self, epsilons: Sequence[float], seeds: range) -> None:
        """Add rows of a convolutional network by DP-SGD on pixels, and of no privacy."""
        rows = product((NETWORK,), epsilons, seeds)
        if self.has(NETWORK_WITHOUT, math.inf, 0) and all(self.has(*row) for row in rows):
            return
        pictures, labels = self.pictures()

        def learn(settings: NetworkDescent, noise: float, seed: int) -> Values:
            generator = np.random.default_rng(seed)
            known = torch.from_numpy(labels[PRIVATE]).float()
            logits = descend_network(pictures[PRIVATE], known, settings, noise, generator=generator)
            found = (logits(pictures[PUBLIC]), logits(pictures[TEST]))
            public, test = map(expit, found)
            return self.judged(public, test, labels[TEST])

        self.add_best(NETWORK, NETWORK_GRID, learn, epsilons, seeds)
        if not self.has(NETWORK_WITHOUT, math.inf, 0):
            values = learn(NETWORK_GRID[-1], 0.0, 0)
            self.add(Row(self.name, NETWORK_WITHOUT, math.inf, 0, values))

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
        learn: Callable[[Settings, float, int], Values],
        epsilons: Sequence[float],
        seeds: range,
    ) -> None:
        """Add rows of the settings that are best on the first seed, by mAP on the test set."""
        for epsilon in epsilons:
            target = Target(epsilon=epsilon, delta=self.delta, num_queries=1)
            noises = {
                settings: calibrate_scale(
                    settings.event, target, tolerance=1e-4, orders=COARSE_ORDERS
                )
                for settings in grid
            }
            best = grid
            for seed in seeds:
                if self.has(way, epsilon, seed):
                    continue
                found = {each: learn(each, noises[each], seed) for each in best}
                settings = max(found, key=lambda each: found[each][:2][-1])
                print(self.name, way, f"{epsilon:g}", settings, flush=True)
                self.add(Row(self.name, way, epsilon, seed, found[settings]))
                best = (settings,)


def records_of(name: str, folder: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of a task, as `pate.data.Arrays` reads them."""
    if name == "posters_64":
        return _posters(folder)
    if name == "textures":
        pictures, labels = textures(8000, 32, np.random.default_rng(0))
        return _pictures(pictures, labels, np.repeat([PRIVATE, PUBLIC, TEST], [5000, 1000, 2000]))
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


def labels_of(digit: NDArray[Any]) -> NDArray[Any]:
    """Return thirteen labels ``[N, 13]`` of digits ``[N]``, as those of `measure_runs`."""
    sets = (digit % 2 == 0, np.isin(digit, (2, 3, 5, 7)), np.isin(digit, (0, 6, 8, 9)))
    return np.column_stack((np.eye(10)[digit], *sets))


def textures(
    num: int, side: int, generator: np.random.Generator
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return gray pictures ``[N, 1, side, side]`` up to 255, and which of 8 textures each has.

    A label is in 3 of 10 pictures: waves of three directions and of high frequency, checkers,
    spots, scratches, and noise that is smooth. Place, phase and contrast are random.
    """
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


def _posters(folder: Path) -> dict[str, NDArray[Any]]:
    posters = np.load(folder / "movie_posters_32.npz")
    packed = np.load(folder / "movie_posters_64_jpeg.npz")
    data, ends = packed["jpeg"], packed["offsets"]
    pictures = np.stack(
        [
            np.asarray(Image.open(BytesIO(data[start:end].tobytes())))
            for start, end in pairwise(ends)
        ]
    )
    split = np.where(posters["is_test"], TEST, PUBLIC)
    split[np.flatnonzero(split == PUBLIC)[:4393]] = PRIVATE
    ids = posters["ids"].astype(np.str_)
    return _pictures(pictures.transpose(0, 3, 1, 2), posters["y"], split) | {"ids": ids}


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
