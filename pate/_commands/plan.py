"""The command `pate plan`."""

from functools import partial
from pathlib import Path

from pate._commands.parsing import run_command
from pate._files import write_text
from pate._planning.ensemble import TaskFacts
from pate._planning.recipe import draw_sweep, sweep_text, write_recipe, write_sweep
from pate._planning.sweep import Sweep, SweepResult, run_sweep


def plan(facts: TaskFacts, sweep: Sweep, output: Path = Path("plan")) -> SweepResult:
    """Plan the number of teachers from public facts; nothing private is touched.

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


main = partial(run_command, "plan", plan, grouped={"facts": TaskFacts, "sweep": Sweep})
