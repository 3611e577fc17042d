"""A CSV or parquet file of texts and their labels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from pate._files.reading import digest
from pate._validation import Float32Array, IntArray, require_count
from pate.data._checks import UnknownLabels
from pate.data._label_table import TableReading, read_label_table
from pate.data._records import FeatureMap, Features, SparseFeatures
from pate.data._table import Table, TableSource, require_fractions
from pate.data.features._sentences import SentenceFeatures


class TextTable(TableSource):
    """A CSV or parquet file of texts and their labels.

    The file has a line of headings and a line for each text. The column ``text`` holds the text, in
    quotes where it has commas or line breaks, and ``id`` its id, given once and kept for good.
    ``split`` gives its role (``private``, ``public``, ``test``, or 0, 1, 2), ``group`` or
    ``identity`` the person or group of the text; both may be missing. All other columns are labels:
    0 or 1, or -1 and 1.

    Features are counts of words, hashed to a number of columns and divided by their length
    (scikit-learn's ``HashingVectorizer``, with the extra ``sklearn``). There is no vocabulary: one
    that is read off private texts would tell their words. Or features are embeddings by a public
    sentence model, which knows words that mean the same.

    Args:
        path: the file.
        num_features: number of columns, at least 2. Words share one where there are many more.
        sentences: the sentence model, if texts are embedded and no words are hashed.
        labels: names of the columns to learn; or a column that lists names of labels, such as
            ``sports;news``, and the names to learn: ``{topics: [sports, news]}``; None for all
            columns that are left. Columns that are not named may hold anything.
        public_fraction: share of public texts, if there is no ``split`` and a hash of the group, or
            else of the id, is to decide. There is no default: public texts are seen by anybody.
        test_fraction: share of test texts, likewise.
        features: a public map of the features; None for the features themselves.
        permanent_ids: whether numbers from 0 or 1 on, in the order of the rows, are permanent ids,
            as in a register: a row number changes when an earlier record is removed.
        names: the file's own names of `id`, `text`, `split` and `group`, such as ``{text: message}``.
        unknown_labels: ``nan`` if labels may be unknown, with an empty cell or ``nan``; -1 if -1 is
            unknown, too. None if all must be known.
        budgets: the personal budgets of private records in a column ``budget``, ascending epsilons
            such as ``[0.5, 1, 2]``, known without a look at the records. None if there is no such
            column.
    """

    def __init__(
        self,
        path: Path,
        *,
        num_features: int = 2048,
        sentences: SentenceFeatures | None = None,
        labels: list[str] | dict[str, list[str]] | None = None,
        public_fraction: float | None = None,
        test_fraction: float = 0.1,
        features: FeatureMap | None = None,
        permanent_ids: bool = False,
        names: dict[str, str] | None = None,
        unknown_labels: UnknownLabels | None = None,
        budgets: list[float] | None = None,
    ) -> None:
        super().__init__(
            path,
            None,
            features,
            permanent_ids=permanent_ids,
            unknown_labels=unknown_labels,
            budgets=budgets,
        )
        require_fractions(public_fraction, test_fraction)
        require_count(2, num_features=num_features)
        self.num_features = num_features
        self.sentences = sentences
        self._reading = TableReading(
            labels=labels,
            fractions=(public_fraction, test_fraction),
            names=names or {},
            unknown_labels=unknown_labels,
            budgets=self.budgets,
        )

    def _read_table(self) -> Table:
        return read_label_table(
            self.path,
            self._reading,
            lambda columns, _: features_of_texts(
                columns.values["text"], self.num_features, self.sentences, apart=True
            ),
            identity="id",
            content=("text",),
        )


class HashedTexts(SparseFeatures):
    """Counts of hashed words, of which each text has few."""


class EmbeddedTexts(Features):
    """Embeddings of texts, computed when they are first read.

    Args:
        texts: the texts ``[N]``.
        sentences: the model.
        apart: whether rows that are selected, such as a role's, are embedded apart.
    """

    def __init__(
        self, texts: Sequence[str], sentences: SentenceFeatures, *, apart: bool = False
    ) -> None:
        self._texts, self.sentences, self._apart = texts, sentences, apart

    @cached_property
    def _values(self) -> Float32Array:
        return self.sentences.transform(self._texts)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self._texts), self.sentences.width)

    def __getitem__(self, index: Any, /) -> Float32Array:
        return np.array(self._values[index])

    def select(self, rows: IntArray) -> Self:
        some = type(self)([self._texts[row] for row in rows], self.sentences)
        if not self._apart:
            some._values = self._values[rows]
        return some

    def identity(self) -> str:
        return digest(self.sentences.identity, *self._texts)


def features_of_texts(
    texts: Sequence[str],
    num_features: int,
    sentences: SentenceFeatures | None,
    *,
    apart: bool = False,
) -> Features:
    """Return the features of texts: counts of hashed words, or `EmbeddedTexts`."""
    return (
        HashedTexts(hashed(texts, num_features))
        if sentences is None
        else EmbeddedTexts(texts, sentences, apart=apart)
    )


def hashed(texts: Sequence[str], num_features: int) -> Any:
    """Return the features ``[N, num_features]`` of texts as a sparse float32 matrix, row by row.

    Raises ``ValueError`` without scikit-learn.
    """
    try:
        from sklearn.feature_extraction.text import HashingVectorizer
    except ImportError:
        raise ValueError(
            "Expected scikit-learn, which hashes words: pip install 'pate[sklearn]'"
        ) from None
    return HashingVectorizer(n_features=num_features, dtype=np.float32).transform(texts)
