"""The commands that look ahead, from parameters and public facts.

`pate frontier` compares
aggregators, `pate plan` numbers of teachers, and `pate study` mechanisms over many settings.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from pate._core.files.writing import write_text
from pate._core.tables import write_csv
from pate._core.validation import given, require
from pate._labeling.aggregators.base import AnyAggregator
from pate._labeling.commands.parsing import run_command
from pate._labeling.commands.shipped import find_study
from pate._labeling.runs.run import Run
from pate._labeling.votes.kinds import Votes
from pate.lab.plan.frontier import Comparison, Frontier, file_task, frontier, load_task
from pate.lab.plan.output import (
    draw_sweep,
    frontier_figure,
    frontier_table,
    save_figure,
    sweep_text,
    variants_figure,
    write_recipe,
    write_sweep,
)
from pate.lab.plan.sources import Simulation, Task, simulated
from pate.lab.plan.study import PRIVATE, Study, StudyResult, run_study
from pate.lab.plan.study_output import study_text, write_study
from pate.lab.plan.sweep import Sweep, SweepResult, TaskFacts, run_sweep


def compare(
    comparison: Comparison,
    run: Path | None = None,
    votes: Path | None = None,
    simulate: Simulation | None = None,
    aggregators: list[AnyAggregator] | None = None,
    output: Path | None = None,
) -> Frontier:
    """Plot the quality of labels and student against epsilon for aggregators on the same votes.

    A planning tool. On the votes of a run its results are PRIVATE, and so is a choice based on
    them; simulated votes are free.

    Args:
        comparison: the settings common to all aggregators.
        run: the run with the votes.
        votes: an .npz file of ballots or counts in place of a run, as for pate label --votes.
        simulate: teachers to simulate in place of both.
        aggregators: the aggregators to compare, by name or with noise, of which only the
            proportions matter: one factor scales all of it to meet each target. An aggregator that
            needs a student is the last of two `Rounds`. None for the proposals of all aggregators
            of this package and of installed ones; for records that vote for themselves,
            `ScoreVotes`.
        output: folder for ``frontier.csv``, ``frontier.png``, ``frontier.txt`` and, with variants,
            ``variants.png``. None for ``private/frontier``, in the run if there is one, or
            ``frontier`` for simulated votes.

    Returns:
        The written figures.

    Raises:
        ValueError: unless either a run or a simulation is given, and on parameters out of range.
    """
    places = [*given(run=run, votes=votes, simulate=simulate)]
    require(len(places) == 1, "either a run, votes or a simulation", got=places)
    task: Task[Votes]
    if simulate is not None:
        made = simulated(simulate)
        number = comparison.number(made.votes.num_queries)
        task = made.drawn(number, seed=comparison.query_seed)
        default = Path("frontier")
    elif votes is not None:
        task, default = file_task(Path(votes), comparison), Path("private/frontier")
    else:
        assert run is not None
        task = load_task(Path(run), comparison, aggregators)
        default = Run(Path(run)).private / "frontier"
    result = frontier(task, replace(comparison, num_queries=task.votes.num_queries), aggregators)
    folder = default if output is None else Path(output)
    text = frontier_table(result)
    levels = [{"aggregator": name, **figures} for name, figures in result.references.items()]
    write_csv(folder / "frontier.csv", result.notice, [*result.rows, *levels])
    write_text(folder / "frontier.txt", text)
    save_figure(folder / "frontier.png", frontier_figure(result), dpi=144)
    written = ["frontier.csv", "frontier.png", "frontier.txt"]
    if comparison.variants:
        save_figure(folder / "variants.png", variants_figure(result), dpi=90)
        written.append("variants.png")
    print(text, end="")
    print(f"\n{', '.join(str(folder / name) for name in written)}")
    return result


frontier_main = partial(run_command, "frontier", compare, grouped={"comparison": Comparison})


def plan(facts: TaskFacts, sweep: Sweep, output: Path = Path("plan")) -> SweepResult:
    """Plan the number of teachers from public facts. Nothing private is touched.

    Simulated teachers learn from their shares of the records by the learning curve of one teacher.
    Their votes are released at each target epsilon as in `pate label`, and a student learns from
    the release. The plan takes the fewest teachers whose student is as good as the best one, and
    writes them as a recipe.

    Args:
        facts: the public facts of the task.
        sweep: the numbers to try, and the measure of quality.
        output: folder for ``plan.csv``, ``plan.png``, ``plan.txt``, and for each epsilon a folder
            with ``teachers.yaml`` and ``label.yaml``.

    Returns:
        The written figures.

    Raises:
        ValueError: on facts or settings out of range, before anything is simulated.
    """
    result, folder = run_sweep(facts, sweep), Path(output)
    text = sweep_text(result)
    write_text(folder / "plan.txt", text)
    write_sweep(folder / "plan.csv", result)
    draw_sweep(folder / "plan.png", result)
    print(text)
    for epsilon in sweep.epsilons:
        place = folder / f"epsilon_{epsilon:g}"
        write_recipe(place, result, result.choice(epsilon))
        print(f"{place / 'teachers.yaml'}, {place / 'label.yaml'}")
    print(f"{folder / 'plan.csv'}, {folder / 'plan.png'}, {folder / 'plan.txt'}")
    print(
        "Then: pate teachers fit --config data.yaml --config teachers.yaml --run RUN;\n"
        "      pate teachers vote --run RUN; pate label --config label.yaml --run RUN"
    )
    return result


plan_main = partial(run_command, "plan", plan, grouped={"facts": TaskFacts, "sweep": Sweep})


def study(settings: Study, output: Path | None = None, workers: int = 1) -> StudyResult:
    """Compare mechanisms at one price, over many k, epsilons, votes and seeds of the noise.

    Each has its own best noise for each target. A release is compared with the exact top k of its
    votes, or with a given truth: on private votes the results are PRIVATE, for the owner's screen.
    A command that was stopped goes on with the cells that its folder lacks.

    Args:
        settings: the settings of the study.
        output: folder for study.csv, study.txt, study.tex and study.png, and for the finished
            cells; study.parquet if pyarrow is installed. None for private/study, or study for
            simulated and public votes.
        workers: number of processes.

    Returns:
        The written rows.

    Raises:
        ValueError: on votes or a target that a mechanism cannot serve, before the first release.
    """
    default = Path("private/study" if settings.notice == PRIVATE else "study")
    folder = default if output is None else Path(output)
    result = run_study(settings, folder, workers=workers)
    written = write_study(folder, result)
    print(study_text(result), end="")
    print(f"\n{', '.join(map(str, written))}")
    return result


def study_main(args: Sequence[str]) -> None:
    """Run `pate study`, whose first word may be a file of its settings, or a shipped study."""
    words = [*args]
    if words and not words[0].startswith("-"):
        words[:1] = ["--config", find_study(words[0])]
    run_command("study", study, words, grouped={"settings": Study})
