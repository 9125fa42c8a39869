"""Backends of several parts: one store that is the truth, and others that make it quicker or say who leads."""

from duly.backends.split.backend import SplitBackend

__all__ = ["SplitBackend"]
