"""The audit of a whole run: its published files are tested against its statement. NOT PRIVATE.

Each of ``m`` canaries is in one of two neighboring states, by a fair coin of its own. An attacker
makes ``r`` guesses from the files, a number that is fixed beforehand; ``v`` of them are right. They
give lower bounds on epsilon and mu.

At the end `pate audit`: a recipe run on a copy with canaries, or a run without a record.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from pate._core.accounting.accountant import RDPAccountant
from pate._core.accounting.charges import account
from pate._core.accounting.cost import NeighboringRelation, gaussian_epsilon, smallest_where
from pate._core.accounting.ledger import ledger_in, read_ledger
from pate._core.accounting.statement import AUDITED
from pate._core.files.reading import load_yaml, read_text
from pate._core.files.writing import locked, write_json, write_text
from pate._core.settings import decode, import_path
from pate._core.validation import (
    BoolArray,
    FloatArray,
    StrArray,
    UInt8Array,
    given,
    require,
    require_count,
)
from pate._labeling.commands.parsing import FLAG, CommandParser, add_options
from pate._labeling.commands.places import PARTS, find_recipe
from pate._labeling.commands.run import Overrides, Recipe, by_part, run_plan
from pate._labeling.data.records import ArrayFeatures, Records, Role
from pate._labeling.data.source import DataSource
from pate._labeling.linear import flat
from pate._labeling.runs.carried import load_student
from pate._labeling.runs.released import ReleasedLabels
from pate._labeling.runs.run import (
    LABEL,
    TEACHERS_FIT,
    Run,
    StageChangedError,
    load_data,
    load_ledger,
)
from pate.lab.audit.neighbor import STATUS, Whom, audit_neighbor

# the distance of a canary in each of its columns, in deviations of the public samples
_REACH = 2.5


@dataclass(frozen=True, eq=False)
class Canaries:
    """Both versions of each canary, and the public samples that reveal them.

    Attributes:
        features: ``[2, m, F]``, for present and for absent canaries.
        labels: ``[2, m, C]`` in {0, 1}, likewise.
        probes: ``[p, F]``, public samples. Their answers depend on canaries.
        mixture: ``[m, p]``: the score of a canary is a sum of answers by these weights, each times
            ``signs``.
        signs: ``[m, C]`` in {-1, 1}: the direction of the answers' move if a canary is there.
    """

    features: FloatArray
    labels: UInt8Array
    probes: FloatArray
    mixture: FloatArray
    signs: FloatArray

    def scores(self, answers: FloatArray) -> FloatArray:
        """Return the score ``[m]`` of each canary from answers ``[p, C]`` to the probes."""
        return np.asarray(
            ((self.mixture @ (answers - answers.mean(axis=0))) * self.signs).sum(axis=1)
        )


class CanaryRecords(DataSource):
    """The records of another source, with canaries among the private ones. For audits: NOT PRIVATE.

    Outlying canaries lie in orthogonal directions of columns of their own, where all other
    records are 0. A canary is on one side if it is present and on the other if it is not. The
    public samples include probes, each with a large value in one such column. So each canary has a
    code of its own over the probes in ballots, and a place of its own in sums.

    Args:
        source: the source. Its features must be rows of numbers once they are mapped.
        canaries: the number of canaries, a power of two.
        seed: the seed of the coins; with a canary's id it decides the canary's version.
    """

    is_audit = True

    def __init__(self, source: DataSource, *, canaries: int, seed: int = 0) -> None:
        super().__init__()
        require_count(2, canaries=canaries)
        require(canaries.bit_count() == 1, "a power of two of canaries", canaries=canaries)
        require_count(0, seed=seed)
        self.source, self._num, self._seed = source, canaries, seed
        self.shifted = source.shifted

    @property
    def label_names(self) -> tuple[str, ...]:
        """The names of the labels of the source."""
        return self.source.label_names

    @cached_property
    def canaries(self) -> Canaries:
        """The canaries, which depend on the records of the source."""
        private = self.source.records(Role.PRIVATE)
        require(
            len(private.features.shape) == 2,
            "features that are rows of numbers: a feature map, such as PublicPCA, makes them of"
            " pictures",
            shape=private.features.shape,
        )
        require(
            not self.source.unknown_labels,
            "labels that are all known, for an audit",
            unknown_labels=True,
        )
        present = np.tile(private.labels.mean(axis=0) <= 0.5, (self._num, 1)).astype(np.uint8)
        public = flat(self.source.records(Role.PUBLIC).features[:])
        spread = float(np.sqrt(public.var(axis=0).mean())) or 1.0
        num = np.arange(self._num)
        codes = 1.0 - 2.0 * (np.bitwise_count(num[:, None] & num[None]) % 2)
        ours = _REACH * spread * codes
        # the columns then have the variance of all others
        far = spread * np.sqrt((len(public) + 2 * self._num) / 2) * np.eye(self._num)
        center = public.mean(axis=0)
        return Canaries(
            features=np.stack(
                [np.column_stack((np.tile(center, (self._num, 1)), rows)) for rows in (ours, -ours)]
            ),
            labels=np.stack((present, present)),
            probes=np.column_stack(
                (np.tile(center, (2 * self._num, 1)), np.concatenate((far, -far)))
            ),
            mixture=np.column_stack((codes, -codes)),
            signs=np.where(present, 1.0, -1.0),
        )

    @property
    def ids(self) -> StrArray:
        """The ids ``[m]`` of the canaries."""
        return np.array([f"canary-{i}" for i in range(self._num)])

    @cached_property
    def present(self) -> BoolArray:
        """Whether each canary ``[m]`` is in its first version."""
        key = b"%d" % self._seed
        coins = (hashlib.blake2b(str(n).encode(), digest_size=8, key=key) for n in self.ids)
        return np.array([coin.digest()[-1] % 2 == 0 for coin in coins])

    @property
    def probe_ids(self) -> StrArray:
        """The ids ``[p]`` of the probes among the public samples."""
        return np.array([f"probe-{i}" for i in range(len(self.canaries.probes))])

    def load(self, role: Role) -> Records:
        """Return the mapped records of the source, with canaries or probes added for this role."""
        records, canaries = self.source.records(role), self.canaries
        theirs = np.zeros((len(records), canaries.probes.shape[1]))
        theirs[:, : records.features.shape[1]] = flat(records.features[:])
        rows: list[FloatArray] = [theirs]
        labels, ids = [np.array(records.labels)], [records.ids]
        if role is Role.PUBLIC:
            rows.append(canaries.probes)
            ids.append(self.probe_ids)
            labels.append(np.zeros((len(canaries.probes), self.num_labels), dtype=np.uint8))
        if role is Role.PRIVATE:
            which, each = np.where(self.present, 0, 1), np.arange(self._num)
            rows.append(canaries.features[which, each])
            labels.append(canaries.labels[which, each])
            ids.append(self.ids)
        names = np.concatenate([part.astype(str) for part in ids])
        groups, added = records.groups, names[len(records) :]
        return Records(
            features=ArrayFeatures(np.concatenate(rows).astype(np.float32)),
            labels=np.concatenate([part.astype(np.uint8) for part in labels]),
            ids=names,
            groups=None if groups is None else np.append(groups.astype(str), added),
        )


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


def guess(scores: FloatArray, present: BoolArray) -> Guesses:
    """Return the guesses that follow from scores: present above 0, absent below.

    Args:
        scores: ``[m]``, larger where a canary is likelier to be present; 0 is neutral. The canaries
            with scores farthest from 0 are guessed.
        present: ``[m]``, whether each canary was present.
    """
    made = max(1, math.ceil(SHARE * len(scores)))
    chosen = np.argsort(-np.abs(scores), kind="stable")[:made]
    return Guesses(len(scores), made, int((present[chosen] == (scores[chosen] > 0)).sum()))


def epsilon_bound(guesses: Guesses, *, delta: float, confidence: float) -> float:
    """Return the epsilon below which no mechanism is (epsilon, ``delta``)-DP, rounded down to 0.01.

    It is wrong with a probability of at most ``1 - confidence`` (Steinke, Nasr & Jagielski (2023),
    Theorem 5.2).
    """
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
    """

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

    @property
    def text(self) -> str:
        """The guesses and bounds in words."""
        return (
            f"{self.guesses.right} of {self.guesses.made} guesses about {self.guesses.canaries}"
            f" canaries are right: epsilon >= {self.epsilon:.2f}, or {self.gaussian_epsilon:.2f} if"
            " Gaussian, with 95% together"
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
_RATES = (0.01, 0.001)  # of false positives, in the text
_VERDICTS = {
    True: "REFUTED: this program does not do what the statement says.",
    False: "Nothing is refuted. This is no proof of a theorem, but a test of this program.",
}


@dataclass(frozen=True, kw_only=True)
class AuditResult:
    """The result of an audit.

    Attributes:
        epsilon: the stated epsilon of the ledger under REPLACE_RECORD.
        delta: the delta of ``epsilon``.
        hits: the largest rate of true positives that the statement allows, by rate of false
            positives.
        detectable: how many times the stated mu must leak to be found in 19 of 20 audits.
        labels: the bounds from the released answers of one run.
        student: the bounds from the student's probabilities in one run.
    """

    epsilon: float
    delta: float
    hits: Mapping[float, float]
    detectable: float
    labels: Bounds
    student: Bounds

    @property
    def refuted(self) -> bool:
        """Whether the guesses refute the statement."""
        return self.labels.refuted or self.student.refuted

    @property
    def content(self) -> dict[str, Any]:
        """All figures in plain JSON types."""
        hits = {str(rate): hits for rate, hits in self.hits.items()}
        return {"private": False, "refuted": self.refuted} | asdict(self) | {"hits": hits}

    @property
    def text(self) -> str:
        """All figures in words."""
        found = self.detectable
        power = f"{found:.0f} times" if math.isfinite(found) else "not even 16 times"
        views = {"released labels and values": self.labels, "student": self.student}
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
            *(f"{seen}: {bounds.text}" for seen, bounds in views.items()),
            f"A leak of {power} the stated mu is found in 19 of 20 simulated audits.",
            "",
            _VERDICTS[self.refuted],
        ]  # fmt: skip
        return "\n".join(lines) + "\n"


def audit(folder: Path) -> AuditResult:
    """Compare what a finished run has published with its statement.

    Args:
        folder: the folder of the run, whose data are `CanaryRecords`.

    Raises:
        ValueError: if the run is not finished, or has no canaries.
    """
    run = Run(folder, ledger=load_ledger(folder))
    run.require_finished(LABEL)
    data = load_data(run)
    require(
        isinstance(data, CanaryRecords),
        "a run with canaries among its records",
        data=type(data).__name__,
    )
    assert isinstance(data, CanaryRecords)
    reserved = account(read_ledger(run.ledger_path).reserved(1), NeighboringRelation.REPLACE_RECORD)
    released, stated = ReleasedLabels.load(folder), trade_off_of(reserved)
    values = (
        np.where(released.mask, released.labels - 0.5, 0.0)
        if released.noisy_counts is None
        else released.noisy_counts
    )
    student = load_student(folder, trust=True)
    probabilities = student.predict_proba(data.canaries.probes.astype(np.float32))
    labels, student_bounds = (
        Bounds.of(
            data.canaries.scores(view),
            data.present,
            stated,
            delta=released.delta,
            confidence=_CONFIDENCE,
        )
        for view in (
            _of_probes(values, released.ids, data.probe_ids),
            probabilities.astype(np.float64),
        )
    )
    return AuditResult(
        epsilon=reserved.get_epsilon(delta=released.delta),
        delta=released.delta,
        hits={rate: hits_at(stated, rate) for rate in _RATES},
        detectable=detectable_leak(
            len(data.present),
            stated,
            confidence=_CONFIDENCE,
            generator=np.random.default_rng(),
        ),
        labels=labels,
        student=student_bounds,
    )


def _of_probes(values: FloatArray, ids: StrArray, probes: StrArray) -> FloatArray:
    """Return the values ``[p, C]`` of probes. The average value where a probe was no query."""
    _, queried, rows = np.intersect1d(probes, ids, return_indices=True)
    found = np.tile(values.mean(axis=0), (len(probes), 1))
    found[queried] = values[rows]
    return found


_OTHERS = PARTS[1:]
_NEIGHBORS: dict[str, Whom] = {
    "neighbor": "record",
    "neighbor_group": "group",
    "neighbor_teacher": "teacher",
}
_MARK = "NOT-PRIVATE.txt"
_CHOOSE = "Choose another folder with --output"


def main(args: Sequence[str]) -> None:
    """Run `pate audit`."""
    words, overrides = by_part(args)
    parsed = _parser().parse_args(words)
    named = {option: getattr(parsed, option) for option in _NEIGHBORS}
    if chosen := given(**named):
        require(
            len(chosen) == 1 and parsed.output is None and not any(overrides.values()),
            f"one of {', '.join(_NEIGHBORS)} of a run, without output or settings",
            **chosen,
        )
        ((option, name),) = chosen.items()
        # PRIVATE: to the screen alone
        alone = audit_neighbor(parsed.recipe, _NEIGHBORS[option], name)
        print(alone.text, end="")
        _end(STATUS[alone.verdict])
        return
    folder = parsed.output or Path("audits") / parsed.recipe.resolve().name
    _audit_recipe(find_recipe(parsed.recipe), folder, parsed, overrides)


def _audit_recipe(recipe: Path, folder: Path, parsed: Any, overrides: Overrides) -> None:
    """Run a recipe on a copy of its records with canaries, and audit the run."""
    copy, run = folder / "recipe", Run(folder / "run")
    begun = run.state(TEACHERS_FIT) is not None
    seed = parsed.seed
    if seed is None:
        seed = _read(copy / "data.yaml")["init_args"]["seed"] if begun else secrets.randbits(31)
    data = {
        "class_path": import_path(CanaryRecords),
        "init_args": {
            "source": Recipe(recipe, run.root, overrides).teachers()[-1]["data"],
            "canaries": parsed.canaries,
            "seed": seed,
        },
    }
    text = f"# {AUDITED}\n{yaml.safe_dump({'data': data}, sort_keys=False)}"
    if parsed.print_config:
        print(text, end="")
        return
    decode(DataSource, data)  # raises on wrong settings before anything is written
    _require_own(folder)
    require(
        not begun or _read(copy / "data.yaml") == data,
        f"the data and the canaries that the audit in {folder} was begun with. {_CHOOSE}",
    )
    with locked(folder):
        for place in (folder, run.root, run.public):
            write_text(place / _MARK, f"{AUDITED}\n")
        for part in _OTHERS:
            name = f"{part}.yaml"
            write_text(copy / name, f"# {AUDITED}\n{read_text(recipe / name)}")
        write_text(copy / "data.yaml", text)
        print(AUDITED)
        try:
            # the overrides of data are in the copy already
            inner = {**overrides, "data": []}
            run_plan(Recipe(copy, run.root, inner, ledger_in(folder)).plan())
        except StageChangedError as error:
            raise ValueError(f"{str(error).partition('. ')[0]}. {_CHOOSE}") from None
        finally:
            _mark(run)
            if run.state(TEACHERS_FIT) is None:
                for place in (copy, run.root):
                    shutil.rmtree(place, ignore_errors=True)
                (folder / _MARK).unlink()
        outcome = audit(run.root)
        write_json(folder / "audit.json", outcome.content)
        write_text(folder / "audit.txt", outcome.text)
        print(f"\n{outcome.text}\n{folder / 'audit.txt'}, {folder / 'audit.json'}")
        _end(int(outcome.refuted))


def _require_own(folder: Path) -> None:
    """Raise ``ValueError`` on a folder of other files, which may hold a ledger in use."""
    files = [file.name for file in folder.iterdir()] if folder.is_dir() else []
    foreign = _MARK not in files and any(not name.startswith(".") for name in files)
    require(not foreign, f"a new folder, or the folder of an audit. {_CHOOSE}", output=str(folder))


def _end(status: int) -> None:
    if status:
        raise SystemExit(status)


def _mark(run: Run) -> None:
    """Mark the settings in the public folder as settings of an audit."""
    for file in run.public.glob("*.yaml"):
        content = read_text(file)
        if not content.startswith("#"):
            write_text(file, f"# {AUDITED}\n{content}")


def _read(file: Path) -> Any:
    """Return the source that a ``data.yaml`` describes, as plain data."""
    content = load_yaml(file)
    described = isinstance(content, dict) and content.get("data")
    require(described, f"a source of records under `data:` in {file}")
    return described


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="pate audit",
        description="Run a recipe on a copy of its records, with canaries among them, and test how"
        " well they are detected. Exit status 1 means that the statement is refuted. NOT"
        " PRIVATE: the output reveals which canaries were included.\n\nThe ledger of the records is"
        " neither read nor written: an audit has its own folder and ledger. After a kill, run the"
        " same command again to continue.\n\nA setting of a stage is overridden as in `pate run`:"
        " --label.target_epsilon 4.\n\nWith --neighbor, --neighbor_group or --neighbor_teacher it"
        " tests"
        " the releases of an existing run instead, for the owner of the data alone: its output is"
        " PRIVATE, and goes to the screen. Exit status 3 means that a release has no test.",
        print_config=None,
    )
    add_options(
        parser,
        {
            "recipe": {
                "type": Path,
                "help": "the folder, or the name of a shipped recipe, such as table; with"
                " --neighbor the folder of a run",
            },
            "--output": {
                "type": Path,
                "help": "folder of the audit; by default audits/ and the recipe's name",
            },
            "--canaries": {
                "type": int,
                "default": 256,
                "help": "the number of canaries, a power of two",
            },
            "--neighbor": {
                "type": str,
                "metavar": "ID",
                "help": "of a run: make all releases of its ledger again without this private"
                " record, with the same outcome of each draw. PRIVATE, for the owner alone",
            },
            "--neighbor_group": {
                "type": str,
                "metavar": "G",
                "help": "likewise, without all records of a group",
            },
            "--neighbor_teacher": {
                "type": str,
                "metavar": "T",
                "help": "likewise, without a teacher, from 0, and its records",
            },
            "--seed": {
                "type": int,
                "help": "decides which canaries are included; drawn once by default",
            },
            "--print_config": {**FLAG, "help": "print the data.yaml of the audit"},
        },
    )
    return parser
