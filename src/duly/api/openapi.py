"""Makes the OpenAPI 3.1 document from the table of routes and its structs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from duly.api.permissions import GRANTS, Permission, TokenRole
from duly.api.problems import ProblemDocument
from duly.api.requests import NAME
from duly.api.routes import TEXT, Route, Streamed
from duly.version import __version__

_REFERENCE = "#/components/schemas/{name}"
_PROMETHEUS = "text/plain"
_JSON = "application/json"
_EVENTS = "text/event-stream"
_HEADERS = {
    "If-Match": "The revision that the job must have, as in its ETag; `*`: the job must exist.",
    "Last-Event-ID": "The id of the last known event: the events after it are sent first.",
    "If-None-Match": "`*`: the job must be new.",
}


def document_of(routes: Iterable[Route]) -> bytes:
    """The document as JSON."""
    table = list(routes)
    kinds = _kinds(table)
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    known = {_key(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}
    paths: dict[str, Any] = {}
    for route in table:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, known, components)
    document = {
        "openapi": "3.1.0",
        "info": {
            "title": "Duly",
            "version": __version__,
            "description": "A distributed job scheduler. Errors are problem documents (RFC 9457).",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": "duly token create"}},
        },
    }
    return msgspec.json.encode(document)


def _key(kind: Any) -> str:
    return repr(kind)


def _kinds(routes: Sequence[Route]) -> list[Any]:
    """Every type in the table, once."""
    found: dict[str, Any] = {_key(ProblemDocument): ProblemDocument}
    for route in routes:
        alternatives = [each for kind in route.gives.values() for each in _alternatives(kind)]
        sent = [] if route.body is None else list(route.body.kinds)
        asked = [] if route.query is None else [route.query]
        found |= {_key(kind): kind for kind in (*alternatives, *sent, *asked)}
    return list(found.values())


def _alternatives(kind: Any) -> tuple[Any, ...]:
    """The members of a union, because msgspec cannot describe a union of structs."""
    if kind is None or kind == TEXT:
        return ()
    if isinstance(kind, Streamed):
        return kind.data if kind.document is None else (*kind.data, kind.document)
    members = getattr(kind, "__args__", ()) if isinstance(kind, type(int | str)) else (kind,)
    return tuple(member for member in members if member is not str)


def _operation(route: Route, known: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": route.handle.__name__.strip("_"),
        "tags": [route.path.split("/")[1]],
        "responses": _responses(route, known),
    }
    if parameters := _parameters(route, components):
        operation["parameters"] = parameters
    if route.body is not None:
        content = {_JSON: {"schema": _any_of([known[_key(kind)] for kind in route.body.kinds])}}
        operation["requestBody"] = {"required": route.body.required, "content": content}
    if route.permission is not Permission.PUBLIC:
        operation["security"] = [{"token": []}]
        roles = [role.value for role in TokenRole if route.permission in GRANTS[role]]
        operation["description"] = f"Permission: {route.permission.value} (roles {', '.join(roles)})."
    return operation


def _any_of(schemas: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return schemas[0] if len(schemas) == 1 else {"anyOf": list(schemas)}


def _parameters(route: Route, components: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if route.variable is not None:
        schema: dict[str, Any] = {"type": "string", "minLength": 1}
        if route.variable == "name":
            schema["pattern"] = NAME
        found.append({"name": route.variable, "in": "path", "required": True, "schema": schema})
    if route.query is not None:
        properties = components[route.query.__name__]["properties"]
        found += [_parameter(name, schema) for name, schema in properties.items()]
    found += [
        {"name": name, "in": "header", "schema": {"type": "string"}, "description": _HEADERS[name]}
        for name in route.headers
    ]
    return found


def _parameter(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """A field of a query as a parameter, without null, which a query string cannot express."""
    plain = dict(schema)
    if plain.get("default", ...) is None:
        del plain["default"]
    options = [each for each in plain.get("anyOf", []) if each != {"type": "null"}]
    if len(options) == 1:
        del plain["anyOf"]
        plain = {**options[0], **plain}
    elif options:
        plain["anyOf"] = options
    return {"name": name, "in": "query", "schema": plain}


def _responses(route: Route, known: dict[str, Any]) -> dict[str, Any]:
    given = {str(status): _response(status, kind, known) for status, kind in route.gives.items()}
    for status in _problems(route):
        problem = {"schema": known[_key(ProblemDocument)]}
        entry = given.setdefault(str(status), {"description": HTTPStatus(status).phrase, "content": {}})
        entry["content"]["application/problem+json"] = problem
    return dict(sorted(given.items()))


def _response(status: int, kind: Any, known: dict[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = {"description": HTTPStatus(status).phrase}
    if kind is None:
        return {**entry, "content": {}}
    if isinstance(kind, Streamed):
        data = _any_of([known[_key(each)] for each in kind.data])
        document = {} if kind.document is None else {_JSON: {"schema": known[_key(kind.document)]}}
        return {**entry, "content": {**document, _EVENTS: {"schema": _streamed(data)}}}
    content: dict[str, Any] = {}
    if alternatives := _alternatives(kind):
        content[_JSON] = {"schema": _any_of([known[_key(each)] for each in alternatives])}
    if kind == TEXT or str in getattr(kind, "__args__", ()):
        content[_PROMETHEUS] = {"schema": {"type": "string"}}
    return {**entry, "content": content}


def _streamed(data: dict[str, Any]) -> dict[str, Any]:
    """A stream of messages, described as a string; the schema is that of the data of each message."""
    described = "Server-sent events: `id` is a number that grows, `event` the kind, `data` one line of JSON."
    return {"type": "string", "description": described, "contentMediaType": _JSON, "contentSchema": data}


def _problems(route: Route) -> list[int]:
    """The statuses of problems that a call may return."""
    found = [405]
    if route.permission is not Permission.PUBLIC:
        found += [401, 403, 429, 503]
    if route.variable is not None:
        found += [404, 422]
    if route.query is not None:
        found += [400, 422]
    if route.body is not None:
        found += [400, 413, 415, 422]
    if route.conflicts or "If-Match" in route.headers:
        found.append(409)
    if route.method != "GET":
        found.append(400)  # an unsupported condition
    return sorted(set(found))
