"""What is refused, or said, before a release is paid for: what is hopeless, and a forecast.

`refuse_hopeless` refuses by public facts every release that is yet to be paid for: runs, `pate
label`, the estimator and silos reach it by `RunPlan.check`. `describe_hopeless` knows private
records, and speaks to their owner alone. Both go by the same `voters_needed` and
`effective_columns`.

A `Forecast` says how many queries a mechanism that may abstain will answer. The agreement of
teachers is simulated from public samples and labels that are made up, as a function of the number
of records that a teacher gets. No simulation knows the true labels, so that the forecast is a range
between an easy and a hard one:

- easy: public samples fall into a few groups by their nearest neighbors, with one set of labels
  each;
- hard: each label depends on a direction of its own, and one in ten is wrong.

Linear teachers learn such labels, and vote on other public samples. Votes of more teachers are
drawn by their shares, and answered by the mechanism itself.

Teachers that start from a released student correct its answers, so that they agree by far more. A
student that is there answers the public samples: its labels are the true ones of the easy
simulation, and drawn by its probabilities in the hard one. A student that is yet to be released
has learned the made-up labels. In the hard simulation a student is wrong more often than it says,
and one that is yet to be released knows little of most labels. Networks that start from a student
change more freely than such corrections, and agree less: only the upper end is theirs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import sqrt
from typing import Any, NamedTuple

import numpy as np

from pate._core.files.writing import text_table
from pate._core.transaction import suited_delta
from pate._core.validation import (
    MOST_VOTERS,
    UNKNOWN,
    BoolArray,
    FloatArray,
    IntArray,
    UInt8Array,
    given,
    require,
)
from pate._labeling.aggregators.base import LEAST_ANSWERED, Aggregator
from pate._labeling.aggregators.clipped_votes import ClippedVotes, Rounds
from pate._labeling.aggregators.noisy_votes import NoisyVotes, SiloVotes
from pate._labeling.data.records import Features
from pate._labeling.linear import flat
from pate._labeling.release.label_settings import LabelSettings, first_settings, resolve_settings
from pate._labeling.runs.vote_store import VoteFacts
from pate._labeling.teachers import ClosedFormPlan
from pate._labeling.votes.kinds import Counts, Moments, VoteShape, serves

_UNSTATED = 100_000  # records, beyond which a public number of them must be stated
_MOST_COLUMNS = 10  # for each record
_MOST_NOISE = 5  # for each vote of a part, where a student learns from moments or clipped votes


def refuse_hopeless(
    settings: LabelSettings,
    votes: VoteFacts,
    *,
    is_taught: bool = False,
    records: int | None = None,
    columns: float = 0.0,
) -> None:
    """Raise ``ValueError`` if public facts tell that a release will be of no use.

    Some votes must have `LEAST_ANSWERED` of the queries answered. If all teachers agree on all
    queries, noise must leave something of it.

    Args:
        settings: the settings of the release, complete.
        votes: the public facts about its votes, which may be yet to be cast.
        is_taught: whether there are public samples, of which a student learns.
        records: the public number of records. None if none is stated.
        columns: the `effective_columns` of public samples, where ``records`` are stated.
    """
    aggregator, shape = settings.mechanism, votes.shape
    name, number = type(aggregator).__name__, settings.num_queries or len(votes.ids)
    answered = aggregator.max_answer_probability(shape)
    noise = " and ".join(f"{name}={scale:.4g}" for name, scale in aggregator.noise.items())
    require(
        answered >= LEAST_ANSWERED,
        f"at least {LEAST_ANSWERED:.0%} of the queries answered where all {shape.num_teachers}"
        f" teachers agree, by less noise than {noise} of {name} (fewer"
        " queries, a larger target_epsilon or delta, a lower threshold or more teachers)",
        answered=float(f"{answered:.2g}"),
    )
    if settings.allow_few:
        return
    require(not is_taught or len(votes.ids) > 1, "two public samples or more", samples=1)
    require(
        columns <= _MOST_COLUMNS * (records or 0),
        f"at most {_MOST_COLUMNS} columns for each of {records} records (nominal_records), after"
        " those that follow from others: map the features to fewer",
        columns=round(columns),
    )
    advice = f"for noise of {noise} (fewer queries or labels, or a larger target_epsilon)"
    if votes.kind is Moments and shape.num_teachers == MOST_VOTERS:
        needed, least = voters_needed(settings, shape.num_labels), records or _UNSTATED
        stated = (
            f"nominal_records >= {needed:,.0f} {advice}"
            if records
            else f"a larger epsilon, or fewer queries or labels: noise of {noise} takes"
            f" {needed:,.0f} records, and nominal_records must state more than {_UNSTATED:,}"
        )
        require(
            needed <= least,
            stated,
            **given(nominal_records=records, target_epsilon=settings.target_epsilon),
        )
    most = {NoisyVotes: sqrt(number) / 2, SiloVotes: sqrt(number) / 2}
    most |= dict.fromkeys((ClippedVotes, Rounds), float(_MOST_NOISE))
    least_noise, bound = min(aggregator.noise.values(), default=0.0), most.get(type(aggregator))
    require(
        bound is None or least_noise <= bound * shape.num_teachers,
        f"num_teachers >= {least_noise / (bound or 1):,.0f} {advice}",
        num_teachers=shape.num_teachers,
    )


def voters_needed(settings: LabelSettings, num_labels: int) -> float:
    """Return how many records must vote for labels that are better than a constant answer.

    They share one sensitivity among labels. With 5 labels at epsilon 2, 420 records suffice, and
    with 500 labels 2,000 barely do.
    """
    noise = min(settings.mechanism.noise.values(), default=0.0)
    return max(5.0, 2 * sqrt(num_labels)) * noise


def effective_columns(features: FloatArray) -> float:
    """Return how many columns samples ``[P, F]`` have that do not follow from others.

    It is ``tr(S)^2 / tr(S^2)`` of their covariance S, without bias by the number of samples.
    """
    centered = features - features.mean(axis=0)
    products = centered @ centered.T
    others = products[~np.eye(len(products), dtype=np.bool_)]
    # the mean of products is what centering leaves
    squares = float(others.var()) if others.size else 0.0
    return float(np.diag(products).mean() ** 2 / squares) if squares else 0.0


REMEDY = (
    "Fewer queries, a larger epsilon, more teachers, teachers that start from a release"
    " (start_from) or another aggregator help"
)


def describe_hopeless(
    plan: Any, settings: LabelSettings, num_units: int, *, num_labels: int = 1, columns: float = 0.0
) -> Iterator[str]:
    """Yield a line for each reason why a release promises or shows next to nothing. PRIVATE.

    Args:
        plan: how teachers are made.
        settings: the settings of the release, complete.
        num_units: the number of private units, which is PRIVATE.
        num_labels: the number of labels.
        columns: the `effective_columns` of public samples.
    """
    delta, units = settings.delta, f"{num_units} private records (or groups)"
    if delta * num_units >= 1:
        yield (
            f"{units} and delta = {delta:g}, not below one over their number: a program that"
            f" publishes one of them would be as private. delta = {suited_delta(num_units):g}"
            " suits."
        )
    yield from describe_few(plan, num_units)
    needed = voters_needed(settings, num_labels)
    alone = isinstance(plan, ClosedFormPlan) and plan.start_from is None
    if alone and num_units < needed:
        noise = min(settings.mechanism.noise.values(), default=0.0)
        yield (
            f"{units}, each with a vote, for noise of {noise:.3g} votes and {num_labels} labels:"
            " these will barely be better than a constant answer. Use more records"
            f" ({needed:,.0f}), fewer labels or a larger epsilon."
        )
    if columns > _MOST_COLUMNS * num_units:
        yield f"{units} for {columns:,.0f} columns: little can be learned. Map them to fewer."


_ENOUGH, _UNLIKE = 30, 1.5  # samples, and the ratio of deviations, that tell scales apart


def describe_unlike(private: FloatArray, public: FloatArray) -> Iterator[str]:
    """Yield a line if most columns of samples ``[N, F]`` are on another scale. PRIVATE."""
    if min(len(private), len(public)) < _ENOUGH:
        return
    spread, other = public.std(axis=0), private.std(axis=0)
    ratio = np.maximum(spread, other) / np.maximum(np.minimum(spread, other), 1e-30)
    far = np.abs(private.mean(axis=0) - public.mean(axis=0)) > 2 * np.maximum(spread, other)
    varied = (spread > 0) | (other > 0)
    if varied.any() and (share := ((ratio > _UNLIKE) | far)[varied].mean()) > 0.5:
        yield (
            f"{share:.0%} of the columns have another scale in public samples: what is learned on"
            " these will not fit the records. Are their units the same? If so, declare"
            " `shifted: true`."
        )


def describe_few(plan: Any, num_units: int) -> Iterator[str]:
    """Yield a line if there are too few private units for the networks of a plan. PRIVATE."""
    # a teacher without records repeats the released student
    trained = not isinstance(plan, ClosedFormPlan) and plan.start_from is None
    if trained and num_units < 2 * plan.num_teachers:
        yield (
            f"{num_units} private records (or groups) for {plan.num_teachers} teachers:"
            " most have one or none, and learn nothing. Choose fewer teachers, or `fit:"
            " closed_form`."
        )


_MOST_NAMED = 40  # labels


def describe_absent(labels: UInt8Array, names: Sequence[str]) -> Iterator[str]:
    """Yield a line if no private record has some of the labels ``[N, C]``, or all have. PRIVATE."""
    have, known = (labels == 1).sum(axis=0).tolist(), (labels != UNKNOWN).sum(axis=0).tolist()
    if none := [name for name, number in zip(names, have, strict=True) if not number]:
        yield (
            f"no private record has {_listed(none)}: nothing can be learned about such"
            " labels. Are their names as in the file?"
        )
    facts = zip(names, have, known, strict=True)
    if always := [name for name, number, known in facts if 0 < number == known]:
        yield (
            f"all private records that know {_listed(always)} have it: it will always"
            " be given. If a gap means 0 there, write 0."
        )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


SIZES = (4, 16, 64, 256)
"""Records of a teacher that are tried where no public number of records tells them."""
STARTED = (0.5, 1, 4, 16)
"""The same of teachers that start from a release: so many that some may have no record."""
_TEACHERS = (40, 400)  # that learn alone, and that start, of which there are many
_DIRECTIONS, _GROUPS = 32, 4
_WRONG = (0.1, 0.25)  # of labels that are made up, and of a released student's
_SHARE, _PENALTY = 0.25, 0.1  # of labels that a sample has
_MANY = 10_000  # teachers that noise is tried with before their number is known
LEAST = 16
"""The least number of public samples that a forecast is made from."""


class Expected(NamedTuple):
    """How many queries are answered: by the hard, and by the easy simulation."""

    least: float
    most: float

    def describe(self) -> str:
        """Return the range in words."""
        return f"{int(self.least)} to {int(np.ceil(self.most - 1e-9))}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Forecast:
    """A forecast of the answers of mechanisms to teachers.

    Args:
        features: ``[P, F]``, some public samples, as teachers see them.
        num_labels: the number of labels.
        starts: whether teachers start from a released student, or learn alone.
        networks: whether they are networks that start, of which only the upper end is forecast.
        answers: the probabilities ``[P, C]`` of that student, once it is released.
    """

    features: FloatArray
    num_labels: int
    starts: bool = False
    networks: bool = False
    answers: FloatArray | None = None
    _drawn: dict[tuple[float, bool], tuple[BoolArray, FloatArray]] = field(default_factory=dict)

    @cached_property
    def _samples(self) -> tuple[FloatArray, FloatArray, IntArray]:
        """Some public samples ``[P, D]`` along their principal directions, in an order ``[P]``.

        And products ``[P, P]`` of samples with a constant, in this order, by which corrections go.
        """
        order = np.random.default_rng(0).permutation(len(self.features))
        products = 1 + self.features[order] @ self.features[order].T
        some = (self.features - self.features.mean(axis=0))[order]
        values, vectors = np.linalg.eigh(some @ some.T)
        along = vectors[:, -_DIRECTIONS:] * np.sqrt(np.maximum(values[-_DIRECTIONS:], 0))
        scale = np.sqrt((along**2).sum(axis=1).mean())
        return along / max(scale, 1e-300), products / np.diag(products).mean(), order

    def _learned(self, size: float, *, easy: bool) -> tuple[BoolArray, FloatArray]:
        """Return labels ``[Q, C]`` of a simulation, and the share of teachers that give each."""
        if (size, easy) in self._drawn:
            return self._drawn[size, easy]
        random, (x, products, order) = np.random.default_rng(1), self._samples
        if self.answers is not None:
            start = self.answers[order]
            truth = start > (0.5 if easy else random.random(start.shape))
        else:
            truth = self._made_up(x, random, easy)
        half, ones = len(x) - len(x) // 2, np.column_stack((x, np.ones(len(x))))

        def labels_of(rows: IntArray) -> FloatArray:
            share = 0 if easy else _WRONG[self.answers is not None]
            wrong = random.random((len(rows), self.num_labels)) < share
            return np.asarray(truth[rows] ^ wrong, dtype=np.float64)

        if self.starts and self.answers is None:
            start = (1 + ones @ _ridge(ones[:half], 2 * labels_of(np.arange(half)) - 1)) / 2
            if not easy:
                start = _SHARE + np.linspace(0, 0.5, self.num_labels) * (start - _SHARE)
        votes, number = np.zeros((len(x) - half, self.num_labels)), _TEACHERS[self.starts]
        for _ in range(number):
            rows = random.integers(half, size=random.poisson(size) if self.starts else round(size))
            if self.starts:
                among = products[np.ix_(rows, rows)] + np.eye(len(rows))
                moved = np.linalg.solve(among, labels_of(rows) - start[rows])
                votes += start[half:] + products[half:, rows] @ moved > 0.5
            else:
                votes += ones[half:] @ _ridge(ones[rows], 2 * labels_of(rows) - 1) > 0
        self._drawn[size, easy] = truth[half:], votes / number
        return self._drawn[size, easy]

    def _made_up(self, x: FloatArray, random: np.random.Generator, easy: bool) -> BoolArray:
        """Return made-up labels ``[P, C]`` of samples ``[P, D]``."""
        if not easy:
            scores = x @ random.standard_normal((x.shape[1], self.num_labels))
            return np.asarray(scores > np.quantile(scores, 1 - _SHARE, axis=0))
        centers = x[random.choice(len(x), _GROUPS)]
        nearest = ((x[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
        sets = random.random((_GROUPS, self.num_labels)) < _SHARE
        sets[range(_GROUPS), np.arange(_GROUPS) % self.num_labels] = True
        return np.asarray(sets[nearest])

    def expect(self, settings: LabelSettings, num_teachers: int, size: float) -> Expected:
        """Return how many queries of complete settings are answered to teachers of ``size``."""
        shape, number = VoteShape(num_teachers, self.num_labels), settings.num_queries or 0
        shares = [self._answered(settings.mechanism, shape, size, easy) for easy in (False, True)]
        return Expected(0 if self.networks else number * min(shares), number * max(shares))

    def _answered(self, aggregator: Aggregator, shape: VoteShape, size: float, easy: bool) -> float:
        """Return the share of answers. No label is one where all are answered, or it is true."""
        truth, shares = self._learned(size, easy=easy)
        release = aggregator.aggregate(
            Counts(
                counts=np.random.default_rng(2).binomial(shape.num_teachers, shares),
                num_teachers=shape.num_teachers,
            ),
            generator=np.random.Generator(np.random.Philox(key=0)),
        )
        if release.mask.all():
            return 1.0
        useful = np.asarray(release.labels.any(axis=1) | ~truth.any(axis=1))
        return float((release.mask & useful[:, None]).mean())

    def teachers_needed(
        self, settings: LabelSettings, num_teachers: int, size: float, *, share: float, easy: bool
    ) -> int | None:
        """Return how many teachers of ``size`` answer a share of queries. None beyond 90,000."""
        shapes = (
            VoteShape(max(2, int(digit * 10**power)), self.num_labels)
            for power in range(5)
            for digit in (1, 1.5, *range(2, 10))
        )
        return next(
            (
                shape.num_teachers
                for shape in shapes
                if shape.num_teachers >= num_teachers
                and self._answered(settings.mechanism, shape, size, easy) >= share
            ),
            None,
        )

    def describe(
        self, settings: LabelSettings, num_teachers: int, sizes: Sequence[float] = ()
    ) -> str:
        """Return the forecast for complete settings in words, empty if all are answered.

        Args:
            settings: the settings of the labels.
            num_teachers: the number of teachers.
            sizes: numbers of records of a teacher. Those of the private records are PRIVATE. By
                default what is public tells them.
        """
        sizes, number = sizes or self._sizes(settings, num_teachers), settings.num_queries or 0
        ranges = {size: self.expect(settings, num_teachers, size) for size in sizes}
        if all(each.least >= number for each in ranges.values()):
            return ""
        words = [f"{each.describe()} where each has {size:.3g}" for size, each in ranges.items()]
        asked = settings.target_epsilon
        line = (
            f"Forecast{f' at epsilon {asked:g}' if asked else ''}: {num_teachers} teachers answer"
            f" {', '.join(words)} records, of {number} queries (by linear teachers of public"
            " samples, with labels that are made up or released, hard and easy ones"
            f"{'; an upper end for networks' if self.networks else ''})."
        )
        if min(each[self.networks] for each in ranges.values()) >= 1:
            return line
        more = self.teachers_needed(
            settings, num_teachers, sizes[0], share=1 / 2, easy=self.networks
        )
        need = "more than 90,000" if more is None else f"{'at least ' * self.networks}{more:,}"
        remedy = "" if self.starts else ", or a first release (start_from: first)"
        return f"{line} Half need {need} teachers of {sizes[0]:.3g}{remedy}."

    def table(self, around: Sequence[LabelSettings], num_teachers: int) -> list[str]:
        """Return a table of (teachers, queries, epsilon) for complete settings around a plan's."""
        sizes, known = self._sizes(around[0], num_teachers), around[0].nominal_records is not None
        heads = ["answered"] if known else [f"if each has {size} records" for size in sizes]
        rows = [["teachers", "queries", "epsilon", *heads]]
        for each in around:
            epsilon = "" if each.target_epsilon is None else f"{each.target_epsilon:g}"
            for teachers in (num_teachers, 2 * num_teachers, 4 * num_teachers):
                sizes = self._sizes(each, teachers)
                ranges = [self.expect(each, teachers, size).describe() for size in sizes]
                rows += [[str(teachers), str(each.num_queries), epsilon, *ranges]]
        return text_table(rows)

    def refuse_few(self, settings: LabelSettings, num_teachers: int) -> None:
        """Raise ``ValueError`` if not one query may be answered, as far as public facts tell.

        Where no public number of records is stated, each that is tried must have an answer: if the
        true number decided, each release would tell of it.
        """
        ends = [
            self.expect(settings, num_teachers, size)[self.networks]
            for size in self._sizes(settings, num_teachers)
        ]
        stated = "a public nominal_records that promises" if max(ends) >= 1 else "a forecast of"
        require(
            settings.allow_few or min(ends) >= 1,
            f"{stated} one answer, or allow_few. {self.describe(settings, num_teachers)[:-1]}",
            nominal_records=settings.nominal_records,
            answered=float(f"{min(ends):.2g}"),
        )

    def _sizes(self, settings: LabelSettings, num_teachers: int) -> Sequence[float]:
        """Return how many records a teacher gets, as far as it is public."""
        records = settings.nominal_records
        if records is None:
            return STARTED if self.starts else SIZES
        size = records / num_teachers
        return (size if self.starts else max(1, round(size)),)


def _ridge(samples: FloatArray, targets: FloatArray) -> FloatArray:
    normal = samples.T @ samples + _PENALTY * np.eye(samples.shape[1])
    return np.asarray(np.linalg.solve(normal, samples.T @ targets))


def may_abstain(aggregator: Aggregator) -> bool:
    """Return whether an aggregator answers counts, which is all that a forecast draws."""
    needs = aggregator.needs
    return not any(isinstance(need, str) for need in needs) and serves(Counts, needs)


def teachers_that_start(
    settings: LabelSettings, features: FloatArray, num_labels: int, *, size: float
) -> int | None:
    """Return how many teachers that start from a first release answer half of the hard queries.

    Both releases share a target. None if there are too few samples.

    Args:
        settings: the settings of the second release.
        features: ``[P, F]``, some public samples, on any scale.
        num_labels: the number of labels.
        size: how many records a teacher has.
    """
    if len(features) < LEAST:
        return None
    everybody = VoteShape(MOST_VOTERS, num_labels)
    shape = VoteShape(min(_MANY, math.ceil(1 / settings.delta) - 1), num_labels)
    first = resolve_settings(first_settings(settings), everybody, len(features), Moments)
    before = [first.charge(everybody)]
    complete = resolve_settings(settings, shape, len(features), before=before)
    centered = features - features.mean(axis=0)
    scale = max(float((centered**2).sum(axis=1).mean()), 1e-300) ** 0.5
    forecast = Forecast(features=centered / scale, num_labels=num_labels, starts=True)
    return forecast.teachers_needed(complete, 2, size, share=1 / 2, easy=False)


def some_of(features: Features) -> FloatArray:
    """Return up to 400 samples of features, flattened, evenly over all."""
    return flat(features[some_rows(features)])


def some_rows(features: Features) -> IntArray:
    """Return their rows."""
    return np.unique(np.linspace(0, features.shape[0] - 1, 400).astype(np.int64))
