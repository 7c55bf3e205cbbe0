"""A small GPT on a text, byte by byte, with attention, norms, loss and optimizer of Lathe, or of torch.

    python gpt.py                                   # a GPU: 12 layers, 768 wide, 2048 tokens; a CPU: a small one
    python gpt.py --by flex                         # the same with FlexAttention
    python gpt.py --compare lathe,flex,sdpa         # loss and time of a step, beside each other
    python gpt.py --device cpu --length 128         # by Lathe's host device: slow, in double precision

The attention is causal with ALiBi: a penalty linear in distance, whose slope is the head's. For Lathe it is the
shipped spec `alibi`; another one is another name, or a file (--spec).
"""

import argparse
import pathlib
import time

import torch
from torch import nn
from torch.nn import functional as F

TEXT = pathlib.Path(__file__).parent.parent / "train" / "text.txt"


def slopes(heads, device):
    return torch.exp2(-8.0 * torch.arange(1, heads + 1, device=device) / heads)


# ---- attention of each library, q, k, v [b, s, h, d] -----------------------------------------------------------


def lathe_attention(options):
    import lathe.torch

    return lathe.torch.wrap(options.spec, layout="bshd")


def flex_attention(options):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    slope = slopes(options.heads, options.device)
    n = options.length
    mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, n, n, device=options.device)

    def attend(q, k, v):
        def alibi(score, b, h, q_idx, kv_idx):
            return score - slope[h] * (q_idx - kv_idx)

        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        return flex_attention(q, k, v, score_mod=alibi, block_mask=mask).transpose(1, 2)

    return attend


def sdpa_attention(options):
    at = torch.arange(options.length, device=options.device)
    distance = (at[:, None] - at[None, :]).float()
    bias = -slopes(options.heads, options.device)[:, None, None] * distance
    bias = bias.masked_fill(distance < 0, -torch.inf)

    def attend(q, k, v):
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype)).transpose(1, 2)

    return attend


ATTENTION = {"lathe": lathe_attention, "flex": flex_attention, "sdpa": sdpa_attention}


# ---- norms and loss ---------------------------------------------------------------------------------------------


def torch_parts():
    def add_and_norm(branch, stream, weight):
        stream = stream + branch
        return stream, F.rms_norm(stream, stream.shape[-1:], weight.to(stream.dtype), 1e-6)

    def loss(logits, targets):
        return F.cross_entropy(logits.float(), targets.long())

    return add_and_norm, loss


def lathe_parts():
    import lathe.torch

    norm = lathe.torch.wrap("rms_norm_residual", results=("sum", "y"))
    rows = lathe.torch.wrap("cross_entropy", results=("loss",))
    return (lambda branch, stream, weight: norm(branch, residual=stream, weight=weight),
            lambda logits, targets: rows(logits, target=targets).mean())  # fmt: skip


# ---- the model ----------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, o, attend, add_and_norm):
        super().__init__()
        self.heads, self.attend, self.add_and_norm = o.heads, attend, add_and_norm
        self.norm1, self.norm2 = (nn.Parameter(torch.ones(o.width)) for _ in range(2))
        self.qkv = nn.Linear(o.width, 3 * o.width, bias=False)
        self.out = nn.Linear(o.width, o.width, bias=False)
        self.up = nn.Linear(o.width, 4 * o.width, bias=False)
        self.down = nn.Linear(4 * o.width, o.width, bias=False)

    def forward(self, branch, stream):
        stream, x = self.add_and_norm(branch, stream, self.norm1)
        b, s, width = x.shape
        q, k, v = self.qkv(x).view(b, s, 3, self.heads, -1).unbind(2)  # views, as they lie
        stream, x = self.add_and_norm(self.out(self.attend(q, k, v).reshape(b, s, width)), stream, self.norm2)
        return self.down(F.gelu(self.up(x))), stream


class GPT(nn.Module):
    def __init__(self, o, attend=None):
        super().__init__()
        self.dtype = o.dtype
        self.add_and_norm, self.loss = lathe_parts() if o.by == "lathe" else torch_parts()
        attend = attend or ATTENTION[o.by](o)
        self.embedding = nn.Embedding(o.words, o.width)
        self.blocks = nn.ModuleList(Block(o, attend, self.add_and_norm) for _ in range(o.layers))
        self.norm = nn.Parameter(torch.ones(o.width))
        self.head = nn.Linear(o.width, o.words, bias=False)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets=None):
        """The loss; without targets the logits."""
        stream = self.embedding(tokens).to(self.dtype)
        branch = torch.zeros_like(stream)
        for block in self.blocks:
            branch, stream = block(branch, stream)
        _, x = self.add_and_norm(branch, stream, self.norm)
        logits = self.head(x)
        return logits if targets is None else self.loss(logits.view(-1, logits.shape[-1]), targets.view(-1))


def make_optimizer(o, model):
    if o.by == "lathe":
        import lathe.torch

        return lathe.torch.AdamW(model.parameters(), lr=o.rate, betas=(0.9, 0.95), weight_decay=0.1)
    return torch.optim.AdamW(model.parameters(), lr=o.rate, betas=(0.9, 0.95), weight_decay=0.1,
                             fused=o.device != "cpu")  # fmt: skip


def batches(o):
    text = torch.frombuffer(bytearray(TEXT.read_bytes()), dtype=torch.uint8).to(torch.int32)
    generator = torch.Generator().manual_seed(o.seed)
    while True:
        at = torch.randint(len(text) - o.length - 1, (o.batch,), generator=generator)
        rows = torch.stack([text[i : i + o.length + 1] for i in at.tolist()]).to(o.device)
        yield rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def train(o):
    """Losses of all steps, and seconds of one, without those that compile."""
    torch.manual_seed(o.seed)
    model = GPT(o).to(o.device)
    optimizer = make_optimizer(o, model)
    step = torch.compile(model, fullgraph=True) if o.compile else model
    losses, times = [], []
    wait = torch.cuda.synchronize if o.device != "cpu" else lambda: None
    for number, (tokens, targets) in zip(range(o.steps), batches(o)):
        wait()
        begin = time.perf_counter()
        with torch.autocast(o.device.partition(":")[0], o.dtype, enabled=o.dtype != torch.float32):
            loss = step(tokens, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        wait()
        times.append(time.perf_counter() - begin)
        losses.append(loss.item())
        if o.say and (number % 10 == 0 or o.device == "cpu"):
            print(f"step {number:4}  loss {losses[-1]:.4f}  {times[-1] * 1e3:.1f} ms", flush=True)
    later = sorted(times[min(5, len(times) - 1) :])
    return losses, later[len(later) // 2]


# On a GPU, on a CPU.
SIZES = dict(layers=(12, 2), width=(768, 64), heads=(12, 4), length=(2048, 64), batch=(8, 4), steps=(60, 30),
             words=(256, 256), seed=(1, 1))  # fmt: skip


def read_options(words=None):
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--by", choices=ATTENTION, default="lathe")
    p.add_argument("--compare", help="several of lathe, flex, sdpa, with commas")
    p.add_argument("--spec", default="alibi")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    for name, (of_gpu, of_cpu) in SIZES.items():
        p.add_argument(f"--{name}", type=int, help=f"{of_gpu}; on a CPU {of_cpu}")
    p.add_argument("--rate", type=float, help="3e-4; on a CPU 3e-3")
    p.add_argument("--no-compile", dest="compile", action="store_false")
    o = p.parse_args(words)
    on_cpu = o.device == "cpu"
    for name, sizes in SIZES.items():
        if getattr(o, name) is None:
            setattr(o, name, sizes[on_cpu])
    o.rate = (3e-3 if on_cpu else 3e-4) if o.rate is None else o.rate
    o.dtype = torch.float32 if o.device == "cpu" else torch.bfloat16
    o.compile = o.compile and o.device != "cpu"
    o.say = not o.compare
    return o


def main():
    o = read_options()
    for name in (o.compare or o.by).split(","):
        o.by = name
        losses, seconds = train(o)
        memory = torch.cuda.max_memory_allocated() / 2**30 if o.device != "cpu" else 0
        tokens = o.batch * o.length / seconds
        print(f"{name:6} loss {losses[-1]:.4f}  step {seconds * 1e3:.2f} ms  {tokens / 1e3:.1f} k tokens/s  {memory:.1f} GiB",
              flush=True)  # fmt: skip
        if o.device != "cpu":
            torch.cuda.reset_peak_memory_stats()
            torch.compiler.reset()


if __name__ == "__main__":
    main()
