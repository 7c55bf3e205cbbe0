"""flex_attention under torch.compile: an operator that takes functions, which Dynamo knows as it knows torch's own.

Dynamo traces the mods into graphs, whose captured tensors and changing numbers become arguments. Whoever asks the
operator for its result, a fake mode or the tracing of a graph with its gradients, gets what an operator of
torch.library gives: that of the spec which the graphs are translated to. So nothing of ours is left between two graphs.
"""

from __future__ import annotations

import weakref

import torch
from torch._ops import HigherOrderOperator
from torch.fx import GraphModule
from torch.nn.attention import flex_attention as flex
from torch.utils._python_dispatch import _disable_current_modes

from ._inputs import Sizes
from ._listed import Mask, operator_of
from ._open import SYMBOLIC, Numbers
from ._spec import KNOWN
from ._trace import Given, trace
from ._translation import Request, Traced, scale_of

_SCORE = ("s", "b", "h", "q", "kv")
_NAME = "lathe_flex_attention"
_traces: "weakref.WeakKeyDictionary" = weakref.WeakKeyDictionary()  # by the graph of the score


def in_graph(q, k, v, score_mod, block_mask, scale, results):
    """What Dynamo traces of a call."""
    lists, mask_mod = (), block_mask
    if isinstance(block_mask, flex.BlockMask):
        mask_mod = block_mask.mask_mod
        if block_mask.BLOCK_SIZE[0] < flex._LARGE_SPARSE_BLOCK_SIZE:
            lists = (block_mask.kv_num_blocks, block_mask.kv_indices, block_mask.full_kv_num_blocks,
                     block_mask.full_kv_indices, block_mask.BLOCK_SIZE, block_mask.seq_lengths)  # fmt: skip
    block = (*lists, flex.noop_mask if mask_mod is None else mask_mod)
    options = {"lse": "lse" in results, "max_scores": "max_scores" in results}
    return operator(q, k, v, _as_it_is if score_mod is None else score_mod, block, scale, options)


def _as_it_is(score, b, h, q_idx, kv_idx):
    return score


class _Operator(HigherOrderOperator):
    """(q, k, v, score_mod, (*lists, mask_mod), scale, options, what the score reads, what the mask reads)."""

    def __init__(self):
        super().__init__(_NAME)

    def __call__(self, q, k, v, score_mod, block_mask, scale, options, score_more=(), mask_more=()):
        results = ("o",) + ("lse",) * options["lse"] + ("max_scores",) * options["max_scores"]
        if not isinstance(score_mod, GraphModule):  # of a frame that Dynamo has given up
            return _eagerly(q, k, v, score_mod, block_mask, scale, results)
        if k.shape[0] != q.shape[0]:
            k, v = (t.expand(q.shape[0], *t.shape[1:]) for t in (k, v))
        call = _Call(q, k, score_mod, block_mask[-1], tuple(score_more), tuple(mask_more))
        made = call.run(q, k, v, scale_of(scale, q), block_mask[:-1], results)
        return made if isinstance(made, tuple) else (made,)


operator = _Operator()


@torch.compiler.disable
def _eagerly(q, k, v, score_mod, block_mask, scale, results):
    from ._attention import run_eagerly

    *lists, mask_mod = block_mask
    if lists:
        *lists, size, lengths = lists
        mask_mod = flex.BlockMask.from_kv_blocks(*lists, BLOCK_SIZE=size, mask_mod=mask_mod, seq_lengths=lengths)
    made = run_eagerly(q, k, v, score_mod, mask_mod, scale, True, results)
    return made if isinstance(made, tuple) else (made,)


def _known_to_dynamo() -> bool:
    try:
        from torch._dynamo.variables import higher_order_ops as known

        known._hop_name_to_variable_class[_NAME] = known.FlexAttentionHigherOrderVariable
    except (ImportError, AttributeError):  # another torch
        return False
    return True


class _Call:
    """The arguments of a call: everything captured, by slots that both graphs share."""

    def __init__(self, q, k, score_mod, mask_mod, score_more, mask_more):
        self.q, self.k = q, k
        self.score_mod, self.mask_mod = score_mod, mask_mod
        self.more = list(score_more)
        places = {id(t): i for i, t in enumerate(self.more) if isinstance(t, torch.Tensor)}
        self.score_slots = list(range(len(score_more)))
        self.mask_slots = []
        for one in mask_more:
            place = places.get(id(one))
            if place is None:
                place = len(self.more)
                self.more.append(one)
            self.mask_slots.append(place)

    def form(self):
        """What a trace depends on, beside the graphs."""
        is_open = lambda one: type(one) if isinstance(one, SYMBOLIC) else one  # noqa: E731
        like = lambda t: (t.dtype, len(t.shape), t.requires_grad, t.device)  # noqa: E731
        of = tuple(like(t) if isinstance(t, torch.Tensor) else is_open(t) for t in self.more)
        return of, tuple(self.score_slots), tuple(self.mask_slots), self.q.dtype

    def traced(self) -> Traced:
        known = _traces.setdefault(self.score_mod, [])
        form = self.form()
        for mask_mod, of, found in known:
            if mask_mod is self.mask_mod and of == form:
                return found
        with _disable_current_modes():
            made = self._trace()
        known.append((self.mask_mod, form, made))
        return made

    def _trace(self) -> Traced:
        numbers = Numbers()
        dtype = torch.float64 if self.q.dtype is torch.float64 else torch.float32
        graphs, names = [], [""] * len(self.more)
        for title, mod, of, slots in (("score_mod", self.score_mod, _SCORE, self.score_slots),
                                      ("mask_mod", self.mask_mod, _SCORE[1:], self.mask_slots)):  # fmt: skip
            for node, slot in zip([n for n in mod.graph.nodes if n.op == "placeholder"][len(of) :], slots):
                names[slot] = names[slot] or _short(node.name)
            more = tuple(Given(self.more[slot], slot) for slot in slots)
            graphs.append(trace(mod, of, dtype, self.q.device, KNOWN, more, numbers, title))
        return Traced(*graphs, names, dtype, numbers=numbers, number_names=names.__getitem__, tensors=True)

    def run(self, q, k, v, scale, lists, results):
        traced = self.traced()
        sizes = Sizes(*(n if type(n) is int else None for n in (q.shape[0], q.shape[1], q.shape[2], k.shape[2])))
        plain = traced.translation(Request(sizes, scale, None, results))
        given = plain.given(self.more, self.more.__getitem__, q)
        if not lists:
            return plain.function(q, k, v, q_start=0, **given)
        *lists, size, lengths = lists
        names = ("live_blocks",) if lists[2] is None else ("live_blocks", "whole_blocks")
        listed = traced.translation(Request(sizes, scale, (*size, *names), results))
        mask = Mask(self.mask_mod, tuple(size), tuple(lengths))
        more = [self.more[slot] for slot in self.mask_slots]
        return operator_of(plain.function, listed.function, mask)(q, k, v, given, lists, more)


def _short(name: str) -> str:
    """Of a name of Dynamo: l_self_parameters_bias_ is bias."""
    for word in ("parameters_", "buffers_", "modules_"):
        name = name.rpartition(word)[2]
    return name.removeprefix("l_").strip("_")


can_trace = _known_to_dynamo()
