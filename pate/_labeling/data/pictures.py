"""Pictures in files, read when they are needed, and folders of them as sources.

A folder has a table of labels: in CelebA's format, or separated by commas. At the end
a public map: how much of each of a few kinds of patches is in each region of a picture.
"""

from __future__ import annotations

import errno
import os
import warnings
from abc import abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod
from os.path import abspath, isfile, join
from pathlib import Path
from posixpath import normpath
from stat import S_ISREG
from typing import Any, Self

import numpy as np
from joblib import Parallel, cpu_count, delayed
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps
from scipy.sparse import csr_array

from pate._core.accounting.ledger import ledger_in
from pate._core.files.reading import (
    LARGE,
    Stream,
    code_version,
    digest,
    opened_picture,
    read_bytes,
    read_lines,
)
from pate._core.validation import (
    BoolArray,
    Float32Array,
    IntArray,
    UInt8Array,
    expecting,
    require,
    require_count,
    require_distinct,
    require_given,
)
from pate._labeling.data.label_table import (
    UTF_8,
    Columns,
    LabelColumns,
    TableReading,
    read_label_table,
)
from pate._labeling.data.records import (
    FeatureMap,
    Features,
    Records,
    Role,
    UnknownLabels,
    check_labels,
    map_by_rows,
    select_labels,
    values_of,
)
from pate._labeling.data.sentences import kept_features
from pate._labeling.data.source import Table, TableSource, expand_path

# rows in one part of the digest that names a file of features
_ROWS = 4096
# Pictures of a role that take less than this when decoded are read once and kept.
_KEEP_BYTES = 2 * 2**30
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM", "JPEG2000")
"""Formats of pictures, by Pillow's names.

A file is one of these whatever its name says: others may start a program.
"""
_EIGHT_BITS = frozenset(("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV"))
_WHITE = {"I;16": 65535.0, "I;16L": 65535.0, "I;16B": 65535.0, "I;16N": 65535.0, "F": 1.0}
"""The value of white in modes of Pillow that it does not convert to 8 bits by that value."""
_OF_THE_FILE = (
    None,
    errno.EINVAL,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.ENXIO,  # of a socket, or a device that is not there
    errno.ENODEV,
)
"""Numbers of system errors that follow from a file, and not from the machine."""
_STRIP = 256  # rows of gray that are turned into 8 bits at once
_READING = 2
"""Raised where the same file is read as another picture: runs begun before are refused."""


class Pictures(Features):
    """Pictures read one by one when they are needed, as float32 ``[N, 3, size, size]`` in [0, 1].

    Args:
        num: the number of pictures.
        size: pictures are cut to their central square and resized to this many pixels.
        keep: whether pictures that were read are kept in memory for the next time, if they are not
            too many.
        private: whether a picture that cannot be read is a black one, because no private record
            may make a run fail; an error otherwise.
    """

    def __init__(self, num: int, size: int, *, keep: bool, private: bool = False) -> None:
        self.size, self.private = size, private
        self._kept: UInt8Array | None = None
        self._read: BoolArray = np.zeros(num, dtype=np.bool_)
        if keep and num * 3 * size * size <= _KEEP_BYTES:
            self._kept = np.empty((num, 3, size, size), dtype=np.uint8)

    @abstractmethod
    def picture(self, row: int) -> UInt8Array:
        """Return one picture as uint8 ``[3, size, size]``.

        Raises ``ValueError`` if it is not readable.
        """

    @property
    def shape(self) -> tuple[int, ...]:
        """``(N, 3, size, size)``."""
        return (len(self._read), 3, self.size, self.size)

    def __getitem__(self, index: Any, /) -> Float32Array:
        """Return the pictures ``index``, float32 ``[..., 3, size, size]``."""
        index = np.asarray(index)
        with warnings.catch_warnings():
            if self.private:
                warnings.simplefilter("ignore")  # one would tell of a private record
            if self._kept is None:
                pixels = np.stack([self._pixels(i) for i in index.ravel().tolist()]).reshape(
                    *index.shape, *self.shape[1:]
                )
            else:
                missing = np.unique(index[~self._read[index]])
                if len(missing) and not (self._kept.flags.writeable and self._read.flags.writeable):
                    # a worker maps the arrays of the process that sent them, for reading only
                    self._kept, self._read = self._kept.copy(), self._read.copy()
                for i in missing.tolist():
                    self._kept[i] = self._pixels(i)
                    self._read[i] = True
                pixels = self._kept[index]
        return np.divide(pixels, np.float32(255), dtype=np.float32)

    def _pixels(self, row: int) -> UInt8Array:
        try:
            return self.picture(row)
        except Exception as error:
            if not self.private or _is_of_the_machine(error):
                raise
            return np.zeros(self.shape[1:], dtype=np.uint8)


def _is_of_the_machine(error: BaseException | None) -> bool:
    """Return whether a fault, or one behind it, says nothing of a picture, such as short memory."""
    while error is not None:
        numbered = isinstance(error, OSError) and error.errno not in _OF_THE_FILE
        if numbered or isinstance(error, MemoryError):
            return True
        error = error.__context__
    return False


class ImageFiles(Pictures):
    """Pictures in files.

    Args:
        paths: the files.
        size: pictures are cut to their central square and resized to this many pixels.
        keep: whether pictures that were read are kept in memory for the next time, if they are not
            too many.
        private: whether a picture that cannot be read is a black one.
    """

    def __init__(
        self, paths: Sequence[Path | str], size: int, *, keep: bool = True, private: bool = False
    ) -> None:
        super().__init__(len(paths), size, keep=keep, private=private)
        self.paths = [os.fspath(path) for path in paths]  # texts, which take a fifth of the time

    def picture(self, row: int) -> UInt8Array:
        return read_image(self.paths[row], self.size)

    def select(self, rows: IntArray) -> ImageFiles:
        return ImageFiles([self.paths[row] for row in rows], self.size, private=self.private)

    def once(self) -> ImageFiles:
        return ImageFiles(self.paths, self.size, keep=False, private=self.private)

    def contents(self, other: Features) -> Sequence[Hashable]:
        """Return a digest of each file, or its path where no other one has as many bytes."""
        files = [_regular(path) for path in self.paths]
        theirs = map(_regular, other.paths if isinstance(other, ImageFiles) else ())
        many = Counter(stat.st_size for stat in (*files, *theirs) if stat is not None)
        return [
            path
            if stat is None or many[stat.st_size] == 1
            else _digest_of(abspath(path), stat.st_mtime_ns)
            for path, stat in zip(self.paths, files, strict=True)
        ]

    def identity(self) -> str:
        stats = map(_stat_of, self.paths)  # a private picture may be missing
        files = [
            (path.rpartition("/")[2], stat and stat.st_size, stat and stat.st_mtime_ns)
            for path, stat in zip(self.paths, stats, strict=True)
        ]
        return repr((_READING, files))


def contents_of(features: Features) -> list[str | Stream]:
    """Return the parts that name kept features: their shape, and their identity or their values.

    Files are named by their places and the times of their last changes, too: another file may have
    the same name, size and time of writing.
    """
    num, shape = features.shape[0], repr(features.shape)
    if isinstance(features, ImageFiles):
        stats = zip(features.paths, map(_stat_of, features.paths), strict=True)
        changes = [(abspath(path), stat and stat.st_ctime_ns) for path, stat in stats]
        return [shape, features.identity(), repr((features.private, changes))]
    if (identity := features.identity()) is not None:
        return [shape, identity]
    starts = range(0, num, _ROWS)
    return [shape, *(values_of(features, range(at, min(at + _ROWS, num))) for at in starts)]


@lru_cache(maxsize=1 << 20)
def _digest_of(path: str, changed: int) -> str:
    """Return a digest of a file that was ``changed`` last at a time, read once by a process."""
    return digest(read_bytes(path, LARGE))


def _stat_of(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (OSError, ValueError):  # of a name that no file can have
        return None


def _regular(path: str) -> os.stat_result | None:
    return stat if (stat := _stat_of(path)) is not None and S_ISREG(stat.st_mode) else None


def read_image(path: Path | str, size: int) -> UInt8Array:
    """Read one picture as uint8 ``[3, size, size]``, its central square resized."""
    # the error depends on the format, and on the place where a file ends or was changed
    readable = expecting(
        "a readable picture",
        OSError,
        SyntaxError,
        ValueError,
        Image.DecompressionBombError,
        got=path,
    )
    with readable, opened_picture(path, FORMATS) as image:
        return center_crop(image, size)


def _upright(image: Image.Image) -> Image.Image:
    """Return a picture in RGB of 8 bits, turned as its EXIF orientation says.

    Raises ``ValueError`` on a mode that has no value of white, and values beyond it.
    """
    # Pillow reads 16 bits of PNG and PGM so, too, but also TIFF of 32 bits or with a sign
    mode = "I;16" if image.mode == "I" and image.format in ("PNG", "PPM") else image.mode
    require(
        mode in _EIGHT_BITS or mode in _WHITE,
        "8 bits for each color, 16 bits of gray without a sign, or gray floats",
        mode=mode,
    )
    turned = image.getexif().get(ExifTags.Base.Orientation, 1) != 1
    upright = ImageOps.exif_transpose(image) if turned else image  # a copy takes as long as reading
    if mode in _EIGHT_BITS:
        return upright if upright.mode == "RGB" else upright.convert("RGB")
    white = _WHITE[mode]
    values = np.asarray(upright)
    # of NaN neither holds
    least, most = float(values.min()), float(values.max())
    require(least >= 0 and most <= white, f"gray in [0, {white:g}]", minimum=least, maximum=most)
    shown = np.empty(values.shape, dtype=np.uint8)
    for start in range(0, len(values), _STRIP):
        gray = values[start : start + _STRIP].astype(np.float64)
        shown[start : start + _STRIP] = np.rint(gray * (255 / white))
    return Image.fromarray(shown).convert("RGB")


def center_crop(image: Image.Image, size: int) -> UInt8Array:
    """Return a picture as uint8 ``[3, size, size]``, upright, its central square resized.

    Raises ``ValueError`` if its mode, or a value in it, is not one that is read.
    """
    picture = _upright(image)
    width, height = picture.size
    side = min(width, height)
    if (width, height) != (size, size):
        left, top = (width - side) // 2, (height - side) // 2
        picture = picture.resize(
            (size, size), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side)
        )
    return np.asarray(picture, dtype=np.uint8).transpose(2, 0, 1)


class PictureFolder(TableSource):
    """A folder of pictures with a table of their labels.

    Args:
        root: the folder.
        size: pictures are cut to their central square and resized to this many pixels.
        labels: names of the labels to learn. None for all.
        features: a public map of the pictures.
        unknown_labels: the sign of a label that is unknown. None if all must be known.
        facts: ``copies`` and ``shifted``, as of `TableSource`.
    """

    def __init__(
        self,
        root: Path,
        size: int,
        labels: Sequence[str] | None,
        features: FeatureMap | None,
        unknown_labels: UnknownLabels | None = None,
        **facts: bool,
    ) -> None:
        super().__init__(root, labels, features, unknown_labels=unknown_labels, **facts)
        require_count(8, size=size)
        self.root, self.size = self.path, size
        self._checked: set[Role] = set()  # whose files are there

    @property
    def ledger_path(self) -> Path:
        """A ledger in the folder."""
        return ledger_in(self.root.resolve())

    def load(self, role: Role) -> Records:
        records = super().load(role)
        assert isinstance(records.features, ImageFiles)
        if role is Role.PRIVATE:
            pictures = ImageFiles(records.features.paths, self.size, private=True)
            return replace(records, features=pictures)
        if role not in self._checked:
            absent = [path for path in records.features.paths if not isfile(path)]
            require(not absent, f"a picture for every row of {self.path}", missing=absent[:3])
            self._checked.add(role)
        return records

    def _pictures(self, folder: Path, names: Iterable[str]) -> ImageFiles:
        """Return the pictures in files of a folder.

        Raises ``ValueError`` if two names lead to one file, which would be two records: by a link,
        or where a file system takes upper and lower case for the same. Missing files are found when
        they are read: files of another role may lie elsewhere.
        """
        paths, first = [join(folder, name) for name in names], dict[tuple[int, int], str]()
        for path in paths:
            if (stat := _stat_of(path)) is not None:
                other = first.setdefault((stat.st_dev, stat.st_ino), path)
                require(other is path, "a file of its own for each picture", one_file=(other, path))
        return ImageFiles(paths, self.size, keep=False)


_ATTRIBUTES = "list_attr_celeba"


class CelebA(PictureFolder):
    """A folder in CelebA's format.

    ``img_align_celeba/`` holds the pictures, or a folder of that name in it;
    ``list_attr_celeba.txt`` the attributes (-1/1 or 0/1, with or without its count line), or
    ``list_attr_celeba.csv``, separated by commas and with a heading for the pictures;
    ``list_eval_partition.txt`` or ``.csv`` the roles (0 private, 1 public, 2 test);
    ``identity_CelebA.txt`` or ``.csv``, if there is one, the person on each picture.

    Args:
        root: the folder.
        size: pictures are cut to their central square and resized to this many pixels.
        labels: the attributes to learn; None for all.
        features: a public map of the pictures.
        copies: whether public pictures may be private ones, too, which nothing protects then.

    Raises:
        ValueError: on a ``size`` below 8. Reading raises it if a table, or a public or test
            picture, is missing or damaged.
    """

    grouping = "identity"

    def __init__(
        self,
        root: Path,
        *,
        size: int = 64,
        labels: list[str] | None = None,
        features: FeatureMap | None = None,
        copies: bool = False,
    ) -> None:
        super().__init__(root, size, labels, features, copies=copies)

    def _read_table(self) -> Table:
        names, pictures, values = self._attributes()
        roles, identities = self._roles(), self._find("identity_CelebA")
        _require_all("a partition", pictures, roles)
        groups = None
        if identities is not None:
            persons = _pairs(identities)
            _require_all("an identity", pictures, persons)
            groups = np.array([persons[picture] for picture in pictures])
        columns = select_labels(names, self._wanted, source=self._file(_ATTRIBUTES).name)
        folder = self.root / "img_align_celeba"
        require(folder.is_dir(), "a folder of pictures", path=str(folder))
        if (folder / folder.name).is_dir():  # as some archives are packed
            folder /= folder.name
        return Table(
            features=self._pictures(folder, pictures),
            names=[names[column] for column in columns],
            labels=values[:, columns],
            ids=np.array(pictures),
            split=np.array([roles[picture] for picture in pictures]),
            groups=groups,
        )

    def _attributes(self) -> tuple[list[str], list[str], UInt8Array]:
        """Names of the attributes, names of the pictures, attributes ``[N, A]``."""
        path = self._file(_ATTRIBUTES)
        lines = [*read_lines(path)]
        if lines and lines[0].strip().isdigit():
            lines = lines[1:]
        by_comma = "," if path.suffix == ".csv" else None
        split = (line.split(by_comma) for line in lines if line.strip())
        head, *rows = [[word.strip() for word in row] for row in split] or [[]]
        names = head[1:] if by_comma else head
        require(
            names and rows, f"attribute names and rows in {path}", names=len(names), rows=len(rows)
        )
        other = [" ".join(row)[:80] for row in rows if len(row) != len(names) + 1]
        require(not other, f"{len(names)} values per row of {path.name}", row=other[:1])
        with expecting(f"whole numbers in {path}", ValueError, OverflowError):
            values = np.array([[*map(int, row[1:])] for row in rows], dtype=np.int64)
        require_distinct(f"pictures of {path.name}", (row[0] for row in rows))
        return names, [row[0] for row in rows], check_labels(values, source=path.name, hint="")

    def _roles(self) -> dict[str, int]:
        path = self._file("list_eval_partition")
        # the csv has a line of headings
        roles = {name: int(role) for name, role in _pairs(path).items() if role.isdigit()}
        unknown = sorted(set(roles.values()) - {0, 1, 2})
        require(not unknown, f"partitions 0, 1 or 2 in {path.name}", partitions=unknown)
        return roles

    def _find(self, name: str) -> Path | None:
        """Return the table of a name, with columns separated by commas or spaces, or None."""
        places = (self.root / f"{name}{suffix}" for suffix in (".csv", ".txt"))
        return next((path for path in places if path.is_file()), None)

    def _file(self, name: str) -> Path:
        return require_given(
            self._find(name), f"{name}.txt in the folder, or {name}.csv", root=str(self.root)
        )


def _require_all(what: str, pictures: list[str], known: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` unless each of ``pictures`` is among ``known``."""
    missing = [picture for picture in pictures if picture not in known]
    require(not missing, f"{what} for every picture", missing=missing[:3])


def _pairs(path: Path) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for line in read_lines(path):
        words = line.replace(",", " ").split()
        if words:
            require(len(words) == 2, f"two columns in {path.name}", line=line[:80])
            require(words[0] not in pairs, f"each picture once in {path.name}", twice=words[0])
            pairs[words[0]] = words[1]
    return pairs


class PictureTable(PictureFolder):
    """A folder of pictures with a CSV file of their labels.

    The file has a line of headings and a line for each picture. The column ``file`` names the
    picture, in the folder or below it, and so is its id: it stays when other pictures come and go.
    ``split`` gives its role (``private``, ``public``, ``test``, or 0, 1, 2), ``group`` the person
    or group of the picture. Both may be missing. All other columns are
    labels: 0 or 1, or -1 and 1.

    Args:
        root: the folder.
        table: the CSV file, in the folder unless its path is absolute.
        size: pictures are cut to their central square and resized to this many pixels.
        labels: names of the columns to learn; or each column with its coding, ``{smiles: {Yes: 1,
            No: 0, "?": null}}``, where null is unknown; or a column that lists labels, such as
            ``sports;news`` or ``[1, 0]``, and their names: ``{topics: [sports, news]}``. None for
            all columns that are left. Columns that are not named may hold anything.
        public_fraction: share of public pictures, if there is no ``split`` and a hash of the group,
            or else of the file's name, is to decide. There is no default: public pictures are seen
            by anyone.
        test_fraction: share of test pictures, likewise, a tenth if None; with a ``split`` that
            names none, the share of the public ones that become test pictures by the same hash.
        features: a public map of the pictures.
        names: the file's own names of `file`, `split` and `group`, such as ``{file: picture}``.
        unknown_labels: ``nan`` if labels may be unknown, with an empty cell or ``nan``; -1 if -1 is
            unknown, too. None if all must be known.
        group_pattern: a regular expression for the part of a picture's name that names its person
            or group, such as ``patient[0-9]+``, in place of a column.
        encoding: the encoding of the CSV file.
        copies: whether public pictures may be private ones, too, which nothing protects then.
        shifted: whether public ones may differ from private ones in place and scale.

    Raises:
        ValueError: on a setting out of range. Reading raises it on faults of the CSV file, and on
            public and test pictures that are missing or damaged.
    """

    def __init__(
        self,
        root: Path,
        *,
        table: str = "labels.csv",
        size: int = 64,
        labels: LabelColumns | None = None,
        public_fraction: float | None = None,
        test_fraction: float | None = None,
        features: FeatureMap | None = None,
        names: dict[str, str | None] | None = None,
        unknown_labels: UnknownLabels | None = None,
        group_pattern: str | None = None,
        encoding: str = UTF_8,
        copies: bool = False,
        shifted: bool = False,
    ) -> None:
        reading = TableReading(
            labels=labels,
            fractions=(public_fraction, test_fraction),
            names=names or {},
            unknown_labels=unknown_labels,
            group_pattern=group_pattern,
            encoding=encoding,
        )
        super().__init__(
            root, size, None, features, reading.unknown, copies=copies, shifted=shifted
        )
        self.path, self._reading = self.root / expand_path(table), reading
        self.grouping = reading.grouping

    def _read_table(self) -> Table:
        def made(columns: Columns, _: BoolArray) -> ImageFiles:
            return self._pictures(self.root, columns.values[self._reading.column("file") or "file"])

        # `./a.jpg` and `a.jpg` are one picture
        return read_label_table(self.path, self._reading, made, special=("file",), normal=normpath)


_SAMPLES, _PATCHES = 1000, 40_000  # public pictures and patches that the map is fitted on
_ROUNDS = 12  # of k-means
# a flat patch is not stretched to full contrast: parts of the mean variance of a patch
_FLAT = 0.3
_RIDGE = 0.1  # of whitening, beside a variance of at most 1 (Coates & Ng (2011))
_THRESHOLD = 0.5  # of likeness, whose standard deviation is about 1
_CHANNELS = 4  # at most, where they are the last axis
_SIDE = 16  # patches along a side, about
_SHARE = 512  # pictures that a process maps at once
_ARRAYS = ("index", "regions", "floor", "filters", "offsets")


class PatchFeatures(FeatureMap):
    """Patches of pictures by their likeness to centers, pooled by regions (Coates & Ng (2011)).

    A linear student of pixels knows a stroke only at its place. Here each patch of a picture is
    brought to mean 0 and about variance 1, whitened, and compared with centers that k-means finds
    among patches of public pictures: its inner product with each center of length 1, as far as it
    exceeds a threshold. A patch has a third of the picture's side, at least 3 and at most 8 pixels,
    and there are about sixteen along a side. Likenesses are summed over the patches of a region, so
    ``pool x pool`` regions give ``num_centers pool^2`` features. Put `PublicScaling` behind it.

    Pictures are ``[height, width]``, ``[channels, height, width]`` or, with at most four channels,
    ``[height, width, channels]``, in any unit.

    >>> pictures = np.random.default_rng(0).random((30, 8, 8))
    >>> features = PatchFeatures(num_centers=5, pool=2).fit(ArrayFeatures(pictures))
    >>> features.transform(ArrayFeatures(pictures)).shape
    (30, 20)

    Args:
        num_centers: number of centers.
        pool: number of regions along a side.
        seed: seed of the public patches, and of those that k-means starts with.
        cache: a folder for the features, which are then computed once, on all cores. Those of
            private pictures are PRIVATE: its mode is 0700.
    """

    def __init__(
        self,
        num_centers: int = 128,
        pool: int = 3,
        seed: int = 0,
        cache: Path | None = None,
    ) -> None:
        require_count(1, num_centers=num_centers, pool=pool)
        require_count(0, seed=seed)
        self.num_centers = num_centers
        self.pool = pool
        self.seed = seed
        self.cache = None if cache is None else expand_path(cache)
        self._state: dict[str, NDArray[Any]] = {}

    @property
    def by_rows(self) -> bool:  # type: ignore[override]
        """Whether rows are mapped when they are read: what is kept is kept for a whole role."""
        return self.cache is None

    def fit(self, public: Features) -> PatchFeatures:
        """Fit on public pictures ``[N, ...]``.

        Raises ``ValueError`` unless they are pictures that differ, with enough patches.
        """
        if not self._state:
            index, regions = self._places(tuple(public.shape[1:]))
            # its stream is the same in all versions of numpy
            random = np.random.RandomState(self.seed)
            some = np.sort(random.permutation(public.shape[0])[:_SAMPLES])
            each = -(-_PATCHES // len(some))
            drawn = [random.permutation(index.shape[1])[:each] for _ in some]
            rows = public[some].reshape(len(some), -1)
            patches = np.hstack([row[index[:, at]] for row, at in zip(rows, drawn, strict=True)])
            require(
                self.num_centers <= patches.shape[1],
                f"num_centers <= {patches.shape[1]}, the number of public patches",
                num_centers=self.num_centers,
            )
            patches -= patches.mean(axis=0)
            floor = np.asarray(_FLAT * np.square(patches).mean(), dtype=np.float32)
            require(floor > 0, "public pictures that differ")
            patches /= np.sqrt(np.square(patches).mean(axis=0) + floor)
            values, vectors = np.linalg.eigh(np.cov(patches))
            whitening = vectors / np.sqrt(np.maximum(values, 0) + _RIDGE) @ vectors.T
            mean = patches.mean(axis=1, keepdims=True)
            points = (whitening @ (patches - mean)).T
            start = points[random.permutation(len(points))[: self.num_centers]]
            centers = _means(points, start)
            centers /= np.maximum(np.linalg.norm(centers, axis=1, keepdims=True), 1e-6)
            filters = centers @ whitening
            self._state = {
                "index": index,
                "regions": regions,
                "floor": floor,
                "filters": filters.astype(np.float32),
                "offsets": (filters @ mean)[:, 0].astype(np.float32) + np.float32(_THRESHOLD),
            }
        return self

    def transform(self, features: Features) -> Float32Array:
        """Map pictures ``[N, ...]`` to ``[N, num_centers pool^2]``, each by itself."""
        if self.cache is None:
            return self._mapped(features)
        state = map(np.ndarray.tobytes, self._fitted.values())
        name = digest(code_version(), *state, *contents_of(features))
        # others would be sent to a process as a whole
        jobs = cpu_count() if isinstance(features, ImageFiles) else 1

        def compute(rows: IntArray) -> Float32Array:
            shares = np.split(rows, range(_SHARE, len(rows), _SHARE))
            mapped = delayed(self._mapped)
            return np.concatenate(
                Parallel(n_jobs=jobs)(mapped(features.select(some).once()) for some in shares)
            )

        return kept_features(self.cache / f"{name}.npy", features.shape[0], 16 * _SHARE, compute)

    def _mapped(self, features: Features) -> Float32Array:
        index, regions, floor, filters, offsets = self._fitted.values()
        patches, squares = np.empty((2, *index.shape), dtype=np.float32)
        likeness = np.empty((len(filters), index.shape[1]), dtype=np.float32)

        def pooled(row: Float32Array) -> Float32Array:
            # a mode that checks the range would copy
            np.take(row, index, out=patches, mode="clip")
            np.subtract(patches, patches.mean(axis=0), out=patches)
            np.matmul(filters, patches, out=likeness)
            np.divide(
                likeness,
                np.sqrt(np.square(patches, out=squares).mean(axis=0) + floor),
                out=likeness,
            )
            np.subtract(likeness, offsets[:, None], out=likeness)
            np.maximum(likeness, 0, out=likeness)
            return np.asarray((likeness @ regions).ravel())

        return map_by_rows(features, len(filters) * regions.shape[1], pooled)

    def state(self, shape: Sequence[int]) -> dict[str, NDArray[Any]]:
        """Return what was fitted on records of ``shape``, by the names in a student's file."""
        index = self._fitted["index"]
        require(
            index.min() >= 0 and index.max() < prod(shape),
            f"patches of pictures of shape {tuple(shape)}",
            pixels=(int(index.min()), int(index.max())),
        )
        return dict(self._fitted)

    @classmethod
    def restored(cls, state: Mapping[str, NDArray[Any]]) -> Self:
        """Return the fitted map that `state` described."""
        made = cls(num_centers=len(state["filters"]))
        made._state = {name: state[name] for name in _ARRAYS}
        (pixels, places), (centers, _) = state["index"].shape, state["filters"].shape
        shapes = (pixels, places), (places, state["regions"].shape[1]), (), (centers, pixels)
        found = tuple(made._state[name].shape for name in _ARRAYS)
        require(found == (*shapes, (centers,)), "arrays of patches that fit", shapes=found)
        return made

    @property
    def _fitted(self) -> dict[str, NDArray[Any]]:
        assert self._state, "fit comes before transform"
        return self._state

    def _places(self, shape: tuple[int, ...]) -> tuple[IntArray, Float32Array]:
        """Return the pixels ``[D, P]`` of each patch, and the regions ``[P, R]`` that it is in."""
        require(len(shape) in (2, 3), "pictures, as features for patches", shape=shape)
        pixels = np.arange(prod(shape)).reshape(shape)
        if len(shape) == 2:
            pixels = pixels[None]
        elif shape[2] <= _CHANNELS < shape[0]:
            pixels = np.moveaxis(pixels, 2, 0)
        side = min(pixels.shape[1:])
        size, stride = min(8, max(3, round(side / 3))), max(1, round(side / _SIDE))
        require(size <= side, f"pictures of {size} pixels along a side at least", shape=shape)
        windows = sliding_window_view(pixels, (size, size), axis=(1, 2))[:, ::stride, ::stride]
        _, height, width, *_ = windows.shape
        require(
            self.pool <= min(height, width),
            f"at most {min(height, width)} regions along a side, the number of patches there",
            pool=self.pool,
        )
        rows, columns = (np.arange(n) * self.pool // n for n in (height, width))
        region = (rows[:, None] * self.pool + columns).ravel()
        index = np.moveaxis(windows, (0, 3, 4), (0, 1, 2)).reshape(-1, height * width)
        return index, np.eye(self.pool**2, dtype=np.float32)[region]


def _means(points: NDArray[Any], centers: NDArray[Any]) -> NDArray[Any]:
    """Return the centers ``[K, D]`` of points ``[N, D]`` after rounds of k-means."""
    for _ in range(_ROUNDS):
        nearest = np.argmax(points @ centers.T - np.square(centers).sum(axis=1) / 2, axis=1)
        one = np.ones(len(points))
        members = csr_array(
            (one, (nearest, np.arange(len(points)))), shape=(len(centers), len(points))
        )
        sizes = members.sum(axis=1)[:, None]
        # a center that no point is near stays
        centers = np.where(sizes > 0, members @ points / np.maximum(sizes, 1), centers)
    return centers
