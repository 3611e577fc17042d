"""Teachers: many trained at once on disjoint partitions, and their votes."""

from pate.teachers.chunk import NetworkFactory, TeacherChunk
from pate.teachers.training import TeacherPlan, load_chunk, train_chunk
from pate.teachers.voting import cast_votes

__all__ = ["NetworkFactory", "TeacherChunk", "TeacherPlan", "cast_votes", "load_chunk", "train_chunk"]
