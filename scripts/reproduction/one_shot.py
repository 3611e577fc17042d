"""One-shot top-k: the noise that the same guarantee takes, and the bounded range of permute-and-flip."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.integrate import quad

from pate._core.mechanisms.base import choice_event
from pate._core.validation import (
    FloatArray,
    IntArray,
    require,
    require_count,
    require_positive,
    stage_bar,
)
from pate.accounting import (
    ComposedEvent,
    Event,
    GaussianEvent,
    NeighboringRelation,
    Target,
    calibrate_scale,
)
from pate.mechanisms import GumbelPeeling, Mechanism, OneShotLaplace, PermuteAndFlipPeeling
from scripts.reproduction.findings import Claim, Effort, Finding, Reason, Row

GUMBEL_SD = math.pi / math.sqrt(6)
LAPLACE_SD = math.sqrt(2)

# one count of the two: the Laplace noise of a count has twice the scale of the Gumbel noise that
# finds it
_COUNTS_PER_GUMBEL = 2.0


class Deviations(NamedTuple):
    """Standard deviations of the noise that finds k items, and of the noise on the counts of those found."""

    finding: float
    counts: float


def laplace_by_theorem(k: int, num_items: int, epsilon: float, delta: float) -> float:
    """Return the standard deviation that Qiao, Su & Zhang (2021) claim for one-shot Laplace, items and counts alike."""
    return LAPLACE_SD * 8 * math.sqrt(k * math.log(num_items / delta)) / epsilon


def laplace_by_pure_bound(k: int, epsilon: float, relation: NeighboringRelation) -> float:
    """Return the standard deviation of one-shot Laplace noise with the event pure ``epsilon``."""
    return LAPLACE_SD * finding_alone(OneShotLaplace, k, epsilon, 1e-300, relation)


def gumbel_by_the_post(k: int, epsilon: float, delta: float) -> Deviations:
    """Return the deviations of the post: zCDP of ``e'^2 / 8`` for finding and for counting, and its conversion.

    Counts are taken to move in one direction, as under ADD_REMOVE_TEACHER.
    """
    require_count(1, k=k)
    log = math.log(1 / delta)
    inner = 2 * math.sqrt(log) * (math.sqrt(1 + epsilon / log) - 1)
    scale = math.sqrt(k) / inner
    return Deviations(GUMBEL_SD * scale, LAPLACE_SD * _COUNTS_PER_GUMBEL * scale)


def gumbel_by_tight_curves(
    k: int, epsilon: float, delta: float, relation: NeighboringRelation, *, gaussian: bool
) -> Deviations:
    """Return the deviations that the accountant finds for Gumbel peeling and noisy counts of the k found, together.

    Counts get Gaussian noise, or Laplace noise of twice the scale, as in the post, where counts
    move one way; where they move both ways, Gumbel noise takes twice as much, and the noise of a
    count, which moves by one, the same.
    """
    ratio = _COUNTS_PER_GUMBEL / relation.score_range

    def event(scale: float) -> Event:
        peeling = GumbelPeeling(k=k, scale=scale).event(relation)
        counting: Event
        if gaussian:
            counting = GaussianEvent(
                noise_multiplier=ratio * scale / math.sqrt(k), neighboring_relation=relation
            )
        else:
            counting = choice_event(relation, eta=1 / (ratio * scale), noise="laplace", count=k)
        return ComposedEvent(events=(peeling, counting))

    scale = _scale(event, epsilon, delta, relation)
    return Deviations(GUMBEL_SD * scale, ratio * scale * (1.0 if gaussian else LAPLACE_SD))


def _scale(
    event_of: Callable[[float], Event], epsilon: float, delta: float, relation: NeighboringRelation
) -> float:
    target = Target(epsilon=epsilon, delta=delta, num_queries=1, neighboring_relation=relation)
    return calibrate_scale(event_of, target, tolerance=1e-5)


def permute_and_flip_law(scores: Sequence[float], scale: float) -> FloatArray:
    """Return the exact law ``[d]`` of one round of permute-and-flip.

    Items come in random order, and the first one with heads on its coin of chance
    ``p_i = exp((x_i - max) / scale)`` is taken: ``p_i`` times the integral from 0 to 1 of the
    product over the others of ``1 - p_j s``.
    """
    require(len(scores) > 0, "at least one score", scores=list(scores))
    require_positive(scale=scale)
    coins = np.exp((np.asarray(scores, dtype=np.float64) - max(scores)) / scale)
    law = np.empty(len(coins))
    for i, coin in enumerate(coins):
        product = np.ones(1)
        for other in np.delete(coins, i):
            product = np.convolve(product, [1.0, -other])
        law[i] = coin * (product / np.arange(1, len(product) + 1)).sum()
    return law


def bounded_range(law: FloatArray, other: FloatArray) -> float:
    """Return by how much the log-ratios of two laws differ: the least bounded range that covers them."""
    losses = np.log(other) - np.log(law)
    return float(losses.max() - losses.min())


def bound_of_the_post(epsilon: float) -> float:
    """Return the post's lower bound on the bounded range of permute-and-flip: ``e + log(2 - exp(-e))``."""
    return epsilon + math.log(2 - math.exp(-epsilon))


class Worst(NamedTuple):
    """The neighbors on which permute-and-flip has the largest bounded range found."""

    bounded_range: float
    scores: tuple[int, ...]
    moved: tuple[int, ...]


def worst_bounded_range(
    num_items: int, most: int, epsilon: float, relation: NeighboringRelation
) -> Worst:
    """Return the largest bounded range of one round of pure ``epsilon``, over neighbors with counts up to ``most``."""
    scale = relation.score_range / epsilon
    laws = {
        scores: permute_and_flip_law(scores, scale)
        for scores in itertools.product(range(most + 1), repeat=num_items)
    }
    pairs = (
        (scores, moved) for scores in laws for moved in _moved(scores, relation) if moved in laws
    )
    return max(
        (Worst(bounded_range(laws[scores], laws[moved]), scores, moved) for scores, moved in pairs),
        key=lambda worst: worst.bounded_range,
    )


def _moved(scores: tuple[int, ...], relation: NeighboringRelation) -> Iterator[tuple[int, ...]]:
    steps = (-1, 0, 1) if relation is NeighboringRelation.REPLACE_RECORD else (0, 1)
    for move in itertools.product(steps, repeat=len(scores)):
        yield tuple(score + step for score, step in zip(scores, move, strict=True))


def peeling_law(scores: Sequence[float], k: int, scale: float) -> dict[tuple[int, ...], float]:
    """Return the law of k rounds of the exponential mechanism without replacement, by its plain definition."""
    weights = np.exp((np.asarray(scores, dtype=np.float64) - max(scores)) / scale)
    law = {}
    for chosen in itertools.permutations(range(len(scores)), k):
        left, chance = set(range(len(scores))), 1.0
        for item in chosen:
            chance *= weights[item] / sum(weights[j] for j in left)
            left.remove(item)
        law[chosen] = chance
    return law


def one_shot_pairs(scores: Sequence[float], scale: float) -> dict[tuple[int, int], float]:
    """Return the law of the two largest of scores with Gumbel noise added once, in their order, by integrals.

    A first and b second: the integral over the noisy score y of b of its density, times the
    probability that the score of a is above y and all others are below.
    """

    def chance(first: int, second: int) -> float:
        def density(y: float) -> float:
            # of noise of Gumbel below y: exp(-rate), at a rate for each score
            rates = [math.exp((score - y) / scale) for score in scores]
            below = math.exp(-sum(rates) + rates[first])  # all but the first; the second at y
            return -math.expm1(-rates[first]) * below * rates[second] / scale

        return float(
            quad(
                density, min(scores) - 5 * scale, max(scores) + 40 * scale, epsabs=1e-13, limit=200
            )[0]
        )

    return {pair: chance(*pair) for pair in itertools.permutations(range(len(scores)), 2)}


def finding_alone(
    mechanism: Callable[..., Mechanism[IntArray]],
    k: int,
    epsilon: float,
    delta: float,
    relation: NeighboringRelation,
) -> float:
    """Return the scale at which a top-k mechanism, made by ``mechanism(k=, scale=)``, meets a target."""
    return _scale(
        lambda scale: mechanism(k=k, scale=scale).event(relation), epsilon, delta, relation
    )


ADD, REPLACE = NeighboringRelation.ADD_REMOVE_TEACHER, NeighboringRelation.REPLACE_RECORD
EPSILON, DELTA, NUM_ITEMS = 0.2, 1e-6, 17_770
PAPER = "Qiao, Su & Zhang (2021), Oneshot Differentially Private Top-k Selection; Durfee & Rogers (2019, 2021)"
POST = "One-shot DP Top-k mechanisms (differentialprivacy.org, 2021)"

_SCORES, _SCALE = (3, 2, 2, 0), 1.5  # of the identity of one-shot Gumbel noise and peeling
_SAME = 1e-9

METHOD = f"""
The post *{POST}* compares the noise that Qiao, Su & Zhang's Theorem 2.2 asks for with Gumbel noise at the same
(epsilon, delta). Here d = {NUM_ITEMS:,} items, epsilon {EPSILON} and delta {DELTA:g}, at the edge of the
theorem's conditions (the post: epsilon < 0.2 and delta < 0.05). "The post" is its own arithmetic: zCDP of `e'^2 / 8`
for finding the k items and as much for their counts, and the conversion of Bun & Steinke (2016). "Tight" is
`GumbelPeeling(k).event` with k noisy counts, by the accountant of this package; the noise of a count (Laplace of twice
the scale of the Gumbel noise, or Gaussian of that deviation) shares the budget. Under REPLACE_RECORD counts move either
way, and Gumbel noise doubles.

By hand: at k = 1 the theorem asks for Laplace noise of `8 sqrt(log({NUM_ITEMS} / {DELTA:g})) / {EPSILON}` =
{laplace_by_theorem(1, NUM_ITEMS, EPSILON, DELTA) / math.sqrt(2):.1f} votes, a standard deviation
`sqrt(2)` times that; the pure bound for `k = 1` under REPLACE_RECORD asks for `2 / {EPSILON}` = {2 / EPSILON:.0f}.
Permute-and-flip on two items: of scores (0, 0) each wins with probability 1/2; of (0, 1) the first wins with
`exp(-e) / 2`. The ratios are `exp(-e)` and `2 - exp(-e)`; their logarithms differ by `e + log(2 - exp(-e))`.
"""


class Grid(NamedTuple):
    """The computed cases: sizes k; epsilons of permute-and-flip, its cases (items, largest count)."""

    sizes: tuple[int, ...]
    epsilons: tuple[float, ...]
    cases: tuple[tuple[int, int], ...]


QUICK = Grid(
    (1, 2, 3, 6, 10, 18, 32, 56, 100, 178, 316, 562, 1000),
    (0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0),
    ((2, 4), (3, 3), (4, 1)),
)
FULL = QUICK._replace(
    epsilons=tuple(np.geomspace(0.0625, 8, 15).round(4).tolist()),
    cases=((2, 5), (3, 4), (4, 2), (5, 2)),
)


class Numbers(NamedTuple):
    """The numbers of the claims and the figure."""

    rows: list[Row]
    worst: dict[tuple[NeighboringRelation, float], Worst]
    pairs: dict[tuple[int, int], tuple[float, float]]


def measured(effort: Effort) -> Numbers:
    """Return all numbers: noise against k, and the bounded range of permute-and-flip against epsilon."""
    grid = FULL if effort.full else QUICK
    rows: list[Row] = []
    worst: dict[tuple[NeighboringRelation, float], Worst] = {}
    with stage_bar(len(grid.sizes) + len(grid.epsilons), "one-shot", unit="setting") as bar:
        for k in grid.sizes:
            rows += noise_rows(k)
            bar.update()
        for epsilon in grid.epsilons:
            for relation in NeighboringRelation:
                cases = [
                    worst_bounded_range(items, most, epsilon, relation)
                    for items, most in grid.cases
                ]
                worst[relation, epsilon] = max(cases, key=lambda case: case.bounded_range)
                for (items, most), case in zip(grid.cases, cases, strict=True):
                    what = f"bounded range, {items} items of 0..{most}"
                    rows.append(
                        _row(what, "permute-and-flip", relation, epsilon, case.bounded_range)
                    )
            bar.update()
    rounds = peeling_law(_SCORES, 2, _SCALE)
    pairs = {
        pair: (chance, rounds[pair]) for pair, chance in one_shot_pairs(_SCORES, _SCALE).items()
    }
    for pair, both in pairs.items():
        for name, chance in zip(("one-shot Gumbel", "two rounds"), both, strict=True):
            what = f"items {pair[0] + 1}, {pair[1] + 1} of scores {', '.join(map(str, _SCORES))}"
            rows.append(_row(what, name, ADD, 1 / _SCALE, chance))
    return Numbers(rows, worst, pairs)


def noise_rows(k: int) -> list[Row]:
    """Return the standard deviations of all noises for one k, in votes."""
    settings = (EPSILON, DELTA)
    theorem = laplace_by_theorem(k, NUM_ITEMS, *settings)
    post = gumbel_by_the_post(k, *settings)
    deviations = [
        ("finding and counts", "one-shot Laplace, Theorem 2.2", REPLACE, theorem),
        ("finding", "Gumbel, the post", ADD, post.finding),
        ("counts", "Laplace, the post", ADD, post.counts),
    ]
    for relation in NeighboringRelation:
        pure = laplace_by_pure_bound(k, EPSILON, relation)
        gumbel = GUMBEL_SD * finding_alone(GumbelPeeling, k, *settings, relation)
        flip = finding_alone(PermuteAndFlipPeeling, k, *settings, relation)
        alone = {"one-shot Laplace, pure": pure, "Gumbel, tight": gumbel}
        alone |= {"permute-and-flip, k pure rounds": flip}
        deviations += [("finding alone", name, relation, value) for name, value in alone.items()]
        for gaussian, name in ((False, "Laplace"), (True, "Gaussian")):
            both = gumbel_by_tight_curves(k, *settings, relation, gaussian=gaussian)
            finding = f"Gumbel with {name} counts, tight"
            deviations.append(("finding", finding, relation, both.finding))
            deviations.append(("counts", f"{name}, tight", relation, both.counts))
    return [_row(what, name, relation, k, value) for what, name, relation, value in deviations]


def _row(what: str, mechanism: str, relation: NeighboringRelation, at: float, value: float) -> Row:
    names = ("what", "mechanism", "relation", "at", "value")
    return dict(zip(names, (what, mechanism, relation.name, at, value), strict=True))


def values(
    rows: Sequence[Row], what: str, mechanism: str, relation: NeighboringRelation
) -> dict[float, float]:
    """Return the values of one line of the table by k or epsilon."""
    wanted = (what, mechanism, relation.name)
    return {
        float(row["at"]): float(row["value"])
        for row in rows
        if (row["what"], row["mechanism"], row["relation"]) == wanted
    }


def claims(numbers: Numbers) -> tuple[Claim, ...]:
    """Return the claims of the papers with the numbers."""
    rows = numbers.rows
    theorem = values(rows, "finding and counts", "one-shot Laplace, Theorem 2.2", REPLACE)

    def largest(what: str, mechanism: str, relation: NeighboringRelation) -> float:
        return max(
            value / theorem[k] for k, value in values(rows, what, mechanism, relation).items()
        )

    gumbel, counts = (
        largest("finding", "Gumbel, the post", ADD),
        largest("counts", "Laplace, the post", ADD),
    )
    tight = largest("finding", "Gumbel with Laplace counts, tight", ADD)
    doubled = largest("finding", "Gumbel with Laplace counts, tight", REPLACE)
    single = values(rows, "finding alone", "one-shot Laplace, pure", REPLACE)[1]
    later = [
        k for k in range(1, 1001) if laplace_by_theorem(k, NUM_ITEMS, EPSILON, DELTA) < k * single
    ]
    cross = 16 * math.log(NUM_ITEMS / DELTA)
    replace_range = numbers.worst[REPLACE, _middle(numbers)]
    add_range = numbers.worst[ADD, _middle(numbers)]
    apart = max(abs(once - rounds) for once, rounds in numbers.pairs.values())
    return (
        Claim(
            where="post, noise that finds the items",
            published="'significantly less noise': at most 1/4 of one-shot Laplace noise (standard deviations)",
            ours=f"{gumbel:.3f} of it by the post's own arithmetic, {tight:.3f} by tight curves",
            reason=Reason.NONE if max(gumbel, tight) <= 0.25 else Reason.REFUTED,
            why=f"for every k from 1 to 1,000; the quarter comes from sqrt(1 + x) >= 1 + x / 4, where 1 + x / 2 is "
            f"nearer: pi / (8 sqrt(12)) = {math.pi / (8 * math.sqrt(12)):.3f} bounds it for small epsilon",
        ),
        Claim(
            where="post, noise on the counts",
            published="at most 1/2 of one-shot Laplace noise",
            ours=f"{counts:.3f} of it; {largest('counts', 'Gaussian, tight', ADD):.3f} with Gaussian counts",
            reason=Reason.NONE if counts <= 0.5 else Reason.REFUTED,
            why="the post's noise on a count is sqrt(2) 2 sqrt(6) / pi = 2.2 times its noise that finds it; a count "
            "moves by one vote under both relations",
        ),
        Claim(
            where="post, the same guarantee",
            published="both noises are compared at the same (epsilon, delta)",
            ours=f"they are, where counts move one way; under REPLACE_RECORD Gumbel noise is {doubled:.3f} of it, not "
            f"{tight:.3f}",
            reason=Reason.NONE if doubled <= 0.25 else Reason.OTHER_SIZE,
            why="the post's e'^2 / 8 is for 'the range of the loss function', 1 where all counts move one way and 2 "
            "where they move either way. If Theorem 2.2 holds for the latter, as we take it, the quarter still holds",
        ),
        Claim(
            where="Qiao, Su & Zhang, Theorem 2.2, as the post has it",
            published="a standard deviation of 8 sqrt(2 k log(d / delta)) / epsilon gives (epsilon, delta)",
            ours=f"less noise than by the pure bound of the same mechanism from k = {min(later):.0f} on"
            if later
            else "never less noise than by the pure bound of the same mechanism up to k = 1,000",
            reason=Reason.NOT_AT_HAND,
            why="we know that paper only from the post and Zhu & Wang, and nothing here tests the theorem. 8 "
            f"sqrt(k log(d / delta)) < 2 k from k = 16 log(d / delta) = {cross:.0f}; below, pure 2 k / epsilon is less "
            "noise and a stronger statement",
        ),
        Claim(
            where="Durfee & Rogers (2019); post, Theorem 1",
            published="'the one-shot Gumbel mechanism' and 'iteratively applying the exponential mechanism' are 'equal"
            " in distribution'",
            ours=f"the probabilities of all {len(numbers.pairs)} ordered pairs of four items are equal to within 1e-9"
            if apart < _SAME
            else f"the probabilities of ordered pairs of four items differ by up to {apart:.1g}",
            reason=Reason.NONE if apart < _SAME else Reason.REFUTED,
            why=f"scores {', '.join(map(str, _SCORES))}, scale {_SCALE:g}, k = 2: integrals over the noise against the"
            f" product of both rounds; the first two items in their order have {numbers.pairs[0, 1][1]:.6f}. Two"
            " misprints before it: k rounds take about d k noise terms, not O(d^k), and the last factor of (1) has"
            " i_k, not i_2",
        ),
        _flip_claim(numbers, add_range, replace_range),
    )


def _middle(numbers: Numbers) -> float:
    return min(
        {epsilon for _, epsilon in numbers.worst}, key=lambda epsilon: abs(math.log(epsilon))
    )


def _flip_claim(numbers: Numbers, add_range: Worst, replace_range: Worst) -> Claim:
    epsilon = _middle(numbers)
    bound = bound_of_the_post(epsilon)
    attained = all(
        abs(worst.bounded_range - bound_of_the_post(epsilon)) <= _SAME * epsilon
        for (relation, epsilon), worst in numbers.worst.items()
        if relation is ADD
    )
    twice = 2 * bound_of_the_post(epsilon / 2)
    return Claim(
        where="post, bounded range of permute-and-flip",
        published="at least e + log(2 - exp(-e)): 'this example provides a lower bound', and no upper one is given",
        ours=f"at epsilon {epsilon:.3g}: {add_range.bounded_range:.3f} where counts move one way (the bound says"
        f" {bound:.3f}), {replace_range.bounded_range:.3f} where they move either way",
        reason=Reason.NONE if attained else Reason.OTHER_SIZE,
        why=f"no pair of neighbors on the grids searched has more than the bound under ADD_REMOVE_TEACHER. Under "
        f"REPLACE_RECORD {list(replace_range.scores)} to {list(replace_range.moved)} has "
        f"2 log(2 exp(e / 2) - 1) = {twice:.3f}",
    )


def one_shot_noises(effort: Effort) -> Finding:
    """Return the finding."""
    numbers = measured(effort)
    return Finding(
        title="One-shot Laplace and Gumbel noise at the same guarantee; the bounded range of permute-and-flip",
        paper=PAPER,
        method=METHOD.strip(),
        claims=claims(numbers),
        rows=numbers.rows,
    )
