"""Adapters: each peer behind two things, a client that submits and a worker that works.

An adapter runs inside the peer's own virtual environment, so everything in this folder uses the standard library and,
in the module named after the peer, that peer. A module offers

* `client(url)`: an object of the shape of `submitting.Client` or `submitting.AsyncClient`;
* `work(stint, notes)`: registers the handlers and works until the process ends;
* `keep_time(stint)`, where one-time and recurring jobs need a process beside the worker;
* `prepare(url)`, where the store needs tables first.
"""
