"""What the SQL stores share: everything except connections, the dialect of the schema and the hot paths.

The functions here are coroutines. A unit of work on PostgreSQL suspends at every statement; one on SQLite never does,
so its thread drives a coroutine to its end with one `send(None)` (`sqlite.threads`). One text serves both.
"""
