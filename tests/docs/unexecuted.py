"""What of the pages is not executed by the tests, and why. Nothing else may be left out."""

import re

DOCKER = "needs docker"
KUBECTL = "needs kubectl and a cluster"
SYSTEMCTL = "changes the machine: users, files of root, systemctl"
NETWORK = "installs packages from the network"
DRAWING = "nothing to execute"

# Commands, by how they begin.
COMMANDS = {
    r"pip install": NETWORK,
    r"make (demo|test|site)\b": NETWORK,
    r"make bench": NETWORK,
    r"docker ": DOCKER,
    r"export POSTGRES_PASSWORD=": DOCKER,
    r"kubectl ": KUBECTL,
    r"sudo ": SYSTEMCTL,
}

# Languages of blocks.
LANGUAGES = {"text": DRAWING, "mermaid": DRAWING}


def reason(command: str) -> str | None:
    """Why a command is not executed; None if it is."""
    return next((why for begin, why in COMMANDS.items() if re.match(begin, command)), None)
