"""The command `pate run`: all stages of a recipe in order, except those that are finished.

First the stages of a recipe, all checked before the first one begins; then its options, and the
overrides of its parts; at the end the summary, with figures of the student and the statement.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, get_args

import yaml

from pate._core.accounting.accountant import epsilon_of
from pate._core.accounting.charges import Charge
from pate._core.accounting.cost import explain_epsilon, format_epsilon, format_exact
from pate._core.files.reading import Json, read_json
from pate._core.files.writing import lock_run, require_place
from pate._core.lazy import MissingExtraError
from pate._core.registry import find
from pate._core.tables import text_table
from pate._core.validation import MOST_VOTERS, require
from pate._labeling.commands.parsing import (
    FLAG,
    CommandParser,
    Preset,
    add_options,
    from_options,
    named_before,
    settings_of,
)
from pate._labeling.commands.recipes import PARTS, find_recipe, unpack_recipe
from pate._labeling.commands.stages import (
    read_label,
    read_student_fit,
    read_teachers_fit,
    references,
    release,
    student_fit,
    student_test,
    teachers_fit,
    teachers_vote,
)
from pate._labeling.data.arrays import DrawnPublic
from pate._labeling.data.records import Role
from pate._labeling.data.source import DataSource, TableSource
from pate._labeling.pipeline import Pipeline, say_hopeless
from pate._labeling.release.between_runs import SampleSettings, choose_ledger, released_samples
from pate._labeling.release.completion import (
    describe_gap,
    first_settings,
    resolve_settings,
    sample_settings,
    teachers_for,
)
from pate._labeling.release.label_settings import LabelSettings, is_paid, require_possible
from pate._labeling.release.labels import require_student_for
from pate._labeling.release.privacy_units import planned_unit
from pate._labeling.runs.data_file import load_ledger, read_data, shared
from pate._labeling.runs.run import LABEL, METRICS, MODEL, REFERENCES, STUDENT, TEACHERS_VOTE, Run
from pate._labeling.stages.rehearsal import kind_of_votes, rehearse_run
from pate._labeling.teachers.closed_form_plan import (
    CLOSED_FORM,
    FIRST,
    ClosedFormPlan,
    require_by_record,
)
from pate._labeling.votes.kinds import Moments, VoteShape, Voting

_TESTS = "test records (test_fraction of the data takes a share of the public ones)"
_PROOF = "proof.txt"
_NO_THEOREM = "a test of this program, not a proof of the theorem"


class _Step(NamedTuple):
    """A stage of a recipe."""

    name: str
    """The name that is announced."""
    command: Callable[[Sequence[str], Preset], object]
    """Runs the stage."""
    parts: tuple[str, ...] = ()
    """The recipe's files that the stage reads, with their overrides."""
    words: tuple[str, ...] = ()
    """Further arguments of its command."""


_FIT = _Step("teachers fit", teachers_fit, ("data", "teachers"))
_VOTE = _Step("teachers vote", teachers_vote)
_LABEL = _Step("label", release, ("label",))  # the statement is printed at the end
_STUDENT = _Step("student fit", student_fit, ("student",))
_TEST = _Step("student test", student_test, words=("--verbose=false",))
_REFERENCES = _Step("references", references)


def main(args: Sequence[str]) -> None:
    """Run `pate run`."""
    words, overrides = by_part(args)
    parsed = _parser().parse_args(words)
    require(
        (parsed.recipe is None) != (parsed.config is None),
        "a recipe, or --config with a file that --print_config wrote",
    )
    if parsed.config is None:
        recipe = find_recipe(parsed.recipe)
        _run(recipe, parsed.run or Path("runs") / recipe.resolve().name, parsed, overrides)
        return
    with TemporaryDirectory(prefix="pate") as folder:
        recipe = Path(folder)
        unpack_recipe(parsed.config, recipe, [f"{part}.yaml" for part in PARTS])
        _run(recipe, parsed.run or Path("runs") / parsed.config.stem, parsed, overrides)


def _run(recipe: Path, root: Path, parsed: Any, overrides: dict[str, list[str]]) -> None:
    """Run the stages of a recipe in the folder ``root``."""
    if parsed.ledger:
        overrides["data"].append(f"--ledger={parsed.ledger}")
    fit_arguments = _arguments(_FIT, recipe, root, overrides)
    if named_before("fit", *fit_arguments) != CLOSED_FORM and not parsed.print_config:
        _require_table(recipe / "data.yaml", overrides["data"])
    # errors in any stage are reported before teachers train for hours and labels are paid for
    options, plan, content = read_teachers_fit(*fit_arguments)
    student_settings = read_student_fit(*_arguments(_STUDENT, recipe, root, overrides))
    parser, label_options = read_label(*_arguments(_LABEL, recipe, root, overrides))
    if parsed.print_config:
        _print_recipe(content, settings_of(parser, label_options), student_settings)
        return
    data, voting = options.data, parsed.votes
    if voting is None and not isinstance(plan, ClosedFormPlan):
        voting = Run(root).inputs_of(TEACHERS_VOTE).settings.get("votes")
    asked = from_options(LabelSettings, parser.instantiate(label_options))
    require_student_for(asked.query_choice, plan.start_from)
    require_by_record(plan, data.budgets)
    ledger = choose_ledger(root, options.ledger, data, overwrite=parsed.overwrite)
    run = Run(root, overwrite=parsed.overwrite, ledger=ledger)
    samples = sample_settings(asked, plan.unit) if isinstance(data, DrawnPublic) else None
    if isinstance(data, DrawnPublic) and data.samples.is_file():
        earlier, unpaid = [released_samples(run, data, plan.unit)], []
    else:
        earlier = unpaid = [] if samples is None else [samples.charge]
    # what is checked does not depend on the values of samples that are yet to be drawn
    known = data.rehearsal() if isinstance(data, DrawnPublic) and unpaid else data
    first = _first_release(plan, known, asked)
    if first is not None:
        earlier = [*earlier, first[0].charge(first[1])]
    if plan.start_from is not None and plan.num_teachers is None:
        number = teachers_for(asked, known.num_labels, len(known.load(Role.PUBLIC).ids), earlier)
        plan = replace(plan, num_teachers=number)
        overrides["teachers"].append(f"--num_teachers={number}")
    settings, shape = _label_settings(plan, known, voting, asked, earlier)
    for folder in (root, run.ledger_path.parent):
        require_place(folder)
    before = Run(root / FIRST, parsed.overwrite, run.ledger_path)
    samples_and_labels = known.load(Role.PUBLIC).ids, known.label_names
    unit = planned_unit(run, plan)
    if first is not None:
        require_possible(before, *first, *samples_and_labels, unit=unit, unpaid=unpaid)
        if not is_paid(before, first[0]):
            unpaid = [*unpaid, first[0].charge(first[1])]
    require_possible(run, settings, shape, *samples_and_labels, unit=unit, unpaid=unpaid)
    known.require_distinct()
    rehearse_run(run, known, plan, settings, student_settings, voting=voting)
    say_hopeless(run, known, plan, settings)
    vote = _VOTE._replace(words=(f"--votes={voting}",) if voting else ())
    tested = len(known.load(Role.TEST)) > 0
    require(tested or not parsed.references, f"{_TESTS}, by which --references measure")
    steps = [_FIT, vote, _LABEL, _STUDENT]
    if tested:
        steps += [_TEST, *([_REFERENCES] if parsed.references else [])]
    else:
        print(f"Without {_TESTS}, no figure of the student is measured.")
    if parsed.dry_run:
        if known is data:
            print(f"[1/{len(steps)}] {_FIT.name}", flush=True)
            # with the number of teachers, which may follow from the target
            words, preset = _arguments(_FIT, recipe, root, overrides)
            teachers_fit([*words, "--dry_run"], preset)
        if samples is not None:
            print(_planned_samples(samples))
        for planned in (first, (settings, shape)):
            if planned is not None:
                print(_planned_release(*planned))
        print(f"Run: {root}. Nothing was written, and nothing was spent.")
        return
    # held through all stages
    lock_run(root)
    proven = None
    if parsed.prove:
        print("[proof] law and isolation, on made-up records", flush=True)
        proven = find("prove")(
            root,
            known,
            plan,
            settings,
            voting=voting,
            first=None if first is None else first[0],
            samples=samples,
        )
        if proven == "refuted":
            print((root / _PROOF).read_text(), end="")
            raise SystemExit(1)
    with shared(data):
        if samples is not None:
            print(f"[0/{len(steps)}] public samples", flush=True)
            Pipeline(root, data, ledger=ledger, overwrite=parsed.overwrite).draw_public_samples(
                asked, unit=plan.unit
            )
        if first is not None:
            print(f"[0/{len(steps)}] first release", flush=True)
            pipeline = Pipeline(before.root, data, ledger=before.ledger, overwrite=parsed.overwrite)
            pipeline.fit_teachers(
                ClosedFormPlan(unit=plan.unit, max_teachers_per_group=plan.max_teachers_per_group)
            )
            pipeline.vote()
            pipeline._released(first[0], rehearsed=True)
            _STUDENT.command(
                *_arguments(_STUDENT, recipe, before.root, overrides, overwrite=parsed.overwrite)
            )
        for number, step in enumerate(steps, 1):
            print(f"[{number}/{len(steps)}] {step.name}", flush=True)
            step.command(*_arguments(step, recipe, root, overrides, overwrite=parsed.overwrite))
    print()
    print(_describe_run(Run(root, ledger=load_ledger(root))), end="")
    if proven is not None:
        print(f"{'proof:':<19}{root / _PROOF} (law and isolation {proven}; {_NO_THEOREM})")
    if proven == "not tested":
        raise SystemExit(3)


def _require_table(path: Path, overrides: Sequence[str]) -> None:
    """Raise ``ValueError`` on the faults of a table, before networks load torch for seconds."""
    try:
        source = read_data(path, overrides)
    except ValueError:
        return  # the parser of `teachers fit` refuses it, and suggests options
    if isinstance(source, TableSource):
        source.load(Role.PUBLIC)


def _first_release(
    plan: Any, data: DataSource, asked: LabelSettings
) -> tuple[LabelSettings, VoteShape] | None:
    """Return the complete settings of the release that teachers start from, and its votes' shape.

    None if they start from a release of another run, or from none.
    """
    if plan.start_from != FIRST:
        return None
    shape = VoteShape(MOST_VOTERS, data.num_labels)
    return resolve_settings(
        first_settings(asked), shape, len(data.load(Role.PUBLIC).ids), Moments
    ), shape


def _label_settings(
    plan: Any,
    data: DataSource,
    voting: Voting | None,
    asked: LabelSettings,
    before: Sequence[Charge],
) -> tuple[LabelSettings, VoteShape]:
    """Return the settings of the release, complete, and the numbers of teachers and labels.

    Raises ``ValueError`` if the numbers of public samples, teachers and labels do not allow it.

    Args:
        plan: how teachers are made.
        data: the records.
        voting: the form of the teachers' votes. None for the default.
        asked: the settings of `pate label`.
        before: the charges of the earlier releases that the target covers.
    """
    size = len(data.load(Role.PUBLIC).ids)
    shape = VoteShape(plan.num_teachers or MOST_VOTERS, data.num_labels)
    require(
        voting is None or not isinstance(plan, ClosedFormPlan),
        "no --votes of teachers in closed form, whose ballots follow from how they were made",
        votes=voting,
    )
    kind = kind_of_votes(plan, voting)
    return resolve_settings(asked, shape, size, kind, before=before, budgets=data.budgets), shape


def _planned_samples(samples: SampleSettings) -> str:
    """Return a description of public samples that are drawn, with their epsilon."""
    events, count = samples.charge
    epsilon = epsilon_of(
        events[samples.relation].for_group_size(samples.max_teachers_per_unit),
        count=count,
        delta=samples.delta,
    )
    return (
        f"Public samples with noise multiplier {samples.noise_multiplier:.6g}:\n   "
        f" epsilon = {format_epsilon(epsilon)} at delta = {format_exact(samples.delta)},"
        f" {samples.relation.name}"
    )


def _planned_release(settings: LabelSettings, shape: VoteShape) -> str:
    """Return a description of a planned release, with its epsilon."""
    mechanism, count = settings.mechanism, settings.num_queries
    assert count is not None, "settings are complete"
    epsilon = epsilon_of(
        mechanism.event(shape, settings.relation).for_group_size(settings.max_teachers_per_unit),
        count=count,
        delta=settings.delta,
    )
    noise = ", ".join(
        f"{name} = {getattr(mechanism, name):.6g}" for name in mechanism.noise_parameters
    )
    lines = (
        f"Labels of {count} public samples by {type(mechanism).__name__}"
        + (f" with {noise}:" if noise else ":"),
        f"    epsilon = {format_epsilon(epsilon)} at delta = {format_exact(settings.delta)},"
        f" {settings.relation.name}",
        explain_epsilon(epsilon),
        describe_gap(mechanism, shape),
    )
    return "\n".join(line for line in lines if line is not None)


def _arguments(
    step: _Step,
    recipe: Path,
    root: Path,
    overrides: Mapping[str, list[str]],
    *,
    overwrite: bool = False,
) -> tuple[list[str], Preset]:
    """Return the arguments of a stage's command, and the settings of the recipe before them."""
    words = [*step.words, *(word for part in step.parts for word in overrides[part])]
    files = tuple(recipe / f"{part}.yaml" for part in step.parts)
    return words, Preset(files=files, run=root, overwrite=overwrite)


def data_of(recipe: Path, overrides: Mapping[str, list[str]], root: Path) -> Json:
    """Return a recipe's source of records with its overrides, as plain data.

    Ends with status 2 on a wrong option.
    """
    *_, content = read_teachers_fit(*_arguments(_FIT, recipe, root, overrides))
    return content["data"]


def _print_recipe(fit: Json, label: Json, student: Json) -> None:
    """Print the settings of all stages as the files of a recipe, each below its name."""
    data = {name: fit[name] for name in ("data", "ledger")}
    rest = {name: value for name, value in fit.items() if name not in data}
    contents = zip(PARTS, (data, rest, label, student), strict=True)
    texts = (f"# {part}.yaml\n{yaml.safe_dump(each, sort_keys=False)}" for part, each in contents)
    print("---\n".join(texts), end="")


_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "recipe": {
        "type": Path,
        "nargs": "?",
        "help": "the folder, or the name of a shipped recipe, such as faces",
    },
    "--config": {
        "type": Path,
        "help": "in place of a recipe: a file with the settings of all stages, as --print_config"
        " prints them",
    },
    "--run": {"type": Path, "help": "folder of the run; by default runs/ and the recipe's name"},
    "--overwrite": {**FLAG, "help": "redo stages with changed settings"},
    "--ledger": {
        "type": Path,
        "help": "ledger of the private data, in place of the default next to them",
    },
    "--votes": {
        "choices": get_args(Voting),
        "help": "how networks vote, as in `pate teachers vote`",
    },
    "--references": {
        **FLAG,
        "help": "also measure a student of the true labels and the noiseless majority: PRIVATE, for"
        " data that you may see",
    },
    "--prove": {
        **FLAG,
        "help": "first test the law of the noise and the isolation of records, on made-up records;"
        " a refuted program ends with status 1 and spends nothing, an inconclusive one ends with 3",
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
    for parts in _parts_of_settings():
        if close := get_close_matches(setting, parts, n=1, cutoff=cutoff):
            return f"{parts[close[0]]}.{close[0]}"
    return None


def _parts_of_settings() -> Iterator[dict[str, str]]:
    """Yield the parts of a recipe by their settings, and then of those that torch is loaded for."""
    # "optimizer" is close to "optimize"
    closed_form = [*(field.name for field in fields(ClosedFormPlan)), "fit", "optimizer"]
    yield {
        **dict.fromkeys(closed_form, "teachers"),
        **dict.fromkeys(("model", "trainer", "optimize", "seed_everything"), "student"),
        **{field.name: "label" for field in fields(LabelSettings)},
    }
    with suppress(MissingExtraError):  # a suggestion is worth no refusal
        yield {field.name: "teachers" for field in fields(find("TeacherPlan"))}


def by_part(args: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Sort overrides ``--part.name=value`` or ``--part.name value`` by part of the recipe.

    Returns:
        The other arguments, and the overrides of each part; overrides of data keep their prefix.
    """
    others: list[str] = []
    overrides: dict[str, list[str]] = {part: [] for part in PARTS}
    remaining = list(args)
    while remaining:
        word = remaining.pop(0)
        name, equals, value = word.partition("=")
        part, dot, setting = name.removeprefix("--").partition(".")
        if not (word.startswith("--") and dot):
            bare = dot and part in overrides and not Path(word).exists()
            require(not bare, f"--{name}", option=word)
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
    "linear_student": "linear student beside it",
    "teacher_majority": "noiseless teacher majority",
    "linear_fit": "linear fit to private records",
    "true_label_student": "true-label student",
}

_LEDGERS = {
    "private data": "of the private data",
    "named": "named for this run; another of these data adds up",
    "run": "of this run alone",
    "audit": "of this audit alone",
}


def _describe_run(run: Run) -> str:
    """Return a table of metrics on the test set, the privacy statement, and the places of files."""
    figures_of: Json = {}
    for stage in (STUDENT, REFERENCES):
        path = run.root / stage.outputs[0] / METRICS
        if path.is_file():
            figures_of |= read_json(path.read_text())
    private = [
        name
        for name in ("teacher_majority", "linear_fit", "true_label_student")
        if name in figures_of
    ]
    chosen = figures_of.pop("optimize", None)
    lines = [] if chosen is None else _table(f"Test set, cut for {chosen}", figures_of, private)
    for purpose in figures_of.get("student", {}).get("at_cut", ()):
        if purpose != chosen:
            cut = {
                name: figures["at_cut"][purpose]
                for name, figures in figures_of.items()
                if name in _ROWS
            }
            lines += ["", *_table(f"The same, cut for {purpose}", cut, private)]
    if private:
        lines.append("* PRIVATE: computed without privacy, for comparison only")
    if "true_label_student" in figures_of:
        student, most = (
            figures_of[name]["macro_f1"] - figures_of["all_majority"]["macro_f1"]
            for name in ("student", "true_label_student")
        )
        if most > 0:
            lines.append(
                f"The private student keeps {student / most:.0%} of the macro-F1 gain of the"
                " true-label student."
            )
    model = run.root / STUDENT.outputs[0]
    labels, stated, statement = (run.root / output for output in LABEL.outputs)
    counts = read_json(stated.read_text())["ledger"]["counts"]
    places = {
        "released labels": labels,
        "privacy statement": stated,
        "student": model,
        "predictions": f"pate predict {model / MODEL} FILE",
        "ledger": f"{_relative_to_cwd(run.ledger_path)} ({_LEDGERS[counts]})",
        "PRIVATE files": run.private,
    }
    lines += [*([""] if lines else []), statement.read_text().rstrip(), ""]
    lines += [f"{name + ':':<19}{place}" for name, place in places.items()]
    return "\n".join(lines) + "\n"


def _table(title: str, figures_of: Mapping[str, Json], private: Sequence[str]) -> list[str]:
    """Return a head, and a row of figures for each of the `_ROWS`."""
    metrics = [
        name for name, value in figures_of.get("student", {}).items() if isinstance(value, float)
    ]
    rows = [(title, *metrics)]
    for name, row in _ROWS.items():
        if name in figures_of:
            mark = " *" if name in private else ""
            rows.append((row + mark, *(f"{figures_of[name][metric]:.3f}" for metric in metrics)))
    return text_table(rows)


def _relative_to_cwd(path: Path) -> Path:
    """Return a path relative to the working directory if it lies within."""
    folder = Path.cwd()
    return path.relative_to(folder) if path.is_relative_to(folder) else path
