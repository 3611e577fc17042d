"""The command `pate topk`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from pate._commands.parsing import call
from pate._histogram import HistogramFiles
from pate._release.top_k import release_top_k
from pate._release.top_k_settings import TopKSettings


def topk(
    *, source: HistogramFiles, settings: TopKSettings, output: Path, ledger: Path | None = None
) -> None:
    """Release the k items that most users chose, privately.

    Each call is a release, and pays for it in the ledger of the data; one that was killed goes on
    when it is given again. What one user contributes is bounded as the options say; the list of
    items is public, unless the mechanism is limited_domain.

    Args:
        source: where the histogram comes from.
        settings: what is asked for.
        output: the .csv or .json that is written; the statement is beside it, in .privacy.json and
            .privacy.txt.
        ledger: ledger of the private data, one for all releases from them; by default a file beside
            the data, pairs.ledger.sqlite for pairs.csv (beside the file itself, where that is a
            link).

    Raises:
        ValueError: on input out of range, before anything is spent.
    """
    book = source.ledger_path if ledger is None else ledger
    statement = release_top_k(source, settings, output=output, ledger=book)
    print(statement.text, end="")
    print(
        f"Release {statement['release']} of {book}: {output}, {output.with_suffix('.privacy.json')}"
    )


main = partial(call, "topk", topk, grouped={"source": HistogramFiles, "settings": TopKSettings})
