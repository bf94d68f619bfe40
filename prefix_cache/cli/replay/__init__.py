"""``prefix-cache replay``: what caching would save on traffic that is in a file."""
