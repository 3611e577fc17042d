"""The command `pate frontier`."""

from functools import partial
from pathlib import Path

from pate._commands.parsing import run_command
from pate._files import write_text
from pate._planning.comparison import Comparison, Frontier, frontier_rows, frontier_table
from pate._planning.evaluation import Simulation, Task, frontier, load_task, simulated
from pate._planning.plots import draw_frontier, draw_variants
from pate._planning.tables import write_csv
from pate._runs import Run
from pate._settings import require_made
from pate._validation import require
from pate._votes import Votes
from pate.aggregators import Aggregator


def compare(
    comparison: Comparison,
    run: Path | None = None,
    simulate: Simulation | None = None,
    aggregators: list[Aggregator] | None = None,
    output: Path | None = None,
) -> Frontier:
    """Plot the quality of labels and student against epsilon for aggregators on the same votes.

    A planning tool. On the votes of a run its results are PRIVATE, and so is a choice based on
    them; simulated votes are free.

    Args:
        comparison: the settings common to all aggregators.
        run: the run with the votes.
        simulate: teachers to simulate in place of a run.
        aggregators: the aggregators to compare. Only the proportions of their noise matter, because
            one factor scales all of it to meet each target. An aggregator that needs a student is
            the last of two `Rounds`. None for the proposals of all aggregators of this package and
            of installed ones; for records that vote for themselves, `ScoreVotes`.
        output: folder for ``frontier.csv``, ``frontier.png`` and ``frontier.txt``. None for
            ``private/frontier`` in the run, or ``frontier`` for simulated votes. With variants,
            ``variants.png`` is next to them.

    Returns:
        The written figures.

    Raises:
        ValueError: unless either a run or a simulation is given, and on parameters out of range.
    """
    one = (run is None) != (simulate is None)
    require(one, "either a run or a simulation", run=run, simulate=simulate)
    require_made("aggregators", aggregators)
    if simulate is not None:
        task: Task[Votes] = simulated(simulate).drawn(
            comparison.num_queries, seed=comparison.query_seed
        )
        default = Path("frontier")
    else:
        assert run is not None
        task = load_task(Path(run), comparison, aggregators)
        default = Run(Path(run)).private / "frontier"
    result = frontier(task, comparison, aggregators)
    folder = default if output is None else Path(output)
    text = frontier_table(result)
    write_csv(folder / "frontier.csv", result.notice, frontier_rows(result))
    write_text(folder / "frontier.txt", text)
    draw_frontier(folder / "frontier.png", result)
    written = ["frontier.csv", "frontier.png", "frontier.txt"]
    if comparison.variants:
        draw_variants(folder / "variants.png", result)
        written.append("variants.png")
    print(text, end="")
    print(f"\n{', '.join(str(folder / name) for name in written)}")
    return result


main = partial(run_command, "frontier", compare, grouped={"comparison": Comparison})
