"""How many queries a mechanism that may abstain will answer, forecast before anything is paid.

The agreement of teachers is simulated from public samples and labels that are made up, as a
function of the number of records that a teacher gets. No simulation knows the true labels, so that
the forecast is a range between an easy and a hard one:

- easy: public samples fall into a few groups by their nearest neighbors, with one set of labels
  each;
- hard: each label depends on a direction of its own, and one in ten is wrong.

Linear teachers learn such labels, and vote on other public samples. Votes of more teachers are
drawn by their shares, and answered by the mechanism itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pate._core.files.writing import text_table
from pate._core.validation import BoolArray, FloatArray, require
from pate._labeling.aggregators.base import Aggregator
from pate._labeling.release.label_settings import LabelSettings, resolve_settings
from pate._labeling.votes.kinds import Counts, VoteShape, serves

SIZES = (4, 16, 64, 256)
"""Records of a teacher that are tried where no public number of records tells them."""
_TEACHERS, _DIRECTIONS, _GROUPS = 40, 32, 4
_WRONG, _SHARE, _PENALTY = 0.1, 0.25, 0.1  # of labels that are wrong, of labels that a sample has
_NEARLY_ALL = 0.9


class Expected(NamedTuple):
    """How many queries are answered: by the hard, and by the easy simulation."""

    least: float
    most: float

    def describe(self) -> str:
        """Return the range in words."""
        return f"{int(self.least)} to {int(np.ceil(self.most - 1e-9))}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Forecast:
    """A forecast of the answers of mechanisms to teachers that learn alone.

    Args:
        features: ``[P, F]``, some public samples, as teachers see them.
        num_labels: the number of labels.
    """

    features: FloatArray
    num_labels: int
    _drawn: dict[tuple[int, bool], tuple[BoolArray, FloatArray]] = field(default_factory=dict)

    @cached_property
    def _samples(self) -> FloatArray:
        """Some public samples ``[P, D]`` along their principal directions."""
        some = self.features - self.features.mean(axis=0)
        values, vectors = np.linalg.eigh(some @ some.T)
        along = vectors[:, -_DIRECTIONS:] * np.sqrt(np.maximum(values[-_DIRECTIONS:], 0))
        scale = np.sqrt((along**2).sum(axis=1).mean())
        return np.asarray(np.random.default_rng(0).permutation(along / max(scale, 1e-300)))

    def _learned(self, size: int, *, easy: bool) -> tuple[BoolArray, FloatArray]:
        """Return made-up labels ``[Q, C]``, and the share of teachers that give each."""
        if (size, easy) in self._drawn:
            return self._drawn[size, easy]
        random, x = np.random.default_rng(1), self._samples
        if easy:
            centers = x[random.choice(len(x), _GROUPS)]
            nearest = ((x[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
            sets = random.random((_GROUPS, self.num_labels)) < _SHARE
            sets[range(_GROUPS), np.arange(_GROUPS) % self.num_labels] = True
            truth = sets[nearest]
        else:
            scores = x @ random.standard_normal((x.shape[1], self.num_labels))
            truth = scores > np.quantile(scores, 1 - _SHARE, axis=0)
        learned, asked = np.array_split(np.column_stack((x, np.ones(len(x)))), 2)
        votes = np.zeros((len(asked), self.num_labels))
        for _ in range(_TEACHERS):
            rows = random.integers(len(learned), size=size)
            wrong = random.random((size, self.num_labels)) < (0 if easy else _WRONG)
            own, targets = learned[rows], 2.0 * (truth[rows] ^ wrong) - 1
            normal = own.T @ own + _PENALTY * np.eye(own.shape[1])
            votes += asked @ np.linalg.solve(normal, own.T @ targets) > 0
        self._drawn[size, easy] = truth[len(learned) :], votes / _TEACHERS
        return self._drawn[size, easy]

    def expect(self, settings: LabelSettings, num_teachers: int, size: int) -> Expected:
        """Return how many queries of complete settings are answered to teachers of ``size``."""
        shape, number = VoteShape(num_teachers, self.num_labels), settings.num_queries or 0
        answers = (self._answered(settings.mechanism, shape, size, easy) for easy in (False, True))
        return Expected(*(number * share for share in answers))

    def _answered(self, aggregator: Aggregator, shape: VoteShape, size: int, easy: bool) -> float:
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

    def teachers_needed(self, settings: LabelSettings, num_teachers: int, size: int) -> str:
        """Return in words how many teachers of ``size`` answer nearly all easy queries."""
        for number in (
            digit * 10**power for power in range(5) for digit in (1, 1.5, *range(2, 10))
        ):
            shape = VoteShape(max(num_teachers, int(number)), self.num_labels)
            if number < num_teachers:
                continue
            if self._answered(settings.mechanism, shape, size, True) >= _NEARLY_ALL:
                return f"at least {number:,g}"
        return "more than 90,000"

    def describe(
        self, settings: LabelSettings, num_teachers: int, sizes: Sequence[int] = ()
    ) -> str:
        """Return the forecast for complete settings in words, empty if all are answered.

        Args:
            settings: the settings of the labels.
            num_teachers: the number of teachers.
            sizes: numbers of records of a teacher. Those of the private records are PRIVATE. By
                default what is public tells them.
        """
        sizes, number = sizes or _sizes(settings, num_teachers), settings.num_queries or 0
        ranges = {size: self.expect(settings, num_teachers, size) for size in sizes}
        if all(each.least >= number for each in ranges.values()):
            return ""
        words = [f"{each.describe()} where each has {size}" for size, each in ranges.items()]
        asked = settings.target_epsilon
        line = (
            f"Forecast{f' at epsilon {asked:g}' if asked else ''}: {num_teachers} teachers answer"
            f" {', '.join(words)} records, of {number} queries (linear teachers of public samples"
            " with made-up labels, hard and easy ones)."
        )
        size, poor = sizes[0], ranges[sizes[0]].least < 1
        if not poor:
            return line
        more = self.teachers_needed(settings, num_teachers, size)
        return f"{line} All need {more} teachers of {size}, or a first release (start_from: first)."

    def table(self, settings: LabelSettings, num_teachers: int) -> list[str]:
        """Return a table of (teachers, queries, epsilon) around complete settings."""
        number, asked = settings.num_queries or 0, settings.target_epsilon
        around = [settings]
        if asked is not None:
            around += [replace(settings, num_queries=max(1, number // 2))]
            around += [replace(settings, target_epsilon=2 * asked)]
        known = settings.nominal_records is not None
        heads = ["answered"] if known else [f"if each has {size} records" for size in SIZES]
        rows = [["teachers", "queries", "epsilon", *heads]]
        for each in around:
            try:
                scaled = resolve_settings(each, VoteShape(num_teachers, self.num_labels), number)
            except ValueError:  # no such release is possible
                continue
            epsilon = "" if asked is None else f"{scaled.target_epsilon:g}"
            for teachers in (num_teachers, 2 * num_teachers, 4 * num_teachers):
                sizes = _sizes(each, teachers)
                ranges = [self.expect(scaled, teachers, size).describe() for size in sizes]
                rows += [[str(teachers), str(scaled.num_queries), epsilon, *ranges]]
        return text_table(rows)

    def refuse_few(self, settings: LabelSettings, num_teachers: int) -> None:
        """Raise ``ValueError`` if not one query will be answered, as far as public facts tell."""
        size = _sizes(settings, num_teachers)[-1]
        expected = self.expect(settings, num_teachers, size)
        require(
            settings.allow_few or expected.most >= 1,
            f"one of {settings.num_queries} queries answered by {num_teachers} teachers of about"
            f" {size} records (fewer queries, a larger target_epsilon, more teachers, start_from:"
            " first or another aggregator; or allow_few)",
            answered=float(f"{expected.most:.2g}"),
        )


def _sizes(settings: LabelSettings, num_teachers: int) -> Sequence[int]:
    """Return how many records a teacher gets, as far as it is public."""
    records = settings.nominal_records
    return SIZES if records is None else (max(1, round(records / num_teachers)),)


def may_abstain(aggregator: Aggregator) -> bool:
    """Return whether an aggregator answers counts, which is all that a forecast draws."""
    needs = aggregator.needs
    return not any(isinstance(need, str) for need in needs) and serves(Counts, needs)
