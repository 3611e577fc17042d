"""The notebooks of the docs run, hold what they print and draw today, and stay short.

``python -m tests.pages.test_notebooks`` runs them and writes their outputs.
"""

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from matplotlib import pyplot as plt

import pate

ROOT = Path(pate.__file__).parents[1]
NOTEBOOKS = ROOT / "docs" / "notebooks"

# what is smaller here than in the docs
SMALLER = {
    "pipeline": {
        "12_000, 480": "400, 12",
        "PublicPCA(64)": "PublicPCA(8)",
        "num_steps=30": "num_steps=3",
    },
    "mechanisms": {"DRAWS = 2000": "DRAWS = 100", "(2.0, 4.0)": "(4.0,)"},
}


def code_cells(name: str) -> list[dict[str, Any]]:
    cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def code(name: str) -> list[str]:
    return ["".join(cell["source"]) for cell in code_cells(name)]


def run_in_kernel(name: str, folder: Path) -> Any:
    """Return the notebook with its outputs, from a kernel of its own, at the size that the docs
    show."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    resources = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(
        notebook, timeout=600, record_timing=False, coalesce_streams=True, resources=resources
    ).execute()
    notebook.metadata.language_info = {"name": "python"}  # without the version
    for cell in notebook.cells:
        if cell.cell_type == "code":  # without warnings of packages, which name places
            cell.outputs = [each for each in cell.outputs if each.get("name") != "stderr"]
    return notebook


def printed(outputs: list[Any]) -> str:
    """Return the text that a cell leaves, without versions of packages and the last digits of
    floats."""
    text = "".join("".join(output.get("text", "")) for output in outputs)
    return re.sub(
        r"\d+\.\d{6,}",
        lambda match: f"{float(match[0]):.6g}",
        re.sub(r"(?m)^Made with .*", "", text),
    )


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
def test_they_hold_what_they_print_and_draw(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv(
        "PYTHONWARNINGS", "ignore:IProgress not found"
    )  # of tqdm, without ipywidgets
    fresh = [cell for cell in run_in_kernel(name, tmp_path).cells if cell.cell_type == "code"]
    committed = code_cells(name)
    assert [printed(cell["outputs"]) for cell in committed] == [
        printed(cell.outputs) for cell in fresh
    ]
    for cells in (committed, fresh):
        assert (
            sum(
                "image/png" in output.get("data", {})
                for cell in cells
                for output in cell["outputs"]
            )
            == 1
        )


if __name__ == "__main__":
    nbformat: Any = pytest.importorskip("nbformat")
    for name in SMALLER:
        with TemporaryDirectory() as folder:
            nbformat.write(run_in_kernel(name, Path(folder)), NOTEBOOKS / f"{name}.ipynb")
