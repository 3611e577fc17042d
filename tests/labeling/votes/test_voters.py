"""A voter's ballot moves the clipped sum by what it is, to the last bit, and by no more than its
clip."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit, logit

import pate._labeling.votes.voters
from pate._core.validation import MOST_VOTERS, FloatArray, IntArray, UInt8Array
from pate._labeling.linear import product_bits
from pate._labeling.votes.voters import ShapeQuery, clip_factors, encode_scores, with_drawn
from pate.aggregators import Geometry, GroupVoters, MomentQuery, RecordVoters, ScoreVoters, Voters
from pate.data import UNKNOWN

NUM_LABELS, NUM_FEATURES = 3, 5
GENERATOR = np.random.default_rng(0)
SPREADS = np.array([3.0, 1.0, 1.0, 0.3, 0.01])
PUBLIC = GENERATOR.normal(size=(40, NUM_FEATURES)) * SPREADS + 7
GEOMETRY = Geometry.of(PUBLIC)


def question_of(
    generator: np.random.Generator, geometry: Geometry = GEOMETRY, constant: float = 0.3
) -> MomentQuery:
    shares = generator.random(geometry.num_directions)
    return MomentQuery(
        geometry=geometry,
        shares=shares / shares.sum(),
        constant=constant,
        levels=generator.random(NUM_LABELS),
        slopes=generator.normal(size=(geometry.num_directions, NUM_LABELS)) / 4,
    )


def question_of_shape(generator: np.random.Generator, geometry: Geometry = GEOMETRY) -> ShapeQuery:
    return ShapeQuery(**vars(question_of(generator, geometry)))


@dataclass(frozen=True)
class Records:
    """What voters know: features, labels and whose they are, one row a record."""

    features: FloatArray
    labels: UInt8Array
    groups: IntArray

    @classmethod
    def drawn(cls, num: int, generator: np.random.Generator) -> "Records":
        features = (
            PUBLIC[generator.integers(0, len(PUBLIC), num)]
            + generator.normal(size=(num, NUM_FEATURES)) * SPREADS
        )
        labels = (generator.random((num, NUM_LABELS)) < 0.4).astype(np.uint8)
        return cls(features, labels, np.sort(generator.integers(0, num // 3, num)))

    def of(self, rows: NDArray[Any]) -> "Records":
        return Records(self.features[rows], self.labels[rows], self.groups[rows])


def record_voters(records: Records) -> Voters:
    return RecordVoters(
        geometry=GEOMETRY,
        num_voters=60,
        num_labels=NUM_LABELS,
        coordinates=GEOMETRY.coordinates(records.features),
        labels=records.labels,
    )


def group_voters(records: Records) -> GroupVoters:
    return GroupVoters(
        geometry=GEOMETRY,
        num_voters=20,
        num_labels=NUM_LABELS,
        coordinates=GEOMETRY.coordinates(records.features),
        labels=records.labels,
        groups=records.groups,
    )


def score_voters(records: Records) -> Voters:
    """Teachers whose scores on the public samples follow from the records of their group; others
    are absent."""
    scores = np.full((20, len(PUBLIC), NUM_LABELS), np.nan)
    for group in np.unique(records.groups):
        own = records.groups == group
        near = np.exp(-((PUBLIC[:, None] - records.features[own]) ** 2).sum(axis=2) / 9)
        scores[group] = near @ records.labels[own] / (near.sum(axis=1, keepdims=True) + 0.1)
    return ScoreVoters.of((encode_scores(scores[:7]), encode_scores(scores[7:])), PUBLIC)


Make = Callable[[Records], Voters]
KINDS: dict[str, tuple[Make, bool]] = {
    "records": (record_voters, False),
    "groups": (group_voters, True),
    "scores": (score_voters, True),
}


OF_RECORDS = [
    (kind, ask) for ask in (question_of, question_of_shape) for kind in ("records", "groups")
]


def assert_alone(make: Make, by_group: bool, ask: Callable[..., MomentQuery] = question_of) -> None:
    """Assert that a voter who leaves, or changes, moves the sum by its own ballot and nothing else,
    bit for bit."""
    generator = np.random.default_rng(1)
    records, question = Records.drawn(60, generator), ask(generator)
    clip = float(np.quantile(make(records).norms(question), 0.6))
    total = make(records).clipped_sum(question, clip)
    for row in range(0, 60, 7):
        own = records.groups == records.groups[row] if by_group else np.arange(60) == row
        without = make(records.of(~own)).clipped_sum(question, clip)
        alone = make(records.of(own)).clipped_sum(question, clip)
        np.testing.assert_array_equal(total - without, alone)
        assert np.linalg.norm(alone) <= clip
        count = make(records).num_private
        assert make(records.of(~own)).num_private == (None if count is None else count - 1)
        other = replace(records, labels=records.labels ^ own[:, None])
        changed = make(other).clipped_sum(question, clip) - without
        np.testing.assert_array_equal(changed, make(other.of(own)).clipped_sum(question, clip))
        assert np.linalg.norm(changed) <= clip


@pytest.mark.parametrize(("kind", "ask"), [*OF_RECORDS, ("scores", question_of)])
def test_a_voter_moves_the_sum_by_its_own_ballot(
    kind: str, ask: Callable[..., MomentQuery]
) -> None:
    assert_alone(*KINDS[kind], ask)


@pytest.mark.parametrize(("kind", "ask"), [*OF_RECORDS, ("scores", question_of)])
def test_blocks_and_order_change_no_bit(
    kind: str, ask: Callable[..., MomentQuery], monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(2)
    records, question = Records.drawn(300, generator), ask(generator)
    records = replace(records, groups=records.groups // 5)
    make, _ = KINDS[kind]
    norms, total = make(records).norms(question), make(records).clipped_sum(question, 0.3)
    order = np.argsort(records.groups + generator.random(300) * 0.5)
    shuffled = records.of(order)
    monkeypatch.setattr(pate._labeling.votes.voters, "_ENTRIES", 100)
    np.testing.assert_array_equal(np.sort(make(shuffled).norms(question)), np.sort(norms))
    np.testing.assert_array_equal(make(shuffled).clipped_sum(question, 0.3), total)


@pytest.mark.parametrize("kind", KINDS)
def test_sums_are_those_of_the_plain_definition(kind: str) -> None:
    generator = np.random.default_rng(3)
    records, question = Records.drawn(60, generator), question_of(generator, constant=0.7)
    voters = KINDS[kind][0](records)
    weights = np.sqrt(question.shares / GEOMETRY.variances)

    def basis(features: FloatArray) -> FloatArray:
        rows = GEOMETRY.linear(features) * weights
        rows /= np.maximum(1, np.linalg.norm(rows, axis=1) / 2)[:, None]
        return np.column_stack((rows, np.full(len(rows), question.constant)))

    def said(features: FloatArray) -> FloatArray:
        return np.asarray(
            expit(logit(question.levels) + GEOMETRY.linear(features) @ question.slopes)
        )

    if isinstance(voters, ScoreVoters):
        scores = np.concatenate(voters.scores).astype(np.float64)
        left = np.where(scores > 0, (scores - 1) / 254 - said(PUBLIC), 0)
        ballots = [basis(PUBLIC).T @ each / len(PUBLIC) for each in left]
    else:
        of = records.groups if isinstance(voters, GroupVoters) else np.arange(60)
        ballots = []
        for group in np.unique(of):
            own = records.of(of == group)
            ballots.append(
                basis(own.features).T @ (own.labels - said(own.features)) / len(own.labels)
            )
    norms = np.array([np.linalg.norm(each) for each in ballots])
    np.testing.assert_allclose(voters.norms(question), norms, rtol=1e-2)
    for clip in (10.0, float(np.median(norms)), 0.01):
        scaled = clip_factors(norms, clip) * norms
        assert (scaled < min(clip, norms.max() * 1.01)).all(), "rounding included"
        np.testing.assert_allclose(scaled[norms > clip], clip * (1 - 2.0**-30), rtol=2.0**-40)
        plain = sum(
            each * min(1, clip / max(norm, 1e-9)) for each, norm in zip(ballots, norms, strict=True)
        )
        np.testing.assert_allclose(
            voters.clipped_sum(question, clip), plain, atol=len(norms) * 1e-3 * min(clip, 1)
        )


@pytest.mark.parametrize("make", [record_voters, group_voters])
def test_an_unknown_label_adds_nothing_and_moves_counts_by_one_at_most(
    make: Callable[[Records], RecordVoters | GroupVoters],
) -> None:
    """A voter whose features, labels or unknown labels change, or who leaves."""
    generator = np.random.default_rng(6)
    records, question = Records.drawn(60, generator), question_of(generator)
    some = np.where(generator.random((60, NUM_LABELS)) < 0.4, UNKNOWN, records.labels)
    records = replace(records, labels=some.astype(np.uint8))

    def of(records: Records) -> tuple[FloatArray, FloatArray]:
        voters = replace(make(records), unknown_labels=True)
        knowing = voters.num_knowing
        assert knowing is not None
        return voters.clipped_sum(question, clip), knowing

    clip = float(np.quantile(make(records).norms(question), 0.6))
    assert make(records).num_knowing is None, "where no label is declared to be unknown"
    total, knowing = of(records)
    units = np.arange(60) if make is record_voters else records.groups
    for unit in np.unique(units):
        own = units == unit
        without, others = of(records.of(~own))
        alone, known = of(records.of(own))
        np.testing.assert_array_equal(total - without, alone)
        np.testing.assert_array_equal(knowing - others, known)
        shares = (records.labels[own] != UNKNOWN).mean(axis=0)
        np.testing.assert_allclose(known, shares, atol=2.0**-16)
        assert not alone[:, shares == 0].any()
        for labels in (0, 1, UNKNOWN):
            other = records.labels.copy()
            other[own] = labels
            altered, counts = of(replace(records, labels=other))
            assert np.linalg.norm(altered - total) <= 2 * clip
            assert np.linalg.norm(counts - knowing) <= math.sqrt(NUM_LABELS)


@pytest.mark.parametrize(("num", "labels"), [(3, (0, 1)), (1, (0, 1, UNKNOWN))])
def test_neighbors_move_the_sum_by_twice_the_clip_at_most_and_may_move_it_so_far(
    num: int, labels: tuple[int, ...]
) -> None:
    """All sets of three records of some kinds, one of them altered or gone, at several clips."""
    lengths = np.linalg.norm(GEOMETRY.linear(PUBLIC) / np.sqrt(GEOMETRY.variances), axis=1)
    features = PUBLIC[np.argsort(-lengths)[:num]]
    kinds = [(x, y) for x in features for y in itertools.product(labels, repeat=2)]
    question = MomentQuery(
        geometry=GEOMETRY,
        shares=np.full(NUM_FEATURES, 1 / NUM_FEATURES),
        constant=0.5,
        levels=np.full(2, 0.5),
        slopes=np.zeros((NUM_FEATURES, 2)),
    )

    def voters(chosen: tuple[int, ...]) -> Voters:
        return RecordVoters(
            geometry=GEOMETRY,
            num_voters=3,
            num_labels=2,
            coordinates=GEOMETRY.coordinates(
                np.array([kinds[i][0] for i in chosen]).reshape(-1, NUM_FEATURES)
            ),
            labels=np.array([kinds[i][1] for i in chosen], dtype=np.uint8).reshape(-1, 2),
            unknown_labels=UNKNOWN in labels,
        )

    rows = range(len(kinds))
    sets = [
        chosen for size in (2, 3) for chosen in itertools.combinations_with_replacement(rows, size)
    ]
    for clip in (0.2, 0.7, 5.0):
        sums = {chosen: voters(chosen).clipped_sum(question, clip) for chosen in sets}
        largest = {"altered": 0.0, "gone": 0.0}
        for chosen in itertools.combinations_with_replacement(rows, 2):
            grown = np.array([sums[tuple(sorted((*chosen, row)))] for row in rows])
            gone = np.linalg.norm(grown - sums[chosen], axis=(1, 2)).max()
            altered = np.linalg.norm(grown[:, None] - grown, axis=(2, 3)).max()
            largest = {
                "altered": max(largest["altered"], float(altered)),
                "gone": max(largest["gone"], float(gone)),
            }
        assert largest["gone"] <= clip and largest["altered"] <= 2 * clip, (
            "not even by a rounding error"
        )
        if clip < 1:
            assert largest["gone"] > 0.999 * clip and largest["altered"] > 1.998 * clip
    if UNKNOWN in labels:
        counts = np.array([voters((row,)).num_knowing for row in rows])
        moves = np.linalg.norm(counts[:, None] - counts[None], axis=2)
        assert moves.max() == np.linalg.norm(counts, axis=1).max() == math.sqrt(2)


@pytest.mark.parametrize("clip", [0.3, 2.0])
@pytest.mark.parametrize("kind", ["records", "groups"])
def test_records_move_the_sums_of_their_shapes_by_twice_the_clip_at_most(
    kind: str, clip: float
) -> None:
    """All pairs of extreme records, around samples that were moved."""
    corners = np.array([*itertools.product((-1e6, 0.0, 1e6), repeat=NUM_FEATURES)])
    moved = GEOMETRY.moved(np.full(NUM_FEATURES, 0.3), np.full(NUM_FEATURES, 1.7))
    question = question_of_shape(np.random.default_rng(4), moved)
    alone = np.zeros((len(corners), 1), dtype=np.int64)
    records = Records(corners, np.zeros((len(corners), NUM_LABELS), dtype=np.uint8), alone[:, 0])
    voters = [
        KINDS[kind][0](records.of(row)).along(moved) for row in np.arange(len(corners))[:, None]
    ]
    sums = np.array([each.clipped_sum(question, clip) for each in voters])
    gone = np.linalg.norm(sums, axis=(1, 2))
    altered = np.linalg.norm(sums[:, None] - sums, axis=(2, 3))
    assert 0.999 * clip < gone.max() <= clip
    assert 1.1 * clip < altered.max() <= 2 * clip


def unclipped(records: Records) -> Voters:
    class Unclipped(RecordVoters):
        def clipped_sum(self, question: MomentQuery, clip: float) -> FloatArray:
            return super().clipped_sum(question, 1e9)

    return Unclipped(**vars(record_voters(records)))


def centered_by_all(records: Records) -> Voters:
    moved = records.features - records.features.mean(axis=0) + PUBLIC.mean(axis=0)
    return record_voters(replace(records, features=moved))


def absent_who_deny(records: Records) -> Voters:
    voters = score_voters(records)
    assert isinstance(voters, ScoreVoters)
    return replace(voters, scores=[np.maximum(chunk, 1) for chunk in voters.scores])


@pytest.mark.parametrize("fault", [unclipped, centered_by_all, absent_who_deny])
def test_a_fault_is_found(fault: Make) -> None:
    with pytest.raises(AssertionError):
        assert_alone(fault, by_group=fault is absent_who_deny)


def test_no_ballot_exceeds_the_largest_norm_and_one_reaches_it() -> None:
    labels, shape = np.ones((2, NUM_LABELS), dtype=np.uint8), (GEOMETRY.num_directions, NUM_LABELS)
    question = replace(
        question_of(np.random.default_rng(3)), levels=np.zeros(NUM_LABELS), slopes=np.zeros(shape)
    )
    features = np.stack((np.full(NUM_FEATURES, 1e30), PUBLIC[0]))
    records = RecordVoters(
        geometry=GEOMETRY,
        num_voters=2,
        num_labels=NUM_LABELS,
        coordinates=GEOMETRY.coordinates(features),
        labels=labels,
    )
    wild, tame = records.norms(question) / question.largest_norm
    assert tame < 0.99 < wild < 1.001


def test_coordinates_of_a_row_do_not_depend_on_others() -> None:
    features = Records.drawn(500, np.random.default_rng(5)).features
    together = GEOMETRY.coordinates(features)
    for row in range(0, 500, 31):
        np.testing.assert_array_equal(
            GEOMETRY.coordinates(features[row : row + 1])[0], together[row]
        )
    np.testing.assert_allclose(together * GEOMETRY.unit, GEOMETRY.linear(features), atol=1e-4)
    wild = GEOMETRY.coordinates(np.full((1, NUM_FEATURES), 1e30))
    assert np.abs(wild).max() <= 2**20
    # as what a feature map may make of one record
    for value in (np.nan, np.inf, -np.inf):
        spoilt = features[:3].copy()
        spoilt[1] = value
        coordinates = GEOMETRY.coordinates(spoilt)
        assert np.abs(coordinates).max() <= 2**20
        np.testing.assert_array_equal(coordinates[[0, 2]], together[[0, 2]])
        as_number = np.full((1, NUM_FEATURES), np.nan_to_num(value, posinf=1e30, neginf=-1e30))
        np.testing.assert_array_equal(coordinates[1], GEOMETRY.coordinates(as_number)[0])


def test_directions_are_those_of_public_features() -> None:
    found = GEOMETRY.linear(PUBLIC)
    covariance = found.T @ found / len(PUBLIC)
    np.testing.assert_allclose(covariance, np.diag(GEOMETRY.variances), atol=1e-4)
    assert (np.diff(GEOMETRY.variances) < 0).all()
    few = Geometry.of(PUBLIC[:3])
    assert few.num_directions == 2
    with pytest.raises(ValueError, match=r"^Expected public features that differ[^\n]*$"):
        Geometry.of(np.ones((5, 2)))
    with pytest.raises(ValueError, match=r"^Expected finite features[^\n]*$"):
        Geometry.of(np.where(np.eye(5, 2), np.nan, 1.0))
    Geometry.of(PUBLIC[:2])
    with pytest.raises(
        ValueError, match=r"^Expected features of two public samples or more, got samples=1$"
    ):
        Geometry.of(PUBLIC[:1])
    with pytest.raises(ValueError, match=r"^Expected features of 5 numbers[^\n]*$"):
        GEOMETRY.coordinates(np.ones((2, 4)))


def test_an_absent_teacher_counts_as_nothing_after_the_centring() -> None:
    generator = np.random.default_rng(6)
    records, question = Records.drawn(60, generator), question_of(generator)
    voters = score_voters(records)
    assert isinstance(voters, ScoreVoters)
    (first, rest), clip = voters.scores, 0.05
    fourth = np.arange(len(first))[:, None, None] == 4
    away = replace(voters, scores=(np.where(fourth, np.uint8(0), first), rest))
    assert voters.norms(question)[4] > clip and away.norms(question)[4] == 0
    without = replace(voters, num_voters=19, scores=(np.delete(first, 4, axis=0), rest))
    np.testing.assert_array_equal(
        away.clipped_sum(question, clip), without.clipped_sum(question, clip)
    )
    moved = voters.clipped_sum(question, clip) - away.clipped_sum(question, clip)
    assert 0.04 < np.linalg.norm(moved) <= clip
    # who denies all labels takes part
    denies = replace(voters, scores=(np.where(fourth, np.uint8(1), first), rest))
    alone = denies.clipped_sum(question, clip) - away.clipped_sum(question, clip)
    assert 0.04 < np.linalg.norm(alone) <= clip and alone[-1].sum() < 0


@pytest.mark.parametrize("num_features", [1, 5, 37])
def test_coordinates_are_those_of_whole_numbers(num_features: int) -> None:
    """Of the widest features too, no product or sum of steps is rounded: as Python's integers have
    them."""
    generator = np.random.default_rng(9)
    public = generator.normal(size=(12, num_features))
    geometry = Geometry.of(public)
    # axes have length 1
    most, largest = 2 ** round(math.log2(np.linalg.norm(geometry.axes[:, 0]))), 2**20
    # as fine as leaves two bits to spare, whatever the signs; features may be four times as large
    # as any public one
    places = 2 ** math.ceil(math.log2(num_features))
    assert places * most**2 <= 2**51 < 4 * places * most**2
    assert 4 * np.abs(public).max() <= geometry.step * most < 8 * np.abs(public).max()
    np.testing.assert_allclose(
        geometry.variances, (geometry.linear(public) ** 2).mean(axis=0), rtol=1e-4
    )
    signs = np.sign(geometry.axes.T) * 1e30
    for features in (*signs, *-signs, *generator.normal(size=(9, num_features))):
        steps = np.rint(features / geometry.step).clip(-most, most) - geometry.centre
        exact = [
            sum(int(step) * int(entry) for step, entry in zip(steps, axis, strict=True))
            for axis in geometry.axes.T
        ]
        assert max(map(abs, exact)) < 2**53
        coordinates = np.rint(
            np.array(exact, dtype=np.float64) * (geometry.step / most) / geometry.unit
        )
        np.testing.assert_array_equal(
            geometry.coordinates(features[None])[0], coordinates.clip(-largest, largest)
        )
    assert largest / 8 <= np.abs(geometry.samples).max() <= largest / 4, (
        "a record may lie four times as far out"
    )


def test_bases_and_residuals_are_whole_numbers_that_add_up_exactly() -> None:
    """In steps of 2^-12 and 2^-16; sums over the most voters that there may be are below 2^53."""
    question = question_of(np.random.default_rng(4), constant=1.0)
    features = np.concatenate((PUBLIC, 1e30 * np.sign(PUBLIC - 7)))
    basis = question.basis(GEOMETRY.coordinates(features))
    np.testing.assert_array_equal(basis, np.rint(basis))
    assert (basis[:, -1] == 2**12).all()
    norms = np.linalg.norm(basis[:, :-1], axis=1)
    assert norms.max() <= 2 * 2**12 and (norms[len(PUBLIC) :] > 2 * 2**12 * 0.999).all()
    sure = replace(
        question, levels=np.array([-9.0, 9.0, 0.25]), slopes=np.zeros_like(question.slopes)
    )
    labels = np.tile([1, 0, 0], (len(PUBLIC), 1)).astype(np.uint8)
    _, residuals = sure.products(GEOMETRY.samples, labels)
    np.testing.assert_array_equal(residuals, np.tile([2**16, -(2**16), -(2**14)], (len(PUBLIC), 1)))
    assert np.abs(basis).max() * 2**16 * MOST_VOTERS <= 2**53
    # of a sample far off, entries are cut at 32 before all of them are scaled down to a norm of 2
    weighed = GEOMETRY.coordinates(features[-1:]) * GEOMETRY.unit * question.weights
    cut = weighed.clip(-32, 32)
    assert ((np.abs(weighed) > 32).any() and np.abs(weighed).min() < 32) and np.linalg.norm(cut) > 2
    np.testing.assert_allclose(
        basis[-1:, :-1] / 2**12, cut * 2 / np.linalg.norm(cut), atol=2.0**-11
    )


@pytest.mark.parametrize("kind", ["record", "group"])
def test_a_part_has_directions_of_its_own(kind: str) -> None:
    """Voters along the first part are the voters of its columns, whatever stands next to them."""
    generator = np.random.default_rng(0)
    public, features = generator.normal(size=(2, 60, 7))
    labels = generator.integers(2, size=(60, 3)).astype(np.uint8)
    settings: dict[str, Any] = {"num_voters": 60, "num_labels": 3, "labels": labels}

    def made(of: FloatArray, among: FloatArray, widths: tuple[int, ...] = ()) -> Voters:
        geometry = Geometry.of(among, widths)
        coordinates = geometry.coordinates(of)
        if kind == "record":
            return RecordVoters(geometry=geometry, coordinates=coordinates, **settings)
        return GroupVoters(
            geometry=geometry, coordinates=coordinates, groups=np.arange(60) // 4, **settings
        )

    whole = made(features, public, (4, 3))
    assert whole.geometry.parts.tolist() == [0] * 4 + [1] * 3
    assert not whole.geometry.axes[4:, :4].any() and not whole.geometry.axes[:4, 4:].any()
    centre, axes = whole.geometry.centre, whole.geometry.axes
    # sums of whole numbers below 2^53, which are exact without the zeros of other parts and with
    projected = (np.rint(features / whole.geometry.step) - centre) @ axes
    grid = whole.geometry.step / (1 << product_bits(7)) / whole.geometry.unit
    np.testing.assert_array_equal(whole.geometry.coordinates(features), np.rint(projected * grid))
    part, alone = whole.along(whole.geometry.first_part), made(features[:, :4], public[:, :4])
    for voters in (part, alone):
        assert voters.num_private == whole.num_private
    np.testing.assert_allclose(
        part.geometry.linear(features), alone.geometry.linear(features[:, :4]), atol=1e-4
    )
    one, other = (np.sort(voters.norms(question_on(voters.geometry))) for voters in (part, alone))
    np.testing.assert_allclose(one, other, rtol=1e-2)
    for voters in (whole, alone):
        assert voters.along(voters.geometry) is voters
    assert alone.geometry.first_part is alone.geometry


def question_on(geometry: Geometry) -> MomentQuery:
    num = geometry.num_directions
    return MomentQuery(
        geometry=geometry,
        shares=np.full(num, 1 / num),
        constant=1.0,
        levels=np.full(3, 0.5),
        slopes=np.zeros((num, 3)),
    )


def test_samples_drawn_beside_few_have_their_moments_and_smaller_covariances() -> None:
    generator = np.random.default_rng(0)
    public = generator.normal(size=(40, 3)) @ generator.normal(size=(3, 60)) + 7
    public[:, 1] = 2 * public[:, 0]
    drawn = with_drawn(public)
    np.testing.assert_array_equal(drawn[:40], public)
    drawn = drawn[40:]
    error = public.std(axis=0) / len(drawn) ** 0.5
    assert (np.abs(drawn.mean(axis=0) - public.mean(axis=0)) < 5 * error).all()
    assert (np.abs(drawn.std(axis=0) - public.std(axis=0)) < 5 * error / 2**0.5).all()
    both = np.asarray(np.corrcoef(drawn[:, :2].T))[0, 1]
    assert 0.8 < both < 0.99  # it is 1 among the public ones
