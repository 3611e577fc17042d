"""Releases under way: found by their request, told by their statement, destroyed by their token."""

import json
from pathlib import Path
from typing import Any

import pytest

from pate._core.mechanisms.noise import KEY_BITS
from pate._core.release.transaction import delete_other_seeds, destroy, pending_release


@pytest.mark.parametrize("key", [0, 5, 2**KEY_BITS - 1])
def test_a_request_finds_what_it_began(tmp_path: Path, key: int) -> None:
    folder = tmp_path / "private" / "seeds"
    begun = pending_release(folder, "one", key)
    begun.write()
    assert pending_release(folder, "one", 7) == begun and begun.key == key
    begun.write()
    assert pending_release(folder, "one", 7) == begun
    other = pending_release(folder, "two", 7)
    assert other.token != begun.token and not other.file.exists()
    # a guess of 128 bits; the seed is shown nowhere
    assert len(begun.token) == 32 and "key" not in repr(begun)


@pytest.mark.parametrize(
    "content",
    [
        {"token": 3},
        {"token": ""},
        {"token": None},
        {"key": "-1"},
        {"key": f"{1 << KEY_BITS:x}"},
        {"key": 5},
    ],
)
def test_what_no_command_wrote_is_refused(tmp_path: Path, content: dict[str, Any]) -> None:
    (tmp_path / "one.json").write_text(json.dumps({"token": "a", "key": "1"}))
    assert pending_release(tmp_path, "one", 7).key == 1
    (tmp_path / "one.json").write_text(json.dumps({"token": "a", "key": "1"} | content))
    with pytest.raises(ValueError, match=r"^Expected what a command that was killed left\."):
        pending_release(tmp_path, "one", 7)


def test_a_seed_is_destroyed_by_its_token_alone(tmp_path: Path) -> None:
    folder = tmp_path / "seeds"
    one, two, three = (pending_release(folder, request, 7) for request in ("one", "two", "three"))
    for pending in (one, two, three):
        pending.write()
    for token in (None, "another"):
        destroy(folder, token)
        assert len(list(folder.iterdir())) == 3
    destroy(folder, two.token)
    assert {*folder.iterdir()} == {one.file, three.file}
    delete_other_seeds(one)
    assert {*folder.iterdir()} == {one.file}
    destroy(folder, one.token)
    assert not folder.exists()
    destroy(folder, one.token)
