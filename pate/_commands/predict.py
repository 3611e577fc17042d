"""The command `pate predict`."""

import sys
from collections.abc import Sequence
from pathlib import Path

from pate._commands.parsing import new_parser
from pate._own_code import own_code
from pate.student._carried import load_student
from pate.student._predictions import Unreadable, predict_files

_SUMMARY = (
    "Predict the labels of new pictures, texts or arrays with an exported student, offline."
    " The predictions cost no privacy: they follow from released labels."
)


def main(args: Sequence[str]) -> None:
    """Run `pate predict`."""
    parser = new_parser("predict", _SUMMARY)
    parser.add_argument(
        "model", type=Path, help="the folder, such as runs/faces/public/student/model, or its run"
    )
    parser.add_argument(
        "source",
        type=Path,
        help="a folder of pictures, an .npz with X [N, ...] and, if any, ids, or a .csv or .parquet"
        " with the columns of training",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("predictions.csv"),
        help="a .csv, or an .npz with probabilities too",
    )
    parser.add_argument(
        "--unreadable",
        type=Unreadable,
        default="refuse",
        help="the treatment of unreadable pictures",
    )
    parser.add_argument(
        "--probabilities", type=bool, default=False, help="write probabilities to the .csv, not 0/1"
    )
    parser.add_argument("--batch_size", type=int, default=256, help="samples at a time")
    parser.add_argument("--device", type=str, default="cpu", help="where to compute, such as cuda")
    parser.add_argument(
        "--trust", action="store_true", help="run code of other packages that the model names"
    )
    parsed = parser.parse_args(list(args))
    with own_code(trusted=parsed.trust):
        student = load_student(parsed.model, device=parsed.device, trust=parsed.trust)
    num_samples, skipped, unknown = predict_files(
        student,
        parsed.source,
        parsed.output,
        unreadable=parsed.unreadable,
        probabilities=parsed.probabilities,
        batch_size=parsed.batch_size,
    )
    for line in (*(f"left out: {picture}" for picture in skipped), *unknown):
        print(line, file=sys.stderr)
    left_out = f", {len(skipped)} left out" if skipped else ""
    print(f"{num_samples} samples, {len(student.label_names)} labels{left_out}: {parsed.output}")
