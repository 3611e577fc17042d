"""The command `pate choose`."""

from functools import partial
from pathlib import Path

from pate._commands.parsing import FLAG, run_command
from pate._files import locked
from pate._pipeline import open_run
from pate._stages.model_selection import Candidates, Figure, choose_student


def choose(
    students: list[Path],
    *,
    run: Path,
    output: Path,
    target_epsilon: float,
    delta: float,
    by: Figure = "accuracy",
    trust: bool = False,
    noise_seed: int | None = None,
) -> None:
    """Choose one of several students by the private records, and pay for the choice.

    Each teacher counts for the students that answer its own records best, and the student with most
    teachers is chosen with noise, as by `pate topk` with k = 1. The choice is a release like any
    other: its cost is in the ledger of the private data before the noise is drawn. The cost of the
    students' own labels was paid when they were released. The decision to choose, and its epsilon,
    must not depend on the results of an earlier release.

    Args:
        students: folders of students, such as runs/a/public/student/model.
        run: folder of the run with the teachers that choose.
        output: the .csv or .json to write.
        target_epsilon: epsilon of the choice, at delta.
        delta: the delta of every epsilon, as for the labels.
        by: the figure that teachers compare, accuracy or micro_f1.
        trust: run code of other packages that the students name.
        noise_seed: for tests. Such a choice is not private.
    """
    with locked(run):
        candidates = Candidates(open_run(run), tuple(students), by, trust)
        statement = choose_student(
            candidates,
            target_epsilon=target_epsilon,
            delta=delta,
            output=output,
            noise_seed=noise_seed,
        )
    print(statement.text, end="")
    print(f"Release {statement['release']} of {candidates.ledger_path}: {output}")


main = partial(
    run_command,
    "choose",
    choose,
    special={"students": {"nargs": "+", "type": Path}, "--trust": FLAG},
)
