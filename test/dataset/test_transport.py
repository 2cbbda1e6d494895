import multiprocessing
import threading
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from sd_scripts.data import transport


@dataclass(frozen=True)
class Value:
    name: str
    tensors: tuple[torch.Tensor, ...]


def through_a_pipe(value):
    reader, writer = multiprocessing.Pipe(duplex=False)
    sender = threading.Thread(target=transport.send, args=(writer, value))
    sender.start()
    found = transport.receive(reader)
    sender.join()
    return found


@pytest.fixture(params=[True, False], ids=["straight", "as on Windows"])
def way(request, monkeypatch):
    if not request.param:
        monkeypatch.delattr(transport.os, "readv", raising=False)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.int64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3, 4, 5), (7, 300, 301)])
def test_tensors_of_every_kind(way, dtype, shape):
    tensor = (torch.rand(shape) * 100).to(dtype)
    found = through_a_pipe(Value("x", (tensor, tensor)))
    assert found.name == "x"
    for one in found.tensors:
        assert one.dtype == dtype
        assert torch.equal(one, tensor)


def test_layout_and_parts_of_tensors(way):
    whole = torch.arange(2 * 5 * 6 * 3).reshape(2, 5, 6, 3)
    last = whole.permute(0, 3, 1, 2)
    part = whole[1, 1:4, ::2]
    found = through_a_pipe([last, part, whole.expand(4, 2, 5, 6, 3)])
    assert torch.equal(found[0], last)
    assert found[0].stride() == last.stride()
    assert torch.equal(found[1], part)
    assert torch.equal(found[2], whole.expand(4, 2, 5, 6, 3))
    found[0][:] = 0  # can be written to
    assert np.array_equal(whole[0, 0, 0], [0, 1, 2])


def test_a_sender_that_is_gone_in_the_middle(way):
    reader, writer = multiprocessing.Pipe(duplex=False)
    writer.send((b"", [1_000_000]))
    writer.close()
    with pytest.raises((EOFError, OSError)):
        transport.receive(reader)
