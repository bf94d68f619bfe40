"""The nodes of a router follow what config file, DNS and registry say."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from prefix_cache.client import NodeState
from router.config import NodeSpec, PoolConfig, RouterConfig
from router.config_file import ConfigFile
from router.discovery.discovering import discovering
from router.discovery.dns import dns_members, look_up
from router.discovery.membership import Member, Membership
from router.dispatcher import Dispatcher
from router.nodes import Node
from router.watcher import Watchers

DEADLINE_S = 20.0


class RecordedWatchers:
    """Stands in for the watchers: remembers whom it follows."""

    def __init__(self) -> None:
        self.followed: list[str] = []
        self.on_stop: Callable[[], None] = lambda: None

    async def start(self, node: Node) -> None:
        assert node.name not in self.followed
        self.followed.append(node.name)

    async def stop(self, node: Node) -> None:
        self.on_stop()
        self.followed.remove(node.name)


def member(name: str, places: str, pool: str = "default", incarnation: int = 0) -> Member:
    return Member(pool, NodeSpec.parse(name, places), incarnation)


def a_dispatcher(*pools: PoolConfig) -> Dispatcher:
    return Dispatcher(RouterConfig(pools=pools or (PoolConfig(),)))


def places(dispatcher: Dispatcher) -> dict[str, tuple[str, str]]:
    return {node.name: (node.address, node.url) for node in dispatcher.nodes()}


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.005)


# --- membership ------------------------------------------------------------------------------


async def test_nodes_come_and_go_with_what_is_wanted() -> None:
    dispatcher, watchers = a_dispatcher(), RecordedWatchers()
    membership = Membership(dispatcher, watchers)

    await membership.want("one", [member("a", "h:1"), member("b", "http://h:2")])
    await membership.want("other", [member("c", "h:3,http://h:4")])
    assert places(dispatcher) == {
        "a": ("h:1", ""),
        "b": ("", "http://h:2"),
        "c": ("h:3", "http://h:4"),
    }
    gone = dispatcher.node("a")

    await membership.want("one", [member("b", "http://h:2")])

    assert list(places(dispatcher)) == ["b", "c"]
    assert watchers.followed == ["b", "c"]
    assert gone.state is NodeState.GONE


async def test_there_is_a_node_at_any_time_while_all_are_replaced() -> None:
    dispatcher, watchers = a_dispatcher(), RecordedWatchers()
    membership = Membership(dispatcher, watchers)
    await membership.want("one", [member("a", "h:1")])
    left_with: list[list[str]] = []
    watchers.on_stop = lambda: left_with.append(list(places(dispatcher)))

    await membership.want("one", [member("b", "h:2")])

    assert left_with == [["a", "b"]]
    assert list(places(dispatcher)) == ["b"]


async def test_a_node_that_stays_is_left_alone() -> None:
    dispatcher, watchers = a_dispatcher(), RecordedWatchers()
    membership = Membership(dispatcher, watchers)
    await membership.want("one", [member("a", "h:1")])
    node = dispatcher.node("a")

    await membership.want("one", [member("b", "h:2"), member("a", "h:1")])

    assert dispatcher.node("a") is node


async def test_a_node_of_the_config_is_the_one_the_dispatcher_was_built_with() -> None:
    dispatcher, watchers = (
        a_dispatcher(PoolConfig(nodes=(NodeSpec("a", "h:1"),))),
        RecordedWatchers(),
    )
    node = dispatcher.node("a")

    await Membership(dispatcher, watchers).want("the config", [member("a", "h:1")])

    assert dispatcher.node("a") is node
    assert watchers.followed == ["a"]


@pytest.mark.parametrize(
    "changed", [member("a", "h:9"), member("a", "h:1,http://h:2"), member("a", "h:1", "", 8)]
)
async def test_a_node_that_moved_or_restarted_is_a_new_one(changed: Member) -> None:
    dispatcher, watchers = a_dispatcher(PoolConfig(name="")), RecordedWatchers()
    membership = Membership(dispatcher, watchers)
    await membership.want("one", [member("a", "h:1", "", 7)])
    before = dispatcher.node("a")

    await membership.want("one", [Member("", changed.spec, changed.incarnation)])

    assert dispatcher.node("a") is not before
    assert before.state is NodeState.GONE
    assert watchers.followed == ["a"]


@pytest.mark.parametrize(
    "second", [member("a", "h:9"), member("x", "h:1"), member("x", "http://h:2")]
)
async def test_whose_name_or_place_is_taken_stays_out_until_it_is_free(
    second: Member, caplog: pytest.LogCaptureFixture
) -> None:
    dispatcher = a_dispatcher()
    membership = Membership(dispatcher, RecordedWatchers())
    await membership.want("the config", [member("a", "h:1,http://h:2")])

    await membership.want("the registry", [second])

    assert places(dispatcher) == {"a": ("h:1", "http://h:2")}
    assert f"node {second.spec.name} of the registry is left out: " in caplog.text
    await membership.want("the config", [])
    assert list(places(dispatcher)) == [second.spec.name]


async def test_a_thousand_nodes_that_come_and_go_leave_nothing_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Tasks, threads and sockets are as many as before; no node answers."""
    caplog.set_level("CRITICAL")  # none of them answers
    config = RouterConfig(pools=(PoolConfig(),), probe_timeout_s=0.5)
    dispatcher = Dispatcher(config)
    watchers = Watchers(dispatcher, config)
    membership = Membership(dispatcher, watchers)

    async def come_and_go(first: int, count: int) -> None:
        spec = [
            member(f"n{number}", "http://127.0.0.1:1") for number in range(first, first + count)
        ]
        for each in spec:
            await membership.want("one", [each])
        await membership.want("one", [])

    try:
        await come_and_go(0, 10)
        tasks, threads, files = held()
        await come_and_go(10, 1000)
        assert held()[0] <= tasks
        assert held()[1] <= threads
        assert held()[2] <= files
    finally:
        await watchers.close()
    assert places(dispatcher) == {}


def held() -> tuple[int, int, int]:
    """Tasks, threads and open files of this process."""
    return len(asyncio.all_tasks()), threading.active_count(), len(os.listdir("/dev/fd"))


# --- DNS -------------------------------------------------------------------------------------


async def answers(
    pool: PoolConfig, *results: Iterable[str] | OSError
) -> AsyncIterator[Sequence[Member]]:
    """What a pool's nodes are while the look-ups of its name give these results."""
    left = list(results)

    async def resolve(host: str) -> Iterable[str]:
        assert host == "engines"
        result = left.pop(0)
        if isinstance(result, OSError):
            raise result
        return result

    async with aclosing(dns_members(pool, 0.001, resolve)) as source:
        for _ in results:
            yield await anext(source)


async def test_each_address_of_a_name_is_a_node() -> None:
    pool = PoolConfig(name="chat", dns="http://engines:8000")
    seen = [members async for members in answers(pool, ["10.0.0.2", "10.0.0.1", "fd00::1"])]
    assert seen == [
        [
            Member("chat", NodeSpec("10.0.0.1:8000", "", "http://10.0.0.1:8000")),
            Member("chat", NodeSpec("10.0.0.2:8000", "", "http://10.0.0.2:8000")),
            Member("chat", NodeSpec("[fd00::1]:8000", "", "http://[fd00::1]:8000")),
        ]
    ]


async def test_a_name_may_stand_for_cache_nodes_and_engines() -> None:
    pool = PoolConfig(dns="engines:50051,http://engines:8000")
    (members,) = [members async for members in answers(pool, ["10.0.0.1"])]
    assert [member.spec for member in members] == [
        NodeSpec("10.0.0.1:50051", "10.0.0.1:50051", "http://10.0.0.1:8000")
    ]


async def test_a_look_up_that_fails_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    pool = PoolConfig(dns="http://engines:8000")
    failure = OSError("name server is away")
    seen = [
        [member.spec.name for member in members]
        async for members in answers(pool, failure, ["1.1.1.1"], failure, failure, ["1.1.1.2"])
    ]
    assert seen == [[], ["1.1.1.1:8000"], ["1.1.1.1:8000"], ["1.1.1.1:8000"], ["1.1.1.2:8000"]]
    assert caplog.text.count("engines cannot be looked up, its last nodes are kept") == 2


async def test_names_are_looked_up_in_the_system() -> None:
    assert "127.0.0.1" in await look_up("127.0.0.1")
    with pytest.raises(OSError, match=r".+"):
        await look_up("no-such-host.invalid")
    too_long = PoolConfig(dns=f"http://{'a' * 64}:80")
    async with aclosing(dns_members(too_long, 0.001)) as source:
        assert await anext(source) == ()


# --- the config file -------------------------------------------------------------------------

ONE = '[pools.chat]\nmodels = ["m"]\nnodes = {a = "h:1"}\n'
TWO = '[pools.chat]\nmodels = ["m", "n"]\nnodes = {b = "h:2", c = "h:3"}\n'


class Running:
    """A router whose nodes follow its config file."""

    def __init__(self, file: ConfigFile) -> None:
        self.file = file
        self.dispatcher = Dispatcher(file.read())
        self.watchers = RecordedWatchers()

    def write(self, text: str) -> None:
        self.file.path.write_text(text)

    @property
    def nodes(self) -> list[str]:
        return sorted(self.watchers.followed)


@pytest.fixture
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.discovery.config_file._LOOK_INTERVAL_S", 0.02)


@asynccontextmanager
async def running(folder: Path, text: str) -> AsyncGenerator[Running, None]:
    path = folder / "router.toml"
    path.write_text(text)
    router = Running(ConfigFile(path))
    config = router.file.read()
    async with discovering(router.dispatcher, router.watchers, config, router.file):
        yield router


@pytest.mark.usefixtures("looks_often")
async def test_a_file_that_changed_is_taken_over(tmp_path: Path) -> None:
    async with running(tmp_path, ONE) as router:
        assert router.nodes == ["a"]
        router.write(TWO)
        await until(lambda: router.nodes == ["b", "c"])
        assert router.dispatcher.pools["chat"].config.models == ("m", "n")


async def test_a_file_that_changed_since_the_router_read_it_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "router.toml"
    path.write_text(ONE)
    router = Running(ConfigFile(path))
    config = router.file.read()
    router.write(TWO)
    async with discovering(router.dispatcher, router.watchers, config, router.file):
        await until(lambda: router.nodes == ["b", "c"])


@pytest.mark.usefixtures("looks_often")
async def test_a_file_that_says_what_it_said_is_no_news(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO")
    reads: list[RouterConfig] = []
    read = ConfigFile.read

    def counted(file: ConfigFile) -> RouterConfig:
        reads.append(read(file))
        return reads[-1]

    monkeypatch.setattr(ConfigFile, "read", counted)
    async with running(tmp_path, ONE) as router:
        router.write("# As before.\n" + ONE)
        before = len(reads)
        await until(lambda: len(reads) > before)
        router.write(TWO)
        await until(lambda: router.nodes == ["b", "c"])
    assert caplog.text.count("router.toml was read again") == 1


@pytest.mark.usefixtures("looks_often")
async def test_another_file_in_its_place_is_taken_over(tmp_path: Path) -> None:
    async with running(tmp_path, ONE) as router:
        (tmp_path / "new").write_text(TWO)
        (tmp_path / "new").rename(router.file.path)
        await until(lambda: router.nodes == ["b", "c"])


async def test_sighup_reads_the_file_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with running(tmp_path, ONE):
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: "router.toml was read again" in caplog.text)


@pytest.mark.usefixtures("looks_often")
async def test_a_file_with_an_error_changes_nothing_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, ONE) as router:
        router.write(TWO.replace("h:2", "https://h"))
        await until(lambda: "the config stays as it was" in caplog.text)
        assert "router.toml, line 3: pools.chat.nodes.b: 'https://h': engines are" in caplog.text
        assert router.nodes == ["a"]
        router.file.path.unlink()
        await until(lambda: "No such file or directory" in caplog.text)
        assert router.nodes == ["a"]
        router.write(TWO)
        await until(lambda: router.nodes == ["b", "c"])


@pytest.mark.usefixtures("looks_often")
async def test_what_needs_a_restart_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, ONE) as router:
        new = 'max_pins = 9\n[pools.embed]\nnodes = {e = "h:9"}\n'
        router.write(new + TWO + 'policy = "random"\n')
        await until(lambda: router.nodes == ["b", "c"])
    assert "max_pins, pools.chat.policy, pools.embed changed, restart the router" in caplog.text
    assert router.dispatcher.pools["chat"].config.policy == "sticky"


@pytest.mark.usefixtures("looks_often")
async def test_a_pool_that_left_the_file_stays_until_the_restart_that_is_asked_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    both = ONE + '[pools.embed]\nnodes = {e = "h:9"}\n'
    async with running(tmp_path, both) as router:
        router.write(TWO)
        await until(lambda: router.nodes == ["b", "c", "e"])
    assert "router.toml: pools.embed changed, restart the router for that" in caplog.text
