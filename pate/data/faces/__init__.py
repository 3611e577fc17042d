"""Rendered faces: the embedded data set.

Cartoon faces with binary attributes, for trying the whole pipeline when CelebA is not at hand.
Nothing is downloaded and nothing is learned: a face's traits are sampled first, its measures and
colors follow, and both are drawn layer by layer with soft masks, a block of faces at once. A folder
of them has the layout of CelebA's.
"""

from pate.data.faces._canvas import FACE_ATTRIBUTES as FACE_ATTRIBUTES
from pate.data.faces._drawing import (
    FolderDiffersError as FolderDiffersError,
    render_faces as render_faces,
    write_celeba_folder as write_celeba_folder,
)
