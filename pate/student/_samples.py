"""The input of a student, from pictures of any size, texts or arrays of features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.sparse import issparse

from pate._files import Json
from pate._validation import Float32Array, UInt8Array, as_float32, require, require_given
from pate.data._images import Pictures, center_crop, read_image
from pate.data._number_table import ColumnEncoding, NumberColumns
from pate.data._records import Features
from pate.data._text_table import EmbeddedTexts, HashedTexts, hashed
from pate.data.features._sentences import SentenceFeatures

if TYPE_CHECKING:
    from torch import Tensor

Samples: TypeAlias = "NDArray[Any] | Tensor | Sequence[Any]"
"""An array ``[N, ...]``, or a list of pictures, paths, texts or arrays of features."""
Kind = Literal["pictures", "texts", "sentences", "features"]

_MEANINGS = {
    "features": "as trained",
    "texts": "words, hashed by HashingVectorizer of scikit-learn",
    "sentences": "embeddings by the model in sentences.zip",
}


@dataclass(frozen=True)
class InputFormat:
    """The format of a student's raw samples.

    Attributes:
        kind: ``pictures``, ``texts`` of hashed words, ``sentences`` that a model embeds, or
            ``features`` of any other kind.
        shape: shape of one sample: of a picture ``(3, size, size)``, of a text the number of its
            features.
        columns: the columns of a table that the features were, if they were any.
        model: the model of sentences.
    """

    kind: Kind
    shape: tuple[int, ...]
    columns: ColumnEncoding | None = None
    model: SentenceFeatures | None = field(default=None, repr=False)

    @classmethod
    def of(cls, raw: Features) -> Self:
        """Return the format of the raw features of a source."""
        if isinstance(raw, EmbeddedTexts):
            return cls("sentences", raw.shape[1:], model=raw.sentences)
        rest: Kind = "texts" if isinstance(raw, HashedTexts) else "features"
        columns = raw.encoding if isinstance(raw, NumberColumns) else None
        return cls("pictures" if isinstance(raw, Pictures) else rest, tuple(raw.shape[1:]), columns)

    @classmethod
    def from_dict(cls, content: Json) -> Self:
        """Return the format that `to_dict` described."""
        names = tuple(content.get("columns", ()))
        levels = {name: tuple(each) for name, each in content.get("levels", {}).items()}
        identity = content.get("identity", "id")
        fills, texts = content.get("fills", {}), content.get("texts", {})
        columns = ColumnEncoding(names, levels, fills, identity, texts)
        return cls(content["kind"], tuple(content["shape"]), columns if names else None)

    def to_dict(self) -> Json:
        """Return the format as plain data, with the meaning of the numbers."""
        if self.kind == "pictures":
            means = (
                "red, green, blue; the central square of a picture, resized bilinearly;"
                " 255 is white"
            )
            return {
                "kind": self.kind,
                "shape": list(self.shape),
                "dtype": "uint8",
                "range": [0, 255],
                "means": means,
            }
        columns: Json = {} if self.model is None else {"model": self.model.identity}
        if self.columns is not None:
            levels = {name: list(each) for name, each in self.columns.levels.items()}
            columns = {"columns": list(self.columns.names), "levels": levels}
            columns |= {"fills": dict(self.columns.fills), "identity": self.columns.identity}
            columns |= {"texts": dict(self.columns.texts)} if self.columns.texts else {}
        numbers = {
            "kind": self.kind,
            "shape": list(self.shape),
            "dtype": "float32",
            "range": None,
            "means": _MEANINGS[self.kind],
        }
        return numbers | columns

    @property
    def size(self) -> int:
        """Height and width of a picture, in pixels."""
        return self.shape[-1]

    def read(self, path: Path) -> UInt8Array:
        """Return the picture in a file as uint8 ``[3, size, size]``.

        Raises ``ValueError`` if it is not readable.
        """
        return read_image(path, self.size)

    def encoded(self, samples: Any) -> Samples:
        """Return columns, of a DataFrame or a mapping, as an array ``[N, F]``; others as they are.

        Raises ``ValueError`` if a column is missing or malformed, or the student takes no columns.
        """
        if not isinstance(samples, Mapping) and not hasattr(samples, "columns"):
            return samples
        wanted = f"{self.kind} in a list or an array"
        return require_given(self.columns, wanted, samples="columns").encode(samples)

    def batch(self, samples: Samples) -> NDArray[Any]:
        """Return samples as the student takes them: uint8 pictures, or float32, ``[N, *shape]``.

        Args:
            samples: ``[N, *shape]``. Pictures are uint8 or floats in [0, 1]; or uint8 ``[N, height,
                width, 3]`` of any size; or a list of PIL pictures, of paths, or of single arrays
                ``[height, width, 3]`` of any sizes; or texts in a list.

        Raises:
            ValueError: in one line, if they are of another shape, not finite, or not readable.
        """
        rows: Any = samples
        if hasattr(rows, "detach"):
            rows = rows.detach().cpu().numpy()
        elif issparse(rows):
            rows = rows.toarray()
        if self.kind == "pictures":
            return self._pictures(rows)
        are_texts = [isinstance(sample, str) for sample in rows]
        if self.kind in ("texts", "sentences") and (any(are_texts) or not are_texts):
            require(all(are_texts), "texts", types=_types(rows))
            if self.model is not None:
                return self.model.transform([*rows])
            return hashed([*rows], self.shape[0]).toarray()
        features = _numbers(rows)
        self._require_shape(features)
        others = int((~np.isfinite(features)).sum())
        require(not others, "finite features", numbers_that_are_not=others)
        return features

    def _pictures(self, samples: NDArray[Any] | Sequence[Any]) -> NDArray[Any]:
        if not isinstance(samples, np.ndarray):
            pictures = [self._picture(sample) for sample in samples]
            return np.stack(pictures) if pictures else np.empty((0, *self.shape), dtype=np.uint8)
        if samples.dtype == np.uint8:
            if samples.ndim == 4 and samples.shape[1:] != self.shape and samples.shape[-1] == 3:
                return self._pictures([*samples])
            self._require_shape(samples)
            return samples
        pixels = _numbers(samples)
        self._require_shape(pixels)
        low, high = (float(pixels.min()), float(pixels.max())) if pixels.size else (0.0, 0.0)
        require(
            low >= 0 and high <= 1, "uint8 pictures, or floats in [0, 1]", minimum=low, maximum=high
        )
        return pixels

    def _picture(self, picture: Any) -> UInt8Array:
        if isinstance(picture, str | Path):
            return self.read(Path(picture))
        if isinstance(picture, Image.Image):
            return center_crop(picture.convert("RGB"), self.size)
        array = np.asarray(picture)
        if array.dtype == np.uint8 and array.shape == self.shape:
            return array
        require(
            array.dtype == np.uint8 and array.ndim == 3 and array.shape[-1] == 3,
            "PIL pictures, paths or uint8 [height, width, 3]",
            shape=array.shape,
            dtype=str(array.dtype),
        )
        return center_crop(Image.fromarray(array), self.size)

    def _require_shape(self, samples: NDArray[Any]) -> None:
        require(
            samples.shape[1:] == self.shape and samples.ndim > 0,
            f"{self.kind} of shape [N, {', '.join(map(str, self.shape))}]",
            shape=list(samples.shape),
        )


def _numbers(samples: NDArray[Any] | Sequence[Any]) -> Float32Array:
    try:
        return as_float32(samples)
    except (TypeError, ValueError) as error:
        if isinstance(error.__context__, ArithmeticError):
            raise
        # numpy's words would show an entry, which may be somebody's text
        wanted = "an array of numbers, with samples of one shape"
        raise ValueError(f"Expected {wanted}, got types={_types(samples)}") from None


def _types(samples: Iterable[Any]) -> list[str]:
    return sorted({type(sample).__name__ for sample in samples})
