"""All pictures of the pages in docs/, drawn anew by the code of today.

    python -m scripts.draw_pictures docs/images               # half an hour on one core
    python -m scripts.draw_pictures /tmp/images --small       # a minute, to see that all are drawn

A picture that a command of the page draws is drawn by that command, the last one above it. The
demo's run of `configs/faces` shows the faces.
"""

import argparse
import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

from pate import cli
from scripts import draw_gaps, draw_release, map_aggregators

ROOT = Path(__file__).parents[1]
_FEW = shlex.split(
    "--simulate.num_labels 3 --simulate.num_teachers 40 --simulate.num_public 60 --num_queries 40"
    ' --epsilons "[8]"'
)
_FEW_PLAN = shlex.split(
    "--num_records 2000 --num_labels 3 --num_public 100 --records_per_group 10"
    ' --curve "{20: 0.78, 80: 0.81}" --epsilons "[4]"'
)


def call(words: Sequence[str]) -> None:
    """Run a command of pate.

    Raises:
        RuntimeError: if it is refused.
    """
    if cli.main(list(words)):
        raise RuntimeError(f"Expected a command that ends well, got pate {shlex.join(words)}")


def command_above(page: str, picture: str) -> list[str]:
    """Return the words of the last command of a page above one of its pictures."""
    text = (ROOT / "docs" / page).read_text()
    above = text[: text.index(f"(images/{picture})")]
    return shlex.split(re.findall(r"^\$ pate (.*)$", above, flags=re.MULTILINE)[-1])


def _frontier(picture: Path, small: bool) -> None:
    words = command_above("frontier.md", picture.name) + _FEW * small
    call([*words, "--output", "frontier"])
    shutil.copy(Path("frontier", picture.name), picture)


def _plan(picture: Path, small: bool) -> None:
    words = command_above("planning.md", picture.name) + _FEW_PLAN * small
    call([*words, "--output", "plan"])
    shutil.copy("plan/plan.png", picture)


def _map(picture: Path, small: bool) -> None:
    map_aggregators.main(["--output", "map", *["--small"] * small])
    shutil.copy("map/map.png", picture)


def _gaps(picture: Path, small: bool) -> None:
    draw_gaps.main([str(picture), *["--labels", "3"] * small])


def _demo(small: bool) -> Path:
    """Return the demo's run on faces, made if it is missing."""
    run, num = Path("runs/faces"), "4000" if small else "80000"
    if not run.exists():
        words = (
            f"faces --output data/faces --num {num} --private_fraction 0.91 --public_fraction 0.045"
        )
        call(words.split())
        call(["run", str(ROOT / "configs/faces")])
    return run


def _faces(picture: Path, small: bool) -> None:
    """Draw the first faces of the demo, in rows of 12."""
    _demo(small)
    sheet = Image.new("RGB", (12 * 64, 5 * 64))
    for i, path in enumerate(sorted(Path("data/faces/img_align_celeba").iterdir())[:60]):
        with Image.open(path) as face:
            sheet.paste(face.resize((64, 64)), (i % 12 * 64, i // 12 * 64))
    sheet.save(picture)


def _release(picture: Path, small: bool) -> None:
    draw_release.main([str(_demo(small)), str(picture)])


PICTURES: dict[str, Callable[[Path, bool], None]] = {
    "faces.jpg": _faces,
    "frontier.png": _frontier,
    "gaps.png": _gaps,
    "map.png": _map,
    "plan.png": _plan,
    "release.png": _release,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw all pictures, or those that are named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path, help="folder of the pictures")
    parser.add_argument("--only", nargs="+", choices=PICTURES, default=list(PICTURES))
    parser.add_argument("--small", action="store_true", help="few labels, teachers and faces")
    options = parser.parse_args(arguments)
    output = options.output.absolute()
    output.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="pictures") as folder, chdir(folder):
        for name in options.only:
            PICTURES[name](output / name, options.small)


if __name__ == "__main__":
    main()
