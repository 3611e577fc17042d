"""What a run publishes as one archive, for others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile, ZipInfo

from pate._data_file import load_ledger, require_data_config
from pate._files.locks import locked
from pate._files.writing import atomic_write
from pate._release.stating import require_stated
from pate._runs import LABEL, Run
from pate._runs.published import published_files, unexpected_public_files
from pate._validation import require


def pack(root: Path, output: Path) -> None:
    """Write the public folder of a run as one zip archive, the same bytes for the same files.

    Args:
        root: the run's folder.
        output: the archive.

    Raises:
        ValueError: if there are no labels, they disagree with their statement, or the statement
            with the ledger, or if a file in the folder must not be given away.
    """
    run = replace(Run(root), ledger=load_ledger(root))
    inside = output.resolve().is_relative_to(run.public.resolve())
    require(not inside, f"an archive outside of {run.public}, which it holds", output=str(output))
    with locked(root):
        run.require_finished(LABEL)
        require_data_config(run)  # it names the ledger that the statement is compared with
        require_stated(run)
        for problem in unexpected_public_files(run):
            raise ValueError(problem)
        with atomic_write(output) as file, ZipFile(file, "w") as archive:
            for name in published_files(run):
                # neither times nor modes, in which copies of a run differ
                entry = ZipInfo(name.as_posix())
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, (root / name).read_bytes())
