"""Let no process find the packages that networks and plots need.

Python imports it at its start if its folder is in ``PYTHONPATH``.
"""

import sys
from importlib.abc import MetaPathFinder

FRAMEWORKS = {"torch", "torchvision", "pytorch_lightning", "lightning_fabric"}
FRAMEWORKS |= {"matplotlib", "Crypto"}


class Missing(MetaPathFinder):
    """A finder that says of `FRAMEWORKS` that they are not installed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raise ``ModuleNotFoundError`` for a framework, and know nothing of other modules."""
        if name.partition(".")[0] in FRAMEWORKS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Missing())
sys.modules["autodp"] = None  # type: ignore[assignment]  # `find_spec` has none, and raises nothing
