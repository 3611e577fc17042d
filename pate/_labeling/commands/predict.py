"""The commands `pate predict` and `export`, of students that left their runs.

Predictions are for the samples in a folder, a table or an archive.
"""

import csv
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pate._core.files.reading import read_arrays
from pate._core.files.writing import atomic_write, cell, output_errors, write_arrays
from pate._core.package import find
from pate._core.progress import stage_bar
from pate._core.validation import Float32Array, UInt8Array, require, require_count
from pate._labeling.commands.parsing import FLAG, run_command
from pate._labeling.data.arrays import OPTIONAL, is_sparse, read_sparse
from pate._labeling.data.label_table import is_table, read_columns
from pate._labeling.data.pictures import FORMATS
from pate._labeling.data.records import as_text
from pate._labeling.data.tables import ColumnEncoding, encode_table, unknown_levels
from pate._labeling.runs.carried import ExportedStudent, ExportFormat, InputFormat, load_student

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
            and optionally ``ids`` ``[N]``, or of `scipy.sparse.save_npz`; or a ``.csv`` or
            ``.parquet`` with a column ``text``, or one for each feature, and optionally ``id``.
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
    skipped: list[str] = []
    unknown: list[str] = []
    samples: NDArray[Any] | list[str]
    identity = "id"
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
    if is_sparse(path):
        matrix = read_sparse(path)
        return matrix, [str(row) for row in range(matrix.shape[0])]
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
    """
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


def export(model: Path, *, format: ExportFormat, output: Path, trust: bool = False) -> None:
    """Write an exported student as one file for torch or ONNX Runtime.

    It includes every step between a sample and its labels.

    Args:
        model: the folder, such as runs/faces/public/student/model.
        format: onnx needs the extra of that name.
        output: the file, .pt2 for torch.export, or .onnx.
        trust: run code of other packages that the model names.
    """
    student = load_student(model, trust=trust)
    find("export_program")(student, output, format=format)
    shape = ", ".join(map(str, ["N", *student.input.shape]))
    print(f"{format} of {student.input.kind} [{shape}], {_labels(student)}: {output}")


def _number(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _labels(student: ExportedStudent) -> str:
    return _number(len(student.label_names), "label")


predict_main = partial(
    run_command, "predict", predict, special={"--trust": FLAG, "--probabilities": FLAG}
)
export_main = partial(run_command, "export", export, special={"--trust": FLAG})
