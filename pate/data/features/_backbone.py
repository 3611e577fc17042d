"""Features of a frozen network, kept on disk."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pate._files import Stream, digest
from pate._validation import Float32Array as FloatArray, IntArray, require_count
from pate.data._records import FeatureMap, Features, values_of
from pate.data.features._kept import kept_features
from pate.data.features._weights import load_weights

if TYPE_CHECKING:
    from torch import nn

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
    parts = (range(start, min(start + _ROWS, num)) for start in range(0, num, _ROWS))
    return [repr(features.shape), *(values_of(features, rows) for rows in parts)]
