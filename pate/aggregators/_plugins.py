"""Aggregators by name: our own, and the entry points of installed packages."""

from importlib.metadata import entry_points

from pate._validation import require
from pate.aggregators._base import Aggregator
from pate.aggregators._clipped_votes import ClippedVotes
from pate.aggregators._multi_winner import Powerset, TauVoting
from pate.aggregators._noisy_votes import ConfidentScreen, InteractiveScreen, NoisyVotes
from pate.aggregators._rounds import Rounds
from pate.aggregators._score_votes import ScoreVotes
from pate.aggregators._stable_topk import FixedStableTopK, StableMajority, StableTopK
from pate.aggregators._top_k import (
    Canonical,
    Joint,
    LimitedDomainTopK,
    PeeledVotes,
    Peeling,
    PermuteAndFlip,
    TopStableTopK,
)

GROUP = "pate.aggregators"

OWN: tuple[type[Aggregator], ...] = (
    Rounds,
    ClippedVotes,
    ScoreVotes,
    NoisyVotes,
    TauVoting,
    StableTopK,
    StableMajority,
    FixedStableTopK,
    Peeling,
    PeeledVotes,
    PermuteAndFlip,
    LimitedDomainTopK,
    TopStableTopK,
    Joint,
    ConfidentScreen,
    InteractiveScreen,
    Canonical,
    Powerset,
)
"""The aggregators of the package, in the order in which they are compared."""


def load_plugins() -> dict[str, type[Aggregator]]:
    """Return the aggregators of installed packages, from the group ``pate.aggregators``, by name.

    Raises:
        ValueError: where an entry point is not an aggregator under the name of its class, or has
            the name of another.
    """
    aggregators = {cls.__name__: cls for cls in OWN}
    for entry in entry_points(group=GROUP):
        place = f"at the entry point {entry.name} of {GROUP}"
        try:
            cls = entry.load()
        except (ImportError, AttributeError) as error:
            raise ValueError(
                f"Expected an Aggregator {place}, got {entry.value}: {error}"
            ) from None
        require(
            isinstance(cls, type) and issubclass(cls, Aggregator),
            f"an Aggregator {place}",
            object=cls,
        )
        # classes go by their own names in settings
        require(
            entry.name == cls.__name__,
            f"the name of the class, {cls.__name__}, {place}",
            name=entry.name,
        )
        namesake = aggregators.setdefault(entry.name, cls)
        require(
            namesake is cls,
            f"one aggregator {entry.name}, the one of {namesake.__module__}",
            another=entry.value,
        )
    return {name: cls for name, cls in aggregators.items() if cls not in OWN}


def registered() -> dict[str, type[Aggregator]]:
    """Return all aggregators by name: our own first, then the ones of installed packages.

    >>> registered()["StableTopK"] is StableTopK
    True
    """
    return {cls.__name__: cls for cls in OWN} | load_plugins()
