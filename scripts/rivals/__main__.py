"""Measure private learning without votes on the private records of a run. PRIVATE.

python -m scripts.rivals --run runs/mine --epsilons [0.5,1,2]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from inspect import getdoc
from pathlib import Path
from typing import Literal

import numpy as np
from jsonargparse import ArgumentParser

from pate._core.files.writing import write_text
from pate._core.tables import write_csv
from pate._core.validation import StrArray, require
from pate._labeling.runs.run import TEACHERS_FIT, Run, load_data
from pate.data import DataSource, Records, Role
from scripts.rivals.contest import Arena, Contest, Standings, hold, rivals_of, table
from scripts.rivals.contributions import Contributions, PublicScale
from scripts.rivals.descent import INSTALL, Descent, is_installed

Unit = Literal["record", "group"]

_COMMAND = "python -m scripts.rivals"


def compare(
    contest: Contest,
    descent: Descent,
    run: Path,
    unit: Unit | None = None,
    output: Path | None = None,
) -> Standings:
    """Measure private learning without votes on the private records of a run.

    Least squares on noised moments and logistic regression by DP-SGD, each at the same epsilons,
    delta and relation (one unit added, removed or altered), and without privacy. The results
    are measured on private records without accounting for it: they are PRIVATE, and so is a choice
    by them.

    Args:
        contest: the settings common to all rivals.
        descent: the settings of DP-SGD.
        run: the run. A ``data.yaml`` is enough.
        unit: the protected unit, a ``record`` or a ``group``; None for the unit of the run's
            teachers, or a record.
        output: folder for ``rivals.csv`` and ``rivals.txt``. None for ``private/rivals`` in the
            run.

    Returns:
        The figures that are written.

    Raises:
        ValueError: if the data cannot be used, or no noise meets a target.
    """
    place = Run(Path(run))
    data = load_data(place)
    protected = unit or place.inputs_of(TEACHERS_FIT).settings.get("unit", "record")
    if not is_installed():
        print(f"{_COMMAND}: {INSTALL}", file=sys.stderr)
    arena = arena_of(data, protected, contest)
    standings = hold(arena, rivals_of(arena, descent if is_installed() else None), contest)
    folder = place.private / "rivals" if output is None else Path(output)
    text = table(standings)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_csv(folder / "rivals.csv", standings.notice, map(asdict, standings.scores))
    write_text(folder / "rivals.txt", text)
    print(text, end="")
    print(f"\n{folder / 'rivals.csv'}, {folder / 'rivals.txt'}")
    return standings


def arena_of(data: DataSource, unit: str, contest: Contest) -> Arena:
    """Return the records of a source, for units that are a ``record`` or a ``group``."""
    private, public, test = (data.records(role) for role in (Role.PRIVATE, Role.PUBLIC, Role.TEST))
    scale = PublicScale.of(public.features, standardise=contest.standardise)
    return Arena(
        private=Contributions.of(private, scale, _units(private, unit)),
        public=scale(public.features).astype(np.float64),
        test=scale(test.features).astype(np.float64),
        truth=test.labels,
        unit=unit,
    )


def _units(records: Records, unit: str) -> StrArray:
    if unit == "record":
        return records.ids
    require(records.groups is not None, "groups of the private records", unit=unit)
    assert records.groups is not None
    return records.groups


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; it ends with status 2 and one line on unusable data or targets."""
    parser = ArgumentParser(
        prog=_COMMAND, description=(getdoc(compare) or "").split("\n\nArgs:")[0]
    )
    parser.add_argument("--config", action="config", help="YAML file of settings")
    parser.add_function_arguments(compare, as_group=False, skip={"contest", "descent"})
    parser.add_class_arguments(Contest, as_group=False)
    parser.add_class_arguments(Descent, as_group=False)
    options = parser.parse_args(arguments)
    try:
        contest = Contest(**{field.name: options[field.name] for field in fields(Contest)})
        descent = Descent(**{field.name: options[field.name] for field in fields(Descent)})
        compare(contest, descent, options.run, options.unit, options.output)
    except ValueError as error:
        parser.exit(2, f"{_COMMAND}: {error}\n")


if __name__ == "__main__":
    main()
