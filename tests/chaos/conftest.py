from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chaos.fleet import Fleet, running_fleet
from tests.redis_servers import RedisServer, redis_server


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture(scope="module")
def fleet(redis: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One fleet for all tests: each leaves it as it found it."""
    settings = f'redis = "{redis.url}"\nredis_wait_s = 0.5\nfirst_byte_timeout_s = 1.0'
    with running_fleet(tmp_path_factory.mktemp("fleet"), settings) as running:
        yield running
