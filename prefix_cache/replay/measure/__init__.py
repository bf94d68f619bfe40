"""Replays of requests: what was cached, what was not and why, and what other caches would do."""
