"""The command `pate topk`."""

import json
from functools import partial
from pathlib import Path

from pate._core.release.histogram import HistogramFiles
from pate._core.release.top_k import TopKSettings, release_top_k
from pate._labeling.commands.parsing import run_command


def topk(
    *, source: HistogramFiles, settings: TopKSettings, output: Path, ledger: Path | None = None
) -> None:
    """Release the k items that most users chose, privately.

    Each call is a release, and its cost is in the ledger of the data; after a kill, run it again to
    continue. The options bound the contribution of one user. The list of items is public,
    unless the mechanism is limited_domain.

    Args:
        source: the files of the histogram.
        settings: the settings of the release.
        output: the .csv or .json to write. The statement is next to it, in .privacy.json and
            .privacy.txt.
        ledger: ledger of the private data, one for all releases from them; by default a file next
            to the data, which has their name (for a link, next to its target).

    Raises:
        ValueError: on input out of range, before anything is spent.
    """
    book = source.ledger_path if ledger is None else ledger
    statement = release_top_k(source, settings, output=output, ledger=book)
    print(statement.text, end="")
    if statement["mechanism"].get("fallback") is not True and _is_empty(output):
        by_gap = statement.get("listing", {}).get("only_gap", False)
        why = (
            "no gap between counts passed its noisy test"
            if by_gap
            else "the list ended before its first item"
        )
        public = "" if statement["num_items"] is not None else " on a public list of --items"
        print(
            f"Nothing is listed: {why}, and the cost above is paid.\nA larger --target_epsilon,"
            f"{' another --k,' * by_gap} or --mechanism peeling{public}, which always lists, change"
            " that; to ask again costs again."
        )
    print(
        f"Release {statement['release']} of {book}: {output}, {output.with_suffix('.privacy.json')}"
    )


def _is_empty(output: Path) -> bool:
    """Return whether a released list names no item."""
    text = output.read_text(encoding="utf-8")
    return not json.loads(text)["items"] if output.suffix == ".json" else text.count("\n") == 1


main = partial(
    run_command, "topk", topk, grouped={"source": HistogramFiles, "settings": TopKSettings}
)
