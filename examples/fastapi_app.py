"""A web application that runs its own jobs, with Duly's API mounted under /duly."""

from fastapi import FastAPI

from duly import Every, Scheduler
from duly.api import Api
from duly.integrations.asgi import lifespan

scheduler = Scheduler("sqlite:///shop.db")


@scheduler.job
async def send_mail(to: str, subject: str) -> str:
    return f"sent {subject!r} to {to}"


@scheduler.job(Every(minutes=5))
async def tidy_carts() -> None: ...


app = FastAPI(lifespan=lifespan(scheduler))
app.mount("/duly", Api(scheduler))


@app.post("/orders")
async def order(customer: str) -> dict[str, str]:
    run = await send_mail.submit(to=customer, subject="Thank you")
    return {"run": run.id}
