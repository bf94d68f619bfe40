"""``prefix-cache top``: nodes, or a router with its nodes, as they are now."""
