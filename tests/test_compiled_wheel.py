"""The wheel of ``make wheel``, whose router is compiled from the same sources."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HOT = ("router.dispatcher", "router.http.exchange", "router.prompts.body_reader")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel installs, and the tests and what they read beside it."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("compiled")
    subprocess.run(
        [sys.executable, "-m", "build", "--outdir", folder / "dist", ROOT],
        env=os.environ
        | {
            "HATCH_BUILD_HOOK_ENABLE_MYPYC": "1",
            "PIP_CONSTRAINT": str(ROOT / "constraints.txt"),
        },
        check=True,
    )
    (wheel,) = (folder / "dist").glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder)
    for beside in ("tests", "docs"):
        shutil.copytree(ROOT / beside, folder / beside)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@pytest.mark.timeout(300)
def test_the_compiled_router_is_used_and_does_what_the_sources_say(unpacked: Path) -> None:
    for module in HOT:
        found = subprocess.run(
            [sys.executable, "-c", f"import {module}; print({module}.__file__)"],
            cwd=unpacked,
            check=True,
            capture_output=True,
            text=True,
        )
        assert found.stdout.startswith(str(unpacked))
        assert found.stdout.endswith(".so\n")
    passed = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/router/http"],
        cwd=unpacked,
        capture_output=True,
        text=True,
    )
    assert passed.returncode == 0, passed.stdout
