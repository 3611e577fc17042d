"""The sums over silos that a server opens by different lists of survivors."""

from collections.abc import Sequence
from itertools import chain, combinations, product
from typing import NamedTuple


class Opened(NamedTuple):
    """The sums that a server opens by its best choice of lists.

    Attributes:
        fewest_silos: the honest silos in the smallest sum; of no sum, the number of honest silos.
        most_sums: the most sums that one choice opens.
    """

    fewest_silos: int
    most_sums: int


def opened_sums(silos: int, colluding: int, dropouts: int) -> Opened:
    """Return the sums that a malicious server can open, over all lists of survivors.

    A list names those in the sum. Each of ``silos`` answers one list that names it and at least
    ``silos - dropouts`` in all: for each silo it reveals one share, of its own mask if the list
    names it, else of its masks with others. ``silos - dropouts`` shares rebuild a secret. The last
    ``colluding`` silos give the server both shares of each.

    The number of cases grows as a power of ``silos - colluding``: six silos take a second or two.

    >>> opened_sums(silos=4, colluding=1, dropouts=1)
    Opened(fewest_silos=2, most_sums=1)

    Returns:
        the most sums that one choice of lists opens, and the fewest honest silos in one.
    """
    threshold, honest = silos - dropouts, range(silos - colluding)

    def lists(name: int) -> list[frozenset[int]]:
        others = [other for other in range(silos) if other != name]
        missing = chain.from_iterable(combinations(others, size) for size in range(dropouts + 1))
        return [frozenset(range(silos)) - frozenset(gone) for gone in missing]

    sizes = [_sizes(shown, honest, threshold - colluding) for shown in product(*map(lists, honest))]
    return Opened(min(min(each, default=len(honest)) for each in sizes), max(map(len, sizes)))


def _sizes(shown: Sequence[frozenset[int]], honest: range, needed: int) -> list[int]:
    """Return the number of honest silos in each sum that can be opened after these lists."""
    listed = [sum(name in each for each in shown) for name in honest]
    own_mask = {name for name in honest if listed[name] >= needed}
    pairs = {name for name in honest if len(shown) - listed[name] >= needed}
    # for silos with unknown masks of pairs, only the sum is free of them
    hidden = [name for name in honest if name not in pairs]
    together = [len(hidden)] if hidden and own_mask.issuperset(hidden) else []
    return [1 for _ in pairs & own_mask] + together
