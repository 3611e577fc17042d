"""Patches of pictures, and random features, in torch."""

import numpy as np
import pytest
import torch

from pate._labeling.data.feature_maps import save_map
from pate._networks.settings import restored_network
from pate.data import ArrayFeatures, AutoFeatures, ChainedFeatures, FeatureMap, PublicScaling
from tests.labeling.data.test_patches import COLOR, GRAY, LAST, pictures, small


def module_of(mapping: FeatureMap, shape: tuple[int, ...]) -> torch.nn.Module:
    saved = save_map(mapping, shape)
    module = restored_network(saved.settings, shape)
    module.load_state_dict({name: torch.tensor(part) for name, part in saved.state.items()})
    return module


@pytest.mark.parametrize("shape", [GRAY, COLOR, LAST])
def test_it_leaves_as_a_module_and_as_arrays(shape: tuple[int, ...]) -> None:
    raw = pictures(80, shape)
    mapping = ChainedFeatures([small(), PublicScaling()]).fit(raw)
    expected = np.asarray(mapping.transform(raw))
    module = module_of(mapping, shape)
    with torch.no_grad():
        assert np.allclose(module(torch.from_numpy(raw.values)).numpy(), expected, atol=1e-5)


def test_random_features_leave_as_a_module() -> None:
    rows = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)
    mapping = AutoFeatures(num_features=16).fit(ArrayFeatures(rows))
    expected = np.asarray(mapping.transform(ArrayFeatures(rows)))
    module = module_of(mapping, (5,))
    with torch.no_grad():
        np.testing.assert_allclose(module(torch.from_numpy(rows)).numpy(), expected, atol=1e-5)
