"""``prefix-cache bench``: index and node against baselines of the same run."""
