"""Maps one after the other."""

from pathlib import Path

import numpy as np

from pate.data import ArrayFeatures, AutoFeatures, ChainedFeatures, FrozenBackbone, PublicScaling
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
