"""The file of a run's released labels, with their aggregator and the number of their release.

`ReleasedLabels` is the border between PRIVATE and PUBLIC: its content may be published, and nothing
else that is computed from votes may. A student learns targets from it, and is measured by
figures that count rare labels as much as common ones. Cuts turn its probabilities into decisions.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate._core.files.reading import SMALL, Header, Json, digest, read_arrays, read_json
from pate._core.validation import (
    MOST_VOTERS,
    BoolArray,
    Float32Array,
    FloatArray,
    IntArray,
    StrArray,
    UInt8Array,
    require,
    require_given,
    require_positive,
)
from pate._labeling.data.records import Records, Role, known_truth
from pate._labeling.data.source import DataSource
from pate._labeling.runs.run import (
    KEY_FILE,
    STUDENT,
    TEACHERS_FIT,
    Run,
    first_stage,
    labels_file,
    read_key,
)
from pate._labeling.votes.kinds import VoteShape, rows_of

FORMAT = 1
"""The version of ``labels.npz``, which is raised when it changes: another one is refused."""
_SEAL = "seal"
_KINDS = {
    "format": "iu",
    "ids": "U",
    "label_names": "U",
    "num_teachers": "iu",
    "delta": "f",
    "aggregator": "U",
    "release": "iu",
    "labels": "iu",
    "mask": "b",
    _SEAL: "U",
}
_OPTIONAL_KINDS = {
    "values": "f",
    "noise_std": "fiu",
    "steps": "iu",
    "columns": "b",
    "variance_ratio": "f",
}
"""The kinds of the arrays' types, by their names."""
_UNLIKE = 1.3
"""The ratio of variances from which samples are unlike; in one source it was below 1.2."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Queries:
    """The queries of a release: public facts, fixed before any vote is read.

    Attributes:
        ids: ``[Q]``, ids of the public samples in the order of the queries.
        label_names: names of the ``C`` labels.
        num_teachers: the nominal number of teachers.
        delta: the delta of the statement.
        aggregator: class path and settings of the aggregator, as JSON.
    """

    ids: StrArray
    label_names: tuple[str, ...]
    num_teachers: int
    delta: float
    aggregator: Json

    @property
    def shape(self) -> VoteShape:
        """The numbers of teachers and labels."""
        return VoteShape(self.num_teachers, len(self.label_names))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ReleasedLabels(Queries):
    """The answers to `Queries`, the content of ``labels.npz``. PUBLIC.

    Attributes:
        release: number of the release in the ledger.
        labels: ``[Q, C]`` in {0, 1}; 0 where nothing was released.
        mask: ``[Q, C]``, True for released labels.
        noisy_counts: ``[Q, C]``, noisy counts of teachers. None if the aggregator released none.
            Named ``values`` in the file.
        noise_std: standard deviation of the Gaussian noise in ``noisy_counts``, in votes, above 0.
            None without counts, and for answers of a linear model, for which the file holds 0.
        tiers: ``[Q]``, the price tier of each query. None if all queries cost the same. Named
            ``steps`` in the file.
        linear: whether ``noisy_counts`` are ``num_teachers`` times the answers of a linear model.
        columns: ``[F]``, the features that such a model reads. None for all of them.
        variance_ratio: about the variance of private records over that of public samples, along
            directions on which such a model depends. None if the release does not tell.
    """

    release: int
    labels: UInt8Array
    mask: BoolArray
    noisy_counts: FloatArray | None = None
    noise_std: float | None = None
    tiers: IntArray | None = None
    linear: bool = False
    columns: BoolArray | None = None
    variance_ratio: float | None = None

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(samples={len(self.ids)}, answered={int(self.answered.sum())},"
            f" labels={len(self.label_names)}, release={self.release}, delta={self.delta:g})"
        )

    @property
    def unlike(self) -> str | None:
        """One sentence if the release shows public samples to be unlike private records."""
        if self.variance_ratio is None or self.variance_ratio < _UNLIKE:
            return None
        return (
            f"The release shows records of about {self.variance_ratio:.1f} times the variance of"
            " public samples:\nare these samples of another kind (shifted: true moves them), or"
            " only the records scaled?"
        )

    @property
    def answered(self) -> BoolArray:
        """``[Q]``: whether at least one label of each query was released."""
        return np.asarray(self.mask.any(axis=1))

    @property
    def facts(self) -> Json:
        """The facts about the labels in their statement, by its keys."""
        return {
            "release": self.release,
            "num_queries": len(self.ids),
            # None if each unit is a teacher, because their number is private
            "num_teachers": None if self.num_teachers == MOST_VOTERS else self.num_teachers,
            "num_labels": len(self.label_names),
            "delta": self.delta,
            "aggregator": self.aggregator,
            "num_answered": int(self.answered.sum()),
        }

    def save(self, file: IO[bytes], key: bytes) -> None:
        """Write an ``.npz`` with a seal that only the run can make. It is on disk on return.

        The seal is a hash of all arrays, keyed by the run's partition key. It reveals nothing about
        votes or records.

        Args:
            file: the file, open for writing at its start.
            key: the `sealing_key` of the run that the labels belong to.
        """
        arrays: dict[str, Any] = {
            "format": np.array(FORMAT),
            "ids": self.ids,
            "label_names": np.array(self.label_names),
            "num_teachers": np.array(self.num_teachers),
            "delta": np.array(self.delta, dtype=np.float64),
            "aggregator": np.array(json.dumps(self.aggregator)),
            "release": np.array(self.release),
            "labels": np.asarray(self.labels),
            "mask": np.asarray(self.mask),
        }
        optional = {
            "values": self.noisy_counts,
            "noise_std": None if self.noisy_counts is None else self.noise_std or 0.0,
            "steps": self.tiers,
            "columns": self.columns,
            "variance_ratio": self.variance_ratio,
        }
        arrays |= {name: np.asarray(part) for name, part in optional.items() if part is not None}
        np.savez_compressed(file, **arrays, seal=np.array(_seal(arrays, key)))
        file.truncate()
        file.flush()
        os.fsync(file.fileno())

    @classmethod
    def load(cls, folder: Path | str) -> Self:
        """Read the labels of the run in ``folder``.

        Raises:
            ValueError: if the file is missing, damaged or changed, or comes from another run.
        """
        run = Run(Path(folder))
        path = labels_file(run)
        arrays = _read(path)
        seal = str(arrays.pop(_SEAL))
        require(
            seal == _seal(arrays, sealing_key(run)),
            f"labels in {path} as `pate label` of this run left them",
            seal=seal,
        )
        return cls._of(arrays)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file that `save` wrote from the public files, without the key to check its seal.

        Raises:
            ValueError: if the file is missing or damaged, or its arrays do not fit together.
        """
        return cls._of(_read(path))

    @classmethod
    def _of(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        values, noise = arrays.get("values"), arrays.get("noise_std")
        ratio = arrays.get("variance_ratio")
        return cls(
            ids=arrays["ids"],
            label_names=tuple(arrays["label_names"].tolist()),
            num_teachers=int(arrays["num_teachers"]),
            delta=float(arrays["delta"]),
            aggregator=read_json(str(arrays["aggregator"])),
            release=int(arrays["release"]),
            labels=arrays["labels"],
            mask=arrays["mask"],
            noisy_counts=values,
            noise_std=None if values is None or not noise else float(noise),
            tiers=arrays.get("steps"),
            linear=values is not None and not noise,
            columns=arrays.get("columns"),
            variance_ratio=None if ratio is None else float(ratio),
        )


def _read(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays in a file of labels. Types and shapes are checked before any is read."""

    def check(headers: dict[str, Header]) -> None:
        shape = {name: headers[name][0][:1] for name in ("ids", "label_names")}
        table = shape["ids"] + shape["label_names"]
        shapes = shape | {"steps": shape["ids"], "labels": table, "mask": table, "values": table}
        for name, (actual, _, dtype) in headers.items():
            wanted = (min(math.prod(actual), SMALL),) if name == "columns" else shapes.get(name, ())
            kinds = (_KINDS | _OPTIONAL_KINDS)[name]
            require(
                actual == wanted and dtype.kind in kinds and dtype.itemsize <= SMALL,
                f"{name} of shape {wanted} in {path}",
                shape=actual,
                dtype=str(dtype),
            )

    arrays = read_arrays(
        path,
        [*_KINDS],
        [*_OPTIONAL_KINDS],
        check=check,
        what="the labels that `pate label` left",
    )
    require(
        arrays["format"] == FORMAT,
        f"labels of format {FORMAT}, which this version of pate reads, in {path}",
        format=int(arrays["format"]),
    )
    if "variance_ratio" in arrays:
        require_positive(variance_ratio=float(arrays["variance_ratio"]))
    return arrays


def sealing_key(run: Run) -> bytes:
    """Return the key of the run's partitions, which seals its labels.

    Raises:
        ValueError: if it is missing, damaged or not the key that the run began with.
    """
    path, first = str(run.root / KEY_FILE), first_stage(run)
    key = require_given(read_key(run), "the key of the run's partitions. Put it back", missing=path)
    begun = run.state(first)
    did = "partitioned" if first is TEACHERS_FIT else "began"
    require(
        begun is None or begun.inputs.digests.get("partition") == digest(key),
        f"the key that `pate {first.name}` {did} with. Put it back",
        changed=path,
    )
    return key


def _seal(arrays: Mapping[str, NDArray[Any]], key: bytes) -> str:
    total = hashlib.blake2b(digest_size=16, key=key, person=b"pate labels")
    for name, array in sorted(arrays.items()):
        head = json.dumps([name, array.dtype.str, array.shape]).encode()
        total.update(len(head).to_bytes(8, "big") + head + np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def require_student(run: Run) -> None:
    """Raise ``ValueError`` unless a run's student is finished and learned its present labels."""
    run.require_finished(STUDENT)
    # raises if the labels are missing or damaged
    ReleasedLabels.load(run.root)
    require(
        run.inputs_of(STUDENT).digests.get("labels") == digest(labels_file(run)),
        f"a student of the labels in {labels_file(run)}, not of earlier labels. `pate student fit`"
        " with `overwrite` trains one of these",
    )


def queried(source: DataSource, released: ReleasedLabels) -> tuple[Records, IntArray]:
    """Return the public records, and the rows ``[Q]`` of the queries among them.

    Raises:
        ValueError: if the labels have other names than the records, or none was released.
    """
    names = source.label_names
    require(
        released.label_names == names,
        f"released labels named {', '.join(names)}",
        label_names=released.label_names,
    )
    answered = int(released.answered.sum())
    require(answered > 0, "released labels of at least one query", answered=answered)
    public = source.records(Role.PUBLIC)
    return public, rows_of(released.ids, public.ids)


def targets_of(released: ReleasedLabels, *, soft: bool = True) -> Float32Array:
    """Return the targets ``[Q, C]`` of a student: noisy shares of the teachers, else labels.

    The noise in a share has mean 0, so that a loss linear in its target is right on average (see
    `Student`). Answers of a linear model have no such noise, and are clipped to [0, 1].
    """
    if soft and released.noisy_counts is not None:
        shares = released.noisy_counts / released.num_teachers
        return np.asarray(shares.clip(0, 1) if released.linear else shares, dtype=np.float32)
    return released.labels.astype(np.float32)


def noise_of(released: ReleasedLabels, *, soft: bool = True) -> float | None:
    """Return the standard deviation of the noise in `targets_of`. None for labels."""
    return (
        released.noise_std / released.num_teachers
        if soft and released.noise_std is not None
        else None
    )


Metric = Literal["accuracy", "macro_f1", "micro_f1"]
"""A metric that decisions can optimize."""

DECISION_METRICS: tuple[Metric, ...] = get_args(Metric)
"""The rows of `choose_thresholds`."""


def choose_thresholds(probabilities: ArrayLike) -> FloatArray:
    """Return cuts ``[3, C]`` of probabilities, a row for each of `DECISION_METRICS`.

    A label is given above its cut. The cut for accuracy is one half. If a set S of samples gets a
    label, its expected F1, as a ratio of expectations, is ``2 sum_S p / (|S| + sum p)``. Let F be
    the maximum: then ``sum_S (2 p - F) <= F sum p`` for every S, with equality for the best set.
    The left side is largest if S holds the samples with ``p > F / 2``: the cut is half of the
    largest F1 (Lipton, Elkan & Naryanaswamy (2014)). For macro-F1 the sums run over the samples of
    one label; for micro-F1 over all pairs of a sample and a label, so that all labels have one cut.

    >>> choose_thresholds([[0.9, 0.2], [0.6, 0.1]]).round(2)
    array([[0.5 , 0.5 ],
           [0.43, 0.15],
           [0.39, 0.39]])

    Args:
        probabilities: ``[N, C]``, of public samples.
    """
    values = np.asarray(probabilities, dtype=np.float64)
    return np.stack(
        (
            np.full(values.shape[1], 0.5),
            _largest_f1(values) / 2,
            np.broadcast_to(_largest_f1(values.reshape(-1, 1)) / 2, values.shape[1]),
        )
    )


def _largest_f1(probabilities: FloatArray) -> FloatArray:
    """Return the largest expected F1 ``[C]`` on samples with ``probabilities`` ``[N, C]``."""
    falling = -np.sort(-probabilities, axis=0)
    sizes = np.arange(1, len(falling) + 1)[:, None] + falling.sum(axis=0)
    return (2 * np.cumsum(falling, axis=0) / sizes).max(axis=0, initial=0.0)


def agreement(
    given: BoolArray, truth: BoolArray, known: BoolArray | None = None
) -> dict[str, float]:
    """Return the figures `DECISION_METRICS` of decisions against the truth, both ``[N, C]``.

    Entries that are not ``known`` are left out. The F1 of a label that is neither given nor true is
    0.

    >>> given = np.array([[True, False], [True, True]])
    >>> truth = np.array([[True, False], [False, True]])
    >>> agreement(given, truth)["accuracy"]
    0.75

    Returns:
        ``accuracy``, ``macro_f1`` and ``micro_f1``, each in [0, 1].
    """
    counted = np.ones(truth.shape, dtype=np.bool_) if known is None else known
    given, truth = given & counted, truth & counted
    hits, either = (given & truth).sum(axis=0), given.sum(axis=0) + truth.sum(axis=0)
    return {
        "accuracy": float(((given == truth) & counted).sum() / max(counted.sum(), 1)),
        "macro_f1": float((2 * hits / np.maximum(either, 1)).mean()),
        "micro_f1": float(2 * hits.sum() / max(either.sum(), 1)),
    }


def evaluate(
    probabilities: ArrayLike,
    truth: ArrayLike,
    label_names: tuple[str, ...],
    *,
    cuts: FloatArray,
    optimize: Metric,
) -> dict[str, Any]:
    """Return the figures of predictions on samples with known labels.

    >>> probabilities = np.array([[0.9, 0.2], [0.4, 0.6]])
    >>> cuts = choose_thresholds(probabilities)
    >>> truth = [[1, 0], [0, 1]]
    >>> figures = evaluate(probabilities, truth, ("a", "b"), cuts=cuts, optimize="accuracy")
    >>> figures["mAP"], figures["accuracy"]
    (1.0, 1.0)

    Args:
        probabilities: ``[N, C]``.
        truth: ``[N, C]`` in {0, 1}; NaN or `pate.data.UNKNOWN` where it is unknown: such entries
            are left out of all figures.
        label_names: names of the ``C`` labels.
        cuts: ``[3, C]``, from `choose_thresholds`.
        optimize: the metric with the cuts that decide.

    Returns:
        ``macro_f1``, ``micro_f1``, ``mAP``, ``balanced_accuracy`` and ``accuracy`` over all labels;
        under ``at_cut``, for each of `DECISION_METRICS`, the figures of the decisions that serve
        it; under ``per_label`` the figures of each label, and how many samples have it
        (``support``); under ``curves`` those of `curves_of`. ``roc_auc`` is the mean over labels
        that some samples have and others lack, and absent without such labels.
    """
    scores, (right, known) = np.asarray(probabilities), known_truth(truth)
    at_cut = {
        purpose: agreement(scores > row, right, known)
        for purpose, row in zip(DECISION_METRICS, cuts, strict=True)
    }
    decisions = (scores > cuts[DECISION_METRICS.index(optimize)]) & known
    hits, num_right, wrong = (decisions & right).sum(axis=0), right.sum(axis=0), known & ~right
    given = decisions.sum(axis=0)
    per_label = {
        "support": num_right,
        "f1": 2 * hits / np.maximum(given + num_right, 1),
        "recall": hits / np.maximum(num_right, 1),
        "precision": hits / np.maximum(given, 1),
        "specificity": (~decisions & wrong).sum(axis=0) / np.maximum(wrong.sum(axis=0), 1),
        "average_precision": average_precision(scores, right, known),
    }
    chosen, areas = at_cut[optimize], roc_auc(scores, right, known)
    ranked = np.isfinite(areas)
    per_label["roc_auc"] = areas
    return {
        "macro_f1": chosen["macro_f1"],
        "micro_f1": chosen["micro_f1"],
        "mAP": float(per_label["average_precision"].mean()),
        **({"roc_auc": float(areas[ranked].mean())} if ranked.any() else {}),
        "balanced_accuracy": float((per_label["recall"] + per_label["specificity"]).mean() / 2),
        "accuracy": chosen["accuracy"],
        "at_cut": at_cut,
        "per_label": {
            name: {
                figure: float(values[j])
                for figure, values in per_label.items()
                if np.isfinite(values[j])
            }
            for j, name in enumerate(label_names)
        },
        "curves": curves_of(scores, right, known),
    }


_STEPS = 20
_DRAWN = 6  # labels, of which each has a curve


def curves_of(
    scores: NDArray[np.floating], truth: BoolArray, known: BoolArray
) -> dict[str, list[list[float]]]:
    """Return the points that a report draws of probabilities ``[N, C]``.

    Returns:
        ``calibration``: for each tenth of the probabilities, all labels pooled, their mean, the
        share that is true, and their number; ``precision``: the precision of the fewest samples
        with a recall of 1/20, 2/20 .. 1, of all labels pooled and then, if there are at most six,
        of each. It is empty for a label that no sample has.
    """
    pooled, right = scores[known].astype(np.float64), truth[known]
    tenths = np.minimum((10 * pooled).astype(np.int64), 9)
    bins = [tenths == tenth for tenth in np.unique(tenths)]
    columns = [(pooled, right)]
    if truth.shape[1] <= _DRAWN:
        columns += [(scores[at, j], truth[at, j]) for j, at in enumerate(known.T)]
    return {
        "calibration": [
            [float(pooled[some].mean()), float(right[some].mean()), float(some.sum())]
            for some in bins
        ],
        "precision": [_precision_at_recalls(*column) for column in columns],
    }


def _precision_at_recalls(scores: NDArray[np.floating], truth: BoolArray) -> list[float]:
    order = np.argsort(-scores, kind="stable")
    last = np.append(np.diff(scores[order]) != 0, True)[: len(order)]
    hits, sizes = np.cumsum(truth[order])[last], np.flatnonzero(last) + 1
    if not truth.any():
        return []
    enough = -(-np.arange(1, _STEPS + 1) * hits[-1] // _STEPS)
    at = np.searchsorted(hits, enough)
    return list(map(float, hits[at] / sizes[at]))


def evaluate_constant(
    shares: ArrayLike, truth: UInt8Array, label_names: tuple[str, ...], *, optimize: Metric
) -> dict[str, Any]:
    """Return the figures of constant probabilities ``shares`` ``[C]``, by their own cuts.

    >>> truth = np.array([[1, 0], [1, 1]], dtype=np.uint8)
    >>> evaluate_constant([0.8, 0.3], truth, ("a", "b"), optimize="accuracy")["accuracy"]
    0.75

    Returns:
        the figures of `evaluate`.
    """
    probabilities = np.broadcast_to(np.asarray(shares), truth.shape)
    return evaluate(
        probabilities,
        truth,
        label_names,
        cuts=choose_thresholds(probabilities[:1]),
        optimize=optimize,
    )


def average_precision(
    scores: NDArray[np.floating], truth: BoolArray, known: BoolArray | None = None
) -> FloatArray:
    """Return the exact average precision of each label.

    Args:
        scores: ``[N, C]``, higher if more certain; equal scores are one step of the ranking.
        truth: ``[N, C]``, whether each sample has each label.
        known: ``[N, C]``, the entries that count. None for all.

    Returns:
        ``[C]`` in [0, 1]; 0 for a label that no sample has.
    """
    precisions = np.zeros(truth.shape[1])
    for j in range(truth.shape[1]):
        order = np.argsort(-scores[:, j], kind="stable")
        if known is not None:
            order = order[known[order, j]]
        if not order.size:
            continue
        hits = np.cumsum(truth[order, j])
        last = np.append(np.diff(scores[order, j]) != 0, True)
        gained = np.diff(hits[last], prepend=0)
        precisions[j] = gained @ (hits[last] / (np.flatnonzero(last) + 1)) / max(1, hits[-1])
    return precisions


def roc_auc(
    scores: NDArray[np.floating], truth: BoolArray, known: BoolArray | None = None
) -> FloatArray:
    """Return the area under the ROC curve of each label.

    It is the probability that a sample with the label has a higher score than one without it, where
    equal scores count one half (Mann & Whitney (1947)).

    Args:
        scores: ``[N, C]``, higher if more certain.
        truth: ``[N, C]``, whether each sample has each label.
        known: ``[N, C]``, the entries that count. None for all.

    Returns:
        ``[C]`` in [0, 1]; NaN for a label that all samples have, or none.
    """
    areas, counted = np.full(truth.shape[1], np.nan), True if known is None else known
    there, lacking = truth & counted, ~truth & counted
    for j in np.flatnonzero(there.any(axis=0) & lacking.any(axis=0)):
        with_label, without = scores[there[:, j], j], np.sort(scores[lacking[:, j], j])
        below, up_to = (
            np.searchsorted(without, with_label),
            np.searchsorted(without, with_label, "right"),
        )
        areas[j] = (below + up_to).mean() / (2 * without.size)
    return areas
