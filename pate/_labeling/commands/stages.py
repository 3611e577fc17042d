"""The commands of single stages, and of students that left their runs.

In the order of a run: `pate teachers fit` and `vote`, `pate label` with votes from here or
elsewhere, and `pate student`. A stage of networks imports Lightning, which takes seconds: it is
found once a network is named. Then `pate predict`, for the samples in a folder, a table or an
archive, and `pate export`.
"""

import csv
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jsonargparse import Namespace
from numpy.typing import NDArray
from PIL import Image

from pate._core.files.reading import Json, read_arrays
from pate._core.files.writing import (
    atomic_write,
    cell,
    output_errors,
    require_new,
    write_arrays,
)
from pate._core.package import MissingExtraError, find
from pate._core.validation import (
    AwaitedError,
    Float32Array,
    UInt8Array,
    require,
    require_count,
    stage_bar,
)
from pate._labeling.commands.parsing import (
    DATA,
    FLAG,
    RUN,
    CommandParser,
    add_options,
    from_options,
    function_parser,
    named_before,
    new_parser,
    run_command,
    settings_of,
    shows_help,
    with_saved,
    with_saved_data,
)
from pate._labeling.data.label_table import is_table, read_columns
from pate._labeling.data.pictures import FORMATS
from pate._labeling.data.records import as_text
from pate._labeling.data.source import OPTIONAL, DataSource
from pate._labeling.data.tables import ColumnEncoding, encode_table, unknown_levels
from pate._labeling.linear import LINEAR, is_linear
from pate._labeling.plan import RunPlan
from pate._labeling.release.label_settings import LabelSettings
from pate._labeling.release.labels import StatedLabels, label as release_labels
from pate._labeling.runs.carried import ExportedStudent, ExportFormat, InputFormat, load_student
from pate._labeling.runs.run import MODEL, STUDENT
from pate._labeling.stages.student import LinearPlan
from pate._labeling.stages.votes_import import votes_from
from pate._labeling.teachers import CLOSED_FORM, ClosedFormPlan, Execution
from pate._labeling.votes.kinds import Voting


def teachers_fit(args: Sequence[str]) -> None:
    """Run `pate teachers fit`."""
    options, plan, _ = read_teachers_fit(args)
    RunPlan(
        options.run,
        options.data,
        teachers=plan,
        execution=from_options(Execution, options),
        ledger=options.ledger,
        overwrite=options.overwrite,
    ).fit_teachers(dry_run=options.dry_run)


def read_teachers_fit(args: Sequence[str]) -> tuple[Namespace, Any, Json]:
    """Return the settings of `pate teachers fit`: all options, its plan, and both as plain data.

    Ends with status 2 on a wrong option.
    """
    in_closed_form = named_before("fit", args) == CLOSED_FORM
    parser = _fit_parser(in_closed_form, listed=shows_help(args))
    parsed = parser.parse_args(with_saved_data(args))
    options = parser.instantiate(parsed)
    kind = ClosedFormPlan if in_closed_form else find("TeacherPlan")
    return options, from_options(kind, options), settings_of(parser, parsed)


def _fit_parser(in_closed_form: bool, *, listed: bool) -> CommandParser:
    """Return the parser of trained networks, or of teachers in closed form with other settings.

    If its options are only ``listed``, classes of networks and optimizers are not imported.
    """
    parser = new_parser(
        "teachers fit",
        "Train the teachers, each on its own partition of the private data.\n\nIf it is killed and"
        " started again, the stage continues where it stopped, with the same result bit for bit."
        " The place of training (threads, workers, executor, gpus) does not affect the"
        " result, and may change in between. With --fit closed_form each record, group or part is a"
        " linear teacher without training; --fit closed_form --help lists its settings.",
    )
    parser.add_argument(
        "--fit",
        type=Literal["steps", "closed_form"],
        default=CLOSED_FORM if in_closed_form else "steps",
        help="networks by ``steps`` of training, or linear teachers in ``closed_form``",
    )
    if in_closed_form:
        parser.add_class_arguments(ClosedFormPlan, as_group=False)
        parser.elsewhere = _needs_training
    else:
        if not listed:
            find("fit_teachers")  # short names of optimizers are known by an import
        parser.add_class_arguments(find("TeacherPlan"), as_group=False)
        parser.add_class_arguments(Execution, as_group=False)
    dry_run = {
        **FLAG,
        "help": "print the sizes of partitions (PRIVATE), and the memory and disk of training;"
        " write nothing",
    }
    add_options(parser, {**RUN, **DATA, "--dry_run": dry_run})
    return parser


def settings_of_networks() -> list[str]:
    """Return the names of the settings of trained teachers; none where their zone is not there."""
    with suppress(MissingExtraError):
        return [field.name for field in fields(find("TeacherPlan"))]
    return []


def _needs_training(option: str) -> str | None:
    known = option.removeprefix("--") in settings_of_networks()
    return f"--fit steps with {option}" if known else None


def teachers_vote(args: Sequence[str]) -> None:
    """Run `pate teachers vote`."""
    parser = new_parser(
        "teachers vote",
        "Let the teachers vote on every public sample; each teacher's votes are kept.\n\nThe number"
        " of teachers is a public constant: an absent teacher, such as a silo that stays away,"
        " casts no vote but is still counted.",
    )
    parser.add_class_arguments(Execution, as_group=False)
    add_options(
        parser,
        {
            "--votes": {
                "type": Voting | None,
                "default": None,
                "help": "``bits``, the decisions of the teachers, which every aggregator reads;"
                " ``scores``, their probabilities, for ScoreVotes; or ``quantile_bits``, each"
                " label for the same share of samples as of a teacher's own records. By default as"
                " before, or ``bits``.",
            },
            "--absent": {
                "type": list[int] | None,
                "default": None,
                "help": "numbers, from 0, of the teachers that take no part: their ballots are"
                " rows of zeros. Like the votes, this list is PRIVATE.",
            },
            **RUN,
        },
    )
    parsed = parser.parse_args(args)
    RunPlan(
        parsed.run,
        votes=parsed.votes,
        absent=parsed.absent,
        execution=from_options(Execution, parsed),
        overwrite=parsed.overwrite,
    ).vote()


_HELP = "help"
"""The origin for which `_add_votes` adds the options of all origins."""

_OF_VOTES: dict[str, tuple[Any, str]] = {
    "votes": (
        Path | None,
        "votes cast elsewhere, in place of the votes of `pate teachers vote`: an .npz with ids"
        " [N], label_names [C], either ballots [N, T, C], scores [N, T, C] or counts [N, C] with"
        " num_teachers, and features [N, F] if the aggregator needs them, or a folder with one such"
        " file for each silo. PRIVATE; copied to the run's private folder",
    ),
    "silos": (
        Path | None,
        "in place of --votes: a folder through which silos send shares of noisy counts, by `pate"
        " silo`",
    ),
    "unit": (
        str | None,
        "with --votes or --silos: the statement's word for the unit that reaches one teacher"
        " (default: the run's, or record)",
    ),
    "data": (
        DataSource | None,
        "with --votes or --silos: source of the public and test records for a student, as in"
        " --config data.yaml; private ones are not needed",
    ),
    "ledger": (
        Path | None,
        "with --votes: ledger of the private data behind the votes, shared by all runs on them;"
        " None for one next to a file of votes, or in a folder of them; with"
        " --silos for the run's own",
    ),
    "teachers": (
        dict[str, int] | None,
        "with --silos: the public number of teachers of each, as in --teachers.north 60"
        " --teachers.south 80",
    ),
    "public_keys": (
        Path | None,
        "with --silos: a folder with NAME.pub, the public key of each silo, from `pate silo key`",
    ),
    "signing_key": (
        Path | None,
        "with --silos: the server's own signing key, from `pate silo key`. PRIVATE",
    ),
    "without": (
        list[str] | None,
        "with --silos: names of silos that dropped out, such as [west], to leave out of the sum",
    ),
    "wait": (
        float | None,
        "with --silos: seconds to wait for others, 0 to do only the steps that are possible now;"
        " None for no limit",
    ),
}
_FROM: dict[str, tuple[str, ...]] = {"votes": ("unit", "data", "ledger"), "silos": tuple(_OF_VOTES)}
"""The options of each origin of votes. The votes of the run's own teachers need none."""


def _votes_from_where(args: Sequence[str]) -> str | None:
    """Return the option with the origin of votes, ``votes`` or ``silos``. None for own teachers.

    Raises ``ValueError`` if both are given.
    """
    values = {name: named_before(name, args) for name in _FROM}
    named = {name: value for name, value in values.items() if value not in (None, "null")}
    require(len(named) < 2, "--votes or --silos, not both", **named)
    return next(iter(named), None)


def _add_votes(parser: CommandParser, origin: str | None) -> None:
    """Add the options of votes from an ``origin``, or from all origins for a page of help."""
    elsewhere = {}
    for name, (kind, text) in _OF_VOTES.items():
        origins = [f"--{place}" for place, names in _FROM.items() if name in names]
        if origin == _HELP or name in _FROM or name in _FROM.get(origin or "", ()):
            parser.add_argument(f"--{name}", type=kind, default=None, help=text)
        else:
            elsewhere[f"--{name}"] = f"{' or '.join(origins)} with --{name}"
    parser.elsewhere = elsewhere.get


def label(args: Sequence[str]) -> None:
    """Run `pate label`."""
    try:
        released = _released(args)
    except AwaitedError as error:
        print(f"Waiting for {error}. Nothing is lost: the same command continues from here.")
    else:
        print(released.describe(), end="")
        for line in released.advice:
            print(line)


def _released(args: Sequence[str]) -> StatedLabels:
    origin = _HELP if shows_help(args) else _votes_from_where(args)
    parser = _label_parser(origin)
    # votes from elsewhere come with the data that the run has
    parsed = parser.parse_args(args if origin is None else with_saved_data(args))
    options = parser.instantiate(parsed)
    plan = RunPlan(
        options.run,
        options.get("data"),
        labels=from_options(LabelSettings, options),
        ledger=options.get("ledger"),
        overwrite=options.overwrite,
    )
    if origin is None:
        return plan.execute()
    if origin == "votes":
        return replace(plan, imported=votes_from(options.votes, unit=options.unit)).execute()
    require(options.teachers, "--teachers with a number for each silo", teachers=options.teachers)
    keys = {"public_keys": options.public_keys, "signing_key": options.signing_key}
    require(
        None not in keys.values(),
        "--public_keys of the silos and the server's --signing_key",
        **keys,
    )
    request = find("SiloSum")(
        exchange=options.silos,
        teachers=options.teachers,
        **keys,
        without=options.without or (),
        wait=options.wait,
    )
    return find("label_silos")(plan, request, unit=options.unit)


def read_label(args: Sequence[str]) -> tuple[CommandParser, Namespace]:
    """Return the parser and the parsed options of labels by the votes of a recipe's own teachers.

    Ends with status 2 on a wrong option.
    """
    origin = _votes_from_where(args)
    require(
        origin is None, "labels by the votes of the recipe's own teachers", option=f"--{origin}"
    )
    parser = _label_parser(None)
    return parser, parser.parse_args(args)


def _label_parser(origin: str | None) -> CommandParser:
    skip: set[str | int] = {"run", "votes", "settings", "total"}
    parser = function_parser("label", release_labels, skip, LabelSettings)
    add_options(parser, RUN)
    _add_votes(parser, origin)
    return parser


DESCRIPTIONS = {
    "fit": "Train a student on the released labels of a run.\n\nThe network pate.models.Linear is"
    " solved in closed form, without settings of training. Any other network is trained by gradient"
    " descent and kept at the lowest loss on held-out released labels. Training that was killed"
    " resumes from its last checkpoint.",
    "test": "Evaluate the student of a run on the test set, and write metrics.json next to it."
    "\n\nIts network and all other settings come from the run.",
}


def _student(command: str, args: Sequence[str]) -> None:
    """Run `pate student fit` or `pate student test`."""
    # the settings of the training apply, unless another one names its own student
    named = [word for word in args if word.partition("=")[0] in ("--config", "--model.network")]
    completed = args if command == "fit" and named else with_saved(args, STUDENT.config)
    options, content = read_student(command, completed)
    plan = RunPlan(options.run, student=content, overwrite=options.overwrite)
    if command == "fit":
        plan.fit_student()
        print(
            f"Student: {plan.root / STUDENT.outputs[0] / MODEL}. On the test set:"
            f" pate student test --run {plan.root}"
        )
        return
    for name, value in plan.test_student()["student"].items():
        if isinstance(value, float):
            print(f"test_{name:<20}{value:.4f}")


def read_student(command: str, args: Sequence[str]) -> tuple[Namespace, Json]:
    """Return all options of `pate student fit` or `test`, and its settings as plain data.

    Ends with status 2 on a wrong option.
    """
    if not _names_linear(args):
        return find("read_network")(command, args)
    parser = _linear_parser(command)
    parsed = parser.parse_args(args)
    return parsed, LinearPlan.of(settings_of(parser, parsed)).settings()


def _names_linear(args: Sequence[str]) -> bool:
    """Return whether options and files name no network, or the one in closed form.

    An option of a part of the network overrides what a file names, and Linear takes no settings.
    """
    options = {word.partition("=")[0] for word in args}
    parts = {word for word in options if word.startswith("--model.network.")} | (
        options & {"--model"}
    )
    path, *named = (
        named_before(name, args) for name in ("model.network.class_path", "model.network", "model")
    )
    if parts - {"--model.network.class_path"} or (parts and not is_linear(path)):
        return False
    network = next((value for value in (*named[:1], path, *named[1:]) if value is not None), None)
    return network is None or is_linear(network)


_OTHERS = (
    f"\n\nThese are the settings of {LINEAR}. For those of a network that is trained, name it:"
    " --model.network pate.models.MLP --help."
)


def _linear_parser(command: str) -> CommandParser:
    """Return the parser of a linear student."""
    parser = new_parser(f"student {command}", DESCRIPTIONS[command] + _OTHERS)
    parser.add_argument(
        "--model.network",
        type=str | dict[str, Any],
        required=command == "fit",
        help=f"the path {LINEAR}",
    )
    parser.add_class_arguments(LinearPlan, "data", as_group=False, skip={"optimize"})
    parser.add_class_arguments(LinearPlan, as_group=False, skip={"soft"})
    add_options(parser, RUN)
    needed = f"another network than {LINEAR}, which is solved in closed form, with"
    parser.elsewhere = {
        option: f"{needed} {option}" for option in ("--trainer", "--data", "--seed_everything")
    }.get
    return parser


student_fit = partial(_student, "fit")
student_test = partial(_student, "test")


Unreadable = Literal["refuse", "skip"]

_FORMATS = (".csv", ".npz")


_Batch = tuple[list[str], NDArray[Any] | list[str], int]
"""Some samples of a folder or an archive.

Their ids, which are file names in the folder; the samples ``[B, ...]``, as the student takes them;
and the number of samples up to the end of this batch, skipped ones included.
"""


def predict_files(
    student: ExportedStudent,
    source: Path,
    output: Path,
    *,
    unreadable: Unreadable = "refuse",
    probabilities: bool = False,
    batch_size: int = 256,
) -> tuple[int, list[str], list[str]]:
    """Write a student's answers to the samples of ``source`` to ``output``, atomically.

    Pictures are read and answered batch by batch. Only one batch is held in memory.

    Args:
        student: the student.
        source: a folder of pictures, searched recursively; or an ``.npz`` with ``X`` ``[N, ...]``
            and optionally ``ids`` ``[N]``; or a ``.csv`` or ``.parquet`` with a column ``text``, or
            one for each feature, and optionally ``id``.
        output: ``.csv`` with a line of headings, the column of ids and the labels; or ``.npz``
            with ``ids``, ``label_names``, ``probabilities`` and ``labels``.
        unreadable: whether a picture that cannot be read is an error or is skipped.
        probabilities: whether the table holds probabilities in place of 0 and 1.
        batch_size: samples at a time.

    Returns:
        The number of samples that were answered, one line for each picture that was skipped, and
        one for each column with values that are no levels of it.

    Raises:
        ValueError: in one line, if the source, a sample of it or the output cannot be used.
    """
    require_count(1, batch_size=batch_size)
    require(output.suffix in _FORMATS, "an output that ends in .csv or .npz", output=str(output))
    skipped, unknown, identity = list[str](), list[str](), "id"
    samples: NDArray[Any] | list[str]
    if source.is_dir():
        require(
            student.input.kind == "pictures",
            "an .npz of features, as the student takes",
            source=str(source),
        )
        paths = pictures_in(source)
        total = len(paths)
        batches = _read_pictures(paths, source, student.input, batch_size, unreadable, skipped)
    else:
        columns = student.input.columns
        tabular = student.input.kind in ("texts", "sentences") or columns is not None
        if tabular and is_table(source):
            samples, identity, ids, unknown = _read_table(source, columns)
        else:
            samples, ids = _read_archive(source)
        total, batches = len(ids), _rows(samples, ids, batch_size)
    write = partial(_write_table, identity) if output.suffix == ".csv" else _write_archive
    with output_errors(output), stage_bar(total, "predictions", unit="sample") as bar:

        def answered() -> Iterator[tuple[list[str], Float32Array, UInt8Array]]:
            for ids, samples, done in batches:
                yield ids, *student.answer(samples, batch_size=batch_size)
                bar.update(done - bar.n)

        return write(output, student.label_names, answered(), probabilities), skipped, unknown


def pictures_in(folder: Path) -> list[Path]:
    """Return the files in a folder and below it that have the suffix of a picture, sorted."""
    suffixes = {suffix for suffix, kind in Image.registered_extensions().items() if kind in FORMATS}
    paths = sorted(
        path for path in folder.rglob("*") if path.suffix.lower() in suffixes and path.is_file()
    )
    require(paths, f"pictures in {folder}")
    return paths


def _read_pictures(
    paths: list[Path],
    folder: Path,
    input_format: InputFormat,
    batch_size: int,
    unreadable: Unreadable,
    skipped: list[str],
) -> Iterator[_Batch]:
    """Yield readable pictures, and append the reasons why others are not to ``skipped``."""
    with ThreadPoolExecutor() as pool:
        for start in range(0, len(paths), batch_size):
            chosen = paths[start : start + batch_size]
            names, pictures = [], []
            reads = [pool.submit(input_format.read, path) for path in chosen]
            for path, read in zip(chosen, reads, strict=True):
                try:
                    pictures.append(read.result())
                    names.append(path.relative_to(folder).as_posix())
                except ValueError as error:
                    if unreadable == "refuse":
                        raise ValueError(
                            f"{error}; `unreadable=skip` leaves such files out"
                        ) from None
                    skipped.append(str(error))
            if pictures:
                yield names, np.stack(pictures), start + len(chosen)
    require(len(skipped) < len(paths), f"a readable picture in {folder}", unreadable=len(skipped))


def _read_archive(path: Path) -> tuple[NDArray[Any], list[str]]:
    arrays = read_arrays(
        path,
        ("X",),
        ("ids",),
        unread=("Y", *OPTIONAL),
        what="a folder of pictures or an .npz with X [N, ...]",
    )
    samples = arrays["X"]
    require(
        samples.ndim > 0 and len(samples) > 0, f"samples in X of {path}", shape=list(samples.shape)
    )
    ids = (
        as_text(arrays["ids"]).tolist()
        if "ids" in arrays
        else [str(row) for row in range(len(samples))]
    )
    require(
        len(ids) == len(samples),
        f"as many ids as samples in {path}",
        ids=len(ids),
        samples=len(samples),
    )
    return samples, ids


def _read_table(
    path: Path, columns: ColumnEncoding | None
) -> tuple[NDArray[Any] | list[str], str, list[str], list[str]]:
    """Return a table's samples, the name of ids, these, and lines on values that are no levels."""
    known = ColumnEncoding(("text",)) if columns is None else columns
    table = read_columns(path, known.names, encoding=known.file_encoding)
    samples = table.values["text"] if columns is None else encode_table(columns, table)
    identity = known.identity if known.identity in table.values else "id"
    ids = table.values.get(identity, [*map(str, range(len(table.lines)))])
    return samples, identity, ids, unknown_levels(known, table)


def _rows(samples: NDArray[Any] | list[str], ids: list[str], batch_size: int) -> Iterator[_Batch]:
    for start in range(0, len(ids), batch_size):
        rows = slice(start, start + batch_size)
        yield ids[rows], samples[rows], min(start + batch_size, len(ids))


_Answers = Iterator[tuple[list[str], Float32Array, UInt8Array]]


def _write_table(
    identity: str, output: Path, names: tuple[str, ...], answers: _Answers, probabilities: bool
) -> int:
    num = 0
    with atomic_write(output, "w") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow([cell(identity), *map(cell, names)])
        for ids, batch_probabilities, labels in answers:
            rows = (
                [[f"{value:.6f}" for value in row] for row in batch_probabilities.tolist()]
                if probabilities
                else labels.tolist()
            )
            table.writerows([cell(name), *row] for name, row in zip(ids, rows, strict=True))
            num += len(ids)
    return num


def _write_archive(
    output: Path, names: tuple[str, ...], answers: _Answers, probabilities: bool
) -> int:
    batch_ids, batch_probabilities, batch_labels = zip(*answers, strict=True)
    ids = np.concatenate(batch_ids)
    write_arrays(
        output,
        ids=ids,
        label_names=np.array(names),
        probabilities=np.concatenate(batch_probabilities),
        labels=np.concatenate(batch_labels),
    )
    return len(ids)


def predict(
    model: Path,
    source: Path,
    *,
    output: Path = Path("predictions.csv"),
    unreadable: Unreadable = "refuse",
    probabilities: bool = False,
    batch_size: int = 256,
    device: str = "cpu",
    trust: bool = False,
    overwrite: bool = False,
) -> None:
    """Predict the labels of new pictures, texts or arrays with an exported student, offline.

    The predictions cost no privacy: they follow from released labels.

    Args:
        model: the folder, such as runs/faces/public/student/model, or its run.
        source: a folder of pictures, an .npz with X [N, ...] and, if any, ids, or a .csv or
            .parquet with the columns of training.
        output: a .csv, or an .npz with probabilities too.
        unreadable: the treatment of unreadable pictures.
        probabilities: write probabilities to the .csv, not 0/1.
        batch_size: samples at a time.
        device: where to compute, such as cuda.
        trust: run code of other packages that the model names.
        overwrite: replace an output that is there.
    """
    require_new(output, overwrite=overwrite)
    student = load_student(model, device=device, trust=trust)
    num_samples, skipped, unknown = predict_files(
        student,
        source,
        output,
        unreadable=unreadable,
        probabilities=probabilities,
        batch_size=batch_size,
    )
    for line in (*(f"left out: {picture}" for picture in skipped), *unknown):
        print(line, file=sys.stderr)
    left_out = f", {len(skipped)} left out" if skipped else ""
    print(f"{_number(num_samples, 'sample')}, {_labels(student)}{left_out}: {output}")


def export(
    model: Path,
    *,
    format: ExportFormat,
    output: Path,
    trust: bool = False,
    overwrite: bool = False,
) -> None:
    """Write an exported student as one file for torch or ONNX Runtime.

    It includes every step between a sample and its labels.

    Args:
        model: the folder, such as runs/faces/public/student/model.
        format: onnx needs the extra of that name.
        output: the file, .pt2 for torch.export, or .onnx.
        trust: run code of other packages that the model names.
        overwrite: replace an output that is there.
    """
    require_new(output, overwrite=overwrite)
    student = load_student(model, trust=trust)
    find("export_program")(student, output, format=format)
    shape = ", ".join(map(str, ["N", *student.input.shape]))
    print(f"{format} of {student.input.kind} [{shape}], {_labels(student)}: {output}")


def _number(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _labels(student: ExportedStudent) -> str:
    return _number(len(student.label_names), "label")


predict_main = partial(
    run_command,
    "predict",
    predict,
    special=dict.fromkeys(("--trust", "--probabilities", "--overwrite"), FLAG),
)
export_main = partial(
    run_command, "export", export, special=dict.fromkeys(("--trust", "--overwrite"), FLAG)
)
