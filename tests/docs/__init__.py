"""The pages of the documentation, followed word for word as a stranger would: files, commands and what they print.

The notation is described in CONTRIBUTING.md. `blocks` reads a page, `notation` compares what a page shows with what was
printed, `stranger` does what a page says, `unexecuted` lists what cannot be done in a test, with the reason.
"""
