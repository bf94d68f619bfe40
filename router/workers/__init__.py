"""Processes that share one port, and tell each other their pins and their load."""
