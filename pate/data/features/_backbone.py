"""Features of a frozen network, kept on disk."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pate._files.hashing import Stream, digest
from pate._files.writing import write_text
from pate._progress import stage_bar
from pate._validation import Float32Array as FloatArray, require, require_count
from pate.data._records import FeatureMap, Features, values_of

if TYPE_CHECKING:
    from torch import nn

# batches of a backbone between two marks of how far it is
_MARK = 20
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
        weights: a file of a state dictionary of the network; None for the weights that it is made
            with.
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
                require(self.weights.is_file(), "a file of weights", weights=str(self.weights))
                network.load_state_dict(
                    torch.load(self.weights, weights_only=True, map_location="cpu")
                )
            self._network = network.eval().requires_grad_(False)
        return self

    def transform(self, features: Features) -> FloatArray:
        """Return the network's output for features ``[N, ...]``, read-only and memory-mapped."""
        assert self._network is not None, "fit comes before transform"
        target = self.cache / f"{self._name(features)}.npy"
        if not target.is_file():
            self._compute(features, target)
        mapped: FloatArray = np.load(target, mmap_mode="r")
        return mapped

    def _compute(self, features: Features, target: Path) -> None:
        import torch

        assert self._network is not None
        gpu = self.accelerator == "auto" and torch.cuda.is_available()
        device = torch.device(
            "cuda" if gpu else "cpu" if self.accelerator == "auto" else self.accelerator
        )
        network = self._network.to(device)
        self.cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial, mark = target.with_suffix(".partial"), target.with_suffix(".rows")
        num = features.shape[0]
        with torch.no_grad():
            empty = torch.zeros(self.batch_size, *features.shape[1:], device=device)
            shape = tuple(network(empty).shape[1:])
            done = int(mark.read_text()) if mark.is_file() and partial.is_file() else 0
            mode = "r+" if done else "w+"
            mapped = np.lib.format.open_memmap(
                partial, mode=mode, dtype=np.float32, shape=(num, *shape)
            )
            # a bar without figures: how many private records there are is nothing to print
            with stage_bar(num, "features", unit="record", initial=done, counted=False) as bar:
                for count, start in enumerate(range(done, num, self.batch_size), 1):
                    rows = np.arange(start, min(start + self.batch_size, num))
                    # a last batch of another size could be rounded in another way: a record would
                    # move its neighbors
                    batch = empty.clone()
                    batch[: len(rows)] = torch.from_numpy(np.array(features[rows]))
                    mapped[rows] = network(batch)[: len(rows)].float().cpu().numpy()
                    if count % _MARK == 0:
                        mapped.flush()
                        write_text(mark, str(int(rows[-1]) + 1))
                    bar.update(len(rows))
            mapped.flush()
        partial.rename(target)
        mark.unlink(missing_ok=True)

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
