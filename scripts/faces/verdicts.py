"""The end of the demo: ``python -m scripts.faces.verdicts runs/faces runs/faces_stable_topk``."""

import sys
from pathlib import Path

from pate._core.files.reading import load_json
from pate._labeling.commands.run import describe_verdict

for run in sys.argv[1:]:
    figures = load_json(Path(run) / "public" / "student" / "metrics.json")
    print(f"{run}: {describe_verdict(figures['optimize'], figures)}")
