"""The records of this recipe: data sets of torchvision, or other map-style ones of torch."""

from pathlib import Path

from torchvision.datasets import CelebA

from pate.data import Keys, TorchDatasets


def my_datasets(root: str, size: int = 64) -> TorchDatasets:
    """Return a data set for each role: training is private, validation public.

    Their ledger, which counts the releases of all runs on these records, lies in the folder of the
    data.
    """
    private, public, test = (CelebA(root, split) for split in ("train", "valid", "test"))
    # `filename` is an attribute with the name of each picture. An id is given once, and stays when
    # other records come and go: it is no row number. An item may also be (picture, labels, id),
    # with the default Keys.
    keys = Keys(features=0, labels=1, ids="filename", size=size)
    # CelebA's list ends in a name without a column
    names = [name for name in private.attr_names if name]
    return TorchDatasets(
        private, public, test, names, keys=keys, ledger=Path(root) / "ledger.sqlite"
    )
