"""The child interpreter: the script that a worker starts to run handlers in.

It uses only the standard library until the first frame has set the module search path; then `child_main` takes over.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys

_LINK_FD = 3


def main() -> None:
    """Become like the worker, then serve its calls until it closes the link."""
    os.set_inheritable(_LINK_FD, False)
    link = socket.socket(fileno=_LINK_FD)
    header = link.recv(4, socket.MSG_WAITALL)
    if len(header) < 4:
        return  # closed again before there was anything to do
    (length,) = struct.unpack("!I", header)
    likeness = json.loads(link.recv(length, socket.MSG_WAITALL))
    sys.path[:] = likeness["path"]
    sys.argv[:] = likeness["argv"]
    from duly.runtime.executors.child_main import serve  # noqa: PLC0415  # cannot be found before

    serve(link)


if __name__ == "__main__":
    main()
