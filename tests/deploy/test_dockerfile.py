"""``deploy/Dockerfile``: what can be known of it without building it."""

from __future__ import annotations

import re
import tomllib

from tests.deploy.compose import DEPLOY

ROOT = DEPLOY.parent
LINES = (DEPLOY / "Dockerfile").read_text().splitlines()
LAST_STAGE = LINES[max(i for i, line in enumerate(LINES) if line.startswith("FROM ")) :]


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    sources = [
        source
        for line in LINES
        if line.startswith("COPY ") and "--from" not in line
        for source in line.split()[1:-1]
    ]
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert "pyproject.toml" in sources
    for source in sources:
        assert (ROOT / source).exists()
        assert f"!{source}" in ignored


def test_everything_that_the_wheel_is_made_of_is_copied() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = {
        *project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"],
        *project["project"]["license-files"],
        project["project"]["readme"],
    }
    copied = {word for line in LINES if line.startswith("COPY ") for word in line.split()}
    assert needed <= copied


def test_the_image_ends_as_a_user_without_rights_that_runs_our_command() -> None:
    (user,) = (line.split()[1] for line in LAST_STAGE if line.startswith("USER "))
    assert re.fullmatch(r"[1-9]\d+", user)
    assert 'ENTRYPOINT ["prefix-cache"]' in LAST_STAGE


def test_the_router_is_compiled_by_a_stage_that_does_not_stay() -> None:
    (settings,) = (line.split()[1:] for line in LINES if line.startswith("ENV HATCH"))
    assert settings == [
        "HATCH_BUILD_HOOK_ENABLE_MYPYC=1",
        "PIP_CONSTRAINT=/src/constraints.txt",
    ]
    compiler = [line for line in LINES if re.search(r"apt-get install .* gcc", line)]
    assert compiler
    assert not set(compiler) & set(LAST_STAGE)


def test_the_build_fails_when_a_module_that_is_to_be_compiled_is_not() -> None:
    (check,) = (line for line in LAST_STAGE if line.startswith("RUN python -c "))
    imported = re.search(r"from (\S+) import (\w+); assert \2\.__file__\.endswith", check)
    assert imported
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    compiled = project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["mypyc"]["include"]
    assert "/".join(imported.groups()).replace(".", "/") + ".py" in compiled


def test_the_image_has_a_python_that_we_support() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lowest = project["requires-python"].removeprefix(">=")
    assert {line.split()[1] for line in LINES if line.startswith("FROM ")} == {
        f"python:{lowest}-slim"
    }
