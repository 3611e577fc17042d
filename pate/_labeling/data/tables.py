"""CSV or parquet files as sources: of texts, or of numbers and categories, with their labels.

Words are hashed, or a sentence model embeds texts. Columns of numbers, categories and texts have an
encoding that public records decide, and that leaves with the student.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import combinations, compress
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from pate._core.files.reading import digest
from pate._core.validation import (
    LARGEST,
    BoolArray,
    Faults,
    Float32Array,
    FloatArray,
    IntArray,
    as_float32,
    require,
    require_count,
    require_distinct,
)
from pate._labeling.data.label_table import (
    UTF_8,
    Columns,
    LabelColumns,
    TableReading,
    as_cell,
    as_level,
    as_number,
    counts_rows,
    is_gap,
    read_label_table,
)
from pate._labeling.data.records import (
    ArrayFeatures,
    FeatureMap,
    Features,
    UnknownLabels,
)
from pate._labeling.data.sentences import SentenceFeatures
from pate._labeling.data.source import Table, TableSource


class LabeledTable(TableSource):
    """A source of one CSV or parquet file with labels.

    Args:
        path: the file.
        reading: the settings of its columns.
        features: a public map of the features.
        facts: as of `TableSource`.
    """

    def __init__(
        self, path: Path, reading: TableReading, features: FeatureMap | None, **facts: bool
    ) -> None:
        super().__init__(path, None, features, unknown_labels=reading.unknown, **facts)
        self._reading, self.grouping = reading, reading.grouping


class TextTable(LabeledTable):
    """A CSV or parquet file of texts and their labels.

    The file has a line of headings and a line for each text. The column ``text`` holds the text, in
    quotes where it has commas or line breaks, and ``id`` its id, given once and kept for good.
    ``split`` gives its role (``private``, ``public``, ``test``, or 0, 1, 2), ``group`` the person
    or group of the text. Both may be missing. All other columns are labels: 0 or 1, or -1 and 1.

    Features are counts of words, hashed to a number of columns and divided by their length
    (scikit-learn's ``HashingVectorizer``, with the extra ``sklearn``). There is no vocabulary: one
    that is read off private texts would tell their words. Or features are embeddings by a public
    sentence model, which knows words that mean the same.

    Args:
        path: the file.
        num_features: number of columns, at least 2. Words share one where there are many more.
        sentences: the sentence model, if texts are embedded and no words are hashed.
        labels: names of the columns to learn; or each column with its coding, ``{gout: {Yes: 1, No:
            0, "?": null}}``, where null is unknown; or a column that lists labels, such as
            ``sports;news`` or ``[1, 0]``, and their names: ``{topics: [sports, news]}``. None for
            all columns that are left. Columns that are not named may hold anything.
        public_fraction: share of public texts, if there is no ``split`` and a hash of the group, or
            else of the id, is to decide. There is no default: public texts are seen by anyone.
        test_fraction: share of test texts, likewise, a tenth if None; with a ``split`` that names
            none, the share of the public ones that become test texts by the same hash.
        features: a public map of the features. None for the features themselves.
        permanent_ids: whether numbers from 0 or 1 on, in the order of the rows, are permanent ids,
            as in a register: a row number changes when an earlier record is removed.
        names: the file's own names of `id`, `text`, `split` and `group`, such as
            ``{text: message}``.
        unknown_labels: ``nan`` if labels may be unknown, with an empty cell or ``nan``; -1 if -1 is
            unknown, too. None if all must be known.
        encoding: the encoding of a CSV file.
        copies: whether public texts may be private ones, too, which nothing protects then.
        shifted: whether public ones may differ from private ones in place and scale.

    Raises:
        ValueError: on a setting out of range. Reading raises it on all faults of the file at once,
            with a line for each column.
    """

    def __init__(
        self,
        path: Path,
        *,
        num_features: int = 2048,
        sentences: SentenceFeatures | None = None,
        labels: LabelColumns | None = None,
        public_fraction: float | None = None,
        test_fraction: float | None = None,
        features: FeatureMap | None = None,
        permanent_ids: bool = False,
        names: dict[str, str | None] | None = None,
        unknown_labels: UnknownLabels | None = None,
        encoding: str = UTF_8,
        copies: bool = False,
        shifted: bool = False,
    ) -> None:
        reading = TableReading(
            labels=labels,
            fractions=(public_fraction, test_fraction),
            names=names or {},
            unknown_labels=unknown_labels,
            encoding=encoding,
        )
        super().__init__(
            path, reading, features, permanent_ids=permanent_ids, copies=copies, shifted=shifted
        )
        require_count(2, num_features=num_features)
        self.num_features = num_features
        self.sentences = sentences

    def _read_table(self) -> Table:
        def made(columns: Columns, _: BoolArray) -> Features:
            texts = columns.values[self._reading.column("text") or "text"]
            return features_of_texts(texts, self.num_features, self.sentences, apart=True)

        return read_label_table(self.path, self._reading, made, special=("id", "text"))


class HashedTexts(Features):
    """Counts of hashed words. Zeros are not stored, and rows become dense when they are read.

    Args:
        values: ``[N, F]``, a sparse float32 matrix of scipy in rows.
    """

    def __init__(self, values: Any) -> None:
        self._values = values

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._values.shape)

    def __getitem__(self, index: Any, /) -> Float32Array:
        rows = np.asarray(index)
        dense: Float32Array = self._values[rows.ravel()].toarray()
        return dense.reshape(*rows.shape, -1)

    def select(self, rows: IntArray) -> Self:
        return type(self)(self._values[rows])


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

    def contents(self, other: Features) -> Sequence[Hashable]:
        return self._texts if isinstance(other, EmbeddedTexts) else super().contents(other)

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
        else EmbeddedTexts(readable_texts(texts), sentences, apart=apart)
    )


def readable_texts(texts: Iterable[str | None]) -> list[str]:
    """Return texts that any model takes: a missing one is empty, a lone surrogate a question mark.

    A record that holds one must not make a run fail.

    >>> readable_texts(["a" + chr(0xD800), None])
    ['a?', '']
    """
    return [("" if text is None else text).encode(errors="replace").decode() for text in texts]


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
    words = HashingVectorizer(n_features=num_features, dtype=np.float32)
    return words.transform(readable_texts(texts))


class NumberTable(LabeledTable):
    """A CSV or parquet file of numbers, categories and labels.

    The file has a line of headings and a line for each record. The column ``id`` holds the record's
    id, given once and kept for good. ``split`` gives its role (``private``, ``public``, ``test``,
    or 0, 1, 2), ``group`` the person or group of the record. Both may be missing. The columns that
    ``labels`` names are 0 or 1, or -1 and 1, unless it codes them. All others are features: finite
    numbers, categories or texts; one that counts the rows must be named. The encoding of features
    is a function of these arguments and of public records, and leaves with the student.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "mine.csv"
    >>> rows = ["id,split,age,gout", "ann,private,54,1", "ben,public,38,0", "cem,test,61,1"]
    >>> with path.open("w") as file:
    ...     print(*rows, sep=chr(10), file=file)
    >>> NumberTable(path, labels=["gout"]).load(Role.PUBLIC).features[:]
    array([[38.]], dtype=float32)

    Args:
        path: the file.
        labels: names of the columns to learn; or each column with its coding, ``{gout: {Yes: 1, No:
            0, "?": null}}``, where null is unknown; or a column that lists labels, such as
            ``sports;news`` or ``[1, 0]``, and their names: ``{topics: [sports, news]}``.
        columns: names of the features. None for all columns that are left.
        categories: the levels of each column of categories, or ``public`` for those that public
            records have: levels that only private records have would reveal them. A level becomes a
            column of 0 and 1. Any other value, or none, is 0 in all of them.
        fill: the number in place of a missing one (empty, or ``NA``, ``nan``, ``null``, ``?``), for
            each column that may have gaps, or ``public`` for the median of the public records, in
            all columns. None (the default) refuses gaps.
        texts: the number of hashed columns, at least 2, of each column of texts: counts of its
            words as in `TextTable`, without a vocabulary. A missing text has no words.
        formats: how the numbers of a column are written: ``decimal_comma`` (1.234,5),
            ``thousands_comma`` (1,234.5), each with a sign of a currency or without, ``percent``
            (12%), or as dates, which become days since 2000: ``iso_date`` (2024-01-31 10:00, with a
            time zone or in UTC), or the pattern of another way, such as ``%d.%m.%Y``.
        gaps: further texts or numbers in place of a missing one, such as ``n.d.`` or -99.
        public_fraction: share of public records, if there is no ``split`` and a hash of the group,
            or else of the id, is to decide. There is no default: public records are seen by
            anyone.
        test_fraction: share of test records, likewise, a tenth if None; with a ``split`` that names
            none, the share of the public ones that become test records by the same hash.
        features: a public map of the features.
        permanent_ids: whether numbers from 0 or 1 on, in the order of the rows, are permanent ids,
            as in a register: a row number changes when an earlier record is removed.
        names: the file's own names of `id`, `split` and `group`, such as ``{id: patient_no}``.
        unknown_labels: ``nan`` if labels may be unknown, with an empty cell or ``nan``; -1 if -1 is
            unknown, too. None if all must be known.
        encoding: the encoding of a CSV file.
        copies: whether public records may be private ones, too, which nothing protects then.
        shifted: whether public ones may differ from private ones in place and scale.

    Raises:
        ValueError: on a setting out of range. Reading raises it on all faults of the file at once,
            with a line for each column.
    """

    def __init__(
        self,
        path: Path,
        *,
        labels: LabelColumns,
        columns: list[str] | None = None,
        categories: dict[str, list[str | int] | Literal["public"]] | None = None,
        fill: dict[str, float] | Literal["public"] | None = None,
        texts: dict[str, int] | None = None,
        formats: dict[str, str] | None = None,
        gaps: list[str | float] | None = None,
        public_fraction: float | None = None,
        test_fraction: float | None = None,
        features: FeatureMap | None = None,
        permanent_ids: bool = False,
        names: dict[str, str | None] | None = None,
        unknown_labels: UnknownLabels | None = None,
        encoding: str = UTF_8,
        copies: bool = False,
        shifted: bool = False,
    ) -> None:
        reading = TableReading(
            labels=labels,
            fractions=(public_fraction, test_fraction),
            names=names or {},
            unknown_labels=unknown_labels,
            encoding=encoding,
        )
        super().__init__(
            path, reading, features, permanent_ids=permanent_ids, copies=copies, shifted=shifted
        )
        both = sorted(set(labels) & set(columns or ()))
        require(not both, "columns that are labels or features", both=both)
        self._columns = columns
        self._categories, self._fill, self._texts = categories or {}, fill or {}, texts or {}
        require_count(2, **{f"texts[{name}]": number for name, number in self._texts.items()})
        self._formats, self._gaps = formats or {}, tuple(as_level(str(sign)) for sign in gaps or ())
        for name, form in self._formats.items():
            known = form in FORMATS or "%" in form
            require(known, f"formats among {', '.join(FORMATS)}, or as %d.%m.%Y", **{name: form})
        kinds = [{*kind} for kind in (self._texts, self._categories, self._formats)]
        both = sorted({name for a, b in combinations(kinds, 2) for name in a & b})
        require(not both, "columns that are texts, categories or numbers", both=both)

    def _read_table(self) -> Table:
        return read_label_table(
            self.path, self._reading, self._features, special=("id",), content=self._columns or ()
        )

    def _features(self, columns: Columns, public: BoolArray) -> NumberColumns:
        identity = self._reading.column("id") or "id"
        names = self._columns
        if names is None:
            names = [name for name in columns.values if name != identity]
            counters = [
                name for name in names if counts_rows([*compress(columns.values[name], public)])
            ]
            require(not counters, "`columns`, since some count the rows", counters=counters)
        require(names, f"a column of numbers in {self.path}")
        for what in ("categories", "fill", "texts", "formats"):
            given = getattr(self, f"_{what}")
            unknown = [] if given == "public" else sorted(set(given) - set(names))
            require(not unknown, f"`{what}` of features in {self.path}", unknown=unknown)
        written = ColumnEncoding(
            tuple(names),
            identity=identity,
            texts=self._texts,
            formats=self._formats,
            gaps=self._gaps,
            file_encoding=self._reading.encoding,
        )
        encoding = fit_encoding(written, columns, self._categories, self._fill, public)
        return NumberColumns(encode_table(encoding, columns), encoding)


@dataclass(frozen=True)
class ColumnEncoding:
    """The numbers that the columns of a table become.

    >>> encoding = ColumnEncoding(("age", "city"), {"city": ("Bern", "Rome")}, {"age": 40.0})
    >>> encoding.headings
    ('age', 'city=Bern', 'city=Rome')

    Attributes:
        names: the columns.
        levels: the levels of each column of categories, each a column of 0 and 1.
        fills: the numbers in place of missing ones.
        texts: the numbers of hashed columns of columns of texts.
        identity: the column of the ids.
        formats: the formats of columns of numbers, as `number_of` knows them.
        gaps: further texts in place of a missing number.
        file_encoding: the encoding of CSV files.
    """

    names: tuple[str, ...]
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    fills: Mapping[str, float] = field(default_factory=dict)
    identity: str = "id"
    texts: Mapping[str, int] = field(default_factory=dict)
    formats: Mapping[str, str] = field(default_factory=dict)
    gaps: tuple[str, ...] = ()
    file_encoding: str = UTF_8

    @property
    def headings(self) -> tuple[str, ...]:
        """Names of the numbers, in their order."""
        return tuple(
            heading
            for name in self.names
            for heading in (
                [f"{name}={level}" for level in self.levels[name]]
                if name in self.levels
                else [f"{name}#{place}" for place in range(self.texts.get(name, 0))] or [name]
            )
        )

    def describe(self, values: FloatArray | Float32Array) -> Iterator[tuple[str, str]]:
        """Yield each column of a record and its value as text. Columns of texts are left out.

        >>> encoding = ColumnEncoding(("age", "city"), {"city": ("Bern", "Rome")})
        >>> dict(encoding.describe(np.array([8362.5, 0, 1])))
        {'age': '8,362.5', 'city': 'Rome'}

        Args:
            values: the numbers ``[F]`` of the record.
        """
        numbers = dict(zip(self.headings, values.tolist(), strict=True))
        for name in self.names:
            if name in self.levels:
                given = [level for level in self.levels[name] if numbers[f"{name}={level}"]]
                yield name, given[0] if given else "none of the levels"
            elif self.formats.get(name) == "iso_date" or "%" in self.formats.get(name, ""):
                yield name, f"{_EPOCH + timedelta(days=numbers[name]):%Y-%m-%d}"
            elif name not in self.texts:
                yield name, f"{numbers[name]:,.6g}"

    def encode(self, columns: Any) -> Float32Array:
        """Return the numbers ``[N, F]`` of columns.

        >>> ColumnEncoding(("age", "sex"), {"sex": ("f", "m")}).encode({"age": [3], "sex": ["m"]})
        array([[3., 0., 1.]], dtype=float32)

        Args:
            columns: a DataFrame of pandas or polars, or a mapping of columns by name.

        Raises:
            ValueError: if a column is missing or holds no numbers, with a line for each.
        """
        missing = [name for name in self.names if name not in columns]
        require(not missing, "a table with the columns of training", missing=missing)
        values = {name: [as_cell(value) for value in columns[name]] for name in self.names}
        sizes = {name: len(column) for name, column in values.items()}
        require(len(set(sizes.values())) == 1, "columns of one length", **sizes)
        return encode_table(self, Columns("the table", values, [*range(sizes[self.names[0]])]))


class NumberColumns(ArrayFeatures):
    """Features with names.

    Args:
        values: ``[N, F]`` float32.
        encoding: of the columns that they were.
    """

    def __init__(self, values: Float32Array, encoding: ColumnEncoding) -> None:
        super().__init__(values)
        self.encoding = encoding

    def select(self, rows: IntArray) -> NumberColumns:
        return NumberColumns(self.values[rows], self.encoding)


FORMATS = ("decimal_comma", "thousands_comma", "percent", "iso_date")
"""Formats of numbers that have a name."""
_CURRENCIES = "$€£¥ "
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


def number_of(text: str, form: str | None = None) -> float | None:
    """Return the number that a text is in a format, or None. A date is days since 2000.

    >>> number_of("1.234,5", "decimal_comma"), number_of("12%", "percent")
    (1234.5, 0.12)
    >>> number_of("2000-01-02T12:00:00+00:00", "iso_date"), number_of("3.1.2000", "%d.%m.%Y")
    (1.5, 2.0)

    Args:
        text: the text.
        form: one of `FORMATS`, the pattern of a date, or None for numbers as Python writes them.
    """
    if form is None:
        return as_number(text)
    if form == "percent":
        number = as_number(text.removesuffix("%").strip()) if text.endswith("%") else None
        return None if number is None else number / 100
    if form in ("decimal_comma", "thousands_comma"):
        point, group = (",", ".") if form == "decimal_comma" else (".", ",")
        whole = rf"[-+]?(\d{{1,3}}(\{group}\d{{3}})+|\d+)(\{point}\d*)?"
        written = text.strip(_CURRENCIES)
        plain = written.replace(group, "").replace(point, ".")
        return as_number(plain) if re.fullmatch(whole, written) else None
    try:
        date = datetime.fromisoformat(text) if form == "iso_date" else datetime.strptime(text, form)
    except ValueError:
        return None
    return ((date if date.tzinfo else date.replace(tzinfo=UTC)) - _EPOCH) / timedelta(days=1)


def fit_encoding(
    written: ColumnEncoding,
    table: Columns,
    categories: Mapping[str, Sequence[str | int] | Literal["public"]],
    fill: Mapping[str, float] | Literal["public"],
    public: BoolArray,
) -> ColumnEncoding:
    """Return the encoding of columns by public records, ``[N]``, and by what is declared.

    Raises ``ValueError`` if a level occurs twice.
    """
    levels: dict[str, tuple[str, ...]] = {}
    for name, given in categories.items():
        texts = compress(table.values[name], public)
        found = sorted({as_level(text) for text in texts if not is_no_level(text)})
        levels[name] = tuple(found if given == "public" else map(as_level, map(str, given)))
        require_distinct(f"levels of `{name}`", levels[name])
    if fill != "public":
        return replace(written, levels=levels, fills=dict(fill))
    medians = {}
    for name in (name for name in written.names if name not in categories):
        texts, form = compress(table.values[name], public), written.formats.get(name)
        numbers = [number_of(text, form) for text in texts if not is_gap(text, written.gaps)]
        if known := [number for number in numbers if number is not None]:
            # the mean of two of the largest numbers would be infinite
            medians[name] = float(np.median(np.clip(known, -LARGEST, LARGEST)))
    return replace(written, levels=levels, fills=medians)


def is_no_level(text: str) -> bool:
    """Return whether a text stands for a missing category. The word ``none`` is a level."""
    return is_gap(text) and text.lower() != "none"


def encode_table(encoding: ColumnEncoding, table: Columns) -> Float32Array:
    """Return the numbers ``[N, F]`` of a table.

    Raises ``ValueError`` if a value is no finite number, with a line for each such column.
    """
    faults, parts = Faults(), [np.empty((len(table.lines), 0), dtype=np.float32)]
    for name in encoding.names:
        with faults.gather():
            parts.append(_numbers(encoding, table, name))
    faults.refuse()
    return np.concatenate(parts, axis=1)


def _numbers(encoding: ColumnEncoding, table: Columns, name: str) -> Float32Array:
    texts = table.values[name]
    if name in encoding.levels:
        known = {level: place for place, level in enumerate(encoding.levels[name])}
        codes = np.array([known.get(as_level(text), -1) for text in texts], dtype=np.int64)
        return (codes[:, None] == np.arange(len(known))).astype(np.float32)
    if name in encoding.texts:
        return hashed(
            ["" if is_gap(text) else text for text in texts], encoding.texts[name]
        ).toarray()
    if name not in encoding.formats and not encoding.gaps:
        with suppress(ValueError):  # the column is more than plain numbers
            plain = np.array([*map(float, texts)], dtype=np.float64)
            if np.isfinite(plain).all():
                return as_float32(plain)[:, None]
    fill, form = encoding.fills.get(name), encoding.formats.get(name)
    numbers = [fill if is_gap(text, encoding.gaps) else number_of(text, form) for text in texts]
    what = f"a finite number ({_OTHERS})" if form is None else f"the format {form}"
    table.require(name, [number is not None for number in numbers], what)
    return as_float32(np.array(numbers, dtype=np.float64))[:, None]


_OTHERS = (
    "gaps need `fill`, words `categories` or `texts`, other ways to write numbers and dates"
    " `formats`, and signs of missing numbers `gaps`"
)


def unknown_levels(encoding: ColumnEncoding, table: Columns) -> list[str]:
    """Return a line for each column of categories with values that are none of its levels."""
    others = {
        name: [
            text
            for text in table.values[name]
            if not is_no_level(text) and as_level(text) not in levels
        ]
        for name, levels in encoding.levels.items()
    }
    return [
        f"{len(words)} values of `{name}` are no level of it, such as {words[0]!r}"
        for name, words in others.items()
        if words
    ]
