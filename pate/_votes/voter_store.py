"""Private records on disk as voters: their coordinates along public directions, and their labels.

PRIVATE.
"""

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pate._files import atomic_write, digest, read_arrays, write_arrays
from pate._runs import TEACHERS_FIT, Run
from pate._validation import MOST_VOTERS
from pate._votes.geometry import Geometry, blocks
from pate._votes.voters import GroupVoters, RecordVoters, Voters
from pate.data._records import Records

_GEOMETRY = tuple(field.name for field in fields(Geometry))
_UNKNOWN = "unknown_labels"


@dataclass(frozen=True)
class VoterStore:
    """Voters on disk, as `pate teachers fit` leaves those in closed form.

    ``public.npz`` holds the public directions. ``coordinates.npy`` and ``labels.npy`` have a row
    for each record. With ``groups.npy``, which gives the teacher of each record, the records are
    sorted by teacher; without it each record is a teacher. ``public.npz`` also says whether labels
    may be unknown.
    """

    folder: Path

    def save(
        self,
        records: Records,
        geometry: Geometry,
        groups: NDArray[Any] | None,
        *,
        unknown_labels: bool,
    ) -> dict[Path, str]:
        """Write records and their teachers ``groups`` ``[N]``; return digests of the files."""
        order = np.arange(len(records))
        arrays: dict[str, NDArray[Any]] = {"labels": np.asarray(records.labels, dtype=np.uint8)}
        if groups is not None:
            order = np.argsort(groups, kind="stable")
            arrays = {name: array[order] for name, array in arrays.items()}
            arrays["groups"] = np.unique(groups[order], return_inverse=True)[1]
        # left by an earlier plan that was interrupted
        (self.folder / "groups.npy").unlink(missing_ok=True)
        geometry_file = self.folder / "public.npz"
        coordinates_file = self.folder / "coordinates.npy"
        public = {name: np.asarray(getattr(geometry, name)) for name in _GEOMETRY}
        write_arrays(geometry_file, **public, **{_UNKNOWN: np.asarray(unknown_labels)})
        shape = (len(records), geometry.num_directions)
        with atomic_write(coordinates_file) as file:
            np.lib.format.write_array_header_1_0(
                file, {"descr": "<i4", "fortran_order": False, "shape": shape}
            )
            for rows in blocks(len(records), sum(geometry.axes.shape)):
                file.write(
                    geometry.coordinates(records.features[order[rows]]).astype("<i4").tobytes()
                )
        files = [geometry_file, coordinates_file]
        for name, array in arrays.items():
            files.append(self.folder / f"{name}.npy")
            with atomic_write(files[-1]) as file:
                np.save(file, array)
        return {path: digest(path) for path in files}

    def load(self, *, num_voters: int) -> Voters:
        """Return the voters, of a nominal number; the facts about each record stay on disk."""
        arrays: dict[str, Any] = read_arrays(self.folder / "public.npz", _GEOMETRY, (_UNKNOWN,))
        unknown_labels = bool(arrays.pop(_UNKNOWN, False))
        coordinates, labels = (
            np.load(self.folder / f"{name}.npy", mmap_mode="r")
            for name in ("coordinates", "labels")
        )
        settings: dict[str, Any] = {
            "geometry": Geometry(
                **{name: array if array.ndim else array.item() for name, array in arrays.items()}
            ),
            "num_voters": num_voters,
            "num_labels": labels.shape[1],
            "unknown_labels": unknown_labels,
            "coordinates": coordinates,
            "labels": labels,
        }
        path = self.folder / "groups.npy"
        if not path.is_file():
            return RecordVoters(**settings)
        return GroupVoters(**settings, groups=np.load(path))


def fingerprint_of_voters(run: Run) -> str:
    """Return a digest of everything that determines the ballots of a run's voters. PRIVATE.

    Raises ``ValueError`` unless `pate teachers fit` has finished and its files are unchanged.
    """
    run.require_finished(TEACHERS_FIT)
    state = run.state(TEACHERS_FIT)
    assert state is not None, "it is finished"
    return digest(state.inputs.digest, json.dumps(state.files, sort_keys=True))


def load_voters(run: Run) -> Voters:
    """Return the voters of a run in closed form, from its public numbers and private files."""
    settings = run.inputs_of(TEACHERS_FIT).settings
    store = VoterStore(run.root / TEACHERS_FIT.outputs[0])
    return store.load(num_voters=settings["num_teachers"] or MOST_VOTERS)
