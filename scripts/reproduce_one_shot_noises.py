"""One-shot top-k: Laplace and Gumbel noise at the same guarantee, with counts; permute-and-flip's bounded range.

Claims of Qiao, Su & Zhang (2021), Durfee & Rogers (2019) and the post "One-shot DP Top-k mechanisms". It needs no data.

    python scripts/reproduce_one_shot_noises.py          # --full: 20 s on one core
"""

from collections.abc import Sequence

from scripts.reproduction.one_shot_claims import one_shot_noises
from scripts.reproduction.script import reproduce


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the finding and keep its files."""
    reproduce("one_shot_noises", __doc__, one_shot_noises, arguments)


if __name__ == "__main__":
    main()
