"""Handlers whose dependencies come from a dishka container, in a scope of their own for every attempt."""

from collections.abc import AsyncIterator

from dishka import Provider, Scope, make_async_container, provide

from duly import Scheduler
from duly.integrations.dishka import FromDishka, inject, setup_dishka

scheduler = Scheduler("sqlite:///shop.db")


class Mailer:
    def send(self, to: str) -> str:
        return f"mailed {to}"


class Mail(Provider):
    @provide(scope=Scope.REQUEST)
    async def mailer(self) -> AsyncIterator[Mailer]:
        yield Mailer()  # opened for one attempt; what follows runs when the attempt has ended


@scheduler.job
@inject
async def welcome(to: str, mailer: FromDishka[Mailer]) -> str:
    return mailer.send(to)


setup_dishka(make_async_container(Mail()), scheduler)
