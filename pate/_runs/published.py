"""The files in the public folder of a run, which its owner may publish."""

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
    *(f"public/frontier/frontier.{kind}" for kind in ("csv", "png", "txt")),
    "public/frontier/variants.png",
    *(
        f"{_STUDENT}/{name}"
        for name in ("*.ckpt", "linear.safetensors", METRICS, "predictions.npz")
    ),
    *(f"{_STUDENT}/{name}/*" for name in (MODEL, "logs")),
)
"""Patterns of the files that commands leave in ``public/``; a star stands for folders, too."""


def published_files(run: Run) -> list[Path]:
    """Return the files in the run's public folder, relative to the run's folder, sorted by name."""
    paths = (path for path in run.public.rglob("*") if path.is_symlink() or not path.is_dir())
    return sorted((path.relative_to(run.root) for path in paths), key=Path.as_posix)


def unexpected_public_files(run: Run) -> Iterator[str]:
    """Yield an error for each file in the run's public folder that must not be published."""
    private = _private_files(run)
    secret = [] if (key := read_key(run)) is None else [key, key.hex().encode()]
    for name in published_files(run):
        path = run.root / name
        if path.is_symlink() or not path.is_file():
            yield f"Expected plain files in {run.public}, got {name}. Delete it"
        elif not _is_expected(name):
            yield f"Expected what `pate` leaves in {run.public}, got {name}. Move it elsewhere"
        elif original := private.get(path.stat().st_size, {}).get(digest(path)):
            yield (
                f"Expected nothing private in {run.public}, got {name}, a copy of {original}."
                " Delete it"
            )
        else:
            content = path.read_bytes()
            if any(form in content for form in secret):
                yield (
                    f"Expected nothing private in {run.public}, got {name} with the run's key."
                    " Delete it"
                )
            elif path.parent.name == "frontier" and content.startswith(b"PRIVATE"):
                yield (
                    f"Expected a frontier of simulated votes in {path.parent}, got {name} of real"
                    " ones. Delete it"
                )


def _is_expected(name: Path) -> bool:
    hidden = any(part.startswith(".") or part.startswith("PRIVATE") for part in name.parts)
    return not hidden and any(fnmatch(name.as_posix(), pattern) for pattern in _PUBLISHED)


def _private_files(run: Run) -> dict[int, dict[str, str]]:
    """Return the names of private files by size and digest, without settings and empty files.

    Only files as large as a public one are read.
    """
    files: dict[int, dict[str, str]] = {}
    sizes = {(run.root / name).lstat().st_size for name in published_files(run)} - {0}
    for path in sorted(run.private.rglob("*")):
        size = path.stat().st_size if path.is_file() and path.suffix != ".yaml" else 0
        if size in sizes:
            files.setdefault(size, {})[digest(path)] = path.relative_to(run.root).as_posix()
    return files
