"""What a call allocates and copies belongs to the stream that the call names. Stand-ins for torch.cuda and CuPy show
the order of events; tests/test_gpu.py runs it.
"""

import contextlib
import sys
import types

import lathe
import numpy as np
import pytest
from lathe import _arrays, _bind, _op, _operands

GPU = 3


class Events(list):
    @contextlib.contextmanager
    def inside(self, what):
        self.append(f"enter {what}")
        yield
        self.append(f"leave {what}")


@pytest.fixture
def events():
    return Events()


@pytest.fixture
def cupy(monkeypatch, events):
    """A module with what the package calls of CuPy; its arrays lie in host memory."""

    class ndarray:
        __module__ = "cupy"

        def __init__(self, base):
            self.base, self.shape, self.dtype, self.device = base, base.shape, base.dtype, types.SimpleNamespace(id=GPU)

        @property
        def __cuda_array_interface__(self):
            return self.base.__array_interface__

        def astype(self, dtype):
            events.append("convert")
            return ndarray(self.base.astype(dtype))

    def empty(shape, dtype):
        events.append(f"empty {np.dtype(dtype).name}")
        return ndarray(np.empty(shape, dtype))

    def ascontiguousarray(array):
        events.append("copy")
        return ndarray(np.ascontiguousarray(array.base))

    made = types.ModuleType("cupy")
    made.ndarray, made.empty, made.ascontiguousarray = ndarray, empty, ascontiguousarray
    made.clip = lambda array, low, high: ndarray(array.base.clip(low, high))
    current = types.SimpleNamespace(ptr=1234)
    made.cuda = types.SimpleNamespace(
        Device=lambda number: events.inside(f"device {number}"),
        ExternalStream=lambda pointer: events.inside(f"stream {pointer}"),
        get_current_stream=lambda: current,
    )
    monkeypatch.setitem(sys.modules, "cupy", made)
    return made


def at(*steps, stream=77, device=GPU):
    around = [f"device {device}"] if stream is None else [f"device {device}", f"stream {stream}"]
    return [f"enter {a}" for a in around] + list(steps) + [f"leave {a}" for a in reversed(around)]


def test_copies_of_cupy_are_made_on_the_stream_and_device(cupy, events):
    array = cupy.ndarray(np.ones((4, 6), np.float32)[:, ::2])
    for stream in (77, None):
        events.clear()
        assert _operands.copied(array, GPU, stream).base.strides == (12, 4)
        assert events == at("copy", stream=stream)
    target = cupy.ndarray(np.array([1, 2]))
    argument = lathe.load("cross_entropy").forward.by_name["target"]
    events.clear()
    assert _operands.as_i32(argument, target, 77).dtype == np.int32
    assert events == at("convert")


def test_results_of_cupy_are_made_on_the_stream_and_device(cupy, events):
    with _arrays.Cupy.on(GPU, 77):
        _arrays.Cupy.empty((2, 3), lathe._library.F32, GPU)
    assert events == at(f"enter device {GPU}", "empty float32", f"leave device {GPU}")


class Call:
    """In the place of a prepared call."""

    workspace = 64

    def __init__(self, events):
        self.events = events

    def launch(self, pointers, values, workspace, stream):
        assert workspace
        self.events.append(f"launch on {stream}")


def test_a_call_allocates_on_its_stream(cupy, events, monkeypatch):
    op = lathe.load("rms_norm")
    x, w = (cupy.ndarray(np.ones(s, np.float32)) for s in ((4, 8), 8))
    monkeypatch.setattr(lathe.Op, "_prepared", lambda *_: Call(events))
    context = types.SimpleNamespace(device=GPU)
    monkeypatch.setattr(_op, "context_of", lambda *_: context)
    monkeypatch.setattr(_op, "need_context", lambda *_: None)
    for stream, number in ((77, 77), (types.SimpleNamespace(ptr=78), 78), (None, None)):
        events.clear()
        op(x, w, stream=stream)
        made = [e for e in events if e.startswith(("empty", "launch", "enter stream", "leave stream"))]
        inside = ["empty float32", "empty uint8"]
        if number is not None:
            inside = [f"enter stream {number}", *inside, f"leave stream {number}"]
        assert sorted(made[:-1]) == sorted(inside) and made[0] == inside[0]
        assert f"launch on {1234 if number is None else number}" in made


def test_torch_allocates_on_the_stream(monkeypatch, events):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda pointer, device: (pointer, device))
    monkeypatch.setattr(torch.cuda, "stream", lambda s: events.inside(f"stream {s[0]} of {s[1]}"))
    made = types.SimpleNamespace(
        empty=lambda *_: events.append("empty"), on=_arrays.Torch.on, stream=_arrays.Torch.stream
    )
    for family in (_arrays.Torch, _arrays.Foreign):  # of what is known by an interface alone torch makes the results
        events.clear()
        with family.on(GPU, 77):
            made.empty()
        assert events == [f"enter stream 77 of {GPU}", "empty", f"leave stream 77 of {GPU}"]
    for device, stream in ((_arrays.HOST, 77), (GPU, None)):
        events.clear()
        with _arrays.Torch.on(device, stream):
            made.empty()
        assert events == ["empty"]
    assert _bind.stream_number(77, made, GPU) == 77
