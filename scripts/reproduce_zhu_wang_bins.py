"""Make Figure 1(b) of Zhu & Wang (2022) again: 15,000 bins and k from 10 to 1,500.

python scripts/reproduce_zhu_wang_bins.py [--full]
"""

from collections.abc import Sequence

from scripts.reproduction.script import reproduce
from scripts.reproduction.zhu_wang_figures import bins


def main(arguments: Sequence[str] | None = None) -> None:
    """Make it, and keep what is found."""
    reproduce("zhu_wang_bins", __doc__, bins, arguments)


if __name__ == "__main__":
    main()
