"""Runs the cells of a notebook as Jupyter does: in `__main__`, which has no file, on one event loop.

The notebook comes as JSON on standard input, the printed texts of its code cells go out as a JSON list. Started with
`python -c`, because a script would give `__main__` a file.
"""

import ast
import asyncio
import contextlib
import inspect
import io
import json
import sys


async def run_cells(notebook: dict) -> list[str]:
    names = vars(sys.modules["__main__"])
    printed = []
    for number, cell in enumerate(each for each in notebook["cells"] if each["cell_type"] == "code"):
        code = compile("".join(cell["source"]), f"<cell {number}>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            if code.co_flags & inspect.CO_COROUTINE:
                await eval(code, names)
            else:
                exec(code, names)
        printed.append(out.getvalue())
    return printed


def main() -> None:
    notebook = json.load(sys.stdin)
    printed = asyncio.run(run_cells(notebook))
    json.dump(printed, sys.stdout)
