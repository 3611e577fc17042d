"""Make Table 1 of Zhu & Wang (2022) again, on the counts at hand or on your own.

PATE_DATA=data python scripts/reproduce_zhu_wang_table.py [--full]
python scripts/reproduce_zhu_wang_table.py --counts brightkite.npy --counts foursquare.npy --output mine

--counts FILE names an integer .npy file of users per place, and may be given more than once; BrightKite and Foursquare
may not be redistributed, and docs/reproduction.md says where they are and how to count.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from scripts.reproduction.script import reproduce
from scripts.reproduction.zhu_wang_figures import table


def main(arguments: Sequence[str] | None = None) -> None:
    """Make it, and keep what is found."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--counts", type=Path, action="append", default=[])
    given, others = parser.parse_known_args(arguments)
    reproduce("zhu_wang_table", __doc__, partial(table, counts=tuple(given.counts)), others)


if __name__ == "__main__":
    main()
