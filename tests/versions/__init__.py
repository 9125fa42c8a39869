"""The tests that need a server, on every version of it that can be obtained: `make test-versions`."""
