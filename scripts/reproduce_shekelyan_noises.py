"""Make Figure 4 of Shekelyan & Loukides (2022) again: five noises, added once.

PATE_DATA=data python scripts/reproduce_shekelyan_noises.py [--full]
"""

from collections.abc import Sequence

from scripts.reproduction.script import reproduce
from scripts.reproduction.shekelyan_figures import noises


def main(arguments: Sequence[str] | None = None) -> None:
    """Make it, and keep what is found."""
    reproduce("shekelyan_noises", __doc__, noises, arguments)


if __name__ == "__main__":
    main()
