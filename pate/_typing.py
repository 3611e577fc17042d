"""Aliases of array types, named by their entries."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

BoolArray: TypeAlias = NDArray[np.bool_]
UInt8Array: TypeAlias = NDArray[np.uint8]
IntArray: TypeAlias = NDArray[np.int64]
Float32Array: TypeAlias = NDArray[np.float32]
FloatArray: TypeAlias = NDArray[np.float64]
StrArray: TypeAlias = NDArray[np.str_]
