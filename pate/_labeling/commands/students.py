"""The commands on students that left their runs: `pate predict` and `export`."""

import sys
from functools import partial
from pathlib import Path

from pate._core.registry import find
from pate._labeling.commands.parsing import FLAG, run_command
from pate._labeling.student.carried import ExportedStudent, ExportFormat, load_student
from pate._labeling.student.predictions import Unreadable, predict_files


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


predict_main = partial(run_command, "predict", predict, special={"--trust": FLAG})
export_main = partial(run_command, "export", export, special={"--trust": FLAG})
