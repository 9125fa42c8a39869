"""Routing: from a method and a path to a route of the table."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from duly.api.problems import Problem
from duly.api.routes import Route

_NAMED = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,255}")


class Routing:
    """Finds a route: by the whole path where it has no variable part, else by the shape of the path."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._exact: defaultdict[str, dict[str, Route]] = defaultdict(dict)
        self._shaped: defaultdict[tuple[str, str], dict[str, Route]] = defaultdict(dict)
        for route in routes:
            if route.variable is None:
                self._exact[route.path][route.method] = route
            else:
                before, _, after = route.path.partition("{" + route.variable + "}")
                self._shaped[before, after][route.method] = route

    def find(self, method: str, path: str) -> tuple[Route, str]:
        """The route and the variable part of the path; a `Problem` where there is none."""
        methods, name = self._exact.get(path), ""
        if methods is None:
            methods, name = self._by_shape(path)
        if methods is None:
            raise Problem(404, "not-found", f"there is nothing at {path}: see /openapi.json")
        route = methods.get("GET" if method == "HEAD" else method)
        if route is None:
            allowed = ", ".join(sorted({*methods, *(["HEAD"] if "GET" in methods else [])}))
            raise Problem(
                405,
                "method-not-allowed",
                f"{method} {path}: only {allowed} is understood here",
                headers=((b"allow", allowed.encode()),),
            )
        return route, name

    def _by_shape(self, path: str) -> tuple[dict[str, Route] | None, str]:
        """`/jobs/{id}/runs` is what stands before and after one segment that may be a name or an id.

        Nothing else can be one, and a store need not be asked about it: some cannot even take it.
        """
        parts = path.split("/")
        if len(parts) not in {3, 4} or not _NAMED.fullmatch(parts[2]):
            return None, ""
        after = f"/{parts[3]}" if len(parts) == 4 else ""
        return self._shaped.get((f"/{parts[1]}/", after)), parts[2]
