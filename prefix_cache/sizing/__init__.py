"""How large KV is for a model, and how many conversations fit."""
