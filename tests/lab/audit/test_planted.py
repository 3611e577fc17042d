"""Faults planted in a program: its audit finds each of them, and accuses no honest program.

The tables are made by the functions of `pate audit`, at their size, on finished runs.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pate
from pate._core.accounting.ledger import Ledger
from pate._core.mechanisms.noise import seeded_generator
from pate._core.release import transaction
from pate._core.validation import FloatArray
from pate._labeling.runs.run import Run
from pate._labeling.stages import teachers as teachers_stage
from pate._labeling.votes.voters import MomentQuery, RecordVoters
from pate.accounting import GaussianEvent
from pate.aggregators import (
    Canonical,
    ClippedVotes,
    NoisyVotes,
    ScoreVotes,
    StableTopK,
    TauVoting,
)
from pate.data import AutoFeatures, DataSource, FeatureMap, Records, Role
from pate.lab.audit.isolation import isolation_tests
from pate.lab.audit.releases import law_tests
from pate.lab.audit.tables import Trial, verdict_of
from pate.mechanisms import CanonicalMechanism, add_gaussian
from pate.models import Linear
from pate.teachers import TeacherPlan
from tests.lab.audit.worlds import Drawn

EPSILONS = (4.0, 2.0, 1.0)
# patched, with names that they do not export
clipped_votes: Any = import_module("pate._labeling.aggregators.clipped_votes")
noisy_votes: Any = import_module("pate._labeling.aggregators.noisy_votes")
score_votes: Any = import_module("pate._labeling.aggregators.score_votes")
stability: Any = import_module("pate._core.mechanisms.gaps")
partitions: Any = import_module("pate._networks.teachers.plan")
Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


class Scaled(FeatureMap):
    """Columns divided by their largest entries."""

    by_rows = False

    def fit(self, public: Any) -> "Scaled":
        self._largest = np.abs(public[:]).max(axis=0)
        return self

    def transform(self, features: Any) -> Any:
        return np.asarray(features[:]) / self._largest


class Mapped(Drawn):
    """The records with a feature map."""

    def __init__(self, size: int = 800) -> None:
        super().__init__(size)
        self._feature_map = Scaled()


def table(
    folder: Path, epsilon: float, source: Callable[[], DataSource] = Mapped, **plan: Any
) -> Run:
    """A run in closed form."""
    pipeline = pate.Pipeline(folder, source(), ledger=folder / "ledger.sqlite")
    pipeline.fit_teachers(pate.ClosedFormPlan(**plan))
    pipeline.vote()
    pipeline.label(pate.LabelSettings(delta=1e-6, target_epsilon=epsilon))
    return Run(folder, ledger=folder / "ledger.sqlite")


def few(folder: Path, epsilon: float) -> Run:
    """A run of few records, whose levels are asked first at all epsilons."""
    return table(folder, epsilon, lambda: Mapped(60))


class InParts(Drawn):
    """Records with columns and features that bend, which one ballot asks about."""

    def __init__(self) -> None:
        super().__init__(2000)
        self._feature_map = AutoFeatures(20)


def in_parts(folder: Path, epsilon: float) -> Run:
    """A run of features in parts, which are asked at all epsilons."""
    return table(folder, epsilon, InParts)


def imported(folder: Path, epsilon: float, aggregator: Any) -> Run:
    """A run of the votes of 400 teachers who mostly agree on two of six labels."""
    generator = np.random.default_rng(0)
    often = np.where(np.arange(6) < 2, 0.9, 0.05)
    ballots = (generator.random((60, 400, 6)) < often).astype(np.uint8)
    votes = pate.NamedVotes(
        ids=np.array([f"s{i}" for i in range(60)]), label_names=tuple("abcdef"), ballots=ballots
    )
    settings = pate.LabelSettings(aggregator, delta=1e-6, target_epsilon=epsilon)
    pate.label(votes, settings, run=folder)
    return Run(folder)


def networks(folder: Path) -> Run:
    """Teachers that are networks, and their votes."""
    pipeline = pate.Pipeline(folder, Drawn(300), ledger=folder / "ledger.sqlite")
    pipeline.fit_teachers(
        TeacherPlan(network=Linear, num_teachers=6, num_steps=4, batch_size=8, chunk_size=1)
    )
    pipeline.vote()
    return Run(folder, ledger=folder / "ledger.sqlite")


# the noise of sums


def scaled_noise(factor: float) -> Plant:
    return noise_of(lambda noise, _: factor * noise)


def noise_of(change: Callable[[FloatArray, np.random.Generator], FloatArray]) -> Plant:
    """Let the noise of all sums be changed."""

    def plant(patch: Patch) -> None:
        def faulty(values: Any, *, sigma: float, generator: np.random.Generator) -> FloatArray:
            exact = np.asarray(values, dtype=np.float64)
            return exact + change(
                add_gaussian(values, sigma=sigma, generator=generator) - exact, generator
            )

        for module in (score_votes, noisy_votes, clipped_votes):
            patch.setattr(module, "add_gaussian", faulty)

    return plant


def one_row(noise: FloatArray, _: Any) -> FloatArray:
    return np.broadcast_to(noise[:1], noise.shape)


def no_noise_of_one_label(noise: FloatArray, _: Any) -> FloatArray:
    return noise * (np.arange(noise.shape[-1]) > 0) if noise.ndim == 2 else noise


def laplace(noise: FloatArray, generator: np.random.Generator) -> FloatArray:
    scale = float(np.sqrt((noise**2).mean() / 2))
    return generator.laplace(scale=scale, size=noise.shape) if noise.size > 1 else noise


def same_in_all_rounds(patch: Patch) -> None:
    first: dict[int, FloatArray] = {}

    def faulty(values: Any, *, sigma: float, generator: np.random.Generator) -> FloatArray:
        drawn = add_gaussian(0.0 * values, sigma=1.0, generator=generator)
        if np.ndim(values) == 1:  # the number of voters, before the rounds
            first.clear()
            return np.asarray(values + sigma * drawn)
        return np.asarray(values + sigma * first.setdefault(0, drawn))

    patch.setattr(score_votes, "add_gaussian", faulty)


# sums, comparisons and counts


def clip_after_the_sum(patch: Patch) -> None:
    exact = RecordVoters.clipped_sum

    def faulty(voters: RecordVoters, question: MomentQuery, clip: float) -> FloatArray:
        total = exact(voters, question, question.largest_norm)
        most = clip * len(voters.labels)
        return total * min(1.0, most / float(np.linalg.norm(total)))

    patch.setattr(RecordVoters, "clipped_sum", faulty)


def half_a_clip_declared(patch: Patch) -> None:
    noisy_sum = score_votes.noisy_sum

    def faulty(*given: Any) -> Any:
        moments = noisy_sum(*given)
        return moments._replace(clip=2 * moments.clip)

    patch.setattr(score_votes, "noisy_sum", faulty)


def norms_of_the_first_part(patch: Patch) -> None:
    exact = RecordVoters.parts

    def faulty(voters: RecordVoters, question: MomentQuery) -> Iterator[Any]:
        for basis, residuals, _ in exact(voters, question):
            first = basis[:, :-1] * (question.geometry.parts == 0)
            norms = np.linalg.norm(first, axis=1) * np.linalg.norm(residuals, axis=1)
            yield basis, residuals, norms / 2.0**28

    patch.setattr(RecordVoters, "parts", faulty)


def median_without_noise(patch: Patch) -> None:
    def faulty(values: Any, thresholds: Any, **_: Any) -> Any:
        return np.asarray(values) > thresholds

    patch.setattr(clipped_votes, "exceeds", faulty)


def median_with_half_its_noise(patch: Patch) -> None:
    exact = clipped_votes.exceeds
    patch.setattr(
        clipped_votes,
        "exceeds",
        lambda *given, sigma, **more: exact(*given, sigma=sigma / 2, **more),
    )


def count_without_noise(patch: Patch) -> None:
    patch.setattr(score_votes, "noisy_count", lambda number, *_: float(number))


def noiseless_test(patch: Patch) -> None:
    patch.setattr(stability, "exceeds", lambda lead, least, **_: np.asarray(lead) > least)


def one_draw_for_all_queries(patch: Patch) -> None:
    choose = CanonicalMechanism._select

    def faulty(mechanism: Any, rows: Any, generator: np.random.Generator) -> Any:
        if not len(rows):
            return choose(mechanism, rows, generator)
        seed = int(generator.integers(2**32))
        return np.vstack(
            [choose(mechanism, row[None], np.random.default_rng(seed)) for row in rows]
        )

    patch.setattr(CanonicalMechanism, "_select", faulty)


# rounds about levels


def half_the_noise_of_levels(patch: Patch) -> None:
    noisy_sum = score_votes.noisy_sum

    def faulty(voters: Any, question: MomentQuery, *given: Any) -> Any:
        moments = noisy_sum(voters, question, *given)
        if question.shares.any():
            return moments
        exact = voters.clipped_sum(question, moments.clip)
        return moments._replace(total=(moments.total + exact) / 2)

    patch.setattr(score_votes, "noisy_sum", faulty)


def levels_that_may_be_negative_at_the_price_of_others(patch: Patch) -> None:
    patch.setattr(MomentQuery, "reach", 2**0.5)


def no_clip_of_levels(patch: Patch) -> None:
    exact = RecordVoters.clipped_sum

    def faulty(voters: RecordVoters, question: MomentQuery, clip: float) -> FloatArray:
        return exact(voters, question, clip if question.shares.any() else 100.0)

    patch.setattr(RecordVoters, "clipped_sum", faulty)


def another_round_about_levels(patch: Patch) -> None:
    patch.setattr(score_votes, "SPENDING", replace(score_votes.SPENDING, level_rounds=6))
    noisy_sum = score_votes.noisy_sum

    def faulty(
        voters: Any, question: MomentQuery, count: float, multiplier: float, *given: Any
    ) -> Any:
        less = multiplier if question.shares.any() else multiplier / 2**0.5
        return noisy_sum(voters, question, count, less, *given)

    patch.setattr(score_votes, "noisy_sum", faulty)


class Unpaid(float):
    """A share that later rounds are given too."""

    def __rsub__(self, other: float) -> float:
        return other


def levels_that_later_rounds_do_not_pay_for(patch: Patch) -> None:
    share = score_votes.share_of_levels
    patch.setattr(score_votes, "share_of_levels", lambda *given: Unpaid(share(*given)))


# keys, files and prices


def constant_key(patch: Patch) -> None:
    patch.setattr(transaction, "draw_key", lambda: 7)


def key_of_a_seed(patch: Patch) -> None:
    patch.setattr(transaction, "private_generator", lambda _: seeded_generator(7))


def mean_of_two_releases(patch: Patch) -> None:
    aggregate = ScoreVotes.aggregate

    def faulty(aggregator: ScoreVotes, votes: Any, *, generator: np.random.Generator) -> Any:
        both: list[Any] = [aggregate(aggregator, votes, generator=generator) for _ in range(2)]
        return both[0]._replace(noisy_counts=np.mean([each.noisy_counts for each in both], axis=0))

    patch.setattr(ScoreVotes, "aggregate", faulty)


def half_the_queries_in_the_ledger(patch: Patch) -> None:
    reserve = Ledger.reserve

    def faulty(ledger: Ledger, events: Any, *, count: int, **more: Any) -> int:
        return reserve(ledger, events, count=-(-count // 2), **more)

    patch.setattr(Ledger, "reserve", faulty)


def half_of_each_event(patch: Patch) -> None:
    total: Any = GaussianEvent.total

    def faulty(_: Any, events: Any, weights: Any, orders: Any) -> Any:
        return total(events, weights / 2, orders)

    patch.setattr(GaussianEvent, "total", classmethod(faulty))


Made = Callable[[Path, float], Run]
LAWS: dict[str, tuple[Plant, Made]] = {
    "half the noise": (scaled_noise(0.5), table),
    "0.7 of the noise": (scaled_noise(0.7), table),
    "one row of noise for all": (noise_of(one_row), table),
    "the same noise in all rounds": (same_in_all_rounds, table),
    "no noise of one label": (noise_of(no_noise_of_one_label), table),
    "positive noise": (noise_of(lambda noise, _: np.abs(noise)), table),
    "noise of another law": (noise_of(laplace), table),
    "a clip after the sum": (clip_after_the_sum, table),
    "half of the clip in the noise": (half_a_clip_declared, table),
    "a median without noise": (median_without_noise, table),
    "a median with half its noise": (median_with_half_its_noise, table),
    "a count without noise": (count_without_noise, table),
    "a constant key": (constant_key, table),
    "a key from a seed": (key_of_a_seed, table),
    "a file of two releases": (mean_of_two_releases, table),
    "half of the queries in the ledger": (half_the_queries_in_the_ledger, table),
    "half of each event": (half_of_each_event, table),
    "half the noise of levels": (half_the_noise_of_levels, few),
    "levels that may be negative": (levels_that_may_be_negative_at_the_price_of_others, few),
    "no clip of levels": (no_clip_of_levels, few),
    "twice the rounds about levels": (another_round_about_levels, few),
    "levels that nobody pays for": (levels_that_later_rounds_do_not_pay_for, few),
    "norms of the first part": (norms_of_the_first_part, in_parts),
    "half the noise of both parts": (scaled_noise(0.5), in_parts),
    "counts with one row of noise": (
        noise_of(one_row),
        lambda folder, epsilon: imported(folder, epsilon, pate.Partial(NoisyVotes)),
    ),
    "labels with 0.7 of the noise": (
        scaled_noise(0.7),
        lambda folder, epsilon: imported(folder, epsilon, pate.Partial(NoisyVotes, soft=False)),
    ),
    "clipped votes, a median without noise": (
        median_without_noise,
        lambda folder, epsilon: imported(folder, epsilon, pate.Partial(ClippedVotes)),
    ),
    "a test without noise": (
        noiseless_test,
        lambda folder, epsilon: imported(folder, epsilon, pate.Partial(StableTopK)),
    ),
    "one draw for all queries": (
        one_draw_for_all_queries,
        lambda folder, epsilon: imported(folder, epsilon, pate.Partial(Canonical, k=2)),
    ),
}


def told(tests: Sequence[Trial]) -> list[str]:
    return [f"{test.subject}: {test.result}" for test in tests if test.verdict != "passed"]


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", LAWS)
def test_faults_of_noise_are_found(
    name: str, epsilon: float, tmp_path: Path, monkeypatch: Patch
) -> None:
    plant, made = LAWS[name]
    run = made(tmp_path / "run", epsilon)
    honest = law_tests(run)
    assert verdict_of(honest) == "passed", told(honest)
    plant(monkeypatch)
    assert verdict_of(law_tests(run)) == "refuted"


# isolation


def scaling_on_private_data(patch: Patch) -> None:
    def faulty(data: DataSource, role: Role) -> Any:
        records = data._raw(role)
        fitted = Scaled().fit(data._raw(Role.PRIVATE).features)
        return Records(
            features=fitted.transform(records.features), labels=records.labels, ids=records.ids
        )

    patch.setattr(DataSource, "records", faulty)


def teachers_by_row(patch: Patch) -> None:
    def faulty(units: Any, *, num_teachers: int, key: bytes) -> Any:
        return np.arange(len(list(units))) * num_teachers // 800

    patch.setattr(teachers_stage, "assign_teachers", faulty)


def a_shared_teacher(patch: Patch) -> None:
    divide = partitions.partition_records

    def faulty(*given: Any, **more: Any) -> Any:
        rows = divide(*given, **more)
        return [
            np.concatenate((one, other))
            for one, other in zip(rows, rows[1:] + rows[:1], strict=True)
        ]

    patch.setattr(partitions, "partition_records", faulty)


def orders_by_the_number_of_all_records(patch: Patch) -> None:
    draw, divide, number = partitions.draw_batches, partitions.partition_records, {"of": 0}

    def counted(ids: Any, *given: Any, **more: Any) -> Any:
        number["of"] = len(ids)
        return divide(ids, *given, **more)

    def faulty(size: int, *, seed: int, **more: Any) -> Any:
        return draw(size, seed=seed + number["of"], **more)

    patch.setattr(partitions, "partition_records", counted)
    patch.setattr(partitions, "draw_batches", faulty)


def closed(folder: Path) -> tuple[Run, DataSource]:
    return table(folder, 4.0), Mapped()


def parted(folder: Path) -> tuple[Run, DataSource]:
    return table(folder, 4.0, num_teachers=50), Mapped()


def trained(folder: Path) -> tuple[Run, DataSource]:
    return networks(folder), Drawn(300)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "made"),
    [
        (scaling_on_private_data, closed),
        (scaling_on_private_data, parted),
        (teachers_by_row, parted),
        (a_shared_teacher, trained),
        (orders_by_the_number_of_all_records, trained),
    ],
)
def test_records_that_reach_others_are_found(
    plant: Plant,
    made: Callable[[Path], tuple[Run, DataSource]],
    tmp_path: Path,
    monkeypatch: Patch,
) -> None:
    run, data = made(tmp_path / "run")
    honest = isolation_tests(run, data)
    assert verdict_of(honest) == "passed", told(honest)
    plant(monkeypatch)
    assert verdict_of(isolation_tests(run, data)) == "refuted"


# honest programs


@pytest.mark.slow
@pytest.mark.parametrize(
    "aggregator",
    [
        pate.Partial(NoisyVotes),
        pate.Partial(TauVoting, tau=1.5, threshold_tau=200.0),
        pate.Partial(StableTopK),
    ],
    ids=["NoisyVotes", "TauVoting", "StableTopK"],
)
def test_honest_votes_pass(aggregator: Any, tmp_path: Path) -> None:
    tests = law_tests(imported(tmp_path / "run", 4.0, aggregator))
    assert verdict_of(tests) == "passed", told(tests)


@pytest.mark.slow
def test_an_honest_table_passes(tmp_path: Path) -> None:
    run = table(tmp_path / "run", 2.0)
    tests = isolation_tests(run, Mapped())
    assert verdict_of(tests) == "passed", told(tests)
    before = {path: path.stat().st_mtime_ns for path in run.root.rglob("*")}
    tests = law_tests(run)
    assert verdict_of(tests) == "passed", told(tests)
    # neither the labels nor the ledger of the run are touched
    after = {path: path.stat().st_mtime_ns for path in run.root.rglob("*")}
    assert {path: time for path, time in after.items() if path.is_file()} == {
        path: time for path, time in before.items() if path.is_file()
    }
