"""The serving experiment of the PagedAttention paper, on paper GPUs."""
