"""A long campaign of calls made from the OpenAPI document: `python -m tests.api.campaign [--examples 300]`.

Against a real server on each kind of store. Ends with 1 if a call met a fault of the server or an answer that the
document does not have.
"""

import argparse
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.api.api_server import served

from duly.testing.postgres_servers import postgres_server
from duly.testing.servers import redis_server

EXCLUDED = "positive_data_acceptance"  # handlers, zones and expressions are known to the server alone: 422


def campaign(url: str, examples: int) -> int:
    sys.stdout.write(f"=== {url}\n")
    sys.stdout.flush()
    with served(url) as (port, token), tempfile.TemporaryDirectory() as folder:
        command = [str(Path(sys.executable).parent / "st"), "run", f"http://127.0.0.1:{port}/openapi.json"]
        command += ["-H", f"Authorization: Bearer {token}", "-n", str(examples), "--exclude-checks", EXCLUDED]
        command += ["--exclude-path", "/events"]  # a stream without end: tested by hand, in test_api_events.py
        command += ["--phases", "examples,coverage,fuzzing", "--no-color"]
        return subprocess.run(command, cwd=folder, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=300, help="per operation and store")
    parser.add_argument("--only", choices=["memory", "sqlite", "redis", "postgres"])
    given = parser.parse_args()
    with ExitStack() as stack:
        urls = {"memory": lambda: "memory://"}
        urls["sqlite"] = lambda: f"sqlite:///{stack.enter_context(tempfile.TemporaryDirectory())}/duly.db"
        urls["redis"] = lambda: stack.enter_context(redis_server()).url
        urls["postgres"] = lambda: stack.enter_context(postgres_server()).url
        chosen = [given.only] if given.only else list(urls)
        return max(campaign(urls[kind](), given.examples) for kind in chosen)


if __name__ == "__main__":
    sys.exit(main())
