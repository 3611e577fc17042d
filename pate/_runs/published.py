"""What lies in the public folder of a run, which its owner may give away."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from pate._files.hashing import digest
from pate._runs.key import read_key
from pate._runs.run import Run
from pate._runs.stage import DISCLOSURE, LABEL, METRICS, MODEL, REPORT, STUDENT

_STUDENT = STUDENT.outputs[0].as_posix()
_PUBLISHED = (
    *(path.as_posix() for path in (LABEL.config, STUDENT.config, *LABEL.outputs, REPORT)),
    *(f"{DISCLOSURE.as_posix()}/{name}" for name in ("README.md", "registry.yaml")),
    *(
        f"public/frontier/{name}"
        for name in ("frontier.csv", "frontier.png", "frontier.txt", "variants.png")
    ),
    *(
        f"{_STUDENT}/{name}"
        for name in (
            "*.ckpt",
            "linear.safetensors",
            METRICS,
            "predictions.npz",
            f"{MODEL}/*",
            "logs/*",
        )
    ),
)
"""Patterns of the files that commands leave in ``public/``, in which a star stands for folders, too."""


def published_files(run: Run) -> list[Path]:
    """Return the files in the run's public folder, relative to the run's, in their names' order."""
    paths = (path for path in run.public.rglob("*") if path.is_symlink() or not path.is_dir())
    return sorted((path.relative_to(run.root) for path in paths), key=Path.as_posix)


def unexpected_public_files(run: Run) -> Iterator[str]:
    """Yield what is wrong with each file in the run's public folder that must not be given away."""
    private = _private_files(run)
    secret = [] if (key := read_key(run)) is None else [key, key.hex().encode()]
    for name in published_files(run):
        path = run.root / name
        if path.is_symlink() or not path.is_file():
            yield f"Expected plain files in {run.public}, got {name}. Delete it"
        elif not _is_expected(name):
            yield f"Expected what `pate` leaves in {run.public}, got {name}. Move it elsewhere"
        elif original := private.get(path.stat().st_size, {}).get(digest(path)):
            yield f"Expected nothing private in {run.public}, got {name}, a copy of {original}. Delete it"
        else:
            content = path.read_bytes()
            if any(form in content for form in secret):
                yield f"Expected nothing private in {run.public}, got {name} with the run's key. Delete it"
            elif path.parent.name == "frontier" and content.startswith(b"PRIVATE"):
                yield f"Expected a frontier of simulated votes in {path.parent}, got {name} of real ones. Delete it"


def _is_expected(name: Path) -> bool:
    hidden = any(part.startswith(".") or part.startswith("PRIVATE") for part in name.parts)
    return not hidden and any(fnmatch(name.as_posix(), pattern) for pattern in _PUBLISHED)


def _private_files(run: Run) -> dict[int, dict[str, str]]:
    """Return the names of private files by size and digest, apart from those that hold settings or nothing."""
    files: dict[int, dict[str, str]] = {}
    sizes = {(run.root / name).lstat().st_size for name in published_files(run)}
    for path in sorted(run.private.rglob("*")):
        if (
            path.is_file()
            and path.suffix != ".yaml"
            and (size := path.stat().st_size) in sizes - {0}
        ):
            files.setdefault(size, {})[digest(path)] = path.relative_to(run.root).as_posix()
    return files
