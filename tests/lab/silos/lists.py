"""The contract of sums over silos against a server that shows them different lists."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import chain, combinations, product
from typing import NamedTuple

from pate._core.testing.laws import Contract


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


class SiloListsContract(Contract):
    """Tests of the terms of a sum over silos, for a subclass whose name begins with ``Test``.

    For each small number of silos, all lists are tried that a malicious server can show to honest
    silos. Terms that are accepted must let it open no sum of fewer honest silos than the noise is
    stated for, and no two sums.
    """

    single_sums = False
    """Whether two sums are accepted, each under all of the stated noise."""
    most_silos = 5
    """The largest number of silos with a trial of all cases."""

    @abstractmethod
    def accepts(self, silos: int, colluding: int, dropouts: int) -> bool:
        """Whether a sum over so many silos may begin."""

    def stated(self, silos: int, colluding: int, dropouts: int) -> int:
        """Return the number of honest silos whose noise the statement counts."""
        return silos - colluding - dropouts

    def cases(self) -> Iterator[tuple[int, int, int]]:
        """Yield all numbers of silos, colluding ones and dropouts with one honest silo or more.

        More than half of the silos have to stay.
        """
        for silos in range(2, self.most_silos + 1):
            for colluding, dropouts in product(range(1, silos), range((silos - 1) // 2 + 1)):
                if silos - colluding - dropouts >= 1:
                    yield silos, colluding, dropouts

    def test_no_lists_open_another_sum_than_the_one_that_is_stated(self) -> None:
        """Neither one of fewer honest silos, nor a second one."""
        for case in self.cases():
            if self.accepts(*case):
                opened = opened_sums(*case)
                assert opened.fewest_silos >= self.stated(*case), (case, opened)
                assert self.single_sums or opened.most_sums <= 1, (case, opened)

    def test_some_terms_are_accepted(self) -> None:
        """A protocol that refuses everything passes no other test in earnest."""
        assert any(self.accepts(*case) for case in self.cases())
