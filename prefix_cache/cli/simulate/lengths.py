"""Lengths of prompts and answers by name, or as a file has them."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import click

from prefix_cache.cli.simulate.options import SimulateOptions
from prefix_cache.errors import InvalidArgument
from prefix_cache.replay.formats import ReadOptions, Source
from prefix_cache.simulate.lengths import KNOWN_LENGTHS, Given, Lengths


def lengths_of(options: SimulateOptions) -> Lengths:
    """Return the lengths that ``--lengths`` names.

    Requests of a file without prompt or answer, and those above ``--max-length``, are left out,
    and told on stderr.  Raises InvalidArgument for what is neither a name nor a file, and for a
    file of which nothing is left; MalformedFile.
    """
    if options.lengths in KNOWN_LENGTHS:
        return KNOWN_LENGTHS[options.lengths]
    path = Path(options.lengths)
    if not path.is_file():
        raise InvalidArgument(
            f"unknown lengths {options.lengths!r}: expected {', '.join(KNOWN_LENGTHS)}, or a file",
            lengths=options.lengths,
        )
    source = Source(path, ReadOptions(assume_turns=1), skip_bad=options.skip_bad)
    found = [
        (request.prompt_tokens, request.answer_tokens)
        for request in islice(source, options.requests)
    ]
    kept = [
        (prompt, answer)
        for prompt, answer in found
        if prompt and answer and prompt + answer <= options.max_length
    ]
    if not kept:
        raise InvalidArgument(
            f"{path}: none of its first {len(found)} requests has a prompt, an answer and at most "
            f"{options.max_length} tokens (--max-length)",
            file=str(path),
        )
    if left_out := len(found) - len(kept) + source.skipped:
        click.echo(
            f"{source.name}: {left_out} of {len(found) + source.skipped} requests left out: bad, "
            f"without prompt or answer, or above {options.max_length:,} tokens",
            err=True,
        )
    return Given(kept)
