"""Tasks that papers' experiments are made again on: features, labels, and quick linear teachers that vote."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pate._core.validation import FloatArray, IntArray, UInt8Array, require, require_count
from pate.aggregators import Ballots
from pate.data import CelebA, CelebAAttributes, DataSource, PublicPCA, Role
from pate.lab.plan.sources import Task
from pate.lab.plan.sweep import TaskFacts
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

_TEACHERS = 40  # their mean accuracy is a point of a curve


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
) -> Task[Ballots]:
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
    return Task(
        votes=Ballots(ballots=ballots, features=queries),
        test_features=data.test.features,
        test_labels=data.test.labels,
        private=False,
    )


def facts(data: Data, records: tuple[int, ...], *, generator: np.random.Generator) -> TaskFacts:
    """Return the facts for `pate plan`: sizes, densities, and one teacher's accuracy on public samples."""
    half = len(data.public.features) // 2
    order = generator.permutation(len(data.public.features))
    learned, held_out = data.public.taken(order[:half]), data.public.taken(order[half:])
    curve = {}
    for size in records:
        some = learned.taken(np.arange(size * min(_TEACHERS, half // size)))
        weights = ridge_weights(some, len(some.features) // size, generator=generator)
        curve[size] = float(
            (answers(weights, held_out.features) == held_out.labels[:, None]).mean()
        )
    return TaskFacts(
        num_records=len(data.private.features),
        num_labels=data.private.labels.shape[1],
        num_public=len(data.public.features),
        num_features=data.private.features.shape[1],
        label_density=data.public.labels.mean(axis=0).clip(1e-3, 1 - 1e-3).tolist(),
        curve=curve,
    )
