"""Tasks that papers' experiments are made again on: features, labels, and quick linear teachers that vote."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pate._core.validation import FloatArray, IntArray, UInt8Array, require, require_count
from pate._labeling.aggregators.base import features_of
from pate._labeling.linear import student_of
from pate._labeling.student.metrics import agreement
from pate.aggregators import Ballots, Release
from pate.data import CelebA, CelebAAttributes, DataSource, PublicPCA, Role
from scripts.faces.drawing import write_celeba_folder

ATTRIBUTES = "multilabel/celeba_attributes.npz"
LABELS = [
    "Male",
    "Heavy_Makeup",
    "Wearing_Lipstick",
    "No_Beard",
    "Young",
    "Attractive",
    "Smiling",
    "High_Cheekbones",
    "Mouth_Slightly_Open",
    "5_o_Clock_Shadow",
    "Goatee",
    "Mustache",
    "Sideburns",
    "Gray_Hair",
    "Chubby",
    "Double_Chin",
    "Bags_Under_Eyes",
    "Big_Nose",
    "Wearing_Earrings",
    "Wearing_Necklace",
]
"""The attributes that are learned from the others, as in ``configs/celeba_attributes``."""


class Samples(NamedTuple):
    """Features ``[N, F]`` and labels ``[N, C]`` in {0, 1}."""

    features: FloatArray
    labels: UInt8Array

    def taken(self, rows: IntArray) -> Samples:
        """Return the samples of ``rows``."""
        return Samples(self.features[rows], self.labels[rows])


class Data(NamedTuple):
    """The samples of a task, features divided by their standard deviations over the public ones."""

    name: str
    private: Samples
    public: Samples
    test: Samples


class Task(NamedTuple):
    """Votes on public samples, with features, and the test samples that a student is judged on."""

    votes: Ballots
    test: Samples

    @property
    def constant_accuracy(self) -> float:
        """The accuracy of the answer that gives each label its more common value."""
        shares = self.test.labels.mean(axis=0)
        return float(np.maximum(shares, 1 - shares).mean())

    def figures(self, release: Release) -> dict[str, float]:
        """Return the share of labels released, and figures of the student that learns from them."""
        student = student_of(release, features_of(self.votes), self.votes.num_teachers)
        right = self.test.labels > 0
        found = agreement(student.predict(self.test.features) > 0.5, right, np.ones_like(right))
        return {
            "answered": float(release.mask.mean()),
            "student_accuracy": found["accuracy"],
            "student_macro_f1": found["macro_f1"],
        }


def read(name: str, source: DataSource) -> Data:
    """Return the samples of a source."""
    samples_of = {}
    for role in Role:
        records = source.records(role)
        features = np.asarray(records.features[np.arange(len(records))], dtype=np.float64).reshape(
            len(records), -1
        )
        samples_of[role] = Samples(features, records.labels)
    center, spread = (
        samples_of[Role.PUBLIC].features.mean(axis=0),
        samples_of[Role.PUBLIC].features.std(axis=0),
    )
    spread = np.where(spread > 0, spread, 1.0)
    scaled = {
        role: samples._replace(features=(samples.features - center) / spread)
        for role, samples in samples_of.items()
    }
    return Data(name, scaled[Role.PRIVATE], scaled[Role.PUBLIC], scaled[Role.TEST])


def celeba_attributes(path: Path) -> Data:
    """Return CelebA's attribute table: 20 attributes from the other 20, the official split."""
    return read("CelebA's attribute table", CelebAAttributes(path, labels=LABELS))


def rendered_faces(num: int, *, components: int, seed: int) -> Data:
    """Return rendered faces: 25 attributes from ``components`` of a public projection of the pictures."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "faces"
        write_celeba_folder(root, num=num, seed=seed, private_fraction=0.91, public_fraction=0.045)
        return read("rendered faces", CelebA(root, size=32, features=PublicPCA(components)))


def ridge_weights(
    samples: Samples, num_teachers: int, *, generator: np.random.Generator
) -> FloatArray:
    """Return the weights ``[T, F + 1, C]`` of ridge regressions, each on a part of the samples of its own.

    A teacher sees nothing of the others. Its weights are taken for as large, all together, as its
    noise. The parts are drawn, of equal size, for these samples are public; real private ones are
    partitioned by keyed hashes.
    """
    require_count(2, num_teachers=num_teachers)
    num, width = samples.features.shape
    size = num // num_teachers
    require(size >= 2, "at least two records a teacher", num_records=num, num_teachers=num_teachers)
    order = generator.permutation(num)[: size * num_teachers]
    weights = np.empty((num_teachers, width + 1, samples.labels.shape[1]))
    for teacher, rows in enumerate(order.reshape(num_teachers, size)):
        x, y = samples.features[rows], samples.labels[rows].astype(np.float64)
        center, mean = x.mean(axis=0), y.mean(axis=0)
        inner = x - center
        slopes = np.linalg.solve(inner.T @ inner + width * np.eye(width), inner.T @ (y - mean))
        weights[teacher, :-1], weights[teacher, -1] = slopes, mean - center @ slopes
    return weights


def answers(weights: FloatArray, features: FloatArray) -> UInt8Array:
    """Return the ballots ``[Q, T, C]`` of teachers on features ``[Q, F]``."""
    ballots = np.empty((len(features), len(weights), weights.shape[2]), dtype=np.uint8)
    for teacher, weights_of_teacher in enumerate(weights):
        ballots[:, teacher] = features @ weights_of_teacher[:-1] + weights_of_teacher[-1] > 0.5
    return ballots


def voted(
    data: Data, num_teachers: int, num_queries: int, *, generator: np.random.Generator
) -> Task:
    """Return the task of labelling ``num_queries`` public samples by the votes of ridge regressions."""
    weights = ridge_weights(data.private, num_teachers, generator=generator)
    require(
        num_queries <= len(data.public.features),
        "as many public samples as queries",
        num_queries=num_queries,
    )
    rows = generator.permutation(len(data.public.features))[:num_queries]
    queries = data.public.features[rows]
    ballots = answers(weights, queries)
    return Task(Ballots(ballots=ballots, features=queries), data.test)
