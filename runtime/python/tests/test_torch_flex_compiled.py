"""flex_attention in graphs of torch.compile, whole ones: results and gradients are those of the eager call, and numbers
that change compile nothing."""

import lathe
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
flex = pytest.importorskip("torch.nn.attention.flex_attention", reason="this torch has no FlexAttention")
import flex_mods as mods  # noqa: E402
import lathe.torch  # noqa: E402
from lathe.torch.flex import _compiled, _translation  # noqa: E402
from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402

pytestmark = pytest.mark.skipif(not _compiled.can_trace, reason="this torch compiles no function of ours")
attend = lathe.torch.flex_attention


@pytest.fixture(autouse=True)
def anew():
    torch._dynamo.reset()


def tensors(n_q=mods.S, n_kv=mods.S):
    torch.manual_seed(11)
    return [torch.randn(mods.B, mods.H, n, 16, device=mods.DEVICE).requires_grad_() for n in (n_q, n_kv, n_kv)]


def made(mask, n_q=mods.S, n_kv=mods.S):
    return flex.create_block_mask(mask, mods.B, mods.H, n_q, n_kv, device=mods.DEVICE, BLOCK_SIZE=8)


def whole(function):
    """Compiled, and how often."""
    counter = CompileCounterWithBackend("aot_eager")
    return torch.compile(function, backend=counter, fullgraph=True), counter


def compare(function, every, *more):
    """The results of a call and their gradients, in a graph and out of it."""
    compiled, _ = whole(function)
    results, wanted = compiled(*more), function(*more)
    for one, other in zip(results, wanted):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    seeds = [torch.randn_like(r) for r in wanted]
    for one, other in zip(torch.autograd.grad(results, every, seeds), torch.autograd.grad(wanted, every, seeds)):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["alibi_slopes", "relative_table", "masked_scores", "graphormer", "computed_before"])
def test_scores(name):
    mod, learned = mods.SCORES[name]()
    q, k, v = tensors()
    compare(lambda q, k, v: (attend(q * 2, k, v, mod),), [q, k, v, *learned], q, k, v)


@pytest.mark.parametrize("name", ["sliding_window", "document", "flamingo", "by_head"])
def test_masks(name):
    n_q, n_kv = mods.LENGTHS.get(name, (mods.S, mods.S))
    mask = mods.MASKS[name]()
    q, k, v = tensors(n_q, n_kv)
    for block_mask in (mask, made(mask, n_q, n_kv)):
        compare(lambda q, k, v, m: (attend(q, k, v, block_mask=m),), [q, k, v], q, k, v, block_mask)


def test_lists_that_say_less_than_the_function():
    """They are held against the function where they can be read: when the operator runs."""
    q, k, v = tensors()
    mask = made(mods.causal)
    mask.kv_num_blocks[0, 1, 2] = 0
    compare(lambda q, k, v: (attend(q, k, v, block_mask=mask),), [q, k, v], q, k, v)


def test_lists_that_change_in_place_are_read_again():
    q, k, v = tensors()
    mask = made(mods.causal)
    compiled, counter = whole(lambda q, k, v: attend(q, k, v, block_mask=mask))
    before = compiled(q, k, v)
    mask.kv_num_blocks[0, 1, 2] = 0
    torch.testing.assert_close(compiled(q, k, v), attend(q, k, v, block_mask=mask), rtol=1e-5, atol=1e-6)
    assert (compiled(q, k, v) - before).abs().max() > 1e-2 and counter.frame_count == 1


def test_all_results():
    q, k, v = tensors()
    aux = flex.AuxRequest(lse=True, max_scores=True)

    def call(q, k, v):
        o, found = attend(q, k, v, mods.alibi()[0], made_mask, return_aux=aux)
        return o, found.lse, found.max_scores.detach() + 0 * o.sum()

    made_mask = made(mods.causal)
    compare(call, [q, k, v], q, k, v)


def test_a_parameter_of_a_module():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = torch.nn.Parameter(torch.randn(mods.H))

        def forward(self, q, k, v):
            return (attend(q, k, v, lambda s, b, h, i, j: s + self.bias[h] * (i - j)),)

    layer = Layer().to(mods.DEVICE)
    compare(layer, [*(operands := tensors()), layer.bias], *operands)


def test_numbers_that_change_compile_nothing():
    """After the second value a compiler leaves a number open; so does the spec, as a scalar."""
    q, k, v = (t.detach() for t in tensors())

    def call(q, k, v, window, gain):
        return attend(q, k, v, lambda s, b, h, i, j: s * gain, lambda b, h, i, j: i - j < window)

    compiled, counter = whole(call)
    for window, gain in ((3, 0.5), (4, 0.75), (6, 1.5)):
        compiled(q, k, v, window, gain)
    of_graphs = lambda: [t for t in _translation._ops if "x.window" in t and "torch.compile" in t]  # noqa: E731
    graphs, specs = counter.frame_count, of_graphs()
    for window, gain in ((7, 2.5), (9, 0.1), (11, 3.0), (20, 1.1)):
        made = compiled(q, k, v, window, gain)
        wanted = attend(q, k, v, lambda s, b, h, i, j: s * gain, lambda b, h, i, j: i - j < window)
        torch.testing.assert_close(made, wanted, rtol=1e-5, atol=1e-6)
    assert counter.frame_count == graphs
    assert specs and of_graphs() == specs


def test_lengths_that_change():
    compiled, counter = whole(lambda q, k, v: attend(q, k, v, mods.alibi()[0], mods.causal))
    for n in (16, 20, 24, 28, 40):
        q, k, v = (t.detach() for t in tensors(n, n))
        wanted = attend(q, k, v, mods.alibi()[0], mods.causal)
        torch.testing.assert_close(compiled(q, k, v), wanted, rtol=1e-5, atol=1e-6)
    assert counter.frame_count <= 2


def test_what_is_refused_has_its_sentence():
    q, k, v = tensors()
    compiled, _ = whole(lambda q, k, v: attend(q, k, v, lambda s, b, h, i, j: torch.special.i0(s)))
    with pytest.raises(Exception, match="an operation that has no formula here"):
        compiled(q, k, v)
    with pytest.raises(Exception, match="as many heads of keys as of queries, given 1 and 4"):
        torch.compile(attend, backend="aot_eager")(q, k[:, :1], v[:, :1])
