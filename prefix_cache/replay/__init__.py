"""Conversations played through real nodes and a router, and what caching saved on the way."""
