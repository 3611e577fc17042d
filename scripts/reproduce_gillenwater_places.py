"""Make Figure 2 of Gillenwater et al. (2022) again: where in the sequence the largest error occurs.

PATE_DATA=data python scripts/reproduce_gillenwater_places.py [--full]
"""

from collections.abc import Sequence

from scripts.reproduction.gillenwater_figures import places
from scripts.reproduction.script import reproduce


def main(arguments: Sequence[str] | None = None) -> None:
    """Make it, and keep what is found."""
    reproduce("gillenwater_places", __doc__, places, arguments)


if __name__ == "__main__":
    main()
