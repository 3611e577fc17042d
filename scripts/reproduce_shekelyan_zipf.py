"""Make the figure of Zipf's law of Shekelyan & Loukides (2022) again.

python scripts/reproduce_shekelyan_zipf.py [--full]
"""

from collections.abc import Sequence

from scripts.reproduction.script import reproduce
from scripts.reproduction.shekelyan_figures import zipf


def main(arguments: Sequence[str] | None = None) -> None:
    """Make it, and keep what is found."""
    reproduce("shekelyan_zipf", __doc__, zipf, arguments)


if __name__ == "__main__":
    main()
