"""``prefix-cache demo``: conversations, over gRPC, over HTTP, or with workers."""
