"""The public files of a run as one archive."""

from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile, ZipInfo

from pate._data_file import load_ledger, require_data_config
from pate._files import atomic_write, locked
from pate._release.statements import require_newest, require_stated
from pate._runs import LABEL, Run
from pate._runs.released import published_files, unexpected_public_files
from pate._validation import require


def pack(root: Path, output: Path) -> None:
    """Write the public folder of a run as one zip archive, with equal bytes for equal files.

    Args:
        root: the run's folder.
        output: the archive.

    Raises:
        ValueError: if labels are missing or disagree with their statement, the statement disagrees
            with the ledger, or a file in the folder must not be published.
    """
    run = replace(Run(root), ledger=load_ledger(root))
    inside = output.resolve().is_relative_to(run.public.resolve())
    require(not inside, f"an archive outside of {run.public}, which it holds", output=str(output))
    with locked(root):
        run.require_finished(LABEL)
        require_data_config(run)  # it names the ledger that the statement is compared with
        require_newest(require_stated(run))
        for problem in unexpected_public_files(run):
            raise ValueError(problem)
        with atomic_write(output) as file, ZipFile(file, "w") as archive:
            for name in published_files(run):
                # without times and modes, which differ between copies of a run
                entry = ZipInfo(name.as_posix())
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, (root / name).read_bytes())
