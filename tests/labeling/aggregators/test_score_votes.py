"""Score votes spend what they say, learn what is there, and leave their student in what they
release."""

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.spatial.distance import cdist
from scipy.special import expit
from scipy.stats import kstest, multivariate_normal, norm

from pate import Outlook, Votes, VoteShape
from pate._core.validation import MOST_VOTERS, BoolArray, FloatArray, UInt8Array
from pate._labeling.aggregators import moment_learner, score_votes
from pate._labeling.aggregators.moment_learner import Learner, Learning
from pate._labeling.aggregators.score_votes import (
    noisy_count,
    noisy_knowing,
    noisy_sum,
    released,
)
from pate._labeling.linear import (
    linear_student_of,
    match_logistic_moments,
    shrunk_means,
    student_of,
)
from pate._labeling.votes.voters import encode_scores
from pate.accounting import GaussianEvent, NeighboringRelation as Relation, Target, epsilon_of
from pate.aggregators import (
    Ballots,
    Geometry,
    GroupVoters,
    MomentQuery,
    Moments,
    RecordVoters,
    Scores,
    ScoreVoters,
    ScoreVotes,
)
from pate.data import UNKNOWN
from pate.mechanisms import seeded_generator

NUM_LABELS = 4
WEIGHTS = np.random.default_rng(1).normal(size=(6, NUM_LABELS)) * [1.0, 1.0, 0.5, 0.0]
LEVELS = np.array([0.0, -1.0, -2.5, 2.0])


def drawn(num: int, generator: np.random.Generator) -> tuple[FloatArray, UInt8Array]:
    """Return features and labels of a logistic model, in which the last label is the same for
    all."""
    features = generator.normal(size=(num, 6)) * np.geomspace(2, 0.3, 6)
    return features, (
        generator.random((num, NUM_LABELS)) < expit(features @ WEIGHTS + LEVELS)
    ).astype(np.uint8)


PUBLIC, _ = drawn(300, np.random.default_rng(2))
GEOMETRY = Geometry.of(PUBLIC)


def voters_of(num: int, generator: np.random.Generator, **change: Any) -> RecordVoters:
    features, labels = drawn(num, generator)
    return RecordVoters(
        geometry=GEOMETRY,
        num_voters=num,
        num_labels=NUM_LABELS,
        coordinates=GEOMETRY.coordinates(features),
        labels=labels,
    )


def first_question(constant: float = 1.0, num_labels: int = NUM_LABELS) -> MomentQuery:
    shape = (GEOMETRY.num_directions, num_labels)
    shares = np.full(shape[0], 1 / shape[0])
    return MomentQuery(
        geometry=GEOMETRY,
        shares=shares,
        constant=constant,
        levels=np.zeros(num_labels),
        slopes=np.zeros(shape),
    )


def make(multiplier: float, relation: Relation = Relation.REPLACE_RECORD) -> ScoreVotes:
    return ScoreVotes(multiplier_scores=multiplier, neighboring_relation=relation)


@pytest.mark.parametrize("num_voters", [12, 3000])
@pytest.mark.parametrize("multiplier", [0.01, 0.5, 40.0])
@pytest.mark.parametrize("candidate", [0, 5, -1])
def test_a_median_and_its_sum_cost_their_multiplier(
    num_voters: int, multiplier: float, candidate: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Squared inverse multipliers of all comparisons and of the sum add up, whatever clip was
    found."""
    searches, clips = [], []
    generator = np.random.default_rng(0)
    voters, largest = voters_of(num_voters, generator), first_question().largest_norm
    least = voters.least_norm(first_question())
    sought = [
        largest * 2 ** (-k / 4)
        for k in range(47, -1, -1)
        if k == 0 or largest * 2 ** (-(k - 1) / 4) > least
    ]

    def find(sizes: FloatArray, candidates: FloatArray, *, sigma: float, **rest: Any) -> float:
        searches.append((math.ceil(math.log2(len(candidates))), sigma))
        np.testing.assert_allclose(candidates, sought)
        clips.append(1.2 * float(candidates[candidate]))
        return float(candidates[candidate])

    monkeypatch.setattr(score_votes, "noisy_median", find)
    release = noisy_sum(voters, first_question(), num_voters, multiplier, generator)
    clip = clips[0] if clips else largest
    assert release.clip == clip
    of_median, of_sum = (
        sum(steps / sigma**2 for steps, sigma in searches),
        (2 * clip / release.sigma) ** 2,
    )
    assert of_median + of_sum == pytest.approx(multiplier**-2, rel=1e-12)
    assert of_median <= 0.25 * multiplier**-2 * (1 + 1e-12)
    # a twentieth, unless the noise is then more than a sixth of the voters; a quarter at most
    steps = math.ceil(math.log2(len(sought)))
    twentieth, quarter = (multiplier * math.sqrt(steps / share) for share in (0.05, 0.25))
    sigma = twentieth if twentieth < num_voters / 6 else max(quarter, num_voters / 6)
    assert len(searches) == (sigma <= num_voters / 3) == (multiplier < 40 or num_voters == 3000)
    assert all(search == pytest.approx((steps, sigma)) for search in searches)


@pytest.mark.parametrize(
    ("count", "least", "clipped"), [(12, 0.25, True), (11.99, 0.25, False), (12, 2.0, False)]
)
def test_a_clip_is_sought_where_noise_is_a_third_of_the_voters_at_most(
    count: float, least: float, clipped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With four comparisons on a quarter of the budget it is four times the multiplier."""
    generator, question, searches = np.random.default_rng(0), first_question(), []
    voters, largest = voters_of(12, generator), first_question().largest_norm

    def find(
        sizes: FloatArray, candidates: FloatArray, *, sigma: float, num_voters: float, **rest: Any
    ) -> float:
        searches.append((len(candidates), candidates[0] / largest, sigma, num_voters))
        return float(candidates[0])

    monkeypatch.setattr(score_votes, "noisy_median", find)
    monkeypatch.setattr(RecordVoters, "least_norm", lambda *_: least * largest)
    release = noisy_sum(voters, question, count, 1.0, generator)
    # the least candidate is the largest that is no more than the least norm
    assert searches == ([(9, 0.25, 4.0, count)] if clipped else [])
    assert release.clip == pytest.approx(1.2 * largest / 4 if clipped else largest)
    assert release.sigma == pytest.approx(2 * release.clip / math.sqrt(0.75 if clipped else 1))


@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("queries", [1, 7, 300])
@pytest.mark.parametrize("rounds", [(1.0,), (0.3, 0.7), (0.1, 0.15, 0.25, 0.5), (0.3, 0.7 + 9e-10)])
def test_rounds_cost_what_their_queries_cost(
    queries: int, rounds: tuple[float, ...], unknown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    multipliers, counts, open_labels = [], [], []

    def spend(*given: Any) -> Any:
        if not given[1].shares.any():
            open_labels.append(int(given[1].held.sum()))
        multipliers.append(given[3])
        counts.append(given[2])
        return noisy_sum(*given)

    def count(num_private: int, multiplier: float, noise: np.random.Generator) -> float:
        multipliers.append(multiplier)
        return noisy_count(num_private, multiplier, noise)

    def count_knowing(
        knowing: FloatArray, num: float, multiplier: float, noise: np.random.Generator
    ) -> FloatArray:
        multipliers.append(multiplier)
        return noisy_knowing(knowing, num, multiplier, noise)

    monkeypatch.setattr(score_votes, "noisy_sum", spend)
    monkeypatch.setattr(score_votes, "noisy_count", count)
    monkeypatch.setattr(score_votes, "noisy_knowing", count_knowing)
    generator = np.random.default_rng(0)
    voting = ScoreVotes(multiplier_scores=3.0, rounds=rounds)
    # of records, the nominal number is the largest one, which says nothing
    records = replace(voters_of(200, generator), num_voters=MOST_VOTERS, unknown_labels=unknown)
    votes = Votes.from_voters(records, PUBLIC[:queries])
    release = voting.aggregate(votes, generator=generator)
    assert release.labels.shape == (queries, NUM_LABELS) and release.mask.all()
    event = voting.event(votes.shape)
    assert isinstance(event, GaussianEvent)
    assert sum(m**-2 for m in multipliers) == pytest.approx(
        queries / event.noise_multiplier**2, rel=1e-12
    )
    # the first for the numbers of voters, and of those that know each label; then levels, four and
    # fewer that are open, with an error of 0.05 where the noise is 3 of the noisy number; no share
    # below 1/10 is spent
    counted = [0.02, 0.02] if unknown else [0.02]
    assert open_labels[:1] == ([4] if queries == 1 else [])
    levels = [num * (3 / counts[0] / 0.05) ** 2 / 3 for num in open_labels]
    asked = [*levels, *((1 - sum(levels)) * share for share in rounds)]
    shares = [*counted, *((1 - sum(counted)) * share for share in asked)]
    assert [m**-2 for m in multipliers] == pytest.approx([queries / 9 * share for share in shares])
    # models that left scores are as many as was agreed upon
    multipliers.clear()
    models = ScoreVoters.of((encode_scores(np.full((9, 300, NUM_LABELS), 0.3)),), PUBLIC)
    voting.aggregate(Votes.from_voters(models, PUBLIC[:queries]), generator=generator)
    assert sum(m**-2 for m in multipliers) == pytest.approx(
        queries / event.noise_multiplier**2, rel=1e-12
    )
    assert len(multipliers) == len(rounds) and counts[-len(rounds) :] == [9] * len(rounds)


@pytest.mark.parametrize("centered", [False, True])
def test_sums_of_levels_move_by_the_reach_of_their_question(centered: bool) -> None:
    """Between all pairs of records: labels, or differences from one half, of the labels asked."""
    asked = np.array([True, True, False, True])
    question = replace(
        first_question(),
        shares=np.zeros(GEOMETRY.num_directions),
        levels=0.5 * asked * centered,
        asked=asked,
    )
    labels = np.array(list(product((0, 1, UNKNOWN), repeat=NUM_LABELS)), dtype=np.uint8)
    voters = voters_of(len(labels), np.random.default_rng(0))
    sums = [
        replace(voters, coordinates=voters.coordinates[i : i + 1], labels=labels[i : i + 1])
        .clipped_sum(question, 0.8)
        .ravel()
        for i in range(len(labels))
    ]
    assert not np.any([total.reshape(-1, NUM_LABELS)[:, ~asked] for total in sums])
    assert not np.any([total.reshape(-1, NUM_LABELS)[:-1] for total in sums])
    moves = cdist(sums, sums) / 0.8
    assert question.reach * (1 - 1e-4) < moves.max() <= question.reach
    assert question.reach == (2 if centered else math.sqrt(2))
    largest = replace(voters, labels=np.ones((len(labels), NUM_LABELS), dtype=np.uint8))
    assert largest.norms(question) == pytest.approx(question.largest_norm)
    assert question.largest_norm == pytest.approx(math.sqrt(3) / (1 + centered))
    assert (voters.least_norm(question) == question.largest_norm) == centered


def test_few_records_tell_the_labels_that_most_of_them_have() -> None:
    """Their levels are asked first, of fewer and fewer labels; many records have no such rounds."""
    generator, share = (
        np.random.default_rng(0),
        np.array([0.8, 0.1, 0.75, 0.2, 0.1, 0.3, 0.05, 0.1]),
    )
    voters = replace(
        voters_of(600, generator),
        num_labels=8,
        labels=(generator.random((600, 8)) < share).astype(np.uint8),
    )
    right, asked = 0, []
    for seed in range(20):
        steps = list(released(make(18.0), voters, 1, np.random.default_rng(seed)))
        levels = [step for step in steps if not step.question.shares.any()]
        assert len(steps) == len(levels) + 4 and steps[: len(levels)] == levels
        asked.append([int(step.question.held.sum()) for step in levels])
        _, decisions = steps[-1].learner.answers(PUBLIC)
        right += bool((decisions == (share > 0.5)).all())
    assert right >= 17
    later = [num for _, num, *_ in asked]
    assert {num for num, *_ in asked} == {8} and np.mean(later) < 5
    # their nominal number does not matter
    largest = replace(voters, num_voters=MOST_VOTERS)
    same = [list(released(make(18.0), each, 1, seeded_generator(0))) for each in (voters, largest)]
    first, second = (np.stack([step.moments.total for step in steps]) for steps in same)
    np.testing.assert_array_equal(first, second)
    assert len(list(released(make(0.18), voters, 1, generator))) == 4


def test_a_count_has_gaussian_noise_and_is_never_what_noise_alone_may_be() -> None:
    generator = np.random.default_rng(0)
    counts = np.array([noisy_count(1000, 5.0, generator) for _ in range(400)])
    assert kstest((counts - 1000) / 5, "norm").pvalue > 1e-4
    assert kstest((counts - 1002) / 5, "norm").pvalue < 1e-6
    assert {noisy_count(3, 50.0, generator) for _ in range(30)} >= {100.0}


def test_counts_of_those_that_know_have_gaussian_noise_by_the_number_of_labels() -> None:
    generator, knowing = np.random.default_rng(0), np.array([300.0, 500.0, 900.0])
    drawn = [noisy_knowing(knowing, 1e4, 5.0, generator) for _ in range(200)]
    errors = np.ravel((np.array(drawn) - knowing) / 5)
    assert kstest(errors / math.sqrt(3), "norm").pvalue > 1e-4
    assert kstest(errors, "norm").pvalue < 1e-6
    # of more labels, shrunk to their mean; neither less than noise may be nor more than there are
    alike = noisy_knowing(np.full(40, 500.0), 1e4, 5.0, generator)
    assert np.abs(alike - 500).max() < 40 and alike.std() < 5 * math.sqrt(40) / 2
    assert noisy_knowing(np.array([1.0, 100.0]), 100.0, 5.0, generator).tolist() == [
        10 * math.sqrt(2),
        100.0,
    ]
    assert noisy_knowing(knowing, 7.0, 5.0, generator).tolist() == [7.0, 7.0, 7.0]


@pytest.mark.parametrize("records_each", [1, 5])
@pytest.mark.parametrize("counted", [True, False])
def test_levels_are_those_of_known_labels(records_each: int, counted: bool) -> None:
    """Dividing by all voters would find too few labels, more so the less they know."""
    generator, num = np.random.default_rng(7), 3000 * records_each
    voters: RecordVoters | GroupVoters = voters_of(num, generator)
    right = voters.labels.mean(axis=0)
    lost = generator.random(voters.labels.shape) < [0.0, 0.3, 0.6, 0.9]
    labels = np.where(lost, UNKNOWN, voters.labels).astype(np.uint8)
    voters = replace(voters, labels=labels, unknown_labels=counted)
    if records_each > 1:
        groups = np.arange(num) // records_each
        voters = GroupVoters(**vars(voters), groups=groups)
        voters = replace(voters, num_voters=3000)
    release = make(0.3).aggregate(Votes.from_voters(voters, PUBLIC), generator=generator)
    assert release.noisy_counts is not None
    error = np.abs(release.noisy_counts.mean(axis=0) / voters.num_voters - right)
    assert (error[3] < 0.15) == counted
    assert error[:3].max() < 0.06 or not counted


def test_noise_is_gaussian_of_the_stated_deviation(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(3)
    voters, question = voters_of(400, generator), first_question()
    monkeypatch.setattr(score_votes, "noisy_median", lambda *_, **__: 1.0)
    bare = voters.clipped_sum(question, 1.2)
    releases = [noisy_sum(voters, question, 400, 0.7, generator) for _ in range(150)]
    noise = np.ravel([(release.total - bare) / release.sigma for release in releases])
    assert kstest(noise, "norm").pvalue > 1e-4
    assert kstest(noise / 0.8, "norm").pvalue < 1e-6


def test_a_clip_is_near_the_median_norm() -> None:
    generator = np.random.default_rng(4)
    voters, question = voters_of(1000, generator), first_question()
    median = float(np.median(voters.norms(question)))
    clips = [noisy_sum(voters, question, 1000, 1e-6, generator).sigma / 2e-6 for _ in range(200)]
    assert np.mean([median < clip < 1.8 * median for clip in clips]) > 0.8


def test_with_little_noise_it_learns_what_logistic_labels_say() -> None:
    generator = np.random.default_rng(5)
    voters = voters_of(20_000, generator)
    release = make(0.1).aggregate(Votes.from_voters(voters, PUBLIC), generator=generator)
    assert release.noisy_counts is not None and release.linear and release.noise_std is None
    truth = expit(PUBLIC @ WEIGHTS + LEVELS)
    student = linear_student_of(PUBLIC, release.noisy_counts / 20_000, release.labels)
    assert np.abs(student.predict(PUBLIC) - truth).mean() < 0.03
    assert ((release.labels > 0) == (truth > 0.5)).mean() > 0.97
    assert student.departs.tolist() == [True, True, False, False]
    ranks = [np.corrcoef(student.logits(PUBLIC)[:, c], truth[:, c])[0, 1] for c in range(3)]
    assert min(ranks) > 0.9, "labels that are never given are ranked too"
    # negative control: noise alone
    poor = make(1e5).aggregate(Votes.from_voters(voters, PUBLIC), generator=generator)
    assert poor.noisy_counts is not None
    assert np.abs(poor.noisy_counts / 20_000 - truth).mean() > 0.1
    np.testing.assert_array_equal(poor.labels.min(axis=0), poor.labels.max(axis=0))


@pytest.mark.parametrize("prior", [0.0, 1.0, 9.0])
def test_slopes_are_shrunk_by_their_most_likely_prior(prior: float) -> None:
    """Of 4,000 slopes with noise of variance 1; twice the gain in log-likelihood is n (p - log(1 +
    p)). Nearly all weight is on one of the variances."""
    drawn = np.random.default_rng(0).normal(size=(4000, 3)) * math.sqrt(prior + 1)
    shrinkage, evidence, _ = moment_learner._shrinkage(drawn, np.ones(drawn.shape))
    # priors are a factor of 1.8 apart
    np.testing.assert_allclose(shrinkage, prior / (prior + 1), atol=0.07)
    np.testing.assert_allclose(evidence, 4000 * (prior - math.log(1 + prior)), rtol=0.15, atol=5)


def plain_shrinkage(
    estimates: FloatArray, noise: FloatArray, priors: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the mean shrinkage over prior variances, by their likelihood in a label and, as one
    label more, in the mean of all; and the losses ``[priors, C]``."""
    losses = plain_losses(estimates, noise, priors.tolist())
    likelihoods = np.exp(-(losses + losses.mean(axis=1, keepdims=True) - losses.min()) / 2)
    likelihoods /= likelihoods.sum(axis=0)
    each = priors[:, None, None] / (priors[:, None, None] + noise)
    return np.einsum("gc,grc->rc", likelihoods, each), losses


def plain_losses(estimates: FloatArray, noise: FloatArray, priors: list[float]) -> FloatArray:
    """Return minus twice the log-likelihood ``[priors, C]`` of estimates whose slopes have a prior
    variance."""
    logs = [norm.logpdf(estimates, scale=np.sqrt(prior + noise)).sum(axis=0) for prior in priors]
    return -2 * np.array(logs)


@pytest.mark.parametrize("num_labels", [3, 5])
def test_rounds_are_learned_by_the_formulas_of_a_normal_prior(num_labels: int) -> None:
    """Two rounds of noisy moments, the second around what was learned from the first."""
    generator, num, variances = np.random.default_rng(1), 5000, GEOMETRY.variances
    learner = Learner(GEOMETRY, num_labels, num)
    question = learner.question()
    ridge = variances / (variances + 4 * np.average(variances, weights=variances))
    np.testing.assert_allclose(question.shares, ridge / ridge.sum())
    assert question.constant == 0.25 and not question.levels.any() and not question.slopes.any()
    coordinates = GEOMETRY.linear(PUBLIC)
    residuals: list[FloatArray] = []
    students: list[FloatArray] = []
    levels, deviations = [], []
    ratios = np.ones((len(variances), 1))
    for deviation in (0.003, 0.002, 0.001):
        mean = generator.normal(size=(len(variances) + 1, num_labels)) * 0.05
        if not residuals:
            mean[-1, :3] = np.array([0.3, 0.6, -0.2]) * question.constant
        learner.learn(question, mean, deviation)
        # what the student explains on public samples is added back; a moment is a slope times
        # variance and weight
        explained = (question.levels + coordinates @ question.slopes).clip(0, 1)
        weights = np.sqrt(question.shares / variances)[:, None]
        residuals.append(mean[:-1] / weights / variances[:, None])
        students.append(coordinates.T @ explained / len(PUBLIC) / variances[:, None])
        levels.append(mean[-1] / question.constant + explained.mean(axis=0))
        deviations.append((deviation / weights / variances[:, None], deviation / question.constant))
        precisions = np.array([of_slopes**-2.0 for of_slopes, _ in deviations])
        level_precisions = np.array([of_levels**-2.0 for _, of_levels in deviations])
        plain_levels = shrunk_means(
            level_precisions @ levels / level_precisions.sum(),
            np.full(num_labels, 1 / level_precisions.sum()),
        )
        # no less than half a sample
        plain_levels = plain_levels.clip(0.5 / len(PUBLIC), 1 - 0.5 / len(PUBLIC))
        noise = (
            1 / precisions.sum(axis=0)
            + plain_levels * (1 - plain_levels) / num / variances[:, None]
        )
        kept, estimates, errors = plain_posterior(residuals, students, precisions, noise, ratios)
        # the ratio that is most likely for the moments in all labels
        moments = errors * ratios**2 / (1 - kept)
        for j in range(len(variances)):
            given = (
                np.array(residuals)[:, j],
                np.array(students)[:, j],
                1 / precisions[:, j, 0],
                moments[j] - 1 / precisions[:, j, 0].sum(),
            )
            found = minimize_scalar(minus_log_density, args=given)
            ratios[j] = max(1, found.x)
        np.testing.assert_allclose(learner._ratios, ratios, rtol=1e-3)
        kept, estimates, errors = plain_posterior(residuals, students, precisions, noise, ratios)
        question = learner.question()
        np.testing.assert_allclose(question.levels, plain_levels, rtol=1e-5)
        # samples are on a grid
        np.testing.assert_allclose(question.slopes, estimates * kept, rtol=1e-3, atol=1e-6)
        np.testing.assert_allclose(learner._errors, kept * errors, rtol=1e-2)
        wanted = kept.mean(axis=1) + ridge**2 / (ridge**2).sum()
        np.testing.assert_allclose(question.shares, wanted / wanted.sum(), rtol=1e-3)
        assert question.constant == pytest.approx(min(wanted.sum() ** -0.5, 0.25), rel=1e-3)
    assert (ratios > 1.01).any() and (ratios == 1).any()


def plain_posterior(
    residuals: list[FloatArray],
    students: list[FloatArray],
    precisions: FloatArray,
    noise: FloatArray,
    ratios: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return shrinkage, estimates of slopes and their variances, given ratios ``[R, 1]``."""
    estimates, errors = (
        (precisions * (residuals / ratios + students)).sum(axis=0) / precisions.sum(axis=0),
        noise / ratios**2,
    )
    priors = errors.min() * np.array([0, *(10 ** (k / 4) for k in range(-12, 29))])
    return plain_shrinkage(estimates, errors, priors)[0], estimates, errors


def minus_log_density(
    ratio: float,
    residuals: FloatArray,
    students: FloatArray,
    variances: FloatArray,
    moments: FloatArray,
) -> float:
    """Of a ratio and residuals ``[rounds, C]`` of one direction: normal around a moment, which is
    normal too, minus the ratio times the student's."""
    total = -float(norm.logpdf(ratio, loc=1, scale=0.5))
    for label, moment in enumerate(moments):
        covariance = moment + np.diag(variances)
        mean = -ratio * students[:, label]
        total -= float(multivariate_normal.logpdf(residuals[:, label], mean, covariance))
    return total


@pytest.mark.parametrize("mended", [True, False])
def test_rounds_converge_where_private_records_vary_more_than_public_samples(
    mended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine times the variance along narrow directions: without ratios rounds stay far from least
    squares."""
    generator = np.random.default_rng(12)
    features = drawn(20_000, generator)[0] * np.array([1, 1, 3, 3, 3, 3])
    slopes = np.array([0.02, -0.02, 0.1, 0.1, -0.1, 0.2])[:, None] * generator.normal(size=(6, 4))
    labels = (generator.random((20_000, 4)) < 0.4 + features @ slopes).astype(np.uint8)
    voters = replace(
        voters_of(2, generator),
        num_voters=20_000,
        coordinates=GEOMETRY.coordinates(features),
        labels=labels,
    )
    if not mended:
        monkeypatch.setattr(moment_learner, "LEARNING", Learning(ratio_deviation=1e-6))
    inner = voters.coordinates * GEOMETRY.unit
    best, _, _, _ = np.linalg.lstsq(np.column_stack((inner, np.ones(20_000))), labels, rcond=None)
    voting = ScoreVotes(multiplier_scores=0.01, rounds=(0.01, 0.04, 0.15, 0.8))
    errors = []
    for step in released(voting, voters, 1, generator):
        differences = inner @ (step.learner.question().slopes - best[:-1])
        errors.append(math.sqrt((differences**2).mean()))
    assert (errors == sorted(errors, reverse=True)) == (errors[-1] < 0.2) == mended


def test_a_gain_of_three_deviations_is_enough_and_a_level_one_above_one_half_is_not() -> None:
    """Three samples that differ for certain gain three; those as likely as not differ from no
    denial."""
    learner = Learner(GEOMETRY, 1, 1e4, purpose="never_below_constant")
    samples = np.zeros((20, GEOMETRY.num_directions))
    learner._evidence, learner._levels = np.array([9.0]), np.array([0.5])
    logits = np.zeros((20, 1))
    logits[:3] = 800.0
    for precision, departs in ((36.0, True), (35.9, False)):
        learner._level_precision = np.array([precision])
        assert [bool(each[0]) for each in learner._departing(samples, logits)] == [False, departs]
    learner._level_precision = np.array([4.0])
    for level, above in ((1.0, False), (1.001, True)):
        learner._levels = np.array([level])
        assert learner._departing(samples, logits)[0] == above


@pytest.mark.parametrize("purpose", ["accuracy", "ranking"])
def test_a_label_departs_on_average_by_one_deviation_in_which_levels_count_twice(
    purpose: moment_learner.Purpose,
) -> None:
    """Whatever its evidence: twenty samples that differ for certain gain twenty."""
    learner, samples = Learner(GEOMETRY, 1, 1e4, purpose=purpose), np.ones((20, 6))
    learner._levels, logits = np.array([0.5]), np.full((20, 1), 800.0)
    for slopes, level in ((1.0, 0.0), (0.0, 0.25), (0.5, 0.125)):
        for factor, departs in ((0.999, True), (1.001, False)):
            # slopes move all samples alike here
            learner._errors = np.full((6, 1), factor * slopes / 24)
            learner._level_precision = np.array([4 / max(factor * level, 1e-12)])
            above, given = learner._departing(samples, logits)
            assert not above[0] and given[0] == departs


def test_purposes_have_one_price_and_rankings_spend_less_on_levels() -> None:
    voters = voters_of(300, np.random.default_rng(1))
    spent = {}
    for purpose in ("accuracy", "never_below_constant", "ranking"):
        voting = replace(make(80.0), purpose=purpose)
        assert voting.event(VoteShape(300, 4)) == make(80.0).event(VoteShape(300, 4))
        rounds = [*score_votes.released(voting, voters, 1, np.random.default_rng(0))]
        levels = [step for step in rounds if not step.question.shares.any()]
        sums = [step.question.reach * step.moments.clip / step.moments.sigma for step in levels]
        spent[purpose] = 80.0**2 * sum(each**2 for each in sums)
    assert spent["accuracy"] == spent["never_below_constant"] > 0.5
    assert 0.05 < spent["ranking"] < 0.15
    with pytest.raises(ValueError, match=r"a purpose among accuracy, .*, got purpose='f1'"):
        replace(make(40.0), purpose="f1")  # type: ignore[arg-type]


def test_answers_are_linear_and_decisions_those_of_their_link(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generator = np.random.default_rng(3)
    learner = Learner(GEOMETRY, 5, 20_000.0)
    learner._levels, learner._slopes = (
        np.array([0.1, 0.2, 0.4, 0.6, 0.5]),
        generator.normal(size=(6, 5)) / 20,
    )
    learner._slopes[:, 4] = 0.0  # as likely as not, wherever
    above, departs = (
        np.array([True, False, True, False, True]),
        np.array([True, True, False, False, True]),
    )
    shown: list[FloatArray] = []

    def decide(*given: FloatArray) -> tuple[BoolArray, BoolArray]:
        shown.extend(given)
        return above, departs

    monkeypatch.setattr(learner, "_departing", decide)
    features = PUBLIC[:50] + 0.1
    answers, decisions = learner.answers(features)
    np.testing.assert_allclose(
        answers, learner._levels + GEOMETRY.linear(features) @ learner._slopes
    )
    fitted = GEOMETRY.linear(PUBLIC) @ learner._slopes
    level, steepness = match_logistic_moments(learner._levels, fitted)
    np.testing.assert_allclose(shown[0], GEOMETRY.linear(PUBLIC), atol=1e-4)
    np.testing.assert_allclose(shown[1], level + steepness * fitted, atol=1e-2)
    logits = level + steepness * (answers - learner._levels)
    np.testing.assert_array_equal(decisions, np.where(departs, logits > 0, above))
    assert (decisions[:, :2].any(axis=0) & ~decisions[:, :2].all(axis=0)).all() and not decisions[
        :, 4
    ].any()


def test_the_student_is_recovered_from_what_is_released() -> None:
    generator = np.random.default_rng(6)
    votes = Votes.from_voters(voters_of(2_000, generator), PUBLIC)
    release = make(20.0).aggregate(votes, generator=generator)
    assert release.noisy_counts is not None
    student = linear_student_of(PUBLIC, release.noisy_counts / 2_000, release.labels)
    np.testing.assert_array_equal(student.predict(PUBLIC) > 0.5, release.labels > 0)
    # answers elsewhere are those of the same linear function
    elsewhere, _ = drawn(200, generator)
    more = Votes.from_voters(
        voters_of(2_000, np.random.default_rng(6)), np.concatenate((PUBLIC, elsewhere))
    )
    same = ScoreVotes(multiplier_scores=20.0 * math.sqrt(500 / 300)).aggregate(
        more, generator=np.random.default_rng(9)
    )
    again = make(20.0).aggregate(votes, generator=np.random.default_rng(9))
    assert same.noisy_counts is not None and again.noisy_counts is not None
    np.testing.assert_allclose(same.noisy_counts[:300], again.noisy_counts, rtol=1e-9)
    half = linear_student_of(PUBLIC, again.noisy_counts / 2_000, again.labels)
    full = linear_student_of(
        np.concatenate((PUBLIC, elsewhere)), same.noisy_counts / 2_000, same.labels
    )
    np.testing.assert_allclose(
        np.corrcoef(half.logits(elsewhere)[:, 0], full.logits(elsewhere)[:, 0])[0, 1], 1, atol=1e-9
    )


@pytest.mark.parametrize("counted", [True, False])
def test_a_hashed_partition_is_divided_by_the_teachers_that_have_records(
    counted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A third of as many teachers as records have none: dividing by all of them would find a third
    too few labels."""
    generator = np.random.default_rng(7)
    features, labels = drawn(600, generator)
    groups = np.sort(generator.integers(0, 600, 600))
    voters = GroupVoters(
        geometry=GEOMETRY,
        num_voters=600,
        num_labels=NUM_LABELS,
        coordinates=GEOMETRY.coordinates(features),
        labels=labels,
        groups=groups,
    )
    if not counted:
        monkeypatch.setattr(score_votes, "noisy_count", lambda *_: 600.0)
    release = make(0.1).aggregate(Votes.from_voters(voters, PUBLIC), generator=generator)
    assert release.noisy_counts is not None
    error = np.abs(release.noisy_counts.mean(axis=0) / 600 - labels.mean(axis=0)).max()
    assert error < 0.06 if counted else error > 0.1


def test_votes_must_have_voters_and_features() -> None:
    generator = np.random.default_rng(0)
    votes = Votes.from_voters(voters_of(50, generator), PUBLIC)
    voting = make(1.0)
    assert voting.needs == {"features", Ballots | Scores | Moments}
    assert (votes.num_teachers, votes.num_labels, votes.num_queries) == (
        50,
        NUM_LABELS,
        len(PUBLIC),
    )
    ballots = Votes.from_ballots(np.zeros((2, 50, NUM_LABELS)))
    for other in (Votes.from_counts(ballots.counts, 50), ballots):
        with pytest.raises(ValueError, match=r"^Expected votes [^\n]*$"):
            voting.aggregate(other, generator=generator)  # type: ignore[arg-type]
    none = voting.aggregate(votes[np.zeros(0, dtype=np.int64)], generator=generator)
    assert none.labels.shape == none.mask.shape == (0, NUM_LABELS) and none.linear
    assert none.noisy_counts is not None and none.noisy_counts.shape == (0, NUM_LABELS)
    assert len(voting.aggregate(votes[:3], generator=generator).labels) == 3


@pytest.mark.parametrize("relation", Relation)
def test_it_is_calibrated_as_a_gaussian(relation: Relation) -> None:
    shape = VoteShape(500, NUM_LABELS)
    (proposed,) = ScoreVotes.proposals(
        Outlook(shape=shape, num_queries=300, delta=1e-6, relation=relation)
    )
    target = Target(epsilon=1.0, delta=1e-6, num_queries=300, neighboring_relation=relation)
    found = proposed.calibrated(target, shape)
    assert found is not None
    assert 0.9999 < epsilon_of(found.event(shape), count=300, delta=1e-6) <= 1
    assert make(2.0, relation).event(shape).neighboring_relation is relation


def signs(num: int, generator: np.random.Generator) -> tuple[FloatArray, UInt8Array]:
    """Return columns and their products, next to each other, with labels that products decide."""
    columns = generator.normal(size=(num, 6))
    products = columns[:, :3] * columns[:, 3:]
    labels = (products + 0.3 * generator.normal(size=(num, 3)) > 0).astype(np.uint8)
    return np.hstack((columns, products)), labels


def in_parts(num: int, widths: tuple[int, ...], *, straight: bool = False) -> Moments:
    """Return votes of records on 300 samples, about products of columns or columns themselves."""
    generator = np.random.default_rng(5)
    public, _ = signs(300, generator)
    features, labels = signs(num, generator)
    if straight:
        labels = (features[:, :3] > 0.2).astype(np.uint8)
    geometry = Geometry.of(public, widths)
    voters = RecordVoters(
        geometry=geometry,
        num_voters=num,
        num_labels=3,
        coordinates=geometry.coordinates(features),
        labels=labels,
    )
    return Moments(voters=voters, features=public)


@pytest.mark.parametrize("straight", [True, False])
def test_parts_are_asked_together_and_the_student_reads_both(straight: bool) -> None:
    votes = in_parts(4000, (6, 3), straight=straight)
    release = make(0.3 * math.sqrt(300)).aggregate(votes, generator=np.random.default_rng(0))
    assert release.columns is not None and release.columns.all()
    student = student_of(release, votes.features, votes.num_teachers)
    elsewhere, truth = signs(500, np.random.default_rng(6))
    truth = (elsewhere[:, :3] > 0.2).astype(np.uint8) if straight else truth
    assert student.departs.all()
    assert ((student.predict(elsewhere) > 0.5) == truth).mean() > 0.75
