"""What the package brings along, and what it offers."""

import inspect
import subprocess
import sys
from pathlib import Path

from pate import mechanisms


def test_importing_it_brings_no_heavy_package() -> None:
    code = "import sys, pate.mechanisms; print(*{name.partition('.')[0] for name in sys.modules})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(found.stdout.split())
    assert "numpy" in loaded
    assert not loaded & {"torch", "torchvision", "lightning", "pytorch_lightning", "autodp", "matplotlib", "pytest"}


def test_every_name_is_offered_and_documented() -> None:
    assert mechanisms.__all__ == sorted(mechanisms.__all__)
    for name in mechanisms.__all__:
        assert getattr(mechanisms, name).__doc__


def test_every_mechanism_has_a_contract() -> None:
    """A mechanism without a contract would be a mechanism without a proof."""
    offered = {name for name in mechanisms.__all__ if is_mechanism(getattr(mechanisms, name))}
    assert len(offered) > 10
    texts = [file.read_text() for file in Path(__file__).parent.glob("test_*.py")]
    for name in offered:
        assert any(f"return m.{name}(" in text and "MechanismContract" in text for text in texts), name


def is_mechanism(offered: object) -> bool:
    return isinstance(offered, type) and issubclass(offered, mechanisms.Mechanism) and not inspect.isabstract(offered)
