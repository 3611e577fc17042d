"""A private classifier with the interface of scikit-learn, on arrays in memory.

At the end stand its teachers that are classifiers of scikit-learn, each fitted to its own records.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse

from pate._core.accounting.statement import Statement
from pate._core.files.reading import digest
from pate._core.files.writing import locked, make_folder
from pate._core.transaction import unfinished
from pate._core.validation import (
    LARGEST,
    UNKNOWN,
    FloatArray,
    StrArray,
    UInt8Array,
    as_float32,
    expecting,
    given,
    require,
    require_count,
    require_flag,
    require_given,
    require_label_names,
    require_positive,
)
from pate._labeling.data.feature_maps import AutoFeatures, PublicScaling
from pate._labeling.data.records import (
    ArrayFeatures,
    FeatureMap,
    Role,
    Unit,
    UnknownLabels,
    as_text,
    assign_teachers,
    check_labels,
    copied_rows,
    known_truth,
)
from pate._labeling.data.source import Arrays
from pate._labeling.linear import student_of
from pate._labeling.plan import RunPlan, label
from pate._labeling.release.label_settings import LabelSettings, resolve_settings
from pate._labeling.release.labels import StatedLabels
from pate._labeling.runs.run import LABEL
from pate._labeling.stages.rehearsal import LEAST_LEARNED, learned, separable
from pate._labeling.stages.votes_import import NamedVotes
from pate._labeling.teachers import ClosedFormPlan
from pate._labeling.votes.kinds import VoteShape, highest, rows_of

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, clone
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import (
        check_array,
        check_is_fitted,
        check_random_state,
        column_or_1d,
        validate_data,
    )
except ImportError:
    raise ImportError(
        "PateClassifier needs scikit-learn 1.6 or later: pip install 'pate[sklearn]'"
    ) from None

_TRIED, _PARTS = 100, 3  # public samples, and parts of them, that a classifier is tried on
_LEAST_PART = 10  # samples, which suffice for most classifiers
# how scikit-learn reads samples; `_bounded` refuses what is not finite, in one line
_READ: Any = {"accept_sparse": "csr", "dtype": np.float64, "ensure_all_finite": False}


@contextmanager
def _without_values() -> Iterator[None]:
    """Cut values, which are private, off the errors of scikit-learn and of labels."""
    try:
        yield
    except (ValueError, OverflowError) as error:
        # such as a table, : np.str_('x') and , got values=[7.0]
        (said, *_) = re.split(r"""\n|: [\w.(]*['"]|, got values=\[[-\d]""", str(error))
        raise ValueError(
            said.replace("contains NaN.", "contains NaN: set `unknown_labels` if labels have gaps")
        ) from None


class PateClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc, unused-ignore]
    """A classifier for scikit-learn that protects the records of each fit, with a statement.

    ``fit`` is one release. It executes a `RunPlan` in a folder that is removed at the end,
    a temporary one or, with a ledger, one beside it: records, or teachers trained on parts of them,
    vote on public samples, a private mechanism releases their votes, and a linear student learns
    from the release. The fitted estimator is the student and the statement, both PUBLIC. It holds
    nothing else of the private records.

    PATE needs public samples, and never takes them from ``X``: they are an argument of `fit`. They
    are not protected. Earlier steps of a pipeline transform ``X_public`` only if its
    ``transform_input`` names it, and are not protected if they are fitted to private records: scale
    by public records, or leave scaling to this estimator. Each fit costs anew: cross-validation and
    a search over parameters make several releases, and the choice among them depends on the records
    once more.

    Args:
        epsilon: the largest cost of one fit, under REPLACE_RECORD.
        delta: the probability that this fails: at most 1e-3, and below one over ``n_teachers``.
            Choose it well below one over the number of records, which is private and not checked.
        teacher: None for a linear model in closed form, without training (`ScoreVotes`; the best
            choice for most tables, ``docs/measured.md``); or any classifier of scikit-learn, with
            clones fitted label by label to parts of the records. Classifiers with ``predict_proba``
            give each label to their best public samples, as many as match the share of the label
            among their own records. Others use their predictions.
        n_teachers: the number of teachers, public and at least 2. Required with ``teacher``; in
            closed form None lets each record (each group) vote for itself.
        unknown_labels: ``nan`` if labels ``[N, C]`` may be NaN, unknown; -1 if -1 is unknown, too.
            None if all must be known.
        classes: all possible values of a target ``y`` ``[N]``, known without a look at the records.
            None for 0 and 1; ``"from_y"`` takes the values in ``y``, which are then not protected.
        copies: whether ``X_public`` may be rows of ``X``, which nothing protects then. Otherwise
            `fit` refuses it if more samples equal a record than records equal another one.
        shifted: whether ``X_public`` may differ from ``X`` in place and scale. It is then moved to
            moments of the records, for 0.09 of the squared budget. Not with ``teacher``.
        ledger: a file that counts all releases of the same records, created if it is missing. A fit
            that is killed leaves its private files beside it, in a folder ``.fits`` of mode 0700,
            and the same fit goes on there without paying again. None for a statement of only this
            fit; other fits to the same records add to its cost, and a killed one leaves private
            files in the folder of temporary files.
        grouping: the public name of the groups of `fit`, such as ``"patient"``, by which releases
            of a ledger add up: a record has one group under one name, in all fits. Required with
            groups and a ledger.
        random_state: seed of the teachers' training, but neither of noise nor of partition.
        noise_seed: a fixed seed of the noise, for tests and teaching: the result is NOT private.

    Attributes:
        statement_: the `Statement` of the cost; ``statement_.text`` is its text.
        released_: the `StatedLabels` of the public samples, which any other student may learn from.
            Its ``label_names`` are the columns of a table ``Y``, or the classes.
        X_public_: ``[P, F]`` float64, these samples, in the order of ``released_.ids``.
        classes_: ``[K]``, the classes of ``y``; of labels ``[N, C]`` a list of ``[0, 1]`` for each.
        n_features_in_: the number of features.
    """

    def __init__(
        self,
        *,
        epsilon: float = 2.0,
        delta: float = 1e-6,
        teacher: Any = None,
        n_teachers: int | None = None,
        classes: ArrayLike | Literal["from_y"] | None = None,
        unknown_labels: UnknownLabels | None = None,
        copies: bool = False,
        shifted: bool = False,
        ledger: Path | str | None = None,
        grouping: str | None = None,
        random_state: Any = None,
        noise_seed: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.teacher = teacher
        self.n_teachers = n_teachers
        self.classes = classes
        self.unknown_labels = unknown_labels
        self.copies = copies
        self.shifted = shifted
        self.ledger = ledger
        self.grouping = grouping
        self.random_state = random_state
        self.noise_seed = noise_seed

    def fit(
        self,
        X: ArrayLike,
        Y: ArrayLike,
        *,
        X_public: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Release labels of public samples, and fit the student to them.

        Warns if the release shows public samples to be unlike the records.

        Args:
            X: ``[N, F]``, the features of the private records; sparse ones are made dense.
            Y: ``[N, C]`` in {0, 1}, their labels, dense or sparse, or unknown as ``unknown_labels``
                says; or ``[N]``, the class of each.
            X_public: ``[P, F]``, samples that anyone may see, at least 2. Required: without any,
                take DP-SGD or diffprivlib.
            groups: ``[N]`` texts or integers, the group of each record, such as a person. Groups
                are then the protected units, and with a ledger have a name, ``grouping``.

        Raises:
            ValueError: in one line, if anything does not fit. Nothing is spent then.
        """
        require_positive(epsilon=self.epsilon)
        require_flag(copies=self.copies, shifted=self.shifted)
        require_count(2, **given(n_teachers=self.n_teachers))
        require(not self.shifted or self.teacher is None, "no `teacher` with shifted samples")
        content = self._content(X, Y, X_public, groups=groups)
        settings = LabelSettings(
            delta=float(self.delta), target_epsilon=float(self.epsilon), noise_seed=self.noise_seed
        )
        release = self._by_records if self.teacher is None else self._by_classifiers
        with self._place(content) as folder:
            released = release(folder, content, settings)
        self.released_, self.statement_ = released, self._counted(released.statement)
        self.X_public_ = content.public[rows_of(released.ids, content.ids)]
        self._student = student_of(released, self._features(self.X_public_), released.num_teachers)
        if released.unlike is not None:
            warnings.warn(
                f"{released.unlike} A step of a pipeline transforms X, and X_public only if"
                " transform_input names it.",
                stacklevel=2,
            )
        return self

    def _counted(self, statement: Statement) -> Statement:
        """Return a statement with the number of this process's fits, if no ledger counts them.

        All fits count, since they may be of the same records: to compare records would tell whether
        one of them is there, and some of their columns or labels are records of another shape.
        """
        warned = self.ledger is None and len(_FITS) > 0 and not any(_FITS)
        _FITS.append(warned)
        if warned:
            warnings.warn(
                f"this is fit {len(_FITS)} of this process, without a ledger: what fits to the same"
                " records cost adds up. Name a `ledger` that counts it",
                stacklevel=3,
            )
        if self.ledger is not None:
            return statement
        return Statement({**statement.content, "fits": len(_FITS)})

    @_without_values()
    def _content(
        self,
        X: ArrayLike,
        Y: ArrayLike,
        X_public: ArrayLike | None,
        *,
        groups: ArrayLike | None,
    ) -> Content:
        """Return the checked arguments of a fit."""
        answers, known = Y, np.ones(1, dtype=np.bool_)  # of each label
        if self.unknown_labels is not None:
            # gaps of a data frame are NaN then
            table = check_labels(
                check_array(Y, dtype=np.float64, ensure_all_finite="allow-nan"),
                source="Y",
                unknown=self.unknown_labels,
                hint="",
            )
            right, known = known_truth(table)
            answers = right.astype(np.uint8)
        checked, targets = validate_data(self, X, answers, multi_output=True, **_READ)
        records, targets = _bounded(checked, "X"), _dense(targets)
        with expecting("values of one kind in Y", TypeError):
            labels = np.where(known, self._labels_of(targets), UNKNOWN).astype(np.uint8)
        samples = require_given(
            X_public,
            "X_public, samples that anyone may see (without any take DP-SGD or diffprivlib)",
        )
        public = _bounded(
            validate_data(self, samples, reset=False, ensure_min_samples=2, **_READ), "X_public"
        )
        if not self.copies:
            copied = copied_rows(*(ArrayFeatures(as_float32(rows)) for rows in (records, public)))
            require(
                copied.size == 0,
                "X_public that are no rows of X: public samples are published (`copies` says that"
                " this is meant)",
            )
        units = as_text(np.arange(len(records)) if groups is None else groups, name="groups")
        require(
            len(units) == len(records),
            f"{len(records)} groups, one for each record",
            groups=len(units),
        )
        unit: Unit = "record" if groups is None else "group"
        require(
            unit == "record" or self.ledger is None or self.grouping is not None,
            "PateClassifier(grouping='patient'), a name of the groups, with a ledger:"
            " releases by groups of one name add up",
            grouping=self.grouping,
        )
        return Content(
            records,
            labels,
            self._label_names(Y, labels.shape[1]),
            public,
            units,
            unit,
            check_random_state(self.random_state),
        )

    def _by_records(self, folder: Path, content: Content, settings: LabelSettings) -> StatedLabels:
        """Release labels by records that vote, or their parts."""
        self._map: FeatureMap = AutoFeatures()
        data = _OneFit(
            content.save(folder / "records.npz"),
            features=self._map,
            permanent_ids=True,
            unknown_labels=self.unknown_labels,
            copies=True,
            shifted=self.shifted,
        )
        data.grouping = self.grouping or data.grouping
        plan = RunPlan(
            root=folder / type(self).__name__,
            data=data,
            teachers=ClosedFormPlan(
                num_teachers=None if self.n_teachers is None else int(self.n_teachers),
                unit=content.unit,
            ),
            labels=settings,
            ledger=None if self.ledger is None else Path(self.ledger),
        )
        released = plan.execute()
        self._map.fit(data.load(Role.PUBLIC).features)  # of a run that goes on it is not yet
        return released

    def _by_classifiers(
        self, folder: Path, content: Content, settings: LabelSettings
    ) -> StatedLabels:
        """Release labels by votes of classifiers."""
        number = require_given(self.n_teachers, "n_teachers, a public number, with a teacher")
        # refuse an unreachable target before teachers are fitted
        shape = VoteShape(int(number), content.labels.shape[1])
        resolve_settings(settings, shape, len(content.public))
        self._map = PublicScaling().fit(ArrayFeatures(as_float32(content.public)))
        file = folder / "votes.npz"
        if not file.is_file():  # by another key it would be another release
            NamedVotes(
                ids=content.ids,
                label_names=content.names,
                ballots=ballots_of(self.teacher, content, shape.num_teachers),
                features=self._features(content.public),
            ).save(file)
        return label(
            NamedVotes.read(file),
            settings,
            run=folder / type(self).__name__,
            unit=content.unit,
            ledger=self.ledger,
        )

    @contextmanager
    def _place(self, content: Content) -> Iterator[Path]:
        """Make a folder for private files, which is removed at the end.

        With a ledger it is beside it, named by a digest of the settings and of ``content``: where a
        fit was killed after it was paid for, the same fit finds its run, and does not pay again.
        """
        if self.ledger is None:
            with TemporaryDirectory(prefix="pate") as temporary:
                yield Path(temporary)
            return
        ledger = Path(self.ledger).absolute()
        settings = {name: repr(value) for name, value in self.get_params().items()}
        settings["ledger"] = str(ledger)
        parts = content.records, content.labels, content.units, content.public
        arrays = [np.ascontiguousarray(each) for each in parts]
        facts = json.dumps([settings, [(a.dtype.str, a.shape) for a in arrays]], sort_keys=True)
        # a digest of private records could confirm a guess of them
        fits = ledger.with_suffix(".fits")
        folder = fits / digest(facts, *(array.tobytes() for array in arrays))
        make_folder(fits)
        fits.chmod(0o700)
        run, done = folder / type(self).__name__, fits / f".{folder.name}.{secrets.token_hex(8)}"
        seeds = run / "private" / "label"

        def paid() -> bool:
            return any(place.exists() for place in (seeds, run / LABEL.outputs[0]))

        with locked(folder):
            try:
                with unfinished(paid, seeds):
                    yield folder
                    folder.rename(done)  # in one step: half of a run would be paid for again
            except BaseException:
                if not paid():
                    shutil.rmtree(folder)
                raise
        for left in fits.glob(".*"):
            shutil.rmtree(left, ignore_errors=True)
        if done.exists():
            warnings.warn(f"the fit is done, and left private files in {done}", stacklevel=4)
        with suppress(OSError):  # another fit is under way
            fits.rmdir()

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the labels ``[N, C]`` or classes ``[N]`` of samples ``[N, F]``."""
        probabilities = self.predict_proba(X)
        if self._multi_label:
            return (probabilities > 0.5).astype(np.int64)
        return np.asarray(self.classes_[probabilities.argmax(axis=1)])

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return probabilities ``[N, C]`` of labels or ``[N, K]`` of classes."""
        check_is_fitted(self)
        samples = _bounded(validate_data(self, X, reset=False, **_READ), "X")
        probabilities = self._student.predict(self._features(samples))
        if self._multi_label:
            return probabilities
        if len(self.classes_) == 2:
            return np.column_stack((1 - probabilities, probabilities))
        # if no class is known to occur, all are equally likely
        probabilities = np.maximum(probabilities, np.finfo(np.float64).tiny)
        return np.asarray(probabilities / probabilities.sum(axis=1, keepdims=True))

    def _labels_of(self, Y: NDArray[Any]) -> UInt8Array:
        """Return labels ``[N, C]``; of a target ``[N]`` one per class, or one for two classes."""
        check_classification_targets(Y)
        self._multi_label = Y.ndim == 2 and (Y.shape[1] > 1 or self.classes is None)
        if self._multi_label or self.classes is None:
            # for labels a list: metrics tell them from classes by it
            self.classes_: Any = [np.arange(2)] * Y.shape[1] if self._multi_label else np.arange(2)
            if len(np.unique(Y)) > 2 and Y.ndim == 1:  # in the words of scikit-learn's checks
                raise ValueError(
                    "Only binary classification is supported without classes, the public values"
                    " of y"
                )
            require(
                np.isin(Y, (0, 1)).all(),
                "labels in {0, 1}, or classes, the public values of y",
            )
            return Y.reshape(len(Y), -1).astype(np.uint8)
        from_y, y = isinstance(self.classes, str), column_or_1d(Y)
        require(
            not from_y or self.classes == "from_y",
            'classes, their values in a list, or "from_y"',
            classes=self.classes,
        )
        self.classes_ = np.unique(y if from_y else np.asarray(self.classes))
        require(
            np.isin(y, self.classes_).all(),
            "y among the classes",
            classes=self.classes_[:5].tolist(),
        )
        # one label tells two classes apart
        return np.asarray(y[:, None] == self.classes_[len(self.classes_) == 2 :], dtype=np.uint8)

    def _label_names(self, Y: Any, num_labels: int) -> tuple[str, ...]:
        """Return the names of the labels: columns of a table, classes, or numbers."""
        named: Any = getattr(Y, "columns", [f"label_{j}" for j in range(num_labels)])
        if not self._multi_label and self.classes is not None:
            named = self.classes_[-num_labels:]
        names = tuple(map(str, named))
        require_label_names("label names", names)
        return names

    def _features(self, X: FloatArray) -> FloatArray:
        return self._map.transform(ArrayFeatures(as_float32(X)))[:].astype(np.float64)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.multi_output = True
        tags.classifier_tags.multi_label = True
        tags.classifier_tags.multi_class = self.classes is not None
        # how good it is depends on epsilon and the number of records
        tags.classifier_tags.poor_score = True
        tags.non_deterministic = self.noise_seed is None
        return tags


_FITS: list[bool] = []
"""For each fit of this process, whether it warned."""


class _OneFit(Arrays):
    """Records that exist for one fit, and so have no place for a ledger."""

    @property
    def ledger_path(self) -> None:  # type: ignore[override]
        return None


def _dense(values: Any) -> NDArray[Any]:
    """Return an array, dense or sparse, as a dense one."""
    return np.asarray(values.toarray() if issparse(values) else values)


def _bounded(values: Any, name: str) -> FloatArray:
    """Return finite features, dense or sparse, as a dense array, clipped to what float32 holds."""
    entries = values.data if issparse(values) else values
    gaps = [sign for sign, has in (("NaN", np.isnan), ("infinity", np.isinf)) if has(entries).any()]
    require(
        not gaps,
        f"{name} of finite numbers: fill gaps by public numbers first (`unknown_labels` is for gaps"
        " in Y)",
        values=gaps,
    )
    if issparse(values):  # entries of one place are added: their sum is finite
        values = csr_array(
            (entries.clip(-LARGEST, LARGEST), values.indices, values.indptr), values.shape
        )
    return _dense(values).clip(-LARGEST, LARGEST)


@dataclass(frozen=True, eq=False)
class Content:
    """The checked arguments of a fit.

    Attributes:
        records: ``[N, F]``, the private records.
        labels: ``[N, C]`` in {0, 1}, or `UNKNOWN`.
        names: names of the labels.
        public: ``[P, F]``, the public samples.
        units: ``[N]``, the group of each record, or its number.
        unit: the protected unit.
        random: public randomness.
    """

    records: FloatArray
    labels: UInt8Array
    names: tuple[str, ...]
    public: FloatArray
    units: StrArray
    unit: Unit
    random: np.random.RandomState

    @property
    def ids(self) -> StrArray:
        """The ids of the public samples."""
        return np.char.mod("public%09d", np.arange(len(self.public)))

    def save(self, file: Path) -> Path:
        """Write private records and public samples for `Arrays`.

        If each record votes for itself, ids do not matter. Parts are assigned by a key that is
        drawn for this fit only, so that row numbers suffice as ids.
        """
        X, labels, public = self.records, self.labels, self.public
        private = np.where(labels == UNKNOWN, np.nan, labels).astype(np.float32)
        blank = np.zeros((len(public), labels.shape[1]), np.float32)
        arrays = {
            "X": np.concatenate((X, public)),
            "Y": np.concatenate((private, blank)),
            "ids": np.concatenate((np.char.mod("private%09d", np.arange(len(X))), self.ids)),
            "split": np.repeat([0, 1], [len(X), len(public)]),
            "label_names": np.array(self.names),
        }
        if self.unit == "group":
            arrays["group"] = np.concatenate((self.units, np.zeros(len(public), self.units.dtype)))
        np.savez(file, **arrays)  # type: ignore[arg-type, unused-ignore]
        return file


def ballots_of(classifier: Any, content: Content, num_teachers: int) -> UInt8Array:
    """Return the ballots ``[P, T, C]`` of teachers of units that a secret key assigns.

    The key is drawn for this fit only, so that the teacher of a record, even if its id is a row
    number, is independent of the teachers of others: with a record more or less, every assignment
    of the others is as likely.
    """
    X, labels, public = content.records, content.labels, content.public
    seeds = content.random.randint(2**31 - 1, size=num_teachers).tolist()
    _require_teacher(classifier, public, seeds)
    teachers = assign_teachers(
        content.units.tolist(), num_teachers=num_teachers, key=secrets.token_bytes(32)
    )
    ballots = np.zeros((len(public), num_teachers, labels.shape[1]), dtype=np.uint8)
    for teacher, seed in enumerate(seeds):
        rows = np.flatnonzero(teachers == teacher)
        for column in range(labels.shape[1]):
            own = rows[labels[rows, column] != UNKNOWN]
            if own.size:
                ballots[:, teacher, column] = _ballot(
                    classifier, X[own], labels[own, column], public, seed
                )
    return ballots


def _require_teacher(classifier: Any, public: FloatArray, seeds: list[int]) -> None:
    """Raise unless a classifier learns separable labels of public samples, and of a part of them.

    Raises whatever the classifier raises on all samples. How many records are in a part is private:
    the parts tried are equal ones of the public samples, of `_LEAST_PART` or more.
    """
    some = public[:_TRIED]
    labels = separable(some, 1)[:, 0]
    if labels.min() == labels.max():  # all samples are alike
        return
    votes = _votes(classifier, some, labels, some, seeds[0])
    accuracy = learned(votes[:, None] == 1, labels[:, None])
    require(
        accuracy > LEAST_LEARNED,
        f"a teacher {type(classifier).__name__} that learns made-up labels of {len(some)} public"
        f" samples, with accuracy > {LEAST_LEARNED}",
        accuracy=round(accuracy, 3),
    )
    every = max(1, min(len(seeds), len(public) // _LEAST_PART))
    parts, last = [public[part::every] for part in range(min(_PARTS, every))], ""
    for part in parts:
        labels = separable(part, 1)[:, 0]
        if labels.min() == labels.max():
            return
        try:
            _votes(classifier, part, labels, public[:1], seeds[0])
        except Exception as error:
            last = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        else:
            return
    require(
        not last,
        f"a teacher {type(classifier).__name__} that learns of {len(parts[0])} public samples, a"
        f" part of them for each of {len(seeds)} teachers (fewer n_teachers, or more X_public)",
        failed=last,
    )


def _ballot(
    classifier: Any, X: FloatArray, labels: UInt8Array, public: FloatArray, seed: int
) -> UInt8Array | int:
    """Return the ballot ``[P]`` of a classifier fitted to one label ``[N]`` of its records."""
    if labels.min() == labels.max():
        return int(labels[0])
    try:
        return _votes(classifier, X, labels, public, seed)
    except Exception:
        # one record must not make a fit fail, such as a search for five neighbors of three records
        return 0


def _votes(
    classifier: Any, X: FloatArray, labels: UInt8Array, public: FloatArray, seed: int
) -> UInt8Array:
    """Return the votes ``[P]`` of a clone fitted to labels ``[N]`` of both kinds, with ``seed``."""
    with warnings.catch_warnings():
        # a warning would say something of this teacher's records
        warnings.simplefilter("ignore")
        copy = clone(classifier)
        seeded = [name for name in copy.get_params() if name.rpartition("__")[2] == "random_state"]
        fitted = copy.set_params(**dict.fromkeys(seeded, seed)).fit(X, labels)
        if not hasattr(fitted, "predict_proba"):
            return np.asarray(fitted.predict(public) == 1, dtype=np.uint8)
        scores = np.nan_to_num(np.asarray(fitted.predict_proba(public))[:, 1:])
        return highest(scores.astype(np.float32), labels.mean(keepdims=True))[:, 0].astype(np.uint8)
