"""``prefix-cache simulate``: the figures of the PagedAttention paper, and loads of one's own."""
