"""The command `pate faces`."""

from __future__ import annotations

from collections.abc import Sequence

from jsonargparse import ArgumentParser

from pate.data.faces import write_celeba_folder


def main(args: Sequence[str]) -> None:
    """Run `pate faces`."""
    parser = ArgumentParser(prog="pate faces", description="Draw faces and write them as a folder in CelebA's format.")
    parser.add_function_arguments(write_celeba_folder)
    parsed = parser.parse_args(list(args))
    write_celeba_folder(**parsed.as_dict())
    print(f"{parsed.num} faces in {parsed.output}")
