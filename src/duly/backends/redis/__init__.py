"""The Redis backend. Every key is `duly:{<namespace>}:<name>`: one hash tag, so one slot of a cluster.

The names of keys are a stored format: they stay as 0.1.0 wrote them, also where the code uses other words.

Runs. `runs` is one hash, id → body: the run as it was put. Scripts decode only its first fields, and change only its
queue key, when a node is assigned. `lives` is one hash, id → status: what has become of the run (state, fence,
counts, node, result). A run that was never claimed, held or ended has no status; `touched` lists the waiting runs
that have one. `attempts` is id → the attempts that are not part of the status. `lines:<id>` is a list: the log of a run
(report.lua).

Where a run is. Pending: in the sorted set `waiting:<priority>` by ready time (`levels` lists the non-empty ones)
until it starts or is promoted. Queued: in `ready:<queue key>` by ready time (`lanes` lists the non-empty ones); a
queue key is the priority and the queue, for a run assigned to a node also `@<node>`; such a run is in
`assigned:<node>` as well until it ends (`assignees` lists the nodes). The sets of scheduled runs have a `!` before
the priority. Held: in `held:<priority>:<key>` (`holds` counts by key, `unstaffed` lists the handlers that held runs
wait for). Running: in `running` by expiry. Ended: in `ended:<state>` by end. Scores are microseconds, exact in a
double; equal scores are ordered by id, as the contract demands. `running` and `groups` also contain a long name,
which is not a run (`LONG_NAME` in layout.lua).

By job. `job:<job>` is the set of its submitted waiting runs; those of its schedule are an id list in the hash
`plans`, from which they are removed late. `jobs` is name → record, `due:<shard>` a sorted set of names by time to
plan (`shards` lists the shards except for `main`), `blocked` the set of paused and removed ones, `names` and `handlers`
the index of jobs (lib/job_index.lua), `statistics` the counters by job, `tallies` the settlements not yet counted
there, `recent:<job>` its 200 newest ended runs (since when they are complete is in `meta`).

By creation. Ids are appended to pages (`page:<n>`, strings of some 4 kB; `pages` orders them), 28 bytes a run.

The rest. `dedupe` (handler and key → id), `unique` and `uniques` (keys that stay unique for a time), `groups` (group
→ id list of its members), `ranges:<uid>` (skipped ranges by first instant), `awaited` (ids whose end a session waits
for), `totals` (ended runs by state), `depths` (waiting and running by queue), `paused`, `damaged` (ids of unreadable
records), `request:<node>` (its last claim, for a day), `staff:<digest>` (handler set of a node, for a day), `epochs`,
`meta` (the current page, heartbeats, amnesty, last fence, whether any run was ever assigned), `bell` (counts
wake-ups), `log:<name>`, `gone` (how many entries of a log were deleted), `kind:<kind>`, `bucket:<name>`. `leases`,
`nodes`, `alive`, `metrics` and `shared` belong to the coordinator, `incarnation` to the client. `mark` says why a
store is not in use (`transfer`); an import writes under `loading:`, and a store that moved has its keys under `moved:`.

Only requests, handler sets and buckets expire: the janitor purges everything else that is old.
"""

from duly.backends.redis.backend import RedisBackend, open_url

__all__ = ["RedisBackend", "open_url"]
