"""Short causal convolutions over time against sums written out in torch: gradients, packed sequences, states, steps,
a norm before them."""

import lathe
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
import lathe.torch  # noqa: E402

B, T, C = 2, 9, 5


def number(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(11)


def convolved(x, weight, bias, state=None, silu=True):
    """One sequence [t, c] behind its state [taps - 1, c]: every product by itself."""
    taps = weight.shape[1]
    before = x.new_zeros(taps - 1, x.shape[1]) if state is None else state
    line = torch.cat([before, x])
    rows = []
    for t in range(x.shape[0]):
        row = torch.zeros_like(x[0]) if bias is None else bias
        for k in range(taps):
            row = row + line[t + k] * weight[:, k]
        rows.append(row)
    y = torch.stack(rows) if rows else x
    return y * torch.sigmoid(y) if silu else y


def batches(x, weight, bias, state=None, silu=True):
    states = [None] * len(x) if state is None else state
    return torch.stack([convolved(x[b], weight, bias, states[b], silu) for b in range(len(x))])


def agree(given, wanted, leaves, error=1e-9):
    a, b = given(), wanted()
    torch.testing.assert_close(a, b, rtol=error, atol=error)
    seed = torch.randn_like(b)
    for x, y in zip(torch.autograd.grad(a, leaves, seed), torch.autograd.grad(b, leaves, seed)):
        torch.testing.assert_close(x, y, rtol=error, atol=error)


@pytest.mark.parametrize("taps, silu, state", [(4, 1, False), (4, 1, True), (2, 0, True), (3, 1, True)])
def test_of_batches(taps, silu, state):
    x, weight, bias = number(B, T, C), number(C, taps), number(C)
    before = number(B, taps - 1, C) if state else None
    conv = lathe.torch.wrap(lathe.load("short_conv", TAPS=taps, SILU=silu))
    given = lambda: conv(tokens=x, weight=weight, bias=bias, **({"state": before} if state else {}))
    leaves = [x, weight, bias, *([before] if state else [])]
    agree(given, lambda: batches(x, weight, bias, before, bool(silu)), leaves)
    plain = lambda: conv(tokens=x, weight=weight)
    agree(plain, lambda: batches(x, weight, None, None, bool(silu)), [x, weight])


LENGTHS = [4, 1, 0, 7, 2]  # one shorter than the taps, one empty


def packed():
    since = torch.cat([torch.arange(n) for n in LENGTHS])[None].int()
    seq = torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS))[None].int()
    return since, seq


def of_sequences(x, weight, bias, state=None):
    parts = torch.split(x[0], LENGTHS)
    states = [None] * len(parts) if state is None else state
    return torch.cat([convolved(part, weight, bias, before) for part, before in zip(parts, states)])[None]


@pytest.mark.parametrize("state", [False, True])
def test_of_packed_sequences(state):
    x, weight, bias, (since, seq) = number(1, sum(LENGTHS), C), number(C, 4), number(C), packed()
    before = number(len(LENGTHS), 3, C) if state else None
    more = {"state": before} if state else {}
    numbers = {"seq": seq} if state else {}
    given = lambda: lathe.torch.wrap("short_conv")(tokens=x, weight=weight, bias=bias, since=since, **numbers, **more)
    agree(given, lambda: of_sequences(x, weight, bias, before), [x, weight, bias, *more.values()])


@pytest.mark.parametrize("silu", [0, 1])
def test_the_gradient_of_tokens_without_atomics(silu):
    x, weight, bias, before = number(B, T, C), number(C, 4), number(C), number(B, 3, C)
    grad = torch.randn(B, T, C, dtype=torch.float64)
    wanted = torch.autograd.grad(batches(x, weight, bias, before, bool(silu)), x, grad)[0]
    back = lathe.load("short_conv_back", SILU=silu)
    given = back(tokens=x.detach(), weight=weight.detach(), bias=bias.detach(), state=before.detach(), grad=grad)
    torch.testing.assert_close(given, wanted, rtol=1e-9, atol=1e-9)


def test_the_gradient_of_packed_tokens_without_atomics():
    x, weight, (since, _) = number(1, sum(LENGTHS), C), number(C, 4), packed()
    grad = torch.randn_like(x)
    wanted = torch.autograd.grad(of_sequences(x, weight, None), x, grad)[0]
    given = lathe.load("short_conv_back")(tokens=x.detach(), weight=weight.detach(), since=since, grad=grad)
    torch.testing.assert_close(given, wanted, rtol=1e-9, atol=1e-9)


def test_steps_are_the_whole():
    x, weight, bias = (a.detach() for a in (number(B, T, C), number(C, 4), number(C)))
    state = torch.zeros(B, 3, C, dtype=torch.float64)
    before = {f"s_{k}": state[:, k] for k in range(3)}
    step = lathe.load("short_conv_step")
    names = [f"s_{k}_new" for k in range(3)]
    ys = []
    for t in range(T):
        after = {name: before[name[:-4]] for name in names}
        results = step(x=x[:, t], weight=weight, bias=bias, **before, y=True, **after)
        ys.append(results.y)
    torch.testing.assert_close(torch.stack(ys, 1), batches(x, weight, bias), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(state, x[:, -3:])


def test_a_norm_before_it():
    x, weight, bias, gain = number(B, T, C), number(C, 4), number(C), number(C)
    norm, conv = lathe.torch.wrap("rms_norm", results=("rstd",)), lathe.torch.wrap("rms_norm_conv")

    def given():
        rstd = norm(x, weight=torch.ones(C, dtype=torch.float64), eps=1e-6)
        return conv(tokens=x, rstd=rstd, gain=gain, weight=weight, bias=bias)

    wanted = lambda: batches(x / torch.sqrt(x.square().mean(-1, keepdim=True) + 1e-6) * gain, weight, bias)
    agree(given, wanted, [x, weight, bias, gain], 1e-6)  # rstd is f32
