"""The command `pate export`."""

from functools import partial
from pathlib import Path

from pate._commands.parsing import FLAG, run_command
from pate._own_code import own_code
from pate.student._answers import ExportFormat, export_program
from pate.student._carried import load_student


def export(model: Path, *, format: ExportFormat, output: Path, trust: bool = False) -> None:
    """Write an exported student as one file for torch or ONNX Runtime.

    It includes every step between a sample and its labels.

    Args:
        model: the folder, such as runs/faces/public/student/model.
        format: onnx needs the extra of that name.
        output: the file, .pt2 for torch.export, or .onnx.
        trust: run code of other packages that the model names.
    """
    with own_code(trusted=trust):
        student = load_student(model, trust=trust)
    export_program(student, output, format=format)
    shape = ", ".join(map(str, ["N", *student.input.shape]))
    print(
        f"{format} of {student.input.kind} [{shape}], {len(student.label_names)} labels: {output}"
    )


main = partial(run_command, "export", export, special={"--trust": FLAG})
