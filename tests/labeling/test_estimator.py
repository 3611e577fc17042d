"""The estimator for scikit-learn."""

import pickle
import secrets
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from pate import PateClassifier, read_ledger
from pate._core.validation import FloatArray, UInt8Array
from pate._labeling.estimator import _FITS, Content, ballots_of
from pate.accounting import Ledger

ANY_LABELS = "labels other than 0 and 1 are not read off the target, unless classes says so"


def expected_failures(estimator: PateClassifier) -> dict[str, str]:
    """Return the checks of scikit-learn that fail, each with the reason why it should."""
    if estimator.classes is not None:
        return {}
    checks = (
        "estimators_dtypes",
        "classifier_data_not_an_array",
        "classifiers_classes",
        "fit2d_1feature",
    )
    return {f"check_{name}": ANY_LABELS for name in checks}


class WithSamples(PateClassifier):
    """A classifier that scikit-learn's checks can fit, who know no public samples."""

    def fit(self, X: Any, Y: Any) -> "WithSamples":  # type: ignore[override]
        shape = (X if hasattr(X, "shape") else np.asarray(X)).shape
        columns = shape[1] if len(shape) == 2 else 1
        samples: Any = np.random.default_rng(0).uniform(-10, 10, (2000, columns))
        if hasattr(X, "columns"):
            samples = type(X)(samples, columns=X.columns)
        return super().fit(X, Y, X_public=samples)


@pytest.mark.slow
@parametrize_with_checks(  # type: ignore[untyped-decorator, unused-ignore]
    [WithSamples(noise_seed=0, classes=classes) for classes in (None, "from_y")],
    expected_failed_checks=expected_failures,
    xfail_strict=True,
)
def test_checks_of_scikit_learn(estimator: BaseEstimator, check: Any) -> None:
    check(estimator)


@pytest.fixture(scope="module")
def arrays() -> tuple[FloatArray, UInt8Array]:
    generator = np.random.default_rng(0)
    X = generator.standard_normal((2300, 6))
    weights = np.array([[2.0, 0, 0], [1, -2, 0], [0, 1, 0], [0, 0, 2], [0, 0, -1], [1, 0, 0]])
    return X, (X @ weights + 0.3 * generator.standard_normal((2300, 3)) > 0).astype(np.uint8)


@pytest.mark.parametrize(
    "settings", [{}, pytest.param({"n_teachers": 500}, marks=pytest.mark.slow)]
)
def test_it_learns_what_the_statement_pays_for(
    arrays: tuple[FloatArray, UInt8Array], settings: dict[str, Any]
) -> None:
    X, Y = arrays
    _FITS.clear()
    public = {"X_public": X[1800:]}
    before = str(np.random.get_state())
    classifier = PateClassifier(epsilon=4.0, random_state=0, noise_seed=1, **settings).fit(
        X[:1800], Y[:1800], **public
    )
    assert str(np.random.get_state()) == before
    assert (classifier.predict(X[1800:]) == Y[1800:]).mean() > 0.85
    assert classifier.statement_["guarantees"]["replace_record"]["epsilon"] <= 4.0
    assert "NOT PRIVATE" in classifier.statement_.text  # as noise_seed says
    assert "public: nothing protects them" in classifier.statement_.text
    assert len(classifier.X_public_) == len(classifier.released_.ids)
    read = pickle.loads(pickle.dumps(classifier)).released_.statement
    assert read == classifier.released_.statement
    # noise that hides everything: what is learned comes from the records through the release alone
    with pytest.warns(UserWarning, match="fit 2 of this process"):
        hidden = clone(classifier).set_params(epsilon=0.01).fit(X[:1800], Y[:1800], **public)
    assert (hidden.predict(X[1800:]) == Y[1800:]).mean() < 0.75


def test_public_samples_that_are_shifted_are_moved(
    arrays: tuple[FloatArray, UInt8Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    X, Y = arrays
    public, right = X[1800:] + 1.0, []
    for shifted in (False, True):
        monkeypatch.setattr("pate._labeling.estimator._FITS", [])
        classifier = PateClassifier(epsilon=16.0, shifted=shifted, noise_seed=1)
        expected = pytest.warns(UserWarning, match="times the variance of public samples")
        with nullcontext() if shifted else expected:
            classifier.fit(X[:1800], Y[:1800], X_public=public)
        right.append((classifier.predict(X[1800:]) == Y[1800:]).mean())
    assert right[1] > right[0] + 0.04, right
    with pytest.raises(ValueError, match="no `teacher` with shifted"):
        PateClassifier(shifted=True, teacher=DummyClassifier(), n_teachers=9).fit(
            X[:9], Y[:9], X_public=public
        )


def test_the_noise_has_no_seed_unless_it_is_given(arrays: tuple[FloatArray, UInt8Array]) -> None:
    X, Y = arrays
    classifier = PateClassifier(random_state=0)
    first, second = (clone(classifier).fit(X[:500], Y[:500], X_public=X[2000:]) for _ in range(2))
    assert "NOT PRIVATE" not in first.statement_.text
    assert (first.released_.noisy_counts != second.released_.noisy_counts).all()


def test_a_named_ledger_adds_fits_up(arrays: tuple[FloatArray, UInt8Array], tmp_path: Path) -> None:
    X, Y = arrays
    classifier = PateClassifier(ledger=tmp_path / "ledger.sqlite", n_teachers=20, grouping="pair")
    for _ in range(2):
        classifier.fit(X[:200], Y[:200], X_public=X[2200:], groups=np.repeat(np.arange(100), 2))
    assert (
        len(read_ledger(tmp_path / "ledger.sqlite").entries)
        == len(classifier.statement_["releases"])
        == 2
    )
    assert "one group by `pair`" in " ".join(classifier.statement_.text.split())


@pytest.mark.parametrize(
    "teacher",
    [
        pytest.param(LogisticRegression(), marks=pytest.mark.slow),
        KNeighborsClassifier(n_neighbors=5),
    ],
)
def test_a_record_reaches_one_teacher(
    arrays: tuple[FloatArray, UInt8Array], monkeypatch: pytest.MonkeyPatch, teacher: BaseEstimator
) -> None:
    """With about 4 records each, some teachers have none, one class only, or fewer than a
    classifier needs."""
    X, Y = arrays[0][:80], arrays[1][:80]
    monkeypatch.setattr(secrets, "token_bytes", lambda size: bytes(range(size)))

    def ballots(X: FloatArray, Y: UInt8Array) -> UInt8Array:
        content = Content(
            records=X,
            labels=Y,
            names=("a", "b", "c")[: Y.shape[1]],
            public=arrays[0][2200:],
            units=np.arange(len(X)).astype(np.str_),
            unit="record",
            random=np.random.RandomState(0),
        )
        return ballots_of(teacher, content, 20)

    whole = ballots(X, Y)
    assert whole.any() and not whole.all()
    changed = X.copy()
    changed[-1] = 1e6
    for neighbor in (
        ballots(X[:-1], Y[:-1]),
        ballots(changed, Y),
        ballots(X, np.vstack((Y[:-1], 1 - Y[-1:]))),
    ):
        assert (neighbor != whole).any(axis=(0, 2)).sum() == 1


@pytest.mark.parametrize("share", [0.2, pytest.param(1.0, marks=pytest.mark.slow)])
def test_rows_of_private_records_are_no_public_samples(
    share: float, arrays: tuple[FloatArray, UInt8Array]
) -> None:
    X, Y = arrays[0][:400], arrays[1][:400]
    classifier = PateClassifier(epsilon=20.0, noise_seed=0, random_state=0)
    copied = int(share * 200)
    public = np.concatenate((X[:copied], X[200 : 400 - copied]))
    with pytest.raises(ValueError, match=r"^Expected X_public that are no rows of X: [^\n]*\)$"):
        classifier.fit(X[:200], Y[:200], X_public=public)
    with pytest.raises(ValueError, match=r"^Expected copies True or False, got copies=nan$"):
        classifier.set_params(copies=np.nan).fit(X[:200], Y[:200], X_public=public)
    classifier.set_params(copies=True).fit(X[:200], Y[:200], X_public=public)


def test_bad_input_is_one_line_and_spends_nothing(
    arrays: tuple[FloatArray, UInt8Array], tmp_path: Path
) -> None:
    X, Y = arrays
    ledger = tmp_path / "ledger.sqlite"
    cases: list[tuple[dict[str, Any], UInt8Array, str]] = [
        ({"epsilon": -1.0}, Y, "Expected epsilon > 0"),
        ({"n_teachers": 1}, Y, "Expected an integer n_teachers >= 2"),
        ({"classes": "of_y"}, Y[:, 0], 'Expected classes, their values in a list, or "from_y"'),
        ({}, 2 * Y, r"Expected labels in \{0, 1\}"),
        ({"classes": [0, 2]}, Y[:, 0], "Expected y among the classes"),
        ({"teacher": LogisticRegression()}, Y, "Expected n_teachers, a public number"),
        ({"teacher": LogisticRegression(C=-1), "n_teachers": 9}, Y, "'C' parameter"),
    ]
    for settings, labels, message in cases:
        with pytest.raises(ValueError, match=message):
            PateClassifier(ledger=ledger, **settings).fit(X, labels, X_public=X + 1)
    with pytest.raises(ValueError, match=r"^Expected X_public, .* take DP-SGD or diffprivlib\)"):
        PateClassifier(ledger=ledger).fit(X, Y)
    with pytest.raises(ValueError, match="Expected groups that are texts or integers"):
        PateClassifier(ledger=ledger, grouping="pair").fit(
            X, Y, X_public=X + 1, groups=np.arange(len(X)) / 2
        )
    assert not ledger.exists()


def test_errors_tell_no_private_value(arrays: tuple[FloatArray, UInt8Array]) -> None:
    X, Y = arrays[0][:30], arrays[1][:30]
    word, gap = X.astype(object), Y.astype(np.float64)
    word[3, 1], gap[3, 1] = "s3cret", np.nan
    words = np.where(np.isnan(gap), "s3cret", Y.astype(object))
    cases: list[tuple[Any, Any, dict[str, Any], str]] = [
        (X + 7j, Y, {}, "^Complex data not supported$"),
        (X[:, 0], Y, {}, "^Expected 2D array, got 1D array instead:$"),
        (word, Y, {}, "^could not convert string to float$"),
        (
            np.where(word == "s3cret", "s3cret's", word),
            Y,
            {},
            "^could not convert string to float$",
        ),
        (word.astype(str), Y, {}, "^could not convert string to float$"),
        (X, Y * 7.77, {"unknown_labels": "nan"}, r"^Expected labels among \(0, 1\) in Y$"),
        (X, words, {"unknown_labels": "nan"}, "^could not convert string to float$"),
        (X, words, {}, "^Expected values of one kind in Y, got "),
        (X, gap, {}, "^Input y contains NaN: set `unknown_labels` if labels have gaps$"),
    ]
    for records, labels, settings, message in cases:
        with pytest.raises(ValueError, match=message) as raised:
            PateClassifier(**settings).fit(records, labels, X_public=arrays[0][30:60])
        assert "s3cret" not in str(raised.value) and "\n" not in str(raised.value)


class Killed(BaseException):
    """The end of a process."""


@pytest.mark.parametrize(
    ("how", "step"),
    [
        ("public samples", "reserve"),
        pytest.param("teachers", "settle", marks=pytest.mark.slow),
        pytest.param("public samples", "settle", marks=pytest.mark.slow),
        pytest.param("teachers", "reserve", marks=pytest.mark.slow),
    ],
)
def test_a_fit_that_was_killed_goes_on_and_pays_once(
    how: str,
    step: str,
    arrays: tuple[FloatArray, UInt8Array],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its private files stay beside the ledger until then, and nowhere else."""
    X, Y = arrays
    ledger, fits = tmp_path / "records.sqlite", tmp_path / "records.fits"
    given, settings = {"X_public": X[2000:]}, dict[str, Any]()
    if how == "teachers":
        settings = {"teacher": LogisticRegression(), "n_teachers": 20, "epsilon": 8.0}
    classifier = PateClassifier(ledger=ledger, random_state=0, **settings)
    original = getattr(Ledger, step)

    def kill(self: Ledger, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        if self.path == ledger:  # of no rehearsal
            raise Killed
        return result

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, step, kill)
        with pytest.raises(Killed):
            classifier.fit(X[:900], Y[:900], **given)
    assert len(read_ledger(ledger).entries) == 1
    assert fits.stat().st_mode & 0o777 == 0o700 and len([*fits.iterdir()]) == 1
    assert len(clone(classifier).fit(X[:899], Y[:899], **given).statement_["releases"]) > 1
    others = len(read_ledger(ledger).entries)
    classifier.fit(X[:900], Y[:900], **given)
    assert len(read_ledger(ledger).entries) == others
    assert not fits.exists()


@pytest.mark.slow
def test_fits_of_one_process_without_a_ledger_are_counted(tmp_path: Path) -> None:
    """Also those to some of the records, of their columns or of their labels."""
    _FITS.clear()
    X, Y = np.random.default_rng(0).normal(size=(60, 3)), np.ones((60, 2), int)
    Y[::2] = 0

    def told(rows: int = 40, columns: int = 3, labels: int = 2, ledger: Path | None = None) -> str:
        classifier = PateClassifier(epsilon=1.0, noise_seed=0, ledger=ledger)
        classifier.fit(X[:rows, :columns], Y[:rows, :labels], X_public=X[40:, :columns])
        return classifier.statement_.text

    assert "This is fit 1 of its process" in told()
    assert "of its process" not in told(ledger=tmp_path / "ledger.sqlite")
    with pytest.warns(UserWarning, match="fit 3 of this process, without a ledger"):
        assert "This is fit 3 of its process, without a ledger" in told(columns=2)
    assert "This is fit 4 of its process" in told(rows=20, labels=1)  # warned once


@pytest.mark.slow
def test_groups_have_a_name_where_a_ledger_adds_up(tmp_path: Path) -> None:
    X, Y = np.random.default_rng(0).normal(size=(60, 3)), np.ones((60, 2), int)
    Y[::2] = 0
    ledger = tmp_path / "ledger.sqlite"

    def fit(scale: float, persons: Any, grouping: str | None) -> Any:
        classifier = PateClassifier(
            epsilon=1.0, noise_seed=0, ledger=ledger, grouping=grouping, copies=True
        )
        classifier.fit(scale * X[:40], Y[:40], X_public=scale * X[40:], groups=persons)
        return classifier.statement_

    with pytest.raises(ValueError, match=r"PateClassifier\(grouping='patient'\)"):
        fit(1, np.arange(40) // 20, None)
    assert not ledger.exists()
    fit(1, np.arange(40) // 20, "patient")
    other = fit(2, np.arange(40), "visit")
    assert "no total for one group by `visit`" in " ".join(other.text.split())
    same = " ".join(fit(3, np.arange(40) // 20, "patient").text.split())
    assert "no total for one group by `patient`" in same  # release 2 is by others


class Failing(ClassifierMixin, BaseEstimator):  # type: ignore[misc, unused-ignore]
    """A classifier that fails in one way, and is a tree otherwise."""

    def __init__(self, how: str) -> None:
        self.how = how

    def fit(self, X: FloatArray, y: UInt8Array) -> Self:
        if self.how == "on few" and len(y) < 20:
            raise ValueError("too few")
        self.tree_, self.classes_ = DecisionTreeClassifier(max_depth=2).fit(X, y), np.unique(y)
        return self

    def predict_proba(self, X: FloatArray) -> FloatArray:
        if self.how == "probabilities":
            raise TypeError("no probabilities")
        answers: FloatArray = self.tree_.predict_proba(X)
        return 1 - answers if self.how == "inverted" else answers


@pytest.mark.parametrize(
    ("teacher", "outcome"),
    [
        (Failing("not at all"), nullcontext()),
        (KNeighborsClassifier(), nullcontext()),
        (LogisticRegression(), nullcontext()),
        (DecisionTreeClassifier(), nullcontext()),
        (Failing("probabilities"), pytest.raises(TypeError, match="no probabilities")),
        (Failing("inverted"), pytest.raises(ValueError, match=r"made-up labels .* accuracy=0.24")),
        (DummyClassifier(), pytest.raises(ValueError, match=r"made-up labels .* accuracy=0.5")),
        (Failing("on few"), pytest.raises(ValueError, match=r"of 10 public .* got .*: too few")),
    ],
)
def test_classifiers_that_learn_nothing_are_refused_unpaid(
    teacher: Any, outcome: Any, arrays: tuple[FloatArray, UInt8Array], tmp_path: Path
) -> None:
    X, Y = arrays
    ledger = tmp_path / "ledger.json"
    estimator = PateClassifier(
        teacher=teacher, n_teachers=30, epsilon=8.0, ledger=ledger, noise_seed=0
    )
    with outcome as it:
        estimator.fit(X[300:], Y[300:], X_public=X[:300])
    assert ledger.exists() == (not isinstance(it, pytest.ExceptionInfo))
