"""What the tests of the API share: a scheduler with jobs, callers with tokens, and calls without a network."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from duly import Every, Scheduler, SchedulerConfig
from duly.api import Api, ApiSettings
from duly.api import tokens as access


def shop(url: str, **config) -> Scheduler:
    """Handlers of every kind; the default one takes any payload."""
    settings = {"default_handler": "note", "lock_ttl": 5.0, **config}
    scheduler = Scheduler(url, SchedulerConfig(**settings))

    @scheduler.job
    async def note(payload: Any = None) -> Any:
        return payload

    @scheduler.job(queue="mail", priority=3, tags=["post"])
    async def greet(name: str, times: int = 1) -> str:
        """Say hello."""
        return " ".join([f"hello {name}"] * times)

    @scheduler.job(retry=None)
    async def explode(word: str = "kaboom") -> None:
        raise ValueError(word)

    @scheduler.job(Every(hours=6), tags=["billing"])
    async def invoice() -> None: ...

    return scheduler


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def problem(self):
        assert self.headers["content-type"] == "application/problem+json", self
        document = self.json
        assert document["status"] == self.status
        assert document["type"].startswith("urn:duly:problem:")
        return document


@dataclass
class Caller:
    """Calls the application as a server would."""

    api: Api
    token: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    client: tuple | None = None
    root: str = ""

    def with_token(self, token: str | None) -> "Caller":
        return Caller(self.api, token, self.headers, self.client, self.root)

    async def __call__(self, method, target, body=None, *, raw: bytes | None = None, **headers) -> Answer:
        path, _, query = target.partition("?")
        sent = {"host": "localhost", **self.headers}
        if self.token is not None:
            sent["authorization"] = f"Bearer {self.token}"
        content = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        if content:
            sent["content-type"] = "application/json"
        sent |= {name.replace("_", "-"): value for name, value in headers.items() if value is not None}
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "client": self.client,
            "root_path": self.root,
            "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
        }
        told, received = [], []

        async def receive():
            received.append(content)
            if len(received) > 1:
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": content, "more_body": False}

        async def send(message):
            told.append(message)

        await self.api(scope, receive, send)
        start, *rest = told
        names = {name.decode(): value.decode() for name, value in start["headers"]}
        return Answer(start["status"], names, b"".join(each["body"] for each in rest))

    async def get(self, target, **headers) -> Answer:
        return await self("GET", target, **headers)

    async def post(self, target, body=None, **options) -> Answer:
        return await self("POST", target, body, **options)


async def new_token(scheduler: Scheduler, role: str, **limits) -> str:
    client = await scheduler.opened()
    _, text = await access.create(
        client.backend.store, datetime.now(UTC), f"a {role}", access.TokenRole(role), **limits
    )
    return text


async def caller_for(scheduler: Scheduler, role: str = "admin", **settings) -> Caller:
    return Caller(Api(scheduler, ApiSettings(**settings)), await new_token(scheduler, role))
