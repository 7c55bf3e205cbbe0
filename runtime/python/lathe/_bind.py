"""The arguments of one call, bound to a signature; the results that it makes; the kernel that serves it."""

from __future__ import annotations

import collections
from typing import Any, Callable, Mapping

from . import _arrays, _library as c, _operands
from ._arrays import HOST, Array
from ._kernel import Call, Context, Records, Tensor, context_of
from ._numbers import number_of
from ._signature import Argument, Signature, named_arguments, refuse_list, unknown


class Bound:
    """The arguments of one call by name, in the order of the signature."""

    __slots__ = ("signature", "tensors", "scalars", "wanted", "device", "first", "exact")

    def __init__(self, signature: Signature):
        self.signature = signature
        self.tensors: dict[str, Array] = {}
        self.scalars: dict[str, float] = {}
        self.wanted: list[Argument] = []  # results to make
        self.device: int | None = None
        self.first: Array | None = None
        self.exact = False  # f64 throughout

    def key(self) -> tuple:
        return (
            tuple((n, t.dtype, t.shape, t.strides, t.pointer & 15) for n, t in self.tensors.items()),
            tuple(self.scalars),
        )

    def scalar_dtype(self, name: str) -> int:
        dtype = self.signature.by_name[name].dtype
        return c.F64 if self.exact and dtype == c.F32 else dtype

    def records(self) -> Records:
        records = Records(self._forms(), [(n, self.scalar_dtype(n)) for n in self.scalars])
        for place, value in zip(records.scalars, self.scalars.values()):
            place.value = value
        return records

    def _forms(self) -> list[Tensor]:
        return [Tensor(n, t.dtype, t.shape, t.strides) for n, t in self.tensors.items()]

    def make_call(self, op, which: int, context: Context) -> Call:
        scalars = [(n, self.scalar_dtype(n)) for n in self.scalars]
        return Call(context, op._handle, which, self._forms(), scalars, [t.pointer for t in self.tensors.values()])

    def in_order(self) -> None:
        order = [a.name for a in self.signature.arguments if a.name in self.tensors]
        self.tensors = {n: self.tensors[n] for n in order}

    def copy(self, name: str, stream: int | None) -> bool:
        """Put a compact copy in the place of an operand. False: it cannot be copied."""
        old = self.tensors[name]
        if old.device is None:
            self.tensors[name] = old._replace(strides=None)
            return True
        made = _operands.copied(given_owner(old), old.device, stream)
        if made is not None:
            self.tensors[name] = _arrays.describe(made, name)
        return made is not None

    def with_copies(self, make: Callable[[], Any], stream: int | None = None) -> tuple[Any, tuple[str, ...]]:
        """What `make` gives, and the operands that had to be copied, since the library refuses how they lie."""
        names: tuple[str, ...] = ()
        while True:
            try:
                return make(), names
            except c.ArgumentError as error:
                name = _operands.refused_strides(error)
                if name is None or name in names or not _operands.may_copy(self.signature, name, self.tensors):
                    raise
                if not self.copy(name, stream):
                    raise
                names += (name,)


def _check_known(op, signature: Signature, name: str) -> None:
    if name in signature.by_name:
        return
    if signature is op.gradient and name[:1] == "d" and name[1:] in signature.by_name:
        raise c.ArgumentError(
            f"argument '{name}': '{name[1:]}' has no gradient in this spec; "
            "an input is declared with grad = true for one"
        )
    raise unknown(op, [a.name for a in signature.arguments], name, ("stream", "context"), signature.which)


def bind(op, signature: Signature, args, named, *, with_data: bool, stream: int | None = None) -> Bound:
    check = lambda name: _check_known(op, signature, name)
    given = named_arguments(op.name, signature.positional, args, named, check)
    given = {n: v for n, v in given.items() if v is not None}
    bound = Bound(signature)
    for argument in signature.arguments:
        value = given.get(argument.name)
        if value is None or argument.role == c.SCALAR:
            continue
        if argument.role == c.RESULT and isinstance(value, bool):
            if value:
                bound.wanted.append(argument)
        elif argument.is_list:
            refuse_list(op.name, argument.name)
        else:
            bound.tensors[argument.name] = _described(signature, argument, value, given, stream)
    _choose_results(op, signature, bound, given)
    _find_device(op, bound, with_data)
    bound.exact = any(t.dtype == c.F64 for t in bound.tensors.values())
    _bind_scalars(op, signature, bound, given)
    return bound


def _described(signature: Signature, argument: Argument, value: Any, given, stream: int | None) -> Array:
    if argument.role == c.TENSOR and _operands.may_copy(signature, argument.name, given):
        value = _arrays.readable(_operands.as_i32(argument, value, stream))
    else:
        _arrays.check_writable(value, argument.name)
    _operands.check_whole(argument, getattr(value, "dtype", None))
    array = _arrays.describe(value, argument.name)
    _operands.check_f32(argument, array.dtype)
    return array


def _bind_scalars(op, signature: Signature, bound: Bound, given) -> None:
    for argument in signature.scalars:
        value = given.get(argument.name)
        if value is not None:
            _arrays.check_no_gradient(value, argument.name)
            bound.scalars[argument.name] = number_of(argument.name, argument.dtype, value, bound.exact)


def _choose_results(op, signature: Signature, bound: Bound, given) -> None:
    """Beside what is asked for, what the spec always makes; where that is nothing, the first of floats."""
    asked = {a.name for a in bound.wanted} | set(bound.tensors)
    bound.wanted += [
        a for a in signature.results if not a.optional and a.name not in asked and given.get(a.name) is not False
    ]
    if signature is op.forward and not bound.wanted and not any(r.name in given or r.alias for r in signature.results):
        bound.wanted += [signature.by_name[n] for n in signature.results_by_default()]
    bound.wanted.sort(key=signature.arguments.index)


def _find_device(op, bound: Bound, with_data: bool) -> None:
    for name, tensor in bound.tensors.items():
        if tensor.device is None:
            if with_data:
                raise c.ArgumentError(f"argument '{name}': expected a tensor with data, given one without")
            continue
        if bound.first is None:
            bound.first, bound.device = tensor, tensor.device
        elif tensor.device != bound.device:
            raise c.ArgumentError(
                f"argument '{name}': expected a tensor on {_where(bound.device)}, as the others are, given one on "
                f"{_where(tensor.device)}"
            )
    if with_data and bound.first is None:
        raise c.ArgumentError(f"{op.name}: expected tensors ({', '.join(bound.signature.positional)}), given none")


def _where(device: int | None) -> str:
    return "the host" if device == HOST else f"cuda:{device}"


def given_owner(array: Array):
    return array.owner[0] if isinstance(array.owner, tuple) else array.owner


# ---- results -----------------------------------------------------------------------------------------------------


def _result_forms(op, bound: Bound, which: int):
    """(argument, shape, dtype) of every result that is to be made. A missing operand is named by the library."""
    signature = bound.signature
    shapes = {n: t.shape for n, t in bound.tensors.items()}
    sizes, absent = signature.sizes(shapes)
    dtypes = {n: t.dtype for n, t in bound.tensors.items()}
    for argument in bound.wanted:
        shape = signature.result_shape(argument, shapes, sizes, absent)
        if shape is None:
            own = signature.own_size(argument, sizes)
            if own:
                raise c.ArgumentError(
                    f"argument '{argument.name}': its size '{own}' follows from no other tensor; pass the tensor, "
                    f"as in {argument.name}=tensor"
                )
            _say_missing(op, bound, which)
        yield argument, shape, signature.result_dtype(argument, dtypes)


def _say_missing(op, bound: Bound, which: int):
    context_of(HOST).need_support(op._handle, which, bound.records())
    raise c.ArgumentError(f"{op.name}: the sizes of its results do not follow from the tensors that were given")


def make_results(op, bound: Bound, family, which: int) -> tuple[dict[str, Any], list]:
    """Results by their names, and those that lie in memory of the caller's."""
    made = {}
    for argument, shape, dtype in _result_forms(op, bound, which):
        made[argument.name] = family.empty(shape, dtype, bound.device)
        if argument.kept_by in bound.tensors:
            made[argument.name][...] = 0  # what no sequence, slot or token has is not written
        bound.tensors[argument.name] = _arrays.describe(made[argument.name], argument.name)
    answer = {}
    for argument in bound.signature.results:
        if argument.name in made:
            answer[argument.name] = made[argument.name]
        elif argument.name in bound.tensors:
            answer[argument.name] = given_owner(bound.tensors[argument.name])
        elif argument.alias and argument.alias in bound.tensors:
            answer[argument.name] = given_owner(bound.tensors[argument.alias])
    bound.in_order()
    return answer, [value for name, value in answer.items() if name not in made]


def complete(op, bound: Bound, which: int) -> None:
    """Results without data, for a call that is only described."""
    for argument, shape, dtype in _result_forms(op, bound, which):
        bound.tensors[argument.name] = Array(0, dtype, shape, None, None, None)
    bound.in_order()


_answers: dict[tuple, type] = {}


def as_answer(results: Mapping[str, Any]):
    if len(results) == 1:
        return next(iter(results.values()))
    names = tuple(results)
    made = _answers.get(names)
    if made is None:
        made = _answers[names] = collections.namedtuple("Results", names, rename=True)
    return made(*results.values())


def stream_number(stream: Any, family, device: int) -> int:
    if stream is None:
        return family.stream(device)
    if isinstance(stream, int):
        return stream
    for field in ("cuda_stream", "ptr"):
        if hasattr(stream, field):
            return int(getattr(stream, field))
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    raise c.ArgumentError(f"stream: expected a number or a stream of torch or CuPy, given {type(stream).__name__}")
