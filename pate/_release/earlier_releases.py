"""Releases from the same private records that come before labels: public samples, and a student.

Public samples are drawn from noisy moments of the records. The student, which teachers start from,
is compared with their data and their ledger.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np

from pate._closed_form_plan import FIRST
from pate._data_file import describe_data, load_data
from pate._files import (
    atomic_write,
    digest,
    locked_output,
    read_json,
    require_place,
)
from pate._release.ledger_file import open_ledger, scope_beside
from pate._release.transaction import (
    PendingRelease,
    Releasable,
    ReleaseOutcome,
    ReservationRequest,
    release,
    request_text,
    require_promise,
)
from pate._runs import EXPORTED, MODEL, STUDENT, TEACHERS_FIT, Run, labels_file
from pate._runs.released import ReleasedLabels, require_student
from pate._settings import decode
from pate._validation import (
    MOST_VOTERS,
    Float32Array,
    FloatArray,
    expecting,
    require,
    require_positive,
)
from pate._version import __version__
from pate.accounting import LedgerEntry, NeighboringRelation, Statement, read_ledger
from pate.accounting._charges import Charge
from pate.aggregators._base import Aggregator
from pate.data import DataSource, Role
from pate.data._arrays import DrawnPublic, drawn_ids
from pate.data._records import Unit, blocks_of
from pate.mechanisms._noisy_counts import NoisyMoments
from pate.student._carried import ExportedStudent, load_student, student_digests

_MOST_COLUMNS = 4096  # whose products are released


@dataclass(frozen=True, kw_only=True)
class SampleSettings:
    """The cost of public samples, and the unit that it protects.

    Args:
        noise_multiplier: of the Gaussian mechanisms together.
        delta: the delta of the statement.
        relation: the relation of the guarantee that is stated first.
        unit: the protected unit, a record or a group of records.
        max_teachers_per_unit: as in `LabelSettings`.
        noise_seed: a fixed seed of the noise, for tests: the samples are NOT private.
    """

    noise_multiplier: float
    delta: float
    relation: NeighboringRelation = NeighboringRelation.REPLACE_RECORD
    unit: Unit = "record"
    max_teachers_per_unit: int = 1
    noise_seed: int | None = None

    def __post_init__(self) -> None:
        require_positive(noise_multiplier=self.noise_multiplier)
        require_promise(self.delta)

    @property
    def charge(self) -> Charge:
        """The cost of the release, under both relations."""
        mechanism = NoisyMoments(noise_multiplier=self.noise_multiplier)
        return {relation: mechanism.event(relation) for relation in NeighboringRelation}, 1


def draw_public_samples(run: Run, data: DrawnPublic, settings: SampleSettings) -> Charge:
    """Draw the public samples that ``data`` names, unless they exist, and return their cost.

    The cost is in the ledger before the noise is drawn. After a kill, the same call continues with
    its reservation and its noise. Samples that exist are compared with the ledger.

    Args:
        run: the run, with the ledger that pays.
        data: the source of the private records.
        settings: the cost.

    Raises:
        ValueError: before anything is spent, if samples exist that the ledger did not pay for, the
            records are no rows of numbers, or the ledger cannot pay.
    """
    if not data.samples.is_file():
        require_place(data.samples.parent)
        with locked_output(data.samples.resolve()):
            release(_Samples(run, data, settings))
    return released_samples(run, data, settings.unit)


def released_samples(run: Run, data: DrawnPublic, unit: Unit) -> Charge:
    """Return the charge of the drawn samples of a source, as the ledger of a run holds it.

    Raises ``ValueError`` unless the ledger holds their release, for the same protected ``unit``: a
    group moves moments of records by more than was paid for.
    """
    with expecting(
        f"samples in {data.samples}, drawn from these records and paid for in {run.ledger_path}",
        ValueError,
        got="others",
    ):
        require(run.ledger_path.is_file(), "a ledger that holds their release", ledger=None)
        statement = Statement.read(data.samples.with_suffix(".privacy.json"))
        statement.verify(ledger=run.ledger_path, released=data.samples)
        require(statement.kind == "samples", "a statement on samples", kind=statement.kind)
        require(statement["unit"] == unit, f"samples for unit: {unit}", unit=statement["unit"])
    entry = read_ledger(run.ledger_path).entries[statement["release"] - 1]
    return entry.events, entry.count


class _Samples(Releasable):
    """The samples of a source."""

    _content: bytes
    _shape: tuple[int, ...]

    def __init__(self, run: Run, data: DrawnPublic, settings: SampleSettings) -> None:
        self._run, self._data, self._settings = run, data, settings
        self.file, self.statement_file = data.samples, data.samples.with_suffix(".privacy.json")
        self.seeds = run.ledger_path.with_suffix(".pending")
        self.noise_seed = settings.noise_seed

    def request_digest(self) -> str:
        facts = {**vars(self._settings), "output": self.file.resolve()}
        described = json.dumps(describe_data(self._data), sort_keys=True)
        return digest(request_text(facts), described, self._data.fingerprint(Role.PRIVATE))

    @contextmanager
    def prepared(
        self, pending: PendingRelease, generator: np.random.Generator
    ) -> Iterator[ReservationRequest]:
        settings = self._settings
        self.require_new(pending, self._run.ledger_path)
        private = self._data.load(Role.PRIVATE)
        _ = self._data.scaling
        columns = private.features.shape[1]
        require(columns <= _MOST_COLUMNS, f"at most {_MOST_COLUMNS} columns", columns=columns)
        # their number is private
        require(
            len(private) <= MOST_VOTERS,
            f"at most {MOST_VOTERS} private records, whose sums are exact",
        )
        private.units(settings.unit)
        events, count = settings.charge
        yield ReservationRequest(
            ledger=open_ledger(self._run, settings.max_teachers_per_unit),
            events=events,
            count=count,
            relation=settings.relation,
            delta=settings.delta,
            budget=None,
            run=self._run.root.absolute().name,
            description=DrawnPublic.__name__,
        )

    def draw(self, release: int, generator: np.random.Generator) -> None:
        mechanism = NoisyMoments(noise_multiplier=self._settings.noise_multiplier)
        moments = mechanism(self._blocks(), generator=generator)
        samples = self._data.unscaled(moments.draw(self._data.num_samples, generator=generator))
        content = io.BytesIO()
        np.savez(content, X=samples, ids=drawn_ids(len(samples)))
        self._content, self._shape = content.getvalue(), samples.shape

    def _blocks(self) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield rows of private records of norm 1 at most, and the share of each in its unit."""
        private, scaling = self._data.load(Role.PRIVATE), self._data.scaling
        _, units, sizes = np.unique(
            private.units(self._settings.unit), return_inverse=True, return_counts=True
        )
        for index in blocks_of(private.features, range(len(private))):
            rows = scaling.transform(private.features.select(index))
            yield rows.astype(np.float64) / math.sqrt(2), 1 / sizes[units[index]]

    def settlement(self, entry: LedgerEntry) -> ReleaseOutcome:
        number, columns = self._shape
        return ReleaseOutcome(
            published={
                "kind": "samples",
                "neighboring_relation": self._settings.relation.value,
                "delta": self._settings.delta,
                "unit": self._settings.unit,
                "max_teachers_per_unit": self._settings.max_teachers_per_unit,
                "num_samples": number,
                "num_columns": columns,
                "versions": {"pate": __version__, "numpy": np.__version__},
                "ledger": (entry.published or {}).get("ledger")
                or scope_beside(self._run.ledger, self._data.ledger_path),
                "sha256": sha256(self._content).hexdigest(),
            }
        )

    def publish(self) -> None:
        """Write the samples last, so that none exist without their statement."""
        with atomic_write(self.file) as file:
            file.write(self._content)


_FOLDER = STUDENT.outputs[0] / MODEL


def student_run(run: Run, start_from: str) -> Run:
    """Return the run that released the student which the teachers of a run start from.

    Args:
        run: the run of the teachers.
        start_from: `FIRST`, a run's folder, or the folder of a student within its run.
    """
    place = run.root / FIRST if start_from == FIRST else Path(start_from)
    inside = place.match(str(_FOLDER))
    return Run(place.parents[len(_FOLDER.parts) - 1] if inside else place)


def start_digest(run: Run, start_from: str | None) -> dict[str, str]:
    """Return the digest of the student that teachers start from, by name; none without one."""
    if start_from is None:
        return {}
    # without its statement, which is that of all releases by now
    files = sorted((student_run(run, start_from).root / _FOLDER).glob("model.*"))
    return {"student": digest(*files)}


@dataclass(frozen=True, kw_only=True)
class Start:
    """A student that was released from the private records that teachers are about to see.

    Attributes:
        student: the student.
    """

    student: ExportedStudent

    @classmethod
    def of(cls, run: Run, start_from: str, data: DataSource) -> Start:
        """Return the student that the teachers of a run start from.

        Its folder is read as data, not as code. Its weights are those that its run recorded when it
        had learned from labels that bear the seal of that run, and the digest of these labels is in
        the ledger.

        Raises:
            ValueError: in one line, if there is no student, its weights or labels were replaced,
                it has other labels or takes other features than the data, or its release is not in
                the ledger of the run.
        """
        released = student_run(run, start_from)
        require_student(released)
        folder, record = released.root / _FOLDER, released.root / EXPORTED
        # the run's own first release was made by the recipe's own classes
        student = load_student(folder, trust=start_from == FIRST)
        require(
            student.label_names == data.label_names,
            f"a student of the data's labels in {folder}",
            label_names=student.label_names,
        )
        require(
            record.is_file() and read_json(record.read_text()) == student_digests(folder),
            f"the student that `pate student fit` exported to {folder}: run it again, got another",
        )
        shape = tuple(data.load(Role.PUBLIC).features.shape[1:])
        require(
            student.input.shape == shape,
            f"a student of samples of shape {list(shape)} in {folder}",
            shape=list(student.input.shape),
        )
        with expecting(
            f"a student whose release is in {run.ledger_path}, the ledger of these records",
            ValueError,
            got=f"that of {folder}",
        ):
            require(run.ledger_path.is_file(), "a ledger that holds it", ledger=None)
            student.statement.verify(ledger=run.ledger_path, released=labels_file(released))
        return cls(student=student)

    def answers(self, samples: Float32Array) -> FloatArray:
        """Return the probabilities ``[n, C]`` of raw samples ``[n, ...]``."""
        return np.asarray(self.student.predict_proba(samples), dtype=np.float64)


def released_before(run: Run) -> list[Charge]:
    """Return the charges that a run's target covers before its labels, if any.

    They are those of public samples that were drawn, and of a first release of its own.
    """
    settings = run.inputs_of(TEACHERS_FIT).settings
    described = settings.get("data") or {}
    data = load_data(run) if described.get("class_path", "").endswith("DrawnPublic") else None
    charges = (
        [released_samples(run, data, settings["unit"])] if isinstance(data, DrawnPublic) else []
    )
    if settings.get("start_from") != FIRST:
        return charges
    released = ReleasedLabels.load(run.root / FIRST)
    aggregator: Aggregator = decode(Aggregator, released.aggregator)
    return [*charges, (aggregator.events(released.shape), len(released.ids))]
