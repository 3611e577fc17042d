"""Make the figures of the other vectors of Shekelyan & Loukides (2022) again, k = 1,000 with --full.

PATE_DATA=data python scripts/reproduce_shekelyan_vectors.py [--full]
"""

from collections.abc import Sequence

from scripts.reproduction.script import reproduce
from scripts.reproduction.shekelyan_figures import vectors


def main(arguments: Sequence[str] | None = None) -> None:
    """Make it, and keep what is found."""
    reproduce("shekelyan_vectors", __doc__, vectors, arguments)


if __name__ == "__main__":
    main()
