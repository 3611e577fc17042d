"""What an aggregator knows of its queries beside the votes: a student's predictions, and their public features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from pate.data.checks import as_text
from pate.data.records import Role
from pate.data_file import load_data
from pate.runs import VOTES_IMPORT, Json, Run, first_stage
from pate.runs.files import read_arrays
from pate.typing import FloatArray, StrArray
from pate.validation import expect
from pate.votes import rows_of


def read_predictions(path: Path, wanted: StrArray, label_names: Sequence[str]) -> FloatArray:
    """Return a student's probabilities ``[Q, C]`` for the samples with the ids ``wanted`` ``[Q]``.

    Raises:
        ValueError: if the file, a sample or a label is missing.
    """
    expect_predictions(path)
    arrays = read_arrays(path, ("ids", "probabilities", "label_names"), ("labels",))
    found = [str(name) for name in arrays["label_names"]]
    expect(found == list(label_names), f"--predictions of the labels {', '.join(label_names)}", label_names=found)
    return np.asarray(arrays["probabilities"][rows_of(wanted, as_text(arrays["ids"]))], dtype=np.float64)


def expect_predictions(path: Path) -> None:
    """Raise ``ValueError`` if a file of predictions is missing."""
    expect(path.is_file(), "--predictions, a file that `pate student predict` wrote", missing=str(path))


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
        expect(same, f"the public records that the teachers of {run.root} voted on", found="others")
    public = data.records(Role.PUBLIC)
    rows = public.features[rows_of(wanted, public.ids)]
    return np.asarray(rows, dtype=np.float64).reshape(len(wanted), -1)


def expect_features(data: Json | None, *, needed_by: str) -> None:
    """Raise ``ValueError`` unless votes that bring no features come with the ``data`` of their public records."""
    give = "features [N, F] in the votes, or --config data.yaml with their public records"
    expect(data is not None, f"{give}, which {needed_by} needs; another --aggregator may need none", features=None)
