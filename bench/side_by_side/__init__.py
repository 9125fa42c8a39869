"""Duly beside other job systems of the same language: one run, the same servers, one table.

Run it with `python -m bench.side_by_side`. Each peer lives in a virtual environment of its own and is measured by a
small adapter in `adapters`, which runs in processes that speak lines of JSON with this one.
"""
