"""Everything that determines labels, except the noise: votes, and what an aggregator knows beside them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from pate._data_file import load_data, public_digest
from pate._files.arrays import read_arrays
from pate._files.hashing import code_version, digest
from pate._files.json import Json
from pate._release.label_settings import LabelSettings
from pate._runs import VOTES_IMPORT, Inputs, Run, first_stage
from pate._runs.released import Queries
from pate._settings import encode, encode_fields
from pate._typing import FloatArray, StrArray
from pate._validation import require
from pate._votes import Ballots, NoisyTotal, Votes, drawn_rows, rows_of
from pate._votes.store import VoteManifest, VoteStore
from pate._votes.voter_store import fingerprint_of_voters, load_voters
from pate._votes.voters import ScoreVoters
from pate.aggregators._base import Aggregator
from pate.data._checks import as_text
from pate.data._records import Role

MOST_SAMPLES = 4_096
"""Of scores without features: the directions are found in time of their third power."""


def label_inputs(run: Run, settings: LabelSettings, store: VoteStore) -> Inputs:
    """Return everything that determines labels, except the noise. PRIVATE.

    The manifest holds the digests of all votes, which were compared with their files. Raises
    ``ValueError`` if moments are not those of the records that it speaks of.
    """
    manifest = store.manifest()
    if manifest.ballots == "moments":
        same = fingerprint_of_voters(run) == manifest.made_by.get("teachers")
        again = "`pate teachers vote --overwrite` takes those that are there"
        require(same, f"the teachers of {run.root} that have voted: {again}", teachers="others")
    digests = {"votes": digest(store.manifest_file)}
    if settings.predictions is not None:
        require_predictions(settings.predictions)
        digests["predictions"] = digest(settings.predictions)
    if "features" in settings.mechanism.needs and not store.has_features():
        described = run.begun(first_stage(run)).settings.get("data")
        require_features(described, settings.mechanism, manifest.ballots, len(manifest.ids))
        if described is not None:
            digests["public"] = public_digest(load_data(run))
    return Inputs(encode_fields(settings), digests)


def queries_on(manifest: VoteManifest, settings: LabelSettings) -> Queries:
    """Return the queries of a release: samples of ``manifest`` in their public order, and what is to answer them."""
    ids = np.array(manifest.ids)
    return Queries(
        ids=ids[drawn_rows(len(ids), settings.num_queries or len(ids), seed=settings.query_seed)],
        label_names=tuple(manifest.label_names),
        num_teachers=manifest.num_teachers,
        delta=float(settings.delta),
        aggregator=encode(Aggregator, settings.mechanism),
    )


def load_votes(
    run: Run,
    settings: LabelSettings,
    store: VoteStore,
    queries: Queries,
    total: NoisyTotal | None = None,
) -> Votes:
    """Return the votes on the queries, with what the aggregator needs; of silos that mask them, their ``total``."""
    aggregator, manifest = settings.mechanism, store.manifest()
    if manifest.ballots == "masked":
        require(
            total is not None,
            "--silos, the folder through which the silos of this run send",
            silos=None,
        )
        assert total is not None
        return Votes.from_total(total, len(queries.ids), manifest.shape)
    rows = rows_of(queries.ids, np.array(manifest.ids))
    if manifest.ballots == "moments":
        return Votes.from_voters(
            load_voters(run), read_features(run, queries.ids, manifest.made_by)
        )
    if manifest.ballots == "scores":
        public = store.features()
        if public is None and run.begun(first_stage(run)).settings.get("data") is None:
            public = np.eye(len(manifest.ids))
        elif public is None:
            public = read_features(run, np.array(manifest.ids), manifest.made_by)
        return Votes.from_voters(ScoreVoters.of(store.scores(), public), public[rows])
    # before features, which do not help an aggregator that lacks ballots
    votes, _ = store.load(rows=rows, ballots=not aggregator.needs.isdisjoint({"ballots", "voters"}))
    predictions = features = None
    if settings.predictions is not None:
        predictions = read_predictions(settings.predictions, queries.ids, queries.label_names)
    if "features" in aggregator.needs:
        features = store.features(rows)
        if features is None:
            features = read_features(run, queries.ids, manifest.made_by)
    votes = replace(votes, predictions=predictions, features=features)
    return votes.with_voters() if "voters" in aggregator.needs else votes


def digest_of(aggregator: Aggregator, inputs: Inputs, votes: Votes) -> str:
    """Return a digest of everything that determines the answers, except the noise, and of the budget. PRIVATE.

    Other code may turn the same noise into other answers, so it makes another release. Voters
    follow from votes, which the inputs name, and from features.
    """
    arrays = (
        b"" if array is None else array.tobytes() for array in (votes.predictions, votes.features)
    )
    total = () if votes.total is None else (votes.total.identity,)
    return digest(
        inputs.digest, code_version(), np.__version__, *arrays, *total, *code_of(aggregator)
    )


def code_of(aggregator: Aggregator) -> Iterator[Path]:
    """Yield the files of the classes of an aggregator and of those within it, which may be another package's."""
    file = getattr(sys.modules[type(aggregator).__module__], "__file__", None)
    if file is not None:
        yield Path(file)
    for field in fields(aggregator):
        value = getattr(aggregator, field.name)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Aggregator):
                yield from code_of(item)


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
        f"--predictions of the labels {', '.join(label_names)}",
        label_names=names,
    )
    return np.asarray(
        arrays["probabilities"][rows_of(wanted, as_text(arrays["ids"]))], dtype=np.float64
    )


def require_predictions(path: Path) -> None:
    """Raise ``ValueError`` if a file of predictions is missing."""
    require(
        path.is_file(), "--predictions, a file that `pate student predict` wrote", missing=str(path)
    )


def read_features(run: Run, wanted: StrArray, made_by: Mapping[str, str]) -> FloatArray:
    """Return the public features ``[Q, F]`` of the samples with the ids ``wanted`` ``[Q]``, flattened.

    Args:
        run: the run, of whose public records they are read.
        wanted: ``[Q]``, ids.
        made_by: digests of what the votes were made from.

    Raises:
        ValueError: if their public records are not those that were voted on.
    """
    data = load_data(run)
    # votes from elsewhere name samples by their ids, which were compared with those of the records
    if first_stage(run) is not VOTES_IMPORT:
        same = data.fingerprint(Role.PUBLIC) == made_by.get("data")
        require(
            same, f"the public records that the teachers of {run.root} voted on", records="others"
        )
    public = data.records(Role.PUBLIC)
    rows = public.features[rows_of(wanted, public.ids)]
    return np.asarray(rows, dtype=np.float64).reshape(len(wanted), -1)


def require_features(
    data: Json | None, aggregator: Aggregator, ballots: Ballots, num_samples: int
) -> None:
    """Raise ``ValueError`` unless votes that bring no features come with the ``data`` of their public records.

    Scores of few samples need none: each sample is then a direction of its own.
    """
    give = "features [N, F] in the votes, or --config data.yaml with their public records"
    needed = f"{give}, which {type(aggregator).__name__} needs; another --aggregator may need none"
    if ballots == "scores":
        needed = f"{give}, or scores of {MOST_SAMPLES} samples at most"
    few = ballots == "scores" and num_samples <= MOST_SAMPLES
    require(few or data is not None, needed, features=None, samples=num_samples)
