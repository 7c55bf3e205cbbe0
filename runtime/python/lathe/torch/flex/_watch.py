"""What a function of Python reads, so that it need not be traced again as long as that is the same.

`watch` walks a function's code, defaults, closure and globals. It gives a key, in which numbers stand by their values
and tensors by their form, and the tensors themselves, whose values are no part of the key. A function that reads what
the walk does not understand has no key: then it is traced at every call.
"""

from __future__ import annotations

import dis
import enum
import functools
import sys
import types

import numpy as np
import torch

_PLAIN = (type(None), bool, int, str, bytes, complex, torch.dtype, torch.device, torch.layout, torch.memory_format)
_PURE = {"torch", "math", "cmath", "operator", "functools", "itertools", "typing", "numpy"}
_OPAQUE_NAMES = {"getattr", "globals", "locals", "vars", "eval", "exec", "open", "input", "__dict__", "setattr", "next"}
_OPEN = ("types.SimpleNamespace", "argparse.Namespace")  # classes of Python's own library that hide nothing
_MOST = 256  # elements of a container that are looked at
_DEEP = 12


class Seen:
    """The key as far as it goes, and the tensors in the order in which they were met."""

    def __init__(self):
        self.key: list = []
        self.tensors: list[torch.Tensor] = []
        self.names: list[str] = []
        self.opaque = False
        self.held: list = []  # ids in the key are of these
        self._visited: set = set()
        self._alive: list = []

    def identity(self, thing) -> None:
        self.held.append(thing)
        self.key.append(id(thing))

    def is_new(self, thing, names) -> bool:
        mark = (id(thing), names)
        if mark in self._visited:
            self.key.append("again")
            return False
        self._visited.add(mark)
        self._alive.append(thing)
        return True

    def tensor(self, t: torch.Tensor, name: str) -> None:
        for i, other in enumerate(self.tensors):
            if other is t:
                self.key.append(("tensor", i))
                return
        self.tensors.append(t)
        self.names.append(name)
        self.key.append(("tensor", t.dtype, tuple(t.shape), t.requires_grad, t.device))


def watch(*functions) -> Seen:
    seen = Seen()
    for f in functions:
        _walk(seen, f, "", frozenset(), 0)
    return seen


def _walk(seen: Seen, thing, name: str, names: frozenset, depth: int) -> None:
    """names: the attributes and globals that the code which reads `thing` speaks of."""
    kind = type(thing)
    if isinstance(thing, torch.Tensor):
        seen.tensor(thing, name)
    elif kind in _PLAIN:
        seen.key.append((kind, thing))
    elif kind is float:
        seen.key.append(repr(thing))  # -0.0 and NaN, which compare as they should not
    elif depth > _DEEP:
        seen.opaque = True
    elif isinstance(thing, np.generic):
        seen.key.append((thing.dtype.str, thing.tobytes()))
    elif kind in _WALKS or isinstance(thing, tuple):
        seen.key.append(kind)
        _WALKS.get(kind, _sequence)(seen, thing, name, names, depth + 1)
    elif isinstance(thing, (enum.Enum, types.BuiltinFunctionType)) or kind.__module__.partition(".")[0] == "torch":
        _builtin(seen, thing, name, names, depth + 1)
    else:
        _object(seen, thing, name, names, depth + 1)


def _sequence(seen: Seen, thing, name, names, depth) -> None:
    seen.key.append(len(thing))
    if len(thing) > _MOST:
        seen.opaque = True
        return
    for i, part in enumerate(thing):
        _walk(seen, part, f"{name}_{i}", names, depth)


def _mapping(seen: Seen, thing, name, names, depth) -> None:
    if len(thing) > _MOST or not all(type(k) in (str, int) for k in thing):
        seen.opaque = True
        return
    for k, part in thing.items():
        seen.key.append(k)
        _walk(seen, part, f"{name}_{k}", names, depth)


def _function(seen: Seen, f, name, names, depth) -> None:
    if not seen.is_new(f, frozenset()):
        return
    seen.key.append(f.__code__)
    spoken, is_opaque = _names_of(f.__code__)
    of_torch = (f.__module__ or "").partition(".")[0] == "torch"
    seen.opaque |= is_opaque and not of_torch
    for part in (f.__defaults__, f.__kwdefaults__):
        if part:
            _walk(seen, part, "default", spoken, depth)
    for n, cell in zip(f.__code__.co_freevars, f.__closure__ or ()):
        try:
            _walk(seen, cell.cell_contents, n, spoken, depth)
        except ValueError:  # a name that has no value yet
            seen.key.append("empty")
    if of_torch:
        return
    for n in sorted(spoken):
        if n in f.__globals__:
            seen.key.append(n)
            _walk(seen, f.__globals__[n], n, spoken, depth)


@functools.lru_cache(maxsize=4096)
def _names_of(code: types.CodeType) -> tuple[frozenset, bool]:
    """Names of globals and attributes in a code and in those inside of it; does it do what no walk can follow?"""
    names = set(code.co_names)
    is_opaque = bool(names & _OPAQUE_NAMES)
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME" and str(step.argval).partition(".")[0] not in _PURE:
            is_opaque = True
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            inner, inner_opaque = _names_of(part)
            names |= inner
            is_opaque |= inner_opaque
    return frozenset(names), is_opaque


def _method(seen: Seen, thing, name, names, depth) -> None:
    spoken, _ = _names_of(thing.__func__.__code__) if hasattr(thing.__func__, "__code__") else (names, True)
    _walk(seen, thing.__func__, name, names, depth)
    _walk(seen, thing.__self__, name, spoken, depth)


def _partial(seen: Seen, thing, name, names, depth) -> None:
    for part in (thing.func, thing.args, thing.keywords):
        _walk(seen, part, name, names, depth)


def _module(seen: Seen, thing, name, names, depth) -> None:
    seen.identity(thing)
    if thing.__name__.partition(".")[0] in _PURE or not seen.is_new(thing, names):
        return
    for n in sorted(names & vars(thing).keys()):
        seen.key.append(n)
        _walk(seen, vars(thing)[n], n, names, depth)


def _class(seen: Seen, thing, name, names, depth) -> None:
    seen.identity(thing)
    if thing.__module__.partition(".")[0] in _PURE | {"builtins"} or not seen.is_new(thing, names):
        return
    for base in thing.__mro__:
        for n in sorted(names & vars(base).keys()):
            seen.key.append(n)
            _walk(seen, vars(base)[n], n, names, depth)


def _builtin(seen: Seen, thing, name, names, depth) -> None:
    """Functions of C, objects of torch, members of an enum: known by what they are, not looked into."""
    if isinstance(thing, torch.nn.Module):
        _object(seen, thing, name, names, depth)
        return
    seen.identity(thing)
    if isinstance(thing, types.BuiltinFunctionType):
        bound = getattr(thing, "__self__", None)
        owner = bound.__name__ if isinstance(bound, types.ModuleType) else getattr(thing, "__module__", None)
        seen.opaque |= (owner or "builtins").partition(".")[0] not in _PURE | {"builtins", "_operator"}


def _object(seen: Seen, thing, name, names, depth) -> None:
    """An object: what the code names of it, in itself and in its class."""
    kind = type(thing)
    seen.identity(kind)
    call = kind.__dict__.get("__call__") if not names else None  # a mod that is an object
    if call is not None and hasattr(call, "__code__"):
        names = _names_of(call.__code__)[0]
        _walk(seen, call, name, names, depth)
    if not hasattr(thing, "__dict__") or _is_odd(kind):
        seen.opaque = True
        return
    if not seen.is_new(thing, names):
        return
    holders = [vars(thing)] + [vars(thing)[k] for k in ("_parameters", "_buffers", "_modules") if k in vars(thing)]
    for n in sorted(names):
        for holder in holders:
            if n in holder:
                seen.key.append(n)
                _walk(seen, holder[n], n, names, depth)
        _of_class(seen, thing, kind, n, depth)


def _of_class(seen: Seen, thing, kind, n: str, depth) -> None:
    for base in kind.__mro__:
        if n not in vars(base) or base.__module__.partition(".")[0] in _PURE | {"builtins"}:
            continue
        found = vars(base)[n]
        found = found.fget if isinstance(found, property) else found
        found = getattr(found, "__func__", found)
        _walk(seen, found, n, frozenset(), depth)
        if isinstance(found, types.FunctionType):
            _walk(seen, thing, n, _names_of(found.__code__)[0], depth)  # what the method names of its object
        return


def _is_odd(kind) -> bool:
    """Does the class answer for attributes that are nowhere to be seen?"""
    root = kind.__module__.partition(".")[0]
    if root in sys.stdlib_module_names and f"{kind.__module__}.{kind.__name__}" not in _OPEN:
        return True
    own = [base for base in kind.__mro__ if base.__module__.partition(".")[0] not in _PURE | {"builtins"}]
    return any(n in vars(base) for base in own for n in ("__getattr__", "__getattribute__", "__slots__", "__getitem__"))


_WALKS = {
    tuple: _sequence,
    list: _sequence,
    torch.Size: _sequence,
    dict: _mapping,
    types.FunctionType: _function,
    types.MethodType: _method,
    functools.partial: _partial,
    types.ModuleType: _module,
    type: _class,
}
