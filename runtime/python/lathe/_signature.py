"""What a pass of a spec takes, as Python data, and the shapes of results from those of operands.

Sizes may be whatever behaves like an int: the shapes of a graph under torch.compile are symbols.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Sequence

from . import _library as c


@dataclass(frozen=True)
class Dim:
    """Elements along a dim: times * (the size of that name) + plus."""

    name: str
    times: int
    plus: int

    def value(self, sizes: Mapping[str, Any]) -> Any:
        if not self.name:
            return self.plus
        size = sizes.get(self.name)
        return None if size is None else self.times * size + self.plus if self.times != 1 or self.plus else size

    def __str__(self) -> str:
        text = self.name or str(self.plus)
        if self.times > 1:
            text = f"{self.times}*{text}"
        return f"{text}+{self.plus}" if self.name and self.plus else text


@dataclass(frozen=True, repr=False)
class Argument:
    """An argument of a pass: as `lathe_arg_info`."""

    name: str
    role: int
    dtype: int
    shares_dtype: bool
    takes_halves: bool
    optional: bool
    leading_optional: bool
    is_input: bool
    is_list: bool
    alias: str
    default: float
    dims: tuple[Dim, ...]
    kept_by: str = ""  # of a result: the argument beside which a call may leave some elements as they were

    @property
    def shape_text(self) -> str:
        return "[" + ", ".join(map(str, self.dims)) + "]"

    @property
    def dtype_text(self) -> str:
        return "float" if self.dtype == c.NONE else c.DTYPE_NAMES[self.dtype]

    def __str__(self) -> str:
        what = "scalar" if self.role == c.SCALAR else self.shape_text
        return f"{self.name} {what} {self.dtype_text}{' optional' if self.optional else ''}"

    def __repr__(self) -> str:
        return f"<{self}>"


def why_absent(op, name: str, which: int = c.FORWARD) -> str:
    """Why a pass does not take an argument that other specs take; "" where nothing is known of the name."""
    return c.lib.lathe_spec_absent(op._handle, which, name.encode()).decode()


def unknown(op, known: Sequence[str], name: str, also: Sequence[str] = (), which: int = c.FORWARD) -> c.ArgumentError:
    """`also`: names that a call takes beside those of the spec."""
    why = why_absent(op, name, which)
    if why:
        return c.ArgumentError(f"argument '{name}': not taken: {why}")
    near = difflib.get_close_matches(name, [*known, *also], n=1)
    meant = f"; did you mean '{near[0]}'?" if near else ""
    return c.ArgumentError(f"argument '{name}': unknown name; {op.name} takes {', '.join(known)}{meant}")


def refuse_list(op_name: str, name: str):
    raise c.ArgumentError(f"argument '{name}': {op_name} takes lists of tensors, as arrays of pointers; "
                          "lathe.torch.Lion and lathe.torch.AdamW call it")  # fmt: skip


def refuse_lists(op) -> None:
    for argument in op.forward.arguments:
        if argument.is_list:
            refuse_list(op.name, argument.name)


def named_arguments(
    op_name: str, positional: Sequence[str], args: Sequence[Any], named: Mapping[str, Any], check: Callable[[str], None]
) -> dict[str, Any]:
    """The arguments of a call by their names. check: raises where a name is unknown."""
    if len(args) > len(positional):
        raise c.ArgumentError(
            f"{op_name}: expected at most {len(positional)} tensors by position ({', '.join(positional)}), given "
            f"{len(args)}; others are given by name"
        )
    given = dict(zip(positional, args))
    for name, value in named.items():
        if name in given:
            raise c.ArgumentError(f"argument '{name}': given twice, by position and by name")
        check(name)
        given[name] = value
    return given


class Signature:
    """The arguments of a pass, by name and in order, and how sizes follow from each other."""

    def __init__(self, spec, which: int):
        self.which = which
        self.arguments = tuple(_arguments(spec, which))
        self.by_name = {a.name: a for a in self.arguments}
        self.same_as = dict(_same_as(spec, which))
        self.tensors = tuple(a for a in self.arguments if a.role == c.TENSOR)
        self.results = tuple(a for a in self.arguments if a.role == c.RESULT)
        self.scalars = tuple(a for a in self.arguments if a.role == c.SCALAR)
        # What a call may give without a name: operands and tensors of the spec that must be there.
        self.positional = tuple(a.name for a in self.tensors if not a.optional)

    def results_by_default(self) -> tuple[str, ...]:
        """What a call gives where no result is named: those that are always made, or else the first of floats: values,
        not their places. Sums over everything, which have no dims, come last in that.
        """
        always = tuple(r.name for r in self.results if not r.optional or r.alias)
        if always or not self.results:
            return always
        return (min(self.results, key=lambda r: (not r.dims, r.dtype in (c.I32, c.U8))).name,)

    def sizes(self, shapes: Mapping[str, Sequence[Any]]) -> tuple[dict[str, Any], set[str]]:
        """Sizes by name from the shapes of tensors, and the names of leading dims that were left out."""
        sizes: dict[str, Any] = {}
        absent: set[str] = set()
        for name, shape in shapes.items():
            argument = self.by_name[name]
            skipped = len(argument.dims) - len(shape)
            if skipped and (skipped < 0 or not argument.leading_optional):
                continue  # the library refuses it, and says why
            absent.update(d.name for d in argument.dims[:skipped])
            for dim, given in zip(argument.dims[skipped:], shape):
                if dim.name and dim.name not in sizes:
                    sizes[dim.name] = (given - dim.plus) // dim.times if dim.times != 1 or dim.plus else given
        for name, other in self.same_as.items():
            if name not in sizes and other in sizes:
                sizes[name] = sizes[other]
        for name in absent:
            sizes.setdefault(name, 1)
        return sizes, absent

    def result_shape(self, argument: Argument, shapes: Mapping[str, Sequence[Any]], sizes: Mapping[str, Any],
                     absent: set[str]) -> tuple | None:  # fmt: skip
        """None: a size is not known, since an operand is missing. shapes: of operands, which `sizes` are made of; an
        input of a call that has some of all heads or keys has all of them, and so has its gradient; that of a pool of
        pages is such a pool."""
        of = argument.name[1:]
        if self.which == c.BACKWARD and of in shapes and (self.by_name[of].is_input or "pages" in shapes):
            return tuple(shapes[of])
        dims = argument.dims
        while argument.leading_optional and dims and dims[0].name in absent:
            dims = dims[1:]
        shape = tuple(d.value(sizes) for d in dims)
        return None if any(s is None for s in shape) else shape

    def own_size(self, argument: Argument, sizes: Mapping[str, Any]) -> str:
        """The name of a size of a result that is not known, and that no operand has; "": there is none."""
        others = {d.name for a in self.tensors for d in a.dims}
        return next((d.name for d in argument.dims if d.value(sizes) is None and d.name not in others), "")

    def need_operand(self, argument: Argument, sizes: Mapping[str, Any]) -> None:
        """Raises for a result that no door can make which only makes results."""
        own = self.own_size(argument, sizes)
        if own:
            raise c.ArgumentError(
                f"result '{argument.name}': its size '{own}' follows from no operand; an op that lathe.load gives "
                f"writes into a tensor that is passed, {argument.name}=tensor"
            )

    def result_dtype(self, argument: Argument, dtypes: Mapping[str, int]) -> int:
        """In double precision, where the operands are, what is f32 otherwise is f64, too."""
        of_role = [dtypes[a.name] for a in self.tensors if a.shares_dtype and a.name in dtypes]
        shared = next((d for d in of_role if d not in c.NARROW), c.BF16 if of_role else c.NONE)
        if argument.shares_dtype and shared:
            return shared
        if argument.shares_dtype and c.F64 in dtypes.values():
            return c.F64
        halves = (dtypes[a.name] for a in self.tensors if a.takes_halves and a.name in dtypes)
        if argument.takes_halves and (given := next(halves, c.NONE)):
            return given
        if argument.dtype != c.NONE:
            exact = c.F64 in dtypes.values() and argument.dtype == c.F32
            return c.F64 if exact else argument.dtype
        of = argument.name[1:] if argument.name[:1] == "d" and argument.name[1:] in dtypes else argument.alias
        if of in dtypes:
            return dtypes[of]
        floats = (dtypes[a.name] for a in self.tensors if a.dtype == c.NONE and a.name in dtypes)
        return next(floats, c.F32)


def _arguments(spec, which: int):
    info = c.ArgInfo()
    number = 0
    while c.lib.lathe_spec_arg(spec, which, number, info):
        dims = tuple(Dim(d.name.decode(), d.times, d.plus) for d in info.dim[: info.ndim])
        yield Argument(
            info.name.decode(), info.role, info.dtype, bool(info.shares_dtype), bool(info.takes_halves),
            bool(info.optional), bool(info.leading_optional), bool(info.is_input), bool(info.is_list),
            info.alias.decode(), info.default_value, dims, info.kept_by.decode(),
        )  # fmt: skip
        number += 1


def _same_as(spec, which: int):
    info = c.SizeInfo()
    number = 0
    while c.lib.lathe_spec_size(spec, which, number, info):
        if info.same_as:
            yield info.name.decode(), info.same_as.decode()
        number += 1
