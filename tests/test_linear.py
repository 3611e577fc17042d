"""The closed-form student."""

import numpy as np

from pate.linear import fit_linear


def test_labels_of_other_masks_prove_together_what_none_proves_alone() -> None:
    generator = np.random.default_rng(0)
    features = generator.standard_normal((600, 5))
    truth = features @ generator.standard_normal((5, 12)) > 0
    noise_std = 2.2
    shares = truth + noise_std * generator.standard_normal(truth.shape)
    mask = generator.random(truth.shape) < 0.95
    together = fit_linear(features, shares, mask, noise_std=noise_std).departs
    alone = [
        fit_linear(features, shares[:, [j]], mask[:, [j]], noise_std=noise_std).departs[0]
        for j in range(truth.shape[1])
    ]
    assert together.sum() > sum(alone)
    assert not fit_linear(features, shares, mask & False, noise_std=noise_std).departs.any()
