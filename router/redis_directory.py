"""The directory in Redis: one round trip at a time, which carries whatever waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from itertools import islice

import msgspec
from redis.exceptions import ClusterDownError, ResponseError

from prefix_cache.redis_client import connect_redis
from router.config import RouterConfig
from router.conversations import Pin
from router.directory import DirectoryCounts
from router.nodes import Home
from router.turn import ConversationKey

KnownPins = Callable[[], Iterable[tuple[ConversationKey, Pin]]]

_PREFIX = "prefix-cache:pin:"
_PROBE = "prefix-cache:probe"
"""A key that is asked for to see whether Redis answers; it holds nothing."""

_TIMEOUT_S = 1.0
_PROBE_INTERVAL_S = 1.0
_FIRST_BACKOFF_S = 0.05
_LAST_BACKOFF_S = 2.0
_MAX_PUTS = 65_536
_BATCH = 512

# Writes a pin where there is none, or one that was written before it, in one step.
_RESTORE = """
local found = redis.call('GET', KEYS[1])
local is_pin, pin = pcall(cmsgpack.unpack, found)
if is_pin and type(pin) == 'table' and type(pin[4]) == 'number' then
  if pin[4] >= cmsgpack.unpack(ARGV[1])[4] then return end
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
"""

_log = logging.getLogger(__name__)


@asynccontextmanager
async def redis_directory(
    config: RouterConfig, known_pins: KnownPins
) -> AsyncIterator[RedisDirectory]:
    """Use the Redis of ``config`` while the context is open; pins put before are written out.

    ``known_pins`` returns the pins in this router's memory, the one used last at the end, with
    those among them that are put.  When Redis was away they are written where it has none or older
    ones: it may have come back empty.  On entry it was asked once.
    """
    directory = RedisDirectory(config, known_pins)
    task = asyncio.create_task(directory.run())
    try:
        await directory.asked.wait()
        yield directory
    finally:
        directory.end()
        await task


class RedisDirectory:
    """A `Directory` of ``config.redis``; ``run`` does its work.

    A turn waits ``config.redis_wait_s`` at most, and not at all while Redis is known to be away
    or late.  What is put faster than Redis takes it is kept, up to a bound.
    """

    def __init__(self, config: RouterConfig, known_pins: KnownPins) -> None:
        self.counts = DirectoryCounts()
        self.asked = asyncio.Event()
        """Set once it is known whether Redis is there."""
        self._redis = connect_redis(config.redis, timeout_s=_TIMEOUT_S)
        self._wait_s = config.redis_wait_s
        self._ttl_ms = max(1, round(config.pin_ttl_s * 1000))
        self._known_pins = known_pins
        self._is_available = False
        self._finds: dict[ConversationKey, asyncio.Future[Pin | None]] = {}
        self._puts: dict[ConversationKey, Pin] = {}  # oldest first
        self._restored: Iterator[tuple[ConversationKey, Pin]] = iter(())
        self._sent_at: float | None = None
        self._work = asyncio.Event()
        self._ending = asyncio.Event()

    @property
    def is_available(self) -> bool:
        """Whether Redis answered last."""
        return self._is_available

    async def find_pin(self, key: ConversationKey) -> Pin | None:
        """Return the pin of a conversation; None when it has none, or none is known in time."""
        if not self._is_available:
            return None
        if key in self._puts:
            return self._puts[key]
        loop = asyncio.get_running_loop()
        if self._sent_at is None or loop.time() - self._sent_at <= self._wait_s:
            if key not in self._finds:
                self._finds[key] = loop.create_future()
                self._work.set()
            found = self._finds[key]
            await asyncio.wait((found,), timeout=self._wait_s)
            if found.done():
                return found.result()
        self.counts.timeouts += 1
        return None

    def put_pin(self, key: ConversationKey, pin: Pin) -> None:
        """Write a pin, soon; returns at once."""
        if not self._is_available:
            return  # it is written with all that is known, once Redis is back
        self._puts.pop(key, None)
        if len(self._puts) >= _MAX_PUTS:
            del self._puts[next(iter(self._puts))]
            self.counts.dropped_puts += 1
        self._puts[key] = pin
        self._work.set()

    def end(self) -> None:
        """Make ``run`` return once all there is to write is written, unless Redis is away."""
        self._ending.set()
        self._work.set()

    async def run(self) -> None:
        """Carry finds and puts to Redis, and look whether it is there, until the end."""
        backoff_s = _FIRST_BACKOFF_S
        while True:
            was_available = self._is_available
            failure = await self._round_trip()
            self._note(failure)
            self.asked.set()
            if self._ending.is_set() and (failure or not self._work.is_set()):
                break
            if failure:
                await _wait(self._ending, backoff_s)
                backoff_s = min(2 * backoff_s, _LAST_BACKOFF_S)
            else:
                if was_available:  # not between failures, as of a cluster that is partly there
                    backoff_s = _FIRST_BACKOFF_S
                await _wait(self._work, _PROBE_INTERVAL_S)
        await self._redis.aclose()

    async def _round_trip(self) -> Exception | None:
        """Carry what waits; return why Redis is away, if it is."""
        self._work.clear()
        finds, self._finds = self._finds, {}
        puts = dict(islice(self._puts.items(), _BATCH))
        restored = list(islice(self._restored, _BATCH))
        if len(restored) == _BATCH or len(puts) < len(self._puts):
            self._work.set()
        for key in puts:
            del self._puts[key]

        pipeline = self._redis.pipeline(transaction=False)
        pipeline.get(_PROBE)
        for key in finds:
            pipeline.get(_name(key))
        for key, pin in puts.items():
            pipeline.set(_name(key), _value(pin), px=self._ttl_ms)
        for key, pin in restored:
            pipeline.eval(_RESTORE, 1, _name(key), _value(pin), str(self._ttl_ms))
        self._sent_at = asyncio.get_running_loop().time()
        try:
            answers = await pipeline.execute(raise_on_error=False)
        except Exception as error:
            answers = [error] * (1 + len(finds) + len(puts) + len(restored))
        self._sent_at = None

        errors = [answer for answer in answers if isinstance(answer, Exception)]
        self.counts.errors += len(errors)
        failure = next((error for error in errors if _says_away(error)), None)
        for found, answer in zip(finds.values(), answers[1:], strict=False):
            found.set_result(_pin(answer))
        return failure

    def _note(self, failure: Exception | None) -> None:
        was_available, self._is_available = self._is_available, failure is None
        if failure:
            self._puts.clear()
            self._restored = iter(())
            if was_available or not self.asked.is_set():
                _log.warning("Redis is away, turns are routed from memory: %s", failure)
        elif not was_available:
            _log.info("Redis is there")
            self._restored = reversed(list(self._known_pins()))
            self._work.set()


def _says_away(error: Exception) -> bool:
    # Other answers that are errors are about one key or command.
    return not isinstance(error, ResponseError) or isinstance(error, ClusterDownError)


def _name(key: ConversationKey) -> str:
    tenant, conversation = key.tenant.encode(), key.conversation.encode()
    # With its length in front, ("ab", "c") and ("a", "bc") differ.
    text = len(tenant).to_bytes(8, "little") + tenant + conversation
    return _PREFIX + hashlib.blake2b(text, digest_size=16).hexdigest()


def _value(pin: Pin) -> bytes:
    return msgspec.msgpack.encode((*pin.home, pin.committed_tokens, pin.written_at, pin.text_bytes))


def _pin(answer: object) -> Pin | None:
    if not isinstance(answer, bytes):
        return None
    try:
        node, incarnation, tokens, written_at, text_bytes = msgspec.msgpack.decode(
            answer, type=tuple[str, int, int, float, int]
        )
    except msgspec.DecodeError:  # written by somebody else
        return None
    return Pin(Home(node, incarnation), tokens, time.monotonic(), written_at, text_bytes)


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
