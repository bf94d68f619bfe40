"""``python -m prefix_cache.cli`` is ``prefix-cache``."""

from prefix_cache.cli import main

if __name__ == "__main__":
    main()
