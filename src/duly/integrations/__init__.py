"""Integrations: Duly inside the frameworks of others. Each module imports its own framework and no other.

`asgi` needs none, `dishka` and `django` need the extras of their names. Flask needs nothing but `.sync`.
"""
