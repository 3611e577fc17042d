"""The table of laws: releases of a copy of a run, and of synthetic votes, against their laws.

Synthetic votes are near ties, where noise decides. The copy has its own ledger, and is deleted
afterwards. Its releases take the way of `pate label`: a key from the operating system, a
reservation, noise, a file, a settlement, a statement.
"""

import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from pate._core.accounting.charges import Charge, account
from pate._core.accounting.cost import NeighboringRelation, gaussian_epsilon
from pate._core.accounting.ledger import Ledger, ledger_in, read_ledger
from pate._core.accounting.statement import Statement
from pate._core.mechanisms.base import NotStatedError
from pate._core.mechanisms.noise import private_generator
from pate._core.mechanisms.noisy_counts import NoisyMoments
from pate._core.progress import stage_bar
from pate._core.release.transaction import release
from pate._core.settings import decode_fields
from pate._core.validation import FloatArray
from pate._labeling.aggregators.base import Aggregator
from pate._labeling.aggregators.clipped_votes import ClippedVotes
from pate._labeling.aggregators.score_votes import SPENDING, ScoreVotes
from pate._labeling.release.between_runs import SampleSettings
from pate._labeling.release.label_settings import LabelSettings
from pate._labeling.release.labels import LabelsRelease
from pate._labeling.runs.released import ReleasedLabels
from pate._labeling.runs.run import LABEL, Run
from pate._labeling.runs.vote_store import finished_votes
from pate._labeling.teachers import FIRST
from pate._labeling.votes.kinds import Ballots, Counts, MaskedTotal, Votes, VoteShape
from pate._labeling.votes.voters import Geometry, MomentQuery, Voters
from pate.lab.audit.isolation import masked_noise
from pate.lab.audit.laws import (
    FACTORS,
    SUMS,
    Gaussians,
    Outcomes,
    Seen,
    Trace,
    distance_of_sums,
    noise_of_scores,
    outcomes_of,
    p_values,
    parts_of,
    trace,
    with_less_noise,
)
from pate.lab.audit.tables import Trial, scratch, untested

_NEAR = 0.7  # deviations from a tie: where the scale of the noise matters
_TRIED = 768  # synthetic queries, to choose from
_CHOSEN = 40
_FEW = 40  # voters for each unit of the noise multiplier
_QUERIES = 12  # of synthetic ballots


@dataclass(frozen=True, eq=False, kw_only=True)
class _Tied(Voters):
    """Voters with ballots whose sum is 0. Nearly half of them are larger than any clip."""

    present: int
    private: bool
    larger: int

    @property
    def num_private(self) -> int | None:
        return self.present if self.private else None

    def norms(self, question: MomentQuery) -> FloatArray:
        return np.where(np.arange(self.present) < self.larger, 2 * question.largest_norm, 0.0)

    def clipped_sum(self, question: MomentQuery, clip: float) -> FloatArray:
        return np.zeros((self.geometry.num_directions + 1, self.num_labels))


def synthetic_releases(
    aggregator: Aggregator, votes: Votes, rng: np.random.Generator
) -> Mapping[str, Callable[[np.random.Generator], Seen]]:
    """Return functions of a generator that release synthetic votes, and return the noise of it.

    Their votes are near ties, where the noise decides. A function is named by the noise that it
    tests.

    Raises:
        NotStatedError: if the aggregator states no law.
    """
    if isinstance(aggregator, ScoreVotes):
        tied = _tied(aggregator, votes)
        multiplier = aggregator.multiplier_scores / math.sqrt(votes.num_queries)
        one = ScoreVotes(multiplier_scores=multiplier, rounds=aggregator.rounds)
        made: dict[str, Callable[[np.random.Generator], Seen]] = {
            "": lambda generator: noise_of_scores(one, None, generator, tied).seen
        }
        if tied.private:
            # so few that levels come first, whatever the noise in their number
            few = replace(tied, present=math.ceil(_FEW * multiplier), larger=0)
            subject = "sums of rounds"
            made["levels first"] = lambda generator: {
                subject: noise_of_scores(one, None, generator, few).seen[subject]
            }
        return made
    if type(aggregator) is ClippedVotes:
        tied_ballots = _tied_ballots(votes, aggregator)
        # fewer queries with the same noise
        multiplier = aggregator.multiplier_clipped * math.sqrt(_QUERIES / votes.num_queries)
        smaller = replace(aggregator, multiplier_clipped=multiplier)
        return {"": lambda generator: trace(smaller, tied_ballots, generator).seen}
    soft = getattr(aggregator, "soft", True) and not getattr(aggregator, "min_lead", 0)
    if type(aggregator) in SUMS and soft:
        near = _near_ties(aggregator, votes.shape, votes.shape.num_labels, rng, _CHOSEN)
        return {"": lambda generator: trace(aggregator, near, generator).seen}
    chosen: dict[str, Callable[[np.random.Generator], Seen]] = {}
    for name in aggregator.noise_parameters:
        asked, used = _informative(aggregator, name, votes.shape, rng)
        found = outcomes_of(aggregator, asked, name)

        def seen(
            generator: np.random.Generator, asked: Any = asked, found: Any = found, name: str = name
        ) -> Seen:
            return {name: found(aggregator.aggregate(asked, generator=generator))}

        chosen[f"{name}, {used} labels" if used != votes.shape.num_labels else name] = seen
    return chosen


def _tied(aggregator: ScoreVotes, votes: Any) -> _Tied:
    multiplier = aggregator.multiplier_scores / math.sqrt(votes.num_queries)
    # of features in two parts
    rounds = math.fsum(aggregator.rounds) + aggregator.rounds[0]
    first = multiplier / math.sqrt(aggregator.rounds[0] / rounds * (1 - SPENDING.count))
    private = votes.voters.num_private is not None
    # as many as a cheap comparison in 6 steps needs; of known voters the nominal number decides
    sigma = first * math.sqrt(6 / 0.05)
    present = math.ceil(max(1000, 20 * sigma)) if private else votes.voters.num_voters
    return _Tied(
        geometry=Geometry.of(np.random.default_rng(0).standard_normal((12, 4)), (2, 2)),
        num_voters=max(2, votes.voters.num_voters),
        num_labels=2,
        present=present,
        private=private,
        larger=min(present, math.ceil(present / 2 + _NEAR * min(sigma, present / 6))),
    )


def _tied_ballots(votes: Any, aggregator: ClippedVotes) -> Ballots:
    """Return ballots: somewhat less than half hold every label, and the others none."""
    ballots = np.zeros((_QUERIES, votes.num_teachers, votes.num_labels), dtype=np.uint8)
    ballots[:, : int(votes.num_teachers * (0.5 - _NEAR / 6))] = 1
    around = aggregator.around_predictions
    return Ballots(ballots=ballots, predictions=np.zeros(ballots[:, 0].shape) if around else None)


def _near_ties(
    aggregator: Aggregator, shape: VoteShape, num_labels: int, rng: np.random.Generator, size: int
) -> Votes:
    """Return synthetic votes: counts about a half, and counts in two groups with a gap."""
    most = shape.num_teachers
    spread = np.exp(rng.uniform(0, math.log(max(most / 2, 2)), (size, 1)))
    about = most / 2 + spread * rng.choice([-1.0, 1.0], (size, num_labels))
    sizes = rng.integers(0, num_labels + 1, (size, 1))
    low = rng.uniform(0, 1, (size, 1)) * np.maximum(most - spread, 0)
    second = np.maximum(
        spread + rng.uniform(-1, 1, (size, 1)) * rng.choice([1.0, 4.0, 16.0], (size, 1)), 0
    )
    second *= rng.random((size, 1)) < 0.5
    in_groups = low / 2 + spread * (np.arange(num_labels) < sizes)
    in_groups += second * (np.arange(num_labels) < rng.integers(0, 1 + sizes))
    counts = np.where(rng.random((size, 1)) < 0.5, about, in_groups).round().clip(0, most)
    counts = counts.astype(np.int64)
    predictions = np.zeros(counts.shape) if "predictions" in aggregator.needs else None
    if Ballots in aggregator.needs:
        ballots = np.arange(most)[None, :, None] < counts[:, None]
        return Ballots(ballots=ballots.astype(np.uint8), predictions=predictions)
    return Counts(counts=counts, num_teachers=most, predictions=predictions)


def _informative(
    aggregator: Aggregator, name: str, shape: VoteShape, rng: np.random.Generator
) -> tuple[Any, int]:
    """Return the synthetic votes with outcomes that depend most on a scale of noise.

    There are fewer labels if there are too many outcomes. The number is returned too.
    """
    error: NotStatedError | None = None
    least = int(getattr(aggregator, "k", 1)) + 1
    fewer = {number for number in (12, 6, least) if least <= number <= shape.num_labels}
    for num_labels in sorted({shape.num_labels, *fewer}, reverse=True):
        tried = _near_ties(aggregator, shape, num_labels, rng, _TRIED)
        try:
            stated, faulty = (
                with_less_noise(aggregator, factor, name).draws(tried).chances
                for factor in (1.0, FACTORS[0])
            )
        except NotStatedError as reason:
            error = reason
            continue
        told = faulty * (np.log(faulty + 1e-300) - np.log(stated + 1e-300))
        told = told.sum(axis=1).reshape(_TRIED, -1).sum(axis=1)
        return tried[np.sort(np.argsort(-told)[:_CHOSEN])], num_labels
    assert error is not None
    raise error


def noise_of_moments(
    mechanism: NoisyMoments, columns: int, generator: np.random.Generator
) -> Gaussians:
    """Return the noise in the moments of made-up rows, of all entries from the diagonal on."""
    multiplier = mechanism.noise_multiplier
    size = max(200, math.ceil(12 * multiplier))  # so many that their noisy number is released
    rows = np.random.default_rng(0).standard_normal((size, columns))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    moments = mechanism([(rows, np.ones(size))], generator=generator)
    # rows are extended by the root of 1/3
    count = 4 / 3 * multiplier / moments.error
    mean, whole = moments.mean / math.sqrt(3), np.column_stack((rows, np.full(size, 3**-0.5)))
    released = count * np.block([[moments.products, mean[:, None]], [mean, 1 / 3]])
    noise = (released - whole.T @ whole) / (4 / 3 * multiplier)
    return Gaussians(
        np.append(np.diag(noise) / math.sqrt(2), noise[np.triu_indices(len(noise), 1)])
    )


FAMILY_ERROR = 1e-6
"""The probability that a table of laws accuses a program without faults, at most."""
_RELEASES = 2  # of the copy
_SYNTHETIC = 200  # releases of synthetic votes
_SIMULATED = 20  # audits of a faulty program, for the power


class _Traced(LabelsRelease):
    """The labels of a copy, with the noise that its transaction drew."""

    trace: Trace
    generator: np.random.Generator

    def draw(self, release: int, generator: np.random.Generator) -> None:
        self.generator = deepcopy(generator)
        super().draw(release, generator)
        self.trace = trace(self._settings.mechanism, self._votes, deepcopy(self.generator))


@dataclass(frozen=True)
class _Noise:
    """The noise of one subject in several releases, and the name of its axes."""

    subject: str
    tried: str
    noise: Sequence[Gaussians | Outcomes]

    def p_values(self, rng: np.random.Generator, factor: float | None = None) -> dict[str, float]:
        """Return the p-values of the noise, or of simulated noise with ``factor`` of its scale."""
        drawn = [
            part.normals(rng) if factor is None else part.simulated(factor, rng)
            for part in self.noise
        ]
        if len({part.shape for part in drawn}) == 1:
            return p_values(np.stack(drawn), ("releases", *_axes(drawn[0])))
        # each release has chosen for itself
        found = p_values(np.concatenate([part.ravel() for part in drawn]), ())
        for number, part in enumerate(drawn, 1):
            each = p_values(part, _axes(part))
            found |= {f"{name} of release {number}": p for name, p in each.items()}
        return found


def _axes(noise: FloatArray) -> tuple[str, ...]:
    return (("rounds",) * (noise.ndim == 3) + ("rows", "columns"))[: noise.ndim]


def law_tests(run: Run) -> list[Trial]:
    """Return the table of laws of a run that has labels, and of its first release, if any."""
    runs = {"first release, ": Run(run.root / FIRST)} if (run.root / FIRST).is_dir() else {}
    return [
        replace(test, subject=prefix + test.subject)
        for prefix, one in (runs | {"": run}).items()
        for test in _tests(one)
    ]


def moments_tests(samples: SampleSettings, columns: int) -> list[Trial]:
    """Return the rows of public samples, which are drawn from noisy moments."""
    mechanism, relation = NoisyMoments(noise_multiplier=samples.noise_multiplier), samples.relation
    noise: list[Gaussians | Outcomes] = [
        noise_of_moments(mechanism, columns, private_generator()) for _ in range(_SYNTHETIC)
    ]
    # rows of norm 1 whose inner product is -1/3, squared distances of their products and of rows
    # themselves over twice and three times the variance of a product off the diagonal
    moved = math.sqrt((16 / 9) / 2 + (8 / 3) / 3) / (4 / 3 * mechanism.noise_multiplier)
    row = _Noise("moments of public samples", f"{_SYNTHETIC} releases of made-up rows", noise)
    return [
        *_rows([row], np.random.default_rng()),
        _price(
            "price of public samples",
            "the sensitivity over the deviation of all moments",
            account([samples.charge], relation).get_epsilon(delta=samples.delta),
            gaussian_epsilon(samples.delta, moved),
        ),
    ]


def _tests(run: Run) -> list[Trial]:
    settings = without_budget(decode_fields(LabelSettings, run.inputs_of(LABEL).settings))
    aggregator: Any = settings.mechanism
    rng = np.random.default_rng()
    tests, releases, rows = list[Trial](), list[_Traced](), list[_Noise]()
    manifest = finished_votes(run).manifest()
    if manifest.kind is MaskedTotal:
        noise = masked_noise(run, aggregator, manifest.shape)
        return _rows([_Noise("sums", "2 exchanges of made-up counts", noise)], rng)
    with copied(run) as copy, stage_bar(_RELEASES, "laws", unit="release") as bar:
        for _ in range(_RELEASES):
            publication = _Traced(copy, finished_votes(copy), settings, None)
            release(publication)
            releases.append(publication)
            tests.append(_file_test(copy, publication))
            bar.update()
        votes = releases[0]._votes
        tests += [untested(*reason) for reason in releases[0].trace.untested.items()]
        rows += _by_subject("the copy", [each.trace.seen for each in releases])
        tests += _price_tests(copy, settings, releases)
    parts = parts_of(aggregator)
    for number, part in enumerate(parts, 1):
        prefix = f"part {number}, " if len(parts) > 1 else ""
        tests += _sums_test(prefix, part, votes)
        try:
            tried = synthetic_releases(part, votes, rng)
        except NotStatedError as error:
            if not any(test.verdict == "not tested" for test in tests):
                tests.append(untested(type(part).__name__, str(error)))
            continue
        for name, draw in tried.items():
            seen = [draw(private_generator()) for _ in range(_SYNTHETIC)]
            words = (f"{prefix}{type(part).__name__}", name)
            rows += _by_subject("synthetic votes near ties", seen, *words)
    return [_keys_test(releases), *tests, *_rows(rows, rng)]


def _rows(rows: Sequence[_Noise], rng: np.random.Generator) -> list[Trial]:
    found = [row.p_values(rng) for row in rows]
    # shared among all p-values of the table
    level = FAMILY_ERROR / max(1, sum(map(len, found)))
    return [_noise_test(row, each, level, rng) for row, each in zip(rows, found, strict=True)]


def without_budget(settings: LabelSettings) -> LabelSettings:
    """Return the settings of a release that no budget limits."""
    return replace(settings, max_epsilon=None, max_delta0=None, budget_filter=None)


def _by_subject(votes: str, seen: Sequence[Seen], *names: str) -> Iterator[_Noise]:
    """Yield the noise of each subject in releases of some votes."""
    for subject in seen[0]:
        noise = [each[subject] for each in seen if subject in each]
        words = ", ".join(dict.fromkeys(word for word in (*names, subject) if word))
        yield _Noise(words, f"{len(noise)} releases of {votes}", noise)


def _noise_test(
    row: _Noise, found: Mapping[str, float], level: float, rng: np.random.Generator
) -> Trial:
    least = min(found, key=lambda name: found[name])
    power = {
        factor: sum(min(row.p_values(rng, factor).values()) < level for _ in range(_SIMULATED))
        for factor in FACTORS
    }
    numbers = sum(part.normals(rng).size for part in row.noise)
    refuted = found[least] < level
    weak = power[min(FACTORS)] < 0.95 * _SIMULATED and "synthetic" in row.tried
    return Trial(
        row.subject,
        f"{numbers:,} numbers in {row.tried}",
        ", ".join(
            f"{factor} of the noise in {count} of {_SIMULATED} simulated audits"
            for factor, count in power.items()
        ),
        f"p = {found[least]:.2g} ({least}), the least of {len(found)}; {level:.1g} refutes",
        "refuted" if refuted else "not tested" if weak else "passed",
    )


def _keys_test(releases: Sequence[_Traced]) -> Trial:
    words = {tuple(each.generator.integers(2**63, size=4).tolist()) for each in releases}
    return Trial(
        "keys of releases",
        f"the first 256 bits of {len(releases)} releases",
        "any two releases with one key",
        f"{len(words)} different streams",
        "passed"
        if len(words) == len(releases) or releases[0].noise_seed is not None
        else "refuted",
    )


def _file_test(run: Run, publication: _Traced) -> Trial:
    file, drawn = ReleasedLabels.load(run.root), publication.trace.release
    same = all(
        (one is None) == (other is None) and np.array_equal(one, other)
        for one, other in (
            (getattr(file, name), getattr(drawn, name))
            for name in ("labels", "mask", "noisy_counts", "columns")
        )
    )
    return Trial(
        f"labels.npz of release {file.release}",
        f"{file.labels.size:,} labels, and counts, drawn again from the same key",
        "any other bit in the file",
        "the same bits" if same else "other bits",
        "passed" if same else "refuted",
    )


def _sums_test(prefix: str, part: Aggregator, votes: Any) -> Iterator[Trial]:
    if (measured := distance_of_sums(part, votes)) is not None:
        distance, allowed = measured
        yield Trial(
            f"{prefix}clipped sums of {type(part).__name__}",
            "the sums of the votes, by a clip that scales most ballots, against their definition",
            "a clip that is missing, too wide, or applied to the sum",
            f"{distance:.2g} clips apart, {allowed:.2g} of rounding allowed",
            "refuted" if distance > allowed else "passed",
        )


def _price_tests(run: Run, settings: LabelSettings, releases: Sequence[_Traced]) -> list[Trial]:
    """Compare what the ledger and the statement of the copy say with the events and the noise."""
    relation, delta = NeighboringRelation.REPLACE_RECORD, settings.delta
    book, queries = read_ledger(run.ledger_path), releases[0].queries
    events, count = settings.mechanism.events(queries.shape), len(queries.ids)
    due: list[Charge] = [(events, count)] * len(releases)
    reserved = account(book.reserved(1), relation)
    expected = account(due, relation)
    paid_for = (
        reserved.rdp >= expected.rdp * (1 - 1e-9)
    ).all() and reserved.delta0 >= expected.delta0 * (1 - 1e-9)
    one = account(book.reserved(1)[:1], relation).get_epsilon(delta=delta)
    tests = [
        Trial(
            "ledger",
            f"the reservations of {len(releases)} releases of {count} queries",
            "any charge that is smaller than the event of the mechanism",
            f"epsilon {one:.6g} reserved for a release,"
            f" {account(due[:1], relation).get_epsilon(delta=delta):.6g} due",
            "passed" if paid_for else "refuted",
        ),
        _price(
            "statement",
            "epsilon of both releases",
            publication_epsilon(run),
            expected.get_epsilon(delta=delta),
        ),
    ]
    squared = releases[0].trace.mu_squared
    if squared > 0:
        tried = "the sensitivity over the deviation of all sums"
        mu = gaussian_epsilon(delta, math.sqrt(squared))
        tests.append(_price("price of the noise", tried, one, mu))
    return tests


def _price(subject: str, tried: str, paid: float, due: float) -> Trial:
    return Trial(
        subject,
        tried,
        "any epsilon below it",
        f"{paid:.6g}, where {due:.6g} is due",
        "passed" if paid >= due * (1 - 1e-6) else "refuted",
    )


def publication_epsilon(run: Run) -> float:
    """Return the epsilon of single records that the statement of a run gives."""
    guarantees = Statement.read(run.root / LABEL.outputs[1])["guarantees"]
    epsilon = guarantees["replace_record"]["epsilon"]
    return math.inf if epsilon is None else float(epsilon)


@contextmanager
def copied(run: Run) -> Iterator[Run]:
    """Yield a copy of a run without its labels and student, with a ledger of its own."""
    with scratch(run, "laws") as folder:
        ledger = ledger_in(folder / "run")
        copy = copied_to(folder / "run", run, ledger)
        Ledger(ledger, home=ledger.resolve())
        yield replace(copy, overwrite=True)


def copied_to(root: Path, run: Run, ledger: Path) -> Run:
    """Return a copy of a run without its labels and student in a new folder, with a ledger."""
    shutil.copytree(
        run.private,
        root / "private",
        ignore=shutil.ignore_patterns("label", "label.*", "student*", "*.ckpt"),
        copy_function=_link,
    )
    (root / "public").mkdir()
    content = yaml.safe_load(run.data_config.read_text())
    (root / "data.yaml").write_text(yaml.safe_dump(content | {"ledger": str(ledger)}))
    return Run(root, ledger=ledger)


def _link(source: str, target: str) -> None:
    """Link large arrays, which are replaced and never changed in place; copy other files."""
    (os.link if source.endswith((".npy", ".pt")) else shutil.copy2)(source, target)
