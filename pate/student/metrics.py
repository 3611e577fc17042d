"""Metrics of multi-label answers, the rare labels counted as much as the common ones."""

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import (
    MultilabelAccuracy,
    MultilabelAveragePrecision,
    MultilabelF1Score,
    MultilabelRecall,
    MultilabelSpecificity,
)

PER_LABEL = ("f1", "recall", "specificity", "average_precision")


def make_metrics(num_labels: int) -> MetricCollection:
    """Return the metrics of ``num_labels`` labels, fed with probabilities ``[B, C]`` and truth ``[B, C]``."""
    metrics: dict[str, Metric | MetricCollection] = {
        "macro_f1": MultilabelF1Score(num_labels, average="macro"),
        "micro_f1": MultilabelF1Score(num_labels, average="micro"),
        "accuracy": MultilabelAccuracy(num_labels, average="micro"),
        "f1": MultilabelF1Score(num_labels, average="none"),
        "recall": MultilabelRecall(num_labels, average="none"),
        "specificity": MultilabelSpecificity(num_labels, average="none"),
        # exact average precision sorts all scores of a label; 200 thresholds do without keeping them
        "average_precision": MultilabelAveragePrecision(num_labels, average="none", thresholds=200),
    }
    return MetricCollection(metrics, compute_groups=False)


def summarise(values: dict[str, Tensor]) -> dict[str, float]:
    """Return one figure for all labels of each kind, from what `make_metrics` computed."""
    balanced = (values["recall"] + values["specificity"]) / 2
    return {
        "macro_f1": float(values["macro_f1"]),
        "micro_f1": float(values["micro_f1"]),
        "mAP": float(values["average_precision"].nan_to_num().mean()),
        "balanced_accuracy": float(balanced.mean()),
        "accuracy": float(values["accuracy"]),
    }


def report(values: dict[str, Tensor], label_names: tuple[str, ...]) -> dict[str, Any]:
    """Return what `summarise` does and, under ``per_label``, those of `PER_LABEL` for each label."""
    table = {
        name: {metric: float(values[metric][j].nan_to_num()) for metric in PER_LABEL}
        for j, name in enumerate(label_names)
    }
    return summarise(values) | {"per_label": table}


def evaluate(probabilities: Tensor, truth: Tensor, label_names: tuple[str, ...]) -> dict[str, Any]:
    """Return the `report` of answers ``[N, C]``, as probabilities or as 0/1, against the truth ``[N, C]``."""
    metrics = make_metrics(len(label_names))
    metrics.update(probabilities.float(), truth.long())
    return report(metrics.compute(), label_names)


def majority_answer(truth: Tensor) -> Tensor:
    """Return the all-majority answer for truth ``[N, C]``: each label's more common value, the same for all samples."""
    return (truth.float().mean(0) > 0.5).to(torch.float32).expand(truth.shape[0], -1)
