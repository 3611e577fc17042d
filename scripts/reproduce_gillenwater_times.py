"""Make Figure 3 of Gillenwater et al. (2022) again: time of one draw, beside the pruned table of Wu & Zhang (2024).

PATE_DATA=data python scripts/reproduce_gillenwater_times.py [--full]
"""

from collections.abc import Sequence
from functools import partial

from scripts.reproduction.gillenwater_figures import times
from scripts.reproduction.script import reproduce
from tests.mechanisms.oracles import joint_slow


def main(arguments: Sequence[str] | None = None) -> None:
    """Make it, and keep what is found."""
    reproduce("gillenwater_times", __doc__, partial(times, plain=joint_slow), arguments)


if __name__ == "__main__":
    main()
