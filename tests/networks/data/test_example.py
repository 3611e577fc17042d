"""The source that the docs show keeps the contract, by the test that they show."""

import re
from pathlib import Path
from typing import Any

GUIDE = Path(__file__).parents[3] / "docs" / "data.md"

names: dict[str, Any] = {"__name__": __name__}
for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), flags=re.DOTALL):
    exec(compile(block, GUIDE.name, "exec"), names)

TestTable = names["TestTable"]
