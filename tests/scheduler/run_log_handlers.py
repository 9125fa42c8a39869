"""Handlers that run in processes of their own, for the tests of logs."""

# ruff: noqa: T201  # what they print is the point

import logging
import os
import sys
import time

from duly import Context


def talk(ctx: Context, word: str) -> None:
    print(f"{word} printed")
    print(f"{word} complained", file=sys.stderr)
    os.system(f"echo {word} from a program")
    logging.getLogger("shop.apart").warning("%s logged", word)
    ctx.log.info("%s by the context", word)
    ctx.progress(1, 2, word)
    print("no end", end="")


def hang(ctx: Context) -> None:
    print("begun", flush=True)
    ctx.log.info("in the log")
    time.sleep(1000)


def die() -> None:
    print("last words", flush=True)
    os.kill(os.getpid(), 9)


def flood() -> None:
    for number in range(50_000):
        print(number)
    os.write(1, b"\xff\x00\xfe binary\n")
