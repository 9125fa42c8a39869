"""A process that goes through the steps of one run on the split stack and is killed after one of them."""

import asyncio
import os
import signal
import sys

from duly.backends import open_backend
from duly.backends.split import SplitBackend
from duly.backends.split.stream_notifier import stream_notifier_at
from duly.model import Run, Succeeded
from duly.ports import Opening
from duly.rules.settling import settle

# The steps, in their order: whose verb it is, and which.
STEPS = {
    "commit": ("queue", "put"),
    "xadd": ("stream", "publish"),
    "xreadgroup": ("stream", "read"),
    "claim": ("queue", "claim"),
    "xack": ("stream", "acknowledge"),
    "settle": ("queue", "settle"),
}
RUN = "0000000000000000000000000a"
LEASE = 0.5


class Deadly:
    """Passes everything on, and does not survive one of the verbs."""

    def __init__(self, inner, verb):
        self._inner = inner
        self._verb = verb

    def __getattr__(self, name):
        found = getattr(self._inner, name)
        if name != self._verb:
            return found

        async def last(*arguments, **named):
            answer = await found(*arguments, **named)
            if answer != [] or self._verb == "settle":  # an empty reading is not the one
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        return last


async def main(store, redis, namespace, step):
    opening = Opening(namespace=namespace)
    truth = open_backend(store, opening)
    stream = stream_notifier_at(redis, namespace)
    whose, verb = STEPS[step]
    if whose == "queue":
        truth.queue = Deadly(truth.queue, verb)
    else:
        stream = Deadly(stream, verb)
    async with SplitBackend(truth, None, stream) as backend:
        now = await backend.store.time()
        await backend.queue.put([Run(id=RUN, job="mail", handler="mail", due=now, ready_at=now)])
        while not backend._notifier._unclaimed:
            await backend.queue.wait("dead", None, 30.0)
        [claim] = (await backend.queue.claim("dead", None, None, 10, LEASE, 1)).claims
        await backend.queue.settle([settle(claim.run, claim.fence, Succeeded(), now, dice=0.5)])


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
    sys.exit(f"it survived {sys.argv[-1]}")
