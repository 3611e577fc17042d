"""The version of the package, in a module that imports nothing of it, so that all others may.

Between releases it names the commit: that of a checkout, or the one that an installed package was
built from.
"""

import os  # which the interpreter has imported: a command imports nothing before it can be stopped

RELEASE = "0.5.0.dev0"
"""The number of a release, or of the next one with ``.dev0``."""


def _read(*parts: str) -> str:
    """Return the text of a file, empty where there is none."""
    path = os.path.join(*parts)
    if not os.path.isfile(path):
        return ""
    with open(path, encoding="utf-8") as file:
        return file.read().strip()


def _commit(root: str) -> str:
    """Return the commit of a checkout, empty where a folder is none."""
    git = os.path.join(root, ".git")
    if not _read(root, "pyproject.toml"):
        return ""
    # another working tree of a repository has a file, and shares what lies elsewhere
    git = os.path.join(root, _read(git).removeprefix("gitdir: ") or ".git")
    common = os.path.join(git, _read(git, "commondir"))
    head = _read(git, "HEAD")
    if not head.startswith("ref: "):
        return head
    name = head.removeprefix("ref: ")
    packed = _read(common, "packed-refs").splitlines()
    kept = (line.split()[0] for line in packed if line.endswith(f" {name}"))
    return _read(common, name) or next(kept, "")


def _built() -> str:
    """Return the version that an installed package was built with."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("pate")
    except PackageNotFoundError:
        return ""


def _version(root: str) -> str:
    """Return the version of the package in a folder."""
    if "dev" not in RELEASE:
        return RELEASE
    if commit := _commit(root):
        return f"{RELEASE}+g{commit[:8]}"
    built = _built()
    return built if built.startswith(f"{RELEASE}+") else RELEASE


__version__ = _version(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
