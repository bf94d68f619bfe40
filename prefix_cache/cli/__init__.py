"""The command ``prefix-cache``."""

import sys

INTERRUPTED = 130


def main() -> None:
    """Run the command line.  Ctrl-C ends it with exit code 130, while it still loads, too."""
    try:
        from prefix_cache.cli.commands import run

        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    finally:
        import signal

        # Python's own end would print a traceback.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
