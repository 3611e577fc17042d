"""What the package brings along, and what it offers."""

import subprocess
import sys

from pate import mechanisms


def test_importing_it_brings_no_heavy_package() -> None:
    code = "import sys, pate.mechanisms; print(*{name.partition('.')[0] for name in sys.modules})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(found.stdout.split())
    assert "numpy" in loaded
    assert not loaded & {"torch", "torchvision", "lightning", "pytorch_lightning", "autodp", "matplotlib"}


def test_every_name_is_offered_and_documented() -> None:
    assert mechanisms.__all__ == sorted(mechanisms.__all__)
    for name in mechanisms.__all__:
        assert getattr(mechanisms, name).__doc__
