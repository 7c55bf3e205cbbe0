"""A GPT whose sequence is shared out to ranks, by lathe.torch.distributed, beside the same model on one rank.

    python long.py                                  # two processes on the CPU, by gloo; a process a GPU, by NCCL
    python long.py --ranks 3 --scheme gather --mask document
    torchrun --nproc-per-node 2 long.py --parameters ddp

Each rank has some tokens of every sequence. All layers but attention are the model's own (gpt.py) and do not notice;
attention is told by `wrap` how tokens are shared out. Ten steps of training, each beside that of a model which has all
tokens: gradients of the first step and losses differ by rounding only, or the exit code is 1. What that comes to is
told by a third model, of which attention is off by rounding at random: training makes more of it with each step.

    heads    tokens rank after rank; attention has all tokens of some heads
    gather   zigzag, for which a causal mask makes even work; attention has the keys and values of all ranks
    ring     the same, keys and values of one rank at a time, while those of the next are under way
    states   linear attention, whose state goes from rank to rank
    keys     no training: tokens that follow a long prompt, whose keys and values stay on the ranks
"""

import argparse
import os
import sys
import tempfile

import gpt
import lathe.torch
import lathe.torch.distributed as ld
import torch
import torch.distributed as dist
from torch.nn import functional as F

ORDER = {"heads": "contiguous", "gather": "zigzag", "ring": "zigzag", "states": "contiguous", "keys": "contiguous"}
LINE_END = 10
ALLOWED = 10.0  # times what rounding at random does: the largest of a few draws against that of others


class Attention:
    """Of all blocks. q, k, v [b, s, h, d]: the tokens of this rank, or all of them where there is no scheme."""

    def __init__(self, spec, scheme=None, group=None):
        self.document = spec == "document"
        self.inputs = {}
        self.noise = None
        if scheme:
            of_prompt = "gather" if scheme == "keys" else scheme
            self.attend = ld.wrap(spec, group, scheme=of_prompt, order=ORDER[scheme], layout="bshd")
        else:
            self.attend = lathe.torch.wrap(spec, layout="bshd")

    def see(self, tokens):
        """All tokens, of which the mask knows the documents: here each line is one."""
        if self.document:
            ends = (tokens == LINE_END).int()
            self.inputs = {"doc": (ends.cumsum(1) - ends).int()}

    def __call__(self, q, k, v):
        o = self.attend(q, k, v, **self.inputs)
        if self.noise is None:
            return o
        unit = torch.finfo(o.dtype).eps / 2
        return o * (1 + unit * torch.empty_like(o).normal_(generator=self.noise))


# ---- training -----------------------------------------------------------------------------------------------------


class Shared:
    """A model of which this rank has some tokens of each sequence."""

    def __init__(self, o, scheme):
        self.order, self.group = ORDER[scheme], dist.new_group()  # of attention; gradients have their own
        self.attention = Attention(spec_of(o, scheme), scheme, self.group)
        self.model, self.sums = make_model(o, self.attention), o.parameters == "sum"
        if o.parameters == "ddp":
            self.model = torch.nn.parallel.DistributedDataParallel(self.model)
        if o.parameters == "fsdp":
            from torch.distributed.fsdp import fully_shard

            for module in (*self.model.blocks, self.model):
                fully_shard(module)

    def loss(self, tokens, targets):
        self.attention.see(tokens)
        own = (ld.shard(t, 1, self.group, order=self.order).contiguous() for t in (tokens, targets))
        return self.model(*own)

    def finish(self, loss):
        """Mean of all tokens, of which every rank has as many. DDP and FSDP take the mean of gradients themselves."""
        means = [loss.detach()] + [p.grad for p in self.model.parameters() if self.sums]
        for one in means:
            dist.all_reduce(one)
            one /= dist.get_world_size()
        return loss.item()


class Alone:
    """The same model, which has all tokens."""

    def __init__(self, o, scheme):
        self.attention = Attention(spec_of(o, scheme))
        self.model = make_model(o, self.attention)

    def loss(self, tokens, targets):
        self.attention.see(tokens)
        return self.model(tokens, targets)

    def finish(self, loss):
        return loss.item()


class Rounded(Alone):
    """The same, whose attention is off by rounding."""

    def __init__(self, o, scheme):
        super().__init__(o, scheme)
        self.attention.noise = torch.Generator(o.device).manual_seed(o.seed)


def make_model(o, attention):
    torch.manual_seed(o.seed)
    model = gpt.GPT(o, attention).to(o.device)
    return model.to(o.dtype) if o.device == "cpu" else model


def precision(o):
    return torch.autocast("cuda", o.dtype, enabled=o.device != "cpu")


def train(o, shared):
    """Of each step the loss, of the first one the gradients too."""
    optimizer = torch.optim.SGD(shared.model.parameters(), lr=o.rate)  # Adam would not notice gradients twice as large
    for number, (tokens, targets) in zip(range(o.steps), gpt.batches(o)):
        with precision(o):
            loss = shared.loss(tokens, targets)
        loss.backward()
        of_all = shared.finish(loss)
        yield of_all, [] if number else [whole(p.grad) for p in shared.model.parameters()]
        optimizer.step()
        optimizer.zero_grad()


def whole(gradient):
    """Of FSDP a rank has a part."""
    return gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient.clone()


def apart(gradients, others):
    """Largest difference of a parameter's gradients, by their norm; NaN where one is."""
    by_norm = [(a - b).norm() / b.norm() for a, b in zip(gradients, others)]
    return float(torch.stack(by_norm).max()) if by_norm else 0.0


def compare_training(o, scheme):
    """What differs by more than rounding, or "". Once it alone makes losses differ by o.rounding, they tell nothing,
    which is printed."""
    wrong, by_rounding = "", 0.0
    runs = (train(o, kind(o, scheme)) for kind in (Shared, Alone, Rounded))
    for step, ((loss, gradients), (alone, of_one), (rounded, of_rounded)) in enumerate(zip(*runs)):
        by_rounding = max(by_rounding, abs(rounded - alone), o.least * abs(alone))
        allowed = [ALLOWED * x for x in (by_rounding, max(apart(of_rounded, of_one), o.least))]
        differ = [abs(loss - alone), apart(gradients, of_one)]
        if dist.get_rank() == 0:
            words = f"  gradients {differ[1]:.1e} ({allowed[1]:.1e})" if gradients else ""
            words += "" if by_rounding <= o.rounding else "  losses are no longer judged"
            print(f"{scheme:6} step {step}  loss {loss:.6f}  of one rank {alone:.6f}: {differ[0]:.1e} apart "
                  f"({allowed[0]:.1e} by rounding){words}", flush=True)  # fmt: skip
        for what, error, bound in zip(("losses", "gradients"), differ, allowed):
            if not error <= bound and (what == "gradients" or by_rounding <= o.rounding):
                wrong = wrong or f"{what} of step {step} differ by {error}, where rounding allows {bound}"
    return wrong


# ---- what follows a prompt ----------------------------------------------------------------------------------------


class Cached:
    """Attention of one block. Keys and values of the prompt stay where they are; the last rank has those that come."""

    def __init__(self, attention, decode, keeps_new):
        self.attention, self.decode, self.keeps_new = attention, decode, keeps_new
        self.k = self.v = None

    def __call__(self, q, k, v):
        if self.k is None:
            self.k, self.v = k, v
            return self.attention(q, k, v)
        if self.keeps_new:
            self.k, self.v = torch.cat((self.k, k), 1), torch.cat((self.v, v), 1)
        return self.decode(q, self.k, self.v, **self.attention.inputs)


@torch.no_grad()
def follow(o, tokens, targets, prompt):
    """Losses of the tokens behind the prompt, one after the other."""
    group = dist.new_group()
    attention = Attention(spec_of(o, "keys"), "keys", group)
    model = make_model(o, attention)
    decode = ld.wrap(spec_of(o, "keys"), group, queries="whole", layout="bshd")
    for block in model.blocks:
        block.attend = Cached(attention, decode, dist.get_rank(group) == dist.get_world_size(group) - 1)
    attention.see(tokens[:, :prompt])
    with precision(o):
        model(ld.shard(tokens[:, :prompt], 1, group))
        for at in range(prompt, tokens.shape[1]):
            attention.see(tokens[:, : at + 1])
            yield F.cross_entropy(model(tokens[:, at : at + 1])[:, 0].float(), targets[:, at].long()).item()


@torch.no_grad()
def follow_alone(o, tokens, targets, prompt):
    alone = Alone(o, "keys")
    alone.attention.see(tokens)
    with precision(o):
        logits = alone.model(tokens)[:, prompt:].float()
    for at, row in enumerate(logits.unbind(1)):
        yield F.cross_entropy(row, targets[:, prompt + at].long()).item()


# ---- ranks --------------------------------------------------------------------------------------------------------


def compare_following(o):
    worst = 0.0
    tokens, targets = next(gpt.batches(o))
    prompt = o.length - o.steps
    for step, (loss, alone) in enumerate(zip(*(f(o, tokens, targets, prompt) for f in (follow, follow_alone)))):
        worst = max(worst, abs(loss - alone))
        if dist.get_rank() == 0:
            print(f"keys   step {step}  loss {loss:.6f}  of one rank {alone:.6f}", flush=True)
    return "" if worst <= o.rounding else f"losses differ by {worst}"


def run(rank, o, store=None):
    if o.device == "cpu":
        torch.set_num_threads(1)
    else:
        o.device = f"cuda:{int(os.environ.get('LOCAL_RANK', rank))}"
        torch.cuda.set_device(o.device)
    where = {"init_method": f"file://{store}", "rank": rank, "world_size": o.ranks} if store else {}
    dist.init_process_group("gloo" if o.device == "cpu" else "nccl", **where)
    o.length = o.tokens * dist.get_world_size()
    said = {s: compare_following(o) if s == "keys" else compare_training(o, s) for s in o.scheme.split(",")}
    wrong = [f"{scheme}: {what}" for scheme, what in said.items() if what]
    dist.destroy_process_group()
    if wrong:
        sys.exit("\n".join(wrong))


def read_options(words=None):
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--ranks", type=int, help="processes, where torchrun has not made them; a process a GPU, 2 on a CPU")
    p.add_argument("--scheme", default=",".join(ORDER), help=f"some of {', '.join(ORDER)}, with commas")
    p.add_argument("--mask", choices=("alibi", "document"), default="alibi")
    p.add_argument("--parameters", choices=("sum", "ddp", "fsdp"), default="sum", help="who adds up their gradients")
    p.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.device_count() > 1 else "cpu")
    sizes = dict(tokens=(2048, 32), layers=(4, 2), width=(512, 32), heads=(8, 4), batch=(1, 2), steps=(10, 10))
    for name, (of_gpu, of_cpu) in sizes.items():
        p.add_argument(f"--{name}", type=int, help=f"{of_gpu}; on a CPU {of_cpu}{', of a rank' * (name == 'tokens')}")
    o = p.parse_args(words)
    on_cpu = o.device == "cpu"
    for name, of_both in sizes.items():
        if getattr(o, name) is None:
            setattr(o, name, of_both[on_cpu])
    if wrong := [scheme for scheme in o.scheme.split(",") if scheme not in ORDER]:
        p.error(f"--scheme: expected some of {', '.join(ORDER)}, given {', '.join(wrong)}")
    o.ranks = o.ranks or (2 if on_cpu else torch.cuda.device_count())
    o.by, o.words, o.seed, o.rate = "torch", 256, 1, 0.2 if on_cpu else 0.01
    o.dtype, o.rounding = (torch.float64, 1e-5) if on_cpu else (torch.bfloat16, 1e-2)
    o.least = 2 * torch.finfo(torch.float32).eps  # losses are f32
    return o


def spec_of(o, scheme):
    return "retention_linear" if scheme == "states" else o.mask


def main():
    o = read_options()
    if "RANK" in os.environ:  # torchrun has made the processes
        return run(int(os.environ["RANK"]), o)
    with tempfile.TemporaryDirectory() as folder:
        how = "fork" if o.device == "cpu" else "spawn"
        torch.multiprocessing.start_processes(run, (o, os.path.join(folder, "store")), o.ranks, start_method=how)


if __name__ == "__main__":
    main()
