"""The exported student, offline: the samples that it takes, its answers, and its folder. PUBLIC.

Samples are pictures of any size, texts, columns of a table or arrays of features. A linear student
answers without torch. The folder is written for use without the run and its data.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from pathlib import Path
from shutil import copyfile
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from safetensors import SafetensorError
from safetensors.numpy import load_file, save
from scipy.sparse import issparse

from pate._core.accounting.statement import Statement
from pate._core.files.reading import MOST_WEIGHTS, Json, digest, load_json, regular
from pate._core.files.writing import atomic_folder
from pate._core.package import __version__, find
from pate._core.validation import (
    BoolArray,
    Float32Array,
    UInt8Array,
    as_float32,
    expecting,
    require,
    require_count,
    require_given,
    require_known,
    require_label_names,
)
from pate._labeling.data.feature_maps import needs_torch, restore_map, save_map
from pate._labeling.data.label_table import UTF_8
from pate._labeling.data.pictures import Pictures, center_crop, read_image
from pate._labeling.data.records import ArrayFeatures, FeatureMap, Features, Role, as_features
from pate._labeling.data.sentences import SentenceFeatures, packed_identity
from pate._labeling.data.source import DataSource
from pate._labeling.data.tables import (
    ColumnEncoding,
    EmbeddedTexts,
    HashedTexts,
    NumberColumns,
    hashed,
)
from pate._labeling.linear import LinearStudent, is_linear
from pate._labeling.runs.released import DECISION_METRICS, Metric
from pate._labeling.runs.run import MODEL, STUDENT

if TYPE_CHECKING:
    from torch import Tensor, nn


Samples: TypeAlias = "NDArray[Any] | Tensor | Sequence[Any]"
"""An array ``[N, ...]``, or a list of pictures, paths, texts or arrays of features."""
Kind = Literal["pictures", "texts", "sentences", "features"]

_MEANINGS = {
    "pictures": (
        "red, green, blue; the central square of a picture, resized bilinearly; 255 is white"
    ),
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
        columns = ColumnEncoding(
            names=tuple(content.get("columns", ())),
            levels={name: tuple(each) for name, each in content.get("levels", {}).items()},
            fills=content.get("fills", {}),
            identity=content.get("identity", "id"),
            texts=content.get("texts", {}),
            formats=content.get("formats", {}),
            gaps=tuple(content.get("gaps", ())),
            file_encoding=content.get("encoding", UTF_8),
        )
        return cls(content["kind"], tuple(content["shape"]), columns if columns.names else None)

    def to_dict(self) -> Json:
        """Return the format as plain data, with the meaning of the numbers."""
        pictures = self.kind == "pictures"
        content: Json = {
            "kind": self.kind,
            "shape": list(self.shape),
            "dtype": "uint8" if pictures else "float32",
            "range": [0, 255] if pictures else None,
            "means": _MEANINGS[self.kind],
        }
        if self.model is not None:
            content["model"] = self.model.identity
        if self.columns is not None:
            content |= {
                "columns": list(self.columns.names),
                "levels": {name: list(each) for name, each in self.columns.levels.items()},
                "fills": dict(self.columns.fills),
                "identity": self.columns.identity,
                "texts": dict(self.columns.texts),
                "formats": dict(self.columns.formats),
                "gaps": list(self.columns.gaps),
                "encoding": self.columns.file_encoding,
            }
        return content

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
        """Return columns, of a DataFrame or a mapping, as an array ``[N, F]``. Others as they are.

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
            return (
                hashed([*rows], self.shape[0]).toarray()
                if self.model is None
                else self.model.transform([*rows])
            )
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
            return center_crop(picture, self.size)
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
        # numpy's words would show an entry, which may be a person's text
        raise ValueError(
            f"Expected an array of numbers, with samples of one shape, got types={_types(samples)}"
        ) from None


def _types(samples: Iterable[Any]) -> list[str]:
    return sorted({type(sample).__name__ for sample in samples})


Predict = Callable[[NDArray[Any]], tuple[Float32Array, BoolArray]]
"""Maps samples ``[B, ...]``, float32 or uint8 pictures, to probabilities and labels ``[B, C]``."""

_WHITE = np.float32(255)


@dataclass(frozen=True, eq=False)
class LinearPredictor:
    """A linear student from raw samples to answers.

    Attributes:
        features: the map from raw samples to the input of the student. None for the samples.
        student: the linear model of each label.
        cuts: float32 ``[C]``. A label is given where its probability is above its cut.
    """

    features: FeatureMap | None
    student: LinearStudent
    cuts: Float32Array

    def __call__(self, samples: NDArray[Any]) -> tuple[Float32Array, BoolArray]:
        """Return probabilities and labels, float32 and bool ``[B, C]``.

        Args:
            samples: float32 ``[B, ...]``, or pictures in uint8, with 255 as 1.
        """
        values = samples.astype(np.float32)
        if samples.dtype == np.uint8:
            values /= _WHITE
        if self.features is not None:
            values = as_features(self.features.transform(ArrayFeatures(values)))[:]
        return self.decided(values)

    def decided(self, features: NDArray[Any]) -> tuple[Float32Array, BoolArray]:
        """Return probabilities and labels of mapped features ``[B, ...]``."""
        probabilities = self.student.predict(features).astype(np.float32)
        return probabilities, probabilities > self.cuts


def arrays_of(student: LinearStudent) -> dict[str, NDArray[Any]]:
    """Return a linear student as the arrays of its files, in single precision.

    They are ``weight`` ``[C, F]``, ``bias`` ``[C]``, which is 0 for a label if nothing was
    released, ``departs`` ``[C]`` and ``constant_logits`` ``[C]``.
    """
    bias = student.weights[-1]
    return {
        "weight": np.ascontiguousarray(student.weights[:-1].T, dtype=np.float32),
        "bias": np.where(np.isfinite(bias), bias, 0).astype(np.float32),
        "departs": student.departs,
        "constant_logits": student.constants.astype(np.float32),
    }


def student_from(arrays: Mapping[str, NDArray[Any]]) -> LinearStudent:
    """Return the linear student with the arrays of `arrays_of`."""
    constants = arrays["constant_logits"].astype(np.float64)
    bias = np.where(np.isneginf(constants), -np.inf, arrays["bias"])
    weights = np.concatenate((arrays["weight"].T, bias[None]))
    return LinearStudent(weights, arrays["departs"], constants)


ExportFormat = Literal["torch.export", "onnx"]
Weights = Callable[[dict[str, Any]], bytes]


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A trained student without its feature map.

    Attributes:
        network: class path and arguments of the network, from features to logits ``[B, C]``, as
            settings that read no further files of weights.
        state: the arrays of the network, or tensors, by their names in it.
        departs: ``[C]``, whether the network decides a label.
        constant_logits: ``[C]``, the logits of the constant answer.
        label_names: names of the ``C`` labels.
        optimize: the metric that decisions optimize.
        cuts: ``[C]``, the probabilities above which labels are given.
    """

    network: Json | str
    state: Mapping[str, Any]
    departs: BoolArray
    constant_logits: Float32Array
    label_names: tuple[str, ...]
    optimize: Metric
    cuts: Float32Array


def weights_of_arrays(state: Mapping[str, NDArray[Any]]) -> bytes:
    """Return arrays as the content of a file of weights."""
    return save({name: np.asarray(part, order="C") for name, part in state.items()})


def export_student(
    folder: Path,
    trained: Trained,
    source: DataSource,
    *,
    statement: Path,
    text: Path,
    weights: Weights,
) -> None:
    """Write a student into a folder that `pate.load_student` reads, completely or not at all.

    The folder holds the weights of feature map and network, their class paths and settings, the
    shape of the input, the names of the labels, and the privacy statement. All of this is public
    already. The same student has the same bytes.

    Args:
        folder: the folder, replaced if it exists.
        trained: the student.
        source: the records that it learned from. Only the public ones were read.
        statement: ``privacy.json`` of the released labels.
        text: ``privacy.txt`` of the released labels.
        weights: encodes arrays and tensors by name as the content of a file.

    Raises:
        ValueError: in one line, if the feature map or the network cannot be described, or the
            student has no finite answers to public samples when it is read back. The folder does
            not appear then.
    """
    source.records(Role.PUBLIC)  # the map is fitted to these
    raw = InputFormat.of(source.load(Role.PUBLIC).features)
    mapped = None if source.feature_map is None else save_map(source.feature_map, raw.shape)
    state = {f"network.{name}": value for name, value in trained.state.items()}
    if mapped is not None:
        state |= {f"features.{name}": value for name, value in mapped.state.items()}
    state |= {"departs": trained.departs, "constant_logits": trained.constant_logits}
    names, cuts = trained.label_names, trained.cuts.tolist()
    # a gate keeps probabilities on one side of one half. It decides unless the cut is on that side
    above = (trained.constant_logits > 0).tolist()
    settings = {
        "format": FORMAT,
        "pate": __version__,
        "input": raw.to_dict(),
        "features": None if mapped is None else mapped.settings,
        "network": trained.network,
        "network_input": list(source.input_shape),
        "label_names": list(names),
        "optimize": trained.optimize,
        "cuts": cuts,
        "constant_decisions": {
            name: positive
            for name, positive, cut, departing in zip(
                names, above, cuts, trained.departs.tolist(), strict=True
            )
            if not departing and (cut <= 0.5 if positive else cut >= 0.5)
        },
    }
    with atomic_folder(folder) as new:
        (new / WEIGHTS).write_bytes(weights(state))
        (new / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n")
        if raw.model is not None:
            raw.model.pack(new / SENTENCES)
        copyfile(statement, new / STATEMENT)
        copyfile(text, new / STATEMENT_TEXT)
        _require_answers(new, source.load(Role.PUBLIC).features)


def _require_answers(folder: Path, public: Features) -> None:
    """Raise ``ValueError`` unless a student can be read, and has finite answers to some samples."""
    student = load_student(folder, trust=True)  # of the user's own run
    samples = public[np.arange(min(public.shape[0], _TRIED))]
    probabilities, _ = student.predictor(samples)
    require(
        np.isfinite(probabilities).all(),
        "a student with finite answers to public samples",
        answers="others",
    )


SETTINGS, WEIGHTS = "model.json", "model.safetensors"
"""The files of an exported student."""

SENTENCES = "sentences.zip"
"""The sentence model of a student of texts, next to them."""

STATEMENT, STATEMENT_TEXT = "privacy.json", "privacy.txt"
"""The privacy statement of its labels, next to these files."""

FORMAT = 2
"""The version of the folder's format, which is raised when an older ``pate`` could not read it."""

_LAYER, _MAP = "network.1.", "features."
"""Prefixes of the names of arrays in a linear layer, and in a feature map."""

_BATCH = 256
_TRIED = 8  # public samples that an export answers before it appears


@dataclass(frozen=True, eq=False)
class ExportedStudent:
    """A student with all that a prediction needs; `load_student` makes it.

    Attributes:
        label_names: names of the ``C`` labels.
        input: the kind and shape of its samples: pictures, texts or features.
        statement: the content of ``privacy.json``: the cost of the labels that it learned from. Its
            method `verify` recomputes it from the releases that it lists.
        settings: the content of ``model.json``.
        predictor: from raw samples to probabilities and labels.
        device: torch's name of its device.
        folder: the folder that it was read from.
    """

    label_names: tuple[str, ...]
    input: InputFormat
    statement: Statement = field(repr=False)
    settings: Json = field(repr=False)
    predictor: Predict = field(repr=False)
    device: str
    folder: Path = field(repr=False)

    @cached_property
    def module(self) -> nn.Module:
        """The student as one torch module, from raw samples to probabilities and labels."""
        if isinstance(self.predictor, LinearPredictor):
            restore = find("restore_module")
            return restore(self.folder / WEIGHTS, self.settings, device=self.device, trust=False)
        return self.predictor.module  # type: ignore[attr-defined]

    def predict(
        self, samples: Samples | Mapping[str, Any], *, batch_size: int = _BATCH
    ) -> UInt8Array:
        """Return labels ``[N, C]`` in {0, 1} of samples as in `predict_proba`."""
        return self.answer(samples, batch_size=batch_size)[1]

    def predict_proba(
        self, samples: Samples | Mapping[str, Any], *, batch_size: int = _BATCH
    ) -> Float32Array:
        """Return probabilities ``[N, C]``.

        Args:
            samples: an array ``[N, ...]`` as the student was trained on. Of pictures uint8 ``[N, 3,
                size, size]``, floats in [0, 1], or uint8 ``[N, height, width, 3]`` of any size; or
                a list of PIL pictures or of paths. Of texts, a list of them. Of a table, a
                DataFrame of pandas or polars, or a mapping of its columns.
            batch_size: samples at a time.

        Raises:
            ValueError: in one line, if the samples do not fit.
        """
        return self.answer(samples, batch_size=batch_size)[0]

    def answer(
        self, samples: Samples | Mapping[str, Any], *, batch_size: int = _BATCH
    ) -> tuple[Float32Array, UInt8Array]:
        """Return probabilities and labels ``[N, C]`` of the same samples; see `predict_proba`."""
        require_count(1, batch_size=batch_size)
        rows = self.input.encoded(samples)
        array = getattr(rows, "ndim", 0) > 0  # of numpy or torch
        require(
            array or (isinstance(rows, Sequence) and not isinstance(rows, str)),
            "samples in a list or an array",
            samples=type(rows).__name__,
        )
        num = rows.shape[0] if array else len(rows)  # type: ignore[union-attr]
        probabilities = np.empty((num, len(self.label_names)), dtype=np.float32)
        labels = np.empty(probabilities.shape, dtype=np.uint8)
        for start in range(0, num, batch_size):
            part = slice(start, start + batch_size)
            probabilities[part], labels[part] = self.predictor(self.input.batch(rows[part]))
        return probabilities, labels

    def describe(self) -> str:
        """Return the privacy statement as text, the content of ``privacy.txt``."""
        return self.statement.text


def load_student(
    folder: Path | str, *, device: str = "cpu", trust: bool | Collection[str] = False
) -> ExportedStudent:
    """Return the student in a folder from `pate student fit`.

    Neither the run nor its data are needed, and nothing is downloaded. The folder is data: it may
    name any class, but only networks of pate and torchvision are imported and called. A linear
    student needs no torch, unless its feature map is a network or ``device`` is not the processor.

    Args:
        folder: the folder, such as ``runs/faces/public/student/model``, or the folder of its run.
        device: torch's name of the device, such as ``cuda``.
        trust: whether networks and feature maps of other packages are imported and called too; or
            the paths of those that are, such as ``{"mine.Network"}``.

    Returns:
        the student, which predicts from raw samples.

    Raises:
        ValueError: in one line, if the folder holds no complete student, or the class of its
            network is not trusted or cannot be imported.
    """
    root = Path(folder)
    inner = root / STUDENT.outputs[0] / MODEL
    root = inner if inner.is_dir() else root
    settings = _read_settings(root)
    statement = Statement.read(_file(root / STATEMENT))
    _file(root / STATEMENT_TEXT)
    plain = is_linear(settings["network"]) and not needs_torch(settings["features"])
    predictor: Predict = (
        _linear_predictor(root, settings)
        if plain and device == "cpu"
        else find("ModulePredictor")(
            find("restore_module")(root / WEIGHTS, settings, device=device, trust=trust), device
        )
    )
    input_format = InputFormat.from_dict(settings["input"])
    if input_format.kind == "sentences":
        packed = _file(root / SENTENCES)
        require(
            packed_identity(packed) == settings["input"].get("model"),
            "the sentence model of training",
            changed=str(packed),
        )
        input_format = replace(input_format, model=SentenceFeatures(folder=packed))
    return ExportedStudent(
        label_names=tuple(settings["label_names"]),
        input=input_format,
        statement=statement,
        settings=settings,
        predictor=predictor,
        device=device,
        folder=root,
    )


def student_digests(folder: Path) -> dict[str, str]:
    """Return the digests of the weights and settings in the folder of a student."""
    return {name: digest(folder / name) for name in (WEIGHTS, SETTINGS)}


def _linear_predictor(root: Path, settings: Json) -> LinearPredictor:
    path, num_labels = root / WEIGHTS, len(settings["label_names"])
    with expecting(f"weights in {path}", SafetensorError, OSError, KeyError):
        state = load_file(regular(_file(path), MOST_WEIGHTS))
    shapes = {
        f"{_LAYER}weight": (num_labels, prod(settings["network_input"])),
        f"{_LAYER}bias": (num_labels,),
        "departs": (num_labels,),
        "constant_logits": (num_labels,),
    }
    layers = {name: values for name, values in state.items() if not name.startswith(_MAP)}
    found = {name: values.shape for name, values in layers.items()}
    require(found == shapes, f"the layers of a linear student in {path}", layers=found)
    features = None
    mapped = {name.removeprefix(_MAP): part for name, part in state.items() if name not in layers}
    if settings["features"] is not None:
        features = restore_map(settings["features"], mapped, tuple(settings["input"]["shape"]))
    else:
        require(not mapped, f"no feature map in {path}", arrays=list(mapped))
    return LinearPredictor(
        features,
        student_from({name.removeprefix(_LAYER): part for name, part in layers.items()}),
        np.array(settings["cuts"], dtype=np.float32),
    )


def _file(path: Path) -> Path:
    require(
        path.is_file(),
        "the model/ that `pate student fit` leaves in public/student of a run",
        missing=str(path),
    )
    return path


def _read_settings(root: Path) -> Json:
    path = _file(root / SETTINGS)
    with expecting(f"JSON in {path}", ValueError):
        content: Json = load_json(path)
    require(isinstance(content, dict), f"an object in {path}", type=type(content).__name__)
    require(
        content.get("format") == FORMAT,
        f"a student of format {FORMAT}, which this version of pate reads",
        format=content.get("format"),
    )
    missing = [name for name in _KEYS if name not in content]
    require(not missing, f"{', '.join(_KEYS)} in {path}", missing=missing)
    require_known(f"keys of {path}", content, [*_KEYS, "format", "pate", "constant_decisions"])
    wrong = [name for name, right in _KEYS.items() if not right(content[name])]
    require(not wrong, f"settings of a student in {path}", wrong=wrong)
    require_label_names(f"label names of {path}", content["label_names"])
    num_labels = len(content["label_names"])
    require(
        len(content["cuts"]) == num_labels,
        f"a cut for each of {num_labels} labels in {path}",
        cuts=len(content["cuts"]),
    )
    return content


def _is_shape(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) > 0
        and all(type(size) is int and size > 0 for size in value)
    )


def _is_network(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, dict) and isinstance(value.get("class_path"), str)
    )


_KEYS: dict[str, Callable[[Any], bool]] = {
    "input": lambda value: (
        isinstance(value, dict)
        and value.get("kind") in get_args(Kind)
        and _is_shape(value.get("shape"))
    ),
    "features": lambda value: (
        value is None
        or _is_network(value)
        or (
            isinstance(value, list)
            and all(
                isinstance(part, dict)
                and _is_network(part.get("map"))
                and _is_shape(part.get("shape"))
                for part in value
            )
        )
    ),
    "network": _is_network,
    "network_input": _is_shape,
    "label_names": lambda value: (
        isinstance(value, list) and all(isinstance(name, str) for name in value)
    ),
    "optimize": lambda value: value in DECISION_METRICS,
    "cuts": lambda value: (
        isinstance(value, list) and all(type(cut) is float and 0 <= cut <= 1 for cut in value)
    ),
}
"""The required keys of ``model.json``, and a check of each value."""
