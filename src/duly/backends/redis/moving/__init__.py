"""Dumping, loading and closing a Redis store."""
