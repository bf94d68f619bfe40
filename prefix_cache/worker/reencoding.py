"""What is lost when a chat comes back as text: its tokens need not be those that were generated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReencodingLoss:
    """How far the prompt of a turn goes on from the tokens of the turn before.

    ``known_tokens`` are those that have KV, ``common_tokens`` of them are also in the prompt, and
    ``lost_tokens`` would be found in full blocks if all were.  ``diverged`` is the first
    position where the prompt has another token, with that token and the one it had been; None
    where there is none.
    """

    known_tokens: int
    common_tokens: int
    lost_tokens: int
    diverged: tuple[int, int, int] | None


def reencoding_loss(
    prompt_ids: Sequence[int],
    answer_ids: Sequence[int],
    next_prompt_ids: Sequence[int],
    block_size: int,
) -> ReencodingLoss:
    """Compare the tokens of a turn, prompt and answer, with the prompt of the next one.

    The KV of an answer's last token was not computed.
    """
    known = [*prompt_ids, *answer_ids][:-1]
    common = next(
        (
            position
            for position, (token, again) in enumerate(zip(known, next_prompt_ids, strict=False))
            if token != again
        ),
        min(len(known), len(next_prompt_ids)),
    )
    is_cut = common == len(next_prompt_ids)
    diverged = None
    if common < len(known) and not is_cut:
        diverged = common, next_prompt_ids[common], known[common]
    # One token of a prompt is computed at least.
    reached = min(common, len(next_prompt_ids) - 1)
    lost_tokens = (len(known) // block_size - reached // block_size) * block_size
    return ReencodingLoss(len(known), common, lost_tokens, diverged)
