"""What sharing saves when one prompt is answered several times, or by beam search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from prefix_cache.worker.engine import Engine
from prefix_cache.worker.request import GenerationRequest
from prefix_cache.worker.sampling import SamplingParams

WIDTHS = (2, 4, 6)


@dataclass(frozen=True, slots=True)
class Sharing:
    """Blocks of ``width`` answers or beams, on average over the steps of a request.

    Without sharing they would be ``unshared_blocks``.
    """

    width: int
    is_beam_search: bool
    blocks: float
    unshared_blocks: float

    @property
    def share_saved(self) -> float:
        """Share of the memory that sharing saves, 0 to 1."""
        return 1 - self.blocks / self.unshared_blocks


def measure_sharing(
    engine: Engine, prompt_ids: Sequence[int], num_tokens: int, widths: Sequence[int] = WIDTHS
) -> list[Sharing]:
    """Let an engine without other work answer a prompt with ``num_tokens`` tokens.

    First by parallel sampling, then by beam search, ``widths`` of each.  Raises as
    ``Engine.add`` does.
    """
    sampled = [SamplingParams(num_tokens, seed=0, n=width, ignore_eos=True) for width in widths]
    searched = [
        SamplingParams(num_tokens, n=width, beam_width=width, ignore_eos=True) for width in widths
    ]
    return [_measure(engine, prompt_ids, params) for params in sampled + searched]


def _measure(engine: Engine, prompt_ids: Sequence[int], params: SamplingParams) -> Sharing:
    engine.add(GenerationRequest("sharing", prompt_ids, params))
    uses = []
    while engine.has_work:
        engine.step()
        use = engine.memory_use()
        if use.blocks:
            uses.append(use)
    return Sharing(
        width=params.n,
        is_beam_search=bool(params.beam_width),
        blocks=fmean(use.blocks for use in uses),
        unshared_blocks=fmean(use.unshared_blocks for use in uses),
    )
