"""The notebooks of python/examples run, and their pages show the same kinds of output."""

import pathlib

import pytest

import notebooks

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES, DOCS = ROOT / "python/examples", ROOT / "docs"
#: The page of each notebook.
PAGES = {"first_steps": "first-steps.md"}


def test_every_notebook_has_a_page():
    assert {file.stem for file in EXAMPLES.glob("*.ipynb")} == set(PAGES)


@pytest.mark.parametrize("name", PAGES)
def test_page_is_what_is_rendered_of_the_notebook(name):
    page = DOCS / PAGES[name]
    made, pictures = notebooks.render(notebooks.read(EXAMPLES / f"{name}.ipynb"), page.stem)
    again = f"run tests/python/notebooks.py render python/examples/{name}.ipynb docs/{page.name}"
    assert page.read_text(encoding="utf-8") == made, again
    assert {file.name: file.read_text(encoding="utf-8") for file in (DOCS / "pictures").glob(f"{page.stem}-*.svg")} == (
        pictures), again


@pytest.mark.parametrize("name", PAGES)
def test_cells_run_and_show_what_the_page_has(name):
    stored = notebooks.read(EXAMPLES / f"{name}.ipynb")
    assert notebooks.kinds(notebooks.run(stored)) == notebooks.kinds(stored)


def notebook(*sources):
    return {"cells": [{"cell_type": "code", "source": notebooks.lines(source), "outputs": []} for source in sources]}


class Drawn:
    def __repr__(self):
        return "<drawn>"

    def _repr_svg_(self):
        return "<svg/>"


def test_cells_share_names_and_show_what_they_print_and_their_last_value():
    made = notebooks.run(notebook("x = 20\nprint('made')", "x + 22", "x += 1", "None"))
    shown = [cell["outputs"] for cell in made["cells"]]
    assert shown == [[{"output_type": "stream", "name": "stdout", "text": ["made\n"]}],
                     [{"output_type": "execute_result", "data": {"text/plain": ["42"]}, "metadata": {},
                       "execution_count": 2}], [], []]


def test_picture_is_beside_the_page():
    made = notebooks.run(notebook("from test_notebooks import Drawn\nDrawn()"))
    page, pictures = notebooks.render(made, "name")
    assert "![The picture that the cell shows](pictures/name-1.svg)" in page and pictures == {"name-1.svg": "<svg/>"}


def test_what_a_cell_raises_is_raised_with_the_cell_in_its_trace():
    with pytest.raises(ZeroDivisionError) as raised:
        notebooks.run(notebook("x = 0", "1 / x"))
    assert raised.traceback[-1].path == "<cell 2>" or str(raised.traceback[-1].path).endswith("<cell 2>")


def test_page_that_is_not_rendered_again_is_noticed():
    stored = notebooks.read(EXAMPLES / "first_steps.ipynb")
    page, _ = notebooks.render(stored, "first-steps")
    stored["cells"][-1]["source"] = ["another end"]
    assert notebooks.render(stored, "first-steps")[0] != page
