"""An interactive Python for `tests.docs.stranger`.

A line of JSON with code comes in, a line with what it printed goes out.
"""

import ast
import asyncio
import contextlib
import inspect
import io
import json
import sys
import traceback


def main() -> None:
    answers, sys.path[0] = sys.stdout, ""  # as in an interactive session: modules of the current folder are found,
    vars(sys.modules["__main__"]).update(__file__=None, __spec__=None)  # and the main module has no file
    names: dict[str, object] = {"__name__": "__main__"}
    with asyncio.Runner() as runner:
        for line in sys.stdin:
            asked = json.loads(line)
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                error = run(runner, asked["code"], names, single=asked["single"])
            last = error.rstrip().rpartition("\n")[2]
            answers.write(json.dumps({"printed": printed.getvalue(), "error": error, "last": last}) + "\n")
            answers.flush()


def run(runner: asyncio.Runner, code: str, names: dict[str, object], *, single: bool) -> str:
    """Run it, and return the traceback if it raised."""
    try:
        compiled = compile(f"{code}\n", "<page>", "single" if single else "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if compiled.co_flags & inspect.CO_COROUTINE:
            runner.run(eval(compiled, names))
        else:
            exec(compiled, names)
    except Exception:  # noqa: BLE001  # whatever the page's code raises is shown
        return traceback.format_exc()
    return ""


if __name__ == "__main__":
    main()
