"""Notifications: the service that finds out what to report and sends it, and the targets it sends to."""
