"""The doorbell's URL: that of a Redis server, with the names of its stream and of the group that reads it."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlencode

from msgspec import Struct

from duly.backends.redis.url import Place, parse
from duly.errors import ConfigurationError

_NAME = re.compile(r"[\w.:-]{1,64}", re.ASCII)


class Door(Struct, frozen=True):
    """Where the doorbell is. Streams are `duly:{namespace}:stream:<stream>:<band>`."""

    place: Place
    stream: str = "jobs"
    group: str = "workers"


def parse_door(url: str) -> Door:
    """A Redis URL, which may have the options `stream` and `group` besides its own."""
    before, mark, query = url.partition("?")
    options = parse_qsl(query, keep_blank_values=True)
    own = {name: value for name, value in options if name in {"stream", "group"}}
    for name, value in own.items():
        if _NAME.fullmatch(value) is None:
            raise ConfigurationError(f"{name}={value!r} is not possible: letters, digits, _ . : and -, at most 64")
    rest = urlencode([(name, value) for name, value in options if name not in own])
    return Door(parse(f"{before}{mark if rest else ''}{rest}"), **own)
