"""Routing policies on simulated nodes: the router's own, those of others, and what each costs."""
