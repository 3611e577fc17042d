"""The records of this recipe: the splits of a data set of Hugging Face (pip install datasets)."""

from pathlib import Path

from datasets import load_dataset, load_from_disk

from pate.data import HuggingFace, Keys


def my_splits(
    place: str,
    features: str,
    labels: str | list[str],
    ids: str,
    groups: str | None = None,
    size: int = 64,
) -> HuggingFace:
    """Return the splits of a data set: training is private, validation public.

    Their ledger, which counts the releases of all runs on these records, lies in the folder of the
    data, or in the folder of this file if they come from the hub: another recipe for the same
    records has to name it.
    """
    local = Path(place).is_dir()
    splits = load_from_disk(place) if local else load_dataset(place)
    # If records have no ids, make ids that do not depend on other records. A record with other
    # content then has another id, so that altering it reaches two teachers (docs/privacy.md):
    # splits = splits.map(lambda row: {"id":
    # hashlib.sha256(row["image"].tobytes()).hexdigest()})
    ledger = (Path(place) if local else Path(__file__).parent) / "ledger.sqlite"
    keys = Keys(features=features, labels=labels, ids=ids, groups=groups, size=size)
    return HuggingFace(splits, keys, ledger=ledger)
