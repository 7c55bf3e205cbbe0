"""Shipped variants of attention against their papers' formulas, written apart from the library in torch: results
and all gradients, in double precision on the host device."""

import itertools

import lathe
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
import lathe.torch  # noqa: E402

B, H = 2, 4


def plain(q, k, v, live=None, score=None, weigh=None):
    """Softmax attention; live [.., q, kv]: pairs that count, score(s) -> s; weigh(s) -> weights instead of softmax."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    s = q @ k.transpose(2, 3) / q.shape[3] ** 0.5
    s = score(s) if score else s
    live = torch.ones(s.shape[2:], dtype=torch.bool) if live is None else live
    if weigh:
        return torch.where(live, weigh(s), 0.0) @ v
    most = torch.where(live, s, -torch.inf).amax(-1, keepdim=True).clamp(min=-1e30).detach()
    w = torch.where(live, torch.exp(torch.where(live, s, 0.0) - most), 0.0)
    return w / w.sum(-1, keepdim=True).clamp(min=1e-300) @ v


def tensors(q, kv, h_kv=2, d=8):
    torch.manual_seed(7)
    shapes = (B, H, q, d), (B, h_kv, kv, d), (B, h_kv, kv, d)
    return [torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in shapes]


def number(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def agree(given, wanted, leaves, error=1e-9):
    """Both functions of the leaves, and their gradients."""
    a, b = given(), wanted()
    torch.testing.assert_close(a, b, rtol=error, atol=error)
    seed = torch.randn_like(b)
    for x, y in zip(torch.autograd.grad(a, leaves, seed), torch.autograd.grad(b, leaves, seed)):
        torch.testing.assert_close(x, y.to(x.dtype), rtol=max(error, 1e-6 if x.dtype != y.dtype else 0), atol=error)


def masked(name, live, kv=None, **inputs):
    """A mask with its inputs is `live` [..., q, kv]."""
    q, kv = live.shape[-2:]
    x = tensors(q, kv)
    agree(lambda: lathe.torch.wrap(name)(*x, **inputs), lambda: plain(*x, live), x)


def i32(x):
    return torch.as_tensor(x, dtype=torch.int32)


# ---- masks -----------------------------------------------------------------------------------------------------------


def window_of(i, n, window, dilation):
    """The places that place i of a line of n sees: of its remainder, `window` in a row, i in the middle if it fits."""
    line = list(range(i % dilation, n, dilation))
    first = min(max(line.index(i) - window // 2, 0), max(len(line) - window, 0))
    return line[first : first + window]


def neighbourhood(grid, windows, dilations):
    places = list(itertools.product(*map(range, grid)))
    live = torch.zeros(len(places), len(places), dtype=torch.bool)
    for q, place in enumerate(places):
        seen = itertools.product(*(window_of(*a) for a in zip(place, grid, windows, dilations)))
        for other in seen:
            live[q, places.index(other)] = True
    return live


GRIDS = [
    ((23,), (5,), (1,)), ((23,), (4,), (3,)), ((9,), (20,), (1,)),
    ((6, 7), (3, 5), (1, 1)), ((6, 7), (2, 3), (3, 2)),
    ((3, 4, 5), (2, 3, 3), (1, 1, 1)), ((5, 4, 3), (3, 2, 9), (1, 2, 1)),
]  # fmt: skip


@pytest.mark.parametrize("grid, windows, dilations", GRIDS)
def test_neighbourhoods(grid, windows, dilations):
    inputs = {f"n_{k + 1}": n for k, n in enumerate(grid) if k > 0}
    inputs |= {f"window_{k + 1}": n for k, n in enumerate(windows)}
    inputs |= {f"dilation_{k + 1}": n for k, n in enumerate(dilations)}
    masked(f"natten_{len(grid)}d", neighbourhood(grid, windows, dilations), **inputs)


@pytest.mark.parametrize("text", [0, 3])
def test_sliding_tiles_are_a_neighbourhood_of_tiles(text):
    grid, windows, tile = (3, 2, 4), (2, 1, 3), 4
    video = 24 * tile
    live = torch.ones(video + text, video + text, dtype=torch.bool)
    live[:video, :video] = neighbourhood(grid, windows, (1, 1, 1)).repeat_interleave(tile, 0).repeat_interleave(tile, 1)
    masked("sliding_tile", live, tile=tile, text=text, n_2=2, n_3=4, window_1=2, window_2=1, window_3=3)


def test_block_diffusion():
    n, block = 12, 4
    live = torch.zeros(2 * n, 2 * n, dtype=torch.bool)
    for a in range(0, n, block):
        own, before, clean = slice(a, a + block), slice(n, n + a), slice(n, n + a + block)
        live[own, own] = live[own, before] = True  # noised: its own block, and clean ones before it
        live[n + a : n + a + block, clean] = True
    masked("block_diffusion", live, block=block)


def test_shared_prefix():
    docs, prefix = [0] * 5 + [1] * 4 + [2] * 6 + [3] * 3, [0, 0, 0, -1]
    live = torch.zeros(18, 18, dtype=torch.bool)
    for q, kv in itertools.product(range(18), range(18)):
        shared = docs[q] != prefix[docs[q]] and docs[kv] == prefix[docs[q]]
        live[q, kv] = shared or (docs[q] == docs[kv] and kv <= q)
    masked("shared_prefix", live, doc=i32([docs, docs]), prefix=i32([prefix, prefix]))


def test_global_and_window():
    live = torch.ones(20, 20, dtype=torch.bool).triu(-3).tril(3)
    live[:2] = live[:, :2] = True
    masked("global_window", live, globals=2, window=3)


def test_flamingo_sees_images_by_rows():
    first, last = [[0, 2, 9], [4, 0, 5]], [[9, 9, 12], [12, 3, 7]]
    live = torch.zeros(B, 1, 12, 12, dtype=torch.bool)
    for b, m in itertools.product(range(2), range(3)):
        live[b, 0, first[b][m] : last[b][m], 4 * m : 4 * m + 4] = True
    masked("flamingo", live, first=i32(first), last=i32(last), tokens=4)


# ---- scores ----------------------------------------------------------------------------------------------------------


def lower(n):
    return torch.ones(n, n, dtype=torch.bool).tril()


def test_graphormer():
    n, hops, x = 9, 4, tensors(9, 9)
    distance, path = torch.randint(0, 5, (B, n, n)), torch.randint(-1, 6, (B, n, n, hops))
    spatial, edge = number(H, 5), number(H, hops, 6)

    def score(s):
        taken = torch.stack([edge[:, hop][:, path[..., hop].clamp(min=0)] for hop in range(hops)], -1).transpose(0, 1)
        there = (path >= 0)[:, None]
        mean = (taken * there).sum(-1) / there.sum(-1).clamp(min=1)
        return s + spatial[:, distance].transpose(0, 1) + mean

    inputs = dict(distance=i32(distance), path=i32(path))
    given = lambda: lathe.torch.wrap("graphormer")(*x, spatial=spatial, edge=edge, **inputs)
    agree(given, lambda: plain(*x, score=score), [*x, spatial, edge])
    only = lambda: lathe.torch.wrap("graphormer")(*x, spatial=spatial, distance=inputs["distance"])
    agree(only, lambda: plain(*x, score=lambda s: s + spatial[:, distance].transpose(0, 1)), [*x, spatial])


def test_sandwich():
    n, d, x = 17, 128, tensors(17, 17)
    angle = torch.arange(n, dtype=torch.float64)[:, None] / 10000 ** (2 * torch.arange(d // 2, dtype=torch.float64) / d)
    embedded = torch.cat([angle.sin(), angle.cos()], -1)
    bias = embedded @ embedded.T / (8 * torch.arange(1, H + 1, dtype=torch.float64)[:, None, None] / H)
    cosines = lathe.load("sandwich_table")(cosines=torch.empty(n, dtype=torch.float64))
    torch.testing.assert_close(cosines, (embedded @ embedded.T)[0], rtol=1e-9, atol=1e-9)
    given = lambda: lathe.torch.wrap("sandwich")(*x, cosines=cosines.float())
    agree(given, lambda: plain(*x, lower(n), lambda s: s + bias), x, 1e-5)  # the table is f32


def test_forgetting():
    n, x = 13, tensors(13, 13)
    logits = number(B, H, n)

    def decayed(s):
        f = torch.sigmoid(logits)
        between = [f[..., j + 1 : i + 1].prod(-1) for i in range(n) for j in range(n)]  # the gates after j up to i
        return s + torch.stack(between, -1).view(B, H, n, n).log()

    gates = lambda: torch.nn.functional.logsigmoid(logits).cumsum(-1)
    agree(lambda: lathe.torch.wrap("forgetting")(*x, gates=gates()), lambda: plain(*x, lower(n), decayed), [*x, logits])


def test_hstu():
    n, x, bias, targets = 11, tensors(11, 11), number(H, 6), [3, 0]
    at = torch.arange(n)
    live = torch.stack([lower(n) & ((at < n - t) | (at[:, None] == at)) for t in targets])[:, None]
    score = lambda s: s + bias[:, (at[:, None] - at).clamp(0, 5)]
    wanted = lambda: plain(*x, live, score, lambda s: torch.nn.functional.silu(s) / 50)
    agree(lambda: lathe.torch.wrap("hstu")(*x, bias=bias, targets=i32(targets), n=50), wanted, [*x, bias])
    wanted = lambda: plain(*x, lower(n), None, lambda s: torch.nn.functional.silu(s) / n)
    agree(lambda: lathe.torch.wrap("hstu")(*x), wanted, x)


def test_pair_bias_is_triangle_attention():
    """z [n, n, c] of a structure, from starting nodes: its rows are a batch, which shares the bias of pairs."""
    n, c, x = 6, 8, [number(2 * 6, H, 6, 8) for _ in range(3)]
    bias, keep = number(2, H, n, n), torch.rand(2 * n, n) < 0.8
    keep[:, 0] = True
    score = lambda s: s + bias.repeat_interleave(n, 0)
    wanted = lambda: plain(*x, keep[:, None, None], score)
    agree(lambda: lathe.torch.wrap("pair_bias")(*x, bias=bias, keep=i32(keep)), wanted, [*x, bias])
    agree(lambda: lathe.torch.wrap("pair_bias")(*x, bias=bias), lambda: plain(*x, score=score), [*x, bias])


def test_max_score_is_a_result_without_gradient():
    x, n = tensors(9, 9), 9
    o, lse, most = lathe.torch.wrap("max_score", results=("o", "lse", "max_score"))(*x)
    k = x[1].repeat_interleave(2, 1)
    s = (x[0] @ k.transpose(2, 3) / 8**0.5).masked_fill(~lower(n), -torch.inf)
    torch.testing.assert_close(most, s.amax(-1), check_dtype=False, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(lse, s.logsumexp(-1), check_dtype=False, rtol=1e-6, atol=1e-6)
    agree(lambda: lathe.torch.wrap("max_score")(*x), lambda: plain(*x, lower(n)), x)


# ---- differential attention: two calls and a row of `differential` --------------------------------------------------


def differential(q, k, v, numbers, weight, init):
    """The recipe: q and k [b, 2 h, t, d] hold two halves of each head, v [b, h, t, 2 d]."""
    attend, close = lathe.torch.wrap("causal"), lathe.torch.wrap("differential")
    first, second = (attend(q[:, half::2], k[:, half::2], v) for half in (0, 1))
    q1, k1, q2, k2 = numbers
    gain = (q1 * k1).sum().exp() - (q2 * k2).sum().exp() + init
    return close(first, other=second, **{"lambda": gain[None]}, weight=weight, init=init)


def test_differential():
    """As in the paper: the difference of two softmaxes, times the values, normalised by head."""
    n, d, h, init = 7, 4, 2, 0.8 - 0.6 * 0.74
    q, k, v = number(B, 2 * h, n, d), number(B, 2 * h, n, d), number(B, h, n, 2 * d)
    numbers, weight = [number(d) for _ in range(4)], number(2 * d)

    def wanted():
        s = (q @ k.transpose(2, 3) / d**0.5).masked_fill(~lower(n), -torch.inf).softmax(-1).view(B, h, 2, n, n)
        gain = torch.exp(numbers[0] @ numbers[1]) - torch.exp(numbers[2] @ numbers[3]) + init
        o = (s[:, :, 0] - gain * s[:, :, 1]) @ v
        return (1 - init) * weight * o / torch.sqrt(o.square().mean(-1, keepdim=True) + 1e-5)

    leaves = [q, k, v, *numbers, weight]
    agree(lambda: differential(q, k, v, numbers, weight, init), wanted, leaves, 1e-6)  # lambda and init are f32
