"""The worker's half on torch: KV memory in blocks, its dtypes, and attention over it."""
