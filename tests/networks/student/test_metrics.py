import numpy as np
import pytest
from sklearn.calibration import calibration_curve
from sklearn.metrics import precision_recall_curve, precision_recall_fscore_support, roc_auc_score

from pate._labeling.runs.released import DECISION_METRICS, roc_auc
from pate.data import UNKNOWN
from pate.student import evaluate, evaluate_constant

NAMES = ("a", "b", "c")


def by_hand(answers: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    f1, balanced = [], []
    for j in range(truth.shape[1]):
        hit = int((answers[:, j] & truth[:, j]).sum())
        f1.append(2 * hit / max(answers[:, j].sum() + truth[:, j].sum(), 1))
        recall = hit / max(truth[:, j].sum(), 1)
        specificity = ((1 - answers[:, j]) & (1 - truth[:, j])).sum() / max(
            (1 - truth[:, j]).sum(), 1
        )
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
    cuts = np.array([[0.5], [0.3], [0.6]]) + np.linspace(0, 0.1, num_labels)
    for optimize, row in zip(DECISION_METRICS, cuts, strict=True):
        found = evaluate(probabilities, truth, NAMES[:num_labels], cuts=cuts, optimize=optimize)
        expected = by_hand((probabilities > row).astype(np.int64), truth)
        for name, value in expected.items():
            assert found[name] == pytest.approx(value, abs=1e-6), name
        for other in DECISION_METRICS:
            again = evaluate(probabilities, truth, NAMES[:num_labels], cuts=cuts, optimize=other)
            assert again["at_cut"][optimize] == pytest.approx(
                {name: expected[name] for name in DECISION_METRICS}
            )
            assert again["mAP"] == found["mAP"]
    assert set(found["per_label"]) == set(NAMES[:num_labels])
    assert found["per_label"]["a"]["f1"] <= found["per_label"][NAMES[num_labels - 1]]["f1"]


@pytest.mark.parametrize("sign", [np.nan, UNKNOWN])
def test_unknown_labels_are_left_out(sign: float) -> None:
    """Each label has the figures of the samples that know it."""
    generator = np.random.default_rng(1)
    truth = (generator.random((200, 3)) < [0.2, 0.5, 0.8]).astype(np.float64)
    probabilities = 0.3 * truth + 0.7 * generator.random(truth.shape)
    lost = generator.random(truth.shape) < [0.5, 0.2, 0.0]
    cuts = np.full((3, 3), 0.5)
    some = np.where(lost, sign, truth)
    found = evaluate(probabilities, some, NAMES, cuts=cuts, optimize="accuracy")
    for j, name in enumerate(NAMES):
        rows = ~lost[:, j]
        only = evaluate(
            probabilities[rows][:, [j]],
            truth[rows][:, [j]],
            (name,),
            cuts=cuts[:, [j]],
            optimize="accuracy",
        )
        assert found["per_label"][name] == pytest.approx(only["per_label"][name])
    right = (probabilities > 0.5) == truth
    assert found["accuracy"] == pytest.approx(right[~lost].mean())
    nobody = evaluate(probabilities, np.full((200, 3), sign), NAMES, cuts=cuts, optimize="accuracy")
    assert nobody["mAP"] == nobody["macro_f1"] == 0


def test_average_precision_of_a_perfect_and_a_blind_ranking() -> None:
    truth = np.array([[1, 0, 0]] * 20 + [[0, 1, 1]] * 60, dtype=np.uint8)
    perfect = evaluate(
        truth * 0.8 + 0.1, truth, NAMES, cuts=np.full((3, 3), 0.5), optimize="accuracy"
    )
    blind = evaluate_constant(np.full(3, 0.3), truth, NAMES, optimize="accuracy")
    assert perfect["mAP"] == pytest.approx(1, abs=1e-6)
    assert blind["mAP"] == pytest.approx((20 + 60 + 60) / 240, abs=1e-6)


@pytest.mark.parametrize("digits", [1, 12])
def test_roc_auc_equals_that_of_scikit_learn(digits: int) -> None:
    """With scores that tie, and without."""
    generator = np.random.default_rng(1)
    truth = generator.random((200, 4)) < [0.02, 0.3, 0.5, 0.9]
    scores = np.round(generator.random(truth.shape) + 0.2 * truth, digits)
    expected = roc_auc_score(truth, scores, average=None)
    np.testing.assert_allclose(roc_auc(scores, truth), expected, rtol=1e-12)


def test_labels_without_two_classes_are_left_out_of_roc_auc() -> None:
    truth = np.array([[1, 1, 0]] * 5 + [[0, 1, 0]] * 5, dtype=np.uint8)
    scores = np.linspace(1, 0, 10)[:, None] * [1, 1, 1]
    found = evaluate(scores, truth, NAMES, cuts=np.full((3, 3), 0.5), optimize="accuracy")
    assert found["roc_auc"] == found["per_label"]["a"]["roc_auc"] == 1
    assert not {"roc_auc"} & (found["per_label"]["b"].keys() | found["per_label"]["c"].keys())
    none = evaluate_constant(np.full(2, 0.3), truth[:, 1:], ("b", "c"), optimize="accuracy")
    assert "roc_auc" not in none
    blind = evaluate_constant(np.full(3, 0.3), truth, NAMES, optimize="accuracy")
    assert blind["roc_auc"] == 0.5


def test_figures_of_labels_and_curves_are_those_of_scikit_learn() -> None:
    """Of labels that are known in part, with scores that tie."""
    generator = np.random.default_rng(2)
    truth = generator.random((400, 3)) < [0.05, 0.3, 0.7]
    scores = np.round((generator.random(truth.shape) + truth) / 2, 2) * 0.98 + 0.001
    known = generator.random(truth.shape) < 0.9
    found = evaluate(
        scores,
        np.where(known, truth, UNKNOWN),
        NAMES,
        cuts=np.full((3, 3), 0.6),
        optimize="accuracy",
    )
    for j, name in enumerate(NAMES):
        right, score = truth[known[:, j], j], scores[known[:, j], j]
        expected = precision_recall_fscore_support(right, score > 0.6, average="binary")
        label = found["per_label"][name]
        assert [label[each] for each in ("precision", "recall", "f1")] == pytest.approx(
            expected[:3]
        )
        assert label["support"] == right.sum()
        precision, recall, _ = precision_recall_curve(right, score)
        for step, drawn in enumerate(found["curves"]["precision"][1 + j], 1):
            fewest = np.flatnonzero(recall >= step / 20 - 1e-9)[-1]
            # of equal recalls, scikit-learn lists the smallest sample last
            assert drawn == pytest.approx(precision[fewest])
    share, mean = calibration_curve(truth[known], scores[known], n_bins=10)
    bins = np.array(found["curves"]["calibration"])
    np.testing.assert_allclose(bins[:, :2], np.column_stack((mean, share)))
    assert bins[:, 2].sum() == known.sum()
