"""Teachers that are classifiers of scikit-learn, each fitted to its part of the records."""

import secrets
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import clone

from pate._validation import UNKNOWN, FloatArray, IntArray, StrArray, UInt8Array
from pate._votes import highest
from pate.data._records import assign_teachers


def ballots_of(
    classifier: Any,
    X: FloatArray,
    labels: UInt8Array,
    public: FloatArray,
    units: StrArray,
    num_teachers: int,
    random: np.random.RandomState,
) -> UInt8Array:
    """Return the ballots ``[P, T, C]`` of teachers of units that a secret key assigns.

    The key is drawn for this fit only, so that the teacher of a record, even if its id is a row
    number, is independent of the teachers of others: with a record more or less, every assignment
    of the others is as likely.
    """
    seeds = random.randint(2**31 - 1, size=num_teachers).tolist()
    # refuse a classifier that cannot be fitted at all, by a fit to arbitrary labels
    _fitted(classifier, public[:100], np.arange(len(public[:100])) % 2, seeds[0]).predict(
        public[:1]
    )
    teachers = assign_teachers(
        units.tolist(), num_teachers=num_teachers, key=secrets.token_bytes(32)
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


def _ballot(
    classifier: Any, X: FloatArray, labels: UInt8Array, public: FloatArray, seed: int
) -> UInt8Array | int:
    """Return the ballot ``[P]`` of a classifier fitted to one label ``[N]`` of its records."""
    if labels.min() == labels.max():
        return int(labels[0])
    try:
        with warnings.catch_warnings():
            # a warning would say something of this teacher's records
            warnings.simplefilter("ignore")
            fitted = _fitted(classifier, X, labels, seed)
            if not hasattr(fitted, "predict_proba"):
                return np.asarray(fitted.predict(public) == 1, dtype=np.uint8)
            scores = np.nan_to_num(np.asarray(fitted.predict_proba(public))[:, 1:])
            return highest(scores.astype(np.float32), labels.mean(keepdims=True))[:, 0].astype(
                np.uint8
            )
    except Exception:
        # one record must not make a fit fail, such as a search for five neighbors of three records
        return 0


def _fitted(classifier: Any, X: FloatArray, labels: IntArray | UInt8Array, seed: int) -> Any:
    """Return a clone of a classifier, fitted with ``seed`` for all of its random states."""
    copy = clone(classifier)
    seeded: Sequence[str] = [
        name for name in copy.get_params() if name.rpartition("__")[2] == "random_state"
    ]
    return copy.set_params(**dict.fromkeys(seeded, seed)).fit(X, labels)
