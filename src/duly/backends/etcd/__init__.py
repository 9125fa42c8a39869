"""etcd as a coordinator: leases, presence and small shared values. It keeps no runs."""

from duly.backends.etcd.session import EtcdSession, open_url

__all__ = ["EtcdSession", "open_url"]
