import numpy as np
import pytest
import torch

from pate.student._metrics import evaluate, majority_answer

NAMES = ("a", "b", "c")


def by_hand(answers: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    f1, balanced = [], []
    for j in range(truth.shape[1]):
        hit = int((answers[:, j] & truth[:, j]).sum())
        f1.append(2 * hit / max(answers[:, j].sum() + truth[:, j].sum(), 1))
        recall = hit / max(truth[:, j].sum(), 1)
        specificity = ((1 - answers[:, j]) & (1 - truth[:, j])).sum() / max((1 - truth[:, j]).sum(), 1)
        balanced.append((recall + specificity) / 2)
    hit = int((answers & truth).sum())
    return {
        "macro_f1": float(np.mean(f1)),
        "micro_f1": 2 * hit / (answers.sum() + truth.sum()),
        "balanced_accuracy": float(np.mean(balanced)),
        "accuracy": float((answers == truth).mean()),
    }


@pytest.mark.parametrize("num_labels", [1, 3])
def test_figures_are_those_computed_by_hand(num_labels: int) -> None:
    generator = np.random.default_rng(0)
    truth = (generator.random((300, num_labels)) < [0.1, 0.5, 0.8][:num_labels]).astype(np.int64)
    probabilities = 0.3 * truth + 0.7 * generator.random(truth.shape)
    found = evaluate(torch.from_numpy(probabilities), torch.from_numpy(truth), NAMES[:num_labels])
    for name, value in by_hand((probabilities > 0.5).astype(np.int64), truth).items():
        assert found[name] == pytest.approx(value, abs=1e-6), name
    assert set(found["per_label"]) == set(NAMES[:num_labels])
    assert found["per_label"]["a"]["f1"] <= found["per_label"][NAMES[num_labels - 1]]["f1"]


def test_average_precision_of_a_perfect_and_a_blind_ranking() -> None:
    truth = torch.tensor([[1, 0, 0]] * 20 + [[0, 1, 1]] * 60)
    perfect = evaluate(truth.float() * 0.8 + 0.1, truth, NAMES)
    blind = evaluate(torch.full((80, 3), 0.3), truth, NAMES)
    assert perfect["mAP"] == pytest.approx(1, abs=1e-6)
    assert blind["mAP"] == pytest.approx((20 + 60 + 60) / 240, abs=1e-6)


def test_a_rare_label_weighs_as_much_as_a_common_one() -> None:
    truth = torch.zeros(100, 2, dtype=torch.long)
    truth[:2, 0] = 1
    truth[:90, 1] = 1
    answer = majority_answer(truth)
    assert answer.tolist() == [[0, 1]] * 100
    found = evaluate(answer, truth, ("rare", "common"))
    assert found["accuracy"] == pytest.approx(0.94)
    assert found["balanced_accuracy"] == pytest.approx(0.5)
    assert found["macro_f1"] < 0.5 < found["micro_f1"]


def test_labels_without_positives_are_zeros_not_nan() -> None:
    truth = torch.zeros(10, 3, dtype=torch.long)
    found = evaluate(torch.full((10, 3), 0.1), truth, NAMES)
    assert all(np.isfinite(found[name]) for name in ("macro_f1", "micro_f1", "mAP", "balanced_accuracy"))
