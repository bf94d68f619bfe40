"""``python -m prefix_cache.cli`` is ``prefix-cache``."""

from prefix_cache.cli.commands import main

if __name__ == "__main__":
    main()
