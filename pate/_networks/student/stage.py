"""The stage `student` and its commands: LightningCLI, with a run's folder in place of a log folder.

In a rehearsal the student trains for a few batches, without the user's callbacks and loggers.
"""

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jsonargparse import ArgumentError
from lightning_fabric.plugins.io.checkpoint_io import CheckpointIO
from lightning_fabric.utilities.exceptions import MisconfigurationException
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import (
    Callback,
    EarlyStopping,
    LambdaCallback,
    ModelCheckpoint,
    ProgressBar,
)
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI
from pytorch_lightning.loggers import CSVLogger
from pytorch_lightning.loggers.logger import DummyLogger, Logger
from pytorch_lightning.strategies.launchers.subprocess_script import _SubprocessScriptLauncher
from pytorch_lightning.utilities.seed import isolate_rng
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from pate._core.files.reading import Json, read_yaml
from pate._core.settings import SettingsParser, canonical, encode, parts, require_classes
from pate._core.validation import (
    expecting,
    explain_os_error,
    given,
    require,
    require_given,
    require_known,
)
from pate._labeling.commands.parsing import BriefHelp, CommandParser, example
from pate._labeling.commands.stages import DESCRIPTIONS
from pate._labeling.data.records import Role
from pate._labeling.data.source import DataSource
from pate._labeling.runs.carried import Trained
from pate._labeling.runs.released import DECISION_METRICS, Metric
from pate._labeling.runs.run import STUDENT, Run, labels_file
from pate._labeling.stages.student import (
    export_or_say_why_not,
    learn,
    student_folder,
    write_figures,
)
from pate._networks.settings import require_logits, without_weights
from pate._networks.student.answers import weights_of_tensors
from pate._networks.student.training import StageBar, Student, StudentData
from pate._networks.teachers.executors import LocalCheckpoints, load_tensors

# checkpoints: to resume from, and with the lowest loss on held-out samples
_LAST, _BEST = "last", "best"
_MOST_LETTERS = 300  # of an error
_PATIENCE = 10  # evaluations without a lower loss
# warnings of Lightning about intended behavior
_KNOWN = (
    "LightningCLI's args parameter",
    "Checkpoint directory .* exists and is not empty",
    "`isinstance\\(treespec, LeafSpec\\)` is deprecated",
    ".*does not have many workers",
    "Total length of `DataLoader` across ranks is zero",
    # `accelerator: cpu`, as asked
    "GPU available but not used",
    # training is stopped by held-out samples
    "`max_epochs` was not set",
    # a few released labels are a few batches
    "The number of training batches .* is smaller than the logging interval",
)
_TALKATIVE = (
    "pytorch_lightning.utilities.rank_zero",
    "pytorch_lightning.trainer.connectors.signal_connector",
    "lightning_fabric.utilities.seed",
)
_LOSS = "val_loss"
_CHECKPOINT = "a checkpoint of tensors, numbers and texts alone"
_STEPS, _BATCH = 3, 8  # of a rehearsal
_GROWTH = 1e6  # of outputs in so few steps, far more than any rate that trains a network makes
_LEAVES_NONE = (
    "max_epochs",
    "max_steps",
    "limit_train_batches",
    "limit_test_batches",
    "enable_checkpointing",
)
"""Settings of a trainer that leave no student, or no figures of it, at 0."""
_SETTINGS = ("seed_everything", "trainer", "model", "data", "optimize")

_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "--seed_everything": {
        "type": bool | int,
        "default": 0,
        "help": "seed of all random numbers without one of their own; true for a random seed",
    },
    "--run": {"type": Path, "required": True, "help": "folder of the run"},
    "--optimize": {
        "type": Metric,
        "default": "accuracy",
        "help": "the figure that decisions serve: cuts for F1 are chosen by public samples, at no"
        " cost",
    },
    "--overwrite": {"action": "store_true", "help": "train again if the settings changed"},
}


class StudentCLI(LightningCLI):
    """`pate student`: LightningCLI on the released labels of a run.

    Checkpoints, logs and results go to ``public/student``. After an interruption, training
    continues from its last checkpoint.

    Training stops ten epochs after the lowest loss on held-out released labels or shares, and the
    network of that loss is kept. An ``EarlyStopping`` in ``trainer.callbacks`` replaces this rule.

    Args:
        args: a subcommand and its options, as from a command line; or plain data: ``subcommand``
            and the configuration under its name.
        parser_class: the class of the parsers.
        opened: the run, with its source; None for the run that the options name.
        parser_kwargs: further arguments of the parsers.
    """

    def __init__(
        self,
        args: list[str] | Json,
        parser_class: type[LightningArgumentParser] = LightningArgumentParser,
        *,
        opened: Run | None = None,
        **parser_kwargs: Any,
    ) -> None:
        self._opened = opened
        self._asked = args[0] if isinstance(args, list) else args["subcommand"]
        for name in _TALKATIVE:
            logging.getLogger(name).setLevel(logging.WARNING)
        for message in _KNOWN:
            warnings.filterwarnings("ignore", message)
        with expecting("settings that fit Lightning and this machine", MisconfigurationException):
            super().__init__(
                Student,
                StudentData,
                args=args,
                auto_configure_optimizers=False,
                save_config_callback=None,
                parser_class=parser_class,
                parser_kwargs={"prog": "pate student", **parser_kwargs},
            )

    def subcommands(self) -> dict[str, set[str]]:  # type: ignore[override]
        """Return the requested one: the parsers of all would take a third of a small run."""
        # checkpoints are always read as data, and figures printed by us
        return {
            name: skipped | {"weights_only", "verbose"}
            for name, skipped in LightningCLI.subcommands().items()
            if name == self._asked
        }

    def add_default_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the options of the run."""
        for name, arguments in _OPTIONS.items():
            parser.add_argument(name, **arguments)

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Link arguments of the model to the data."""
        parser.link_arguments("optimize", "model.optimize")
        parser.link_arguments("run", "data.run")
        parser.link_arguments("data.input_shape", "model.input_shape", apply_on="instantiate")
        for name in ("label_names", "constants"):
            parser.link_arguments(f"data.{name}", f"model.{name}", apply_on="instantiate")

    @cached_property
    def run(self) -> Run:
        """The run."""
        return self._opened or Run(self._parsed["run"], overwrite=self._parsed["overwrite"])

    def before_instantiate_classes(self) -> None:
        """Give the data the open run, whose source is read already.

        Raises:
            ValueError: if a function that is no factory of its setting stands for an object.
        """
        require_classes(self._parser(self.subcommand), self._parsed)

        def of_run(kind: type[StudentData], **settings: Any) -> StudentData:
            return kind(**settings | {"run": self.run})

        def in_folder(kind: type[Logger], **settings: Any) -> Logger:
            if settings.get("save_dir", "") is None:
                settings["save_dir"] = self.run.private / "student"  # paths are not to publish
            with expecting(f"the package that {kind.__name__} needs", ImportError):
                return kind(**settings)

        self.parser.add_instantiator(in_folder, Logger, prepend=True)
        if self._opened is not None:
            self.parser.add_instantiator(of_run, StudentData, prepend=True)

    @cached_property
    def settings(self) -> Json:
        """The settings of the student as plain data, with every class by its one path."""
        content: Json = read_yaml(
            self._parser(self.subcommand).dump(self._parsed, skip_unset=False)
        )
        return {name: canonical(content[name]) for name in _SETTINGS}

    @property
    def _parsed(self) -> Any:
        return self.config[self.subcommand]

    @property
    def folder(self) -> Path:
        """The student's folder."""
        return student_folder(self.run)

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Return the trainer, which writes to the run's folder."""
        trainer = self._get(self.config_init, "trainer")
        require(
            not trainer["fast_dev_run"],
            "no trainer.fast_dev_run, which leaves no student: `pate run --dry_run` rehearses all"
            " stages, and spends nothing",
            fast_dev_run=trainer["fast_dev_run"],
        )
        if trainer["default_root_dir"] is None:
            kwargs["default_root_dir"] = self.folder
        if trainer["logger"] in (None, True):
            kwargs["logger"] = self.subcommand == "fit" and CSVLogger(
                self.folder, name="logs", flush_logs_every_n_steps=1
            )
        if trainer["enable_model_summary"] is None:
            kwargs["enable_model_summary"] = False
        plugins = trainer["plugins"] or []
        if not parts(plugins, CheckpointIO):
            listed = plugins if isinstance(plugins, list | tuple) else [plugins]
            kwargs["plugins"] = [*listed, LocalCheckpoints()]
        given = trainer["callbacks"]
        callbacks: list[Callback] = []
        if trainer["enable_progress_bar"] is not False and not parts(given, ProgressBar):
            callbacks.append(StageBar())
        optimize, held_out = self.model.optimize, self.datamodule.num_held_out
        compared = held_out > 0 and trainer["limit_val_batches"] != 0
        require(
            compared or optimize == "accuracy",
            f"held-out samples to choose cuts for {optimize} by, --data.val_fraction > 0",
            held_out=held_out,
        )
        if trainer["enable_checkpointing"] is not False:
            callbacks += [
                ModelCheckpoint(self.folder, name, monitor=loss, enable_version_counter=False)
                # a command that was killed goes on from the last one, which must know the best
                for name, loss in (*([(_BEST, _LOSS)] if compared else []), (_LAST, None))
            ]
        if compared and not parts(given, EarlyStopping):
            callbacks.append(EarlyStopping(_LOSS, patience=_PATIENCE))
        self.trainer_defaults["callbacks"] = callbacks
        made = super().instantiate_trainer(**kwargs)
        require(
            not isinstance(made.strategy.launcher, _SubprocessScriptLauncher),
            "trainer.devices=1, or trainer.strategy=ddp_spawn: processes of others run the command"
            " again",
            devices=made.world_size,
            strategy=type(made.strategy).__name__,
        )
        return made

    def fit(self, model: Student, ckpt_path: str | None = None, **kwargs: Any) -> None:
        """Train the student, from its last checkpoint if there is one."""
        run, source = self.run, self.datamodule.source
        if run.overwrite or not run.is_finished(STUDENT):
            require_logits(model._make_network, source)
        train = partial(self._train, model, ckpt_path, **kwargs)
        learn(run, source, self.settings, train, partial(self._carry, model))

    def _train(self, model: Student, ckpt_path: str | None, **kwargs: Any) -> list[Path]:
        """Train the student and return its checkpoints."""
        start_checkpoint = self._checkpoint(_LAST) if ckpt_path is None else self._named(ckpt_path)
        if start_checkpoint is not None:
            # raises in one line where Lightning would not
            load_tensors(start_checkpoint, _CHECKPOINT)
        with _faults_of_parts(self.run):
            self.trainer.fit(model, ckpt_path=start_checkpoint, weights_only=True, **kwargs)
        if self.trainer.is_global_zero:
            weights = load_tensors(self.trained(), _CHECKPOINT)["state_dict"]
            diverged = [
                name
                for name, part in weights.items()
                if name.startswith("network.") and not torch.isfinite(part).all()
            ]
            require(
                not diverged,
                "a student of finite weights (a smaller learning rate, and `overwrite`)",
                diverged=diverged[:3],
            )
        return [*filter(None, map(self._checkpoint, (_LAST, _BEST)))]

    def _carry(self, model: Student) -> None:
        """Export the student."""
        if self.trainer.is_global_zero:
            export_or_say_why_not(
                self.run,
                partial(self._trained_student, model),
                self.datamodule.source,
                weights_of_tensors,
            )

    def _trained_student(self, model: Student) -> Trained:
        checkpoint = load_tensors(self.trained(), _CHECKPOINT)
        model.on_load_checkpoint(checkpoint)
        model.load_state_dict(checkpoint["state_dict"])
        return Trained(
            network=without_weights(self.settings["model"]["network"], model.network),
            state=model.network.state_dict(),
            departs=model.departs.cpu().numpy(),
            constant_logits=model.constant_logits.float().cpu().numpy(),
            label_names=model.label_names,
            optimize=model.optimize,
            cuts=model.cuts[DECISION_METRICS.index(model.optimize)].float().cpu().numpy(),
        )

    def test(self, model: Student, ckpt_path: str | None = None, **kwargs: Any) -> None:
        """Evaluate the student on the test set, and write ``metrics.json``."""
        path = self._named(ckpt_path)
        self.trainer.test(model, ckpt_path=path, weights_only=True, verbose=False, **kwargs)
        write_figures(
            self.folder,
            model.test_report,
            model.constant_logits.float().cpu().numpy(),
            self.datamodule.source,
            optimize=model.optimize,
        )

    def _checkpoint(self, name: str) -> Path | None:
        path = self.folder / f"{name}.ckpt"
        return path if path.is_file() else None

    def trained(self) -> Path:
        """Return the checkpoint with the lowest loss on held-out samples, or else the last one.

        Raises:
            ValueError: if it is missing.
        """
        path = self._checkpoint(_BEST) or self._checkpoint(_LAST)
        return require_given(path, f"a checkpoint in {self.folder}, or one named by --ckpt_path")

    def _named(self, checkpoint: str | None) -> Path:
        """Return the file of ``--ckpt_path``: ``best``, ``last`` or a path. None means ``best``.

        Raises ``ValueError`` if there is none.
        """
        if checkpoint in (None, _BEST):
            return self.trained()
        path = self.folder / f"{_LAST}.ckpt" if checkpoint == _LAST else Path(str(checkpoint))
        require(
            path.is_file(),
            f"a checkpoint of the run: {_BEST}, {_LAST} or the path of one",
            ckpt_path=checkpoint,
        )
        load_tensors(path, _CHECKPOINT)  # raises in one line where Lightning would not
        return path

    def _parse_ckpt_path(self) -> None:
        """Do nothing: settings come from the run, not from the checkpoint as in Lightning."""


class StudentSettings(StudentCLI):
    """Parses the settings of a command of `StudentCLI`, without making or running anything."""

    def instantiate_classes(self) -> None:
        """Make nothing."""

    def _run_subcommand(self, subcommand: str) -> None:
        """Run nothing."""


@contextmanager
def _faults_of_parts(run: Run) -> Iterator[None]:
    """Turn an error of a callback or a logger into one line, with the command that goes on.

    One that monitors what is not logged is named by Lightning.
    """
    try:
        yield
    except Exception as error:
        said, part = " ".join(str(error).split()), _failed_part(error)
        if "conditioned on metric" in said or "monitor=" in said:
            wanted = f"callbacks that monitor what the student logs, such as {_LOSS}, got {said}"
            raise ValueError(f"Expected {wanted}") from None
        if part is None or explain_os_error(error) is not None:
            raise
        place = f"--config {run.root / STUDENT.config} --run {run.root}"
        raise ValueError(
            f"Expected callbacks and loggers that let the student train, got {part}"
            f" ({type(error).__name__}: {said[:_MOST_LETTERS]}). The labels are in"
            f" {labels_file(run)}; `pate student fit {place}` goes on"
        ) from error


def _failed_part(error: BaseException) -> str | None:
    """Return the method of a callback or logger of others that raised an error. None for others."""
    name, trace = None, error.__traceback__
    while trace is not None:
        owner = trace.tb_frame.f_locals.get("self")
        if isinstance(owner, Callback | Logger) and not type(owner).__module__.startswith("pate."):
            name = f"{type(owner).__name__}.{trace.tb_frame.f_code.co_name}"
        trace = trace.tb_next
    return name


def encode_makers(**makers: Any) -> Json:
    """Return the makers of a network, its optimizer and schedule as plain data, leaving out None.

    Raises ``ValueError`` in one line if a file could not hold it.
    """
    kinds: dict[str, Any] = {
        "network": Callable[[tuple[int, ...], int], nn.Module],
        "optimizer": Callable[[Any], Optimizer],
        "scheduler": Callable[[Optimizer], LRScheduler],
    }
    return {name: encode(kinds[name], made) for name, made in makers.items() if made is not None}


def run_student(name: str, run: Run, content: Json, kind: type[StudentCLI] = StudentCLI) -> None:
    """Run a command of `StudentCLI` without changing the random state or the warning filters.

    Raises ``ValueError`` in one line if the settings do not fit.
    """
    arguments = {
        "subcommand": name,
        name: content | {"run": str(run.root), "overwrite": run.overwrite},
    }
    wrong = expecting("settings of a student", ArgumentError)
    with isolate_rng(), warnings.catch_warnings(), wrong:
        kind(arguments, opened=run, exit_on_error=False, parser_class=_PlainParser)


def _largest_output(model: Student, source: DataSource) -> float:
    """Return the largest absolute output of a network on public samples."""
    samples = source.records(Role.PUBLIC).features
    first, training = next(model.network.parameters()), model.network.training
    inputs = torch.as_tensor(samples[np.arange(samples.shape[0])], device=first.device)
    model.network.eval()
    with torch.no_grad():
        outputs = model.network(inputs.to(first.dtype))
    model.network.train(training)
    return float(outputs.abs().max())


def rehearse_student(run: Run, content: Json) -> None:
    """Train, export and test a student of the labels of a rehearsal, by a few batches.

    Callbacks and loggers are made, but see nothing.

    Args:
        run: the run of the rehearsal, with its source.
        content: the settings of `pate student fit`.

    Raises:
        ValueError: in one line, if these settings leave no student with figures.
    """
    trainer: Json = content.get("trainer") or {}
    every, epochs = trainer.get("check_val_every_n_epoch") or 1, trainer.get("max_epochs") or -1
    require(
        epochs < 0 or every <= epochs,
        f"trainer.check_val_every_n_epoch <= {epochs}, the epochs, or none leaves a student",
        check_val_every_n_epoch=every,
    )
    require(
        not isinstance(trainer.get("max_time"), str) or trainer["max_time"].strip("0:"),
        "a trainer that leaves a student with figures",
        max_time=trainer.get("max_time"),
    )
    # a step may leave weights that are finite, and large enough for the next one to overflow
    limits = {"limit_train_batches": _STEPS, "limit_val_batches": 1, "limit_test_batches": 1}
    brief: Json = {
        **{name: 0 if trainer.get(name) == 0 else value for name, value in limits.items()},
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "min_epochs": None,
        "min_steps": None,
        "num_sanity_val_steps": 0,
        "check_val_every_n_epoch": 1,
        "val_check_interval": None,
        "overfit_batches": 0.0,
    }

    class Rehearsal(StudentCLI):
        def instantiate_trainer(self, **kwargs: Any) -> Trainer:
            made = super().instantiate_trainer(**kwargs)
            callbacks: list[Callback] = made.callbacks  # type: ignore[attr-defined]
            self.watched = {
                monitor for each in callbacks if (monitor := getattr(each, "monitor", None))
            }
            own = [each for each in callbacks if each in self.trainer_defaults["callbacks"]]
            # settings of several processes are checked; one process suffices for the rest
            if made.world_size > 1:
                one: Json = {"accelerator": "cpu", "devices": 1, "max_epochs": made.max_epochs}
                made = Trainer(plugins=[LocalCheckpoints()], **one, **brief)
            # a network may read the number of epochs, of which the first is enough
            stop = LambdaCallback(on_train_epoch_end=lambda t, _: setattr(t, "should_stop", True))
            made.callbacks = [  # type: ignore[attr-defined]
                *(each for each in own if isinstance(each, ModelCheckpoint)),
                stop,
            ]
            # a network may log by the experiment of a logger, and write to its folder
            places = dict.fromkeys(("save_dir", "root_dir", "log_dir"), str(self.folder))
            made.loggers = [
                each
                if each.save_dir == str(self.folder)
                else type("Silent", (DummyLogger,), places)()
                for each in made.loggers
            ]
            return made

        def fit(self, model: Student, ckpt_path: str | None = None, **kwargs: Any) -> None:
            super().fit(model, ckpt_path, **kwargs)
            require_known("metrics to monitor", sorted(self.watched), self.trainer.callback_metrics)
            self.test(model, datamodule=self.datamodule)
            self._require_left(bool(model.test_report))

        def _train(self, model: Student, *args: Any, **kwargs: Any) -> list[Path]:
            source, network = self.datamodule.source, model.network
            before, weights = _largest_output(model, source), deepcopy([*network.parameters()])
            files = super()._train(model, *args, **kwargs)
            same = all(map(torch.equal, weights, network.parameters()))
            require(
                not same or self.trainer.lr_scheduler_configs,  # may begin with a rate of 0
                f"a student whose weights change in {_STEPS} steps (its learning rate, and the loss"
                " that training_step returns)",
                network=type(network).__name__,
            )
            after = _largest_output(model, source)
            require(
                after <= _GROWTH * (1 + before),
                f"a student whose outputs stay small in {_STEPS} steps (a smaller learning rate)",
                largest=after,
            )
            return files

        def trained(self) -> Path:
            left = self._checkpoint(_LAST) is not None and self.trainer.global_step > 0
            self._require_left(left)
            return super().trained()

        def _require_left(self, left: bool) -> None:
            none = {
                name: value
                for name, value in trainer.items()
                if name in _LEAVES_NONE and value is not None and not value
            }
            require(left, "a trainer that leaves a student with figures", **none)

    data: Json = content.get("data") or {}
    data = data | {"batch_size": min(data.get("batch_size", _BATCH), _BATCH)}
    run_student("fit", run, content | {"trainer": trainer | brief, "data": data}, Rehearsal)


_OF_LOGGERS: Json = {"save_dir": None, "offline": True}


class _PlainParser(SettingsParser, LightningArgumentParser):
    """A parser of settings as plain data, in which a logger needs no folder, and sends nothing."""

    def add_class_arguments(self, theclass: Any, *args: Any, **options: Any) -> list[str]:
        """Add the arguments of a class, with other defaults of a logger."""
        added = super().add_class_arguments(theclass, *args, **options)
        of_logger = isinstance(theclass, type) and issubclass(theclass, Logger)
        for action in self._actions if of_logger else ():
            if action.dest in _OF_LOGGERS:
                action.required, action.default = False, _OF_LOGGERS[action.dest]
        return added


class _StudentParser(CommandParser, _PlainParser):
    """The parser of `pate student fit` and `test`."""


def read_network(command: str, args: Sequence[str]) -> tuple[Any, Json]:
    """Return all options of `pate student fit` or `test`, and its settings as plain data.

    The settings include a checkpoint that is named. Ends with status 2 on a wrong option.
    """
    description = {"description": DESCRIPTIONS[command], "epilog": example(f"student {command}")}
    options: dict[str, Any] = {"formatter_class": BriefHelp, command: description}
    read = StudentSettings([command, *args], parser_class=_StudentParser, **options)
    return read._parsed, read.settings | given(ckpt_path=read._parsed.ckpt_path)
