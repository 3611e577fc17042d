"""Weights of public networks, from files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pate._validation import expecting, require

if TYPE_CHECKING:
    from torch import nn


def load_weights(network: nn.Module, file: Path) -> None:
    """Load the weights of a file whose names are the network's, or else in the order of its layers.

    Raises ``ValueError`` in one line if there is no such file, or layers have other shapes.
    """
    # a data module without a backbone starts without torch
    import torch
    from safetensors.torch import load_file

    require(file.is_file(), "a file of weights", weights=str(file))
    own = network.state_dict()
    # torch and safetensors raise errors of many classes
    with expecting(f"weights of {type(network).__name__} in {file}", Exception):
        state = (
            load_file(file)
            if file.suffix == ".safetensors"
            else torch.load(file, weights_only=True, map_location="cpu")
        )
        if not own.keys() <= state.keys():  # a file of the network in a `Backbone`
            network = getattr(network, "body", network)
            own = network.state_dict()
        if not own.keys() <= state.keys() and file.suffix != ".safetensors":  # which are sorted
            state = dict(zip(own, state.values(), strict=False))
        # those of a last layer, which the network lacks, are left out
        network.load_state_dict({name: state[name] for name in own})
