"""What each GPU of a pipeline stage holds: its share of weights, and of KV per token."""

from __future__ import annotations

from dataclasses import dataclass

from prefix_cache.sizing.dtypes import kv_bytes
from prefix_cache.sizing.setup import Setup
from prefix_cache.sizing.shape import Layer, stored_bytes

_SCALE_BYTES = 4
_K_AND_V = 2


@dataclass(frozen=True, slots=True)
class Stage:
    """Consecutive layers on ``setup.tp`` GPUs; all sizes are bytes on one of these."""

    setup: Setup
    first_layer: int
    layers: tuple[Layer, ...]
    weights_bytes: int

    def bytes_per_token(self, context: int) -> int:
        """Bytes of KV that one more token takes in a sequence of ``context`` tokens."""
        growing = (layer for layer in self.layers if not self.is_full(layer, context))
        elements = sum(layer.kv_elements(self.setup.tp) for layer in growing)
        return elements * kv_bytes(self.setup.kv_dtype)

    def block_bytes(self, context: int) -> int:
        """Bytes of one more block: its tokens, and its scales where blocks have their own."""
        return sum(
            self.layer_block_bytes(layer)
            for layer in self.layers
            if not self.is_full(layer, context)
        )

    def fixed_bytes(self, context: int) -> int:
        """Bytes of a sequence that its tokens do not add to: full windows, constant states."""
        windows = sum(
            self.window_blocks(layer) * self.layer_block_bytes(layer)
            for layer in self.layers
            if self.is_full(layer, context)
        )
        return windows + sum(-(-layer.state_bytes // self.setup.tp) for layer in self.layers)

    def sequence_bytes(self, context: int) -> int:
        """Bytes of one sequence: ``fixed_bytes`` and whole blocks."""
        return self.fixed_bytes(context) + self.num_blocks(context) * self.block_bytes(context)

    def num_blocks(self, num_tokens: int) -> int:
        """Blocks that hold so many tokens."""
        return -(-num_tokens // self.setup.block_size)

    def window_blocks(self, layer: Layer) -> int:
        """Most blocks that a window touches: one more than its tokens fill, as it slides."""
        assert layer.window is not None
        return self.num_blocks(layer.window - 1) + 1

    def is_full(self, layer: Layer, context: int) -> bool:
        """Whether the window of the layer is full, so that more tokens add nothing."""
        return layer.window is not None and self.num_blocks(context) > self.window_blocks(layer)

    def layer_block_bytes(self, layer: Layer) -> int:
        """Bytes of one block of one layer."""
        setup = self.setup
        values = setup.block_size * layer.kv_elements(setup.tp) * kv_bytes(setup.kv_dtype)
        if setup.kv_scales != "block":
            return values
        return values + _K_AND_V * -(-layer.kv_heads // setup.tp) * _SCALE_BYTES


def stages(setup: Setup) -> list[Stage]:
    """Return the stages in order.

    Layers that do not divide go one each to the stages before the last, which has the output head
    already: from the last but one forwards.
    """
    shape, pp = setup.shape, setup.pp
    each, left = divmod(len(shape.layers), pp)
    counts = [each + (pp - 1 - left <= number < pp - 1) for number in range(pp)]
    head = shape.head_parameters
    if pp > 1 and not head:  # tied: the last stage needs a copy of the first one's embeddings
        head = shape.embedding_parameters
    result: list[Stage] = []
    first = 0
    for number, count in enumerate(counts):
        layers = shape.layers[first : first + count]
        around = shape.embedding_parameters if number == 0 else 0
        if number == pp - 1:
            around += head + shape.other_parameters
        weights = stored_bytes(sum(layer.parameters for layer in layers), around, setup.dtype)
        result.append(Stage(setup, first, layers, -(-weights // setup.tp)))
        first += count
    return result
