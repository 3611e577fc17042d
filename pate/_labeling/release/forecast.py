"""How many queries a mechanism that may abstain will answer, forecast before anything is paid.

The agreement of teachers is simulated from public samples and labels that are made up, as a
function of the number of records that a teacher gets. No simulation knows the true labels, so that
the forecast is a range between an easy and a hard one:

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
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pate._core.files.writing import text_table
from pate._core.validation import MOST_VOTERS, BoolArray, FloatArray, IntArray, require
from pate._labeling.aggregators.base import Aggregator
from pate._labeling.data.records import Features
from pate._labeling.linear import flat
from pate._labeling.release.label_settings import LabelSettings, first_settings, resolve_settings
from pate._labeling.votes.kinds import Counts, Moments, VoteShape, serves

SIZES = (4, 16, 64, 256)
"""Records of a teacher that are tried where no public number of records tells them."""
STARTED = (1, 2, 4, 16)
"""The same of teachers that start from a release, of which there are many."""
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
