"""Make the figures of gaps and histograms of Gillenwater et al. (2022) again, on the counts at hand.

PATE_DATA=data python scripts/reproduce_gillenwater_vectors.py [--full]
"""

from collections.abc import Sequence

from scripts.reproduction.gillenwater_figures import vectors
from scripts.reproduction.script import reproduce


def main(arguments: Sequence[str] | None = None) -> None:
    """Make it, and keep what is found."""
    reproduce("gillenwater_vectors", __doc__, vectors, arguments)


if __name__ == "__main__":
    main()
