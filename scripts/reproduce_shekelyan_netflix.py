"""Make the figure of NETFLIX of Shekelyan & Loukides (2022) again: probabilities of the top-k, and ratios of budgets.

PATE_DATA=data python scripts/reproduce_shekelyan_netflix.py [--full]
"""

from collections.abc import Sequence

from scripts.reproduction.script import reproduce
from scripts.reproduction.shekelyan_figures import netflix


def main(arguments: Sequence[str] | None = None) -> None:
    """Make it, and keep what is found."""
    reproduce("shekelyan_netflix", __doc__, netflix, arguments)


if __name__ == "__main__":
    main()
