"""etcd as a coordinator: leases, presence and small shared values. It keeps no runs."""

from duly.backends.etcd.seat import EtcdSeat, open_url

__all__ = ["EtcdSeat", "open_url"]
