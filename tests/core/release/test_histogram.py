"""Histograms from files, and what one user may change of them."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from pate._core.release.histogram import Histogram, read_counts, read_items, read_pairs
from pate._core.testing.laws import chi_square_p_value
from pate.mechanisms import seeded_generator

ITEMS = ("a", "b", "c", "d")


def pairs(folder: Path, *users: str) -> Path:
    """Write a file of users, each a word whose letters are the items."""
    lines = [f"u{i},{item}" for i, word in enumerate(users) for item in word]
    path = folder / "pairs.csv"
    path.write_text("\n".join(["user,item", *lines]) + "\n")
    return path


def counted(path: Path, seed: int = 0, **bounds: int) -> list[int]:
    scores: list[int] = read_pairs(
        path, ITEMS, generator=seeded_generator(seed), **bounds
    ).scores.tolist()
    return scores


def test_a_user_counts_once_for_each_item(tmp_path: Path) -> None:
    path = pairs(tmp_path, "aab", "aaaa", "cx", "")
    assert counted(path) == [2, 1, 1, 0]
    assert counted(path, max_each=3) == [5, 1, 1, 0]
    assert read_pairs(path, ITEMS, max_each=3, generator=seeded_generator(0)).sensitivity == 3


def test_columns_go_by_their_names(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text('\ufeffwhen, item ,user\n1,a,"x, y"\n\n2,a,z\n3,b,"x, y"\n', encoding="utf-8")
    assert counted(path) == [2, 1, 0, 0]


def test_at_most_so_many_items_of_a_user_count_each_as_often(tmp_path: Path) -> None:
    path = pairs(tmp_path, "abcd", "ab")
    drawn = [tuple(counted(path, seed, max_items=2)) for seed in range(1200)]
    outcomes: dict[tuple[int, ...], int] = {
        pair: i for i, pair in enumerate(itertools.combinations(range(4), 2))
    }
    observed = np.zeros(6)
    for scores in drawn:
        # what the second user, who has no more than two, adds
        left = np.array(scores) - [1, 1, 0, 0]
        assert left.sum() == 2
        observed[outcomes[tuple(np.flatnonzero(left).tolist())]] += 1
    assert chi_square_p_value(observed, np.full(6, 200.0)) > 1e-4
    assert chi_square_p_value(observed, np.array([250.0, 150, 200, 200, 250, 150])) < 1e-6


@pytest.mark.parametrize(
    "bounds", [{"max_each": 1}, {"max_each": 2}, {"max_each": 2, "max_items": 2}]
)
def test_one_user_moves_no_more_than_the_bounds(bounds: dict[str, int], tmp_path: Path) -> None:
    """The last user is there, is not, or has anything else; the draws of those before do not depend
    on it."""
    others = ("abcd", "aab", "ccccd")
    without = np.array(counted(pairs(tmp_path, *others), **bounds))
    for word in ("a", "abcd", "aaaabbbbccccdddd", "dddd"):
        change = np.array(counted(pairs(tmp_path, *others, word), **bounds)) - without
        assert change.min() >= 0 and change.max() <= bounds["max_each"]
        assert (change > 0).sum() <= bounds.get("max_items", 4)


def test_without_a_list_items_are_those_that_count(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("user,item\nu,pear\nv,pear\nu,fig\nu,\nv,  \nu,pear\n")
    found = read_pairs(path, None, generator=seeded_generator(0))
    assert found.items == ("fig", "pear") and found.scores.tolist() == [1, 2] and not found.public
    twice = read_pairs(path, None, max_each=2, generator=seeded_generator(0))
    assert twice.scores.tolist() == [1, 3] and twice.sensitivity == 2
    # an item that was not drawn for anybody does not exist
    names = {
        read_pairs(path, None, max_items=1, generator=seeded_generator(seed)).items
        for seed in range(20)
    }
    assert names == {("pear",), ("fig", "pear")}
    path.write_text("user,item\n")
    assert read_pairs(path, None, generator=seeded_generator(0)).items == ()


def test_counts_are_read_from_every_kind_of_file(tmp_path: Path) -> None:
    (tmp_path / "counts.csv").write_text("item,count\nx,3\ny,10\n")
    np.save(tmp_path / "counts.npy", np.array([3, 10], dtype=np.int32))
    np.savez(tmp_path / "counts.npz", counts=np.array([3.0, 10.0]), items=np.array(["x", "y"]))
    for name, items in (
        ("counts.csv", ("x", "y")),
        ("counts.npy", ("0", "1")),
        ("counts.npz", ("x", "y")),
    ):
        found = read_counts(tmp_path / name)
        assert found.items == items and found.scores.tolist() == [3, 10]
        assert found.scores.dtype.kind == "i"  # whole numbers are compared as such
    np.save(tmp_path / "means.npy", np.array([0.25, 0.5]))
    found = read_counts(tmp_path / "means.npy", sensitivity=0.02)
    assert found.scores.tolist() == [0.25, 0.5] and found.sensitivity == 0.02


def test_whole_counts_keep_their_last_digit(tmp_path: Path) -> None:
    path = tmp_path / "counts.csv"
    for large, dtype in ((2**53 + 1, np.int64), (2**63 - 1, np.int64), (2**64 - 1, np.uint64)):
        path.write_text(f"item,count\nx,{large}\ny,{large - 1}\nz,3.0\n")
        scores = read_counts(path).scores
        assert scores.tolist() == [large, large - 1, 3] and scores.dtype == dtype
    path.write_text("item,count\nx,2.5\ny,-3\n")
    assert read_counts(path).scores.tolist() == [2.5, -3.0]


@pytest.mark.parametrize(
    ("large", "message"),
    [
        (2**64, "whole counts of 64 bits"),
        ("1e300", "whole counts of 64 bits"),
        (f"{2**53 + 1}\ny,0.5", "counts of at most 4.29497e+09 unless all are whole"),
        ("-4294967296.5", "counts of at most 4.29497e+09 unless all are whole"),
    ],
)
def test_counts_that_would_be_rounded_are_refused_and_not_repeated(
    large: object, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "counts.csv"
    path.write_text(f"item,count\nx,{large}\n")
    with pytest.raises(ValueError) as caught:
        read_counts(path)
    assert str(caught.value) == f"Expected {message}"


def test_items_are_lines(tmp_path: Path) -> None:
    (tmp_path / "items.txt").write_text("a\n b \n\nc")
    assert read_items(tmp_path / "items.txt") == ("a", "b", "c")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"Expected columns user and item in the first line of [^\n]*, got columns='0 others'"),
        (
            "u1,lair\n",
            r"Expected columns user and item in the first line of [^\n]*, got columns='2 others'",
        ),
        ("user,item\nu\n", r"Expected 2 columns in line 2, got columns=1"),
    ],
)
def test_pairs_that_are_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text(text)
    with pytest.raises(ValueError, match=f"^{message}$"):
        counted(tmp_path / "pairs.csv")


def test_what_cannot_be_read_is_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    broken = (b'user,item\nu,"a\nv,b\nw,b\n', b'user,item\nu,"a\nv,b\nw,b"c\n')
    for content in (b"user,item\nu,a\nu,caf\xe9\n", *broken):
        path.write_bytes(content)
        with pytest.raises(
            ValueError,
            match=r"^Expected a \.csv in UTF-8 with[^\n]*, got another file at [^\n]*pairs.csv$",
        ):
            counted(path)


def test_no_choice_is_too_long(tmp_path: Path) -> None:
    """Python's reader of CSV ends at 131,072 characters."""
    path = tmp_path / "pairs.csv"
    path.write_bytes(b"user,item\nu,a\nv," + 200_000 * b"z")
    assert sum(counted(path)) == 1


def test_counts_that_are_refused(tmp_path: Path) -> None:
    (tmp_path / "counts.csv").write_text("item,count\nsecret,many\n")
    with pytest.raises(
        ValueError,
        match=r"^Expected finite numbers in the column count of [^\n]*$",
    ):
        read_counts(tmp_path / "counts.csv")
    (tmp_path / "counts.csv").write_text("item,count\nx,1\nx,2\n")
    with pytest.raises(ValueError, match=r"^Expected items that occur once, got twice=\['x'\]$"):
        read_counts(tmp_path / "counts.csv")
    np.save(tmp_path / "square.npy", np.eye(2))
    with pytest.raises(ValueError, match=r"^Expected counts as \[d\] numbers, got shape=\(2, 2\)$"):
        read_counts(tmp_path / "square.npy")
    np.savez(tmp_path / "none.npz", other=np.zeros(2))
    with pytest.raises(
        ValueError, match=r"^Expected arrays of [^\n]*none\.npz among counts, items, got other$"
    ):
        read_counts(tmp_path / "none.npz")
    np.savez(tmp_path / "items.npz", counts=np.zeros(2), item=np.array(["x", "y"]))
    with pytest.raises(ValueError, match=r"among counts, items, got item; did you mean items\?$"):
        read_counts(tmp_path / "items.npz")
    np.save(tmp_path / "wide.npy", np.array([1.7e308, -1.7e308]))
    with pytest.raises(ValueError, match=r"^Expected counts with finite differences$"):
        read_counts(tmp_path / "wide.npy")
    (tmp_path / "text.npy").write_text("1 2 3")
    with pytest.raises(
        ValueError, match=r"^Expected a file of counts in [^\n]*text.npy, got [^\n]*$"
    ):
        read_counts(tmp_path / "text.npy")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "none.npz").read_bytes()[:40])
    with pytest.raises(
        ValueError, match=r"^Expected a file of counts in [^\n]*cut.npz, got [^\n]*$"
    ):
        read_counts(tmp_path / "cut.npz")
    for name in ("counts.txt", "missing.npy", "missing.csv"):
        with pytest.raises(ValueError, match=r"^Expected [^\n]*$"):
            read_counts(tmp_path / name)
    with pytest.raises(ValueError, match=r"^Expected sensitivity > 0, got sensitivity=0$"):
        Histogram(("x",), np.zeros(1), 0, "")
    for bound in ("max_each", "max_items"):
        with pytest.raises(ValueError, match=rf"^Expected an integer {bound} >= 1, got {bound}=0$"):
            counted(pairs(tmp_path, "a"), **{bound: 0})
