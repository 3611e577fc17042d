import numpy as np
import torch
from torchmetrics.functional.classification import multilabel_average_precision

from pate.student._average_precision import average_precision


def test_average_precision_is_that_of_a_peer() -> None:
    generator = np.random.default_rng(0)
    scores = generator.integers(0, 20, (300, 4)) / 20
    truth = generator.random((300, 4)) < scores
    expected = multilabel_average_precision(
        torch.from_numpy(scores), torch.from_numpy(truth.astype(int)), num_labels=4, average="none"
    )
    np.testing.assert_allclose(average_precision(scores, truth), expected.numpy(), rtol=1e-5)


def test_a_label_that_nobody_has_counts_as_0() -> None:
    assert average_precision(np.ones((30, 4)), np.zeros((30, 4), dtype=np.bool_)).tolist() == [
        0,
        0,
        0,
        0,
    ]
