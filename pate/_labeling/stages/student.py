"""The stage `student`, for any network: its files, and a plan that Python programs write.

Between the two stands the linear network, which is solved in closed form without torch.
"""

import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file
from scipy.special import expit

from pate._core.files.reading import (
    MOST_WEIGHTS,
    Json,
    digest,
    load_json,
    load_yaml,
    regular,
)
from pate._core.files.writing import atomic_write, write_json
from pate._core.package import find
from pate._core.settings import to_plain
from pate._core.validation import (
    Float32Array,
    FloatArray,
    expecting,
    given,
    require,
)
from pate._labeling.data.records import Role, known_truth
from pate._labeling.data.source import DataSource
from pate._labeling.linear import LINEAR, is_linear, student_of
from pate._labeling.runs.carried import (
    LinearPredictor,
    Trained,
    Weights,
    arrays_of,
    export_student,
    student_digests,
    student_from,
    weights_of_arrays,
)
from pate._labeling.runs.released import (
    DECISION_METRICS,
    Metric,
    ReleasedLabels,
    choose_thresholds,
    evaluate,
    evaluate_constant,
    queried,
    require_student,
)
from pate._labeling.runs.run import (
    EXPORTED,
    LABEL,
    METRICS,
    MODEL,
    STUDENT,
    Run,
    StageInputs,
    labels_file,
    load_data,
    public_digest,
)
from pate._labeling.teachers import require_factory

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler


def student_folder(run: Run) -> Path:
    """Return the folder of a run's student."""
    return run.root / STUDENT.outputs[0]


def learn(
    run: Run,
    source: DataSource,
    settings: Json,
    train: Callable[[], Sequence[Path]],
    export: Callable[[], object],
) -> None:
    """Begin or continue the stage of a student of any kind, unless it is finished, and export it.

    An overwritten student stays until the new one works.

    Args:
        run: the run.
        source: the records that the student learns from.
        settings: the settings of the stage.
        train: trains the student and returns its files.
        export: exports it.

    Raises:
        ValueError: if the student was begun with other settings, labels or public records.
    """
    digests = {"labels": digest(labels_file(run)), "public": public_digest(source)}
    inputs = StageInputs(settings, digests)
    with _kept_until_trained(run, inputs):
        if not run.begin(STUDENT, inputs):
            run.require_finished(STUDENT)
            print(f"pate student fit: finished in {run.root}")
            export()
            return
        files = {path: digest(path) for path in train()}
        export()
        run.finish(STUDENT, files, untested=not len(source.load(Role.TEST).ids))


@contextmanager
def _kept_until_trained(run: Run, inputs: StageInputs) -> Iterator[None]:
    """Keep a copy of a finished student that is overwritten, and restore it if the new one fails.

    If the process is killed, the copy stays, and the same command continues with the new student.
    """
    backup = run.private / "student_before"
    places = (STUDENT.outputs[0], STUDENT.config, STUDENT.state)
    if (
        not backup.exists()
        and run.is_finished(STUDENT)
        and not run.missing_outputs(STUDENT)
        and run.needs(STUDENT, inputs)
    ):
        draft = backup.with_name(f".{backup.name}")
        shutil.rmtree(draft, ignore_errors=True)
        shutil.copytree(run.root / places[0], draft / places[0].name)
        for place in places[1:]:
            shutil.copy(run.root / place, draft)
        draft.rename(backup)
    try:
        yield
    except Exception:
        if backup.exists():
            run.clear(STUDENT)
            for place in places:  # the state last, because it refers to the others
                (backup / place.name).replace(run.root / place)
            shutil.rmtree(backup)
        raise
    shutil.rmtree(backup, ignore_errors=True)


def export_or_say_why_not(
    run: Run,
    trained: Callable[[], Trained],
    source: DataSource,
    weights: Weights,
) -> None:
    """Export the student from its run, or print in one line why it stays. PUBLIC.

    Its digests are recorded in the private folder, for teachers that start from it.

    Args:
        run: the run.
        trained: reads the student.
        source: the records that it learned from.
        weights: encodes the weights as the content of a file.
    """
    folder = student_folder(run) / MODEL
    try:
        statement, text = (run.root / output for output in LABEL.outputs[1:])
        export_student(folder, trained(), source, statement=statement, text=text, weights=weights)
        write_json(run.root / EXPORTED, student_digests(folder))
    except ValueError as error:
        shutil.rmtree(folder, ignore_errors=True)
        print(
            f"pate student fit: the student stays in its run, there is no {folder}: {error}",
            file=sys.stderr,
        )


def write_figures(
    folder: Path,
    figures: Json,
    constants: FloatArray,
    source: DataSource,
    *,
    optimize: Metric,
) -> None:
    """Write ``metrics.json``: test figures of a student and of constant answers.

    Args:
        folder: the folder of the student.
        figures: the figures of the student.
        constants: ``[C]``, the logits of the constant answer that the release supports.
        source: the test records, with their true labels.
        optimize: the figure that decisions serve.
    """
    truth = source.records(Role.TEST).labels
    right, known = known_truth(truth)
    shares = {
        "released_constant": expit(constants),
        "all_majority": right.sum(axis=0) / np.maximum(known.sum(axis=0), 1),
    }
    compared = {
        name: evaluate_constant(share, truth, source.label_names, optimize=optimize)
        for name, share in shares.items()
    }
    write_json(folder / METRICS, {"optimize": optimize, "student": figures} | compared)


WEIGHTS = "linear.safetensors"
"""The file of the student: the arrays from `arrays_of`, and its cuts ``[3, C]``."""


@dataclass(frozen=True, kw_only=True)
class LinearPlan:
    """How a linear student learns: the settings of ``student.yaml`` with ``pate.models.Linear``.

    The student is solved in closed form, so there are no settings of training.

    Args:
        soft: whether to learn from noisy counts in place of labels, if the aggregator released
            them.
        optimize: the figure that decisions serve. Cuts for F1 are chosen by public samples, at no
            cost.

    Raises:
        ValueError: on an unknown value.
    """

    soft: bool = True
    optimize: Metric = "accuracy"

    def __post_init__(self) -> None:
        for name, values in {"soft": (True, False), "optimize": DECISION_METRICS}.items():
            value = getattr(self, name)
            require(value in values, f"{name} among {', '.join(map(str, values))}", **{name: value})

    @classmethod
    def of(cls, content: Json) -> Self:
        """Return the plan in a ``student.yaml`` with the network `LINEAR`.

        Raises ``ValueError`` in one line if the file has settings of training, too.
        """
        named = [f"{part}.{name}" for part in ("model", "data") for name in content.get(part, ())]
        known = {"model", "model.network", "data", "data.soft", "optimize"}
        others = [name for name in (*named, *content) if name not in known]
        require(
            not others,
            f"no settings of training with {LINEAR}, which is solved in closed form",
            training=others,
        )
        return cls(**content.get("data", {}), optimize=content.get("optimize", cls.optimize))

    def settings(self) -> Json:
        """Return the content of ``student.yaml``."""
        return {
            "model": {"network": {"class_path": LINEAR}},
            "data": {"soft": self.soft},
            "optimize": self.optimize,
        }


@dataclass(frozen=True, eq=False)
class Solved:
    """A linear student with its cuts.

    Attributes:
        arrays: the arrays from `arrays_of`.
        cuts: float32 ``[3, C]`` of `choose_thresholds`.
        optimize: the figure that decisions serve.
    """

    arrays: dict[str, Any]
    cuts: Float32Array
    optimize: Metric

    @classmethod
    def by(cls, plan: LinearPlan, source: DataSource, released: ReleasedLabels) -> Self:
        """Fit the student of released labels.

        Raises ``ValueError`` if there is nothing to learn from.
        """
        public, rows = queried(source, released)
        features, answered = public.features[rows], released.answered
        if not plan.soft:
            released = replace(released, noisy_counts=None, noise_std=None, linear=False)
        arrays = arrays_of(student_of(released, features, released.num_teachers))
        return cls(
            arrays,
            choose_thresholds(student_from(arrays).predict(features[answered])).astype(np.float32),
            plan.optimize,
        )

    @classmethod
    def read(cls, path: Path, optimize: Metric) -> Self:
        """Read the file that `save` wrote. Raises ``ValueError`` if it is damaged."""
        with expecting(f"a linear student in {path}", SafetensorError, OSError, KeyError):
            arrays = load_file(regular(path, MOST_WEIGHTS))
            return cls({name: arrays[name] for name in _NAMES}, arrays["cuts"], optimize)

    def save(self, path: Path) -> None:
        """Write the student to a file, completely or not at all."""
        with atomic_write(path) as file:
            file.write(weights_of_arrays(self.arrays | {"cuts": self.cuts}))

    def trained(self, label_names: tuple[str, ...]) -> Trained:
        """Return the student as it is exported."""
        return Trained(
            network={"class_path": LINEAR},
            state={f"1.{name}": self.arrays[name] for name in _NAMES[:2]},
            departs=self.arrays["departs"],
            constant_logits=self.arrays["constant_logits"],
            label_names=label_names,
            optimize=self.optimize,
            cuts=self.predictor.cuts,
        )

    @property
    def predictor(self) -> LinearPredictor:
        """The student of features that are mapped already."""
        cuts = self.cuts[DECISION_METRICS.index(self.optimize)]
        return LinearPredictor(None, student_from(self.arrays), cuts)

    def figures(self, source: DataSource) -> Json:
        """Return the figures of the student on the test set."""
        test = source.records(Role.TEST)
        return evaluate(
            self.predictor.decided(test.features[np.arange(len(test))])[0],
            test.labels,
            source.label_names,
            cuts=self.cuts.astype(np.float64),
            optimize=self.optimize,
        )


_NAMES = ("weight", "bias", "departs", "constant_logits")


@dataclass(frozen=True, kw_only=True)
class StudentPlan:
    """How the student is trained: the content of ``student.yaml``.

    Pass classes and functions as they are, or with settings by `functools.partial`, such as
    ``partial(torch.optim.AdamW, lr=0.01)``.

    >>> plan = StudentPlan(optimize="macro_f1")  # linear, in closed form
    >>> plan.network is None
    True

    Args:
        network: makes the network for an input shape and a number of labels. None for
            ``pate.models.Linear``, which is solved in closed form and has no settings of training.
        optimizer: makes the optimizer of its parameters; None for AdamW.
        scheduler: makes the learning-rate schedule, stepped every epoch. None for a constant rate.
        model: further arguments of `pate.student.Student`, such as ``{"seed": 1}``.
        data: arguments of `pate.student.StudentData`, such as ``{"batch_size": 64}``.
        trainer: arguments of Lightning's Trainer, such as ``{"max_epochs": 20}``.
        optimize: the figure that decisions serve. Cuts for F1 are chosen by public samples, at no
            cost.
    """

    network: "Callable[[tuple[int, ...], int], nn.Module] | None" = None
    optimizer: "Callable[[Any], Optimizer] | None" = None
    scheduler: "Callable[[Optimizer], LRScheduler] | None" = None
    model: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    trainer: Mapping[str, Any] = field(default_factory=dict)
    optimize: Metric = "accuracy"

    def configuration(self) -> Json:
        """Return the plan as the content of ``student.yaml``.

        Raises ``ValueError`` in one line if a file could not hold it.
        """
        parts = {"data": self.data, "trainer": self.trainer}
        content: Json = {name: to_plain(part) for name, part in parts.items() if part}
        if self.network is not None:
            require_factory(self.network)
        makers = {"optimizer": self.optimizer, "scheduler": self.scheduler}
        if self.network is None or is_linear(to_plain(self.network)):
            made = {"network": {"class_path": LINEAR}} | to_plain(given(**makers))
        else:
            made = find("encode_makers")(network=self.network, **makers)
        return content | {"model": to_plain(self.model) | made, "optimize": self.optimize}


def fit_student(run: Run, content: Json) -> None:
    """Train the student of a run's released labels, a network from its last checkpoint.

    Args:
        run: the run.
        content: the content of ``student.yaml``.

    Raises:
        ValueError: if the labels are missing, or the student was begun with another plan.
    """
    if not is_linear(content["model"]["network"]):
        find("run_student")("fit", run, content)
        return
    plan = LinearPlan.of(content)
    run.require_finished(LABEL)
    source, released = load_data(run), ReleasedLabels.load(run.root)
    path = student_folder(run) / WEIGHTS

    def train() -> Sequence[Path]:
        Solved.by(plan, source, released).save(path)
        return [path]

    def export() -> None:
        solved = Solved.read(path, plan.optimize)
        trained = partial(solved.trained, source.label_names)
        export_or_say_why_not(run, trained, source, weights_of_arrays)

    learn(run, source, plan.settings(), train, export)


def test_student(run: Run, content: Json | None) -> Json:
    """Evaluate the student of a run on the test set; return the content of ``metrics.json``.

    Args:
        run: the run.
        content: settings of its training or of Lightning's test. None for those of the run.

    Raises:
        ValueError: if there is no student, or it is of another kind.
    """
    require_student(run)
    saved, folder = student_settings(run), student_folder(run)
    content = content or saved
    linear, other = (is_linear(each["model"]["network"]) for each in (saved, content))
    require(linear == other, "the network of the run's student", model=content["model"])
    if linear:
        optimize, source = LinearPlan.of(content).optimize, load_data(run)
        solved = Solved.read(folder / WEIGHTS, optimize)
        figures, constants = solved.figures(source), solved.arrays["constant_logits"]
        write_figures(folder, figures, constants, source, optimize=optimize)
    else:
        find("run_student")("test", run, content)
    return load_json(folder / METRICS)


def student_settings(run: Run) -> Json:
    """Return the settings of a run's student in training."""
    return load_yaml(run.root / STUDENT.config)
