"""The aggregator that a page shows keeps the contract, by the test that it shows."""

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]


def shown(page: str) -> dict[str, Any]:
    """Run the blocks of a page."""
    names: dict[str, Any] = {"__name__": __name__}
    for block in re.findall(r"```python.*?\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL):
        exec(compile(block, page, "exec"), names)
    return names


TestChosen = shown("CONTRIBUTING.md")["TestChosen"]
