"""Stores as earlier versions of Duly wrote them, and what was in them. Later versions must open them."""
