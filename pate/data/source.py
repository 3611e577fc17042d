"""The data of a run, made from the configuration that its first stage left."""

from __future__ import annotations

from pathlib import Path

import yaml
from jsonargparse import ArgumentParser

from pate.data.module import DataModule
from pate.runs import TEACHERS_FIT, Run
from pate.validation import expect


def load_data(run: Run) -> DataModule:
    """Make the data module that ``data.yaml`` in the run's folder describes.

    Raises ``ValueError`` where that file is missing, or says of the data what `teachers fit` did not.
    """
    expect(run.data_config.is_file(), "a run with a data.yaml", run=str(run.root))
    begun = run.state(TEACHERS_FIT)
    if begun is not None:
        described = yaml.safe_load(run.data_config.read_text())
        same = isinstance(described, dict) and described.get("data") == begun["config"].get("data")
        again = "The same `pate teachers fit` puts it back, or train other teachers with --overwrite"
        expect(same, f"the data that `teachers fit` was begun with. {again}", changed=str(run.data_config))
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--data", type=DataModule, required=True)
    parser.add_argument("--ledger", type=str | None, default=None)
    module: DataModule = parser.instantiate(parser.parse_path(run.data_config)).data
    return module


def load_ledger(root: Path) -> Path | None:
    """Return the ledger that ``data.yaml`` in a run's folder names, None where it names none or is missing."""
    config = root / "data.yaml"
    ledger = yaml.safe_load(config.read_text()).get("ledger") if config.is_file() else None
    return Path(ledger) if ledger else None
