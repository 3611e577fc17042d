"""The PRIVATE key of a run, which determines the partitions of its records and seals its labels."""

import secrets
from pathlib import Path

from pate._files import make_once, read_json
from pate._runs.run import Run
from pate._runs.stage import TEACHERS_FIT, Stage
from pate._validation import require

KEY_BYTES = 32
"""Length of the key of the partitions."""

KEY_FILE = Path("private/partition.json")
"""The file of the key of a run's partitions, relative to its folder."""


def read_key(run: Run) -> bytes | None:
    """Return the key of the partitions, or None if there is none yet.

    Raises:
        ValueError: if the file is damaged; the message does not reveal the key.
    """
    path = run.root / KEY_FILE
    if not path.is_file():
        return None
    try:
        key = bytes.fromhex(read_json(path.read_text())["key"])
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            f"Expected a key of hexadecimal digits, got something else in {path}. Put it back"
        ) from None
    require(16 <= len(key) <= 64, f"a key of 16 to 64 bytes in {path}", length=len(key))
    return key


def ensure_key(run: Run, stage: Stage) -> bytes:
    """Return the key of the partitions, generated unless the run's first ``stage`` has begun.

    Raises ``ValueError`` if the stage began with a key that is now lost.
    """
    key = read_key(run)
    if key is None:
        fresh = run.overwrite or run.state(stage) is None
        again = "train all teachers again" if stage is TEACHERS_FIT else "import the votes again"
        lost = (
            f"the key that `pate {stage.name}` was begun with. Put it back, or {again} with"
            " `overwrite`"
        )
        require(fresh, lost, missing=str(run.root / KEY_FILE))
        run.make_private()
        make_once(run.root / KEY_FILE, lambda: {"key": secrets.token_hex(KEY_BYTES)})
        key = read_key(run)
    assert key is not None, "the key exists by now"
    return key
