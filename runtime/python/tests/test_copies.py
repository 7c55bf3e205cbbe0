"""copy, deepcopy, pickle and torch.save of ops, contexts, functions and what holds them."""

import copy
import gc
import io
import pickle

import lathe
import numpy as np
import pytest

TEXT = """local W = param("W", 3)
return attention { mask_mod = function(at) return ge(at.q, at.kv) & lt(at.q - at.kv, W) end }"""


def ops(tmp_path):
    path = tmp_path / "windowed.lua"
    path.write_text(TEXT)
    own = lathe.load(path), lathe.compile(TEXT, "window.lua", W=2)
    return [lathe.load("causal"), lathe.load("softcap", CAP=20), *own]


def test_a_copy_outlives_what_it_is_of(qkv):
    for make in (copy.copy, copy.deepcopy):
        op = lathe.load("causal")
        wanted = op(*qkv)
        other = make(op)
        del op
        gc.collect()
        np.testing.assert_array_equal(other(*qkv), wanted)
        context = lathe.Context("host")
        other_context = make(context)
        del context
        gc.collect()
        np.testing.assert_array_equal(other(*qkv, context=other_context), wanted)


def test_pickles_of_ops(qkv, tmp_path):
    for op in ops(tmp_path):
        data = pickle.dumps(op)
        wanted, digest, name, params = op(*qkv), op.digest, op.name, op.params
        (tmp_path / "windowed.lua").unlink(missing_ok=True)  # a pickle has the text
        del op
        gc.collect()
        again = pickle.loads(data)
        assert (again.digest, again.name, again.params) == (digest, name, params)
        np.testing.assert_array_equal(again(*qkv), wanted)


def test_pickles_of_contexts():
    for deterministic in (True, "batch"):
        context = pickle.loads(pickle.dumps(lathe.Context("host", deterministic=deterministic)))
        assert context.deterministic == deterministic and context.device == -1


# ---- torch -----------------------------------------------------------------------------------------------------------


try:
    import torch
except ImportError:
    torch = None
else:
    import lathe.torch

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.attend = lathe.torch.wrap(lathe.compile(TEXT, W=2), layout="bshd", results=("lse", "o"))
            self.norm = lathe.torch.wrap("rms_norm")
            self.weight = torch.nn.Parameter(torch.ones(8))

        def forward(self, x):
            lse, o = self.attend(x, x, x)
            return self.norm(o, self.weight), lse


needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed")


@needs_torch
def test_modules_that_hold_functions():
    def saved(module):
        file = io.BytesIO()
        torch.save(module, file)
        return torch.load(io.BytesIO(file.getvalue()), weights_only=False)

    x = torch.randn(1, 5, 2, 8, requires_grad=True)
    first = Block()
    wanted = first(x)
    for make in (copy.copy, copy.deepcopy, saved, lambda m: pickle.loads(pickle.dumps(m))):
        other = make(first)
        gc.collect()
        for a, b in zip(other(x), wanted):
            torch.testing.assert_close(a, b, rtol=0, atol=0)
        other(x)[0].sum().backward()
    again = copy.deepcopy(first)
    assert again.attend is first.attend and again.weight is not first.weight


@needs_torch
@pytest.mark.parametrize("make", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_optimizers(make):
    weight = torch.nn.Parameter(torch.linspace(-1, 1, 6))
    optimizer = lathe.torch.AdamW([weight], lr=0.1)
    weight.grad = torch.ones(6)
    optimizer.step()
    other = make(optimizer)
    (twin,) = other.param_groups[0]["params"]
    assert twin is not weight
    before = twin.detach().clone()
    twin.grad = weight.grad = torch.ones(6)
    optimizer.step()
    torch.testing.assert_close(twin.detach(), before, rtol=0, atol=0)
    other.step()
    torch.testing.assert_close(twin, weight, rtol=0, atol=0)
