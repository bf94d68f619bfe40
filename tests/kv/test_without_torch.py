"""KV memory is an extra."""

from __future__ import annotations

import subprocess
import sys


def test_without_torch_the_extra_is_named() -> None:
    code = "import sys; sys.modules['torch'] = None; import prefix_cache.kv"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stderr.strip().splitlines()[-1] == (
        "prefix_cache.errors.MissingExtra: "
        "KV memory needs the extra `torch`: pip install 'prefix-cache[torch]'"
    )
