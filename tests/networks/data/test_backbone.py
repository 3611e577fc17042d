"""Frozen features: each record by itself, computed once."""

import stat
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from pate.data import ArrayFeatures, FrozenBackbone

CALLS = 0


class Backbone(nn.Sequential):
    """A small backbone with batch norm, which counts its calls."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__(
            nn.Conv2d(shape[0], 4, 3),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )

    def forward(self, pictures: Tensor) -> Tensor:
        global CALLS
        CALLS += 1
        features: Tensor = super().forward(pictures)  # type: ignore[no-untyped-call]
        return features


def pictures(num: int = 50) -> np.ndarray:
    return np.random.default_rng(0).random((num, 3, 8, 8), dtype=np.float32)


def backbone(folder: Path, **changes: object) -> FrozenBackbone:
    made = FrozenBackbone(Backbone, folder, batch_size=8, **changes)  # type: ignore[arg-type]
    return made.fit(ArrayFeatures(pictures(2)))


def calls() -> int:
    return CALLS


def test_features_are_the_network_s_and_kept(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    found = backbone(folder).transform(ArrayFeatures(pictures()))
    assert isinstance(found, np.memmap) and found.dtype == np.float32 and found.shape == (50, 4)
    torch.manual_seed(0)
    network = Backbone((3, 8, 8)).eval()
    expected = network(torch.from_numpy(pictures())).detach().numpy()
    assert np.allclose(found, expected, atol=1e-6)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    before = calls()
    again = backbone(folder).transform(ArrayFeatures(pictures()))
    assert calls() == before
    assert (again == found).all()
    assert [path.suffix for path in folder.iterdir()] == [".npy"]


def test_other_inputs_weights_or_seeds_have_other_features(tmp_path: Path) -> None:
    altered = pictures()
    altered[3] += 1
    torch.save(Backbone((3, 8, 8)).state_dict(), tmp_path / "weights.pt")
    backbone(tmp_path).transform(ArrayFeatures(pictures()))
    backbone(tmp_path).transform(ArrayFeatures(altered))
    backbone(tmp_path, seed=1).transform(ArrayFeatures(pictures()))
    backbone(tmp_path, weights=tmp_path / "weights.pt").transform(ArrayFeatures(pictures()))
    assert len(list(tmp_path.glob("*.npy"))) == 4


def test_a_record_s_features_depend_on_that_record_alone(tmp_path: Path) -> None:
    whole = backbone(tmp_path).transform(ArrayFeatures(pictures()))
    altered = pictures()
    altered[3] *= -5
    assert (
        np.flatnonzero((backbone(tmp_path).transform(ArrayFeatures(altered)) != whole).any(axis=1))
        == 3
    ).all()
    without = backbone(tmp_path).transform(ArrayFeatures(np.delete(pictures(), 3, axis=0)))
    assert (without == np.delete(whole, 3, axis=0)).all()
