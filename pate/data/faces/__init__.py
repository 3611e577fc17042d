"""Rendered faces: the embedded data set.

Cartoon faces with binary attributes, for trying the whole pipeline when CelebA is not at hand.
Nothing is downloaded and nothing is learned: a face's traits are sampled first (`traits`), its
measures and colors follow (`geometry`), and both are drawn layer by layer (`drawing`) with
soft masks (`canvas`), a block of faces at once (`rendering`). `folder` writes them in the layout of
CelebA.
"""

from pate.data.faces._canvas import FACE_ATTRIBUTES as FACE_ATTRIBUTES
from pate.data.faces._folder import (
    FolderDiffersError as FolderDiffersError,
    render_faces as render_faces,
    write_celeba_folder as write_celeba_folder,
)
