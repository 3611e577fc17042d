"""Metrics of multi-label predictions that count rare labels as much as common ones."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import MultilabelAccuracy, MultilabelF1Score, MultilabelRecall, MultilabelSpecificity
from torchmetrics.utilities import dim_zero_cat

from pate.student._answers import CUT
from pate.student._average_precision import average_precision

PER_LABEL = ("f1", "recall", "specificity", "average_precision")


class AveragePrecision(Metric):
    """The exact `average_precision` ``[C]`` over all batches, whose scores are kept until it is computed."""

    full_state_update = False
    scores: list[Tensor]
    truth: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.add_state("scores", default=[], dist_reduce_fx="cat")
        self.add_state("truth", default=[], dist_reduce_fx="cat")

    def update(self, scores: Tensor, truth: Tensor) -> None:
        """Add a batch ``[B, C]``."""
        self.scores.append(scores.detach())
        self.truth.append(truth.detach().bool())

    def compute(self) -> Tensor:
        """Return the average precision of each label."""
        scores, truth = dim_zero_cat(self.scores), dim_zero_cat(self.truth)
        return torch.from_numpy(average_precision(scores.cpu().numpy(), truth.cpu().numpy()))


def make_metrics(num_labels: int) -> MetricCollection:
    """Return the metrics for ``num_labels`` labels, to be updated with probabilities and truth, ``[B, C]`` each."""
    # torchmetrics can count a single label, but its check of arguments refuses it
    arguments: dict[str, Any] = {"threshold": CUT, "validate_args": num_labels > 1}
    metrics: dict[str, Metric | MetricCollection] = {
        "macro_f1": MultilabelF1Score(num_labels, average="macro", **arguments),
        "micro_f1": MultilabelF1Score(num_labels, average="micro", **arguments),
        "accuracy": MultilabelAccuracy(num_labels, average="micro", **arguments),
        "f1": MultilabelF1Score(num_labels, average="none", **arguments),
        "recall": MultilabelRecall(num_labels, average="none", **arguments),
        "specificity": MultilabelSpecificity(num_labels, average="none", **arguments),
        "average_precision": AveragePrecision(),
    }
    return MetricCollection(metrics, compute_groups=False)


def summarise(values: dict[str, Tensor]) -> dict[str, float]:
    """Return each metric over all labels from the values that `make_metrics` computed."""
    balanced = (values["recall"] + values["specificity"]) / 2
    return {
        "macro_f1": float(values["macro_f1"]),
        "micro_f1": float(values["micro_f1"]),
        "mAP": float(values["average_precision"].mean()),
        "balanced_accuracy": float(balanced.mean()),
        "accuracy": float(values["accuracy"]),
    }


def report(values: dict[str, Tensor], label_names: tuple[str, ...]) -> dict[str, Any]:
    """Return the result of `summarise` and, under ``per_label``, the metrics `PER_LABEL` of each label."""
    columns = {metric: values[metric].reshape(-1) for metric in PER_LABEL}  # torchmetrics gives one label no axis
    table = {name: {metric: float(columns[metric][j]) for metric in PER_LABEL} for j, name in enumerate(label_names)}
    return summarise(values) | {"per_label": table}


def evaluate(probabilities: Tensor, truth: Tensor, label_names: tuple[str, ...]) -> dict[str, Any]:
    """Return the `report` on predictions ``[N, C]``, probabilities or 0/1, against the truth ``[N, C]``."""
    metrics = make_metrics(len(label_names))
    metrics.update(probabilities.float(), truth.long())
    return report(metrics.compute(), label_names)


def majority_answer(truth: Tensor) -> Tensor:
    """Return the all-majority answer for truth ``[N, C]``: each label's more common value, the same for all samples."""
    return (truth.float().mean(0) > 0.5).to(torch.float32).expand(truth.shape[0], -1)
