"""The text of a spec from graphs of mods."""

from __future__ import annotations

import math
import os

import torch

from ._inputs import Inputs, Sizes, evaluate, is_constant, live_nodes
from ._lua import ATOM, BOOL, FLOAT, INT, RESERVED, Expr, call, check_range, constant, kind_of, real, truth
from ._open import SYMBOLIC
from ._rules import HELPERS, RULES, both, either
from ._trace import Graph, Node, _count, _leaves, refuse

_LONG = 88  # columns of an expression that gets a name
_READERS = {"index", "index_select", "gather", "take", "select"}
_MASKS = (torch.bool, torch.uint8)  # as indices, they choose by being true
KNOWN = frozenset(RULES) | _READERS


class Emitter:
    """One function of a spec, of one graph: its lines and what it returns."""

    def __init__(self, graph: Graph, inputs: Inputs, sizes: Sizes, helpers: dict[str, str]):
        self.graph, self.inputs, self.sizes, self.helpers = graph, inputs, sizes, helpers
        self.lines: list[str] = []
        self._taken = set(RESERVED) | set(HELPERS)
        self._done: dict[Node, Expr] = {}
        self._uses: dict[Node, int] = {}
        self._wide: dict[Node, bool] = {}
        self._named: dict[str, str] = {}  # locals by what they are
        for name, node in graph.symbols.items():
            self._done[node] = self._symbol(name)
        live = live_nodes(graph)
        for node in live:
            for operand in node.operands():
                self._uses[operand] = self._uses.get(operand, 0) + 1
        for node in live:
            if not is_row(node):
                self._emit(node)
        self.result = self._value(graph.result)

    def _symbol(self, name: str) -> Expr:
        if name == "s":
            return Expr("s", ATOM, FLOAT)
        size = self.sizes[name]
        return Expr(f"at.{name}", ATOM, INT, 0, math.inf if size is None else max(size - 1, 0))

    def _emit(self, node: Node) -> None:
        if _count(node.shape) != 1 and not any(is_row(o) for o in node.operands()):
            refuse(node.place, f"{node.func}: makes {_count(node.shape)} values of a pair, shape {list(node.shape)}; "
                   "a mod computes one number at a time: write it out, or compute what captured tensors alone decide "
                   "before the call")  # fmt: skip
        if node.dtype is torch.float64 and self.graph.float_dtype is not torch.float64:
            refuse(node.place, f"{node.func}: makes a float64 of it, and kernels compute in f32; cast to torch.float32")
        e = self._read(node) if reads(node) else self._apply(node)
        check_range(node, e, reads(node))
        if node.no_grad and e.kind == FLOAT:
            e = call("detach", e, lo=e.lo, hi=e.hi)
        is_long = len(e.text) > _LONG and node is not self.graph.result
        if is_long or self._uses.get(node, 0) > 1 or (node.label and self._uses.get(node) and e.binds != ATOM):
            e = self._local(e, node.label)
        self._done[node] = e

    def _apply(self, node: Node) -> Expr:
        if node.operator == "select":
            return self._value(node.args[0])
        found = RULES.get(node.operator) if node.func._overloadname not in _REDUCES.get(node.operator, ()) else None
        if any(is_row(o) for o in node.operands()):
            refuse(node.place, f"{node.func}: of rows of tensors, where a mod computes one number at a time; index "
                   "every dim. For a product of rows, as of rotary parts, join them to q and k by torch.cat along the "
                   "last dim, or write a spec with qk2 = true")  # fmt: skip
        if found is None:
            refuse(node.place, f"{node.func}: an operation that has no formula here; write it in arithmetic, exp, log, "
                   "tanh, torch.where, comparisons and the like, or a spec of its own in Lua")  # fmt: skip
        args = [self._filled(a, node) for a in node.args]
        named = {k: self._filled(v, node) for k, v in node.kwargs.items() if k not in _FORMS}
        try:
            return found(self, node, *args, **named)
        except TypeError as error:
            refuse(node.place, f"{node.func}: is not translated in this form ({error})")

    def _filled(self, argument, node: Node):
        if isinstance(argument, Node):
            return self._value(argument)
        if isinstance(argument, SYMBOLIC):
            return self.inputs.number(argument, node.place)
        if any(isinstance(a, Node) for a in _leaves(argument)):
            return [self._filled(a, node) for a in argument]
        return argument

    def _value(self, node: Node) -> Expr:
        if node in self._done:
            return self._done[node]
        if _count(node.shape) != 1:
            refuse(node.place, f"a whole tensor of shape {list(node.shape)} meets the mod's arguments; index it, so "
                   "that one number is read for each pair")  # fmt: skip
        if is_constant(node):
            found = evaluate(node, None).reshape(()).item()
            e = constant(found, kind_of(node.dtype))
        else:
            table = self.inputs.of(node)
            zeros = ", ".join("0" for _ in table.shape)
            e = self._converted(node, Expr(f"x.{table.name}({zeros})", ATOM, INT))
        self._done[node] = e
        return e

    def _converted(self, node: Node, read: Expr) -> Expr:
        """What a table of that dtype gives: numbers of u8 are integers."""
        if node.dtype is torch.bool:
            return truth(read.within(0, 255))
        if node.dtype is torch.uint8:
            return read.within(0, 255)
        read.kind = kind_of(node.dtype)
        if node.dtype in (torch.int8, torch.int16):
            info = torch.iinfo(node.dtype)
            read.within(info.min, info.max)
        return read

    # ---- reads of tables ---------------------------------------------------------------------------------------

    def _read(self, node: Node) -> Expr:
        table, index = read_of(node)
        found = self.inputs.of(table)
        places = [self._place(i, d, size, node) for i, d, size in zip(index, found.dims, table.shape)]
        return self._converted(table, Expr(f"x.{found.name}({', '.join(places)})", ATOM, INT))

    def _place(self, index, dim: str, size: int, node: Node) -> str:
        e = self._filled(index, node)
        e = e if isinstance(e, Expr) else constant(e)
        if e.kind != INT:
            refuse(node.place, "a tensor is indexed by what is no integer; write torch.where(mask, a, b) in the place "
                   "of an index by a bool")  # fmt: skip
        if e.text == "at.q" and dim == "q":
            return "at.row"
        if e.text == "at.q" and dim == "kv":
            return "clamp(at.q, 0, at.len_kv - 1)"
        if e.lo >= 0:
            return e.text
        total = dim if dim == "1" else f"at.len_{dim}" if dim in ("q", "kv") else f"at.n_{dim}"
        if e.value is not None:
            return f"{total} - {-e.value}"
        if isinstance(index, Node) and reads(index):
            other = self.inputs.of(read_of(index)[0])
            other.indexes = min(size, other.indexes or size)
        return self.helper("from_end", e, Expr(total, ATOM, INT)).text  # torch counts them so

    # ---- what rules ask for ------------------------------------------------------------------------------------

    def once(self, e: Expr) -> Expr:
        """The same as a name, to be used twice."""
        return e if e.binds == ATOM and "(" not in e.text else self._local(e, "")

    def helper(self, name: str, *args: Expr, kind: str = FLOAT) -> Expr:
        self.helpers[name] = HELPERS[name]
        return call(name, *args, kind=kind)

    def exact(self, node: Node, e: Expr) -> Expr:
        """Bits of an int64 beyond 32 would be lost."""
        if any(self._is_wide(o) for o in node.operands()):
            refuse(node.place, "bits of a captured int64 tensor, of which 32 would be lost; make it torch.int32, with "
                   "32 bits a word")  # fmt: skip
        return e

    def _is_wide(self, node: Node) -> bool:
        if node.func is None:
            return node.is_captured and node.dtype is torch.int64
        if node not in self._wide:
            read = node.operator in _READERS
            of = [node.args[0]] if read else node.operands()
            self._wide[node] = node.dtype is torch.int64 and any(self._is_wide(o) for o in of if isinstance(o, Node))
        return self._wide[node]

    def _local(self, e: Expr, label: str) -> Expr:
        if e.binds == ATOM and "(" not in e.text:
            return e
        if e.text in self._named:
            return Expr(self._named[e.text], ATOM, e.kind, e.lo, e.hi)
        stem = label if label.isascii() and label.isidentifier() else "t"
        n = 1
        name = stem if stem != "t" else "t1"
        while name in self._taken:
            n += 1
            name = f"{stem}_{n}" if stem != "t" else f"t{n}"
        self._taken.add(name)
        self._named[e.text] = name
        self.lines.append(f"local {name} = {e.text}")
        return Expr(name, ATOM, e.kind, e.lo, e.hi)


_FORMS = {"dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking"}  # the node has its dtype
_REDUCES = {"max": ("dim", "default"), "min": ("dim", "default")}  # not those of two numbers


def read_of(node: Node):
    """The table of a read and an index for each of its dims. Rows of a table may be read in steps: `table[i][j]`."""
    table, index = _read_so_far(node)
    index = [0 if one is None and size == 1 else one for one, size in zip(index, table.shape)]
    if any(i is None for i in index):
        refuse(node.place, f"{node.func}: {len(index) - index.count(None)} indices for a tensor of {len(index)} dims "
               "give a row, where one number is needed; index every dim")  # fmt: skip
    return table, index


def reads(node: Node) -> bool:
    """Is it a read of a table? What is taken out of one number is that number."""
    taken = node.operator == "select" and isinstance(node.args[0], Node) and node.args[0].moves
    return node.operator in _READERS and not (taken and _count(node.args[0].shape) == 1)


def is_row(node: Node) -> bool:
    """A row of a table, of which something may still be read."""
    return reads(node) and _count(node.shape) != 1


def _read_so_far(node: Node):
    table = node.args[0]
    if not isinstance(table, Node):
        refuse(node.place, f"{node.func}: reads something else than a tensor")
    if not table.moves:
        index = [None] * len(table.shape)
    elif table.operator in _READERS:
        table, index = _read_so_far(table)
    else:
        refuse(node.place, f"{node.func}: reads a tensor that is made of the mod's arguments; read a captured one")
    open_dims = [i for i, one in enumerate(index) if one is None]
    if not open_dims:
        refuse(node.place, f"{node.func}: reads one number by an index; leave the index out")
    for dim, one in _dims_of(node, len(open_dims)):
        index[open_dims[dim]] = one
    return table, index


def _dims_of(node: Node, rank: int):
    """(dim, index) of a read."""
    rest = node.args[1:]
    if node.operator == "index":
        index = [(dim, one) for dim, one in enumerate(rest[0]) if one is not None]
    elif node.operator == "take":
        index = [(0, rest[0])]
    else:
        index = [(rest[0] % max(rank, 1), rest[1])]
    if any(isinstance(one, Node) and (_count(one.shape) != 1 or one.dtype in _MASKS) for _, one in index):
        refuse(node.place, f"{node.func}: a tensor is indexed by more than one number, or by a bool; index by integers "
               "that are made of the mod's arguments")  # fmt: skip
    if node.operator in ("take", "gather") and rank != 1:
        refuse(node.place, f"{node.func}: of more than one dim; index each dim, table[i, j]")
    return index


def collect_reads(graph: Graph, inputs: Inputs) -> None:
    """Before dims are named, all reads of each table are known."""
    for node in live_nodes(graph):
        if reads(node) and not is_row(node):
            table, index = read_of(node)
            inputs.of(table).reads.append(index)


class Parts:
    """What a spec is made of."""

    def __init__(self, score: Graph | None, mask: Graph | None, inputs: Inputs, sizes: Sizes):
        self.score, self.mask, self.inputs, self.sizes = score, mask, inputs, sizes
        self.helpers: dict[str, str] = {}
        self.scale: float | None = None
        self.with_maximum = False
        self.numbers: dict[str, object] | None = None  # that Python has read, for people
        self.block: tuple | None = None  # lengths of blocks in queries and keys, and the names of the tables
        for graph in (score, mask):
            if graph:
                collect_reads(graph, inputs)

    def text(self) -> str:
        for found in self.inputs.unique():
            found.place_dims(self.sizes)
        score = self._score() if self.score else None
        mask = self._mask()
        slots = []
        for found in self.inputs.unique():  # numbers that rules have met
            found.place_dims(self.sizes)
        declared = [i.declaration(self.numbers is not None) for i in self.inputs.unique()]
        declared += [i.declaration() for i in self.inputs.scalars.values()]
        if self.block:
            form = 'tensor("i32", "b", "h", "q_blocks", "kv_blocks", { range = { 0, 2 } })'
            declared += [f"{name} = {form}" for name in self.block[2:]]
        if declared:
            slots.append("inputs = {\n" + "".join(f"    {d},\n" for d in declared) + "  }")
        if self.scale is not None:
            slots.append(f"scale = {constant(self.scale).text}")
        slots += [s for s in (mask, score) if s]
        if self.with_maximum:
            slots.append("online_func = with_maximum")
        body = "".join(f"  {s},\n" for s in slots)
        return self._head() + self._helpers() + "return attention {\n" + body + "}\n"

    def _score(self) -> str | None:
        e = Emitter(self.score, self.inputs, self.sizes, self.helpers)
        value = real(e.result)
        if not e.lines and value.text == "s":
            return None
        return "score_mod = " + _function("s, at, x", e.lines, value.text)

    def _mask(self) -> str | None:
        e = Emitter(self.mask, self.inputs, self.sizes, self.helpers) if self.mask else None
        live = e.result if e else constant(True)
        if live.kind != BOOL:
            refuse(self.mask.place, f"{self.mask.title} returns a number; a mask returns a bool, as of a comparison")
        lines = list(e.lines) if e else []
        if self.block:
            place = f"(at.b, at.h, at.row // {self.block[0]}, at.kv // {self.block[1]})"
            listed, *whole = [Expr(f"eq(x.{name}{place}, 1)", ATOM, BOOL) for name in self.block[2:]]
            live = either(whole[0], live) if whole else live
            live = both(listed, live)
        if live.value is True:
            return None
        text = "lt(at.kv, 0)" if live.value is False else live.text
        return "mask_mod = " + _function("at, x", lines, text)

    def _head(self) -> str:
        of = [f"{kind} `{g.title}` ({os.path.basename(g.place[0])}:{g.place[1]})"
              for kind, g in (("score_mod", self.score), ("mask_mod", self.mask)) if g]  # fmt: skip
        lines = [f"-- Translated from {' and '.join(of or ['no mods'])} of FlexAttention. Call it with q_start = 0."]
        lines += [f"-- {i.told()}" for i in self.inputs.unique()]
        read = [f"{n} = {v}" for n, v in (self.numbers or {}).items() if n.isidentifier()]
        lines += [f"-- numbers that Python has read: {', '.join(read[:8])}"] if read else []
        if self.block:
            lines.append("-- live_blocks: 1 where pairs of a block may be live; whole_blocks: 1 where all of them are")
        return "\n".join(lines) + "\n"

    def _helpers(self) -> str:
        texts = [self.helpers[n] for n in sorted(self.helpers)]
        if self.with_maximum:
            texts.append(_WITH_MAXIMUM)
        return "".join(f"{t}\n" for t in texts)


def _function(parameters: str, lines: list[str], result: str) -> str:
    if not lines and len(result) < 90:
        return f"function({parameters}) return {result} end"
    body = "".join(f"    {line}\n" for line in lines)
    return f"function({parameters})\n{body}    return {result}\n  end"


_WITH_MAXIMUM = """-- softmax whose finals have the largest score of a row, too
local with_maximum = online_func {
  online_rowscales = softmax_states,
  online_fwd = softmax_step,
  online_fwd_epilogue = function(r)
    local factor, finals = softmax_epilogue(r)
    return factor, { lse = finals.lse, max_scores = r.m }
  end,
  forward = softmax_weight,
  combine = softmax_combine,
}"""

