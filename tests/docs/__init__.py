"""The pages of the documentation, followed word for word as a stranger would: files, commands and what they print.

The notation is described in CONTRIBUTING.md. `blocks` reads a page, `stranger` does what it says with the servers of
`addresses`, `notation` compares what a page shows with what was printed, `unexecuted` lists what cannot be done in a
test, with the reason.
"""
