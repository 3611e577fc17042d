"""Votes that were cast elsewhere, on samples and labels that have names, and their import.

`NamedVotes` are the votes of one silo, in a file or in memory. `Silos` agree on samples and labels,
and are counted together. Only their facts are held: the votes of each are read when needed. They
are checked against each other and against the public records before any is written into a run, in
the form that `pate teachers vote` writes. All of it is PRIVATE.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from pate._core.accounting.history import PrivacyUnit
from pate._core.accounting.ledger import ledger_beside, ledger_in
from pate._core.files.reading import Json, Stream, digest, read_arrays
from pate._core.files.writing import write_arrays
from pate._core.validation import (
    LARGEST,
    FloatArray,
    IntArray,
    StrArray,
    UInt8Array,
    require,
    require_count,
    require_distinct,
    require_given,
    require_label_names,
    step_bar,
)
from pate._labeling.data.records import Role
from pate._labeling.data.source import DataSource, expand_path
from pate._labeling.release.between_runs import (
    choose_ledger,
    ledger_setting,
    open_ledger,
    require_ledger,
    unit_by,
)
from pate._labeling.release.label_settings import LabelSettings
from pate._labeling.runs.run import (
    LABEL,
    TEACHERS_FIT,
    VOTES_IMPORT,
    Run,
    StageInputs,
    describe_data,
    ensure_key,
    load_ledger,
    read_key,
)
from pate._labeling.runs.vote_store import VoteFacts, VoteStore, require_features
from pate._labeling.votes.kinds import (
    Ballots,
    Counts,
    Filed,
    NoisyTotal,
    ScoreArray,
    Scores,
    Votes,
    require_counts,
)

_KINDS = [kind for kind in Votes.kinds.values() if issubclass(kind, Filed)]
_BY_TEACHER = ", ".join(f"{kind.array} [N, T, C]" for kind in _KINDS if kind is not Counts)
_CHOICE = f"{_BY_TEACHER}, or counts [N, C] with num_teachers"
_FILE = "an .npz file of votes without pickled objects"
_NAMES = ("ids", "label_names", *(kind.array for kind in _KINDS), "num_teachers", "features")


@dataclass(frozen=True, kw_only=True, eq=False)
class NamedVotes:
    """Votes of any teachers, with the names of samples and labels. PRIVATE.

    Samples are sorted by id. Their original order, which may reflect something private, has no
    effect.

    Args:
        ids: ``[N]``, distinct ids of public samples.
        label_names: distinct names of the ``C`` labels.
        ballots: ``[N, T, C]`` in {0, 1}, the vote of each teacher, or ``[N, C]`` of one teacher; or
            instead
        scores: ``[N, T, C]`` floats in [0, 1], such as the probabilities of each teacher, or ``[N,
            C]`` of one teacher; NaN everywhere for a teacher that takes no part. They are kept as
            float16; or instead
        counts: ``[N, C]`` integers in ``[0, num_teachers]``, the number of teachers that gave each
            label.
        num_teachers: the nominal number of teachers, a public constant; only counts need it.
        features: ``[N, F]`` finite public features of the samples, for an aggregator that needs
            them. None without.

    Raises:
        ValueError: in one line, if shapes disagree, an id or a label name occurs twice, or a vote
            is out of range.
    """

    ids: StrArray
    label_names: tuple[str, ...]
    ballots: UInt8Array | None = None
    scores: ScoreArray | None = None
    counts: IntArray | None = None
    num_teachers: int | None = None
    features: FloatArray | None = None

    def __post_init__(self) -> None:
        ids, names = _texts("ids", self.ids), _texts("label_names", self.label_names)
        kinds = [kind for kind in _KINDS if getattr(self, kind.array) is not None]
        forms = [kind.array for kind in kinds]
        require(len(forms) == 1, f"either {_CHOICE}", present=forms)
        form, votes = forms[0], getattr(self, forms[0])
        order, shape, teachers = np.argsort(ids), (len(ids), len(names)), self.num_teachers
        values: dict[str, Any] = {"ids": ids[order], "label_names": tuple(names.tolist())}
        if form == "counts":
            behind = "num_teachers, the public number behind the counts"
            teachers = require_given(teachers, behind, num_teachers=None)
            require_count(1, num_teachers=teachers)
            counts = require_counts(Counts.checked(votes, shape), teachers)
            values[form], num_voting = counts.astype(np.int64)[order], teachers
        else:
            values[form] = kinds[0].checked(votes, shape)[order]
            num_voting = values[form].shape[1]
        require(
            teachers in (None, num_voting),
            f"num_teachers={num_voting}, as in {form}",
            num_teachers=teachers,
        )
        if self.features is not None:
            values["features"] = _checked_features(self.features, len(ids))[order]
        for name, value in (values | {"num_teachers": int(num_voting)}).items():
            object.__setattr__(self, name, value)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the arguments of the constructor from an ``.npz`` file.

        Raises ``ValueError`` in one line.
        """
        values = dict[str, Any](
            read_arrays(path, _NAMES[:2], _NAMES[2:], mapped=("ballots", "scores"), what=_FILE)
        )
        try:
            if (teachers := values.get("num_teachers")) is not None:
                wrong = {"shape": teachers.shape, "dtype": str(teachers.dtype)}
                is_integer = teachers.ndim == 0 and teachers.dtype.kind in "iu"
                require(is_integer, "one integer num_teachers", **wrong)
                values["num_teachers"] = int(teachers)
            return cls(**values)
        except ValueError as error:
            place = "" if str(path) in str(error) else f" ({path})"
            raise ValueError(f"{error}{place}") from None

    def save(self, path: Path | str) -> None:
        """Write the ``.npz`` file that `read` reads, completely or not at all."""
        arrays = {
            name: np.asarray(value) for name in _NAMES if (value := getattr(self, name)) is not None
        }
        write_arrays(Path(path), **arrays)

    @property
    def kind(self) -> type[Filed]:
        """The kind of the votes."""
        return next(kind for kind in _KINDS if getattr(self, kind.array) is not None)

    def to_store(self, kind: type[Votes]) -> UInt8Array | None:
        """Return the votes of each teacher in the format of a `VoteStore`. None for counts.

        Ballots are packed, unless they are stored as `Scores`.
        """
        filed = Scores if kind is Scores else self.kind
        return filed.stored(getattr(self, self.kind.array))

    def sums(self) -> IntArray:
        """Return `Counts.summed` of the votes."""
        assert self.num_teachers is not None
        return self.kind.summed(getattr(self, self.kind.array), self.num_teachers)

    def fingerprint(self) -> str:
        """Return a hash of all names, votes and features. PRIVATE."""
        stored = self.to_store(self.kind)
        votes = self.counts if stored is None else stored
        assert votes is not None
        names = [self.ids.tolist(), self.label_names, self.num_teachers]
        head = json.dumps([*names, stored is None, self.kind.form])
        arrays = (votes,) if self.features is None else (votes, self.features)
        contents = (np.ascontiguousarray(array).reshape(-1).view(np.uint8).data for array in arrays)
        return digest(head, *(Stream(content.nbytes, [content]) for content in contents))


@dataclass(frozen=True, eq=False)
class Silo:
    """The facts about the votes of one silo. Its votes are read again when needed. PRIVATE.

    Attributes:
        source: its votes, or the file that holds them.
        num_teachers: the nominal number of its teachers.
        kind: the kind of its votes.
        fingerprint: a hash of all names, votes and features.
        vote_sum_digest: a hash of the sum of its votes in steps of scores, the same for a copy with
            its teachers in another order. None if they answered all samples alike.
    """

    source: NamedVotes | Path
    num_teachers: int
    kind: type[Votes]
    fingerprint: str
    vote_sum_digest: str | None

    @classmethod
    def of(cls, source: NamedVotes | Path, votes: NamedVotes) -> Self:
        """Return the facts about ``votes``, which were read from ``source``."""
        assert votes.num_teachers is not None
        sums = votes.sums()
        return cls(
            source,
            num_teachers=votes.num_teachers,
            kind=votes.kind,
            fingerprint=votes.fingerprint(),
            vote_sum_digest=digest(sums.tobytes()) if (sums != sums[:1]).any() else None,
        )

    def votes(self) -> NamedVotes:
        """Return the votes.

        Raises ``ValueError`` if their file has changed since it was first read.
        """
        votes = read_votes(self.source)
        require(
            votes is self.source or votes.fingerprint() == self.fingerprint,
            f"the votes that {self.source} held when this command began",
            votes="others",
        )
        return votes


@dataclass(frozen=True, eq=False)
class Silos:
    """Votes of silos on the same samples and labels. PRIVATE.

    Votes in files are read into memory one silo at a time.

    Attributes:
        ids: ``[N]``, the ids of the samples, sorted.
        label_names: names of the labels.
        features: ``[N, F]``, the features from any of the silos. None if there are none.
        members: the silos, in the order of their teachers.
    """

    ids: StrArray
    label_names: tuple[str, ...]
    features: FloatArray | None
    members: tuple[Silo, ...]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the silo in one file, or all ``.npz`` files of a folder, sorted by name.

        Raises ``ValueError`` in one line, as `of` does, or if there is no file.
        """
        files = [path]
        if path.is_dir():
            files = sorted(file for file in path.glob("*.npz") if not file.name.startswith("."))
            require(files, f"an .npz file of votes for each silo in {path}", files=0)
        return cls.of(files)

    @classmethod
    def of(cls, sources: Sequence[NamedVotes | Path]) -> Self:
        """Return the silos with votes in memory or in files.

        Raises ``ValueError`` unless they voted on the same samples and labels, have two teachers or
        more in total, and agree on features, if any.
        """
        require(sources, "the votes of at least one silo", silos=0)
        joined: Self | None = None
        with step_bar(len(sources), "votes", unit="silo") as bar:
            for source in sources:
                joined = cls._joined(joined, source)
                bar.update()
        assert joined is not None
        require_count(2, num_teachers=joined.num_teachers)
        counted = [str(silo.source) for silo in joined.members if silo.kind is Counts]
        require(
            len({silo.kind for silo in joined.members} - {Ballots}) < 2,
            "ballots or scores of every silo where one has scores",
            counts=counted,
        )
        return joined

    @classmethod
    def _joined(cls, before: Self | None, source: NamedVotes | Path) -> Self:
        """Return the silos ``before``, if any, with one more."""
        votes = read_votes(source)
        silo = Silo.of(source, votes)
        if before is None:
            return cls(votes.ids, votes.label_names, votes.features, (silo,))
        name, first = _place(source, len(before.members)), _place(before.members[0].source, 0)
        require(
            votes.label_names == before.label_names,
            f"label_names in {name} as in {first}: {', '.join(before.label_names)}",
            label_names=votes.label_names,
        )
        others = np.setxor1d(votes.ids, before.ids)
        require(
            not others.size,
            f"the same ids in {name} as in {first}",
            in_one_alone=others[:3].tolist(),
        )
        known, features = before.features, votes.features
        require(
            known is None or features is None or np.array_equal(known, features),
            f"features in {name} as in those before it",
            features="others",
        )
        features = known if features is None else features
        return replace(before, features=features, members=(*before.members, silo))

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """Hashes that identify the votes that a run was begun with."""
        return tuple(silo.fingerprint for silo in self.members)

    @property
    def num_teachers(self) -> int:
        """The nominal number of teachers of all silos."""
        return sum(silo.num_teachers for silo in self.members)

    @property
    def facts(self) -> VoteFacts:
        """The public facts about all votes."""
        return VoteFacts(
            ids=self.ids,
            label_names=self.label_names,
            num_teachers=self.num_teachers,
            kind=self.kind,
            features=self.features,
        )

    @property
    def kind(self) -> type[Votes]:
        """The kind of all votes: ballots among scores are scores, and among counts are counts."""
        kinds = {silo.kind for silo in self.members}
        return next(iter(kinds - {Ballots}), Ballots)


def read_votes(source: NamedVotes | Path) -> NamedVotes:
    """Return the votes of a silo."""
    return NamedVotes.read(source) if isinstance(source, Path) else source


def _place(source: NamedVotes | Path, number: int) -> str:
    """Return the name of a silo in errors."""
    return str(source) if isinstance(source, Path) else f"silo {number}"


def _texts(name: str, values: ArrayLike) -> StrArray:
    """Return names ``[N]`` as strings.

    Raises ``ValueError`` unless they are texts or integers, each once.
    """
    array = np.asarray(values)
    require(
        array.ndim == 1 and array.size > 0, f"{name} of shape [N] with N > 0", shape=array.shape
    )
    require(array.dtype.kind in "Uiu", f"{name} that are texts or integers", dtype=str(array.dtype))
    texts = array.astype(np.str_)
    if name == "label_names":
        require_label_names(name, texts.tolist())
    require_distinct(name, texts.tolist())
    return texts


def _checked_features(features: ArrayLike, size: int) -> FloatArray:
    """Return features ``[N, F]`` as float64, clipped to what float32 holds."""
    array = np.asarray(features)
    require(
        array.ndim == 2 and len(array) == size,
        f"features of shape [{size}, F], as ids say",
        shape=array.shape,
    )
    require(array.dtype.kind in "buif", "features that are numbers", dtype=str(array.dtype))
    require(np.isfinite(array).all(), "finite features", features="others")
    return array.astype(np.float64).clip(-LARGEST, LARGEST)


class AwaitedTotal(NoisyTotal, Protocol):
    """A sum of silos that may still send their shares."""

    def collect(self) -> None:
        """Wait until all shares are there, before the sum is paid for."""


@dataclass(frozen=True, kw_only=True)
class VotesFrom:
    """The origin of imported votes, and the unit that the statement protects.

    Attributes:
        silos: the votes of each silo.
        unit: the word for the protected unit, such as ``patient``, which reaches only one teacher.
            None for the word of the run, or ``record``.
        path: the file or folder of the votes. Their ledger is next to the file or in the folder.
            None for votes from memory.
        total: the sum over silos that mask their votes. None for other votes.

    Raises:
        ValueError: if the unit is not one word.
    """

    silos: Silos
    unit: str | None = None
    path: Path | None = None
    total: AwaitedTotal | None = None

    def __post_init__(self) -> None:
        require(
            self.unit is None or re.fullmatch(r"\w+", self.unit),
            "unit as one word, such as record or patient",
            unit=self.unit,
        )

    @property
    def ledger_path(self) -> Path | None:
        """The default ledger: next to a file of votes, or in a folder of silos."""
        if self.path is None:
            return None
        # a link to the same votes leads to the same ledger
        place = self.path.resolve()
        return ledger_in(place) if place.is_dir() else ledger_beside(place)

    def fingerprint(self, key: bytes) -> str:
        """Return a hash of all votes, which confirms no guess without the ``key`` of the run."""
        return digest(key, *self.silos.fingerprints)


def votes_from(
    votes: NamedVotes | Sequence[NamedVotes] | Path | str, *, unit: str | None = None
) -> VotesFrom:
    """Return the origin of votes in memory, one object for each silo, or in a file or folder.

    Raises ``ValueError`` if a file is missing or damaged, or silos disagree.
    """
    if isinstance(votes, str | Path):
        path = expand_path(votes)
        return VotesFrom(silos=Silos.read(path), unit=unit, path=path)
    return VotesFrom(
        silos=Silos.of((votes,) if isinstance(votes, NamedVotes) else tuple(votes)), unit=unit
    )


def open_votes_run(
    root: Path, votes: VotesFrom, *, ledger: Path | None = None, overwrite: bool = False
) -> Run:
    """Return the run at ``root`` with the ledger of its votes. Writes nothing.

    Args:
        root: the run's folder.
        votes: the votes.
        ledger: the requested ledger. None for the ledger of the run or of the votes.
        overwrite: whether other votes may replace the votes of the run.

    Raises:
        ValueError: if the run has teachers, or its ledger is missing or not the one that it began
            with.
    """
    run = Run(root, overwrite=overwrite, ledger=load_ledger(root))
    require(
        run.state(TEACHERS_FIT) is None,
        "a run folder of their own for votes, without teachers",
        run=str(root),
    )

    key = read_key(run)
    chosen = choose_ledger(
        root,
        ledger,
        votes.ledger_path,
        what="votes",
        began_with=lambda begun: key is not None and begun.get("votes") == votes.fingerprint(key),
        overwrite=overwrite,
    )
    run = replace(run, ledger=chosen)
    require_ledger(run)
    return run


def require_served(
    run: Run, votes: VotesFrom, data: DataSource | None, settings: LabelSettings
) -> PrivacyUnit:
    """Return for whom labels of votes that are about to be imported will be priced.

    Raises:
        ValueError: if neither votes nor data have the features that the mechanism needs, or more
            silos are copies of each other than a unit may reach teachers.
    """
    silos, imported = votes.silos, _import_settings(run, votes, data)
    _require_no_copies(silos, settings.max_teachers_per_unit)
    if "features" in settings.mechanism.needs and silos.features is None:
        name = type(settings.mechanism).__name__
        require_features(imported["data"], name, silos.kind, len(silos.ids))
    state, key = run.state(VOTES_IMPORT), read_key(run)
    return unit_by(state, key) if state and key else PrivacyUnit(unit=str(imported["unit"]))


def _require_no_copies(silos: Silos, max_teachers_per_unit: int) -> None:
    """Raise ``ValueError`` if more silos are copies of each other than a unit may reach teachers.

    Through a copied silo each of its records reaches several teachers, also if the copy has its
    ballots in another order or holds their counts; scores are compared by their sums. Silos that
    answer all samples alike, such as silos that stay away, are not copies.
    """
    alike = Counter(
        (silo.num_teachers, silo.vote_sum_digest)
        for silo in silos.members
        if silo.vote_sum_digest is not None
    )
    copies = max(alike.values(), default=1)
    require(
        copies <= max_teachers_per_unit,
        f"silos that are no copies of each other, or max_teachers_per_unit >= {copies}",
        max_teachers_per_unit=max_teachers_per_unit,
    )


def import_votes(run: Run, votes: VotesFrom, data: DataSource | None = None) -> None:
    """Import votes into the run's private folder, in the form that `pate label` reads.

    Importing the same votes again changes nothing, except that records for a student may be added.

    Args:
        run: the run from `open_votes_run`.
        votes: the votes.
        data: the source of the public and test records for a student, if there is one.

    Raises:
        ValueError: if the run was begun with other votes and is not overwritten, if samples or
            labels of the votes are not in the public records, or if the ledger cannot be used.
    """
    if data is not None:
        require_of_data(votes.silos, data)
    if run.overwrite or not run.is_finished(VOTES_IMPORT):
        # a copy of another ledger is refused before the run is begun with it
        open_ledger(run)
    key = ensure_key(run, VOTES_IMPORT)
    inputs = StageInputs(
        _import_settings(run, votes, data),
        {"votes": votes.fingerprint(key), "partition": digest(key)},
    )
    _add_data(run, inputs)
    _forget_unit(run, inputs)
    if not run.begin(VOTES_IMPORT, inputs):
        return
    store, silos = VoteStore(run.root.resolve() / VOTES_IMPORT.outputs[0]), votes.silos
    teachers = range(0)
    with step_bar(len(silos.members), "import of votes", unit="silo") as bar:
        for silo in silos.members:
            teachers = range(teachers.stop, teachers.stop + silo.num_teachers)
            _import_silo(store, teachers, silo.votes(), silos.kind)
            bar.update()
    files = {} if silos.features is None else store.save_features(silos.features)
    files |= store.write_manifest(
        ids=silos.ids.tolist(),
        label_names=silos.label_names,
        num_teachers=silos.num_teachers,
        made_by={"votes": inputs.digests["votes"]},
        ballots=silos.kind.form,
    )
    run.finish(VOTES_IMPORT, files, ledger_beside=votes.ledger_path)


def _import_silo(store: VoteStore, teachers: range, votes: NamedVotes, kind: type[Votes]) -> None:
    """Write the votes of one silo, and free their memory before the next silo is read."""
    if (ballots := votes.to_store(kind)) is not None:
        store.save_chunk(teachers, ballots)
    else:
        assert votes.counts is not None
        store.save_counts(teachers, votes.counts)


def require_of_data(votes: Silos, data: DataSource) -> None:
    """Raise ``ValueError`` unless the votes are on public records and labels of ``data``."""
    names = data.label_names
    require(
        votes.label_names == names,
        f"votes on the labels of the data, {', '.join(names)}",
        label_names=votes.label_names,
    )
    unknown = np.setdiff1d(votes.ids, data.load(Role.PUBLIC).ids)
    require(unknown.size == 0, "votes on ids of the public records", unknown=unknown[:3].tolist())


def _import_settings(run: Run, votes: VotesFrom, data: DataSource | None) -> Json:
    """Return the settings of an import; settings that are not named stay as they were."""
    recorded = {"unit": "record", "data": None} | dict(run.inputs_of(VOTES_IMPORT).settings)
    return {
        "unit": recorded["unit"] if votes.unit is None else votes.unit,
        "data": recorded["data"] if data is None else describe_data(data),
        "ledger": ledger_setting(run),
    }


def _add_data(run: Run, inputs: StageInputs) -> None:
    """Record the data of a run that had none; votes and releases do not depend on them."""
    state, data = run.state(VOTES_IMPORT), inputs.settings["data"]
    if state is not None and state.inputs.settings.get("data") is None and data is not None:
        without = replace(inputs, settings={**inputs.settings, "data": None})
        run.needs(VOTES_IMPORT, without)  # raises on any other change
        begun = replace(state.inputs, settings={**state.inputs.settings, "data": data})
        run.record(VOTES_IMPORT, replace(state, inputs=begun))


def _forget_unit(run: Run, inputs: StageInputs) -> None:
    """Remove statements for another unit; `label` writes them again at no cost."""
    unit = inputs.settings["unit"]
    if run.overwrite and run.inputs_of(VOTES_IMPORT).settings.get("unit", unit) != unit:
        for statement in LABEL.outputs[1:]:
            (run.root / statement).unlink(missing_ok=True)
