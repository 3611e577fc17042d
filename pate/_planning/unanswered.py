"""How wide the gaps of votes have to be, before a release and after one that answered too little.

All of it follows from public numbers and the answers.
"""

from pate._release.labels import StatedLabels
from pate._settings import decode
from pate._votes import VoteShape
from pate.accounting._cost import format_epsilon, format_exact
from pate.aggregators._base import LEAST_ANSWERED, Aggregator

_LIKELY = 0.9
_REMEDY = (
    "Fewer queries, a larger epsilon, more teachers, teachers that start from a release"
    " (start_from) or another aggregator help"
)


def describe_gap(aggregator: Aggregator, shape: VoteShape) -> str | None:
    """Return a line on the gap that a query needs and the widest that the teachers can have.

    It says what would help if they cannot have that gap. None if no gap is predicted.
    """
    gap = aggregator.gap_needed(shape, probability=_LIKELY)
    if gap is None:
        return None
    line = (
        f"{gap.meaning} with probability {_LIKELY:g}; {shape.num_teachers} teachers can have at"
        f" most {gap.available:g}."
    )
    return line if gap.votes <= gap.available else f"{line} {_REMEDY}."


def describe_unanswered(released: StatedLabels) -> str | None:
    """Return a line on labels of which none or few were answered, or None if enough were."""
    answered, count = int(released.answered.sum()), len(released.ids)
    if answered >= LEAST_ANSWERED * count:
        return None
    cost = released.statement["this_release"][released.statement["neighboring_relation"]]
    price = f"epsilon = {format_epsilon(cost['epsilon'])} at delta = {format_exact(cost['delta'])}"
    number = f"Only {answered}" if answered else "None"
    line = (
        f"{number} of {count} queries {'were' if answered > 1 else 'was'} answered, and"
        f" {price} is spent."
    )
    gap = describe_gap(decode(Aggregator, released.aggregator), released.shape)
    needed = "" if gap is None else f" {gap.removesuffix(f' {_REMEDY}.')}"
    return f"{line}{needed} {_REMEDY}; to ask again costs again."
