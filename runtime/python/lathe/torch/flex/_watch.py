"""What a function of Python reads, so that it need not be traced again as long as that is the same.

`watch` walks a function's code, defaults, closure and globals, and the functions that it names. It gives a key, in
which numbers stand by their values and tensors by their form, and the tensors themselves, whose values are no part of
it. What reads something that the walk does not understand has no key: it is `opaque`, and is traced at every call.

Of objects, classes and modules only those attributes are looked at that some code on the way speaks of. `codes` are
the functions that were looked into; a trace that has run others of the user's has read what nobody watches.
"""

from __future__ import annotations

import dis
import enum
import functools
import sys
import types

import numpy as np
import torch

_PLAIN = {type(None), bool, int, str, bytes, complex, range, torch.dtype, torch.device, torch.layout,
          torch.memory_format, type(...), type(NotImplemented)}  # fmt: skip
_PURE = {"torch", "math", "cmath", "operator", "_operator", "functools", "itertools", "typing", "numpy", "builtins"}
_OPAQUE_NAMES = {"getattr", "globals", "locals", "vars", "eval", "exec", "open", "input", "__dict__", "setattr", "next"}
_OPEN = {types.SimpleNamespace}  # of Python's own library, and hides nothing
_BASES = {"abc", "typing", "typing_extensions", "dataclasses", "enum", "types"}
_MOST = 256  # elements of a container that are looked at
_DEEP = 16
# What a class may define and still be read by its attributes alone.
_HARMLESS = set(
    "__init__ __repr__ __str__ __call__ __doc__ __module__ __dict__ __weakref__ __eq__ __ne__ __hash__ __annotations__ "
    "__dataclass_fields__ __dataclass_params__ __match_args__ __post_init__ __qualname__ __orig_bases__ __parameters__ "
    "__abstractmethods__ __class_getitem__ __static_attributes__ __firstlineno__ __setattr__ __delattr__ __new__ "
    "__init_subclass__ __replace__ __constants__ __annotate__ __annotate_func__ __annotations_cache__".split()
)
_names_known: dict = {}  # by the first functions: the names that they come to speak of


class Place:
    """Of a number that a function reads from its closure or its globals: where its value stands in the key."""

    __slots__ = ("at", "value", "function", "name")

    def __init__(self, at: int, value, function, name: str):
        self.at, self.value, self.function, self.name = at, value, function, name


class Seen:
    """The key as far as it goes, and the tensors in the order in which they were met."""

    def __init__(self, names: frozenset):
        self.names = names  # that some code speaks of
        self.key: list = []
        self.tensors: list[torch.Tensor] = []
        self.labels: list[str] = []  # what the tensors are called
        self.numbers: dict[str, object] = {}  # by the names under which they are read
        self.opaque = ""  # the first thing that cannot be watched, in words
        self.codes: set[types.CodeType] = set()
        self.held: list = []  # ids in the key are of these
        self.places: list[Place] = []  # of numbers that may be left open
        self.chain: set[int] = set()  # functions that are reached from the first ones through functions alone
        self._places: dict[int, int] = {}
        self._visited: dict[int, tuple[int, object]] = {}  # which one it was; it lives as long as its id is asked for

    def blind(self, what: str) -> None:
        self.opaque = self.opaque or what

    def identity(self, thing) -> None:
        self.held.append(thing)
        self.key.append(id(thing))

    def is_new(self, thing) -> bool:
        if id(thing) in self._visited:
            self.key.append(("again", self._visited[id(thing)][0]))
            return False
        self._visited[id(thing)] = len(self._visited), thing
        return True

    def tensor(self, t: torch.Tensor, name: str) -> None:
        place = self._places.get(id(t))
        if place is None:
            place = self._places[id(t)] = len(self.tensors)
            self.tensors.append(t)
            self.labels.append(name)
            self.key.append((t.dtype, tuple(t.shape), t.requires_grad, t.device, type(t)))
        self.key.append(place)


def watch(*functions) -> Seen:
    first = tuple(getattr(f, "__code__", None) for f in functions)
    names = _names_known.get(first, frozenset())
    while True:
        seen = Seen(names)
        seen.chain = {id(f) for f in functions}
        for f in functions:
            _walk(seen, f, "", 0)
        spoken = names.union(*(_names_of(code)[0] for code in seen.codes))
        if len(spoken) == len(names):
            seen.key.append(torch.get_default_dtype())
            return seen
        names = _names_known[first] = spoken


def _walk(seen: Seen, thing, name: str, depth: int) -> None:
    kind = type(thing)
    if isinstance(thing, torch.Tensor):
        seen.tensor(thing, name)
    elif kind in _PLAIN:
        seen.key.append(kind)
        seen.key.append(thing)
        if kind is int:
            seen.numbers.setdefault(name, thing)
    elif kind is float:
        seen.key.append(repr(thing))  # -0.0 and NaN, which compare as they should not
        seen.numbers.setdefault(name, thing)
    elif kind in _WALKS and depth <= _DEEP:
        seen.key.append(kind)
        _WALKS[kind](seen, thing, name, depth + 1)
    elif depth > _DEEP:
        seen.blind(f"`{name}`, which is nested deeply,")
    else:
        _other(seen, thing, name, depth + 1)


def _other(seen: Seen, thing, name, depth) -> None:
    if isinstance(thing, np.generic):
        seen.key.append((thing.dtype.str, thing.tobytes()))
    elif isinstance(thing, tuple) and hasattr(thing, "_fields"):
        _class(seen, type(thing), name, depth)
        _sequence(seen, thing, name, depth)
    elif isinstance(thing, type):
        _class(seen, thing, name, depth)
    elif isinstance(thing, enum.Enum):
        seen.identity(thing)
    elif type(thing).__module__.partition(".")[0] == "torch" and not isinstance(thing, torch.nn.Module):
        seen.identity(thing)  # an operator, say
    else:
        _object(seen, thing, name, depth)


def _sequence(seen: Seen, thing, name, depth) -> None:
    seen.key.append(len(thing))
    if len(thing) > _MOST:
        seen.blind(f"`{name}`, of {len(thing)} elements,")
        return
    for i, part in enumerate(thing):
        _walk(seen, part, f"{name}_{i}", depth)


def _mapping(seen: Seen, thing, name, depth) -> None:
    if len(thing) > _MOST or not all(type(k) in (str, int) for k in thing):
        seen.blind(f"`{name}`, a large or unusual dict,")
        return
    for k, part in thing.items():
        seen.key.append(k)
        _walk(seen, part, f"{name}_{k}", depth)


def _function(seen: Seen, f, name, depth) -> None:
    if not seen.is_new(f):
        return
    code = f.__code__
    seen.key.append(code)
    seen.codes.add(code)
    spoken, is_opaque = _names_of(code)
    of_torch = (f.__module__ or "").partition(".")[0] in ("torch", "lathe")
    if is_opaque and not of_torch:
        seen.blind(f"{is_opaque} in {f.__name__}")
    for part in (f.__defaults__, f.__kwdefaults__):
        if part:
            _walk(seen, part, "default", depth)
    for n, cell in zip(code.co_freevars, f.__closure__ or ()):
        try:
            content = cell.cell_contents
        except ValueError:  # a name that has no value yet
            seen.key.append("empty")
            continue
        _read(seen, f, n, content)
        _walk(seen, content, n, depth)
    if not of_torch:
        for n in spoken:
            if n in f.__globals__:
                seen.key.append(n)
                _read(seen, f, n, f.__globals__[n])
                _walk(seen, f.__globals__[n], n, depth)
        if f.__dict__:
            _named(seen, seen.names, f.__dict__, depth)


def _read(seen: Seen, f, name: str, content) -> None:
    """What a function finds under a name, before it is walked."""
    if id(f) not in seen.chain:
        return
    if type(content) in (int, float):
        seen.places.append(Place(len(seen.key) + (type(content) is int), content, f, name))
    elif type(content) is types.FunctionType:
        seen.chain.add(id(content))


def opened(f, by_function: dict, known: dict):
    """A copy of a function, which reads other numbers; by_function: them by names, by the ids of functions."""
    if type(f) is not types.FunctionType or id(f) in known:
        return known.get(id(f), f)
    values = by_function.get(id(f), {})
    known[id(f)] = f
    cells = []
    for n, cell in zip(f.__code__.co_freevars, f.__closure__ or ()):
        try:
            content = values.get(n, cell.cell_contents)
        except ValueError:
            cells.append(cell)
            continue
        made = opened(content, by_function, known)
        cells.append(cell if made is cell.cell_contents else types.CellType(made))
    used = {n: f.__globals__[n] for n in _names_of(f.__code__)[0] if n in f.__globals__}
    changed = {n: opened(values.get(n, one), by_function, known) for n, one in used.items()}
    changed = {n: one for n, one in changed.items() if one is not used[n]}
    spaces = {**f.__globals__, **changed} if changed else f.__globals__
    made = types.FunctionType(f.__code__, spaces, f.__name__, f.__defaults__, tuple(cells))
    made.__kwdefaults__, made.__dict__ = f.__kwdefaults__, f.__dict__
    known[id(f)] = made
    return made


def _named(seen: Seen, names, holder, depth) -> None:
    """What a namespace has of these names."""
    for n in names:
        if n in holder:
            seen.key.append(n)
            _walk(seen, holder[n], n, depth)


@functools.lru_cache(maxsize=4096)
def _names_of(code: types.CodeType) -> tuple[frozenset, str]:
    """Names of globals and attributes in a code and in those inside of it; does it do what no walk can follow?"""
    names = set(code.co_names)
    is_opaque = ", ".join(sorted(names & _OPAQUE_NAMES))
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME" and str(step.argval).partition(".")[0] not in _PURE:
            is_opaque = is_opaque or f"import {step.argval}"
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            inner, inner_opaque = _names_of(part)
            names |= inner
            is_opaque = is_opaque or inner_opaque
    return frozenset(names), is_opaque


def _method(seen: Seen, thing, name, depth) -> None:
    _walk(seen, thing.__func__, name, depth)
    _walk(seen, thing.__self__, name, depth)


def _partial(seen: Seen, thing, name, depth) -> None:
    for part in (thing.func, thing.args, thing.keywords):
        _walk(seen, part, name, depth)


def _module(seen: Seen, thing, name, depth) -> None:
    seen.identity(thing)
    if thing.__name__.partition(".")[0] not in _PURE and seen.is_new(thing):
        _named(seen, seen.names, vars(thing), depth)


def _class(seen: Seen, thing, name, depth) -> None:
    seen.identity(thing)
    if not seen.is_new(thing):
        return
    for base in thing.__mro__:
        if base.__module__.partition(".")[0] not in _PURE:
            _attributes(seen, base, depth)


def _attributes(seen: Seen, kind, depth) -> None:
    """Of a class, as far as code speaks of them; methods and properties are looked into."""
    for n in seen.names | {"__call__"}:
        if n not in vars(kind):
            continue
        found = vars(kind)[n]
        found = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
        seen.key.append(n)
        _walk(seen, found, n, depth)


def _builtin(seen: Seen, thing, name, depth) -> None:
    """A function of C: pure where its module is."""
    seen.identity(thing)
    bound = getattr(thing, "__self__", None)
    owner = bound.__name__ if isinstance(bound, types.ModuleType) else getattr(thing, "__module__", None)
    if (owner or "builtins").partition(".")[0] not in _PURE:
        seen.blind(f"`{name}` of {owner}")


def _object(seen: Seen, thing, name, depth) -> None:
    """An object of a class of Python: what code names of it, in itself and in its class."""
    kind = type(thing)
    if _is_odd(kind) or not hasattr(thing, "__dict__"):
        seen.blind(f"`{name}`, an object of {kind.__name__},")
        return
    if not seen.is_new(thing):
        return
    _class(seen, kind, name, depth)
    own = vars(thing)
    if isinstance(thing, torch.nn.Module):
        is_of_torch = kind.__module__.startswith("torch.")  # a list of modules, say, which are read by their places
        for holder in (own["_parameters"], own["_buffers"], own["_modules"]):
            _named(seen, holder if is_of_torch else seen.names, holder, depth)
    _named(seen, seen.names, own, depth)


@functools.lru_cache(maxsize=4096)
def _is_odd(kind: type) -> bool:
    """Does the class answer in ways that are nowhere to be seen?"""
    if kind in _OPEN:
        return False
    if kind.__module__.partition(".")[0] in sys.stdlib_module_names:
        return True
    for base in kind.__mro__[:-1]:
        root = base.__module__.partition(".")[0]
        if root in _BASES or root == "torch" and issubclass(base, torch.nn.Module):
            continue
        if root == "builtins" or root in sys.stdlib_module_names and root != "__main__":
            return True
        if any(n.startswith("__") and n.endswith("__") and n not in _HARMLESS for n in vars(base)):
            return True
    return False


_WALKS = {
    tuple: _sequence,
    list: _sequence,
    torch.Size: _sequence,
    dict: _mapping,
    types.FunctionType: _function,
    types.MethodType: _method,
    types.BuiltinFunctionType: _builtin,
    functools.partial: _partial,
    types.ModuleType: _module,
    type: _class,
}
