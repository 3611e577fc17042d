"""A run's ``data.yaml``, which its first stage writes: the source of its records and its ledger."""

import json
from collections.abc import Sequence
from pathlib import Path

import yaml
from jsonargparse import ArgumentError

from pate._core.files.reading import Json, digest, read_yaml
from pate._core.settings import SettingsParser, encode
from pate._core.validation import require, require_given, require_known
from pate._labeling.data.records import FeatureMap, Role
from pate._labeling.data.source import DataSource
from pate._labeling.runs.run import VOTES_IMPORT, Run, first_stage


def load_data(run: Run) -> DataSource:
    """Return the source of a run's records: the open one, or what its ``data.yaml`` describes.

    Raises ``ValueError`` if that file is missing, names no data, describes other data than the run
    began with, or names a class that cannot be imported.
    """
    if run.data is not None:
        source: DataSource = run.data
        return source
    require_data_config(run)
    if first_stage(run) is VOTES_IMPORT:
        require(
            run.inputs_of(VOTES_IMPORT).settings.get("data") is not None,
            "the run's public and test records; the same `pate label --votes`, with a data.yaml,"
            " adds them",
            run=str(run.root),
        )
    return read_data(run.data_config)


def describe_data(source: DataSource) -> Json:
    """Return the description of a source in a ``data.yaml``, with absolute paths.

    Raises ``ValueError`` if a file cannot hold its arguments. It can hold paths, numbers and texts.
    """
    try:
        return encode(DataSource, source, absolute_paths=True)
    except ValueError as error:
        raise ValueError(
            f"{error}. Later stages read the records again, as data.yaml describes them"
        ) from None


def read_data(path: Path, overrides: Sequence[str] = ()) -> DataSource:
    """Return the source of records that a ``data.yaml`` describes.

    Args:
        path: the file.
        overrides: the words of a command line that override settings.

    Raises:
        ValueError: if the file is missing or describes no source.
    """
    require(path.is_file(), "a data.yaml that names public and test records", missing=str(path))
    parser = SettingsParser(exit_on_error=False)
    parser.add_argument("--data", type=DataSource, required=True)
    parser.add_argument("--ledger", type=str | None, default=None)
    parser.add_argument("--config", action="config")
    try:
        parsed = parser.parse_args(["--config", str(path), *overrides])
        source: DataSource = parser.instantiate(parsed).data
    except ArgumentError as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"Expected a source of records under `data:` in {path}, got {reason}"
        ) from None
    return source


def public_digest(source: DataSource) -> str:
    """Return a digest of the public records and of their feature map."""
    features = encode(FeatureMap | None, source.feature_map)
    return digest(json.dumps(features, sort_keys=True), source.fingerprint(Role.PUBLIC))


def require_data_config(run: Run) -> None:
    """Raise ``ValueError`` if ``data.yaml`` is missing, damaged, or describes other data.

    The first stage recorded the data that it began with.
    """
    first = first_stage(run)
    begun, content = run.state(first), _read_data_config(run.root)
    if begun is None:
        require(content is not None, "a run with a data.yaml", run=str(run.root))
        return
    again = f"The same `pate {first.name}` puts it back"
    require(content is not None, f"the data.yaml of a run. {again}", missing=str(run.data_config))
    other = "import the votes again" if first is VOTES_IMPORT else "train other teachers"
    require(
        content is not None and content["data"] == begun.inputs.settings.get("data"),
        f"the data that `pate {first.name}` was begun with. {again}, or {other} with `overwrite`",
        changed=str(run.data_config),
    )


def read_locations(root: Path) -> tuple[DataSource | None, Path]:
    """Return the source that a run's ``data.yaml`` names, or None, and the place of its ledger.

    Unlike `load_data` it reads nothing private, so that it cannot compare them with the record of
    the first stage.

    Raises:
        ValueError: if that file is missing or damaged, or names a source that cannot be made.
    """
    path = root / "data.yaml"
    require(path.is_file(), "the folder of a run, with its data.yaml", missing=str(path))
    content = require_given(_read(path), "where data and ledger lie", damaged=str(path))
    source = None if content["data"] is None else read_data(path)
    return source, Run(
        root, ledger=Path(content["ledger"]) if content.get("ledger") else None
    ).ledger_path


def load_ledger(root: Path) -> Path | None:
    """Return the ledger that a run's ``data.yaml`` names. None without a ledger or a file.

    Raises ``ValueError`` if that file is damaged.
    """
    ledger = (_read_data_config(root) or {}).get("ledger")
    return Path(ledger) if ledger else None


def _read_data_config(root: Path) -> Json | None:
    path = root / "data.yaml"
    if not path.is_file():
        return None
    content, first = _read(path), first_stage(Run(root))
    # votes from elsewhere need no data
    require(
        content is not None and (content["data"] or first is VOTES_IMPORT),
        f"where data and ledger lie. Delete it, and the same `pate {first.name}` puts it back",
        damaged=str(path),
    )
    return content


def _read(path: Path) -> Json | None:
    """Return the content of a ``data.yaml``, or None if it is damaged.

    Raises ``ValueError`` on an unknown key.
    """
    try:
        content = read_yaml(path.read_text())
    except (yaml.YAMLError, ValueError):
        return None
    if not isinstance(content, dict):
        return None
    require_known(f"keys of {path}", map(str, content), ("data", "ledger"))
    return content if "data" in content and isinstance(content.get("ledger"), str | None) else None
