"""Rendered faces that tests read."""

from typing import TypeAlias

import pytest

from pate._core.validation import UInt8Array
from pate.lab.faces.drawing import render_faces

Faces: TypeAlias = tuple[UInt8Array, UInt8Array]


@pytest.fixture(scope="session")
def rendered() -> Faces:
    """Pictures and attributes of 1000 faces."""
    return render_faces(1000, seed=3)
