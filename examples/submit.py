"""Submitting work from another program: by handle, typed by the handler's own signature."""

import asyncio

from app import scheduler, send_mail


async def main() -> None:
    async with scheduler.client():
        run = await send_mail.submit(to="ada@example.org", subject="Hi")
        later = send_mail.options(delay=600, priority=5, dedupe_key="welcome-ada")
        again = await later.submit(to="ada@example.org", subject="Later")
        print(run.id, again.id)


if __name__ == "__main__":
    asyncio.run(main())
