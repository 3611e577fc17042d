"""Draw faces: ``python -m scripts.faces --output data/faces --num 10000``."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from scripts.faces.drawing import write_celeba_folder


def main(words: Sequence[str] | None = None) -> None:
    """Write a folder of faces."""
    parser = argparse.ArgumentParser(prog="python -m scripts.faces", allow_abbrev=False)
    parser.add_argument("--output", type=Path, required=True, help="the folder")
    parser.add_argument("--num", type=int, required=True, help="number of faces")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", type=int, default=32, help="width and height, 32 to 64")
    parser.add_argument("--private_fraction", type=float, default=0.8)
    parser.add_argument("--public_fraction", type=float, default=0.1)
    asked = vars(parser.parse_args(words))
    try:
        write_celeba_folder(asked.pop("output"), **asked)
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
