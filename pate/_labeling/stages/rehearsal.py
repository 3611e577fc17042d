"""The rehearsal of a run: all its stages on made-up records, in seconds, before anything is paid.

What can fail for reasons that public facts know fails here. The records are a few public samples
with made-up labels. They pass through the code of all stages in a temporary folder with a ledger of
its own: teachers of two small partitions, their votes, a release of votes that are made up for all
teachers, and a student, which leaves the run and predicts. Nothing private is read, nothing is
written elsewhere.
"""

from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from pate._core.accounting.ledger import ledger_in
from pate._core.files.reading import Json
from pate._core.package import find
from pate._core.settings import Partial, encode_fields
from pate._core.validation import (
    MOST_VOTERS,
    BoolArray,
    FloatArray,
    IntArray,
    UInt8Array,
    require,
)
from pate._labeling.aggregators.score_votes import ScoreVotes
from pate._labeling.data.records import Records, Role
from pate._labeling.data.source import DataSource
from pate._labeling.linear import is_linear
from pate._labeling.release.between_runs import Start
from pate._labeling.release.label_settings import LabelSettings, resolve_settings
from pate._labeling.release.labels import label
from pate._labeling.runs.carried import load_student
from pate._labeling.runs.released import ReleasedLabels, sealing_key
from pate._labeling.runs.run import (
    LABEL,
    MODEL,
    STUDENT,
    TEACHERS_FIT,
    TEACHERS_VOTE,
    Run,
    labels_file,
)
from pate._labeling.runs.vote_store import VoteFacts, finished_votes
from pate._labeling.stages.student import StudentPlan, fit_student, test_student
from pate._labeling.stages.teachers import fit, vote
from pate._labeling.stages.votes_import import NamedVotes, import_votes, votes_from
from pate._labeling.teachers import FIRST, ClosedFormPlan, uses_groups
from pate._labeling.votes.kinds import (
    Ballots,
    Counts,
    Filed,
    Moments,
    Votes,
    VoteShape,
    Voting,
    kind_cast,
    rows_of,
)

_ROWS = 32  # public samples
_TEACHERS, _STEPS, _BATCH = 2, 2, 8  # of networks, whatever their plan says
_BALLOTS = 1 << 26  # in memory


class MadeUp(DataSource):
    """Private records made up of the public samples of another source: nothing private is read.

    Args:
        source: the source. Its public samples become private records too, with random labels.
        grouped: whether each record is a group of its own.
        rows: the rows of the public samples to take, which become test records, too, with the
            features that the map of all public samples gives.
    """

    def __init__(self, source: DataSource, *, rows: list[int], grouped: bool = False) -> None:
        super().__init__(
            features=source.feature_map,
            permanent_ids=True,
            unknown_labels=source.unknown_labels,
            copies=True,
        )
        self._source, self._grouped, self.shifted = source, grouped, source.shifted
        self._rows = np.array(rows, dtype=np.int64)

    @property
    def label_names(self) -> tuple[str, ...]:
        """The names of the labels of the source."""
        return self._source.label_names

    def load(self, role: Role) -> Records:
        """Return raw public samples of the source, or records made up of them."""
        public = self._source.load(Role.PUBLIC).select(self._rows)
        if role is Role.PUBLIC:
            return public
        labels = np.random.default_rng(0).integers(0, 2, public.labels.shape)
        ids = np.array([f"made-up-{role.value}-{name}" for name in public.ids.tolist()])
        private = role is Role.PRIVATE
        return Records(
            features=public.features,
            labels=labels.astype(np.uint8),
            ids=ids,
            groups=ids if private and self._grouped else None,
        )

    def records(self, role: Role) -> Records:
        """Return the records of a role with mapped features."""
        if self.feature_map is None:
            return super().records(role)
        mapped = self._source.records(Role.PUBLIC).features.select(self._rows)
        return replace(self.load(role), features=mapped)


def separable(features: FloatArray, num_labels: int) -> UInt8Array:
    """Return made-up labels ``[N, C]`` of samples ``[N, F]`` that a hyperplane tells apart.

    Samples beyond the median of their first principal component have every other label, and the
    rest have the others.
    """
    centered = features - features.mean(axis=0)
    scores = np.linalg.eigh(centered @ centered.T)[1][:, -1].round(9)
    middle = np.median(scores)
    beyond = scores > middle if (scores > middle).mean() > 1 / 4 else scores >= middle
    return (beyond[:, None] ^ (np.arange(num_labels) % 2 == 1)).astype(np.uint8)


def learned(answers: BoolArray, labels: UInt8Array) -> float:
    """Return the least mean of two shares right over labels: where a label is, and where not.

    A constant answer has one half, whatever the labels are.
    """
    right = answers == labels
    return float(
        min(
            (right[here, column].mean() + right[~here, column].mean()) / 2
            for column, here in enumerate(labels.T == 1)
        )
    )


LEAST_LEARNED = 0.65
"""The least of `learned` by which a teacher is one."""


def kind_of_votes(plan: Any, voting: Voting | None) -> type[Votes]:
    """Return the kind of the votes of a plan's teachers."""
    if isinstance(plan, ClosedFormPlan) and plan.start_from is None:
        return Moments
    return kind_cast(voting or "bits")


def rehearse(
    run: Run,
    votes: VoteFacts,
    settings: LabelSettings,
    *,
    data: DataSource | None = None,
    teachers: Any = None,
    voting: Voting | None = None,
    student: Json | None = None,
) -> None:
    """Run the stages of a plan on made-up records.

    Args:
        run: the run that is rehearsed. A released student that its teachers start from is read.
        votes: the public facts about the votes.
        settings: the settings of the release, complete.
        data: the records. Only the public ones are read. None for votes without records, from
            which no student learns.
        teachers: how teachers are made. Of networks two are trained, for two steps. None for votes
            that are cast already, unless they are moments.
        voting: the form of the teachers' votes. None for the default.
        student: the content of ``student.yaml``. None for the linear student.

    Raises:
        ValueError: in one line, if a stage fails.
    """
    start = None if teachers is None else teachers.start_from
    if start not in (None, FIRST):
        assert data is not None, "teachers have records"
        Start.of(run, encode_fields(teachers), data)
    counted = votes.kind is Counts or not issubclass(votes.kind, Filed)
    ballots = 0 if counted else votes.num_teachers * len(votes.label_names)
    few = max(1, min(_ROWS, _BALLOTS // max(1, ballots)))
    rows = settings.order_of(len(votes.ids))[:few]
    ids, made_up = votes.ids[rows], None
    if data is not None:
        grouped = teachers is not None and uses_groups(teachers)
        some = rows_of(ids, data.load(Role.PUBLIC).ids).tolist()
        made_up = MadeUp(data, grouped=grouped, rows=some)
    with _scene(run, made_up) as here:
        if teachers is not None:
            assert made_up is not None, "teachers have records"
            if start is not None:  # a release that is made up, too
                first = LabelSettings(Partial(ScoreVotes), delta=settings.delta, target_epsilon=8.0)
                everybody = VoteShape(MOST_VOTERS, len(votes.label_names))
                before = replace(here, root=here.root / FIRST)
                _fit_and_vote(before, made_up, ClosedFormPlan(unit=teachers.unit))
                _label(before, resolve_settings(first, everybody, len(rows), Moments))
                _student(before, made_up, student)
                teachers = replace(teachers, start_from=FIRST)
            _fit_and_vote(here, made_up, teachers, voting)
        if votes.kind is not Moments:
            # all teachers vote in a run of their own
            here = replace(here, root=here.root.with_name("votes"))
            with _stage(LABEL.name):
                import_votes(here, votes_from(_made_up_votes(votes, rows)), made_up)
        _label(here, settings)
        if made_up is not None:
            _answer(here)
            _student(here, made_up, student)


@contextmanager
def _scene(run: Run, made_up: MadeUp | None) -> Iterator[Run]:
    """Open an empty run in a temporary folder, with its ledger, and hide all that it prints."""
    said = StringIO()
    with TemporaryDirectory(prefix="pate") as folder:
        root = Path(folder) / run.root.resolve().name
        try:
            with redirect_stdout(said), redirect_stderr(said):
                yield Run(root, ledger=ledger_in(root), data=made_up)
        except PermissionError as error:  # by a mask of permissions, which the run would meet too
            error.filename, error.filename2 = str(run.root), None
            raise


@contextmanager
def _stage(name: str) -> Iterator[None]:
    """Turn any error of a stage into one line, except errors of the machine."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        line = " ".join(str(error).split())
        if not line.startswith("Expected "):
            line = (
                f"Expected `pate {name}` to finish on made-up records, got"
                f" {type(error).__name__}: {line[:300]}"
            )
        raise ValueError(line) from error


def _fit_and_vote(run: Run, data: MadeUp, plan: Any, voting: Voting | None = None) -> None:
    with _stage(TEACHERS_FIT.name):
        if not isinstance(plan, ClosedFormPlan):
            plan = replace(
                plan,
                num_teachers=_TEACHERS,
                num_steps=min(plan.num_steps, _STEPS),
                batch_size=min(plan.batch_size, _BATCH),
                chunk_size=1 if plan.chunk_size == 1 else _TEACHERS,
                checkpoint_steps=1,
            )
        fit(run, data, plan)
    with _stage(TEACHERS_VOTE.name):
        vote(run, data, voting=voting)


def _made_up_votes(votes: VoteFacts, rows: IntArray) -> NamedVotes:
    """Return votes on some samples, of teachers who all agree."""
    truth = np.indices((len(rows), len(votes.label_names))).sum(axis=0) % 2
    kind = votes.kind if issubclass(votes.kind, Filed) else Counts
    alike = votes.num_teachers * truth
    if kind is not Counts:
        bits = truth[:, None].astype(np.uint8 if kind is Ballots else np.float16)
        alike = np.repeat(bits, votes.num_teachers, axis=1)
    array: dict[str, Any] = {kind.array: alike}
    return NamedVotes(
        ids=votes.ids[rows],
        label_names=tuple(votes.label_names),
        num_teachers=votes.num_teachers,
        features=None if votes.features is None else votes.features[rows],
        **array,
    )


@_stage(LABEL.name)
def _label(run: Run, settings: LabelSettings) -> None:
    """Release labels by the noise of ``settings``, from a seed."""
    store = finished_votes(run)
    brief = replace(
        settings,
        num_queries=len(store.manifest().ids),
        max_epsilon=None,
        max_delta0=None,
        budget_filter=None,
        noise_seed=0,
    )
    label(run, store, brief)


@_stage(LABEL.name)
def _answer(run: Run) -> None:
    """Replace labels by made-up ones, to learn from whatever the noise left of a few answers."""
    released = ReleasedLabels.load(run.root)
    labels = np.indices(released.labels.shape).sum(axis=0) % 2
    # the last sample has no answer, as there may be samples without one
    mask = np.ones(labels.shape, dtype=np.bool_)
    mask[max(1, len(labels) - 1) :] = False
    made_up = replace(released, labels=labels.astype(np.uint8), mask=mask)
    with labels_file(run).open("wb") as file:
        made_up.save(file, sealing_key(run))


@_stage(STUDENT.name)
def _student(run: Run, data: MadeUp, content: Json | None = None) -> None:
    """Train a student, and let it predict as it leaves the run."""
    content = StudentPlan().configuration() if content is None else content
    if is_linear(content["model"]["network"]):
        fit_student(run, content)
        test_student(run, None)
    else:
        find("rehearse_student")(run, content)
    folder = run.root / STUDENT.outputs[0] / MODEL
    if folder.is_dir():  # some stay in their runs, and say why
        samples = data.load(Role.PUBLIC).features
        answers = load_student(folder, trust=True).predict_proba(
            samples[np.arange(samples.shape[0])]
        )
        require(np.isfinite(answers).all(), "a student whose answers are finite")
