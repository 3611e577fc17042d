"""The place of a ledger: one for the same private data, under any of their paths."""

import filecmp
import os
from pathlib import Path

from pate._validation import require

_IN_FOLDER, _BESIDE = "ledger.sqlite", ".ledger.sqlite"
# endings of files that lie next to data of the same name
_NO_DATA = (".yaml", ".yml", ".json", ".md", ".py", ".log")


def one_ledger(place: Path) -> Path:
    """Return the ledger of the private data for which ``place`` is the default. Writes nothing.

    ``ledger.sqlite`` counts all files of its folder, and ``x.ledger.sqlite`` the files ``x.*``,
    with hard links and copies of them in the same folder. A place of any other name stays as it is.

    Raises:
        ValueError: if another ledger there counts the same records, or may count them.
    """
    in_folder = place.with_name(_IN_FOLDER)
    if place == in_folder:
        _require_folder_of_one_ledger(place)
        return place
    if not place.name.endswith(_BESIDE):
        return place
    entries = _entries(place.parent)
    others = [path for path in _beside_files(entries) if path != place]
    ledgers = [path for path in (place, in_folder) if path.exists()]
    ledgers += [
        path
        for path in others
        if any(
            filecmp.cmp(one, other, shallow=False)
            for one in _files_of(path, entries)
            for other in _files_of(place, entries)
        )
    ]
    require(
        len(ledgers) < 2,
        "one ledger of the same private data; move the others away, or name the one to pay"
        " into by `ledger`",
        ledgers=" and ".join(map(str, ledgers)),
    )
    if in_folder not in ledgers:
        # a file that was renamed has left its ledger behind
        left = [
            str(path)
            for path in others
            if all(file.suffix in _NO_DATA for file in _files_of(path, entries))
        ]
        require(
            not left,
            f"a ledger next to its data; if these are now named as {place} would be, rename it,"
            " else move it away or name a ledger by `ledger`",
            without_data=" and ".join(left),
        )
    return ledgers[0] if ledgers else place


def is_ledger_of(ledger: Path, place: Path) -> bool:
    """Whether ``ledger``, and no other there, counts the data with default ledger ``place``."""
    try:
        return one_ledger(place).resolve() == ledger.resolve()
    except ValueError:
        return False


def _require_folder_of_one_ledger(place: Path) -> None:
    """Raise ``ValueError`` if other ledgers may count files in the folder of ``place``."""
    entries = _entries(place.parent)
    others = _beside_files(entries)
    require(
        not others,
        f"{place} to count all files of its folder; move the other ledger there if it is the"
        " only one, or name one by `ledger`",
        other=" and ".join(map(str, others)),
    )
    links = [Path(entry) for entry in entries if entry.is_symlink() and entry.is_file()]
    elsewhere = [str(link) for link in links if link.resolve().parent != place.parent.resolve()]
    require(
        not elsewhere,
        f"files of its own in {place.parent}, because a ledger elsewhere may count them; name"
        " one by `ledger`",
        links=", ".join(elsewhere[:3]),
    )


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def _beside_files(entries: list[os.DirEntry[str]]) -> list[Path]:
    return [Path(entry) for entry in entries if entry.name.endswith(_BESIDE)]


def _files_of(ledger: Path, entries: list[os.DirEntry[str]]) -> list[Path]:
    stem = ledger.name.removesuffix(_BESIDE)
    return [path for entry in entries if (path := Path(entry)).stem == stem and entry.is_file()]
