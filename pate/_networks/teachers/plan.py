"""How teachers are trained: the content of `teachers.yaml`, and the records of each.

Torch is imported once something is built, so that help needs none. First its classes by their
names, and the loss. It goes entry by entry, so that teachers share no weight, threshold or mean.
Then the plan, and the partition of the records. A worker gets only the parts of its teachers.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args

import numpy as np

from pate._core.settings import RecordsInitArgs
from pate._core.validation import (
    MOST_VOTERS,
    IntArray,
    expecting,
    given,
    require,
    require_count,
    require_positive,
)
from pate._labeling.data.records import Records, Unit, partition_records
from pate._labeling.teachers import (
    assigned_units,
    require_bound,
    require_factory,
    start_place,
)

# jsonargparse runs what is under `if TYPE_CHECKING`
if not TYPE_CHECKING:

    class _Named(ABC):
        """A class known by its path: its subclasses are those of the class at the path."""

        path: ClassVar[str]

        @classmethod
        def __subclasshook__(cls, other):
            return any(
                f"{each.__module__}.{each.__qualname__}" == cls.path for each in other.__mro__
            )

        @classmethod
        def __subclasses__(cls):
            # read for short names, once training is imported, and for a page of help, before
            module, _, name = cls.path.rpartition(".")
            return [getattr(sys.modules[module], name)] if module in sys.modules else []

        @abstractmethod
        def __call__(self):
            """Stand for an object that is never made."""

    class Module(_Named):
        """A network, or a transform of pictures."""

        path = "torch.nn.modules.module.Module"

    class Optimizer(_Named):
        """An optimizer."""

        path = "torch.optim.optimizer.Optimizer"

    class LRScheduler(_Named):
        """A schedule of learning rates."""

        path = "torch.optim.lr_scheduler.LRScheduler"

else:
    from torch import Tensor
    from torch.nn import Module
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler


class EntryLoss(RecordsInitArgs, ABC):
    """A loss that treats each entry of a batch by itself, such as torchvision's focal loss.

    >>> import torch
    >>> from torchvision.ops import sigmoid_focal_loss
    >>> class Focal(EntryLoss):
    ...     def __call__(self, logits, labels, positive_weights):
    ...         return sigmoid_focal_loss(logits, labels, alpha=-1)
    >>> round(float(Focal()(torch.tensor([2.0]), torch.tensor([1.0]), torch.ones(1))[0]), 4)
    0.0018
    """

    @abstractmethod
    def __call__(self, logits: Tensor, labels: Tensor, positive_weights: Tensor) -> Tensor:
        """Return losses ``[..., C]`` of ``logits [..., C]`` against ``labels [..., C]`` in {0, 1}.

        ``positive_weights`` (broadcast against the labels) multiply the losses of positive labels.
        """


class BinaryCrossEntropy(EntryLoss):
    """Cross-entropy of each label.

    >>> import torch
    >>> logits, labels = torch.tensor([2.0, -1.0]), torch.tensor([1.0, 1.0])
    >>> round(float(BinaryCrossEntropy()(logits, labels, torch.ones(2)).mean()), 3)
    0.72
    """

    def __call__(self, logits: Tensor, labels: Tensor, positive_weights: Tensor) -> Tensor:
        """Return the losses, of the shape of ``labels``."""
        from torch.nn.functional import binary_cross_entropy_with_logits

        return binary_cross_entropy_with_logits(
            logits, labels, reduction="none", pos_weight=positive_weights
        )


NetworkFactory = Callable[[tuple[int, ...], int], Module]
"""Makes a network for an input shape (without the batch) and a number of labels."""
# jsonargparse takes an optimizer's class for a factory only if its one argument is of any type
OptimizerFactory = Callable[[Any], Optimizer]
"""Makes an optimizer of given parameters.

It must work entry by entry, as SGD, Adam and AdamW do.
"""
SchedulerFactory = Callable[[Optimizer], LRScheduler]
"""Makes a learning-rate schedule for an optimizer, stepped once per optimizer step."""
Precision = Literal["32-true", "bf16-mixed"]


@dataclass(frozen=True, kw_only=True)
class TeacherPlan:
    """How every teacher is trained. These settings are public and do not depend on the partitions.

    The seed is no secret: privacy does not rest on it.

    >>> from pate.models import Linear
    >>> plan = TeacherPlan(network=Linear, num_teachers=100, num_steps=40, batch_size=32)
    >>> plan.unit, plan.num_teachers
    ('record', 100)

    Args:
        network: makes a teacher's network for an input shape and a number of labels.
        num_teachers: number of teachers, from 2 to 2^23.
        num_steps: optimizer steps of every teacher, a public constant.
        batch_size: records per step.
        optimizer: makes a teacher's optimizer, which must work entry by entry (SGD, Adam, AdamW
            ...). None for AdamW.
        unit: the unit of privacy: a ``record``, or a ``group`` such as all records of one person.
        chunk_size: number of teachers trained at once, halved until they fit into memory.
        checkpoint_steps: steps between the checkpoints that a killed chunk continues from.
        positive_weight_power: 0 to 1; larger values give rare positive labels more weight, within
            each partition.
        loss: the loss of a label, an `EntryLoss` of your own; None for cross-entropy.
        scheduler: makes the learning-rate schedule, stepped once per optimizer step. It must not
            depend on a loss.
        clip_norm: largest norm of a teacher's gradient.
        augment: transforms of pictures while teachers train, for example of
            ``torchvision.transforms.v2``, applied to each picture by itself. Their random draws
            depend on (seed, teacher, step).
        seed: seed of initial weights, batch orders and dropout.
        accelerator: Lightning's accelerator.
        precision: ``32-true``, or ``bf16-mixed`` if the device is fast with it. ``16-mixed`` is not
            offered: its gradient scaler would let stacked teachers influence each other.
        start_from: None for teachers that start afresh; or the released student that all of them
            start from: ``first`` for that of the run's own first release, or the folder of a run
            whose release is in the ledger of the same records. The student's weights are taken if
            its network is of the same class, and otherwise its answers to public samples are
            learned first.
        max_teachers_per_group: with ``unit: record``, the largest number of teachers that the
            records of one group reach: a keyed hash of its id puts each record into one of so many
            parts of its group, and a part has one teacher. The release is then priced for a group,
            too, and adds up with releases by the same groups. None for no bound.
    """

    network: NetworkFactory
    num_teachers: int
    num_steps: int
    batch_size: int
    optimizer: OptimizerFactory | None = None
    unit: Unit = "record"
    chunk_size: int = 1
    checkpoint_steps: int = 1000
    positive_weight_power: float = 0.0
    loss: EntryLoss | None = None
    scheduler: SchedulerFactory | None = None
    clip_norm: float | None = None
    augment: list[Module] | None = None
    seed: int = 0
    accelerator: str = "auto"
    precision: Precision = "32-true"
    start_from: str | None = None
    max_teachers_per_group: int | None = None

    def __post_init__(self) -> None:
        import torch
        from torch.nn import Parameter

        require_bound(self)
        require_factory(self.network)
        require_count(2, num_teachers=self.num_teachers)
        require(
            self.num_teachers <= MOST_VOTERS,
            f"num_teachers <= {MOST_VOTERS}",
            num_teachers=self.num_teachers,
        )
        require_count(
            1,
            num_steps=self.num_steps,
            batch_size=self.batch_size,
            checkpoint_steps=self.checkpoint_steps,
            chunk_size=self.chunk_size,
        )
        require_count(0, seed=self.seed)
        for name, value, choices in (
            ("unit", self.unit, Unit),
            ("precision", self.precision, Precision),
        ):
            require(
                value in get_args(choices),
                f"{name} in {', '.join(get_args(choices))}",
                **{name: value},
            )
        require(
            0 <= self.positive_weight_power <= 1,
            "0 <= positive_weight_power <= 1",
            positive_weight_power=self.positive_weight_power,
        )
        require_positive(**given(clip_norm=self.clip_norm))
        object.__setattr__(self, "start_from", start_place(self.start_from))
        with expecting("an optimizer, and a scheduler if any, that can be made", TypeError):
            optimizer = self.make_optimizer([Parameter(torch.zeros(1, 1))])
            if self.scheduler is not None:
                self.scheduler(optimizer)
        if self.chunk_size > 1:
            check_entrywise(self.make_optimizer)

    def make_optimizer(self, parameters: Any) -> Optimizer:
        """Return the optimizer of these parameters."""
        from torch.optim import AdamW

        return (self.optimizer or AdamW)(parameters)

    def chunks(self) -> list[range]:
        """Return the numbers of the teachers of each chunk."""
        numbers = range(self.num_teachers)
        return [numbers[start : start + self.chunk_size] for start in numbers[:: self.chunk_size]]


def check_entrywise(make_optimizer: OptimizerFactory) -> None:
    """Raise ``ValueError`` unless the optimizer works entry by entry.

    LBFGS, Adafactor and others that look at whole tensors would let stacked teachers influence each
    other.
    """
    import torch

    results = []
    # not a multiple: Adafactor would cancel it
    for power in (1, 2):
        weights = torch.nn.Parameter(torch.linspace(-1, 1, 18).view(2, 3, 3))
        optimizer = make_optimizer([weights])
        for _ in range(4):
            weights.grad = torch.linspace(-2, 1, 18).view(2, 3, 3).clone()
            weights.grad[0] **= power
            optimizer.step(lambda: torch.tensor(0.0))  # type: ignore[arg-type, return-value, unused-ignore]
        results.append(weights.detach()[1])
    require(
        torch.equal(*results),
        "an optimizer that works entry by entry",
        optimizer=type(optimizer).__name__,
    )


@dataclass(frozen=True, eq=False)
class PartitionedRecords:
    """Records, and the rows of each teacher. PRIVATE.

    >>> from pate.models import Linear
    >>> from pate.teachers import PartitionedRecords
    >>> plan = TeacherPlan(network=Linear, num_teachers=4, num_steps=1, batch_size=2)
    >>> labels, ids = np.zeros((6, 1), dtype=np.uint8), np.array(list("abcdef"))
    >>> records = Records(features=np.zeros((6, 3), dtype=np.float32), labels=labels, ids=ids)
    >>> parts = PartitionedRecords.by_key(records, plan, bytes(16))  # a real key is secret
    >>> sorted(len(rows) for rows in parts.rows.values()) == [0, 1, 2, 3]
    True

    Attributes:
        records: the records of all partitions, and possibly others.
        rows: the rows of each teacher's records ``[n]``, by the teacher's number.
    """

    records: Records
    rows: Mapping[int, IntArray]

    @classmethod
    def by_key(cls, records: Records, plan: TeacherPlan, key: bytes) -> Self:
        """Assign each record to a teacher by a keyed hash of its unit.

        Raises like `Records.units`.
        """
        rows = partition_records(
            records.ids,
            assigned_units(records, plan, key),
            num_teachers=plan.num_teachers,
            key=key,
        )
        return cls(records, dict(enumerate(rows)))

    @property
    def sizes(self) -> list[int]:
        """The number of records of each teacher, in the order of ``rows``."""
        return [len(rows) for rows in self.rows.values()]

    def only(self, teachers: range) -> PartitionedRecords:
        """Return only the records of some teachers, without groups.

        Arrays are copied into one block; pictures are still read when they are needed.
        """
        chosen = [self.rows[teacher] for teacher in teachers]
        rows = np.concatenate(chosen)
        records = self.records
        subset = Records(
            features=records.features.select(rows),
            labels=records.labels[rows],
            ids=records.ids[rows],
        )
        stops = np.cumsum([len(partition) for partition in chosen])
        return PartitionedRecords(
            subset, dict(zip(teachers, np.split(np.arange(len(rows)), stops[:-1]), strict=True))
        )


def draw_batches(size: int, *, seed: int, teacher: int, steps: range, batch_size: int) -> IntArray:
    """Return positions within a partition of ``size`` records, ``[len(steps), batch_size]``.

    Passes over the partition follow each other without padding, each in an order that depends on
    (seed, teacher, pass). So every teacher takes the same number of steps of the same size,
    whatever its partition.
    """
    first, last = steps.start * batch_size, steps.stop * batch_size
    passes = range(first // size, -(-last // size))
    orders = [np.random.default_rng([seed, teacher, number]).permutation(size) for number in passes]
    start = first - passes.start * size
    return np.concatenate(orders)[start : start + last - first].reshape(len(steps), batch_size)
