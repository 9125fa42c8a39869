"""A backend of several servers: a store that holds the data, and others that notify sooner or coordinate."""

from duly.backends.split.backend import SplitBackend

__all__ = ["SplitBackend"]
