"""Zhu & Wang (2022), Table 2, the privacy column on CelebA (epsilon 3.6), by every accounting.

And the exact Renyi divergence of report-noisy-max with Gaussian noise, against the curve that the figure implies. It
needs no data.

    python scripts/reproduce_zhu_wang_table2_privacy.py          # --full: 15 s on one core
"""

from collections.abc import Sequence

from scripts.reproduction.script import reproduce
from scripts.reproduction.zhu_wang_privacy import table_2_privacy


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the finding and keep its files."""
    reproduce("zhu_wang_table2_privacy", __doc__, table_2_privacy, arguments)


if __name__ == "__main__":
    main()
