"""The choice of the public samples that are asked about.

It follows from public facts and costs nothing. By a released student: ``entropy`` and ``margin``
take the samples on which it is least certain (Settles (2009)). By public features: ``k_center``
takes samples far from each other (Gonzalez (1985); Sener & Savarese (2018)).
"""

from collections.abc import Callable

import numpy as np
from scipy.special import entr

from pate._release.label_settings import LabelSettings, QueryChoice
from pate._release.starting import Start
from pate._runs import TEACHERS_FIT, Run
from pate._validation import FloatArray, IntArray, require
from pate._votes import drawn_rows, rows_of
from pate._votes.store import VoteStore, public_features, voted_data
from pate.data._records import Role


def least_margin(probabilities: FloatArray) -> FloatArray:
    """Return minus the distance ``[N]`` of the least certain label from one half."""
    return np.asarray(-np.abs(probabilities - 0.5).min(axis=1))


def total_entropy(probabilities: FloatArray) -> FloatArray:
    """Return the entropy ``[N]`` of all labels, in nats, as if they were independent."""
    return np.asarray((entr(probabilities) + entr(1 - probabilities)).sum(axis=1))


_BY_STUDENT: dict[QueryChoice, Callable[[FloatArray], FloatArray]] = {
    "entropy": total_entropy,
    "margin": least_margin,
}
"""The uncertainty ``[N]`` of a student's probabilities ``[N, C]``, by choice."""


def require_student_for(choice: QueryChoice | None, start_from: str | None) -> None:
    """Raise ``ValueError`` if a choice takes a released student, and teachers start from none."""
    require(
        choice not in _BY_STUDENT or start_from is not None,
        "teachers with start_from, a released student that chooses the queries",
        query_choice=choice,
    )


def chosen_rows(run: Run, store: VoteStore, settings: LabelSettings) -> IntArray:
    """Return the rows ``[Q]``, in order, of the samples with votes that are asked about.

    Ties go to the first samples in the public order of ``query_seed``.

    Raises:
        ValueError: if there are not enough samples, or no released student chooses among them.
    """
    manifest, choice, number = store.manifest(), settings.query_choice, settings.num_queries
    assert choice is not None and number is not None, "settings are complete"
    ids = np.array(manifest.ids)
    require(number <= len(ids), f"num_queries <= {len(ids)}", num_queries=number)
    order = drawn_rows(len(ids), len(ids), seed=settings.query_seed)
    if choice == "k_center":
        return order[farthest_first(public_features(run, store, order), number)]
    start_from = run.inputs_of(TEACHERS_FIT).settings.get("start_from")
    require_student_for(choice, start_from)
    assert start_from is not None
    data = voted_data(run, manifest)
    public = data.load(Role.PUBLIC)
    samples = public.features[rows_of(ids[order], public.ids)]
    uncertainty = _BY_STUDENT[choice](Start.of(run, start_from, data).answers(samples))
    return order[np.argsort(-uncertainty, kind="stable")[:number]]


def farthest_first(features: FloatArray, number: int) -> IntArray:
    """Return the rows ``[number]`` of samples far from each other.

    The first comes first, then the one that is farthest from all before it. The largest distance of
    a sample from the nearest of them is at most twice the least possible (Gonzalez (1985), Theorem
    2.2).

    Args:
        features: ``[N, F]``.
        number: the number of samples, at most N.
    """
    squares = np.einsum("nf,nf->n", features, features)
    rows = np.zeros(number, dtype=np.int64)
    nearest = np.full(len(features), np.inf)
    for place in range(1, number):
        latest = rows[place - 1]
        distances = squares - 2 * (features @ features[latest]) + squares[latest]
        np.minimum(nearest, distances, out=nearest)
        nearest[rows[:place]] = -np.inf  # a copy of a sample is still another sample
        rows[place] = np.argmax(nearest)
    return rows
