"""notebooks.py run NOTEBOOK: executes the cells of a notebook in one namespace, like Jupyter, and stores their outputs in
the notebook.
notebooks.py render NOTEBOOK PAGE: writes the notebook with its outputs as a Markdown page, and its pictures beside the
page, in pictures/.

Does not need Jupyter. A cell is Python without magics, and its last expression is shown as in Jupyter."""

import argparse
import ast
import contextlib
import io
import json
import pathlib
import sys

SVG = "image/svg+xml"


def read(path):
    return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))


def write(path, notebook):
    pathlib.Path(path).write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def lines(text):
    """Returns text in the form in which a notebook stores it."""
    return text.splitlines(keepends=True)


def _shown(value):
    data = {"text/plain": lines(repr(value))}
    if hasattr(value, "_repr_svg_"):
        data[SVG] = lines(value._repr_svg_())
    return {"output_type": "execute_result", "data": data, "metadata": {}}


def _execute(source, namespace, name):
    """Executes a cell and returns its outputs."""
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, name, "exec"), namespace)
        value = eval(compile(ast.Expression(last.value), name, "eval"), namespace) if last else None
    outputs = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": lines(printed.getvalue())})
    if value is not None:
        outputs.append(_shown(value))
    return outputs


def run(notebook):
    """Returns the notebook with the outputs of all its cells. Raises the exception of a cell that fails."""
    namespace, cells, count = {"__name__": "__main__"}, [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            outputs = _execute("".join(cell["source"]), namespace, f"<cell {count}>")
            outputs = [{**output, "execution_count": count} if output["output_type"] == "execute_result" else output
                       for output in outputs]
            cell = {**cell, "outputs": outputs, "execution_count": count}
        cells.append(cell)
    return {**notebook, "cells": cells}


def _block(text, language=""):
    return f"```{language}\n{text.rstrip()}\n```\n"


def render(notebook, name):
    """Returns (page, {file name of a picture: its text}). name: the prefix of the pictures' names."""
    parts, pictures = [], {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source.rstrip() + "\n")
            continue
        parts.append(_block(source, "python"))
        for output in cell["outputs"]:
            data = output.get("data", {})
            if SVG in data:
                file = f"{name}-{len(pictures) + 1}.svg"
                pictures[file] = "".join(data[SVG])
                parts.append(f"![The picture that the cell shows](pictures/{file})\n")
            else:
                parts.append(_block("".join(output.get("text") or data["text/plain"])))
    return "\n".join(parts), pictures


def kinds(notebook):
    """Returns the kinds of output of each code cell, because numbers and times differ from run to run."""
    return [[(output["output_type"], *sorted(output.get("data", ()))) for output in cell["outputs"]]
            for cell in notebook["cells"] if cell["cell_type"] == "code"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "render"))
    parser.add_argument("notebook", type=pathlib.Path)
    parser.add_argument("page", type=pathlib.Path, nargs="?")
    given = parser.parse_args()
    if given.what == "run":
        write(given.notebook, run(read(given.notebook)))
        return
    if given.page is None:
        parser.error("render needs the page that it shall write")
    page, pictures = render(read(given.notebook), given.page.stem)
    given.page.write_text(page, encoding="utf-8")
    for file, text in pictures.items():
        (given.page.parent / "pictures" / file).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
