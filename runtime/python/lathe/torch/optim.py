"""Optimizers whose step is one launch for all tensors of a dtype: AdamW and Lion.

The specs `adamw` and `lion` take lists: arrays of pointers in memory that the device reads. They are made once and
made anew where an address has changed, as that of gradients may after zero_grad(set_to_none=True).
"""

from __future__ import annotations

import functools
import sys
from ctypes import c_float

import torch

from .. import _library as c
from .._arrays import HOST, check_memory, check_writable, mark_written
from .._kernel import Call, Tensor, context_of
from .._op import load
from ._passes import CODES
from ._register import PLAIN

_op = functools.cache(load)
# An entry's length is an i32: a larger parameter is split into entries of so many elements, a multiple of 16 bytes.
ENTRY_ELEMENTS = 2**30


class _Pointers:
    """The addresses of a list of tensors, in memory of their device."""

    def __init__(self):
        self.addresses: list[int] = []
        self.array: torch.Tensor | None = None

    def of(self, addresses: list[int], device) -> int:
        if addresses != self.addresses:
            host = torch.tensor(addresses, dtype=torch.int64, pin_memory=device.type == "cuda")
            self.array = host.to(device, non_blocking=True)
            self.addresses = addresses
        return self.array.data_ptr()


class _Launcher:
    """Calls of one list spec for one set of tensors. forms: strides and sizes of the parameters."""

    def __init__(self, spec: str, names: tuple[str, ...], lists, addresses, scalars: tuple[str, ...], forms):
        self.forms = forms
        self.written = addresses[:1] + addresses[2:]
        self.device = device = lists[0][0].device
        self.index = HOST if device.type == "cpu" else device.index
        self.pointers = [_Pointers() for _ in lists]
        self.element_bytes = [ts[0].element_size() for ts in lists]
        firsts = [range(0, max(t.numel(), 1), ENTRY_ELEMENTS) for t in lists[0]]
        self.entries = [(k, first) for k, of in enumerate(firsts) for first in of]
        self.one_entry_each = len(self.entries) == len(lists[0])
        lengths = [min(ENTRY_ELEMENTS, lists[0][k].numel() - first) for k, first in self.entries]
        self.lengths = torch.tensor(lengths, dtype=torch.int32).to(device)
        n = (len(lengths),)
        records = [Tensor(name, self._code(name, ts[0]), n, None) for name, ts in zip(names, lists)]
        records.append(Tensor("lengths", c.I32, n, None))
        op = _op(spec)
        self.exact = all(ts[0].dtype == torch.float64 for ts in lists)
        kinds = [op.forward.by_name[s].dtype for s in scalars]
        kinds = [c.F64 if self.exact and k == c.F32 else k for k in kinds]
        places = self._places(addresses)
        self.call = Call(context_of(self.index), op._handle, c.FORWARD, records, list(zip(scalars, kinds)), places)
        size = self.call.workspace
        self.workspace = torch.empty(size, dtype=torch.uint8, device=device) if size else None

    @staticmethod
    def _code(name: str, tensor) -> int:
        if tensor.dtype not in CODES:
            raise c.ArgumentError(f"argument '{name}': expected float32, float16 or bfloat16, given {tensor.dtype}")
        return CODES[tensor.dtype]

    def _places(self, addresses) -> list[int]:
        if not self.one_entry_each:
            sizes = self.element_bytes
            addresses = [[of[k] + size * first for k, first in self.entries] for of, size in zip(addresses, sizes)]
        return [p.of(of, self.device) for p, of in zip(self.pointers, addresses)] + [self.lengths.data_ptr()]

    def __call__(self, addresses, values) -> None:
        room = self.workspace.data_ptr() if self.workspace is not None else 0
        stream = 0 if self.index == HOST else torch._C._cuda_getCurrentRawStream(self.index)
        self.call.launch(self._places(addresses), values, room, stream)


class _ListOptimizer(torch.optim.Optimizer):
    """What AdamW and Lion share: tensors in buckets of one dtype, device and age."""

    spec: str
    moments: tuple[str, ...]
    scalars: tuple[str, ...]

    def __init__(self, params, defaults: dict):
        self._check_numbers(defaults)
        super().__init__(params, defaults)
        self._launchers: dict[tuple, _Launcher] = {}

    def add_param_group(self, param_group) -> None:
        if isinstance(param_group, dict):  # what else it may be torch refuses
            self._check_numbers(self.defaults | param_group)
            self._check_group(param_group)
        super().add_param_group(param_group)

    def _check_numbers(self, group: dict) -> None:
        self._need("lr and weight_decay >= 0", group, ("lr", "weight_decay"), lambda x: x >= 0)
        self._need("eps >= 0", group, ("eps",), lambda x: x >= 0)
        self._need("betas from 0 to below 1", group, ("betas",), lambda x: all(0 <= b < 1 for b in x))

    def _need(self, expected: str, group: dict, names, holds) -> None:
        """NaN holds nowhere."""
        given = [group[n] for n in names if n in group]
        if not all(holds(x) for x in given):
            raise c.ArgumentError(f"{type(self).__name__}: expected {expected}, given {' and '.join(map(str, given))}")

    def __setstate__(self, state):
        """Of a copy, or from a file: launchers are made anew, for its own tensors."""
        for group in state["param_groups"]:
            self._check_numbers(group)
            self._check_group(group)
        for one in state["state"].values():
            missing = [n for n in ("step", *self.moments) if one and n not in one]
            if missing:
                raise c.ArgumentError(f"{type(self).__name__}: expected a state with {missing[0]}, given one with "
                                      f"{', '.join(map(str, one))}, of another optimizer")  # fmt: skip
        super().__setstate__(state)
        self._launchers = {}
        for group in self.param_groups:  # from an optimizer of torch's
            for name, value in self.defaults.items():
                group.setdefault(name, value)

    def _check_group(self, group: dict) -> None:
        """Of what torch's optimizers are told beside: in a group, or by what they have saved."""
        asked = [n for n in ("maximize", "amsgrad") if group.get(n)]
        if group.get("decoupled_weight_decay", True) is False and group.get("weight_decay"):
            asked.append("a weight_decay that is added to the gradient (Adam's)")
        if asked:
            raise c.UnsupportedError(f"{type(self).__name__}: {asked[0]} is not served")

    def load_state_dict(self, state_dict) -> None:
        """As torch's own, which gives moments the dtype of their parameter: they get the one that they have here."""
        loaded: list[dict] = []
        handle = self.register_load_state_dict_pre_hook(lambda _, given: loaded.append(given))
        try:
            super().load_state_dict(state_dict)
        finally:
            handle.remove()
        saved = loaded[0]
        for group, of in zip(self.param_groups, saved["param_groups"]):
            for p, number in zip(group["params"], of["params"]):
                for name, value in saved["state"].get(number, {}).items():
                    if name in self.moments:
                        dtype = group["state_dtype"] or p.dtype
                        self.state[p][name] = value.detach().to(device=p.device, dtype=dtype, copy=True)

    def values(self, group: dict, step: int, held) -> list[float]:
        """held: a number as a kernel has it."""
        raise NotImplementedError

    @torch.no_grad()
    def step(self, closure=None):
        """One step; closure, where it is given, computes the loss again and is called first."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for number, group in enumerate(self.param_groups):
            self._check_group(group)
            for key, params in self._buckets(group).items():
                self._step_bucket((number, *key), group, params, key[-1])
        return loss

    def _buckets(self, group) -> dict[tuple, list]:
        buckets: dict[tuple, list] = {}
        for p in group["params"]:
            if p.grad is None:
                continue
            state = self.state[p]
            if not state:
                self._start(p, state, group)
            key = (p.device, p.dtype, p.grad.dtype, *(state[m].dtype for m in self.moments), int(state["step"]) + 1)
            buckets.setdefault(key, []).append(p)
        return buckets

    def _start(self, p, state, group) -> None:
        if p.grad.is_sparse:
            raise c.ArgumentError(f"{type(self).__name__}: expected dense gradients, given a sparse one")
        if p.device.type not in ("cpu", "cuda"):
            raise c.ArgumentError(f"{type(self).__name__}: expected parameters on a CPU or a CUDA device, given one on "
                                  f"{p.device}")  # fmt: skip
        state["step"] = 0
        for moment in self.moments:
            state[moment] = torch.zeros_like(p, dtype=group["state_dtype"] or p.dtype)

    def _step_bucket(self, key: tuple, group: dict, params, step: int) -> None:
        known = (key[:-1], tuple(map(id, params)))
        own = [_local(p) for p in params]
        grads = [_as_laid(p, mine) for p, mine in zip(params, own)]
        forms = [(p.stride(), p.numel()) for p in own]
        lists, addresses = self._lists(params, own, grads)
        launcher = self._launchers.get(known)
        if launcher is None or launcher.forms != forms or launcher.written != addresses[:1] + addresses[2:]:
            self._lay(params, own)
            lists, addresses = self._lists(params, own, grads)
            self._check_apart()
            names = ("p", "g", *self.letters)
            launcher = _Launcher(self.spec, names, lists, addresses, self.scalars, forms)
            self._launchers[known] = launcher
        launcher(addresses, self.values(group, step, float if launcher.exact else _f32))
        for p in params:  # what is refused is no step
            self.state[p]["step"] += 1
        mark_written([*params, *(t for of in (lists[0], *lists[2:]) for t in of)])

    def _lists(self, params, own, grads):
        """The tensors of each argument, and their addresses."""
        lists = [own, grads, *([_local(self.state[p][m]) for p in params] for m in self.moments)]
        return lists, [[t.data_ptr() for t in of] for of in lists]

    def _lay(self, params, own) -> None:
        """Moments with their elements in the order of their parameter's, as where these have moved or were loaded."""
        for p, mine in zip(params, own):
            if torch.empty_like(mine).stride() != mine.stride():
                raise c.ArgumentError(f"{type(self).__name__}: expected parameters that fill their memory, given one "
                                      f"of shape {tuple(mine.shape)} with strides {mine.stride()}")  # fmt: skip
            check_memory(mine, "p")
            check_writable(mine, "p")
            state = self.state[p]
            for name in self.moments:
                moment = _local(state[name])
                if moment.shape != mine.shape or moment.device != mine.device:
                    raise c.ArgumentError(
                        f"{type(self).__name__}: expected {name} of shape {tuple(mine.shape)} on {mine.device}, as its "
                        f"parameter, given {tuple(moment.shape)} on {moment.device}"
                    )
                if moment.stride() != mine.stride() or moment.is_neg():
                    laid = torch.empty_like(p, dtype=moment.dtype)
                    _local(laid).copy_(moment)
                    state[name] = laid

    def _check_apart(self) -> None:
        """All tensors of a list are written at once: none lies where another one does, in no group."""
        spans = []
        for p in (p for group in self.param_groups for p in group["params"] if p.grad is not None):
            of_state = [(name, self.state[p][name]) for name in self.moments if name in self.state[p]]
            for what, t in (("a parameter", p), *of_state):
                t = _local(t)
                first = t.data_ptr()
                spans.append((first, first + t.numel() * t.element_size(), f"{what} of shape {tuple(t.shape)}"))
        spans = sorted(s for s in spans if s[0] < s[1])
        for (_, end, one), (first, _, other) in zip(spans, spans[1:]):
            if first < end:
                raise c.ArgumentError(f"{type(self).__name__}: expected parameters and moments with memory of their "
                                      f"own, given {one} and {other} that have some in common; weights that are tied "
                                      "are given once")  # fmt: skip


def _local(t) -> torch.Tensor:
    """Of a DTensor the elements that this rank has, as of a model that is sharded by fully_shard."""
    return t._local_tensor if _is_distributed(t) else t


def _is_distributed(t) -> bool:
    if type(t) in PLAIN:
        return False
    distributed = sys.modules.get("torch.distributed.tensor")
    return distributed is not None and isinstance(t, distributed.DTensor)


def _as_laid(p, mine) -> torch.Tensor:
    """The gradient with its elements in the order of the parameter's. mine: those that this rank has."""
    grad = p.grad
    if _is_distributed(grad) != _is_distributed(p):
        raise c.ArgumentError(f"expected a gradient that is a {type(p).__name__}, as its parameter, given a "
                              f"{type(grad).__name__}")  # fmt: skip
    if grad.shape != p.shape:
        raise c.ArgumentError(f"expected a gradient of shape {tuple(p.shape)}, as its parameter, given "
                              f"{tuple(grad.shape)}")  # fmt: skip
    if _is_distributed(p):
        same = grad.device_mesh == p.device_mesh and grad.placements == p.placements
        grad = _local(grad if same else grad.redistribute(p.device_mesh, p.placements))
    if grad.stride() == mine.stride() and not grad.is_neg():
        return grad
    return torch.empty_like(mine, dtype=grad.dtype).copy_(grad)


def _f32(number: float) -> float:
    return c_float(number).value


class AdamW(_ListOptimizer):
    """AdamW (Loshchilov and Hutter 2019), decayed apart from the gradient: as torch.optim.AdamW, in one launch.

    state_dtype: of the moments; by default that of each parameter. dither: a seed other than 0 rounds 16-bit weights
    and moments at random, to a neighbour, the nearer the likelier; another in every step.
    """

    spec = "adamw"
    moments = ("exp_avg", "exp_avg_sq")
    letters = ("m", "s")
    scalars = ("lr", "beta1", "beta2", "eps", "decay", "bias1", "bias2", "seed")

    def __init__(self, params, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 1e-2, *, state_dtype: torch.dtype | None = None, dither: int = 0):  # fmt: skip
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay,
                                      state_dtype=state_dtype, dither=dither))  # fmt: skip

    def values(self, group, step, held):
        beta1, beta2 = map(held, group["betas"])  # 1 - 0.999 of f32 is 1.3e-5 off that of 0.999: both have the same
        return [float(group["lr"]), beta1, beta2, group["eps"], group["weight_decay"], 1 - beta1**step,
                1 - beta2**step, _seed(group["dither"], step)]  # fmt: skip


class Lion(_ListOptimizer):
    """Lion (Chen et al. 2023): the sign of an average, decayed apart from it. state_dtype, dither: as of AdamW."""

    spec = "lion"
    moments = ("exp_avg",)
    letters = ("m",)
    scalars = ("lr", "beta1", "beta2", "decay", "seed")

    def __init__(self, params, lr: float = 1e-4, betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0.0,
                 *, state_dtype: torch.dtype | None = None, dither: int = 0):  # fmt: skip
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay, state_dtype=state_dtype,
                                      dither=dither))  # fmt: skip

    def values(self, group, step, held):
        beta1, beta2 = group["betas"]
        return [float(group["lr"]), beta1, beta2, group["weight_decay"], _seed(group["dither"], step)]


def _seed(dither: int, step: int) -> int:
    """0: none; otherwise another in every step, and never 0."""
    return (dither * 0x9E3779B1 + step) % 0x7FFFFFFF + 1 if dither else 0
