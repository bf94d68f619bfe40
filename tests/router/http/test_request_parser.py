"""What a client sends means the same however the network cuts it."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from router.http.request_parser import Refused, RequestParser
from tests.router.http.engines import chunk
from tests.router.http.proxies import chat_body, get, post
from tests.router.http.test_hostile_clients import HOSTILE, MALFORMED_CHUNKS

UPGRADE = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"
CHUNKED = b"POST /x HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n"
BODY = chunk(b"abc") + chunk(chat_body()) + b"0\r\nTrailer: 1\r\n\r\n"

PIECES = [
    post(),
    post(fields=UPGRADE),
    get("/health", UPGRADE),
    get("/health"),
    b"\r\n\r\n" + get("/a?b=c"),
    CHUNKED + b"\r\n" + BODY,
    CHUNKED + UPGRADE + b"\r\n" + BODY,
    post(fields=b"Connection: close\r\n"),
    get("/old").replace(b"1.1", b"1.0"),
    *(hostile for hostile, _ in HOSTILE.values()),
    *(CHUNKED + b"\r\n" + chunks for chunks in MALFORMED_CHUNKS.values()),
]

Meaning = list[tuple[bytes, bytes, bytes] | int]


def meaning(pieces: list[bytes]) -> Meaning:
    """Requests by method, path and body, and the status of the refusal that ends them."""
    parser = RequestParser(max_head_bytes=65_536, max_body_bytes=65_536, on_head=lambda _: None)
    refusal: Meaning = []
    for piece in pieces:
        try:
            parser.feed(piece)
        except Refused as refused:
            refusal = [refused.status]
            break
    return [(each.method, each.path, each.body) for each in parser.complete] + refusal


@given(
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=4),
    st.lists(st.integers(0, 2000), max_size=20),
)
def test_cuts_change_nothing(sent: list[bytes], cuts: list[int]) -> None:
    data = b"".join(sent)
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[start:end] for start, end in itertools.pairwise(places)]
    assert meaning(pieces) == meaning([data])


@given(st.sampled_from(PIECES))
def test_single_bytes_mean_the_same(sent: bytes) -> None:
    assert meaning([sent[i : i + 1] for i in range(len(sent))]) == meaning([sent])
