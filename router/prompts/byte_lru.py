"""A bounded memory."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class ByteLRU(Generic[Key, Value]):
    """Values of at most ``max_bytes`` in all; the one unused for longest goes first."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._values: OrderedDict[Key, tuple[Value, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Key) -> Value | None:
        """Return a value, which counts as use."""
        if key not in self._values:
            return None
        self._values.move_to_end(key)
        return self._values[key][0]

    def put(self, key: Key, value: Value, num_bytes: int) -> None:
        """Remember a value of this size in place of the one before; too large a one is not kept."""
        if key in self._values:
            self._bytes -= self._values.pop(key)[1]
        if num_bytes > self._max_bytes:
            return
        self._values[key] = value, num_bytes
        self._bytes += num_bytes
        while self._bytes > self._max_bytes:
            _, (_, freed) = self._values.popitem(last=False)
            self._bytes -= freed
