"""The command ``prefix-cache``."""

import sys

INTERRUPTED = 130


def main() -> None:
    """Run the command line.  Ctrl-C ends it with exit code 130 while it still loads, too."""
    try:
        from prefix_cache.cli.commands import run

        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
