"""examples/torch: idioms beside FlexAttention, recipes beside plain torch, GPTs that train, on one rank or more."""

import pathlib
import subprocess
import sys

import lathe
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
import lathe.torch  # noqa: E402

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples" / "torch"
sys.path.insert(0, str(EXAMPLES))
import gpt  # noqa: E402
import idioms  # noqa: E402
import recipes  # noqa: E402


def same(given, wanted, error=1e-9):
    torch.testing.assert_close(given, wanted, rtol=error, atol=error)


def draw(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("name", idioms.idioms())
def test_idiom(name):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch.manual_seed(2)
    idiom = idioms.idioms()[name]
    q, k, v = (torch.randn(idioms.B, idioms.H, idioms.S, 16) for _ in range(3))
    n = idioms.S
    mask = idiom.mask_mod and create_block_mask(idiom.mask_mod, idioms.B, idioms.H, n, n, device="cpu")
    wanted = flex_attention(q, k, v, score_mod=idiom.score_mod, block_mask=mask)
    op = lathe.load(idiom.spec) if "return" not in idiom.spec else lathe.compile(idiom.spec)
    same(lathe.torch.wrap(op)(q, k, v, **idiom.inputs), wanted, 2e-5)


def plain(scores, v, live):
    return torch.softmax(scores.masked_fill(~live, -torch.inf), -1) @ v


def turned(*tensors):
    return [t.transpose(1, 2) for t in tensors]


def lower(n):
    return torch.ones(n, n).tril().bool()


def gradients_agree(given, wanted, tensors):
    gradients = lambda o: torch.autograd.grad(o.square().sum(), tensors)
    for a, b in zip(gradients(given), gradients(wanted)):
        same(a, b)


def test_differential_attention():
    torch.manual_seed(1)
    q, k, v, factor = draw(2, 9, 2, 16), draw(2, 9, 2, 16), draw(2, 9, 2, 8), draw(1)
    given = recipes.differential_attention(q, k, v, factor)
    hq, hk, hv = turned(q, k, v)
    halves = [plain(a @ b.transpose(2, 3) / 8**0.5, hv, lower(9)) for a, b in zip(hq.chunk(2, -1), hk.chunk(2, -1))]
    wanted = (halves[0] - factor * halves[1]).transpose(1, 2)
    same(given, wanted)
    gradients_agree(given, wanted, (q, k, v, factor))


def test_forgetting_attention():
    torch.manual_seed(1)
    q, k, v = draw(2, 9, 2, 8), draw(2, 9, 2, 8), draw(2, 9, 2, 8)
    gate = torch.nn.functional.logsigmoid(torch.randn(2, 2, 9)).requires_grad_()
    given = recipes.forgetting_attention(q, k, v, gate.transpose(1, 2))
    hq, hk, hv = turned(q, k, v)
    decay = torch.zeros(2, 2, 9, 9, dtype=torch.float64)
    for i in range(9):
        for j in range(i + 1):
            decay[:, :, i, j] = gate[:, :, j + 1 : i + 1].double().sum(-1)
    wanted = plain(hq @ hk.transpose(2, 3) / 8**0.5 + decay, hv, lower(9)).transpose(1, 2)
    same(given, wanted, 1e-5)  # the running sum is in f32


def test_sigmoid_attention():
    torch.manual_seed(1)
    q, k, v = draw(1, 12, 2, 8), draw(1, 12, 2, 8), draw(1, 12, 2, 8)
    given = recipes.sigmoid_attention(q, k, v)
    hq, hk, hv = turned(q, k, v)
    scores = hq @ hk.transpose(2, 3) / 8**0.5 - torch.log(torch.tensor(12.0).double())
    wanted = (torch.sigmoid(scores) * lower(12) @ hv).transpose(1, 2)
    same(given, wanted)
    gradients_agree(given, wanted, (q, k, v))


def test_attention_with_keep_mask():
    torch.manual_seed(1)
    q, k, v = draw(2, 2, 9, 8), draw(2, 2, 9, 8), draw(2, 2, 9, 8)
    keep = torch.rand(2, 2, 9, 9) > 0.25
    given = recipes.attention_with_keep_mask(q, k, v, keep, 0.75)
    weights = torch.softmax((q @ k.transpose(2, 3) / 8**0.5).masked_fill(~lower(9), -torch.inf), -1)
    wanted = (weights * keep / 0.75) @ v
    same(given, wanted)
    gradients_agree(given, wanted, (q, k, v))


def test_packed_attention():
    torch.manual_seed(1)
    sequences = [tuple(torch.randn(n, 2, 8, dtype=torch.float64) for _ in range(3)) for n in (5, 1, 7)]
    for part, (q, k, v) in zip(recipes.packed_attention(sequences), sequences):
        hq, hk, hv = (t.transpose(0, 1) for t in (q, k, v))
        same(part.transpose(0, 1), plain(hq @ hk.transpose(1, 2) / 8**0.5, hv, lower(len(q))))


def test_the_gpt_learns_as_with_torch():
    words = "--device cpu --layers 2 --width 32 --heads 2 --length 24 --batch 4 --steps 12 --rate 3e-3".split()
    o = gpt.read_options(words)
    o.say = False
    losses = {}
    for o.by in ("lathe", "sdpa"):
        losses[o.by], _ = gpt.train(o)
    assert losses["lathe"][-1] < losses["lathe"][0] - 0.3
    torch.testing.assert_close(torch.tensor(losses["lathe"]), torch.tensor(losses["sdpa"]), rtol=2e-4, atol=2e-4)


gloo = pytest.mark.skipif(not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
                          reason="torch has no gloo")  # fmt: skip


def ranks_say(*words):
    ran = subprocess.run([sys.executable, *words], cwd=EXAMPLES, capture_output=True, text=True, timeout=120)
    return ran.returncode, ran.stdout + ran.stderr


@gloo
@pytest.mark.parametrize("words", [
    "", "--ranks 3 --scheme gather,keys --mask document --parameters ddp --steps 3",
    "--scheme heads,states --parameters fsdp --steps 3",
])  # fmt: skip
def test_the_gpt_of_several_ranks_is_that_of_one(words):
    code, said = ranks_say("long.py", "--device", "cpu", *words.split())
    assert code == 0 and said.count(" step 0  loss ") == (2 if words else 5), said


@gloo
def test_gradients_that_no_one_adds_up_are_noticed():
    finish = "lambda self, loss: long.dist.all_reduce(loss.detach()) or loss.item() / 2"
    text = f"import long; long.Shared.finish = {finish}; long.main()"
    code, said = ranks_say("-c", text, "--device", "cpu", "--scheme", "heads", "--steps", "2")
    assert code == 1 and "heads: gradients of step 0 differ by" in said, said


def test_the_tutorial_runs():
    """The blocks of Python of the tutorial, one after the other, on the CPU."""
    text = (EXAMPLES / "README.md").read_text()
    blocks = [part.split("```", 1)[0] for part in text.split("```python\n")[1:]]
    assert len(blocks) >= 4
    names: dict = {}
    for block in blocks:
        exec(block, names)
