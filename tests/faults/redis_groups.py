"""Groups of Redis servers that replace a master which fails: a cluster, and a master with replicas and sentinels."""

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import redis

from duly.testing.guard import free_port
from duly.testing.servers import RedisServer, redis_sentinel, redis_server

SERVICE = "jobs"
SLOTS = 16384
BUS = 10_000  # the distance of a cluster's second port from its first
QUICK = {"repl-ping-replica-period": "1", "repl-diskless-sync-delay": "0", "appendonly": "yes"}
PATIENCE = 60.0


def eventually(check: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(redis.RedisError, OSError, LookupError):
            if check():
                return
        assert time.monotonic() < deadline, f"it never came true: {what}"
        time.sleep(0.05)


def ask(server: RedisServer, *words: object) -> object:
    """The reply of one server to one command."""
    client = redis.Redis(port=server.port, socket_timeout=5, decode_responses=True)
    try:
        return client.execute_command(*words)
    finally:
        client.close()


def replication(server: RedisServer) -> dict:
    return ask(server, "INFO", "replication")


class Group:
    """Servers that hold the same data: one is the master, until it fails."""

    url: str
    servers: list[RedisServer]

    def master(self) -> RedisServer:
        """The server that the others follow now; raises `LookupError` while there is none."""
        raise NotImplementedError

    def _server(self, ports: set[int]) -> RedisServer:
        for server in self.servers:
            if server.port in ports:
                return server
        raise LookupError("there is no master now")

    def failover(self) -> None:
        """Ask for an orderly change of the master."""
        raise NotImplementedError

    def whole(self) -> bool:
        """Whether one server is the master, and all others follow it."""
        master = self.master()
        return int(replication(master)["connected_slaves"]) == len(self.servers) - 1 and all(
            replication(server).get("master_link_status") == "up" for server in self.servers if server is not master
        )

    def until_whole(self) -> None:
        eventually(self.whole, "all replicas follow the master")

    def cut_off(self, master: RedisServer) -> None:
        """Break the connections to its replicas: what it acknowledges until they are back is only on the master."""
        ask(master, "CLIENT", "KILL", "TYPE", "replica")


class SentinelGroup(Group):
    """A master, two replicas and three sentinels."""

    def __init__(self, servers: list[RedisServer], sentinels: list[RedisServer]) -> None:
        self.servers = servers
        self.sentinels = sentinels
        hosts = ",".join(f"127.0.0.1:{each.port}" for each in sentinels)
        self.url = f"redis+sentinel://{hosts}/{SERVICE}/0"

    def master(self) -> RedisServer:
        _, port = ask(self.sentinels[0], "SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        return self._server({int(port)})

    def failover(self) -> None:
        ask(self.sentinels[0], "SENTINEL", "FAILOVER", SERVICE)

    def ready(self) -> bool:
        """Whether all sentinels know each other and the replicas: only then they can agree."""
        return self.whole() and all(
            len(ask(each, "SENTINEL", "SENTINELS", SERVICE)) == len(self.sentinels) - 1
            and len(ask(each, "SENTINEL", "REPLICAS", SERVICE)) == len(self.servers) - 1
            for each in self.sentinels
        )


class ClusterGroup(Group):
    """Three masters with a replica each; the group is the shard that has the slot of one namespace."""

    def __init__(self, nodes: list[RedisServer], namespace: str) -> None:
        self.nodes = nodes
        slot = int(ask(nodes[0], "CLUSTER", "KEYSLOT", f"{{{namespace}}}"))
        shard = slot * 3 // SLOTS
        self.servers = [nodes[shard], nodes[shard + 3]]
        self.url = "redis+cluster://" + ",".join(f"127.0.0.1:{each.port}" for each in nodes[:3])

    def master(self) -> RedisServer:
        """The one that the others outside of the shard call the master."""
        outside = next(node for node in self.nodes if node not in self.servers)
        lines = str(raw_cluster_nodes(outside)).splitlines()
        masters = {int(line.split()[1].partition("@")[0].rpartition(":")[2]) for line in lines if owns_slots(line)}
        return self._server(masters)

    def failover(self) -> None:
        master = self.master()
        ask(next(server for server in self.servers if server is not master), "CLUSTER", "FAILOVER")

    def whole(self) -> bool:
        return super().whole() and all("cluster_state:ok" in cluster_info(node) for node in self.nodes)


def raw_cluster_nodes(server: RedisServer) -> str:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as sock, sock.makefile("rb") as lines:
        sock.sendall(b"CLUSTER NODES\r\n")
        return lines.read(int(lines.readline()[1:])).decode()


def cluster_info(server: RedisServer) -> str:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as sock, sock.makefile("rb") as lines:
        sock.sendall(b"CLUSTER INFO\r\n")
        return lines.read(int(lines.readline()[1:])).decode()


def owns_slots(line: str) -> bool:
    words = line.split()
    return "master" in words[2] and "fail" not in words[2].split(",") and len(words) > 8


@contextmanager
def sentinel_group(config: dict[str, str] | None = None) -> Iterator[SentinelGroup]:
    options = QUICK | (config or {})
    with ExitStack() as stack:
        master = stack.enter_context(redis_server(config=options))
        follow = {"replicaof": f"127.0.0.1 {master.port}"}
        servers = [master, *(stack.enter_context(redis_server(config=options | follow)) for _ in range(2))]
        sentinels = [
            stack.enter_context(redis_sentinel(monitors={SERVICE: master}, quorum=2, down_after_ms=1000))
            for _ in range(3)
        ]
        group = SentinelGroup(servers, sentinels)
        eventually(group.ready, "the sentinels know each other and the replicas")
        yield group


@contextmanager
def cluster_group(namespace: str, config: dict[str, str] | None = None) -> Iterator[ClusterGroup]:
    """The cluster, and in it the shard of this namespace."""
    with ExitStack() as stack:
        nodes = [stack.enter_context(_cluster_node(QUICK | (config or {}))) for _ in range(6)]
        for number, node in enumerate(nodes):
            ask(node, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for number, node in enumerate(nodes[:3]):
            ask(node, "CLUSTER", "ADDSLOTS", *(slot for slot in range(SLOTS) if slot * 3 // SLOTS == number))
        for node in nodes[1:]:
            ask(node, "CLUSTER", "MEET", "127.0.0.1", nodes[0].port)
        for number, node in enumerate(nodes[3:]):
            master_id = str(ask(nodes[number], "CLUSTER", "MYID"))
            eventually(lambda n=node, m=master_id: m in raw_cluster_nodes(n), "it knows its master")
            ask(node, "CLUSTER", "REPLICATE", master_id)
        group = ClusterGroup(nodes, namespace)
        eventually(
            lambda: (
                group.whole()
                and all(len(raw_cluster_nodes(node).splitlines()) == len(nodes) for node in nodes)
                and all("handshake" not in raw_cluster_nodes(node) for node in nodes)
            ),
            "the cluster is complete",
        )
        yield group


@contextmanager
def _cluster_node(options: dict[str, str]) -> Iterator[RedisServer]:
    port = _cluster_port()
    config = options | {"cluster-enabled": "yes", "cluster-node-timeout": "1500"}
    with redis_server(config=config, port=port) as server:
        yield server


def _cluster_port() -> int:
    """A free port whose second one exists and is free."""
    while True:
        port = free_port()
        if port + BUS > 65_535:
            port -= 2 * BUS
        with (
            contextlib.suppress(OSError),
            socket.create_server(("127.0.0.1", port)),
            socket.create_server(("127.0.0.1", port + BUS)),
        ):
            return port
