"""What the exchanges of a proxy have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from router.config import RouterConfig
from router.decisions import Decisions
from router.dispatcher import Dispatcher
from router.http.engine_pool import EnginePool
from router.http.measurements import Measurements
from router.prompts import BodyReader

if TYPE_CHECKING:
    from router.directory import Directory


@dataclass(frozen=True, slots=True)
class Forwarding:
    """What every exchange works with."""

    dispatcher: Dispatcher
    body_reader: BodyReader
    decisions: Decisions
    directory: Directory | None
    engines: EnginePool
    config: RouterConfig
    measurements: Measurements
