"""Rendered faces: the embedded data set.

Cartoon faces with binary attributes, for trying the whole pipeline when CelebA is not at hand.
Nothing is downloaded and nothing is learned: a face's traits are sampled first, its measures and
colors follow, and both are drawn layer by layer with soft masks, a block of faces at once. A folder
of them has the layout of CelebA's.
"""

from pate._core.lazy import TYPE_CHECKING, lazy_names
from pate._labeling.commands.table import Command

if TYPE_CHECKING:
    from pate.lab.faces.canvas import FACE_ATTRIBUTES as FACE_ATTRIBUTES
    from pate.lab.faces.drawing import (
        FolderDiffersError as FolderDiffersError,
        render_faces as render_faces,
        write_celeba_folder as write_celeba_folder,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, __file__)

COMMANDS = {
    "faces": Command(
        "pate.lab.faces.command:main",
        "draw faces and write them in CelebA's format",
        "pate faces --output data/faces --num 10000",
    ),
}
