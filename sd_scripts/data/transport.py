"""Values with tensors through a pipe between processes.

The bytes of tensors follow the rest as they are, so a picture is copied twice and never encoded. Unlike shared memory it
cannot run out, which it does in containers, and a process that is killed leaves nothing behind.
"""

from __future__ import annotations

import io
import os
import pickle
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

PIPE_BYTES = 1 << 20


def send(connection: Connection, value: Any) -> None:
    """Send a value.

    Raises:
        OSError: the other side is gone.
    """
    buffers: list[pickle.PickleBuffer] = []
    file = io.BytesIO()
    _Pickler(file, protocol=5, buffer_callback=buffers.append).dump(value)
    parts = [buffer.raw() for buffer in buffers]
    connection.send((file.getvalue(), [part.nbytes for part in parts]))
    for part in parts:
        _send_bytes(connection, part)


def receive(connection: Connection) -> Any:
    """The next value.

    Raises:
        EOFError, OSError: the other side is gone, perhaps in the middle of a value.
    """
    pickled, sizes = connection.recv()
    buffers = [np.empty(size, np.uint8) for size in sizes]
    for buffer in buffers:
        _receive_into(connection, memoryview(buffer))
    return pickle.loads(pickled, buffers=buffers)


def _send_bytes(connection: Connection, content: memoryview) -> None:
    if not hasattr(os, "readv"):
        connection.send_bytes(content)
        return
    at = 0
    while at < len(content):
        at += os.write(connection.fileno(), content[at:])


def _receive_into(connection: Connection, content: memoryview) -> None:
    """Straight into its place; the connection's own way copies twice more. Windows has only that."""
    if not hasattr(os, "readv"):
        connection.recv_bytes_into(content)
        return
    at = 0
    while at < len(content):
        count = os.readv(connection.fileno(), [content[at:]])
        if not count:
            raise EOFError
        at += count


def widen(connection: Connection) -> None:
    """Let more bytes lie in a pipe, where the system can: the two sides then wait for each other less often."""
    try:
        import fcntl

        fcntl.fcntl(connection.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    except (ImportError, AttributeError, OSError):  # no Linux, or all that a user may have is in use
        return


class _Pickler(pickle.Pickler):
    """Pickles tensors by their bytes; torch's own way would move them into shared memory."""

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return NotImplemented
        is_dense = value.untyped_storage().nbytes() == value.numel() * value.element_size()
        dense = value if is_dense else value.contiguous().clone()
        content = torch.empty(0, dtype=torch.uint8).set_(dense.untyped_storage())
        return _tensor, (content.numpy(), value.dtype, dense.shape, dense.stride())


def _tensor(content: np.ndarray, dtype: torch.dtype, shape: torch.Size, stride: tuple[int, ...]) -> torch.Tensor:
    return torch.from_numpy(content).view(dtype).as_strided(shape, stride)
