"""The command `pate export`."""

from collections.abc import Sequence
from pathlib import Path

from pate._commands.parsing import new_parser
from pate._own_code import own_code
from pate.student._carried import load_student
from pate.student._export import ExportFormat, export_program

_SUMMARY = (
    "Write an exported student as one file for torch or ONNX Runtime,"
    " including every step between a sample and its labels."
)


def main(args: Sequence[str]) -> None:
    """Run `pate export`."""
    parser = new_parser("export", _SUMMARY)
    parser.add_argument(
        "model", type=Path, help="the folder, such as runs/faces/public/student/model"
    )
    parser.add_argument(
        "--format", type=ExportFormat, required=True, help="onnx needs the extra of that name"
    )
    parser.add_argument(
        "--output", type=Path, required=True, help="the file: .pt2 for torch.export, or .onnx"
    )
    parser.add_argument(
        "--trust", action="store_true", help="run code of other packages that the model names"
    )
    parsed = parser.parse_args(list(args))
    with own_code(trusted=parsed.trust):
        student = load_student(parsed.model, trust=parsed.trust)
    export_program(student, parsed.output, format=parsed.format)
    shape = ", ".join(map(str, ["N", *student.input.shape]))
    print(
        f"{parsed.format} of {student.input.kind} [{shape}], {len(student.label_names)} labels:"
        f" {parsed.output}"
    )
