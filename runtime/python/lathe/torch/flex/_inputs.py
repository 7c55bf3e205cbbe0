"""Captured tensors as inputs of a spec: what is computed of them before a launch, their names and dims."""

from __future__ import annotations

import torch

from ._lua import ATOM, FLOAT, INT, TAKEN, Expr
from ._open import SYMBOLIC
from ._trace import Graph, Node, _count, _leaves, refuse, replaced

_DTYPES = {torch.float32: "float", torch.float16: "float", torch.bfloat16: "float", torch.float64: "float",
           torch.int64: "i32", torch.int32: "i32", torch.int16: "i32", torch.int8: "i32", torch.uint8: "u8",
           torch.bool: "u8"}  # fmt: skip


class Sizes:
    """Lengths of a call by the names of dims, or None where nobody has said them."""

    def rounded(self) -> "Sizes":
        """Up to powers of two, for a text that serves some longer calls, too."""
        return Sizes(*(1 << (n - 1).bit_length() if n else n for n in self.by_name.values()))

    def __init__(self, b=None, h=None, q=None, kv=None):
        self.by_name = {"b": b, "h": h, "q": q, "kv": kv}

    def __getitem__(self, name):
        return self.by_name[name]


class Input:
    """A table that mods read, or a number that they use: a node that no symbol moves."""

    def __init__(self, node: Node, name: str):
        self.node, self.name = node, name
        self.is_number = not node.shape
        self.shape = node.shape or (1,)
        self.reads: list[list[Node]] = []
        self.sources = captured_of(node)
        self.has_gradient = node.dtype.is_floating_point and any(s.needs for s in self.sources)
        self.dims: list[str] = []
        self.indexes = 0  # the size of a dim that its values go into, as they are

    def place_dims(self, sizes: Sizes) -> None:
        """A dim that is always read by one index of the pair, and is as long as that goes, is that dim."""
        self.dims = ["1"] if self.is_number else [self._dim(i, size, sizes) for i, size in enumerate(self.shape)]

    def _dim(self, i: int, size: int, sizes: Sizes) -> str:
        by = {index[i].name if isinstance(index[i], Node) and not index[i].func else "" for index in self.reads}
        for name in ("b", "h", "q"):
            if by == {name} and size == sizes[name]:
                return name
        if by and by <= {"q", "kv"} and size == sizes["kv"] and (by == {"kv"} or size == sizes["q"]):
            return "kv"
        return f"{self.name}_{i}"

    def declaration(self, for_people: bool) -> str:
        """for_people: numbers that go into a dim say so, from its end, too. They are of one length, so a text that
        serves all lengths has none."""
        quoted = [d if d.isdigit() else f'"{d}"' for d in self.dims]
        options = ", { grad = true }" if self.has_gradient else ""
        if for_people and self.indexes and _DTYPES[self.node.dtype] == "i32":
            options = f", {{ range = {{ -{self.indexes}, {self.indexes} }} }}"
        return f'{self.name} = tensor("{_DTYPES[self.node.dtype]}", {", ".join(quoted)}{options})'

    def told(self) -> str:
        what = f"{str(self.node.dtype).removeprefix('torch.')} {list(self.node.shape)}"
        return f"{self.name}: {what}" + (", computed of captured tensors before the call" if self.node.func else "")


class Scalar:
    """A number of Python that is left open. A tensor in host memory takes the place of a float where a compiler does
    so, which is how scalars with a gradient come."""

    def __init__(self, name: str, number, formula, is_tensor: bool):
        self.name, self.formula = name, formula
        self.is_int = isinstance(number, torch.SymInt)
        self.is_tensor = is_tensor and not self.is_int

    def declaration(self) -> str:
        options = ", { grad = true }" if self.is_tensor else ""
        return f'{self.name} = scalar("{"i32" if self.is_int else "f32"}"{options})'


class Inputs:
    """All inputs of a spec, in the order in which mods read them."""

    def __init__(self, names: list[str], float_dtype: torch.dtype, numbers=None, number_names=str, tensors=False):
        self.names = names  # of captured tensors, by their slots
        self.numbers, self.number_names, self.number_tensors = numbers, number_names, tensors
        self.scalars: dict = {}  # by their expressions
        self.float_dtype = float_dtype
        self.by_node: dict[Node, Input] = {}
        self._by_tensor: dict[tuple, Input] = {}

    def __iter__(self):
        return iter(self.by_node.values())

    def unique(self) -> list[Input]:
        return list(dict.fromkeys(self.by_node.values()))

    def number(self, number, place) -> Expr:
        if isinstance(number, torch.SymBool):
            refuse(place, "a comparison of numbers that change from call to call stands where a tensor is needed; "
                   "write it of tensors")  # fmt: skip
        expr = number.node.expr
        found = self.scalars.get(expr)
        if found is None:
            name = self._free_name(self.numbers.name_of(number, self.number_names))
            formula = self.numbers.formula(number)
            found = self.scalars[expr] = Scalar(name, number, formula, self.number_tensors)
        return Expr(f"x.{found.name}", ATOM, INT if found.is_int else FLOAT)

    def of(self, node: Node) -> Input:
        found = self.by_node.get(node)
        mark = (node.slot, id(node.tensor)) if node.is_captured else None
        if found is None:
            found = self._by_tensor.get(mark)
        if found is None:
            self._check(node)
            found = Input(node, self._name(node))
        self.by_node[node] = found
        if mark:
            self._by_tensor[mark] = found
        return found

    def _check(self, node: Node) -> None:
        if len(node.shape) > 4:
            refuse(node.place, f"a captured tensor of {len(node.shape)} dims is indexed; inputs have up to four: join "
                   "some of them by .flatten() before the call")  # fmt: skip
        if node.dtype not in _DTYPES:
            refuse(node.place, f"a captured tensor of {node.dtype}, which inputs do not have; cast it before the call")
        if node.dtype is torch.float64 and self.float_dtype is not torch.float64:
            refuse(node.place, "a captured tensor of float64 beside queries of fewer digits: kernels compute in f32; "
                   "write .float()")  # fmt: skip

    def _name(self, node: Node) -> str:
        named = [self.names[s.slot] for s in captured_of(node) if s.slot >= 0]
        return self._free_name(node.label or (named[0] if named else "") or "table")

    def _free_name(self, wanted: str) -> str:
        stem = "".join(ch if ch.isalnum() and ch.isascii() else "_" for ch in wanted).strip("_") or "table"
        stem = f"t_{stem}" if stem[0].isdigit() else stem
        taken = {i.name for i in self.by_node.values()} | {i.name for i in self.scalars.values()}
        names = (stem if n == 0 else f"{stem}_{n + 1}" for n in range(len(taken) + 2))
        return next(n for n in names if n not in taken and n not in TAKEN and not (n[0] == "d" and n[1:] in taken))


def captured_of(node: Node) -> list[Node]:
    if node.func is None:
        return [node] if node.is_captured else []
    return list(dict.fromkeys(s for o in node.operands() for s in captured_of(o)))


def is_constant(node: Node) -> bool:
    """Made of nothing but numbers that the mod itself writes down."""
    return not node.moves and not captured_of(node) and not _has_open(node)


def _has_open(node: Node) -> bool:
    """Is a number that is left open in it?"""
    leaves = list(_leaves((node.args, node.kwargs)))
    return any(isinstance(a, SYMBOLIC) or isinstance(a, Node) and _has_open(a) for a in leaves)


def evaluate(node: Node, tensor_of, number_of=None) -> torch.Tensor:
    """The value of a node that no symbol moves; tensor_of gives captured tensors, number_of what is left open."""
    done: dict[Node, object] = {}

    def value(n: Node):
        if n not in done:
            done[n] = (n.tensor if n.fresh else tensor_of(n)) if n.func is None else _run(n)
        return done[n]

    def _run(n: Node):
        args, named = replaced((n.args, n.kwargs), Node, value)
        if number_of is not None:
            args, named = replaced((args, named), SYMBOLIC, number_of)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not n.no_grad):
            out = n.func(*args, **named)
        return out[int(n.name[1:])] if n.name.startswith("#") else out

    return value(node)


def live_nodes(graph: Graph) -> list[Node]:
    """In the order in which they were computed, without what nothing needs. Nodes that no symbol moves end it: they
    are inputs or constants."""
    needed = {graph.result}
    for node in reversed(graph.nodes):
        if node in needed and node.moves:
            needed.update(node.operands())
    return [n for n in graph.nodes if n in needed and n.moves]


__all__ = ["Input", "Inputs", "Sizes", "captured_of", "evaluate", "is_constant", "live_nodes", "_count", "_leaves"]
