"""Scalars: whole numbers are taken as they are or refused with their range, in every door."""

import fractions
import sys

import lathe
import numpy as np
import pytest
from lathe._numbers import number_of

WRONG = [1.9999, "1", b"1", 2**32 + 1, 2**40, -(2**31) - 1, sys.maxsize, float("nan"), float("inf"), 1j, None.__class__,
         np.float32(0.5), np.int64(2**31), np.array([1, 2]), fractions.Fraction(3, 2)]  # fmt: skip
RIGHT = [(3, 3), (3.0, 3), (np.int64(3), 3), (np.uint8(3), 3), (np.float32(3), 3), (np.array(3), 3), (np.array([3]), 3),
         (True, 1), (np.bool_(True), 1), (-(2**31), -(2**31)), (2**31 - 1, 2**31 - 1),
         (fractions.Fraction(6, 2), 3)]  # fmt: skip


@pytest.mark.parametrize("value", WRONG)
def test_what_is_no_whole_number_is_refused(value, qkv):
    op = lathe.load("causal")
    with pytest.raises(lathe.ArgumentError, match="argument 'q_start': expected a"):
        op(*qkv, q_start=value)
    with pytest.raises(lathe.ArgumentError, match="argument 'q_start': expected a"):
        op.explain(*qkv, q_start=value)


def test_the_range_is_told(qkv):
    with pytest.raises(lathe.ArgumentError) as caught:
        lathe.load("causal")(*qkv, q_start=2**32 + 1)
    assert str(caught.value) == (
        "argument 'q_start': expected a whole number from -2147483648 to 2147483647, given 4294967297"
    )
    with pytest.raises(lathe.ArgumentError, match="given 1.9999$"):
        lathe.load("causal")(*qkv, q_start=1.9999)
    with pytest.raises(lathe.ArgumentError, match="given '1'$"):
        lathe.load("causal")(*qkv, q_start="1")


@pytest.mark.parametrize("value, wanted", RIGHT)
def test_whole_numbers_come_in_many_types(value, wanted, qkv):
    assert number_of("n", lathe._library.I32, value) == wanted
    if abs(wanted) > 2**30:
        return  # no position of a query
    op = lathe.load("causal")
    np.testing.assert_array_equal(op(*qkv, q_start=value), op(*qkv, q_start=wanted))


GAIN = """return attention {
  inputs = { gain = scalar("f32"), shift = scalar("i32", { default = 0 }) },
  score_mod = function(s, at, x) return x.gain * s + x.shift end }"""


@pytest.mark.parametrize("value", ["1.0", b"1", 1e39, -1e39, 1e-39, np.float64(1e39), 10**400, 1 + 0j, [1.0]])
def test_what_f32_does_not_hold_is_refused(value, qkv):
    with pytest.raises(lathe.ArgumentError, match="argument 'gain': expected a number"):
        lathe.compile(GAIN)(*qkv, gain=value)


def test_f64_holds_more_than_f32(qkv):
    q, k, v = (a.astype(np.float64) for a in qkv)
    op = lathe.compile(GAIN)
    np.testing.assert_allclose(op(q * 1e-39, k, v, gain=1e39), op(q, k, v, gain=1.0), rtol=1e-9)


def test_parameters_are_numbers():
    text = 'local W = param("W", 4)\nreturn attention { mask_mod = function(at) return lt(at.q - at.kv, W) end }'
    for wrong in ("2", b"2", 1j):
        with pytest.raises(lathe.ArgumentError, match="parameter 'W': expected a number"):
            lathe.compile(text, W=wrong)
    assert lathe.compile(text, W=np.int32(2)).params == {"W": 2}
    for wrong in (float("nan"), float("inf"), -float("inf"), np.float32("nan")):
        with pytest.raises(lathe.SpecError, match="parameter 'CAP' is a finite number, given"):
            lathe.load("softcap", CAP=wrong)
    for wrong in (1e39, -1e39, 1e-39):
        with pytest.raises(lathe.SpecError, match="parameter 'CAP', which is .*, is be"):
            lathe.load("softcap", CAP=wrong)


# ---- torch -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def torch():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    import lathe.torch  # noqa: F401

    return torch


def test_torch_refuses_the_same(torch):
    q, k, v = torch.randn(3, 1, 2, 6, 8).unbind(0)
    attend = lathe.torch.wrap("sliding_window")
    wrong = [*WRONG, torch.tensor(1.5), torch.tensor([1, 2]), torch.tensor(2**40)]
    for value in wrong:
        with pytest.raises(lathe.ArgumentError, match="argument 'window': expected a"):
            attend(q, k, v, window=value)
    for value in (2, 2.0, np.int64(2), torch.tensor(2), torch.tensor([2]), torch.tensor(2.0)):
        torch.testing.assert_close(attend(q, k, v, window=value), attend(q, k, v, window=2), rtol=0, atol=0)


def test_torch_refuses_what_f32_does_not_hold(torch):
    q, k, v = torch.randn(3, 1, 2, 6, 8).unbind(0)
    attend = lathe.torch.wrap(lathe.compile(GAIN))
    for value in (1e39, 1e-39, "1.0", torch.tensor(1e39, dtype=torch.float64), 1j):
        with pytest.raises(lathe.ArgumentError, match="argument 'gain': expected a number"):
            attend(q, k, v, gain=value)
    exact = [t.double() for t in (q * 1e-30, k, v)]
    torch.testing.assert_close(attend(*exact, gain=1e39), attend(exact[0] * 1e39, k.double(), v.double(), gain=1.0))


def test_a_scalar_without_a_gradient_is_refused_one(torch):
    q, k, v = torch.randn(3, 1, 2, 6, 8).unbind(0)
    attend = lathe.torch.wrap(lathe.compile(GAIN))
    gain = torch.tensor(0.5, requires_grad=True)
    with pytest.raises(lathe.ArgumentError, match="argument 'gain': requires a gradient, and spec has none for it"):
        attend(q, k, v, gain=gain)
    with pytest.raises(lathe.ArgumentError, match="argument 'gain': requires a gradient, of which a call of lathe.Op"):
        lathe.compile(GAIN)(q, k, v, gain=gain)
    torch.testing.assert_close(attend(q, k, v, gain=gain.detach()), attend(q, k, v, gain=0.5), rtol=0, atol=0)
    with torch.no_grad():
        torch.testing.assert_close(attend(q, k, v, gain=gain), attend(q, k, v, gain=0.5), rtol=0, atol=0)


def test_a_learned_scalar_is_as_exact_as_its_tensors(torch):
    q, k, v = torch.randn(3, 1, 2, 6, 8, dtype=torch.float64).unbind(0)
    text = GAIN.replace('gain = scalar("f32")', 'gain = scalar("f32", { grad = true })')
    learned = lathe.torch.wrap(lathe.compile(text))
    wanted = torch.nn.functional.scaled_dot_product_attention(0.1 * q, k, v)
    torch.testing.assert_close(learned(q, k, v, gain=0.1), wanted, rtol=1e-12, atol=1e-12)
    with pytest.raises(lathe.ArgumentError, match="argument 'gain': expected a number"):
        learned(q, k, v, gain="0.1")
    with pytest.raises(lathe.ArgumentError, match="argument 'gain': expected a number, or an array of one element"):
        learned(q, k, v, gain=torch.ones(4))
    one = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
    (given,) = torch.autograd.grad(learned(q, k, v, gain=one).square().sum(), [one])
    factor = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    o = torch.nn.functional.scaled_dot_product_attention(factor * q, k, v)
    torch.testing.assert_close(given, torch.autograd.grad(o.square().sum(), [factor])[0].view(1), rtol=1e-9, atol=1e-9)


def test_compiled_calls_refuse_them_as_well(torch):
    q, k, v = torch.randn(3, 1, 2, 6, 8).unbind(0)
    attend = lathe.torch.wrap("sliding_window")
    run = torch.compile(lambda q, k, v, w: attend(q, k, v, window=w), backend="aot_eager", dynamic=True)
    for w in (2, 3, 4):
        torch.testing.assert_close(run(q, k, v, w), attend(q, k, v, window=w), rtol=0, atol=0)
    for wrong in (2**32 + 1, 1.5):
        with pytest.raises(Exception, match="(?s)argument 'window': expected a whole number|SymInt"):
            run(q, k, v, wrong)


def test_what_training_makes_of_a_scalar_is_data(torch):
    q, k, v = torch.randn(3, 1, 2, 6, 8).unbind(0)
    text = GAIN.replace('gain = scalar("f32")', 'gain = scalar("f32", { grad = true })')
    learned = lathe.torch.wrap(lathe.compile(text))
    for value in (1e-39, 1e39):
        with pytest.raises(lathe.ArgumentError, match="argument 'gain': expected a number that f32 holds"):
            learned(q, k, v, gain=value)
    assert learned(q, k, v, gain=torch.tensor(float("nan"), requires_grad=True)).isnan().all()
    assert learned(q, k, v, gain=torch.tensor(1e-39, requires_grad=True)).isfinite().all()
