"""What the workers of one router tell each other: pins, load, and which nodes are to drain."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import islice

import msgspec

from router.conversations import Pin
from router.dispatcher import Dispatcher
from router.drains import Word
from router.nodes import Home
from router.turn import ConversationKey
from router.workers.mailbox import Delivery, Mailbox, Seat
from router.workers.shared_load import Load, SharedLoad

_TICK_S = 0.005
_PAUSE_S = 0.002
"""Pins that are written within this are told together: telling costs as much as routing."""
_TICKS_UNTIL_ALL = 200
_SILENCE_S = 3.0
"""A sibling that said nothing for so long has gone, and its load with it."""
_PINS_AT_ONCE = 16
_LOADS_AT_ONCE = 256
_MAX_WAITING = 65_536

_log = logging.getLogger(__name__)


class _Pins(msgspec.Struct, tag=0, array_like=True):
    pins: list[tuple[ConversationKey, Home, int, float, int]]


class _Loads(msgspec.Struct, tag=1, array_like=True):
    worker: int
    loads: dict[str, Load]


class _WhatIsKnown(msgspec.Struct, tag=2, array_like=True):
    worker: int


class _Drains(msgspec.Struct, tag=3, array_like=True):
    words: dict[str, Word]


_decode = msgspec.msgpack.Decoder(_Pins | _Loads | _WhatIsKnown | _Drains).decode
_encode = msgspec.msgpack.encode


@asynccontextmanager
async def sharing(dispatcher: Dispatcher, seat: Seat) -> AsyncIterator[Siblings]:
    """Share pins, load and drains with the other workers while the context is open.

    The nodes' load is that of all workers then.  Who starts is told what is known.
    """
    siblings = Siblings(dispatcher, seat)
    write_elsewhere = dispatcher.on_pin

    def on_pin(key: ConversationKey, pin: Pin) -> None:
        write_elsewhere(key, pin)
        siblings.put_pin(key, pin)

    dispatcher.on_pin = on_pin
    ticking = asyncio.create_task(siblings.run())
    try:
        yield siblings
    finally:
        dispatcher.on_pin = write_elsewhere
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)
        siblings.close()


class Siblings:
    """The other workers, as one of them sees them."""

    def __init__(self, dispatcher: Dispatcher, seat: Seat) -> None:
        self.dropped = 0
        """Pins that were not told because too many waited."""
        self._drops_logged = 0
        self._dispatcher = dispatcher
        self._seat = seat
        self._load = SharedLoad(dispatcher, time.monotonic)
        self._heard_at = dict.fromkeys(seat.others, time.monotonic())
        self._waiting: dict[int, dict[ConversationKey, Pin]] = {each: {} for each in seat.others}
        self._is_to_send = False
        self._sent_at = 0.0
        self._drains_told: dict[str, Word] = {}
        self._mailbox = Mailbox(seat, self._receive)
        question = _encode(_WhatIsKnown(seat.index))
        for sibling in seat.others:
            if self._mailbox.send(sibling, question) is Delivery.DONE:
                break

    def put_pin(self, key: ConversationKey, pin: Pin) -> None:
        """Tell the siblings of a pin at once, or with others when some were told just now."""
        for sibling in self._waiting:
            self._wait(sibling, key, pin)
        if not self._is_to_send:
            self._is_to_send = True
            loop = asyncio.get_running_loop()
            loop.call_at(max(loop.time(), self._sent_at + _PAUSE_S), self._send_pins)

    async def run(self) -> None:
        """Tell load and drains as they change, and what could not be told at once."""
        tick = 0
        while True:
            tick += 1
            if tick % _TICKS_UNTIL_ALL == 0:
                self._log_drops()
                self._forget_the_silent()
                self._send_loads(self._load.everything())
                self._drains_told = {}  # nor does every datagram arrive
            else:
                self._send_loads(self._load.changed())
            self._send_drains()
            self._send_pins()
            await asyncio.sleep(_TICK_S)

    def close(self) -> None:
        """Neither tell nor hear any more."""
        self._mailbox.close()

    def _wait(self, sibling: int, key: ConversationKey, pin: Pin) -> None:
        waiting = self._waiting[sibling]
        waiting.pop(key, None)
        if len(waiting) == _MAX_WAITING:
            del waiting[next(iter(waiting))]
            self.dropped += 1
        waiting[key] = pin

    def _send_pins(self) -> None:
        self._is_to_send = False
        self._sent_at = asyncio.get_running_loop().time()
        told: list[tuple[ConversationKey, Pin]] = []
        data = b""
        for sibling, waiting in self._waiting.items():
            while waiting:
                some = list(islice(waiting.items(), _PINS_AT_ONCE))
                if some != told:  # mostly, the same waits for all
                    pins = [
                        (key, pin.home, pin.committed_tokens, pin.written_at, pin.text_bytes)
                        for key, pin in some
                    ]
                    told, data = some, _encode(_Pins(pins))
                delivery = self._mailbox.send(sibling, data)
                if delivery is Delivery.FULL:
                    break  # until the next tick
                if delivery is Delivery.AWAY:
                    waiting.clear()  # it asks when it is back
                for key, _ in some:
                    waiting.pop(key, None)

    def _send_loads(self, loads: dict[str, Load]) -> None:
        items = iter(loads.items())
        while some := dict(islice(items, _LOADS_AT_ONCE)):
            data = _encode(_Loads(self._seat.index, some))
            for sibling in self._waiting:
                self._mailbox.send(sibling, data)  # what does not fit is told again soon

    def _send_drains(self) -> None:
        words = self._dispatcher.drains.words
        if words != self._drains_told:
            self._drains_told = words
            data = _encode(_Drains(words))
            for sibling in self._waiting:
                self._mailbox.send(sibling, data)

    def _log_drops(self) -> None:
        if self.dropped > self._drops_logged:
            _log.warning("%d pins so far were not told to other workers", self.dropped)
            self._drops_logged = self.dropped

    def _forget_the_silent(self) -> None:
        for sibling, heard_at in self._heard_at.items():
            if heard_at < time.monotonic() - _SILENCE_S:
                self._load.forget(sibling)

    def _receive(self, data: bytes) -> None:
        message = _decode(data)
        if isinstance(message, _Pins):
            now = time.monotonic()
            for key, home, tokens, written_at, text_bytes in message.pins:
                self._dispatcher.learn_pin(key, Pin(home, tokens, now, written_at, text_bytes))
        elif isinstance(message, _Loads):
            self._heard_at[message.worker] = time.monotonic()
            self._load.take(message.worker, message.loads)
        elif isinstance(message, _Drains):
            self._dispatcher.learn_drains(message.words)
        else:
            self._drains_told = {}
            for known in self._dispatcher.conversations.pins()[-_MAX_WAITING:]:
                self._wait(message.worker, *known)
