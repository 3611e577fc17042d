"""The stage `references`: what a student is measured against. All that it leaves is PRIVATE."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pate.data.module import Role
from pate.data.source import load_data
from pate.runs import LABEL, METRICS, REFERENCES, STUDENT, TEACHERS_FIT, Run, digest, labels_file, write_json
from pate.stages import student
from pate.stages.command import make_parser, open_run, settings
from pate.stages.teachers_command import load_plan
from pate.stages.teachers_vote import count_votes
from pate.student.metrics import evaluate


def make_references(run: Run) -> None:
    """Measure, on the test set, a student of the true labels and the noiseless majority of the teachers. PRIVATE.

    Neither has any privacy: they show a user of data that may be seen what privacy costs. The student of the true
    labels is trained like the private one, on all samples that were queried.
    """
    for stage in (TEACHERS_FIT, LABEL, STUDENT):
        run.require(stage)
    inputs = {"labels": digest(labels_file(run)), "student": digest(run.root / STUDENT.config)}
    if not run.begin(REFERENCES, inputs):
        return
    folder = run.root / REFERENCES.outputs[0]
    cli = student.main(
        [
            *("--run", str(run.root), "--data.labels=truth", f"--trainer.default_root_dir={folder}"),
            *("--trainer.logger=false", "--trainer.enable_checkpointing=false"),
        ],
        run=False,
    )
    cli.trainer.fit(cli.model, datamodule=cli.datamodule)
    cli.trainer.test(cli.model, datamodule=cli.datamodule, verbose=False)
    data, plan = load_data(run), load_plan(run)
    counts = count_votes(run, data, plan, Role.TEST)
    majority = torch.from_numpy(2 * counts > plan.num_teachers)
    truth = torch.from_numpy(data.records(Role.TEST).labels)
    report = {
        "PRIVATE": "computed without privacy; not to be published",
        "true_label_student": cli.model.test_report,
        "teacher_majority": evaluate(majority, truth, data.label_names),
    }
    write_json(folder / METRICS, report)
    run.finish(REFERENCES)


def main(args: Sequence[str]) -> None:
    """Run `pate references`."""
    parser = make_parser("references", make_references, skip={"run"})
    parsed = parser.parse_args(list(args))
    make_references(open_run(parsed, settings(parser, parsed)))
