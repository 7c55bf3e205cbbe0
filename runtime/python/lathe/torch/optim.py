"""Optimizers whose step is one launch for all tensors of a dtype: AdamW and Lion.

The specs `adamw` and `lion` take lists: arrays of pointers in memory that the device reads. They are made once and
made anew where an address has changed, as that of gradients may after zero_grad(set_to_none=True).
"""

from __future__ import annotations

import functools

import torch

from .. import _library as c
from .._arrays import HOST
from .._kernel import Call, Tensor, context_of
from .._op import load
from ._passes import CODES

_op = functools.cache(load)


class _Pointers:
    """The addresses of a list of tensors, in memory of their device."""

    def __init__(self):
        self.addresses: list[int] = []
        self.array: torch.Tensor | None = None

    def of(self, tensors) -> int:
        addresses = [t.data_ptr() for t in tensors]
        if addresses != self.addresses:
            device = tensors[0].device
            host = torch.tensor(addresses, dtype=torch.int64, pin_memory=device.type == "cuda")
            self.array = host.to(device, non_blocking=True)
            self.addresses = addresses
        return self.array.data_ptr()


class _Launcher:
    """Calls of one list spec for one set of tensors."""

    def __init__(self, spec: str, names: tuple[str, ...], lists, scalars: tuple[str, ...]):
        first = lists[0][0]
        self.index = HOST if first.device.type == "cpu" else first.device.index
        self.pointers = [_Pointers() for _ in lists]
        lengths = torch.tensor([t.numel() for t in lists[0]], dtype=torch.int32)
        self.lengths = lengths.to(first.device)
        n = (len(lists[0]),)
        self.names = names
        self.sample = lists  # describes dtypes
        records = [Tensor(name, CODES[ts[0].dtype], n, None) for name, ts in zip(names, lists)]
        records.append(Tensor("lengths", c.I32, n, None))
        op = _op(spec)
        exact = all(ts[0].dtype == torch.float64 for ts in lists)
        kinds = [op.forward.by_name[s].dtype for s in scalars]
        kinds = [c.F64 if exact and k == c.F32 else k for k in kinds]
        places = self._places(lists)
        self.call = Call(context_of(self.index), op._handle, c.FORWARD, records, list(zip(scalars, kinds)), places)
        size = self.call.workspace
        self.workspace = torch.empty(size, dtype=torch.uint8, device=first.device) if size else None

    def _places(self, lists) -> list[int]:
        return [p.of(ts) for p, ts in zip(self.pointers, lists)] + [self.lengths.data_ptr()]

    def __call__(self, lists, values) -> None:
        room = self.workspace.data_ptr() if self.workspace is not None else 0
        stream = 0 if self.index == HOST else torch._C._cuda_getCurrentRawStream(self.index)
        self.call.launch(self._places(lists), values, room, stream)


class _ListOptimizer(torch.optim.Optimizer):
    """What AdamW and Lion share: tensors in buckets of one dtype, device and age."""

    spec: str
    moments: tuple[str, ...]
    scalars: tuple[str, ...]

    def __init__(self, params, defaults: dict):
        if defaults["lr"] < 0 or defaults["weight_decay"] < 0:
            raise c.ArgumentError(
                f"{type(self).__name__}: expected lr and weight_decay >= 0, given {defaults['lr']} and "
                f"{defaults['weight_decay']}"
            )
        super().__init__(params, defaults)
        self._launchers: dict[tuple, _Launcher] = {}

    def __setstate__(self, state):
        """Of a copy, or from a file: launchers are made anew, for its own tensors."""
        super().__setstate__(state)
        self._launchers = {}

    def values(self, group: dict, step: int) -> list[float]:
        raise NotImplementedError

    @torch.no_grad()
    def step(self, closure=None):
        """One step; closure, where it is given, computes the loss again and is called first."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for number, group in enumerate(self.param_groups):
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
            state["step"] += 1
            key = (p.device, p.dtype, p.grad.dtype, *(state[m].dtype for m in self.moments), int(state["step"]))
            buckets.setdefault(key, []).append(p)
        return buckets

    def _start(self, p, state, group) -> None:
        if p.grad.is_sparse:
            raise c.ArgumentError(f"{type(self).__name__}: expected dense gradients, given a sparse one")
        if torch.empty_like(p).stride() != p.stride():
            raise c.ArgumentError(f"{type(self).__name__}: expected parameters that fill their memory, given one of "
                                  f"shape {tuple(p.shape)} with strides {p.stride()}")  # fmt: skip
        state["step"] = 0
        for moment in self.moments:
            state[moment] = torch.zeros_like(p, dtype=group["state_dtype"] or p.dtype)

    def _step_bucket(self, key: tuple, group: dict, params, step: int) -> None:
        grads = [_as_laid(p) for p in params]
        lists = [params, grads, *([self.state[p][m] for p in params] for m in self.moments)]
        known = (key[:-1], tuple(map(id, params)))
        launcher = self._launchers.get(known)
        if launcher is None:
            names = ("p", "g", *self.letters)
            launcher = self._launchers[known] = _Launcher(self.spec, names, lists, self.scalars)
        launcher(lists, self.values(group, step))


def _as_laid(p) -> torch.Tensor:
    """The gradient with its elements in the order of the parameter's."""
    if p.grad.stride() == p.stride() or p.grad.numel() <= 1:
        return p.grad
    return torch.empty_like(p, dtype=p.grad.dtype).copy_(p.grad)


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

    def values(self, group, step):
        beta1, beta2 = group["betas"]
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

    def values(self, group, step):
        beta1, beta2 = group["betas"]
        return [float(group["lr"]), beta1, beta2, group["weight_decay"], _seed(group["dither"], step)]


def _seed(dither: int, step: int) -> int:
    """0: none; otherwise another in every step, and never 0."""
    return (dither * 0x9E3779B1 + step) % 0x7FFFFFFF + 1 if dither else 0
