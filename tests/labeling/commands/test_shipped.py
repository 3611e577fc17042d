"""Shipped recipes and their files are found by name, by a module that imports little."""

from pathlib import Path

import pytest

from pate._labeling.commands.places import PARTS, find_recipe, shipped_recipes, with_shipped_files


def test_shipped_recipes_go_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert {"faces", "table", "celeba"} <= set(shipped_recipes())
    assert find_recipe(Path("faces")) == shipped_recipes()["faces"]
    (tmp_path / "faces").mkdir()
    assert find_recipe(Path("faces")) == shipped_recipes()["faces"]  # a folder of pictures, say
    (tmp_path / "faces" / "data.yaml").touch()
    with pytest.raises(ValueError, match="a recipe's files in faces, got missing="):
        find_recipe(Path("faces"))
    assert find_recipe(Path("configs/table")) == shipped_recipes()["table"]
    (tmp_path / "configs" / "table").mkdir(parents=True)
    for folder in (tmp_path / "faces", tmp_path / "configs" / "table"):
        for part in PARTS:
            (folder / f"{part}.yaml").touch()
    assert find_recipe(Path("faces")) == Path("faces")
    assert find_recipe(Path("configs/table")) == Path("configs/table")
    with pytest.raises(ValueError, match=r"one of celeba, .*table, got recipe='face'"):
        find_recipe(Path("face"))


def test_files_of_shipped_recipes_are_found_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shipped = shipped_recipes()["faces"] / "data.yaml"
    written = [
        "--config",
        "configs/faces/data.yaml",
        "--config=configs/faces/data.yaml",
        "--run",
        "configs/faces",
    ]
    assert with_shipped_files(written) == [
        "--config",
        str(shipped),
        f"--config={shipped}",
        "--run",
        "configs/faces",
    ]
    for path in ("configs/mine/data.yaml", "faces/data.yaml", "data.yaml", "configs"):
        assert with_shipped_files([f"--config={path}"]) == [f"--config={path}"]
    (tmp_path / "configs" / "faces").mkdir(parents=True)
    (tmp_path / "configs" / "faces" / "data.yaml").touch()
    assert with_shipped_files(written) == written
