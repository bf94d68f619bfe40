"""A server on paper: how many tokens of KV it holds, and how long each step takes it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from prefix_cache.errors import InvalidArgument
from prefix_cache.sizing import Gpu, ModelShape, Setup, Sizing, size

COMPUTE_SHARE = 0.5
"""Of the peak throughput, what matrix products reach."""
BANDWIDTH_SHARE = 0.8
"""Of the peak bandwidth, what reads of weights and KV reach."""
STEP_S = 0.005
"""Seconds of each step beside that: scheduling, launches, sampling, reductions between GPUs."""
BLOCK_READ_TOKENS = 4
"""Reading a block takes as long as this many tokens more than it has: at 16 tokens a block that
makes attention a quarter slower than over one stretch, as the paper measured (20 to 26 %)."""
PCIE_BANDWIDTH = 25e9
"""Bytes a second between GPU and host: PCIe 4.0 with 16 lanes, as copies reach it."""
COPY_S = 10e-6
"""Seconds to start one copy between GPU and host; each block is two copies per layer, K and V."""

_UTILIZATION = 0.9
_NO_OVERHEAD = (0, 0)


@dataclass(frozen=True)
class Server:
    """A model on ``num_gpus`` equal GPUs, tensor parallel, serving up to ``max_length`` tokens.

    Weights and KV have the dtypes that the model was published in.  Raises InvalidArgument for a
    model that does not keep all its tokens in all layers, or whose weights do not fit.
    """

    shape: ModelShape
    gpu: Gpu
    num_gpus: int = 1
    max_length: int = 2_048

    def __post_init__(self) -> None:
        if any(layer.window or layer.state_bytes for layer in self.shape.layers):
            raise InvalidArgument(
                f"{self.shape.name} has layers with windows or constant states; expected a model "
                "that attends to all tokens in all layers",
                model=self.shape.name,
            )
        if self.num_slots < self.max_length:
            raise InvalidArgument(
                f"{self.num_gpus} x {self.gpu.name} have room for {self.num_slots} tokens of KV "
                f"beside {self.shape.name}; expected at least the {self.max_length} of one request",
                num_slots=self.num_slots,
                max_length=self.max_length,
            )

    @cached_property
    def num_slots(self) -> int:
        """Tokens whose KV fits."""
        fit = self._sizing.low
        assert fit is not None
        return fit.tokens

    def step_s(
        self,
        *,
        new_tokens: int,
        context_tokens: int,
        prefill_flops: float = 0.0,
        block_size: int | None = None,
        copied_tokens: int = 0,
    ) -> float:
        """Return the seconds of one step: what is slower of computing and reading.

        ``new_tokens`` sequences go on by a token each, over ``context_tokens`` in all, which lie
        in blocks of ``block_size``, or each sequence as a whole; prompts of ``prefill_flops`` are
        computed; the KV of ``copied_tokens`` is copied on the GPU.
        """
        first, each = self._decode_flops
        flops = prefill_flops + new_tokens * first + context_tokens * each
        overhead = BLOCK_READ_TOKENS / block_size if block_size else 0.0
        tokens = context_tokens * (1 + overhead) + 2 * copied_tokens
        read = self._weights_bytes + tokens * self._kv_bytes
        return STEP_S + max(flops / self._flops, read / self._bandwidth)

    def prefill_flops(self, new_tokens: int, cached_tokens: int = 0) -> int:
        """Return the operations that computing tokens takes after those cached."""
        return self.shape.prefill_flops(new_tokens, cached_tokens)

    def prefill_s(self, new_tokens: int) -> float:
        """Return the seconds of a step that computes one prompt and nothing else."""
        return self.step_s(
            new_tokens=0, context_tokens=0, prefill_flops=self.prefill_flops(new_tokens)
        )

    def swap_s(self, num_slots: int, block_size: int | None) -> float:
        """Return the seconds to move so many slots to the host, or back, block by block."""
        pieces = -(-num_slots // (block_size or num_slots))
        copies = pieces * 2 * len(self.shape.layers)
        return copies * COPY_S + num_slots * self._kv_bytes / PCIE_BANDWIDTH

    @cached_property
    def _decode_flops(self) -> tuple[int, int]:
        """Operations of a token that attends to nothing but itself, and more per token before."""
        first = self.shape.prefill_flops(1)
        return first, self.shape.prefill_flops(1, 1) - first

    @cached_property
    def _sizing(self) -> Sizing:
        return size(
            Setup(
                shape=self.shape,
                context=self.max_length,
                dtype=self.shape.dtype,
                kv_dtype=self.shape.kv_dtype,
                memory_bytes=self.gpu.memory_bytes,
                utilization=_UTILIZATION,
                overhead=_NO_OVERHEAD,
                tp=self.num_gpus,
                block_size=1,
            )
        )

    @cached_property
    def _flops(self) -> float:
        return self.gpu.flops * self.num_gpus * COMPUTE_SHARE

    @cached_property
    def _bandwidth(self) -> float:
        """Of each GPU: all read their share at the same time."""
        return self.gpu.memory_bandwidth * BANDWIDTH_SHARE

    @cached_property
    def _weights_bytes(self) -> int:
        """On each GPU."""
        return self._sizing.stage.weights_bytes

    @cached_property
    def _kv_bytes(self) -> int:
        """Of a token, on each GPU."""
        return self._sizing.stage.bytes_per_token(self.max_length)
