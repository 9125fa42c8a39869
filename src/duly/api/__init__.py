"""The REST API of a scheduler. `Api` is an ASGI application; `duly.api.server` serves it on a port.

The application needs only the base installation; the server needs the extra `server`.
"""

from duly.api.app import Api
from duly.api.config import ApiSettings

__all__ = ["Api", "ApiSettings"]
