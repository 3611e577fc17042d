"""The command `pate choose`."""

from collections.abc import Sequence
from pathlib import Path

from pate._commands.parsing import new_parser
from pate._files import locked
from pate._pipeline import open_run

_SUMMARY = (
    "Choose one of several students by the private records, and pay for the choice.\n\nEach teacher"
    " counts for the students that answer its own records best, and the student with most teachers"
    " is chosen with noise, as by `pate topk` with k = 1. The choice is a release like any other:"
    " its cost is in the ledger of the private data before the noise is drawn. The cost of the"
    " students' own labels was paid when they were released. The decision to choose, and its"
    " epsilon, must not depend on the results of an earlier release."
)


def main(args: Sequence[str]) -> None:
    """Run `pate choose`."""
    parser = new_parser("choose", _SUMMARY)
    parser.add_argument(
        "students",
        nargs="+",
        type=Path,
        help="folders of students, such as runs/a/public/student/model",
    )
    parser.add_argument(
        "--run", type=Path, required=True, help="folder of the run with the teachers that choose"
    )
    parser.add_argument("--output", type=Path, required=True, help="the .csv or .json to write")
    parser.add_argument(
        "--target_epsilon", type=float, required=True, help="epsilon of the choice, at delta"
    )
    parser.add_argument(
        "--delta",
        type=float,
        required=True,
        help="the delta of every epsilon, as for the labels",
    )
    parser.add_argument(
        "--by",
        type=str,
        default="accuracy",
        help="the figure that teachers compare: accuracy or micro_f1",
    )
    parser.add_argument(
        "--trust", action="store_true", help="run code of other packages that the students name"
    )
    parser.add_argument(
        "--noise_seed",
        type=int | None,
        default=None,
        help="for tests: such a choice is not private",
    )
    parsed = parser.parse_args(list(args))
    from pate._stages.model_selection import Candidates, choose_student

    with locked(parsed.run):
        candidates = Candidates(
            open_run(parsed.run), tuple(parsed.students), parsed.by, parsed.trust
        )
        statement = choose_student(
            candidates,
            target_epsilon=parsed.target_epsilon,
            delta=parsed.delta,
            output=parsed.output,
            noise_seed=parsed.noise_seed,
        )
    print(statement.text, end="")
    print(f"Release {statement['release']} of {candidates.ledger_path}: {parsed.output}")
