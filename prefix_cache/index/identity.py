"""Identity: everything besides tokens that makes KV different."""

from __future__ import annotations

import struct
from dataclasses import dataclass, fields

from prefix_cache.errors import InvalidIdentity

# Changing what `encode` writes changes every hash: give it a new version then.
_VERSION = b"prefix-cache identity v1"


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose KV it is.  KV is shared between equal identities only.

    ``kv_dtype`` includes the scale scheme of quantised KV.  An adapter is named by its name or
    content, never by the order in which it was loaded.  Raises ``InvalidIdentity`` for a field
    that is no string.
    """

    model: str
    revision: str = ""
    adapter: str = ""
    adapter_revision: str = ""
    kv_dtype: str = "bfloat16"
    salt: str = ""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, str):
                raise InvalidIdentity(
                    f"identity field {field.name} is {value!r}, expected a string",
                    field=field.name,
                    value=repr(value),
                )

    def encode(self, block_size: int) -> bytes:
        """Bytes that differ whenever an identity or block size does.

        Every field goes in under its name, and every part behind its length, so that no two
        fields can stand for each other.
        """
        parts = [_VERSION, b"block_size", struct.pack("<I", block_size)]
        for field in fields(self):
            value: str = getattr(self, field.name)
            parts += field.name.encode(), value.encode("utf-8", "surrogatepass")
        return b"".join(struct.pack("<I", len(part)) + part for part in parts)
