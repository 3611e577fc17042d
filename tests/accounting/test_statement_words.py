"""What statements say of neighbors, for one teacher and for several."""

import pytest

from pate.accounting._relation import NeighboringRelation
from pate.accounting._statement_words import _neighbors_of_labels


@pytest.mark.parametrize(
    ("relation", "teachers", "sentence"),
    [
        (NeighboringRelation.ADD_REMOVE_TEACHER, 1, "one teacher takes part or does not"),
        (NeighboringRelation.ADD_REMOVE_TEACHER, 2, "2 teachers at most take part or do not"),
        (NeighboringRelation.REPLACE_RECORD, 1, "one record of the private data is added, removed or altered, and"),
        (NeighboringRelation.REPLACE_RECORD, 3, "one record of the private data, which reaches 3 teachers at most, is"),
    ],
)
def test_neighbors_are_named_by_what_a_unit_reaches(
    relation: NeighboringRelation, teachers: int, sentence: str
) -> None:
    published = {"max_teachers_per_unit": teachers, "unit": "record"}
    assert _neighbors_of_labels(relation, published).startswith(sentence)
