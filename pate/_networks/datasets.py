"""Data sets of other packages as sources, and public maps that compute by torch.

First data sets of torch and Hugging Face; then a frozen network with weights from files. All import
torch late, so that data without them start without it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from PIL import Image

from pate._core.files.reading import digest, regular
from pate._core.validation import (
    Float32Array,
    Float32Array as FloatArray,
    IntArray,
    UInt8Array,
    as_float32,
    expecting,
    require,
    require_count,
    require_label_names,
)
from pate._labeling.data.pictures import Pictures, center_crop, contents_of
from pate._labeling.data.records import (
    FeatureMap,
    Features,
    Records,
    Role,
    UnknownLabels,
    check_labels,
)
from pate._labeling.data.sentences import SentenceFeatures, kept_features
from pate._labeling.data.source import DataSource, expand_path
from pate._labeling.data.tables import features_of_texts

if TYPE_CHECKING:
    from torch import nn
    from torch.utils.data import Dataset

Key = int | str
"""A position in a tuple, a key of a mapping, or the name of a column of the data set."""


class Items(Protocol):
    """A data set with items read by index: a map-style one of torch, or one of Hugging Face."""

    def __len__(self) -> int:
        """The number of items."""

    def __getitem__(self, index: int, /) -> Any:
        """Item number ``index``, the same whenever it is read."""


@dataclass(frozen=True, kw_only=True)
class Keys:
    """Where in an item its parts are.

    A name is looked for as a column of the data set (``column_names``), then as an attribute of it
    with a value for each item, such as ``filename`` of torchvision's CelebA, then as a key of each
    item.

    >>> keys = Keys(features="image", labels=["smiling", "hat"], ids="name", groups="person")

    Args:
        features: a picture (PIL), a text, or numbers of any shape, the same for all.
        labels: ``C`` numbers, 0 or 1; or the names of ``C`` columns; or the number of the one label
            that is true.
        ids: the record's own id, which stays when other records come and go. A row number does not,
            and is refused.
        groups: the group of the record, such as its person. None without groups.
        size: pictures are cut to their central square and resized to this many pixels; numbers are
            taken as they are.
        num_features: texts are hashed to so many columns, as `TextTable` does.
        sentences: the sentence model, if texts are embedded instead.
        permanent_ids: whether numbers from 0 or 1 on, in the order of the items, are permanent ids
            after all.
        unknown_labels: ``nan`` if labels may be unknown, which are NaN or None; -1 if -1 is
            unknown, too. None if all must be known.
        copies: whether public samples may be private records, too, which nothing protects then.
    """

    features: Key = 0
    labels: Key | list[str] = 1
    ids: Key = 2
    groups: Key | None = None
    size: int = 64
    num_features: int = 2048
    sentences: SentenceFeatures | None = None
    permanent_ids: bool = False
    unknown_labels: UnknownLabels | None = None
    copies: bool = False

    def __post_init__(self) -> None:
        require_count(8, size=self.size)
        require_count(2, num_features=self.num_features)


class ItemFeatures(Features):
    """Features of the items of a data set, each read when it is needed.

    Args:
        items: the data set.
        keys: where its features are.
    """

    def __init__(self, items: Items, keys: Keys) -> None:
        self._items, self._keys = items, keys

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """``(N, ...)``, the shape of the first item."""
        return (len(self._items), *self._read(0).shape)

    def __getitem__(self, index: Any, /) -> Float32Array:
        index = np.asarray(index)
        values = np.empty((index.size, *self.shape[1:]), dtype=np.float32)
        for place, item in enumerate(index.ravel().tolist()):
            read = self._read(item)
            require(
                read.shape == values.shape[1:],
                f"features of shape {values.shape[1:]} in all items",
                item=item,
                shape=read.shape,
            )
            require(np.isfinite(read).all(), "finite features in all items", item=item)
            values[place] = read
        return values.reshape(*index.shape, *self.shape[1:])

    def _read(self, item: int) -> Float32Array:
        return as_float32(_part(self._items[item], self._keys.features))


class ItemPictures(Pictures):
    """Pictures of the items of a data set.

    Args:
        items: the data set.
        keys: where its pictures are.
        keep: whether pictures that were read are kept in memory for the next time, if they are not
            too many.
        private: whether a picture that cannot be read is a black one.
    """

    def __init__(
        self, items: Items, keys: Keys, *, keep: bool = True, private: bool = False
    ) -> None:
        super().__init__(len(items), keys.size, keep=keep, private=private)
        self._items, self._keys = items, keys

    def picture(self, row: int) -> UInt8Array:
        value = _part(self._items[row], self._keys.features)
        require(
            isinstance(value, Image.Image),
            "a picture in all items",
            item=row,
            type=type(value).__name__,
        )
        return center_crop(value, self.size)

    def once(self) -> ItemPictures:
        return ItemPictures(self._items, self._keys, keep=False, private=self.private)


class TorchDatasets(DataSource):
    """Map-style data sets, one for each role, with tuples or mappings as items.

    They are of torch, or splits of Hugging Face by ``load_dataset``, whose columns `Keys` name. An
    item must be the same whenever it is read: transforms that draw something belong to training
    (``augment``).

    >>> from torch import tensor
    >>> items = [(tensor([0.0, i]), tensor([i % 2]), f"record-{i}") for i in range(3)]
    >>> source = TorchDatasets(items[:1], items[1:2], items[2:], ["odd"])
    >>> source.load(Role.PRIVATE).ids
    array(['record-0'], dtype='<U8')

    Args:
        private: the records to be protected.
        public: the samples that teachers label.
        test: the records that a student is judged by.
        label_names: names of the labels.
        keys: where the parts of an item are. None for ``(features, labels, id)``.
        ledger: the ledger of these data, shared by all runs on them. None if each run counts for
            itself.
        features: a public map of the features.

    Raises:
        ValueError: where the records are read, on items that ``keys`` does not fit.
    """

    def __init__(
        self,
        private: Dataset[Any],
        public: Dataset[Any],
        test: Dataset[Any],
        label_names: list[str],
        *,
        keys: Keys | None = None,
        ledger: Path | None = None,
        features: FeatureMap | None = None,
    ) -> None:
        keys = keys or Keys()
        super().__init__(
            features=features,
            permanent_ids=keys.permanent_ids,
            unknown_labels=keys.unknown_labels is not None,
            copies=keys.copies,
        )
        require(label_names, "names of the labels", label_names=list(label_names))
        require_label_names("label names", label_names)
        self._label_names, self._keys = tuple(label_names), keys
        self._ledger = None if ledger is None else expand_path(ledger)
        datasets: dict[Role, Any] = dict(zip(Role, (private, public, test), strict=True))
        self._datasets = datasets
        self._loaded: dict[Role, Records] = {}

    @property
    def label_names(self) -> tuple[str, ...]:
        return self._label_names

    @property
    def ledger_path(self) -> Path | None:
        return self._ledger

    def load(self, role: Role) -> Records:
        if role not in self._loaded:
            self._loaded[role] = self._read(role)
        return self._loaded[role]

    def _read(self, role: Role) -> Records:
        items, keys = self._datasets[role], self._keys
        require(
            hasattr(items, "__len__") and hasattr(items, "__getitem__"),
            f"a data set of {role.value} records that are read by index",
            type=type(items).__name__,
        )
        if role is Role.TEST and len(items) == 0:
            return self.load(Role.PUBLIC).select(np.zeros(0, dtype=np.int64))
        require(len(items) > 0, f"at least one {role.value} record")
        columns = keys.labels if isinstance(keys.labels, list) else [keys.labels]
        groups = [] if keys.groups is None else [keys.groups]
        values = _values(items, [*columns, keys.ids, *groups])
        labels = [
            # as a number, None is NaN
            np.asarray(column, dtype=None if keys.unknown_labels is None else np.float64)
            for column in values[: len(columns)]
        ]
        ids, *owners = values[len(columns) :]
        table = np.stack(labels, axis=1) if isinstance(keys.labels, list) else labels[0]
        if table.ndim == 1:  # classes: which of the labels is true
            classes = np.arange(len(self._label_names))
            require(
                np.isin(table, classes).all(), f"classes in 0..{len(classes) - 1}", role=role.value
            )
            table = (table[:, None] == classes).astype(np.uint8)
        checked = check_labels(
            table, source=f"the {role.value} records", unknown=keys.unknown_labels
        )
        require(
            checked.shape[1] == len(self._label_names),
            f"{len(self._label_names)} labels",
            labels=checked.shape[1],
        )
        return Records(
            features=_features_of(items, keys, self._datasets[Role.PUBLIC], role is Role.PRIVATE),
            labels=checked,
            ids=np.asarray(ids),
            groups=np.asarray(owners[0]) if owners else None,
        )


def _features_of(items: Items, keys: Keys, public: Items, private: bool) -> Features:
    """Return the features of all items, of the kind that the first public one is of."""
    first = _part(public[0], keys.features)
    if isinstance(first, Image.Image):
        return ItemPictures(items, keys, private=private)
    if isinstance(first, str):
        (texts,) = _values(items, [keys.features])
        return features_of_texts(texts, keys.num_features, keys.sentences)
    return ItemFeatures(items, keys)


def _values(items: Items, keys: Sequence[Key]) -> list[list[Any]]:
    """Return the values of all items by key; items are read once for all keys."""
    values: dict[Key, list[Any]] = {}
    columns = getattr(items, "column_names", ())
    for key in keys:
        if isinstance(key, str) and key in columns:
            values[key] = [*items[key]]  # type: ignore[index, call-overload, unused-ignore]
        elif isinstance(key, str) and hasattr(items, key):
            values[key] = [*getattr(items, key)]
            require(
                len(values[key]) == len(items),
                f"as many values in `{key}` as items, {len(items)}",
                values=len(values[key]),
            )
    rest = [key for key in keys if key not in values]
    if rest:
        parts = [[_part(items[row], key) for key in rest] for row in range(len(items))]
        values |= {key: [part[place] for part in parts] for place, key in enumerate(rest)}
    # numbers of torch or numpy as Python ones: an id is `3`, not `tensor(3)`
    return [
        [value.tolist() if hasattr(value, "tolist") else value for value in values[key]]
        for key in keys
    ]


def _part(item: Any, key: Key) -> Any:
    try:
        return item[key]
    except (KeyError, IndexError, TypeError):
        parts = (
            list(item)
            if isinstance(item, Mapping)
            else f"{len(item)} parts"
            if isinstance(item, tuple)
            else item
        )
        raise ValueError(f"Expected {key!r} in each item, got {str(parts)[:80]}") from None


def load_weights(network: nn.Module, file: Path) -> None:
    """Load the weights of a file whose names are the network's, or else in the order of its layers.

    Raises ``ValueError`` in one line if there is no such file, or layers have other shapes.
    """
    import torch
    from safetensors.torch import load_file

    require(file.is_file(), "a file of weights", weights=str(file))
    own = network.state_dict()
    # torch and safetensors raise errors of many classes
    with expecting(f"weights of {type(network).__name__} in {file}", Exception):
        state = (
            load_file(regular(file))
            if file.suffix == ".safetensors"
            else torch.load(regular(file), weights_only=True, map_location="cpu")
        )
        if not own.keys() <= state.keys():  # a file of the network in a `Backbone`
            network = getattr(network, "body", network)
            own = network.state_dict()
        if not own.keys() <= state.keys() and file.suffix != ".safetensors":  # which are sorted
            state = dict(zip(own, state.values(), strict=False))
        # a last layer, which the network lacks, is left out
        network.load_state_dict({name: state[name] for name in own})


# Files of features are named by a hash of this class's source too: any change of a letter in it
# renames them all, and features of earlier runs are computed again.
class FrozenBackbone(FeatureMap):
    """Features of a network that is never trained here, computed once and kept on disk.

    The network sees one record at a time in effect: it is in evaluation mode, batches are all of
    one size, and nothing is fitted, neither on public samples nor on private records. Features are
    float32 ``[N, ...]``, memory-mapped from a file that is named by a hash of the inputs, the
    weights and the code. Those of private records are PRIVATE: the folder is made with mode 0700. A
    run that was killed goes on where the features end.

    Args:
        network: makes the network for the shape of a record; its output ``[B, ...]`` is taken as it
            is.
        cache: the folder of the features.
        weights: a file of a state dictionary (safetensors or torch's), of which the network takes
            the layers of its own names, or, where names differ, its layers in their order; None for
            the weights that it is made with.
        batch_size: records at a time.
        seed: seed of the weights that a network is made with, where they are random.
        accelerator: torch's name of the device, such as ``cuda``; ``auto`` takes a GPU where there
            is one.
    """

    def __init__(
        self,
        network: Callable[[tuple[int, ...]], nn.Module],
        cache: Path | str,
        weights: Path | str | None = None,
        batch_size: int = 64,
        seed: int = 0,
        accelerator: str = "auto",
    ) -> None:
        require_count(1, batch_size=batch_size)
        require_count(0, seed=seed)
        self._make = network
        self.cache = Path(cache)
        self.weights = None if weights is None else Path(weights)
        self.batch_size = batch_size
        self.seed = seed
        self.accelerator = accelerator
        self._network: nn.Module | None = None

    def fit(self, public: Features) -> FrozenBackbone:
        """Make the network for the shape of public features ``[N, ...]``; values are not read."""
        # a data module without a backbone starts without torch
        import torch

        if self._network is None:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.seed)
                network = self._make(tuple(public.shape[1:]))
            if self.weights is not None:
                load_weights(network, self.weights)
            self._network = network.eval().requires_grad_(False)
        return self

    def transform(self, features: Features) -> FloatArray:
        """Return the network's output for features ``[N, ...]``, read-only and memory-mapped."""
        import torch

        assert self._network is not None, "fit comes before transform"
        gpu = self.accelerator == "auto" and torch.cuda.is_available()
        device = torch.device(
            "cuda" if gpu else "cpu" if self.accelerator == "auto" else self.accelerator
        )
        network = self._network.to(device)

        def compute(rows: IntArray) -> FloatArray:
            # a last batch of another size could be rounded in another way: a record would move its
            # neighbors
            batch = torch.zeros(self.batch_size, *features.shape[1:])
            batch[: len(rows)] = torch.from_numpy(np.array(features[rows]))
            with torch.no_grad():
                found: FloatArray = network(batch.to(device))[: len(rows)].float().cpu().numpy()
            return found

        target = self.cache / f"{self._name(features)}.npy"
        return kept_features(target, features.shape[0], self.batch_size, compute)

    def _name(self, features: Features) -> str:
        assert self._network is not None
        state = self._network.state_dict()
        weights = [
            part for name, value in state.items() for part in (name, value.cpu().numpy().tobytes())
        ]
        code = [
            inspect.getsource(kind) for kind in dict.fromkeys(map(type, self._network.modules()))
        ]
        own = [inspect.getsource(type(self)), str(self.batch_size), repr(self._network)]
        return digest(*own, *code, *weights, *contents_of(features))
