"""``prefix-cache size``: how large KV is, and how many conversations fit."""
