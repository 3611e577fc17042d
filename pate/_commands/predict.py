"""The command `pate predict`."""

import sys
from functools import partial
from pathlib import Path

from pate._commands.parsing import FLAG, run_command
from pate._own_code import own_code
from pate.student._carried import load_student
from pate.student._predictions import Unreadable, predict_files


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
    with own_code(trusted=trust):
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
    print(f"{num_samples} samples, {len(student.label_names)} labels{left_out}: {output}")


main = partial(run_command, "predict", predict, special={"--trust": FLAG})
