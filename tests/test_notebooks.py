"""The notebooks of the docs run, are committed without outputs, and stay short."""

import json
from pathlib import Path

import pytest
from matplotlib import pyplot as plt

import pate

ROOT = Path(pate.__file__).parents[1]
NOTEBOOKS = ROOT / "docs" / "notebooks"
MOST_LINES = 40

# what is smaller here than in the docs
SMALLER = {
    "pipeline": {"12_000, 480": "400, 12", "PublicPCA(64)": "PublicPCA(8)", "num_steps=30": "num_steps=3"},
    "mechanisms": {"DRAWS = 2000": "DRAWS = 100", "(2.0, 4.0)": "(4.0,)"},
}


def code(name: str) -> list[str]:
    cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def test_each_notebook_is_run() -> None:
    assert {path.stem for path in NOTEBOOKS.glob("*.ipynb")} == SMALLER.keys()


@pytest.mark.parametrize("name", SMALLER)
def test_they_are_short_and_hold_no_outputs(name: str) -> None:
    lines = [line for block in code(name) for line in block.splitlines() if line.strip()]
    assert len(lines) <= MOST_LINES
    cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALLER)
def test_their_cells_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "notebook"}
    blocks = code(name)
    for large, small in SMALLER[name].items():
        assert any(large in block for block in blocks), large
        blocks = [block.replace(large, small) for block in blocks]
    try:
        for block in blocks:
            exec(compile(block, name, "exec"), names)
        (figure,) = map(plt.figure, plt.get_fignums())
        assert figure.axes[0].has_data()
    finally:
        plt.close("all")
    out = capsys.readouterr().out
    assert {"pipeline": "epsilon = 8.000", "mechanisms": "answered, exactly: True"}[name] in out


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALLER)
def test_they_run_as_they_are(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a kernel of their own, at the size that the docs show."""
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    client.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert any(cell.outputs for cell in notebook.cells if cell.cell_type == "code")
