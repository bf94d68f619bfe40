"""What the index accepts as the size of its pool and of its blocks, for options."""

from __future__ import annotations

import click

NUM_BLOCKS = click.IntRange(1, 2**31 - 1)
BLOCK_SIZE = click.IntRange(1, 2**20)
