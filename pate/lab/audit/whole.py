"""The audit of a whole run, and its proof before anything is spent.

An audit tests the published files of a run with canaries against its statement. NOT PRIVATE. Each
of ``m`` canaries is in one of two neighboring states, by a fair coin of its own. An attacker makes
``r`` guesses from the files, a number that is fixed beforehand; ``v`` of them are right. They give
lower bounds on epsilon and mu.

A run that proves itself tests law and isolation on made-up records. Private records are neither
read nor imitated: the copy has public samples with random labels. So the outcome is
public, and costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from pate._core.accounting.accountant import RDPAccountant
from pate._core.accounting.charges import account, for_group_size
from pate._core.accounting.cost import NeighboringRelation, gaussian_epsilon, smallest_where
from pate._core.accounting.ledger import ledger_in, read_ledger
from pate._core.accounting.statement_words import AUDITED
from pate._core.files.writing import make_once, write_text
from pate._core.mechanisms.base import NotStatedError
from pate._core.mechanisms.noise import private_generator
from pate._core.settings import decode_fields
from pate._core.validation import (
    BoolArray,
    FloatArray,
    IntArray,
    StrArray,
    require,
    require_count,
    require_in_open_unit_interval,
)
from pate._labeling.data.arrays import DrawnPublic
from pate._labeling.data.records import Role, assign_teachers
from pate._labeling.data.source import DataSource
from pate._labeling.pipeline import Pipeline
from pate._labeling.release.between_runs import SampleSettings
from pate._labeling.release.completion import sample_settings
from pate._labeling.release.label_settings import LabelSettings, queries_on
from pate._labeling.release.labels import chosen_rows
from pate._labeling.runs.released import ReleasedLabels, sealing_key
from pate._labeling.runs.run import LABEL, TEACHERS_FIT, Run, load_data, load_ledger
from pate._labeling.runs.vote_store import finished_votes, load_votes
from pate._labeling.stages.rehearsal import MadeUp
from pate._labeling.stages.student import StudentPlan
from pate._labeling.stages.teachers import load_plan
from pate._labeling.teachers import (
    FIRST,
    ClosedFormPlan,
    Plan,
    assigned_units,
    uses_groups,
)
from pate._labeling.votes.kinds import Ballots, MaskedTotal, Moments as MomentVotes, Voting, rows_of
from pate._labeling.votes.voters import RecordVoters
from pate.lab.audit.canaries import CanaryMoments, CanaryRecords, CanaryTeachers, CanaryVotes, Exact
from pate.lab.audit.isolation import has_ballots, isolation_tests, shortened, vote_isolation_tests
from pate.lab.audit.releases import law_tests, moments_tests, without_budget
from pate.lab.audit.tables import Tables, Trial, Verdict, scratch

TradeOff = Callable[[float], float]
"""The least rate of false positives for a rate of true positives: convex and symmetric."""

SHARE = 0.25
"""The share of canaries that are guessed. It is fixed: a choice after a run proves nothing."""
_STEP = 0.01  # of epsilon, which is rounded down
_SIMULATED = 20  # audits
_LARGEST_MU = 64.0  # the end of the search
_EPSILONS = np.concatenate(([0.0], np.geomspace(1e-3, 200.0, 200)))  # of the lines of a trade-off


@dataclass(frozen=True)
class Guesses:
    """The guesses of one run.

    Attributes:
        canaries: the number of canaries, each with a fair coin of its own.
        made: the number of canaries that were guessed, independent of any run.
        right: the number of right guesses.
    """

    canaries: int
    made: int
    right: int

    def __post_init__(self) -> None:
        require_count(1, canaries=self.canaries, made=self.made)
        require(
            0 <= self.right <= self.made <= self.canaries,
            "0 <= right <= made <= canaries",
            **vars(self),
        )


def guess(scores: FloatArray, present: BoolArray, share: float = SHARE) -> Guesses:
    """Return the guesses that follow from scores: present above 0, absent below.

    Args:
        scores: ``[m]``, larger where a canary is likelier to be present; 0 is neutral.
        present: ``[m]``, whether each canary was present.
        share: the share of canaries that are guessed: those with scores farthest from 0.
    """
    made = max(1, math.ceil(share * len(scores)))
    chosen = np.argsort(-np.abs(scores), kind="stable")[:made]
    return Guesses(len(scores), made, int((present[chosen] == (scores[chosen] > 0)).sum()))


def epsilon_bound(guesses: Guesses, *, delta: float, confidence: float) -> float:
    """Return the epsilon below which no mechanism is (epsilon, ``delta``)-DP, rounded down to 0.01.

    It is wrong with a probability of at most ``1 - confidence`` (Steinke, Nasr & Jagielski (2023),
    Theorem 5.2).

    Raises:
        ValueError: if ``delta`` or ``confidence`` is out of range.
    """
    require(0 <= delta < 1, "0 <= delta < 1", delta=delta)
    require_in_open_unit_interval(confidence=confidence)
    steps = 0
    # upwards, because the term of delta need not fall as epsilon grows
    while _chance(guesses, steps * _STEP, delta) <= 1 - confidence:
        steps += 1
    return max(0, steps - 1) * _STEP


def _chance(guesses: Guesses, epsilon: float, delta: float) -> float:
    """Bound the probability of as many right guesses under (``epsilon``, ``delta``)-DP."""
    likely = 1 / (1 + math.exp(-epsilon))
    by_chance = float(binom.sf(guesses.right - 1, guesses.made, likely))
    if delta == 0 or not guesses.right:
        return by_chance
    missing = np.arange(1, guesses.right + 1)
    just_below = np.cumsum(binom.pmf(guesses.right - missing, guesses.made, likely))
    return min(1.0, by_chance + 2 * guesses.canaries * delta * float((just_below / missing).max()))


def refutes(guesses: Guesses, trade_off: TradeOff, *, confidence: float) -> bool:
    """Return whether guesses refute that a mechanism has this trade-off.

    For a mechanism that has it, they do so with a probability of at most ``1 - confidence``
    (Mahloujifar, Melis & Chaudhuri (2024), Theorem 9 and Algorithm 1). With ``p_j`` the probability
    of j right guesses, and for every i,

        trade_off(sum_(j >= i) j p_j / m) <= sum_(j >= i-1) (r - j) p_j / m.

    The right side holds the guesses that the flip of one coin would have made right. Of all laws
    with ``P[right >= v] = 1 - confidence`` the one below has the least total, which for a law is
    ``r / m``.
    """
    m, r, v = guesses.canaries, guesses.made, guesses.right
    right, wrong = (1 - confidence) * v / m, (1 - confidence) * (r - v) / m
    for i in range(v, 0, -1):
        # a rate above 1 is as impossible as a total above r / m, which then results
        more = max(wrong, trade_off(min(right, 1.0))) - wrong
        wrong += more
        right += (i - 1) / (r - i + 1) * more
    return right + wrong > r / m * (1 + 1e-12)


def mu_bound(guesses: Guesses, *, confidence: float) -> float:
    """Return the mu below which no mechanism is mu-GDP.

    It is wrong with a probability of at most ``1 - confidence``.

    Raises:
        ValueError: if ``confidence`` is out of range.
    """
    require_in_open_unit_interval(confidence=confidence)

    def is_consistent(mu: float) -> bool:
        return not refutes(guesses, gaussian_trade_off(mu), confidence=confidence)

    return (
        0.0
        if is_consistent(0.0)
        else smallest_where(is_consistent, 0.0, _LARGEST_MU, tolerance=1e-6) * (1 - 1e-6)
    )


def gaussian_trade_off(mu: float) -> TradeOff:
    """Return the trade-off of mu-GDP (Dong, Roth & Su (2022), Definition 2.6)."""
    return lambda hits: float(ndtr(ndtri(hits) - mu))


def trade_off_of(account: RDPAccountant) -> TradeOff:
    """Return the trade-off that the deltas and the mu of an account prove."""
    cost = account.cost
    deltas = np.array([account.get_delta(float(epsilon)) for epsilon in _EPSILONS])
    factors = np.exp(_EPSILONS)
    gaussian = (
        gaussian_trade_off(math.sqrt(cost.mu_squared))
        if cost.delta0 == 0 and math.isfinite(cost.mu_squared)
        else None
    )

    def false_positives(hits: float) -> float:
        one, other = (hits - deltas) / factors, 1 - deltas - factors * (1 - hits)
        # between the lines of two deltas the Gaussian curve is higher
        between = 0.0 if gaussian is None else gaussian(hits)
        return max(between, float(one.max()), float(other.max()))

    return false_positives


def hits_at(trade_off: TradeOff, false_positives: float) -> float:
    """Return the largest rate of true positives that a trade-off allows at a rate of false ones."""
    return smallest_where(lambda hits: trade_off(hits) >= false_positives, 0.0, 1.0)


@dataclass(frozen=True)
class Bounds:
    """Lower bounds from one run, each figure with a confidence of its own.

    Attributes:
        guesses: the numbers of guesses and of right ones.
        epsilon: the lower bound on epsilon at ``delta`` (Steinke et al. (2023)).
        mu: the lower bound on mu (Mahloujifar et al. (2024)).
        gaussian_epsilon: the epsilon at ``delta`` of a Gaussian mechanism of ``mu``: a bound only
            for Gaussian mechanisms.
        refuted: whether the guesses refute the stated trade-off.
    """

    guesses: Guesses
    epsilon: float
    mu: float
    gaussian_epsilon: float
    refuted: bool

    @classmethod
    def of(
        cls,
        scores: FloatArray,
        present: BoolArray,
        stated: TradeOff,
        *,
        delta: float,
        confidence: float = 0.95,
    ) -> Bounds:
        """Return the bounds from scores ``[m]`` of canaries, ``present`` ``[m]`` or not."""
        guesses = guess(scores, present)
        mu = mu_bound(guesses, confidence=confidence)
        return cls(
            guesses=guesses,
            epsilon=epsilon_bound(guesses, delta=delta, confidence=confidence),
            mu=mu,
            gaussian_epsilon=gaussian_epsilon(delta, mu),
            refuted=refutes(guesses, stated, confidence=confidence),
        )


def detectable_leak(
    canaries: int, stated: TradeOff, *, confidence: float, generator: np.random.Generator
) -> float:
    """Return how many times the stated ``mu`` must leak to be found, by simulated audits.

    It is the least power of two that 19 of 20 audits find; infinite beyond 16.
    """
    mu = float(ndtri(hits_at(stated, 0.5)))
    for factor in (1.0, 2.0, 4.0, 8.0, 16.0):
        found = 0
        for _ in range(_SIMULATED):
            present = generator.random(canaries) < 0.5
            seen = np.where(present, 0.5, -0.5) * factor * mu + generator.standard_normal(canaries)
            found += refutes(guess(seen, present), stated, confidence=confidence)
        if found >= 0.95 * _SIMULATED:
            return factor
    return math.inf


_CONFIDENCE = 1 - 0.05 / 2  # of each of two bounds
_TURNED = 32  # teachers of imported votes, or fewer
_RATES = (0.01, 0.001)  # of false positives, in the text
_UNTURNED = "no canary can be turned in votes of this kind"


@dataclass(frozen=True, kw_only=True)
class AuditResult(Tables):
    """The result of an audit: the tables of law, isolation and leak.

    Attributes:
        epsilon: the stated epsilon of the ledger under REPLACE_RECORD, for a unit of as many
            records as a canary has.
        delta: the delta of ``epsilon``.
        hits: the largest rate of true positives that the statement allows, by rate of false
            positives.
        labels: the bounds from the released answers of one run. None without canary records.
        student: the bounds from the student's probabilities in one run. None likewise.
        exact: the exact leakage of a release, or the reason that it is not known.
    """

    epsilon: float
    delta: float
    hits: Mapping[float, float]
    labels: Bounds | None
    student: Bounds | None
    exact: Exact | str

    @property
    def content(self) -> dict[str, Any]:
        """All figures in plain JSON types."""
        hits = {str(rate): hits for rate, hits in self.hits.items()}
        return {"private": False, "verdict": self.verdict} | asdict(self) | {"hits": hits}

    @property
    def text(self) -> str:
        """All figures in words."""
        lines = [
            AUDITED,
            "",
            f"Stated under REPLACE_RECORD: epsilon = {self.epsilon:.3f} at delta = {self.delta:g}.",
            "An attacker who wants to know of one record in which of two versions it was there"
            " then recognizes",
            *(
                f"  at most {hits:.2%} of those that were, if {rate:.1%} of those that were not are"
                " taken for it,"
                for rate, hits in self.hits.items()
            ),
            "whatever else is known, and whatever the attack.",
            "",
            "\n\n".join(self.texts),
        ]  # fmt: skip
        return "\n".join(lines) + "\n"


def audit(folder: Path) -> AuditResult:
    """Trial a finished run: the law of its noise, isolation, and what leaks.

    Args:
        folder: the folder of the run. Its data are `CanaryRecords`, or its votes are imported. The
            canaries are then some of its teachers.

    Raises:
        ValueError: if the run is not finished, or has neither canaries nor imported votes.
    """
    run = Run(folder, ledger=load_ledger(folder))
    data = load_data(run) if run.state(TEACHERS_FIT) is not None else None
    require(
        data is None or isinstance(data, CanaryRecords),
        "a run with canaries among its records, or imported votes",
        data=type(data).__name__,
    )
    assert data is None or isinstance(data, CanaryRecords)
    copies = 1 if data is None else data.canaries.copies
    reserved = account(
        read_ledger(run.ledger_path).reserved(copies), NeighboringRelation.REPLACE_RECORD
    )
    released, stated, laws = ReleasedLabels.load(folder), trade_off_of(reserved), law_tests(run)
    bounds: tuple[Bounds, ...] = ()
    if data is None:
        isolated = vote_isolation_tests(run)
    else:
        # teachers of a first release expect its features, which have columns of canaries
        starts = run.inputs_of(TEACHERS_FIT).settings.get("start_from") is not None
        isolated = isolation_tests(run, data if starts else data.source)
        if isinstance(data.source, DrawnPublic):
            settings = decode_fields(LabelSettings, run.inputs_of(LABEL).settings)
            laws += moments_tests(
                sample_settings(settings, load_plan(run).unit),
                data.source.load(Role.PUBLIC).features.shape[1],
            )
        bounds = _bounds(folder, data, released, stated)
    exact = _exact(run, data, released)
    leak = [_leaked(exact, copies)]
    if bounds:
        least = detectable_leak(
            bounds[0].guesses.canaries,
            stated,
            confidence=_CONFIDENCE,
            generator=np.random.default_rng(),
        )
        seen = zip(("released labels and values", "student"), bounds, strict=True)
        leak = [*(_guessed(*each, least) for each in seen), *leak]
    tables: dict[str, Sequence[Trial]] = {"law": laws, "isolation": isolated}
    if finished_votes(run).manifest().kind is not MaskedTotal:  # whose votes no party knows
        tables["leak"] = leak
    labels, student = bounds or (None, None)
    return AuditResult(
        epsilon=reserved.get_epsilon(delta=released.delta),
        delta=released.delta,
        hits={rate: hits_at(stated, rate) for rate in _RATES},
        tables=tables,
        labels=labels,
        student=student,
        exact=exact,
    )


def _bounds(
    folder: Path, data: CanaryRecords, released: ReleasedLabels, stated: TradeOff
) -> tuple[Bounds, Bounds]:
    """Return the bounds from the released answers, and from the student's probabilities."""
    values = (
        np.where(released.mask, released.labels - 0.5, 0.0)
        if released.noisy_counts is None
        else released.noisy_counts
    )
    student = Pipeline(folder).student()
    probabilities = student.predict_proba(data.canaries.probes.astype(np.float32))
    views = _of_probes(values, released.ids, data.probe_ids), probabilities.astype(np.float64)
    of_labels, of_student = (
        Bounds.of(
            data.canaries.scores(view),
            data.present,
            stated,
            delta=released.delta,
            confidence=_CONFIDENCE,
        )
        for view in views
    )
    return of_labels, of_student


def _exact(run: Run, data: CanaryRecords | None, released: ReleasedLabels) -> Exact | str:
    """Return what a release of the votes leaks on canaries, kept in the run once it is known."""
    settings = decode_fields(LabelSettings, run.inputs_of(LABEL).settings)
    world = canary_votes(run, data, settings)
    if world is None:
        return _UNTURNED
    charges = for_group_size(
        [(settings.mechanism.events(released.shape), len(released.ids))],
        1 if data is None else data.canaries.copies,
    )
    paid = account(charges, NeighboringRelation.REPLACE_RECORD).get_epsilon(delta=released.delta)

    def leaks() -> dict[str, Any]:
        mechanism, generator = settings.mechanism, private_generator()
        try:
            leak = world.exact(mechanism, generator, paid=paid, delta=released.delta)
        except NotStatedError as error:
            return {"exact": str(error)}
        return {"exact": asdict(leak)}

    # nothing is written to a run that is not of an audit
    place = run.private / f"exact-{released.release}.json"
    content = (leaks() if data is None else make_once(place, leaks))["exact"]
    return content if isinstance(content, str) else Exact(**content)


def _guessed(seen: str, bounds: Bounds, least: float) -> Trial:
    guesses = bounds.guesses
    return Trial(
        seen,
        f"{guesses.made} guesses about {guesses.canaries} canaries of one run",
        f"{least:.0f} times the stated mu in 19 of 20 simulated audits"
        if math.isfinite(least)
        else "not even 16 times the stated mu",
        f"{guesses.right} right: epsilon >= {bounds.epsilon:.2f}, or"
        f" {bounds.gaussian_epsilon:.2f} if Gaussian, with 95% together",
        "refuted" if bounds.refuted else "passed",
    )


def _leaked(exact: Exact | str, copies: int) -> Trial:
    records = "one record" if copies == 1 else f"{copies} records"
    tried = f"the laws of all answers on the votes with either version of a canary of {records}"
    if isinstance(exact, str):
        return Trial("exact leakage", tried, "nothing", exact, "not tested")
    return Trial(
        "exact leakage",
        tried,
        "any epsilon above the one paid",
        exact.text,
        "refuted" if exact.refuted else "passed",
    )


def canary_votes(
    run: Run, data: CanaryRecords | None, settings: LabelSettings
) -> CanaryVotes | None:
    """Return the votes of a run with its canaries in them. None if they cannot be turned there.

    Of imported votes, teachers are canaries: they vote as they do, or the opposite of it.
    """
    store = finished_votes(run)
    manifest = store.manifest()
    if data is None and not has_ballots(manifest):
        return None
    chosen = None if settings.query_choice is None else chosen_rows(run, store, settings)
    queries = queries_on(manifest, settings, chosen)
    needs = settings.mechanism.needs
    if manifest.kind is Ballots:
        needs |= {Ballots}
    votes = load_votes(run, store, queries.ids, needs, predictions=settings.predictions)
    if data is None:
        assert isinstance(votes, Ballots)
        number = votes.num_teachers
        some = np.arange(0, number, max(4, math.ceil(number / _TURNED)))
        there = votes.ballots[:, None, some]
        return CanaryTeachers(votes, some[None], np.stack((there, 1 - there)))
    private = data.records(Role.PRIVATE)
    rows = rows_of(data.ids, private.ids)
    plan = run.inputs_of(TEACHERS_FIT).settings
    key = sealing_key(run)
    units = assigned_units(private, load_plan(run), key)
    if isinstance(votes, MomentVotes) and isinstance(votes.voters, RecordVoters):
        return CanaryMoments(votes, data.canaries, rows)
    groups: Any = (
        units
        if plan["num_teachers"] is None
        else assign_teachers(map(str, units), num_teachers=plan["num_teachers"], key=key)
    )
    if isinstance(votes, MomentVotes):
        # as they were stored: teacher by teacher
        return CanaryMoments(
            votes, data.canaries, np.argsort(np.argsort(groups, kind="stable"))[rows]
        )
    if not isinstance(votes, Ballots) or data.canaries.mixture.min() >= 0:
        return None  # scores cannot be turned, nor votes on samples without a mirror image
    return _teachers(votes, queries.ids, data, groups[rows])


def _teachers(
    votes: Ballots, ids: StrArray, data: CanaryRecords, teachers: IntArray
) -> CanaryTeachers | None:
    """Return the votes with the canaries that share their teachers ``[copies, m]`` with no other.

    A canary on the other side would have trained a teacher that votes on the probes as it votes on
    their mirror images. None with fewer than two such canaries.
    """
    _, inverse, counts = np.unique(teachers, return_inverse=True, return_counts=True)
    single = (counts[inverse.reshape(teachers.shape)] == 1).all(axis=0)
    if single.sum() < 2:
        return None
    names, mirror = dict(zip(ids.tolist(), range(len(ids)), strict=True)), np.arange(len(ids))
    for pair in data.probe_ids.reshape(2, -1).T.tolist():
        if pair[0] in names and pair[1] in names:
            mirror[[names[pair[0]], names[pair[1]]]] = names[pair[1]], names[pair[0]]
    there = votes.ballots[:, teachers[:, single]]
    sides = [
        np.where(data.present[single][None, None, :, None] == side, there, there[mirror])
        for side in (True, False)
    ]
    return CanaryTeachers(votes, teachers[:, single], np.stack(sides))


def _of_probes(values: FloatArray, ids: StrArray, probes: StrArray) -> FloatArray:
    """Return the values ``[p, C]`` of probes. The average value where a probe was no query."""
    _, queried, rows = np.intersect1d(probes, ids, return_indices=True)
    found = np.tile(values.mean(axis=0), (len(probes), 1))
    found[queried] = values[rows]
    return found


PROOF = "proof.txt"
"""The file of the tables, in the folder of a run."""


def prove(
    root: Path,
    data: DataSource,
    plan: Plan,
    settings: LabelSettings,
    *,
    voting: Voting | None = None,
    first: LabelSettings | None = None,
    samples: SampleSettings | None = None,
) -> Verdict:
    """Test law and isolation on a copy of a run with made-up records; return the verdict.

    Args:
        root: the run's folder. A file with both tables is left there.
        data: the records. Only public and test records are read; with public samples
            that are yet to be drawn, its rehearsal.
        plan: how teachers are made. Networks train for a few steps.
        settings: the settings of the release, complete.
        voting: the form of the teachers' votes.
        first: the settings of the release that teachers start from, if it is the run's own.
        samples: the settings of public samples that are drawn.
    """
    with scratch(Run(root), "proof") as folder, redirect_stdout(StringIO()):
        if isinstance(data, DrawnPublic):
            public = data.load(Role.PUBLIC)
            np.savez(folder / "drawn.npz", X=public.features[:], ids=public.ids)
            data = DrawnPublic(data._source, samples=folder / "drawn.npz", bounds=data._bounds)
        made_up = MadeUp(data, grouped=uses_groups(plan))
        copy, ledger = folder / "run", ledger_in(folder)
        if first is not None:
            start = Pipeline(copy / FIRST, made_up, ledger=ledger)
            start.fit_teachers(ClosedFormPlan(unit=plan.unit))
            start.vote()
            start.label(without_budget(first))
            start.fit_student(StudentPlan())
        pipeline = Pipeline(copy, made_up, ledger=ledger)
        pipeline.fit_teachers(shortened(plan))
        pipeline.vote(votes=voting)
        pipeline.label(without_budget(settings))
        run = Run(copy, ledger=ledger)
        tables = {"law": law_tests(run), "isolation": isolation_tests(run, made_up)}
        if samples is not None:
            tables["law"] += moments_tests(samples, made_up.load(Role.PUBLIC).features.shape[1])
    proof = Tables(tables=tables)
    write_text(root / PROOF, "\n\n".join(proof.texts) + "\n")
    return proof.verdict
