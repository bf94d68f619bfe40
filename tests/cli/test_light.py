"""Help and services load nothing large: torch and matplotlib wait until a command needs them."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module", ["prefix_cache.cli.commands", "prefix_cache.node.server", "router.app"]
)
def test_loading_it_loads_neither_torch_nor_matplotlib(module: str) -> None:
    program = (
        f"import sys, {module}; print([m for m in ('torch', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"[]\n"


def test_the_command_line_can_heed_ctrl_c_before_it_loads_anything() -> None:
    program = (
        "import sys; before = set(sys.modules); import prefix_cache.cli; "
        "print(*sorted(set(sys.modules) - before - {'__future__'}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"prefix_cache prefix_cache.cli\n"


def test_loading_kv_does_load_torch() -> None:
    program = "import sys, prefix_cache.kv.pool; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"True\n"
