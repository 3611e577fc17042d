"""Make Figure 1(a) of Zhu & Wang (2022) again: the 15 states with most new cases of Covid-19.

PATE_DATA=data python scripts/reproduce_zhu_wang_covid.py [--full]
"""

from collections.abc import Sequence

from scripts.reproduction.script import reproduce
from scripts.reproduction.zhu_wang_figures import covid


def main(arguments: Sequence[str] | None = None) -> None:
    """Make it, and keep what is found."""
    reproduce("zhu_wang_covid", __doc__, covid, arguments)


if __name__ == "__main__":
    main()
