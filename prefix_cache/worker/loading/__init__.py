"""Models from their files: Hugging Face directories, GGUF, llama2.c."""

from prefix_cache.worker.loading.load import LoadedModel, load_model

__all__ = ["LoadedModel", "load_model"]
