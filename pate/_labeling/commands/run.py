"""The commands `pate run` and `fit`: a recipe becomes a plan, is checked, rehearsed and executed.

First the recipe; then the options of the command, and the overrides of parts; at the end the
summary, with figures of the student and the statement.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import yaml
from jsonargparse import Namespace

from pate._core.accounting.statement import Statement
from pate._core.files.reading import Json, load_json
from pate._core.files.writing import locked, text_table, write_text
from pate._core.validation import (
    given,
    require,
    require_in_open_unit_interval,
    require_positive,
)
from pate._labeling.commands.evidence import Declared
from pate._labeling.commands.parsing import (
    FLAG,
    CommandParser,
    add_options,
    from_options,
    run_command,
    settings_of,
)
from pate._labeling.commands.places import PARTS, find_recipe
from pate._labeling.commands.recipes import (
    WITH_CODE,
    declared_options,
    draft_recipe,
    print_remarks,
)
from pate._labeling.commands.stages import (
    read_label,
    read_student,
    read_teachers_fit,
    settings_of_networks,
)
from pate._labeling.commands.table import commands
from pate._labeling.plan import RunPlan
from pate._labeling.release.label_settings import LabelSettings
from pate._labeling.runs.run import LABEL, METRICS, MODEL, STUDENT, Run
from pate._labeling.teachers import ClosedFormPlan, Execution
from pate._labeling.votes.kinds import Voting

Overrides = Mapping[str, Sequence[str]]
"""Options that override settings of a recipe, by part."""


def main(args: Sequence[str]) -> None:
    """Run `pate run`."""
    words, overrides = by_part(args)
    options = _parser().parse_args(words)
    folder = find_recipe(options.recipe)
    root = options.run or Path("runs") / folder.resolve().name
    recipe = Recipe(folder, root, overrides, options.ledger)
    if options.print_config:
        print(recipe.text(), end="")
        return
    plan = replace(
        recipe.plan(),
        votes=options.votes,
        overwrite=options.overwrite,
    )
    run_plan(plan, dry_run=options.dry_run)


def run_plan(plan: RunPlan, *, dry_run: bool = False) -> None:
    """Check, rehearse and execute a plan, and print what it leaves.

    Errors in any stage are reported before teachers train for hours and labels are paid for.

    Args:
        plan: the plan.
        dry_run: whether to describe the plan, and write nothing.
    """
    if dry_run:
        plan.check()
        plan.rehearse()
        plan.describe()
        print(f"Run: {plan.root}. Nothing was written, and nothing was spent.")
        return
    with locked(plan.root):
        labels = plan.execute(partial(print, flush=True))
    print("", _describe_run(plan.run), *labels.advice, sep="\n")


def fit(
    data: Path,
    declared: Declared,
    *,
    epsilon: float,
    delta: float = 1e-6,
    run: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Train a student of private records of your own, with a proven epsilon.

    Reads the data as `pate init` does, with the same questions, and runs the recipe as `pate run`
    does: all is checked and rehearsed before anything is paid for. The run has the labels, the
    student, the statement of epsilon and a report in its public/, and the recipe in its recipe/.

    The same command goes on where it was stopped, and pays once.

    Args:
        data: a table in .csv or .parquet, arrays in an .npz, or a folder of pictures.
        declared: what options say of the columns.
        epsilon: the privacy loss. An observer of all that is published guesses right at most 73.2%
            of the time at epsilon 1, 88.1% at 2 and 98.3% at 4 whether any one record is there.
        delta: the probability that the promise fails: a tenth of one over the number of private
            records, or less.
        run: folder of the run; by default runs/ and the name of the data.
        overwrite: redo stages with changed settings. New labels cost again.
    """
    require_positive(epsilon=epsilon)
    require_in_open_unit_interval(delta=delta)
    root = run or Path("runs") / data.resolve().stem
    recipe, words = root / "recipe", ["fit", "--epsilon", f"{epsilon:g}", "--delta", f"{delta:g}"]
    words += ["--run", str(run)] if run is not None else []
    promise = {"target_epsilon": epsilon, "delta": delta}
    files, remarks = draft_recipe(data, declared, words, promise)
    code = [name for name in files if name.endswith(".py")]
    require(
        not code, f"data without code of yours, which `pate init` begins, in {data}", files=code
    )
    with TemporaryDirectory(prefix="pate") as place:
        for name, text in files.items():
            write_text(Path(place) / name, text)
        plan = Recipe(Path(place), root, dict.fromkeys(PARTS, ())).plan()
    print_remarks(remarks)
    run_plan(replace(plan, overwrite=overwrite))
    for name, text in files.items():
        if overwrite or not (recipe / name).exists():
            write_text(recipe / name, text)
    print(f"recipe:            pate run {shlex.join([str(recipe), '--run', str(root)])}")
    if report := commands().get("report"):
        report.load()([str(root)])


fit_main = partial(
    run_command,
    "fit",
    fit,
    grouped={"declared": Declared},
    special={**declared_options(*WITH_CODE), "--overwrite": FLAG},
)


@dataclass(frozen=True)
class Recipe:
    """The settings of a recipe, as the commands of its stages read them.

    Each of them ends with status 2 on a wrong option.

    Attributes:
        folder: the folder with a file for each part.
        root: folder of the run.
        overrides: options that override settings.
        ledger: the ledger, in place of the one of the recipe.
    """

    folder: Path
    root: Path
    overrides: Overrides
    ledger: Path | None = None

    def plan(self) -> RunPlan:
        """Return the plan of the recipe."""
        options, teachers, _ = self.teachers()
        _, student = read_student("fit", self._words("student"))
        parser, labels = read_label(self._words("label"))
        return RunPlan(
            root=self.root,
            data=options.data,
            teachers=teachers,
            labels=from_options(LabelSettings, parser.instantiate(labels)),
            student=student,
            execution=from_options(Execution, options),
            ledger=self.ledger or options.ledger,
        )

    def text(self) -> str:
        """Return the settings of all stages as the files of a recipe, each below its name."""
        *_, teachers = self.teachers()
        data = {name: teachers.pop(name) for name in ("data", "ledger")}
        data |= given(ledger=self.ledger and str(self.ledger))
        labels = settings_of(*read_label(self._words("label")))
        _, student = read_student("fit", self._words("student"))
        contents = zip(PARTS, (data, teachers, labels, student), strict=True)
        return "---\n".join(
            f"# {part}.yaml\n{yaml.safe_dump(each, sort_keys=False)}" for part, each in contents
        )

    def teachers(self) -> tuple[Namespace, Any, Json]:
        """Return all options of `pate teachers fit`, its plan, and both as plain data."""
        return read_teachers_fit(self._words("data", "teachers"))

    def _words(self, *parts: str) -> list[str]:
        """Return the options of a command that name the files of parts, and override them.

        Only a command line gives files and options one order of precedence: in
        ``default_config_files`` jsonargparse does not know short names of classes, `parse_object`
        refuses settings that a later option would complete, and LightningCLI takes its subcommand
        from the command line.
        """
        files = [word for part in parts for word in ("--config", f"{self.folder / part}.yaml")]
        return [*files, f"--run={self.root}", *(w for part in parts for w in self.overrides[part])]


_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "recipe": {
        "type": Path,
        "help": "the folder, or the name of a shipped recipe, such as faces",
    },
    "--run": {"type": Path, "help": "folder of the run; by default runs/ and the recipe's name"},
    "--overwrite": {**FLAG, "help": "redo stages with changed settings. New labels cost again."},
    "--ledger": {
        "type": Path,
        "help": "ledger of the private data, in place of the default next to them",
    },
    "--votes": {
        "choices": get_args(Voting),
        "help": "how networks vote, as in `pate teachers vote`",
    },
    "--dry_run": {
        **FLAG,
        "help": "check all settings, print the resources of teachers (PRIVATE) and the cost of"
        " labels, and write nothing",
    },
    "--print_config": {**FLAG, "help": "print the settings of all stages"},
}


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="pate run",
        description="Run all stages of a recipe: a folder with data.yaml, teachers.yaml, label.yaml"
        " and student.yaml.\n\nFinished stages are skipped; a killed stage continues where it"
        " stopped.\n\nTo override a setting, write the stage and the setting:"
        " --teachers.num_teachers 200, --label.num_queries 100, --student.trainer.max_epochs 20,"
        " --data.init_args.root DIR.",
        print_config=None,
    )
    add_options(parser, _OPTIONS)
    parser.elsewhere = _in_a_part
    return parser


def _in_a_part(option: str) -> str | None:
    """Return the override that an option without the name of its stage stands for, if any."""
    meant = _part_with(option.removeprefix("--"), cutoff=0.8)
    return None if meant is None else f"--{meant} in place of {option}"


def _part_with(setting: str, *, cutoff: float = 1.0) -> str | None:
    """Return the setting of a recipe that a word is as close to as ``cutoff``, and its part."""
    parts = {
        **dict.fromkeys(("fit", *settings_of_networks()), "teachers"),
        **{field.name: "teachers" for field in fields(ClosedFormPlan)},
        **dict.fromkeys(("model", "trainer", "optimize", "seed_everything"), "student"),
        **{field.name: "label" for field in fields(LabelSettings)},
    }
    close = get_close_matches(setting, parts, n=1, cutoff=cutoff)
    return f"{parts[close[0]]}.{close[0]}" if close else None


def by_part(args: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Sort overrides ``--part.name=value`` or ``--part.name value`` by part of the recipe.

    Returns:
        The other arguments, and the overrides of each part; overrides of data keep their prefix.
    """
    others, remaining = list[str](), list(args)
    overrides: dict[str, list[str]] = {part: [] for part in PARTS}
    while remaining:
        word = remaining.pop(0)
        name, equals, value = word.partition("=")
        part, dot, setting = name.removeprefix("--").partition(".")
        if not (word.startswith("--") and dot):
            others.append(word)
            continue
        if part not in overrides or not setting:
            home = _part_with(part)
            close = get_close_matches(part, PARTS, n=1)
            near = home or (close[0] if close else None)
            meant = f"; did you mean --{near}{dot}{setting}?" if near else ""
            raise ValueError(
                "Expected overrides such as --label.num_queries 100, of"
                f" {', '.join(PARTS)}, got override={word!r}{meant}"
            )
        if not equals:
            require(
                bool(remaining) and not remaining[0].startswith("--"),
                f"a value behind {name}",
                value=remaining[0] if remaining else None,
            )
            value = remaining.pop(0)
        overrides[part].append(f"{name if part == 'data' else f'--{setting}'}={value}")
    return others, overrides


_ROWS = {
    "all_majority": "best constant answer",
    "released_constant": "constant answer released",
    "student": "private student",
}

_UNMEASURED = "Verdict: unknown, because no record is a test record (`test_fraction` of the data)."
_LEDGERS = {
    "private data": "of the private data",
    "named": "named for this run; another of these data adds up",
    "run": "of this run alone",
    "audit": "of this audit alone",
}


def _describe_run(run: Run) -> str:
    """Return figures on the test set with a verdict, the guarantee, and the places of files.

    All formulas are in ``privacy.txt``, and figures at other cuts in ``metrics.json``.
    """
    path = run.root / STUDENT.outputs[0] / METRICS
    lines = [*describe_figures(load_json(path))] if path.is_file() else [_UNMEASURED]
    labels, stated, statement = (run.root / output for output in LABEL.outputs)
    content, ledger = Statement.read(stated), run.ledger_path
    answered = f"answered {content['num_answered']} of {content['num_queries']}"
    if ledger.is_relative_to(Path.cwd()):
        ledger = ledger.relative_to(Path.cwd())
    places = {
        "released labels": f"{labels} ({answered})",
        "privacy statement": f"{statement} (with all formulas)",
        "predictions": f"pate predict {run.root / STUDENT.outputs[0] / MODEL} FILE",
        "ledger": f"{ledger} ({_LEDGERS[content['ledger']['counts']]})",
        "PRIVATE files": run.private,
    }
    lines += ["", content.guarantee, ""]
    lines += [f"{name + ':':<19}{place}" for name, place in places.items()]
    return "\n".join(lines)


def describe_figures(figures_of: Json) -> Iterator[str]:
    """Yield a table of figures on the test set, and a verdict."""
    chosen = figures_of.pop("optimize")
    yield from _table(f"Test set, cut for {chosen}", figures_of)
    yield describe_verdict(chosen, figures_of)


def describe_verdict(chosen: str, figures_of: Json) -> str:
    """Return a line on a student beside the best constant answer, by the figure it optimizes."""
    student, constant = (figures_of[name] for name in ("student", "all_majority"))
    better = student[chosen] > constant[chosen]
    return (
        f"Verdict: {chosen} {student[chosen]:.3f}, {'better' if better else 'no better'} than the"
        f" best constant answer ({constant[chosen]:.3f}); mAP {student['mAP']:.3f}"
        f" ({constant['mAP']:.3f})" + ("." if better else ": raise epsilon, or add records.")
    )


def _table(title: str, figures_of: Mapping[str, Json]) -> list[str]:
    """Return a head, and a row of figures for each of the `_ROWS`."""
    metrics = [
        name for name, value in figures_of.get("student", {}).items() if isinstance(value, float)
    ]
    rows = [(title, *metrics)]
    for name, row in _ROWS.items():
        if name in figures_of:
            rows.append((row, *(f"{figures_of[name][metric]:.3f}" for metric in metrics)))
    return text_table(rows)
