"""A folder of pictures and a comma-separated table of their labels."""

from __future__ import annotations

from pathlib import Path
from posixpath import normpath

from pate.data._checks import UnknownLabels
from pate.data._images import ImageFiles
from pate.data._label_table import TableReading, read_label_table
from pate.data._source import expand_path
from pate.data._table import PictureFolder, Table, require_fractions
from pate.data.features import FeatureMap


class PictureTable(PictureFolder):
    """A folder of pictures with a CSV file of their labels.

    The file has a line of headings and a line for each picture. The column ``file`` names the
    picture, in the folder or below it, and so is its id: it stays when other pictures come and go.
    ``split`` gives its role (``private``, ``public``, ``test``, or 0, 1, 2), ``group`` or
    ``identity`` the person or group of the picture; both may be missing. All other columns are
    labels: 0 or 1, or -1 and 1.

    Args:
        root: the folder.
        table: the CSV file, in the folder unless its path is absolute.
        size: pictures are cut to their central square and resized to this many pixels.
        labels: names of the columns to learn; or a column that lists names of labels, such as
            ``sports;news``, and the names to learn: ``{topics: [sports, news]}``; None for all
            columns that are left. Columns that are not named may hold anything.
        public_fraction: share of public pictures, if there is no ``split`` and a hash of the group,
            or else of the file's name, is to decide. There is no default: public pictures are seen
            by anybody.
        test_fraction: share of test pictures, likewise.
        features: a public map of the pictures.
        names: the file's own names of `file`, `split` and `group`, such as ``{file: picture}``.
        unknown_labels: ``nan`` if labels may be unknown, with an empty cell or ``nan``; -1 if -1 is
            unknown, too. None if all must be known.
    """

    def __init__(
        self,
        root: Path,
        *,
        table: str = "labels.csv",
        size: int = 64,
        labels: list[str] | dict[str, list[str]] | None = None,
        public_fraction: float | None = None,
        test_fraction: float = 0.1,
        features: FeatureMap | None = None,
        names: dict[str, str] | None = None,
        unknown_labels: UnknownLabels | None = None,
    ) -> None:
        super().__init__(root, size, None, features, unknown_labels)
        require_fractions(public_fraction, test_fraction)
        self.path = self.root / expand_path(table)
        self._reading = TableReading(
            labels=labels,
            fractions=(public_fraction, test_fraction),
            names=names or {},
            unknown_labels=unknown_labels,
        )

    def _read_table(self) -> Table:
        return read_label_table(
            self.path,
            self._reading,
            lambda columns, _: ImageFiles(
                [self.root / name for name in columns.values["file"]], self.size, keep=False
            ),
            identity="file",
            content=("file",),
            normal=normpath,  # `./a.jpg` and `a.jpg` are one picture
        )
