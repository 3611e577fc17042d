"""The table of isolation: one record is altered or removed, and only its owner's bits may change.

Teachers are made and vote again from the same key on neighboring records. Training is reproducible,
so that all files are compared bit by bit. Silos that mask their votes have no such files: at the
end, whole exchanges with made-up counts, in one process, show isolation and the law of their sum.
"""

import json
import re
import shutil
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from copy import copy
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from pate._core.accounting.ledger import ledger_in
from pate._core.files.reading import digest
from pate._core.registry import find
from pate._core.settings import decode_fields
from pate._core.validation import (
    Float32Array,
    IntArray,
    UInt8Array,
    require,
    require_count,
)
from pate._labeling.aggregators.noisy_votes import SiloVotes
from pate._labeling.data.records import ArrayFeatures, Features, Records, Role, assign_teachers
from pate._labeling.data.source import DataSource
from pate._labeling.pipeline import Pipeline
from pate._labeling.release.label_settings import LabelSettings
from pate._labeling.runs.named_votes import NamedVotes
from pate._labeling.runs.released import sealing_key
from pate._labeling.runs.run import KEY_FILE, LABEL, TEACHERS_VOTE, Run
from pate._labeling.runs.vote_store import VoteManifest, finished_votes
from pate._labeling.stages.teachers import load_plan
from pate._labeling.stages.votes_import import import_votes, votes_from
from pate._labeling.teachers import FIRST, ClosedFormPlan, assigned_units
from pate._labeling.votes.kinds import Ballots, MaskedTotal, VoteShape
from pate.lab.audit.laws import Gaussians, Outcomes
from pate.lab.audit.tables import Trial, content_of, scratch, untested

Change = Literal["altered", "removed"]
# an altered record is so many times as far out as the farthest public sample
_FAR = 4.0


class Changed(DataSource):
    """The records of another source, with other private ones."""

    def __init__(self, source: DataSource) -> None:
        super().__init__(
            features=source.feature_map,
            permanent_ids=source.permanent_ids,
            unknown_labels=source.unknown_labels,
            copies=source.copies,
        )
        self._source = source

    @property
    def label_names(self) -> tuple[str, ...]:
        """The names of the labels of the source."""
        return self._source.label_names

    def load(self, role: Role) -> Records:
        """Return the raw records of the source, changed if they are private."""
        records = self._source.load(role)
        return self.changed(records) if role is Role.PRIVATE else records

    @abstractmethod
    def changed(self, records: Records) -> Records:
        """Return private records as they are changed."""


class Altered(Changed):
    """The records of another source with one private record altered or removed.

    The record changes before features are mapped. Its new features are a public sample's,
    farther out, and its labels are the opposite ones.

    Args:
        source: the source.
        change: the change. None for the records as they are.
        row: the row of the record among the private ones.
    """

    def __init__(self, source: DataSource, *, change: Change | None = None, row: int = 0) -> None:
        super().__init__(source)
        require(change in (None, *get_args(Change)), "a change of a record", change=change)
        require_count(0, row=row)
        self._change, self._row = change, row

    def changed(self, records: Records) -> Records:
        """Return the private records with this one changed."""
        if self._change is None:
            return records
        require(self._row < len(records), "the row of a private record", row=self._row)
        if self._change == "removed":
            return records.select(np.delete(np.arange(len(records)), self._row))
        labels = np.array(records.labels)
        labels[self._row] = 1 - (labels[self._row] > 0)
        far = _FAR * self._source.load(Role.PUBLIC).features[:1][0]
        return replace(
            records, features=_OneChanged(records.features, self._row, far), labels=labels
        )


class _OneChanged(Features):
    def __init__(self, features: Features, row: int, values: Float32Array) -> None:
        self._features, self._row, self._values = features, row, values

    @property
    def shape(self) -> tuple[int, ...]:
        return self._features.shape

    def __getitem__(self, index: Any, /) -> Float32Array:
        rows = np.array(self._features[index])
        rows[np.arange(self.shape[0])[index] == self._row] = self._values
        return rows

    def select(self, rows: IntArray) -> Features:
        # maps read files faster than rows, so that only the altered record is in memory
        return super().select(rows) if self._row in rows else self._features.select(rows)

    def once(self) -> Features:
        return ArrayFeatures(self[np.arange(self.shape[0])])


_STEPS = 10  # of networks: more show no other teacher
_OWN = ("data", "bytes", "beside")  # entries of files that describe others
_BESIDE = ("labels.npy",)  # with rows of records, as coordinates.npy has
_LOGS = "PRIVATE_"
"""The beginning of the names of logs, which sum up teachers and which nothing reads."""


def isolation_tests(run: Run, data: DataSource) -> list[Trial]:
    """Return the table of isolation of a run with teachers.

    Args:
        run: the run with the plan and the key.
        data: the records.
    """
    plan, voting = load_plan(run), run.inputs_of(TEACHERS_VOTE).settings.get("votes")
    plan = shortened(plan)
    tests: list[Trial] = []
    with scratch(run, "isolation") as folder:
        before, private = folder / "before", data.records(Role.PRIVATE)
        _make(before, run, Altered(data), plan, voting)
        row = len(private) // 2
        for change in get_args(Change):
            after, owner = folder / change, None
            _make(after, run, Altered(data, change=change, row=row), plan, voting)
            # of records in closed form each has a row of its own
            if not isinstance(plan, ClosedFormPlan) or plan.start_from is not None:
                key = sealing_key(run)
                unit = str(assigned_units(private, plan, key)[row])
                owner = int(assign_teachers([unit], num_teachers=plan.num_teachers, key=key)[0])
            tests += _compared(before, after, change, owner)
            shutil.rmtree(after)
    return tests


def vote_isolation_tests(run: Run) -> list[Trial]:
    """Return the table of isolation of a run with imported votes: one teacher votes otherwise."""
    manifest = finished_votes(run).manifest()
    if manifest.kind is MaskedTotal:
        mechanism: Any = decode_fields(LabelSettings, run.inputs_of(LABEL).settings).mechanism
        return masked_isolation(run, mechanism, manifest.shape)
    if not has_ballots(manifest):
        return [untested("imported votes", "no ballot of a teacher is known")]
    votes, _ = finished_votes(run).load(Ballots)
    teacher, tests = votes.num_teachers // 2, list[Trial]()
    with scratch(run, "isolation") as folder:
        _import(folder / "before", run, manifest, votes.ballots)
        for change in get_args(Change):
            ballots = np.array(votes.ballots)
            ballots[:, teacher] = 1 - ballots[:, teacher] if change == "altered" else 0
            _import(folder / change, run, manifest, ballots)
            tests += _compared(folder / "before", folder / change, change, teacher)
    return tests


def has_ballots(manifest: VoteManifest) -> bool:
    """Whether the ballots of all teachers are known, and not only counts, scores or a sum."""
    return manifest.kind is Ballots and not any("_counts_" in name for name in manifest.chunks)


def _import(root: Path, run: Run, manifest: VoteManifest, ballots: UInt8Array) -> None:
    """Import ballots ``[Q, T, C]`` again, with the same key."""
    named = NamedVotes(
        ids=np.array(manifest.ids), label_names=tuple(manifest.label_names), ballots=ballots
    )
    import_votes(with_key(root, run, ledger_in(root.parent)), votes_from(named))


def with_key(root: Path, run: Run, ledger: Path | None = None) -> Run:
    """Return a new run with the key of another, and a ledger."""
    copy = Run(root, ledger=ledger)
    copy.make_private()
    shutil.copy2(run.root / KEY_FILE, root / KEY_FILE)
    return copy


def shortened(plan: Any) -> Any:
    """Return a plan that trains networks for few steps."""
    if isinstance(plan, ClosedFormPlan):
        return plan
    return replace(plan, num_steps=min(plan.num_steps, _STEPS))


def _make(root: Path, run: Run, data: DataSource, plan: Any, voting: Any) -> None:
    """Make teachers of a run again, and their votes, from the same key."""
    with_key(root, run)
    if (run.root / FIRST).is_dir():
        (root / FIRST).symlink_to((run.root / FIRST).resolve())
    pipeline = Pipeline(root, data, ledger=run.ledger_path)
    with redirect_stdout(StringIO()):
        pipeline.fit_teachers(plan)
        pipeline.vote(votes=voting)


def _compared(before: Path, after: Path, change: Change, owner: int | None) -> Iterator[Trial]:
    """Yield the rows of a change: what all units are, and all other files."""
    one, other, differing = _files(before), _files(after), set[int]()
    stored = next((name for name in one if name.name == "coordinates.npy"), None)
    gone = None if stored is None else _gone(before / stored, after / stored)
    numbers, others = 0, [str(name) for name in sorted(one ^ other)]
    for name in sorted(one & other):
        if stored is not None and name in map(stored.with_name, _BESIDE):
            continue  # compared with the coordinates
        first, second = _units(before / name), _units(after / name)
        if first is None or second is None:
            contents = [content_of(root / name, _OWN, digests=False) for root in (before, after)]
            if contents[0] != contents[1]:
                others.append(str(name))
            continue
        start = int(found[0]) if (found := re.findall(r"_(\d{5})", name.stem)) else 0
        numbers = max(numbers, start + len(next(iter(first.values()))))
        differing |= {start + place for place in _different(first, second, gone)}
    units = "records" if owner is None else "teachers"
    stray = sorted(differing - {owner}) if owner is not None else sorted(differing)[1:]
    where = f", the owner is {units[:-1]} {owner}" if owner is not None else ""
    yield Trial(
        f"{units} where one record is {change}",
        f"the bits of {numbers:,} {units} and of their votes, with the same key",
        f"any of the other {numbers - 1:,} that the record reaches",
        f"{len(differing)} of {numbers:,} differ{where}",
        "refuted" if stray else "passed" if differing else "not tested",
    )
    yield Trial(
        f"files where one record is {change}",
        f"{len(one | other)} files of the run, without digests and {_LOGS}logs",
        "any other file, name or number that depends on the record",
        f"others differ: {', '.join(others[:3])}" if others else "no other differs",
        "refuted" if others else "passed",
    )


def _files(root: Path) -> set[Path]:
    return {
        path.relative_to(root)
        for path in root.rglob("*")
        if path.is_file()
        and not any(part.startswith((".", _LOGS)) for part in path.relative_to(root).parts)
        and path.name != "data.yaml"
    }


def _units(path: Path) -> dict[str, NDArray[Any]] | None:
    """Return the arrays of a file that have a row for each teacher or record. None without any."""
    if path.suffix == ".pt":
        from pate._networks.teachers.training import SavedChunk  # imports torch

        chunk = SavedChunk.read(path)
        tensors = chunk.state | {"shares": chunk.label_shares, "losses": chunk.losses.T}
        # a teacher on its own is not stacked
        shape = len(chunk.label_shares), -1
        return {name: tensor.numpy().reshape(shape) for name, tensor in tensors.items()}
    if path.name == "coordinates.npy":
        return {"": _records(path)}
    if path.name == "groups.npy":
        return {"groups": np.load(path)}
    by_teacher = path.name.startswith(("votes_", "corrections")) and path.suffix == ".npy"
    return {"": np.load(path)} if by_teacher else None


def _different(
    first: Mapping[str, NDArray[Any]], second: Mapping[str, NDArray[Any]], gone: int | None
) -> set[int]:
    """Return the rows that differ, ``gone`` among them if it is a row that was removed."""
    rows: set[int] = set()
    for key, one in first.items():
        other, places = second[key], np.arange(len(one))
        if gone is not None and len(one) == len(other) + 1:
            one, places = np.delete(one, gone, axis=0), np.delete(places, gone)
            rows.add(gone)
        if key == "groups":
            # numbers are dense: those after a group of one record become smaller without it
            one, other = (np.unique(values, return_inverse=True)[1] for values in (one, other))
        if one.shape != other.shape:
            return set(range(max(len(one), len(other))))
        rows |= set(places[_bits(one) != _bits(other)].tolist())
    return rows


def _records(path: Path) -> NDArray[Any]:
    """Return coordinates and labels of records, a row for each."""
    files = [path, *(path.with_name(name) for name in _BESIDE)]
    return np.column_stack([np.load(file).astype(np.float64) for file in files if file.is_file()])


def _gone(before: Path, after: Path) -> int | None:
    """Return the row that was removed from a file of records. None if there is none."""
    one, other = (_bits(_records(path)) for path in (before, after))
    if len(one) != len(other) + 1:
        return None
    moved = np.flatnonzero(one[:-1] != other)
    return int(moved[0]) if len(moved) else len(other)


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    """Return rows as one value each, by their bytes."""
    flat = np.ascontiguousarray(array).reshape(len(array), -1)
    return flat.view(np.dtype((np.void, flat.dtype.itemsize * flat.shape[1]))).ravel()


_QUERIES = 32


def _meeting(folder: Path, mechanism: SiloVotes, shape: VoteShape) -> Any:
    """Return a `Meeting` whose silos have exchanged keys and shares, and masked only the last."""
    meeting = find("Meeting")(
        folder, mechanism, shape.num_teachers // mechanism.silos or 1, _QUERIES, shape.num_labels
    )
    for _ in range(2):
        meeting.advance(meeting.names)
    return meeting


def masked_noise(run: Run, mechanism: SiloVotes, shape: VoteShape) -> list[Gaussians | Outcomes]:
    """Return the noise of two exchanges with made-up counts."""
    with scratch(run, "silos") as folder:
        return [
            Gaussians(_meeting(folder / place, mechanism, shape).noise())
            for place in ("first", "second")
        ]


def masked_isolation(run: Run, mechanism: SiloVotes, shape: VoteShape) -> list[Trial]:
    """Return the row of an exchange that is repeated from the same secrets, with other counts."""
    with scratch(run, "silos") as folder:
        before = _meeting(folder / "before", mechanism, shape)
        after, (first, *others) = copy(before), before.names
        after.folder, after.counts = folder / "after", dict(before.counts)
        shutil.copytree(before.folder, after.folder)
        after.save(first, before.num_teachers - before.counts[first])
        kept = after.folder / first / "private" / "secrets.json"
        votes = {"votes": digest(after.folder / first / "votes.npz")}
        kept.write_text(json.dumps(json.loads(kept.read_text()) | votes))
        vectors = []
        for meeting in (before, after):
            meeting.advance(meeting.names)
            vectors.append([meeting.exchange.masked(name) for name in meeting.names])
        differ = [bool((one != other).any()) for one, other in zip(*vectors, strict=True)]
    return [
        Trial(
            "masked vectors where one silo has other counts",
            f"the bits of {len(differ)} vectors of made-up counts, with the same secrets",
            f"any of the other {len(others)} that depends on them",
            f"{sum(differ)} of {len(differ)} differ",
            "passed" if differ == [True, *(False for _ in others)] else "refuted",
        )
    ]
