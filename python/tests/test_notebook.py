"""The notebook runs, draws its plot and shows an explanation."""

from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient", reason="Python: nbclient, for the notebook")
nbformat = pytest.importorskip("nbformat", reason="Python: nbformat, for the notebook")
pytest.importorskip("ipykernel", reason="Python: ipykernel, for the notebook")
pytest.importorskip("matplotlib", reason="Python: matplotlib, for the notebook")

NOTEBOOK = Path(__file__).resolve().parents[1] / "read_amplification.ipynb"


def outputs(notebook):
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def text_of(notebook):
    texts = [output.get("text", "") for output in outputs(notebook)]
    return "\n".join(texts)


def test_the_notebook_runs():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    shown = text_of(notebook)
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(NOTEBOOK.parent)}}).execute()
    assert any("image/png" in output.get("data", {}) for output in outputs(notebook))
    text = text_of(notebook)
    assert "the filter says no, nothing read (true negative)" in text
    assert "holds the key (true positive)" in text
    # The output in the file is that of a run: it has counts and no times.
    assert text == shown
