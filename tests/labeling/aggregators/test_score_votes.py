"""Score votes spend what they say, learn what is there, and leave their student in what they
release."""

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.special import expit
from scipy.stats import kstest

from pate import Outlook, Votes, VoteShape
from pate._core.validation import MOST_VOTERS, FloatArray, UInt8Array
from pate._labeling.aggregators import score_votes
from pate._labeling.aggregators.score_votes import (
    Learner,
    noisy_count,
    noisy_knowing,
    noisy_sum,
    shifted_geometry,
)
from pate._labeling.linear import linear_student_of, student_of
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
@pytest.mark.parametrize(("candidate", "level"), [(0, 0.0), (-1, 0.0), (-1, 0.2)])
def test_a_median_and_its_sum_cost_their_multiplier(
    num_voters: int,
    multiplier: float,
    candidate: int,
    level: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Squared inverse multipliers of all comparisons and of the sum add up, whatever clip was
    found."""
    searches, clips = [], []
    generator = np.random.default_rng(0)
    voters = voters_of(num_voters, generator)
    question = replace(first_question(), levels=np.full(NUM_LABELS, level))
    largest, least = question.largest_norm, voters.least_norm(question)
    sought = [
        largest * 2 ** (-k / 4)
        for k in range(47, -1, -1)
        if k == 0 or largest * 2 ** (-(k - 1) / 4) > least
    ]

    def find(sizes: FloatArray, candidates: FloatArray, *, sigma: float, **rest: Any) -> float:
        searches.append((math.ceil(math.log2(len(candidates))), sigma))
        np.testing.assert_allclose(candidates, sought)
        clips.append(float(candidates[candidate]))
        return float(candidates[candidate])

    monkeypatch.setattr(score_votes, "noisy_median", find)
    release = noisy_sum(voters, question, num_voters, multiplier, generator)
    clip = release.clip
    median = clips[0] if clips else voters.expected_norm(question)
    assert 0.8 <= clip / median * (1 + 1e-9) <= 1.2 + 1e-8 if median else clip == largest
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
    # a student that answers says what else takes more than a twentieth
    most = num_voters / 6 if level else num_voters / 3
    assert len(searches) == ((twentieth if level else sigma) <= most)
    assert all(search == pytest.approx((steps, sigma)) for search in searches)


@pytest.mark.parametrize("fact", ["", "unknown_labels", "shifted"])
@pytest.mark.parametrize("queries", [1, 5, 300])
@pytest.mark.parametrize("rounds", [(1.0,), (0.1, 0.15, 0.25, 0.5)])
def test_rounds_cost_what_their_queries_cost(
    queries: int, rounds: tuple[float, ...], fact: str, monkeypatch: pytest.MonkeyPatch
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
    facts: dict[str, Any] = {fact: True} if fact else {}
    # of records, the nominal number is the largest one, which says nothing
    records = replace(voters_of(200, generator), num_voters=MOST_VOTERS, **facts)
    votes = Votes.from_voters(records, PUBLIC[:queries])
    release = voting.aggregate(votes, generator=generator)
    assert release.labels.shape == (queries, NUM_LABELS) and release.mask.all()
    event = voting.event(votes.shape)
    assert isinstance(event, GaussianEvent)
    assert sum(m**-2 for m in multipliers) == pytest.approx(
        queries / event.noise_multiplier**2, rel=1e-12
    )
    # the first for the numbers of voters, and of those that know each label, or for the shape of
    # records; then levels, four and
    # fewer that are open, with an error of 0.05 where the noise is 3 of the noisy number; shares
    # below a tenth pay for one round, of 1/100 at least
    counted = [0.02, *{"": [], "unknown_labels": [0.02], "shifted": [0.03, 0.06]}[fact]]
    assert open_labels[:1] == [4] and (queries == 1 or len(open_labels) == 1)
    noise = 3 / math.sqrt(queries)
    levels = [np.clip(num * (noise / counts[0] / 0.05) ** 2 / 3, 0.01, 0.1) for num in open_labels]
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


def test_public_samples_are_moved_to_the_moments_of_records() -> None:
    """Two parts; where noise says nothing, nothing moves."""
    generator = np.random.default_rng(0)
    scales, shift = np.linspace(0.7, 1.5, 6), np.array([3.0, 0.5, -0.5, 0.5, 1.0, 0.5])
    geometry = Geometry.of(PUBLIC, (4, 2))
    along = geometry.linear(PUBLIC[generator.integers(300, size=5000)])
    axes = geometry.axes / np.linalg.norm(geometry.axes, axis=0)
    records = (
        geometry.centre * geometry.step + (along * scales + shift * along.std(axis=0)) @ axes.T
    )
    voters = replace(
        voters_of(5000, generator), geometry=geometry, coordinates=geometry.coordinates(records)
    )
    for multiplier, scale, place in ((0.01, scales, shift), (1e4, 1.0, 0.0)):
        moved = shifted_geometry(voters, 5000.0, multiplier, generator)
        moved = shifted_geometry(voters.along(moved), 5000.0, multiplier, generator)
        assert moved.place is not None
        wider = np.sqrt(moved.variances / geometry.variances)
        np.testing.assert_allclose(wider, scale, atol=0.06 * (multiplier < 1))
        means = moved.place * moved.unit / np.sqrt(geometry.variances)
        np.testing.assert_allclose(means, place, atol=0.06 * (multiplier < 1))


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


@pytest.mark.parametrize(("records_each", "counted"), [(1, True), (1, False), (5, True)])
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
    releases = [noisy_sum(voters, question, 400, 0.7, generator) for _ in range(150)]
    bare = voters.clipped_sum(question, releases[0].clip)
    noise = np.ravel([(release.total - bare) / release.sigma for release in releases])
    assert kstest(noise, "norm").pvalue > 1e-4
    assert kstest(noise / 0.8, "norm").pvalue < 1e-6


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
    poor = replace(make(1e5), purpose="never_below_constant").aggregate(
        Votes.from_voters(voters, PUBLIC), generator=generator
    )
    assert poor.noisy_counts is not None
    assert np.abs(poor.noisy_counts / 20_000 - truth).mean() > 0.1
    np.testing.assert_array_equal(poor.labels.min(axis=0), poor.labels.max(axis=0))


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
    assert spent["accuracy"] == spent["never_below_constant"] > 0.25
    assert 0.05 < spent["ranking"] < 0.15
    with pytest.raises(ValueError, match=r"a purpose among accuracy, .*, got purpose='f1'"):
        replace(make(40.0), purpose="f1")  # type: ignore[arg-type]


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


def in_parts(
    num: int, widths: tuple[int, ...], *, straight: bool = False, rare: bool = False
) -> Moments:
    """Return votes of records on 300 samples, about products of columns or columns themselves."""
    generator = np.random.default_rng(5)
    public, _ = signs(300, generator)
    features, labels = signs(num, generator)
    if straight:
        labels = (features[:, :3] > 0.2).astype(np.uint8)
    if rare:
        logits = features[:, :3] + features[:, 3:6] / 2 if straight else features[:, 6:]
        labels = (logits > np.quantile(logits, 0.98)).astype(np.uint8)
    geometry = Geometry.of(public, widths)
    voters = RecordVoters(
        geometry=geometry,
        num_voters=num,
        num_labels=3,
        coordinates=geometry.coordinates(features),
        labels=labels,
    )
    return Moments(voters=voters, features=public)


def test_more_budget_asks_narrower_directions() -> None:
    geometry = Geometry.of(np.random.default_rng(0).normal(size=(200, 5)) * 0.5 ** np.arange(5))
    shares = np.array(
        [
            Learner(geometry, 3, math.inf, plenty=plenty).question().shares
            for plenty in (1, 300, 3000)
        ]
    )
    assert np.allclose(shares.sum(axis=1), 1)
    assert shares[0, 0] > 0.95 and (np.diff(shares[:, -1]) > 0.001).all()
    assert (np.diff(shares, axis=1) <= 0).all(), "the widest most"


def test_a_release_asks_as_its_budget_tells() -> None:
    voters = voters_of(300, np.random.default_rng(1))
    narrowest = []
    for multiplier in (30.0, 3.0):
        rounds = score_votes.released(make(multiplier), voters, 1, np.random.default_rng(0))
        asked = next(each.question.shares for each in rounds if each.question.shares.any())
        narrowest.append(asked[-1])
    assert narrowest[0] < 0.001 < 0.03 < narrowest[1]


def test_deviations_of_logits_have_a_half_cauchy_prior() -> None:
    """All that is left under endless noise: its mean variance, on the grid of variances."""
    noise, variances = 1e12, np.array(score_votes.LEARNING.prior_logits)
    shrinkage, *_ = score_votes._shrinkage(np.zeros((3, 2)), np.full((3, 2), noise), np.ones(2))
    ratios = np.append(variances[1], variances[1:]) / 1.5  # none is as likely as the least
    weights = np.sqrt(ratios) / (1 + ratios)  # half-Cauchy, by the logarithm
    assert shrinkage * noise == pytest.approx(weights @ variances / weights.sum(), rel=1e-3)


@pytest.mark.parametrize("straight", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_parts_are_asked_together_and_the_student_reads_both(straight: bool) -> None:
    votes = in_parts(4000, (6, 3), straight=straight)
    release = make(0.3 * math.sqrt(300)).aggregate(votes, generator=np.random.default_rng(0))
    assert release.columns is not None and release.columns.all()
    student = student_of(release, votes.features, votes.num_teachers)
    elsewhere, truth = signs(500, np.random.default_rng(6))
    truth = (elsewhere[:, :3] > 0.2).astype(np.uint8) if straight else truth
    assert student.departs.all()
    assert ((student.predict(elsewhere) > 0.5) == truth).mean() > 0.75


@pytest.mark.parametrize("bent", [False, True])
def test_what_few_public_samples_mistake_is_no_bend(bent: bool) -> None:
    votes = in_parts(8000, (6, 3), straight=not bent, rare=True)
    release = make(0.1 * math.sqrt(300)).aggregate(votes, generator=np.random.default_rng(0))
    student = student_of(release, votes.features, votes.num_teachers)
    assert np.abs(student.weights[:6]).max() > 0.5
    assert (np.abs(student.weights[6:9]).max() > 1) == bent
