"""Releases of two neighbors with the same outcome of every draw, and how far their draws move.

The first data set draws, and keeps each outcome. The second is given these outcomes in place of its
own. So both take the same public path, and noise pays for no public byte that differs. A Gaussian
draw moves by the distance of its means over its deviation, and the squares add up to ``mu^2`` of
the path (Dong, Roth & Su (2022), Corollary 3.3). A choice moves by its law on either side.
NOT PRIVATE.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from scipy.signal import fftconvolve
from scipy.special import ndtr

from pate._core.accounting.base import leaves
from pate._core.accounting.cost import NeighboringRelation, gaussian_epsilon
from pate._core.accounting.events import GaussianEvent, GaussianThresholdEvent
from pate._core.accounting.statement import Statement
from pate._core.mechanisms.base import NotStatedError
from pate._core.mechanisms.noise import WatchedGenerator, add_gaussian, exceeds, private_generator
from pate._core.transaction import release
from pate._core.validation import BoolArray, FloatArray
from pate._labeling.aggregators.base import Aggregator, Release
from pate._labeling.aggregators.clipped_votes import Rounds
from pate._labeling.aggregators.noisy_votes import Screen
from pate._labeling.release.label_settings import LabelSettings
from pate._labeling.release.labels import LabelsRelease
from pate._labeling.runs.run import LABEL, Run
from pate._labeling.runs.vote_store import finished_votes, load_votes
from pate._labeling.votes.kinds import Ballots, Counts

Laws = tuple[FloatArray, FloatArray]
"""``[n, N]`` each: the chances of N outcomes of n steps, on votes and on their neighbors."""

_LOST = 0.01  # of epsilon, by rounding to the grid, unless the grid would have more cells than this
_CELLS = 2e7
_FFT_ERROR = 1e-14  # relative to the norms of both factors: far above the error of double precision
_LARGEST = 700.0  # epsilon: exp overflows beyond it


class DivergedError(Exception):
    """The neighbor makes other draws on the same path: their number or noise is not public."""


@dataclass(frozen=True, eq=False)
class Sums:
    """Gaussian noise of ``sigma`` on ``values``: released as sums, or compared with thresholds."""

    values: FloatArray
    sigma: float
    outcome: Any = field(repr=False)

    def squared_moves(self, other: Sums) -> FloatArray:
        """Return the squared distances of the means in deviations, of the shape of ``values``."""
        return np.asarray(((self.values - other.values) / self.sigma) ** 2)


@dataclass(frozen=True, eq=False)
class Choice:
    """A release by an aggregator whose noise is not Gaussian."""

    aggregator: Aggregator
    votes: Any
    outcome: Release = field(repr=False)


Draw = Sums | Choice


class ForcedGenerator(WatchedGenerator):
    """A generator that keeps the draws of one data set, or forces them upon its neighbor.

    Args:
        key: the key of the noise, and of all other random numbers, which are the same for both.
        kept: the draws of the first data set. None for the first one.
    """

    def __init__(self, key: int, kept: Sequence[Draw] | None = None) -> None:
        super().__init__(np.random.Philox(key=key % 2**128))
        self.draws: list[Draw] = []
        self._kept, self._noise = kept, private_generator(key)
        self._unused = str(self.bit_generator.state)

    @property
    def drew_otherwise(self) -> bool:
        """Whether numbers were drawn that nothing here sees."""
        return str(self.bit_generator.state) != self._unused

    def sum(self, values: FloatArray, sigma: float) -> FloatArray:
        return self._made(
            lambda: Sums(values, sigma, add_gaussian(values, sigma=sigma, generator=self._noise)),
            lambda kept: replace(kept, values=values),
            _same_form(values, sigma),
        )

    def test(self, leads: FloatArray, sigma: float) -> BoolArray:
        return self._made(
            lambda: Sums(leads, sigma, exceeds(leads, 0.0, sigma=sigma, generator=self._noise)),
            lambda kept: replace(kept, values=leads),
            _same_form(leads, sigma),
        )

    def answer(self, aggregate: Callable[..., Any], aggregator: Any, votes: Any) -> Any:
        if is_gaussian(aggregator, votes):
            return aggregate(aggregator, votes, generator=self)
        return self._made(
            lambda: Choice(aggregator, votes, aggregate(aggregator, votes, generator=self._noise)),
            lambda kept: replace(kept, votes=votes),
            lambda kept: isinstance(kept, Choice) and kept.votes.num_queries == votes.num_queries,
        )

    def _made(
        self,
        draw: Callable[[], Draw],
        forced: Callable[[Any], Draw],
        is_same: Callable[[Draw], bool],
    ) -> Any:
        """Return the outcome of the next draw, which is made or forced."""
        if self._kept is None:
            made = draw()
        else:
            place = len(self.draws)
            if place == len(self._kept) or not is_same(self._kept[place]):
                raise DivergedError(f"draw {place + 1} of the neighbor has another form or noise")
            made = forced(self._kept[place])
        self.draws.append(made)
        return made.outcome


def _same_form(values: FloatArray, sigma: float) -> Callable[[Draw], bool]:
    return lambda kept: (
        isinstance(kept, Sums) and kept.sigma == sigma and kept.values.shape == values.shape
    )


def is_gaussian(aggregator: Aggregator, votes: Any) -> bool:
    """Whether an aggregator draws by Gaussian noise, itself or in its parts."""
    if isinstance(aggregator, Rounds | Screen):
        return True  # their parts are asked in turn
    event = aggregator.event(votes.shape, NeighboringRelation.REPLACE_RECORD)
    return all(
        isinstance(leaf, GaussianEvent | GaussianThresholdEvent) for leaf, _ in leaves(event)
    )


@dataclass(frozen=True, eq=False)
class Movement:
    """How far the draws of a path move between two neighbors.

    Attributes:
        mu_squared: the squared moves of all Gaussian draws.
        laws: the chances of the outcomes of choices on both, one pair of arrays for a release.
        untested: the reasons why other draws have no figure.
    """

    mu_squared: float = 0.0
    laws: tuple[Laws, ...] = ()
    untested: tuple[str, ...] = ()

    @classmethod
    def between(cls, first: Sequence[Draw], second: Sequence[Draw]) -> Movement:
        """Return the movement from the draws of a data set to those of its neighbor.

        Raises:
            DivergedError: if the neighbor makes fewer draws.
        """
        if len(first) != len(second):
            raise DivergedError(f"{len(second)} draws of the neighbor, and {len(first)} before")
        squared, laws, untested = 0.0, list[Laws](), list[str]()
        for one, other in zip(first, second, strict=True):
            if isinstance(one, Sums):
                squared += float(one.squared_moves(cast(Sums, other)).sum())
                continue
            try:
                laws.append(one.aggregator.laws(one.votes, cast(Choice, other).votes))
            except NotStatedError as error:
                untested.append(str(error))
        return cls(squared, tuple(laws), tuple(dict.fromkeys(untested)))

    def __add__(self, other: Movement) -> Movement:
        return Movement(
            self.mu_squared + other.mu_squared,
            self.laws + other.laws,
            tuple(dict.fromkeys(self.untested + other.untested)),
        )

    def epsilon(self, delta: float) -> float:
        """Return the epsilon of the path at ``delta``. A lower bound if there are choices."""
        gaussian = gaussian_epsilon(delta, self.mu_squared**0.5)
        if not self.laws:
            return gaussian
        pairs = [*self.laws, _in_cells(self.mu_squared**0.5)]
        widest = max(p.shape[1] for p, _ in pairs)
        p, q = (
            np.vstack([np.pad(side, ((0, 0), (0, widest - side.shape[1]))) for side in sides])
            for sides in zip(*pairs, strict=True)
        )
        return max(gaussian, joint_epsilon(p, q, delta=delta))


def joint_epsilon(p: FloatArray, q: FloatArray, *, delta: float) -> float:
    """Return the epsilon at ``delta > 0`` of independent answers with the laws p and q ``[n, N]``.

    Both orders of p and q count. Privacy losses are rounded to a grid, so that their sums are
    convolutions, and their means are kept (Gopi, Lee & Wutschitz (2021)). The result is a lower
    bound, `_LARGEST` at most. The possible excess by rounding, but for a thousandth of ``delta`` by
    Hoeffding's inequality, and by transforms is subtracted.
    """
    return max(_one_way(p, q, delta), _one_way(q, p, delta)) if len(p) else 0.0


def _one_way(p: FloatArray, q: FloatArray, delta: float) -> float:
    with np.errstate(divide="ignore", invalid="ignore"):
        losses = np.where(p > 0, np.log(p) - np.log(q), np.nan)
        only_p = np.minimum(np.where(losses == np.inf, p, 0.0).sum(axis=1), 1.0)  # sums err
        impossible = -math.expm1(float(np.log1p(-only_p).sum()))
    if impossible > delta:
        return _LARGEST
    shared = np.isfinite(losses)
    failing = delta / 1000
    deviations = math.sqrt(len(p) * math.log(1 / failing) / 2)
    spread = np.where(shared, losses, -np.inf).max(axis=1) - np.where(shared, losses, np.inf).min(
        axis=1
    )
    cell = max(_LOST / deviations, float(spread.sum()) / _CELLS)
    shift, parts, first = -cell * deviations, [], 0
    for chances, row, valid in zip(p, losses, shared, strict=True):
        places = np.rint(row[valid] / cell).astype(np.int64)
        shift += float(np.average(row[valid] - cell * places, weights=chances[valid]))
        first += int(places.min())
        parts.append(np.bincount(places - places.min(), weights=chances[valid]).astype(np.float64))
    masses, offset = _sum_of(parts)
    total = np.minimum(cell * (first + offset + np.arange(len(masses))) + shift, _LARGEST)
    masses, total = masses[total > 0], total[total > 0]
    # the mass of all losses from each on, under either law
    above, scaled = (np.cumsum(part[::-1])[::-1] for part in (masses, masses * np.exp(-total)))
    room = delta + failing - impossible
    if not len(total) or above[0] - scaled[0] <= room:
        return 0.0
    i = int(np.argmax(above - np.exp(total) * scaled <= room))
    return math.log((above[i] - room) / scaled[i])


def _sum_of(parts: list[FloatArray]) -> tuple[FloatArray, int]:
    """Return a lower bound on the law of a sum of independent places, and its first place."""
    if len(parts) == 1:
        return parts[0], 0
    half = len(parts) // 2
    (left, first), (right, second) = _sum_of(parts[:half]), _sum_of(parts[half:])
    error = _FFT_ERROR * np.linalg.norm(left) * np.linalg.norm(right)
    masses = np.maximum(fftconvolve(left, right) - error, 0.0)
    (kept,) = masses.nonzero()
    return masses[kept[0] : kept[-1] + 1], first + second + int(kept[0])


_CELL, _TAIL = 0.01, 9.0  # of a normal number, in deviations


def _in_cells(mu: float) -> Laws:
    """Return the chances of cells of the line for two normal laws with means ``mu`` apart."""
    edges = np.arange(-_TAIL, mu + _TAIL, max(_CELL, (mu + 2 * _TAIL) / 20_000))
    sides = []
    for mean in (0.0, mu):
        ends = np.concatenate(([-np.inf], edges - mean, [np.inf]))
        low, high = ends[:-1], ends[1:]
        above = low > 0
        sides.append(np.where(above, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))[None])
    return sides[0], sides[1]


class _ForcedLabels(LabelsRelease):
    """The labels of a run whose draws are kept or forced."""

    def __init__(
        self, run: Run, settings: LabelSettings, generator: ForcedGenerator, absent: Sequence[int]
    ) -> None:
        super().__init__(run, finished_votes(run), replace(settings, noise_seed=None), None)
        self._generator, self._absent = generator, absent

    def request_digest(self) -> str:
        requested = super().request_digest()
        if len(self._absent) and isinstance(self._votes, Counts):
            self._votes = self._of_others()
        return requested

    def _of_others(self) -> Ballots:
        """Return the votes, with a row of zeros for each teacher that takes no part."""
        needs = self._settings.mechanism.needs | {Ballots}
        votes = load_votes(
            self._run,
            self._store,
            self.queries.ids,
            needs,
            predictions=self._settings.predictions,
        )
        assert isinstance(votes, Ballots), "ballots are kept"
        ballots = np.array(votes.ballots)
        ballots[:, list(self._absent)] = 0
        return replace(votes, ballots=ballots)

    def draw(self, release: int, generator: np.random.Generator) -> None:
        super().draw(release, self._generator)


def release_labels(
    run: Run,
    settings: LabelSettings,
    generator: ForcedGenerator,
    *,
    absent: Sequence[int] = (),
) -> Statement:
    """Release the labels of a run as `pate label` does, with kept or forced draws.

    Args:
        run: a run whose teachers have voted, with a ledger of its own.
        settings: the settings of the release, complete.
        generator: keeps the draws, or forces them.
        absent: the numbers of teachers that take no part.
    """
    statement = release(_ForcedLabels(run, settings, generator, absent))
    run.finish(LABEL)
    return statement
