"""The Redis backend.

How runs and jobs lie in Redis. Every key is `duly:{<namespace>}:<name>`: one hash tag, so one slot of a cluster.

Runs. `runs` is one hash, id → body: the run as it was put, never decoded beyond its first parts by a script, and never
changed but for its lane, when the run is placed. `lives` is one hash, id → life: what became of it (state, fence,
counts, node, result); a run that was never claimed, held or ended has none, and `touched` lists the waiting ones that
have one. `attempts` is id → the attempts that the life does not tell.

Where a run is. Waiting: in the sorted set `waiting:<priority>` by ready time (`levels` lists the priorities that have
any) until it starts or is promoted, then in `ready:<priority><queue>` by ready time (`lanes` lists those that have any;
`<queue>@<node>` for what is assigned to a node, also in `assigned:<node>` until it ends; `assignees` lists such
nodes), or held in `held:<priority>:<key>` (`holds` counts by key, `unstaffed` lists the handlers among them). Running:
in `running` by expiry. Ended: in `ended:<state>` by end. Scores are microseconds, exact in a double; equal ones are
ordered by id, as the contract wants. `running` and `groups` have one long name besides, which is no run (`KEEL` in
record.lua).

By job. `job:<job>` is the set of its waiting runs; those of its schedule are on a roster instead, a text in the hash
`plans`, from which they are struck late. `jobs` is name → record, `due:<shard>` a sorted set of names by time to plan,
`blocked` the set of paused and removed ones, `statistics` the counters by job, `tallies` what is yet to be added to
them.

By creation. Ids are appended to pages (`page:<n>`, strings of some 4 kB; `pages` orders them), 28 bytes a run.

Around. `dedupe` (handler and key → id), `groups` (group → roster of its members), `ranges:<uid>` (skipped ranges by
first instant), `awaited` (ids whose end somebody waits for), `totals` (ended runs by state), `depths` (waiting and
running by queue), `paused`, `request:<node>` (its last claim, for a day), `staff:<digest>` (handlers of a node, for a
day), `epochs`, `meta` (the current page, beats, amnesty, last fence, whether any run
was ever placed), `bell`, `log:<name>`, `gone` (how many entries of a log went), `kind:<kind>`, `bucket:<name>`. Leases,
nodes, shared values and `incarnation` belong to the coordinator and the wire.

Nothing expires but requests, staff and buckets: what is old is purged by the janitor.
"""

from duly.backends.redis.backend import RedisBackend, open_url

__all__ = ["RedisBackend", "open_url"]
