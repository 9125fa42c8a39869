"""The API: a scheduler over HTTP, for any language. `Api` is an ASGI application; `server` gives it a port.

Needs no package beyond the base installation: only the server does, with the extra `server`.
"""

from duly.api.app import Api
from duly.api.config import ApiSettings

__all__ = ["Api", "ApiSettings"]
