"""What the stores that speak SQL share: everything but their connections, their schema's dialect and the hot paths.

The functions here are coroutines. A unit of work on PostgreSQL suspends at every statement; one on SQLite never does,
so its thread drives a coroutine to its end with one `send(None)` (`sqlite.threads`). One text serves both.
"""
