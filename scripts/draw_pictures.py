"""All pictures of the pages in docs/, drawn anew by the code of today.

    python -m scripts.draw_pictures docs/images               # some minutes on one core
    python -m scripts.draw_pictures /tmp/images --small       # a minute, to see that all are drawn

The demo's run of `configs/faces` shows the faces.
"""

import argparse
import shlex
from collections.abc import Callable, Sequence
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

from pate import cli
from scripts import draw_release
from scripts.faces.drawing import write_celeba_folder

ROOT = Path(__file__).parents[1]


def call(words: Sequence[str]) -> None:
    """Run a command of pate.

    Raises:
        RuntimeError: if it is refused.
    """
    if cli.main(list(words)):
        raise RuntimeError(f"Expected a command that ends well, got pate {shlex.join(words)}")


def _demo(small: bool) -> Path:
    """Return the demo's run on faces, made if it is missing."""
    run, num = Path("runs/faces"), 4000 if small else 80000
    if not run.exists():
        write_celeba_folder(
            Path("data/faces"), num=num, private_fraction=0.91, public_fraction=0.045
        )
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
    "release.png": _release,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw all pictures, or those that are named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path, help="folder of the pictures")
    parser.add_argument("--only", nargs="+", choices=PICTURES, default=list(PICTURES))
    parser.add_argument("--small", action="store_true", help="few labels and faces")
    options = parser.parse_args(arguments)
    output = options.output.absolute()
    output.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="pictures") as folder, chdir(folder):
        for name in options.only:
            PICTURES[name](output / name, options.small)


if __name__ == "__main__":
    main()
