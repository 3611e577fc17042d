"""The aggregators that the pages show keep the contract, by the tests that they show."""

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]


def shown(page: str, **renamed: str) -> dict[str, Any]:
    """Run the blocks of a page; classes are renamed where other tests have one of that name."""
    names: dict[str, Any] = {"__name__": __name__}
    text = (ROOT / page).read_text().replace("from mine import NoisyMean\n", "")
    for block in re.findall(r"```python.*?\n(.*?)```", text, flags=re.DOTALL):
        for old, new in renamed.items():
            block = block.replace(old, new)
        exec(compile(block, page, "exec"), names)
    return names


TestShown = shown("docs/how-to/aggregator.md", NoisyMean="Shown")["TestShown"]
TestLaplaceVotes = shown("CONTRIBUTING.md")["TestLaplaceVotes"]
