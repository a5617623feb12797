"""Frames over a stream socket: the length in 4 bytes, big-endian, then msgpack. Belongs to one event loop."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from specserve_server.engine_process.frames import Frame

R = TypeVar("R")
LENGTH = struct.Struct(">I")


class Channel(asyncio.Protocol, Generic[R]):
    """Made by `connect`. `R`: the frames that arrive."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[R], receive: Callable[[R], None]) -> None:
        self.decoder, self.receive = decoder, receive
        self.encoder = msgspec.msgpack.Encoder()
        self.transport: asyncio.Transport | None = None
        self.buffer = bytearray()
        self.is_congested = False
        """The other side reads too slowly: what can wait is not to be sent now."""
        self.on_relief: Callable[[], None] = nothing
        """Called when that is over."""
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the other side has ended, or this one has closed."""

    @classmethod
    async def connect(cls, end: socket.socket, frames: object, receive: Callable[[R], None]) -> Channel[R]:
        """`frames`: the type of those that arrive. The channel owns the socket from now on."""
        channel: Channel[R] = cls(msgspec.msgpack.Decoder(frames), receive)
        end.setblocking(False)
        await asyncio.get_running_loop().create_unix_connection(lambda: channel, sock=end)
        return channel

    def send(self, frame: Frame) -> None:
        """Nothing where the other side has ended: `lost` tells."""
        if self.transport is not None and not self.transport.is_closing():
            data = self.encoder.encode(frame)
            self.transport.write(LENGTH.pack(len(data)) + data)

    def close(self) -> None:
        """What was sent still arrives."""
        if self.transport is not None:
            self.transport.close()

    # --- asyncio.Protocol ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        begin, available = 0, len(self.buffer)
        with memoryview(self.buffer) as view:
            while available - begin >= LENGTH.size:
                (length,) = LENGTH.unpack_from(view, begin)
                end = begin + LENGTH.size + length
                if end > available:
                    break
                self.receive(self.decoder.decode(view[begin + LENGTH.size : end]))
                begin = end
        del self.buffer[:begin]

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        if not self.lost.done():
            self.lost.set_result(None)

    def pause_writing(self) -> None:
        self.is_congested = True

    def resume_writing(self) -> None:
        self.is_congested = False
        self.on_relief()


def nothing() -> None:
    """What is called in place of nobody."""
