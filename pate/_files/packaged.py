"""Files of public weights that come in packages."""

from importlib.util import find_spec
from pathlib import Path


def packaged_file(name: str, *suffixes: str) -> Path | None:
    """Return the one file with a suffix in an installed package, which is not imported, or None."""
    spec = find_spec(name) if name.isidentifier() else None
    files = [
        file
        for place in (spec and spec.submodule_search_locations) or ()
        for file in Path(place).rglob("*")
        if file.suffix in suffixes
    ]
    return files[0] if len(files) == 1 else None
