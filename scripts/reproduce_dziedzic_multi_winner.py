"""Dziedzic et al. (2023), Private Multi-Winner Voting: what Binary, tau and powerset voting cost.

At the settings of the published code, under a stated relation, with and without the data-dependent bound, and
sanitised; on votes on CelebA's attribute table, which PATE_DATA names the folder of (multilabel/celeba_attributes.npz).

    export PATE_DATA=...
    python scripts/reproduce_dziedzic_multi_winner.py          # --full: 10 s on one core
"""

from collections.abc import Sequence

from scripts.reproduction.multi_winner_claims import multi_winner_voting
from scripts.reproduction.script import reproduce


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the finding and keep its files."""
    reproduce("dziedzic_multi_winner", __doc__, multi_winner_voting, arguments)


if __name__ == "__main__":
    main()
