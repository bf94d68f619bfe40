"""For users' own tests: an OpenAI-compatible engine that needs no GPU and fails on demand."""

from prefix_cache.testing.config import EngineConfig
from prefix_cache.testing.engine import Engine, run_engine, running_engine
from prefix_cache.testing.faults import Faults

__all__ = ["Engine", "EngineConfig", "Faults", "run_engine", "running_engine"]
