"""A reference inference worker: a paged Llama on torch, behind OpenAI's API."""
