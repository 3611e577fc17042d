"""Public maps that compute by torch: a frozen network with weights from files, and transforms.

Both import torch late, so that data without them start without it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pate._core.files.reading import Stream, digest, regular
from pate._core.validation import (
    Float32Array,
    Float32Array as FloatArray,
    IntArray,
    expecting,
    require,
    require_count,
)
from pate._labeling.data.records import (
    ArrayFeatures,
    FeatureMap,
    Features,
    MappedFeatures,
    values_of,
)
from pate._labeling.data.sentences import kept_features

if TYPE_CHECKING:
    from torch import nn


def load_weights(network: nn.Module, file: Path) -> None:
    """Load the weights of a file whose names are the network's, or else in the order of its layers.

    Raises ``ValueError`` in one line if there is no such file, or layers have other shapes.
    """
    import torch
    from safetensors.torch import load_file

    require(file.is_file(), "a file of weights", weights=str(file))
    own = network.state_dict()
    # torch and safetensors raise errors of many classes
    with expecting(f"weights of {type(network).__name__} in {file}", Exception):
        state = (
            load_file(regular(file))
            if file.suffix == ".safetensors"
            else torch.load(regular(file), weights_only=True, map_location="cpu")
        )
        if not own.keys() <= state.keys():  # a file of the network in a `Backbone`
            network = getattr(network, "body", network)
            own = network.state_dict()
        if not own.keys() <= state.keys() and file.suffix != ".safetensors":  # which are sorted
            state = dict(zip(own, state.values(), strict=False))
        # a last layer, which the network lacks, is left out
        network.load_state_dict({name: state[name] for name in own})


# rows in one part of the digest that names a file of features
_ROWS = 4096


# Files of features are named by a hash of this class's source too: any change of a letter in it
# renames them all, and features of earlier runs are computed again.
class FrozenBackbone(FeatureMap):
    """Features of a network that is never trained here, computed once and kept on disk.

    The network sees one record at a time in effect: it is in evaluation mode, batches are all of
    one size, and nothing is fitted, neither on public samples nor on private records. Features are
    float32 ``[N, ...]``, memory-mapped from a file that is named by a hash of the inputs, the
    weights and the code. Those of private records are PRIVATE: the folder is made with mode 0700. A
    run that was killed goes on where the features end.

    Args:
        network: makes the network for the shape of a record; its output ``[B, ...]`` is taken as it
            is.
        cache: the folder of the features.
        weights: a file of a state dictionary (safetensors or torch's), of which the network takes
            the layers of its own names, or, where names differ, its layers in their order; None for
            the weights that it is made with.
        batch_size: records at a time.
        seed: seed of the weights that a network is made with, where they are random.
        accelerator: torch's name of the device, such as ``cuda``; ``auto`` takes a GPU where there
            is one.
    """

    def __init__(
        self,
        network: Callable[[tuple[int, ...]], nn.Module],
        cache: Path | str,
        weights: Path | str | None = None,
        batch_size: int = 64,
        seed: int = 0,
        accelerator: str = "auto",
    ) -> None:
        require_count(1, batch_size=batch_size)
        require_count(0, seed=seed)
        self._make = network
        self.cache = Path(cache)
        self.weights = None if weights is None else Path(weights)
        self.batch_size = batch_size
        self.seed = seed
        self.accelerator = accelerator
        self._network: nn.Module | None = None

    def fit(self, public: Features) -> FrozenBackbone:
        """Make the network for the shape of public features ``[N, ...]``; values are not read."""
        # a data module without a backbone starts without torch
        import torch

        if self._network is None:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.seed)
                network = self._make(tuple(public.shape[1:]))
            if self.weights is not None:
                load_weights(network, self.weights)
            self._network = network.eval().requires_grad_(False)
        return self

    def transform(self, features: Features) -> FloatArray:
        """Return the network's output for features ``[N, ...]``, read-only and memory-mapped."""
        import torch

        assert self._network is not None, "fit comes before transform"
        gpu = self.accelerator == "auto" and torch.cuda.is_available()
        device = torch.device(
            "cuda" if gpu else "cpu" if self.accelerator == "auto" else self.accelerator
        )
        network = self._network.to(device)

        def compute(rows: IntArray) -> FloatArray:
            # a last batch of another size could be rounded in another way: a record would move its
            # neighbors
            batch = torch.zeros(self.batch_size, *features.shape[1:])
            batch[: len(rows)] = torch.from_numpy(np.array(features[rows]))
            with torch.no_grad():
                found: FloatArray = network(batch.to(device))[: len(rows)].float().cpu().numpy()
            return found

        target = self.cache / f"{self._name(features)}.npy"
        return kept_features(target, features.shape[0], self.batch_size, compute)

    def _name(self, features: Features) -> str:
        assert self._network is not None
        state = self._network.state_dict()
        weights = [
            part for name, value in state.items() for part in (name, value.cpu().numpy().tobytes())
        ]
        code = [
            inspect.getsource(kind) for kind in dict.fromkeys(map(type, self._network.modules()))
        ]
        own = [inspect.getsource(type(self)), str(self.batch_size), repr(self._network)]
        return digest(*own, *code, *weights, *_contents(features))


def _contents(features: Features) -> list[str | Stream]:
    """Return the parts that identify features: their shape, and their identity or their values."""
    identity, num = features.identity(), features.shape[0]
    if identity is not None:
        return [repr(features.shape), identity]
    return [
        repr(features.shape),
        *(
            values_of(features, range(start, min(start + _ROWS, num)))
            for start in range(0, num, _ROWS)
        ),
    ]


_TRIALS = 8


class PictureTransforms(FeatureMap):
    """Transforms of each picture by itself, the same for teachers and student, whenever it is read.

    Nothing is fitted, and nothing may be drawn: random transforms belong into ``augment`` of
    teachers and student.

    >>> from torchvision.transforms import v2
    >>> gray = PictureTransforms([v2.Grayscale()])

    Args:
        transforms: for example of ``torchvision.transforms.v2``, applied one after the other to
            float32 pictures ``[channels, height, width]`` in [0, 1].

    Raises:
        ValueError: without transforms.
    """

    def __init__(self, transforms: list[nn.Module]) -> None:
        require(transforms, "at least one transform", transforms=transforms)
        self.transforms = transforms
        self._tried = False

    def fit(self, public: Features) -> PictureTransforms:
        """Try the transforms on the first public picture.

        Raises ``ValueError`` if two trials differ.
        """
        if not self._tried:
            first, *others = [self._try(public, seed) for seed in range(_TRIALS)]
            require(
                all(np.array_equal(first, other) for other in others),
                "transforms that draw nothing; those that do are for `augment`",
                transforms=[type(transform).__name__ for transform in self.transforms],
            )
            self._tried = True
        return self

    def transform(self, features: Features) -> Features:
        """Return the features ``[N, ...]`` that are transformed when they are read."""
        return _Transformed(self, features)

    def _try(self, public: Features, seed: int) -> Float32Array:
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            return self.transform(public)[np.array([0])]


class _Transformed(MappedFeatures):
    _map: PictureTransforms

    def select(self, rows: IntArray) -> _Transformed:
        return _Transformed(self._map, self._raw.select(rows))

    def _mapped(self, rows: IntArray) -> Features:
        import torch

        if not rows.size:
            return ArrayFeatures(np.empty((0, *self.shape[1:]), dtype=np.float32))
        pictures = list(torch.from_numpy(self._raw[rows]))
        with torch.no_grad():
            for transform in self._map.transforms:
                pictures = [transform(picture) for picture in pictures]
        return ArrayFeatures(np.stack([picture.numpy() for picture in pictures]))
