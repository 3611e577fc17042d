"""DP-SGD on CelebA's 40 attributes (Automatic Clipping, NeurIPS 2023): what its epsilons assume; a row for pictures.

On CelebA's attribute table, which PATE_DATA names the folder of (multilabel/celeba_attributes.npz); needs Opacus.

    export PATE_DATA=...
    python scripts/reproduce_celeba_dpsgd.py
"""

from collections.abc import Sequence

from scripts.reproduction.celeba_dpsgd import celeba_dpsgd
from scripts.reproduction.script import reproduce


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the finding and keep its files."""
    reproduce("celeba_dpsgd", __doc__, celeba_dpsgd, arguments)


if __name__ == "__main__":
    main()
