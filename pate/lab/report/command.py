"""The command `pate report`."""

from functools import partial
from pathlib import Path

from pate._core.validation import require
from pate._labeling.commands.parsing import FLAG, run_command
from pate.lab.report.report import write_disclosure, write_report

_NUM_SAMPLES = 20


def report(
    run: Path,
    *,
    output: Path | None = None,
    private: bool = False,
    disclosure: bool = False,
    num_samples: int | None = None,
) -> None:
    """Write one page of HTML on a run.

    It shows the privacy statement, the ledger, queries and answers, samples with their labels, the
    student's figures and curves, and the settings. It follows only from public files, public and
    test records and the ledger, and may be published.

    Args:
        run: folder of the run, at any stage.
        output: the file; None for public/report.html in the run, or private/report.html with
            --private; with --disclosure the folder, None for public/disclosure.
        private: add the teachers' votes, rivals and losses: PRIVATE, not to
            be published.
        disclosure: write a folder instead, a model card (README.md) and an entry for the registry
            of deployments (registry.yaml), from public files.
        num_samples: number of queries shown with their labels; 20 by default.
    """
    if disclosure:
        require(not private, "a disclosure without --private", private=private)
        require(num_samples is None, "a disclosure without --num_samples", num_samples=num_samples)
        print(write_disclosure(run, output=output))
        return
    path = write_report(
        run,
        output=output,
        private=private,
        num_samples=_NUM_SAMPLES if num_samples is None else num_samples,
    )
    print(f"{path}{' (PRIVATE: not to be published)' if private else ''}")


main = partial(run_command, "report", report, special={"--private": FLAG, "--disclosure": FLAG})
