"""The votes of a run on some samples: of the kind in its manifest, with public features.

The needs of an aggregator determine what is read. From ballots, `NoisyVotes` is given the counts,
``ClippedVotes`` the ballots, and ``Rounds`` of ``ClippedVotes`` the features too:

    votes = load_votes(run, finished_votes(run), ids, aggregator.needs)
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pate._data_file import load_data
from pate._files import Json, read_arrays
from pate._runs import VOTES_IMPORT, Run, first_stage
from pate._validation import FloatArray, IntArray, StrArray, require, require_given
from pate._votes.kinds import (
    Ballots,
    Counts,
    Moments,
    Need,
    NoisyTotal,
    Scores,
    Votes,
    rows_of,
    serves,
)
from pate._votes.store import VoteManifest, VoteStore, load_voters
from pate._votes.voters import ScoreVoters
from pate.data import DataSource, Role
from pate.data._checks import as_text

MOST_SAMPLES = 4_096
"""For scores without features: the time to find directions grows with its third power."""


def load_votes(
    run: Run,
    store: VoteStore,
    ids: StrArray,
    needs: frozenset[Need],
    *,
    predictions: Path | None = None,
    total: NoisyTotal | None = None,
) -> Votes:
    """Return the votes on samples with ``ids`` ``[Q]``, with the side information that is needed.

    Args:
        run: the run; features come from its public records unless the votes have their own.
        store: its votes.
        ids: ``[Q]``, ids of samples that were voted on.
        needs: the needs of the aggregator.
        predictions: the file of a student's predictions.
        total: the sum of silos that mask their votes.

    Raises:
        ValueError: if the votes are of another kind, or without their sum or side information, or
            the public records are not those that were voted on.
    """
    manifest = store.manifest()
    kind, samples = manifest.kind, np.array(manifest.ids)
    rows = rows_of(ids, samples)
    votes: Votes
    if issubclass(kind, Counts):
        # read before features, which do not help an aggregator that lacks ballots
        votes, _ = store.load(Counts if serves(Counts, needs) else Ballots, rows=rows)
        if "features" in needs:
            votes = votes.with_public(features=public_features(run, store, rows))
    elif kind is Moments:
        votes = Votes.from_voters(load_voters(run), public_features(run, store, rows))
    elif kind is Scores:  # of all samples, from which voters learn
        bare = (
            not store.has_features()
            and run.inputs_of(first_stage(run)).settings.get("data") is None
        )
        # without features each sample is a direction of its own
        public = (
            np.eye(len(samples)) if bare else public_features(run, store, np.arange(len(samples)))
        )
        votes = Votes.from_voters(ScoreVoters.of(store.scores(), public), public[rows])
    else:
        total = require_given(total, "`silos`, the folder through which the silos of this run send")
        votes = Votes.from_total(total, len(ids), manifest.shape)
    if predictions is None:
        return votes
    return votes.with_public(predictions=read_predictions(predictions, ids, manifest.label_names))


def public_features(run: Run, store: VoteStore, rows: IntArray) -> FloatArray:
    """Return the public features ``[Q, F]`` of ``rows`` ``[Q]`` of the votes, flattened.

    They come with the votes, or from the public records of the run.

    Raises ``ValueError`` as `voted_data` does.
    """
    brought = store.features(rows)
    if brought is not None:
        return brought
    manifest = store.manifest()
    public = voted_data(run, manifest).records(Role.PUBLIC)
    samples = public.features[rows_of(np.array(manifest.ids)[rows], public.ids)]
    return np.asarray(samples, dtype=np.float64).reshape(len(rows), -1)


def voted_data(run: Run, manifest: VoteManifest) -> DataSource:
    """Return the data of a run.

    Raises ``ValueError`` if its public records are not those that were voted on.
    """
    data = load_data(run)
    # the ids of imported votes were compared with the ids of the records
    if first_stage(run) is not VOTES_IMPORT:
        require(
            data.fingerprint(Role.PUBLIC) == manifest.made_by.get("data"),
            f"the public records that the teachers of {run.root} voted on",
        )
    return data


def require_features(data: Json | None, name: str, kind: type[Votes], num_samples: int) -> None:
    """Raise ``ValueError`` if votes bring no features and no ``data`` of public records has them.

    Scores of few samples need none: each sample is then a direction of its own.

    Args:
        data: the description of the public records; None without.
        name: the aggregator that needs features.
        kind: the kind of the votes.
        num_samples: the number of samples that were voted on.
    """
    give = "features [N, F] in the votes, or a data.yaml with their public records"
    needed = f"{give}, which {name} needs; another `aggregator` may need none"
    if kind is Scores:
        needed = f"{give}, or scores of {MOST_SAMPLES} samples at most"
    few = kind is Scores and num_samples <= MOST_SAMPLES
    require(few or data is not None, needed, features=None, samples=num_samples)


def read_predictions(path: Path, wanted: StrArray, label_names: Sequence[str]) -> FloatArray:
    """Return a student's probabilities ``[Q, C]`` for the samples with the ids ``wanted`` ``[Q]``.

    Raises:
        ValueError: if the file, a sample or a label is missing.
    """
    require_predictions(path)
    arrays = read_arrays(path, ("ids", "probabilities", "label_names"), unread=("labels",))
    names = [str(name) for name in arrays["label_names"]]
    require(
        names == list(label_names),
        f"`predictions` of the labels {', '.join(label_names)}",
        label_names=names,
    )
    return np.asarray(
        arrays["probabilities"][rows_of(wanted, as_text(arrays["ids"]))], dtype=np.float64
    )


def require_predictions(path: Path) -> None:
    """Raise ``ValueError`` if a file of predictions is missing."""
    require(
        path.is_file(), "`predictions`, a file that `pate student predict` wrote", missing=str(path)
    )
