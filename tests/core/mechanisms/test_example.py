"""The mechanism that the docs show keeps the contract, by the test that they show."""

import re
from pathlib import Path
from typing import Any

GUIDE = Path(__file__).parents[3] / "docs" / "mechanisms.md"

(block,) = (
    each
    for each in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), flags=re.DOTALL)
    if "class " in each
)
names: dict[str, Any] = {"__name__": __name__}
exec(compile(block, GUIDE.name, "exec"), names)

TestRandomizedMajority = names["TestRandomizedMajority"]
