"""Zhu & Wang (2022), Table 2, the utility column: students of StableTopK, PATE and PATE-tau at epsilon 3.6.

On CelebA's attribute table (PATE_DATA names the folder that holds multilabel/celeba_attributes.npz) and on faces that
are rendered for it, with 800 teachers as published and with the number that `pate plan` says.

    export PATE_DATA=...
    python scripts/reproduce_zhu_wang_table2_utility.py

On CelebA's pictures: `pate run configs/celeba`, and `pate run configs/celeba_features --label.target_epsilon 3.6`.
"""

from collections.abc import Sequence

from scripts.reproduction.script import reproduce
from scripts.reproduction.zhu_wang_utility import table_2_utility


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the finding and keep its files."""
    reproduce("zhu_wang_table2_utility", __doc__, table_2_utility, arguments)


if __name__ == "__main__":
    main()
