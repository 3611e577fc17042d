"""The noise of releases, as numbers that are standard normal if it has its stated law.

Gaussian noise in units of its deviation is such a number. An outcome of a discrete law becomes one
by the normal quantile of a uniform number in its interval (Rosenblatt (1952)), so that one set of
tests serves all mechanisms.

First the tests of such numbers. Then exact sums, computed here again by their definition, so that a
clip which is not applied, or applied to the sum, looks like wrong noise. At the end the noise in a
release of each aggregator.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import chi2, kstest, t as student

from pate._core.mechanisms.base import NotStatedError
from pate._core.validation import FloatArray, IntArray, UInt8Array
from pate._labeling.aggregators.base import Aggregator, Release
from pate._labeling.aggregators.clipped_votes import (
    MEDIAN_SHARE,
    MEDIAN_SPARE,
    Bisection,
    ClippedVotes,
    Rounds,
    TauVoting,
    clipped_sums,
    round_releases,
)
from pate._labeling.aggregators.moment_learner import Learner
from pate._labeling.aggregators.noisy_votes import (
    NoisyVotes,
    Screen,
    SiloVotes,
)
from pate._labeling.aggregators.score_votes import (
    SPENDING,
    Round,
    ScoreVotes,
    clip_candidates,
    released,
    share_of_levels,
)
from pate._labeling.votes.kinds import Ballots, Counts
from pate._labeling.votes.voters import GroupedVoters, MomentQuery, RecordVoters, Voters

FACTORS = (0.7, 0.5)
"""Faults that the power of a test is stated for: so much of the noise is drawn."""
_LARGEST = 40.0  # a normal number that is impossible
_UNITS = 1500  # whose pairs are compared: all of a smaller axis, a part of a longer one
_LEAST = 8  # numbers in a unit, for its correlation with others


@dataclass(frozen=True)
class Gaussians:
    """Gaussian noise in units of the stated deviation.

    Attributes:
        values: the numbers, of any shape.
    """

    values: FloatArray

    def normals(self, generator: np.random.Generator) -> FloatArray:
        """Return the numbers themselves."""
        return self.values

    def simulated(self, factor: float, generator: np.random.Generator) -> FloatArray:
        """Return such numbers with ``factor`` times the noise."""
        return factor * generator.standard_normal(self.values.shape)


@dataclass(frozen=True)
class Outcomes:
    """Outcomes of discrete laws.

    Attributes:
        chances: the chances ``[n, m]`` of m outcomes, by the factor of the noise: 1 and `FACTORS`.
        chosen: the outcome ``[n]``; -1 for one that has no chance.
    """

    chances: Mapping[float, FloatArray]
    chosen: IntArray

    def normals(self, generator: np.random.Generator) -> FloatArray:
        """Return a normal number ``[n]`` for each outcome.

        Outcomes are sorted by how much likelier they are with less noise, so that the mean shows
        it.
        """
        return self._normals(self.chosen, generator)

    def simulated(self, factor: float, generator: np.random.Generator) -> FloatArray:
        """Return the normal numbers of outcomes that are drawn with ``factor`` times the noise."""
        levels = np.cumsum(self.chances[factor], axis=1)
        drawn = generator.random((len(levels), 1)) * levels[:, -1:]
        return self._normals((levels < drawn).sum(axis=1), generator)

    def _normals(self, chosen: IntArray, generator: np.random.Generator) -> FloatArray:
        stated, faulty = self.chances[1.0], self.chances[FACTORS[0]]
        order = np.argsort(-(faulty + 1e-12) / (stated + 1e-12), axis=1, kind="stable")
        levels = np.cumsum(np.take_along_axis(stated, order, axis=1), axis=1)
        rows = np.arange(len(chosen))
        high = levels[rows, (order == chosen[:, None]).argmax(axis=1)]
        width = stated[rows, chosen]
        uniform = (high - width * generator.random(len(chosen))) / levels[:, -1]
        normals = ndtri(np.clip(uniform, 1e-300, 1 - 1e-16))
        return np.where((chosen < 0) | (width <= 0), _LARGEST, normals)


def p_values(normals: FloatArray, axes: tuple[str, ...]) -> dict[str, float]:
    """Return a p-value of each test of numbers ``[...]`` with these names of their axes.

    The size, the mean and the law of all numbers are tested, and along each axis the sums and the
    pairs of its units. All laws are exact but for Kolmogorov and Smirnov's, which is close.
    """
    flat = normals.ravel()
    found = {
        "size": _two_sided(float((flat**2).sum()), flat.size),
        "mean": 2 * float(ndtr(-abs(flat.sum()) / np.sqrt(flat.size))),
        "law": float(kstest(flat, "norm").pvalue),
    }
    for place, name in enumerate(axes):
        units = np.moveaxis(normals, place, 0).reshape(normals.shape[place], -1)
        if len(units) >= 2:
            sums = (units.sum(axis=0) ** 2).sum() / len(units)
            found[f"sums over {name}"] = _two_sided(float(sums), units.shape[1])
            if units.shape[1] >= _LEAST:
                found[f"pairs of {name}"] = _pairs(units[:_UNITS])
    return found


def _two_sided(squares: float, freedom: int) -> float:
    return min(1.0, 2 * float(min(chi2.cdf(squares, freedom), chi2.sf(squares, freedom))))


def _pairs(units: FloatArray) -> float:
    """Return the p-value of the largest correlation of two among ``units`` ``[k, n]``, times k."""
    # units of zeros, which another test finds, have no correlation
    lengths = np.maximum(np.linalg.norm(units, axis=1, keepdims=True), 1e-150)
    cosines = (units / lengths) @ (units / lengths).T
    largest = float(np.abs(cosines[np.triu_indices(len(units), 1)]).max())
    freedom = units.shape[1] - 1
    if largest >= 1 - 1e-12:
        return 0.0
    statistic = largest * np.sqrt(freedom / (1 - largest**2))
    return min(1.0, len(units) * (len(units) - 1) * float(student.sf(statistic, freedom)))


def is_scores(aggregator: Aggregator) -> TypeGuard[ScoreVotes]:
    """Whether it is of the package. A subclass may draw otherwise."""
    return type(aggregator) is ScoreVotes


def guess_of(around: bool, votes: Ballots) -> UInt8Array:
    if not around:
        return np.zeros(votes.counts.shape, dtype=np.uint8)
    assert votes.predictions is not None, "they are needed"
    return np.asarray(votes.predictions > 0.5, dtype=np.uint8)


def sums_of(ballots: UInt8Array, sizes: IntArray, clip: int) -> FloatArray:
    """Return sums ``[Q, C]`` of ballots ``[Q, T, C]`` of ``sizes`` that are scaled to a clip."""
    factors = np.minimum(1.0, np.sqrt(clip / np.maximum(sizes, 1)))
    return np.array([factors @ rows.astype(np.float64) for rows in ballots])


def tau_sums(aggregator: TauVoting, votes: Ballots) -> FloatArray:
    differing = votes.ballots ^ guess_of(aggregator.around_predictions, votes)[:, None]
    sizes = np.maximum(differing.sum(axis=2, dtype=np.int64), 1)
    norms = sizes if aggregator.norm == "l1" else np.sqrt(sizes)
    factors = np.minimum(1.0, aggregator.tau / norms)
    return np.asarray(np.einsum("qt,qtc->qc", factors, differing))


def distance_of_sums(aggregator: Aggregator, votes: Any) -> tuple[float, float] | None:
    """Return how far the program's clipped sums are from their definition, and its rounding error.

    Both are in clips. The clip is so small that it scales most ballots. None without clipped sums.
    """
    if is_scores(aggregator):
        voters, distances = votes.voters, []
        for question in _questions(voters):
            norms = voters.norms(question)
            clip = float(np.median(norms[norms > 0])) / 4 if (norms > 0).any() else 1.0
            apart = voters.clipped_sum(question, clip) - plain_sum(voters, question, clip)
            distances.append(float(np.abs(apart).max()) / clip)
        return max(distances), 1e-3
    if type(aggregator) is ClippedVotes:
        sizes = votes.ballots.sum(axis=(0, 2), dtype=np.int64)
        size = max(1, int(np.median(sizes)) // 4)
        ours = clipped_sums(votes, guess_of(False, votes), sizes, size)
        apart = ours - sums_of(votes.ballots, sizes, size)
        return float(np.abs(apart).max()) / math.sqrt(size), votes.num_teachers / 2**19
    if type(aggregator) is TauVoting:
        small = replace(aggregator, tau=aggregator.tau / 4)
        apart = small.clipped_sums(votes) - tau_sums(small, votes)
        return float(np.abs(apart).max()) / small.tau, votes.num_teachers / 2**29
    return None


def reach_of(question: MomentQuery) -> float:
    """Return the largest distance of two ballots with norms up to 1, by the signs of ballots.

    Ballots are taken from public samples without labels: a residual is at least minus the answer.
    """
    samples = question.geometry.samples
    unlabeled = np.zeros((len(samples), question.num_labels), dtype=np.uint8)
    signed = any((factor < 0).any() for factor in question.products(samples, unlabeled))
    return 2.0 if signed else math.sqrt(2)


def _questions(voters: Voters) -> list[MomentQuery]:
    """Return the first questions: about moments, and about levels if few voters are private."""
    learner = Learner(voters.geometry, voters.num_labels, math.inf)
    levels = None if voters.num_private is None else learner.question_of_levels()
    return [learner.question(), *([levels] if levels else [])]


def plain_sum(voters: Voters, question: MomentQuery, clip: float) -> FloatArray:
    """Return the sum of clipped ballots, as `Voters.clipped_sum` defines it."""
    total, bits = np.zeros((voters.geometry.num_directions + 1, voters.num_labels)), 28
    most = clip * (1 - 2.0**-30)
    if isinstance(voters, RecordVoters):
        for basis, residuals, _ in voters.parts(question):
            norms = np.sqrt((basis**2).sum(axis=1) * (residuals**2).sum(axis=1)) / 2.0**bits
            shares = np.minimum(1.0, most / np.maximum(norms, 1e-300))
            total += basis.T @ np.trunc(residuals * shares[:, None])
    if isinstance(voters, GroupedVoters):
        bits = voters._bits
        for ballot, _ in voters._ballots(question):
            norm = float(np.linalg.norm(ballot)) / 2.0**bits
            total += np.trunc(ballot * min(1.0, most / max(norm, 1e-300)))
    return total / 2.0**bits


Seen = Mapping[str, Gaussians | Outcomes]
"""The noise of a release, by its subject."""


@dataclass(frozen=True)
class Trace:
    """A release, and the noise in it.

    Attributes:
        release: the release.
        seen: its noise.
        untested: subjects without a law to compare with, and the reason.
        mu_squared: the least cost of its Gaussian noise, as a squared ``mu``; 0 if there is none.
    """

    release: Release
    seen: Seen
    untested: Mapping[str, str]
    mu_squared: float = 0.0


def trace(aggregator: Aggregator, votes: Any, generator: np.random.Generator) -> Trace:
    """Make a release of ``votes`` as `Aggregator.aggregate` does, and return its noise."""
    if is_scores(aggregator):
        return noise_of_scores(aggregator, votes, generator)
    if type(aggregator) is Rounds:
        return _in_rounds(aggregator, votes, generator)
    return _noise_of(aggregator, votes, aggregator.aggregate(votes, generator=generator))


def parts_of(aggregator: Aggregator) -> list[Aggregator]:
    """Return the aggregators that draw noise: rounds, a screen and what answers behind it."""
    if type(aggregator) is Rounds:
        return [part for each in aggregator.rounds for part in parts_of(each)]
    return [aggregator, *(parts_of(aggregator.answers) if isinstance(aggregator, Screen) else [])]


def _in_rounds(aggregator: Rounds, votes: Any, generator: np.random.Generator) -> Trace:
    rounds = list(round_releases(aggregator, votes, generator))
    traces = [_noise_of(one.aggregator, one.votes, one.answers) for one in rounds]
    seen: dict[str, Gaussians | Outcomes] = {}
    sums = [part.seen.get("sums") for part in traces]
    values = [noise.values for noise in sums if isinstance(noise, Gaussians)]
    together = len(values) == len(traces)
    if together:
        # one array, so that rounds are compared with one another
        seen["sums of rounds"] = Gaussians(np.stack(values))
    seen |= {
        f"round {number}, {name}": noise
        for number, part in enumerate(traces, 1)
        for name, noise in part.seen.items()
        if not (together and name == "sums")
    }
    return Trace(
        rounds[-1].combined,
        seen,
        {
            f"round {number}, {name}": reason
            for number, part in enumerate(traces, 1)
            for name, reason in part.untested.items()
        },
        sum(part.mu_squared for part in traces),
    )


def _noise_of(aggregator: Aggregator, votes: Any, release: Release) -> Trace:
    """Return the noise of a release of one round."""
    # a subclass may draw otherwise
    kind = type(aggregator)
    try:
        if kind in SUMS and release.noisy_counts is not None and release.mask.all():
            return SUMS[kind](aggregator, votes, release)
        outcomes = outcomes_of(aggregator, votes)(release)
    except NotStatedError as error:
        return Trace(release, {}, {kind.__name__: str(error)})
    if not isinstance(aggregator, Screen):
        return Trace(release, {"outcomes": outcomes}, {})
    inner = _inner(aggregator, votes, release)
    answers = {f"answers, {key}": noise for key, noise in inner.seen.items()}
    return Trace(release, {"checks": outcomes, **answers}, inner.untested)


# sums with Gaussian noise


def _noisy_counts(aggregator: NoisyVotes | SiloVotes, votes: Counts, release: Release) -> Trace:
    sigma = (
        aggregator.share_sigma * math.sqrt(aggregator.silos)
        if isinstance(aggregator, SiloVotes)
        else aggregator.sigma_votes
    )
    values = (_counts(release) - votes.counts) / sigma
    return Trace(release, {"sums": Gaussians(values)}, {}, values.size / sigma**2)


def _tau_voting(aggregator: TauVoting, votes: Ballots, release: Release) -> Trace:
    noise = _from_guess(aggregator.around_predictions, votes, _counts(release)) - tau_sums(
        aggregator, votes
    )
    return Trace(release, {"sums": Gaussians(noise / aggregator.sigma_tau)}, {})


def _clipped_votes(aggregator: ClippedVotes, votes: Ballots, release: Release) -> Trace:
    size, sigma = votes.counts.size, aggregator.multiplier_clipped / math.sqrt(votes.num_queries)
    bisection = Bisection(num_teachers=votes.num_teachers, most=size)
    share = bisection.share(sigma)
    differing = votes.ballots ^ guess_of(aggregator.around_predictions, votes)[:, None]
    sizes = differing.sum(axis=(0, 2), dtype=np.int64)
    spent, candidates, spare = 0.0, np.array([size]), 1.0
    if share <= MEDIAN_SHARE:
        spent, candidates, spare = share, bisection.candidates, MEDIAN_SPARE
    clips = np.minimum(size, np.ceil(spare * candidates)).astype(np.int64)
    stated = sigma / math.sqrt(1 - spent) * np.sqrt(np.minimum(2 * clips, size))
    assert release.noise_std is not None, "there are noisy counts"
    possible = np.flatnonzero(np.isclose(stated, release.noise_std, rtol=1e-9, atol=0))
    seen: dict[str, Gaussians | Outcomes] = {}
    if spent:
        levels, which = np.unique(stated, return_inverse=True)
        above = (sizes[:, None] > candidates).sum(axis=0)
        laws = {
            factor: median_law(above, votes.num_teachers / 2, factor * votes.num_teachers / 6)
            for factor in (1.0, *FACTORS)
        }
        seen["comparisons for the clip"] = Outcomes(
            {
                factor: np.bincount(which, law, len(levels))[None].astype(np.float64)
                for factor, law in laws.items()
            },
            which[possible[:1]] if len(possible) else np.array([-1]),
        )
    noisy = _from_guess(aggregator.around_predictions, votes, _counts(release))
    tried = [
        (noisy - sums_of(differing, sizes, clip)) / release.noise_std
        for clip in (clips[possible] if len(possible) else clips[-1:]).tolist()
    ]
    # clips with the same noise: the one that explains the release
    seen["sums"] = Gaussians(min(tried, key=lambda noise: float((noise**2).sum())))
    cost = min(2 * clips[possible].max(initial=0), size) / release.noise_std**2
    if spent:
        cost += bisection.num_steps * (6 / votes.num_teachers) ** 2
    return Trace(release, seen, {}, cost)


SUMS: Mapping[type[Aggregator], Callable[..., Trace]] = {
    NoisyVotes: _noisy_counts,
    SiloVotes: _noisy_counts,
    TauVoting: _tau_voting,
    ClippedVotes: _clipped_votes,
}


def _counts(release: Release) -> FloatArray:
    assert release.noisy_counts is not None, "there are noisy counts"
    return release.noisy_counts


def _from_guess(around: bool, votes: Ballots, counts: FloatArray) -> FloatArray:
    """Return noisy counts as noisy numbers of teachers that differ from the predictions."""
    return np.where(guess_of(around, votes) > 0, votes.num_teachers - counts, counts)


# outcomes of discrete laws


def outcomes_of(
    aggregator: Aggregator, votes: Any, name: str | None = None
) -> Callable[[Release], Outcomes]:
    """Return the function that finds the outcome of each query of a release.

    The laws are those with all noise, and with less of one kind of noise, or of all.
    """
    draws = {
        factor: with_less_noise(aggregator, factor, name).draws(votes) for factor in (1.0, *FACTORS)
    }
    chances = {factor: each.chances for factor, each in draws.items()}
    return lambda release: Outcomes(chances, draws[1.0].shown(release))


def with_less_noise(aggregator: Aggregator, factor: float, name: str | None) -> Aggregator:
    if name is None:
        return aggregator.scaled(factor)
    return replace(aggregator, **{name: factor * getattr(aggregator, name)})


def _inner(aggregator: Screen, votes: Any, release: Release) -> Trace:
    """Return the noise in the answers to queries that passed a screen."""
    assert release.tiers is not None, "screens have tiers"
    passed = release.tiers > 0
    if not passed.any():
        return Trace(release, {}, {})
    return _noise_of(
        aggregator.answers,
        votes[passed],
        Release(
            release.labels[passed],
            release.mask[passed],
            noisy_counts=None if release.noisy_counts is None else release.noisy_counts[passed],
            noise_std=release.noise_std,
            tiers=release.tiers[passed] - 1,
        ),
    )


# score votes


def noise_of_scores(
    aggregator: ScoreVotes, votes: Any, generator: np.random.Generator, voters: Voters | None = None
) -> Trace:
    """Return the release of score votes, and the noise of its rounds."""
    asked = votes.voters if voters is None else voters
    num_queries = 1 if votes is None else votes.num_queries
    multiplier = aggregator.multiplier_scores / math.sqrt(num_queries)
    left = 1 - SPENDING.count * (asked.num_private is not None)
    left -= SPENDING.known * (asked.num_knowing is not None)
    steps = list(released(aggregator, asked, num_queries, generator))
    last = steps[-1]
    # what rounds may cost follows from the event, whatever they cost
    shares = [
        share_of_levels(int(step.question.held.sum()), last.num_voters, multiplier)
        for step in steps[: -len(aggregator.rounds)]
    ]
    unit = (1 - math.fsum(shares)) / math.fsum(aggregator.rounds)
    shares += [unit * share for share in aggregator.rounds]
    cost = 0.0
    medians: list[Outcomes] = []
    sums: list[FloatArray] = []
    within = asked.along(last.question.geometry)
    for share, step in zip(shares, steps, strict=True):
        total, sigma, clip = step.moments
        sums.append((total - plain_sum(within, step.question, clip)) / sigma)
        budget = left * share / multiplier**2
        moved = (reach_of(step.question) * clip / sigma) ** 2
        cost += max(budget, moved)
        if moved < budget * (1 - 1e-9):
            medians.append(_median(within, step, budget - moved))
    count = last.num_voters
    seen: dict[str, Gaussians | Outcomes] = {"sums of rounds": Gaussians(np.stack(sums))}
    if medians:
        widths = [law.chances[1.0].shape[1] for law in medians]
        seen["comparisons for the clip"] = Outcomes(
            {
                factor: np.vstack(
                    [
                        np.pad(law.chances[factor], ((0, 0), (0, max(widths) - width)))
                        for law, width in zip(medians, widths, strict=True)
                    ]
                )
                for factor in (1.0, *FACTORS)
            },
            np.concatenate([law.chosen for law in medians]),
        )
    untested: dict[str, str] = {}
    if asked.num_knowing is not None:
        untested["voters that know each label"] = "their noisy numbers are shrunk"
        cost += SPENDING.known / multiplier**2
    if asked.num_private is not None:
        deviation = multiplier / math.sqrt(SPENDING.count)
        cost += 1 / deviation**2
        if count > 2 * deviation:
            present = (
                float(len(asked.labels)) if isinstance(asked, RecordVoters) else asked.num_private
            )
            seen["number of voters"] = Gaussians(np.array([(count - present) / deviation]))
    if votes is None:
        empty = np.zeros((0, asked.num_labels))
        return Trace(Release(empty.astype(np.uint8), empty > 0), seen, untested, cost)
    answers, labels = last.learner.answers(votes.features)
    return Trace(
        Release(
            labels.astype(np.uint8),
            np.ones(labels.shape, dtype=np.bool_),
            noisy_counts=votes.num_teachers * answers,
            linear=True,
            columns=last.learner.columns if asked.geometry.parts.any() else None,
        ),
        seen,
        untested,
        cost,
    )


def _median(voters: Voters, step: Round, spent: float) -> Outcomes:
    question, count, clip = step.question, step.num_voters, step.moments.clip
    candidates = clip_candidates(voters, question, step.known_share)
    sigma = math.sqrt(math.ceil(math.log2(len(candidates))) / spent)
    norms = voters.norms(question)
    above = np.array([(norms > candidate).sum() for candidate in candidates])
    places = np.flatnonzero(np.isclose(MEDIAN_SPARE * candidates, clip, rtol=1e-12, atol=0))
    return Outcomes(
        {factor: median_law(above, count / 2, factor * sigma)[None] for factor in (1.0, *FACTORS)},
        places[:1] if len(places) else np.array([-1]),
    )


def median_law(above: IntArray | FloatArray, half: float, sigma: float) -> FloatArray:
    """Return the law ``[m]`` of a bisection by noisy comparisons, from its definition.

    Args:
        above: ``[m]``, how many voters have ballots larger than each candidate.
        half: half of the voters.
        sigma: the standard deviation of the noise of a comparison.
    """
    law = np.zeros(len(above))

    def search(low: int, high: int, chance: float) -> None:
        if low == high:
            law[low] += chance
            return
        middle = (low + high) // 2
        enough = float(ndtr((half - above[middle]) / sigma))
        search(low, middle, chance * enough)
        search(middle + 1, high, chance * (1 - enough))

    search(0, len(above) - 1, 1.0)
    return law
