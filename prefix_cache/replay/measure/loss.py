"""Where the prefilled tokens of a prompt come from: parts that add up to all of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields


@dataclass(slots=True)
class Loss:
    """Prefilled tokens by what made them.

    - ``first_seen``: nothing that was played before begins like that.
    - ``divergence``: seen before, but behind a place where the prompt differs.
    - ``reencoding``: text that the turn before had as ids, which encoding it anew has changed.
    - ``block_rounding``: seen before, in a block that was not full.
    - ``last_token``: all was seen, in full blocks; the last block is computed again, because
      there is always a token to compute.
    - ``eviction``: was cached, and was evicted.
    - ``routing``: another node would have had it.
    """

    first_seen: int = 0
    divergence: int = 0
    reencoding: int = 0
    block_rounding: int = 0
    last_token: int = 0
    eviction: int = 0
    routing: int = 0

    def add(self, other: Loss) -> None:
        """Add another one, part by part."""
        for part in PARTS:
            setattr(self, part, getattr(self, part) + getattr(other, part))

    @property
    def tokens(self) -> int:
        """All parts together."""
        return sum(getattr(self, part) for part in PARTS)

    def as_json(self) -> dict[str, int]:
        """The parts by name."""
        return asdict(self)


PARTS = tuple(field.name for field in fields(Loss))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """What one prompt could have hit, in tokens.

    ``seen`` tokens at its begin were played before, ``findable`` of them in blocks that an
    unlimited cache finds, ``at_node`` of these at the node where it went; ``repeated`` tokens
    behind those seen are nothing new, either.
    """

    prompt_tokens: int
    block_size: int
    seen: int
    findable: int
    at_node: int
    reencoded: int
    repeated: int

    def loss(self, cached_tokens: int) -> Loss:
        """Return why the tokens that were not cached were not; all parts are 0 or more.

        Not more than ``at_node`` tokens are cached.
        """
        rest = self.prompt_tokens - self.seen
        reencoding = min(rest, max(0, self.reencoded - self.seen))
        divergence = min(rest - reencoding, self.repeated)
        left = self.seen - self.findable
        is_last = self.seen == self.prompt_tokens and self.seen % self.block_size == 0
        return Loss(
            first_seen=rest - reencoding - divergence,
            divergence=divergence,
            reencoding=reencoding,
            block_rounding=0 if is_last else left,
            last_token=left if is_last else 0,
            eviction=self.at_node - cached_tokens,
            routing=self.findable - self.at_node,
        )
