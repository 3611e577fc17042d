"""Maps one after the other."""

from pathlib import Path

import numpy as np
import pytest
import torch

from pate._networks.settings import restored_network
from pate.data import ArrayFeatures, AutoFeatures, ChainedFeatures, FrozenBackbone, PublicScaling
from pate.student import as_module
from tests.networks.data.test_backbone import Backbone, pictures

PICTURES = ArrayFeatures(pictures())


def chain(folder: Path) -> ChainedFeatures:
    maps = [FrozenBackbone(Backbone, folder, batch_size=8), PublicScaling(), AutoFeatures()]
    return ChainedFeatures(maps).fit(PICTURES)


def test_each_map_sees_the_features_of_the_one_before(tmp_path: Path) -> None:
    made = chain(tmp_path)
    first = FrozenBackbone(Backbone, tmp_path, batch_size=8).fit(PICTURES).transform(PICTURES)
    second = PublicScaling().fit(ArrayFeatures(first)).transform(ArrayFeatures(first))
    third = AutoFeatures().fit(ArrayFeatures(second))
    assert (np.asarray(made.transform(PICTURES)) == third.transform(ArrayFeatures(second))).all()
    assert made.widths == third.widths == (4, 25)
    assert made.version == third.version > 0
    assert made.fit(PICTURES) is made and len(made.shapes) == 3


def test_a_chain_leaves_as_a_module(tmp_path: Path) -> None:
    made = chain(tmp_path)
    settings, module = as_module(made, (3, 8, 8))
    expected = np.asarray(made.transform(PICTURES))
    with torch.no_grad():
        assert np.allclose(module(torch.from_numpy(pictures())).numpy(), expected, atol=1e-5)
    restored = restored_network(settings, (3, 8, 8), trust=True)
    restored.load_state_dict(module.state_dict())
    with torch.no_grad():
        found = restored.eval()(torch.from_numpy(pictures())).numpy()
    assert np.allclose(found, expected, atol=1e-5)
    with pytest.raises(ValueError, match=r"Backbone"):
        restored_network(settings, (3, 8, 8))
