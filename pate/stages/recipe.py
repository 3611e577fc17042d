"""The command `pate run`: the stages of a recipe, one after the other, those that are finished skipped."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from pate.data_file import load_ledger
from pate.runs import LABEL, REFERENCES, STUDENT, TEACHERS_FIT, TEACHERS_VOTE, Run, Stage
from pate.stages.report import describe_run
from pate.validation import expect

_PARTS = ("data", "teachers", "label", "student")


def main(args: Sequence[str]) -> None:
    """Run `pate run`."""
    parser = argparse.ArgumentParser(
        prog="pate run",
        description="Run all stages of a recipe: a folder with data.yaml, teachers.yaml, label.yaml and student.yaml. "
        "Stages that are finished are skipped; one that was killed goes on where it stopped.",
        epilog="A setting of a stage is overridden by its name behind that of the stage, such as "
        "--teachers.num_teachers=200, --label.num_queries=100, --student.trainer.max_epochs=20 or "
        "--data.init_args.root=DIR.",
        allow_abbrev=False,
    )
    parser.add_argument("recipe", type=Path, help="the folder, such as configs/faces")
    parser.add_argument("--run", type=Path, help="folder of the run (default: runs/ and the recipe's name)")
    parser.add_argument("--overwrite", action="store_true", help="do stages whose settings changed again")
    parser.add_argument("--ledger", help="ledger of the private data, in place of the one beside them")
    parser.add_argument(
        "--references",
        action="store_true",
        help="measure a student of the true labels and the noiseless majority too: PRIVATE, for data that may be seen",
    )
    parsed, overrides = parser.parse_known_args(args)
    recipe: Path = parsed.recipe
    missing = [f"{part}.yaml" for part in _PARTS if not (recipe / f"{part}.yaml").is_file()]
    expect(not missing, f"a recipe's files in {recipe}", missing=missing)
    given = _by_stage(overrides)
    if parsed.ledger:
        given["data"].append(f"--ledger={parsed.ledger}")
    root = parsed.run or Path("runs") / recipe.resolve().name
    common = ["--run", str(root)] + (["--overwrite"] if parsed.overwrite else [])

    def configured(part: str) -> list[str]:
        return ["--config", str(recipe / f"{part}.yaml")]

    # a stage is imported when its turn comes: what it needs may take seconds
    steps: list[tuple[Stage | str, str, str, list[str]]] = [
        (
            TEACHERS_FIT,
            "teachers_command",
            "fit",
            [*configured("data"), *configured("teachers"), *common, *given["data"], *given["teachers"]],
        ),
        (TEACHERS_VOTE, "teachers_command", "vote", common),
        (LABEL, "label_command", "main", [*configured("label"), *common, *given["label"]]),
        (STUDENT, "student", "main", ["fit", *configured("student"), *common, *given["student"]]),
        ("student test", "student", "main", ["test", "--run", str(root), "--verbose=false"]),
    ]
    if parsed.references:
        steps.append((REFERENCES, "references", "main", common))
    for number, (stage, module, function, words) in enumerate(steps, 1):
        print(f"[{number}/{len(steps)}] {stage if isinstance(stage, str) else stage.name}", flush=True)
        getattr(import_module(f"pate.stages.{module}"), function)(words)
    print()
    print(describe_run(Run(root, ledger=load_ledger(root))), end="")


def _by_stage(overrides: Sequence[str]) -> dict[str, list[str]]:
    """Sort ``--stage.name=value`` by stage; what is of the data keeps its prefix."""
    given: dict[str, list[str]] = {part: [] for part in _PARTS}
    for word in overrides:
        stage, _, setting = word.removeprefix("--").partition(".")
        right = word.startswith("--") and stage in given and "=" in setting
        expect(right, f"overrides such as --label.num_queries=100, of {', '.join(_PARTS)}", override=word)
        given[stage].append(word if stage == "data" else f"--{setting}")
    return given
