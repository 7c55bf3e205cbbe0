"""A mod of Python, called once on symbols: the operations that it asks of torch, as a graph.

The symbols are fake tensors of one element, so types are promoted by torch itself; a dispatch mode writes down what
is computed of them. Operations on captured tensors alone are written down, too: they run before each launch.
"""

from __future__ import annotations

import functools
import gc
import os
import sys

import torch
from torch._subclasses.fake_tensor import (DataDependentOutputException, DynamicOutputShapeException, FakeTensor,
                                           FakeTensorMode)  # fmt: skip
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from ... import _library as c
from ._open import DECIDES, SYMBOLIC, Numbers

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_STDLIB = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_SITE = os.path.dirname(os.path.dirname(_TORCH))
_PACKAGES = tuple(os.path.join(_SITE, n) + os.sep for n in ("sympy", "mpmath", "numpy"))
_LAYERS = os.path.join(_TORCH, "nn", "modules") + os.sep
_AUTOGRAD = os.path.join(_TORCH, "autograd", "function.py")
_READS = {"_local_scalar_dense", "equal", "is_nonzero", "item", "nonzero", "masked_select", "unique", "_unique2"}
_COMPOSITE = "CompositeImplicitAutograd"
_LEAKS = {"tolist", "numpy", "__array__", "data_ptr", "__dlpack__"}


class Node:
    """An operation, a symbol (func None, `name`), a captured tensor (`tensor`) or a new constant (`tensor`, fresh)."""

    __slots__ = ("name", "func", "args", "kwargs", "tensor", "fresh", "dtype", "shape", "place", "moves", "no_grad",
                 "label", "slot", "needs")  # fmt: skip

    def __init__(self, dtype, shape, place, name="", func=None, args=(), kwargs=None, tensor=None, fresh=False):
        self.name, self.func, self.args, self.kwargs = name, func, args, kwargs or {}
        self.tensor, self.fresh = tensor, fresh
        self.dtype, self.shape, self.place = dtype, tuple(shape), place
        self.moves = bool(name)  # does its value change from pair to pair?
        self.no_grad = False  # made under torch.no_grad
        self.label = ""  # what the mod calls it
        self.slot = -1  # of a captured tensor: its place among those that `watch` finds
        self.needs = tensor is not None and tensor.requires_grad

    def settle(self, slot: int, is_lasting: bool) -> None:
        """A graph that is kept must not keep the tensors of its first call."""
        self.slot = slot
        self.tensor = None if is_lasting else self.tensor

    @property
    def is_captured(self) -> bool:
        return self.func is None and not self.fresh and not self.moves

    @property
    def operator(self) -> str:
        """torch's own by their names, others with what they belong to."""
        if not self.func:
            return ""
        name = self.func.overloadpacket.__name__
        return name if self.func.namespace == "aten" else f"{self.func.namespace}::{name}"

    def operands(self):
        return [a for a in _leaves((self.args, self.kwargs)) if isinstance(a, Node)]


class Graph:
    """What one mod computes: its nodes in order, and the one that it returns."""

    def __init__(self, title: str, place, symbols: dict[str, Node]):
        self.title, self.place, self.symbols = title, place, symbols
        self.float_dtype = torch.float32
        self.result: Node | None = None
        self.nodes: list[Node] = []
        self.codes: set | None = set()  # functions of the user that have run; None where nobody could look
        self.captured: list[Node] = []


def refuse(place, what: str):
    """One sentence with the place in the user's file."""
    file, line = place
    raise c.SpecError(f"{file}:{line}: {what}", file, line)


class Given:
    """What a mod takes after its five or four arguments, as a compiler passes what it captures: a tensor by the slot
    that it has among all of them, or a number."""

    def __init__(self, value, slot: int):
        self.value, self.slot = value, slot

    def stand_in(self, recorder: "_Recorder", numbers: Numbers, device):
        """A tensor without data and of no graph, or an open number."""
        if not isinstance(self.value, torch.Tensor):
            is_open = isinstance(self.value, SYMBOLIC)
            return numbers.new(isinstance(self.value, torch.SymInt), self.slot) if is_open else self.value
        t = self.value
        sizes, strides = ([_hint(n) for n in of] for of in (t.shape, t.stride()))
        made = torch.empty_strided(sizes, strides, dtype=t.dtype, device=device)
        node = Node(t.dtype, sizes, recorder.graph.place)
        node.slot, node.needs = self.slot, t.requires_grad
        recorder.keep(made, node)
        recorder.graph.captured.append(node)
        recorder.aliased.add(made.untyped_storage()._cdata)  # which a mod must not write into
        return made


def _hint(n) -> int:
    return n if type(n) is int else n.node.hint


def trace(mod, names: tuple[str, ...], float_dtype, device, whole=frozenset(), more: tuple[Given, ...] = (),
          numbers: Numbers | None = None, title: str = "") -> Graph:  # fmt: skip
    """names: of the symbols in the order of the mod's parameters, "s" that of a score. whole: operations of torch that
    are kept, even where torch makes them of others. numbers: of those that are left open. title: of a graph that a
    compiler has made of a mod, which has no place of its own."""
    place = ("torch.compile", 0) if title else place_of(mod)
    title = title or getattr(mod, "__name__", None) or getattr(getattr(mod, "func", None), "__name__", None)
    title = "".join(ch for ch in str(title or type(mod).__name__) if ch.isprintable())
    fakes = FakeTensorMode(allow_non_fake_inputs=True, shape_env=numbers.env if numbers else None)
    with fakes:
        dtypes = [float_dtype if n == "s" else torch.int64 for n in names]
        tensors = [torch.empty((), dtype=t, device=device) for t in dtypes]
    symbols = {n: Node(t.dtype, (), place, name=n) for n, t in zip(names, tensors)}
    graph = Graph(title, place, symbols)
    graph.float_dtype = float_dtype
    recorder = _Recorder(graph, zip(tensors, symbols.values()), whole, numbers)
    with fakes:
        tensors += [one.stand_in(recorder, numbers, device) for one in more]
    labels = _Labels(recorder)
    still = torch.autocast("cuda" if device.type == "cuda" else "cpu", enabled=False)
    below = torch._C._AutoDispatchBelowAutograd()  # operations are written down as they are asked for
    with torch.enable_grad(), still, below, fakes, recorder, _Functions(recorder), labels:
        try:
            answer = mod(*tensors)
        except (DynamicOutputShapeException, DataDependentOutputException, NotImplementedError) as error:
            what = str(error).splitlines()[0][:120]
            refuse(_raised_at(error) or place, f"{what}: what it gives depends on values, or it takes functions; write "
                   "torch.where(condition, a, b)")  # fmt: skip
        except DECIDES as error:
            refuse(_raised_at(error) or place, "a number that changes from call to call decides what Python does (an "
                   "`if`, int(), math.sqrt): write torch.where(condition, a, b), or keep the number")  # fmt: skip
    graph.result = recorder.result_of(answer)
    return graph


def _raised_at(error):
    """The innermost line of the user's that an exception has come through."""
    found, step = None, error.__traceback__
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        found = (file, step.tb_lineno) if _is_of_user(file) else found
        step = step.tb_next
    return found


def place_of(mod):
    while not hasattr(mod, "__code__"):
        inner = getattr(mod, "func", None) or getattr(mod, "__func__", None) or getattr(type(mod), "__call__", None)
        if inner is None or inner is mod or not (hasattr(inner, "__code__") or hasattr(inner, "func")):
            return ("<mod>", 0)
        mod = inner
    return (mod.__code__.co_filename, mod.__code__.co_firstlineno)


class _Recorder(TorchDispatchMode):
    def __init__(self, graph: Graph, symbols, whole=frozenset(), numbers: Numbers | None = None):
        super().__init__()
        self.whole = whole
        self.numbers = numbers
        self.graph = graph
        self.known: dict[int, Node] = {}
        self.alive: list = []
        self.files = {graph.place[0]}  # of the user
        self.aliased: set[int] = set()  # storages of which there is more than one tensor
        for tensor, node in symbols:
            self.keep(tensor, node)

    def keep(self, tensor, node: Node) -> None:
        self.known[id(tensor)] = node
        self.alive.append(tensor)

    def place(self):
        """Where in the user's own text we are."""
        frame, found, is_own = sys._getframe(1), None, False
        while frame is not None and not (frame.f_code.co_filename == __file__ and frame.f_code.co_name == "trace"):
            file = frame.f_code.co_filename
            if file == _AUTOGRAD and frame.f_code.co_name == "apply":
                found, is_own = None, True
            if found is None and _is_of_user(file):
                self.files.add(file)
                found = (file, frame.f_lineno)
            frame = frame.f_back
        found = found or self.graph.place
        if is_own:
            refuse(found, "a torch.autograd.Function has a derivative of its own, which cannot be read; write it in "
                   "operations of torch, whose derivatives are derived")  # fmt: skip
        return found

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        place = self.place()
        name = func.overloadpacket.__name__
        if name in ("_local_scalar_dense", "item") and self._is_number(args[0]):
            return self.numbers.new(not args[0].dtype.is_floating_point, self.known[id(args[0])].slot)
        if name in _READS:
            refuse(place, "a value of a tensor is read in Python (an `if`, `.item()`, int() or float()), where it "
                   "would be the same for all pairs; write torch.where(condition, a, b), or & and | in a "
                   "mask")  # fmt: skip
        if torch.Tag.nondeterministic_seeded in func.tags:
            refuse(place, f"{func}: random numbers would be drawn once, not for each pair; draw them before the call "
                   "and index them, or write a spec with random(...)")  # fmt: skip
        if func._schema.is_mutable:
            return self._in_place(func, args, kwargs, place)
        if func.namespace == "prim":
            return func(*args, **kwargs)  # the device of a tensor
        if name not in self.whole and torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), _COMPOSITE):
            with self:  # an operation that is made of others
                out = func.decompose(*args, **kwargs)
            if out is not NotImplemented:
                return out
        return self._record(func, args, kwargs, place)

    def _is_number(self, t) -> bool:
        """A float that a compiler has put into a tensor."""
        node = self.known.get(id(t))
        return self.numbers is not None and node is not None and node.is_captured and node.slot >= 0 and not node.shape

    def _record(self, func, args, kwargs, place, fresh=None):
        is_lift = func.overloadpacket.__name__ in ("lift_fresh", "lift_fresh_copy", "lift")
        if is_lift and id(args[0]) not in self.known and not isinstance(args[0], FakeTensor):
            constant = args[0].detach().clone()
            self.keep(args[0], Node(constant.dtype, constant.shape, place, tensor=constant, fresh=True))
        with torch.no_grad():
            out = func(*args, **kwargs)
        if not isinstance(out, (torch.Tensor, tuple, list)) and "size" in func.__name__:
            return out  # a length: known before any value is
        held = replaced((args, kwargs), torch.Tensor, self.node_of)
        for i, t in enumerate(out if isinstance(out, (tuple, list)) else (out,)):
            if not isinstance(t, torch.Tensor):
                refuse(place, f"{func}: gives no tensor, and its value cannot be followed")
            node = Node(t.dtype, t.shape, place, func=func, args=held[0], kwargs=held[1])
            node.name = f"#{i}" if isinstance(out, (tuple, list)) else ""
            node.moves = any(o.moves for o in node.operands())
            node.no_grad = not torch.is_grad_enabled()
            self.keep(t, node)
            self.graph.nodes.append(node)
            if any(t is a or _shares(t, a) for a in args if isinstance(a, FakeTensor)):
                self.aliased.add(t.untyped_storage()._cdata)
        return out

    def _in_place(self, func, args, kwargs, place):
        """x += y of a value that the mod has made itself is x = x + y; anything else is a write."""
        target = args[0] if args else None
        name = func.overloadpacket.__name__
        plain = getattr(torch.ops.aten, name[:-1], None) if name.endswith("_") else None
        own = isinstance(target, FakeTensor) and id(target) in self.known
        if plain is None or not own or target.untyped_storage()._cdata in self.aliased:
            refuse(place, f"{func}: writes into a tensor; write x = x + y where you have x += y, and leave tensors "
                   "that are captured as they are")  # fmt: skip
        out = self._record(getattr(plain, func._overloadname), args, kwargs, place)
        if out.shape != target.shape:
            refuse(place, f"{func}: the result has another shape than what it is written into; write x = x + y")
        if out.dtype != target.dtype:
            out = self._record(torch.ops.aten._to_copy.default, (out,), {"dtype": target.dtype}, place)
        self.known[id(target)] = self.known[id(out)]
        return target

    def node_of(self, tensor: torch.Tensor) -> Node:
        found = self.known.get(id(tensor))
        if found is None:
            if isinstance(tensor, FakeTensor):
                refuse(self.place(), "a tensor whose origin cannot be followed; build it of operations of torch")
            found = Node(tensor.dtype, tensor.shape, self.place(), tensor=tensor)
            self.graph.captured.append(found)
            self.keep(tensor, found)
        return found

    def result_of(self, answer) -> Node:
        if not isinstance(answer, torch.Tensor):
            refuse(self.graph.place, f"{self.graph.title} returns {type(answer).__name__}, not a tensor; return a "
                   "value made of its arguments")  # fmt: skip
        node = self.node_of(answer)
        if _count(node.shape) != 1:
            refuse(self.graph.place, f"{self.graph.title} returns a tensor of shape {list(node.shape)}; return one "
                   "number for each pair")  # fmt: skip
        return node


class _Functions(TorchFunctionMode):
    """`table[h, q_idx]`, where torch would take the value of the index for a view."""

    def __init__(self, recorder: _Recorder):
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        if name in _LEAKS and args and isinstance(args[0], torch.Tensor):
            refuse(self.recorder.place(), f"{name}: a tensor is read in Python, and would be the same for all pairs "
                   "and calls; index it by the mod's arguments")  # fmt: skip
        if func is torch.Tensor.__getitem__:
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            if any(isinstance(i, torch.Tensor) and i.dim() == 0 and i.dtype is not torch.bool for i in index):
                return self._read(args[0], index)
        if func is torch.Tensor.__setitem__:
            refuse(self.recorder.place(), "a mod writes into a tensor; compute values, and write nothing")
        return func(*args, **(kwargs or {}))

    def _read(self, table, index):
        if not all(isinstance(i, (torch.Tensor, torch.SymInt)) or type(i) is int for i in index):
            refuse(self.recorder.place(), "an index of the mod's arguments beside a slice, None or `...` gives a row, "
                   "where one number is needed; index every dim")  # fmt: skip
        return torch.ops.aten.index.Tensor(table, [
            i if isinstance(i, torch.Tensor) else torch.full((), i, dtype=torch.int64, device=table.device)
            for i in index
        ])  # fmt: skip


class _Labels:
    """The names that mods give to their values: their local variables, when a function of theirs returns. And which
    functions run."""

    def __init__(self, recorder: _Recorder):
        self.recorder = recorder

    def __enter__(self):
        self.collects = gc.isenabled()
        gc.disable()  # its callbacks would count as functions that the mod runs
        self.before = sys.getprofile()
        if self.before is None:
            sys.setprofile(self._look)
        else:
            self.recorder.graph.codes = None

    def __exit__(self, *_):
        if self.before is None:
            sys.setprofile(None)
        if self.collects:
            gc.enable()

    def _look(self, frame, event, _):
        if event == "call" and (_is_of_user(frame.f_code.co_filename) or _is_of_layer(frame.f_code)):
            self.recorder.graph.codes.add(frame.f_code)
        if event != "return" or frame.f_code.co_filename not in self.recorder.files:
            return
        for name, value in frame.f_locals.items():
            if isinstance(value, FakeTensor):
                node = self.recorder.known.get(id(value))
                if node is not None and node.func is not None and not node.label:
                    node.label = name


@functools.lru_cache(maxsize=4096)
def _is_of_user(file: str) -> bool:
    """Not of torch, what torch is made of, or Python's own library."""
    if file.startswith((_TORCH, _HERE, "<frozen", "<string>", "<eval_with_key>", *_PACKAGES)):
        return False
    return not file.startswith(_STDLIB) or "site-packages" in file or "dist-packages" in file


def _is_of_layer(code) -> bool:
    """The formula of a layer of torch, which reads numbers of its object."""
    return code.co_name == "forward" and code.co_filename.startswith(_LAYERS)


def _shares(a, b) -> bool:
    return a.untyped_storage()._cdata == b.untyped_storage()._cdata


def _count(shape) -> int:
    n = 1
    for size in shape:
        n *= size
    return n


def _leaves(thing):
    if isinstance(thing, (tuple, list)):
        for part in thing:
            yield from _leaves(part)
    elif isinstance(thing, dict):
        yield from _leaves(list(thing.values()))
    else:
        yield thing


def replaced(thing, kind, by):
    """Nested arguments, each of that kind by what it becomes."""
    if isinstance(thing, kind):
        return by(thing)
    if isinstance(thing, (tuple, list)):
        return type(thing)(replaced(part, kind, by) for part in thing)
    if isinstance(thing, dict):
        return {k: replaced(part, kind, by) for k, part in thing.items()}
    return thing
