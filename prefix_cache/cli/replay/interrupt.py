"""Ctrl-C that ends a replay between two requests, so that what was counted is whole."""

from __future__ import annotations

import signal
import time
from types import FrameType, TracebackType
from typing import Self


class Interrupt:
    """While the context is open, the first Ctrl-C raises KeyboardInterrupt where it is looked for.

    That is in ``check`` and ``wait``.  A second one interrupts at once.
    """

    def __init__(self) -> None:
        self._came = False
        self._is_waiting = False

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def check(self) -> None:
        """Raise KeyboardInterrupt if it came."""
        if self._came:
            raise KeyboardInterrupt

    def wait(self, seconds: float) -> None:
        """Sleep, and raise KeyboardInterrupt as soon as it comes."""
        self._is_waiting = True
        try:
            time.sleep(seconds)
        finally:
            self._is_waiting = False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._came or self._is_waiting:
            self._came = True
            raise KeyboardInterrupt
        self._came = True
