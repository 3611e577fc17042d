"""Embeddings of texts by a public sentence model, kept on disk.

`kept_features` computes features once, and reads them from a file afterwards. A frozen network
keeps its features in the same way.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path, PurePath
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any
from weakref import finalize
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import numpy as np

from pate._core.files.reading import (
    LARGE,
    Stream,
    digest,
    map_array,
    opened_archive,
    packaged_file,
    read_bytes,
    read_text,
)
from pate._core.files.writing import lease, write_text
from pate._core.settings import RecordsInitArgs
from pate._core.validation import Float32Array, IntArray, as_float32, require, stage_bar

# steps between two marks of how far it is
_MARK = 20


def kept_features(
    target: Path, num: int, step: int, compute: Callable[[IntArray], Float32Array]
) -> Float32Array:
    """Return features ``[num, ...]``, memory-mapped from a file, computed first if it is missing.

    They may be PRIVATE: the folder is made with mode 0700. A computation that was killed goes on
    where the features end.

    Args:
        target: the file, named by all that the features depend on.
        num: number of records.
        step: records at a time.
        compute: returns the features of consecutive rows.
    """
    if target.is_file():  # in a folder that may be readable only
        return np.asanyarray(map_array(target))
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # another command that computes the same features is waited for
    with lease(target.with_suffix(".lock")):
        if not target.is_file():
            partial, mark = target.with_suffix(".partial"), target.with_suffix(".rows")
            done = int(read_text(mark)) if mark.is_file() and partial.is_file() else 0
            mapped = map_array(partial, "r+") if done else None
            # a bar without figures: how many private records there are is nothing to print
            with stage_bar(num, "features", unit="record", initial=done, counted=False) as bar:
                for count, start in enumerate(range(done, max(num, 1), step), 1):
                    rows = np.arange(start, min(start + step, num))
                    found = compute(rows)
                    if mapped is None:
                        mapped = np.lib.format.open_memmap(
                            partial, mode="w+", dtype=np.float32, shape=(num, *found.shape[1:])
                        )
                        partial.chmod(0o600)
                        if sys.platform != "darwin":  # a full disk would kill who writes to a map
                            with partial.open("ab") as file:
                                os.posix_fallocate(file.fileno(), 0, partial.stat().st_size)
                    mapped[rows] = found
                    if count % _MARK == 0:
                        mapped.flush()
                        write_text(mark, str(int(rows[-1]) + 1))
                    bar.update(len(rows))
            if mapped is not None:
                mapped.flush()
            mark.unlink(missing_ok=True)  # first: it must not outlive the rows that it counts
            partial.rename(target)
    return map_array(target)


_FILES = ("*.json", "*.txt", "*.model", "*.safetensors")
"""Files of a sentence model: no code, and no weights in pickles. No others are loaded."""
_STEP = 64
_MOST_MEMBERS = 1000  # files of a model
_BLOCK = 1 << 20
_HEAVY = ("_files", "_model")


class SentenceFeatures(RecordsInitArgs):
    """Embeddings of texts by a public sentence model, through sentence-transformers.

    It is a public map: nothing is fitted, so it needs no budget. Its weights must be public, and
    trained without the private texts. Each text is embedded by itself, so that none changes the
    rounding of another. Code of others that a model names is not run.

    Args:
        name: the model's name at the hub, such as ``sentence-transformers/all-MiniLM-L6-v2``, which
            is downloaded once; or an installed package that holds a model in a ``.zip``, such as
            ``all_minilm_l6_v2``.
        folder: the model's folder, or a ``.zip`` of it, in place of a name.
        cache: a folder for the embeddings, which are then computed once. Those of private texts are
            PRIVATE: its mode is 0700.

    Raises:
        ValueError: in one line, unless there is one of ``name`` and ``folder``; later, if the model
            or the extra ``texts`` is not to be had.
    """

    def __init__(
        self,
        name: str | None = None,
        folder: Path | str | None = None,
        cache: Path | str | None = None,
    ) -> None:
        require(
            (name is None) != (folder is None), "a `name` or a `folder`", name=name, folder=folder
        )
        self.name = name
        self.folder = None if folder is None else Path(folder).expanduser()
        self.cache = None if cache is None else Path(cache)

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes that a worker needs: it reads the model itself."""
        return {name: part for name, part in vars(self).items() if name not in _HEAVY}

    @cached_property
    def identity(self) -> str:
        """A digest of the model's files: other weights have other embeddings."""
        return digest(*(part for item in self._files.items() for part in item))

    @cached_property
    def width(self) -> int:
        """The number of features."""
        return int(self.transform([""]).shape[1])

    def transform(self, texts: Sequence[str]) -> Float32Array:
        """Return the embeddings ``[N, F]`` of texts ``[N]``."""

        def compute(rows: Any) -> Float32Array:
            # in a batch, a text would be padded to the length of others
            some = [texts[row] for row in rows]
            return as_float32(self._model.encode(some, batch_size=1, show_progress_bar=False))

        if self.cache is None:
            return compute(range(len(texts)))
        return kept_features(
            self.cache / f"{digest(self.identity, *texts)}.npy", len(texts), _STEP, compute
        )

    def pack(self, path: Path) -> None:
        """Write the model's files to a ``.zip``, the same bytes each time."""
        with ZipFile(path, "w") as packed:
            for name, file in self._files.items():
                packed.writestr(ZipInfo(name), read_bytes(file, LARGE))

    @cached_property
    def _files(self) -> dict[str, Path]:
        """The model's files by name, in order: links in a folder that has no others."""
        source, root = self._place, Path(mkdtemp())
        finalize(self, rmtree, root, ignore_errors=True)
        if source.is_file():
            with opened_archive(source, f"a sentence model in {source}") as packed:
                packed.extractall(root, [name for name in packed.namelist() if _is_known(name)])
        else:
            for file in filter(_is_known, source.rglob("*")):
                link = root / file.relative_to(source)
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(file.resolve())
        files = {
            file.relative_to(root).as_posix(): file for file in filter(_is_known, root.rglob("*"))
        }
        require("modules.json" in files, "a sentence model, with modules.json", folder=str(source))
        return dict(sorted(files.items()))

    @property
    def _place(self) -> Path:
        """The folder or ``.zip`` of the model, downloaded if it is not here."""
        if self.folder is not None:
            return self.folder
        assert self.name is not None
        if packaged := packaged_file(self.name, ".zip"):
            return packaged
        try:
            from huggingface_hub import snapshot_download

            return Path(snapshot_download(self.name, allow_patterns=[*_FILES]))
        except ImportError:
            raise ValueError(_INSTALL) from None
        # a hub that is out of reach raises errors of many classes
        except Exception as error:
            raise ValueError(
                "Expected a sentence model that can be downloaded, or its `folder` where no hub is"
                f" in reach, got name={self.name!r} ({' '.join(str(error).split())[:200]})"
            ) from None

    @cached_property
    def _model(self) -> Any:
        root = self._files["modules.json"].parent
        try:
            from sentence_transformers import SentenceTransformer

            return SentenceTransformer(
                str(root),
                local_files_only=True,
                trust_remote_code=False,
                model_kwargs={"use_safetensors": True},
            )
        except ImportError:
            raise ValueError(_INSTALL) from None
        # files that do not fit raise errors of many classes
        except Exception as error:
            raise ValueError(
                f"Expected a sentence model in {self.folder or self.name}, got"
                f" {' '.join(str(error).split())[:200]}"
            ) from None


def packed_identity(path: Path) -> str:
    """Return the `SentenceFeatures.identity` of the model that `SentenceFeatures.pack` wrote.

    Nothing is unpacked: members are stored as they are, so that the file is as large as they are.

    Raises:
        ValueError: if another program wrote the file.
    """
    what = "a sentence model that pate packed"
    with opened_archive(path, what) as packed:
        members = packed.infolist()
        names = [member.filename for member in members]
        plain = all(member.compress_type == ZIP_STORED for member in members)
        fits = sum(member.file_size for member in members) <= path.stat().st_size
        require(
            plain and fits and len(names) <= _MOST_MEMBERS and names == sorted({*names}),
            f"{what}: at most {_MOST_MEMBERS} files in order, without compression",
            path=str(path),
        )
        parts: list[str | Stream] = []
        for member in members:
            blocks = iter(partial(packed.open(member).read, _BLOCK), b"")
            parts += [member.filename, Stream(member.file_size, blocks)]
        return digest(*parts)


def _is_known(file: Path | str) -> bool:
    return any(PurePath(file).match(kind) for kind in _FILES)


_INSTALL = "Expected sentence-transformers, which embeds texts: pip install 'pate[texts]'"
