"""A run that proves itself: law and isolation, tested on made-up records before anything is spent.

Private records are neither read nor imitated: those of the copy are public samples with random
labels. So the outcome is public, and costs nothing.
"""

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np

from pate._audit.altered import MadeUp
from pate._audit.isolation import isolation_tests, shortened
from pate._audit.releases import law_tests, moments_tests, without_budget
from pate._audit.tables import VERDICTS, Verdict, scratch, text_of, verdict_of
from pate._closed_form_plan import FIRST, ClosedFormPlan, Plan
from pate._files import write_text
from pate._pipeline import Pipeline
from pate._release.label_settings import LabelSettings
from pate._release.public_samples import SampleSettings
from pate._runs import Run
from pate._stages.student_stage import StudentPlan
from pate._votes import Voting
from pate.data import DataSource, DrawnPublic, Role

PROOF = "proof.txt"
"""The file of the tables, in the folder of a run."""


def prove(
    root: Path,
    data: DataSource,
    plan: Plan,
    settings: LabelSettings,
    *,
    voting: Voting | None = None,
    first: LabelSettings | None = None,
    samples: SampleSettings | None = None,
) -> Verdict:
    """Test law and isolation on a copy of a run with made-up records; return the verdict.

    Args:
        root: the run's folder, in which a file with both tables is left.
        data: the records, of which only the public and test records are read; with public samples
            that are yet to be drawn, its rehearsal.
        plan: how teachers are made. Networks train for a few steps.
        settings: the settings of the release, complete.
        voting: the form of the teachers' votes.
        first: the settings of the release that teachers start from, if it is the run's own.
        samples: the settings of public samples that are drawn.
    """
    with scratch(Run(root), "proof") as folder, redirect_stdout(StringIO()):
        if isinstance(data, DrawnPublic):
            public = data.load(Role.PUBLIC)
            np.savez(folder / "drawn.npz", X=public.features[:], ids=public.ids)
            data = DrawnPublic(data._source, samples=folder / "drawn.npz", bounds=data._bounds)
        made_up = MadeUp(data, grouped=plan.unit == "group")
        copy, ledger = folder / "run", folder / "ledger.sqlite"
        if first is not None:
            start = Pipeline(copy / FIRST, made_up, ledger=ledger)
            start.fit_teachers(ClosedFormPlan(unit=plan.unit))
            start.vote()
            start.label(without_budget(first))
            start.fit_student(StudentPlan())
        pipeline = Pipeline(copy, made_up, ledger=ledger)
        pipeline.fit_teachers(shortened(plan))
        pipeline.vote(votes=voting)
        pipeline.label(without_budget(settings))
        run = Run(copy, ledger=ledger)
        tables = {"law": law_tests(run), "isolation": isolation_tests(run, made_up)}
        if samples is not None:
            columns = made_up.load(Role.PUBLIC).features.shape[1]
            tables["law"] += moments_tests(samples, columns)
    verdict = verdict_of([test for tests in tables.values() for test in tests])
    texts = [text_of(name, tests) for name, tests in tables.items()]
    write_text(root / PROOF, "\n\n".join([*texts, VERDICTS[verdict]]) + "\n")
    return verdict
