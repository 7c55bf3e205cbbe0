"""Masks and mods as users of FlexAttention write them: those that its examples and attention-gym have, in own words.

Each maker gives a mod for 2 batches, 4 heads, 24 queries and 24 keys, or for the lengths that LENGTHS names.
"""

import functools
import os

import torch
from torch.nn.attention.flex_attention import and_masks, noop_mask, or_masks

DEVICE = os.environ.get("LATHE_TEST_DEVICE", "cpu")
if DEVICE != "cpu":
    torch.set_default_device(DEVICE)
B, H, S = 2, 4, 24
LENGTHS = {"flamingo": (24, 9), "jetspec": (6, 14), "chunked": (5, 24)}
DOCS = torch.tensor([0] * 7 + [1] * 10 + [2] * 7)
OFFSETS = torch.tensor([0, 7, 17, 24], dtype=torch.int32)


# ---- masks -----------------------------------------------------------------------------------------------------------


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def sliding_window(window=5):
    def near(b, h, q_idx, kv_idx):
        return q_idx - kv_idx < window

    return and_masks(causal, near)


def prefix_lm():
    lengths = torch.tensor([3, 9])
    return or_masks(causal, lambda b, h, q_idx, kv_idx: kv_idx < lengths[b])


def document():
    docs = torch.stack([DOCS, DOCS.flip(0)])
    return lambda b, h, q, kv: (docs[b, q] == docs[b, kv]) & (q >= kv)


def document_of(inner=causal):
    """Positions within each document are what the inner mask sees."""

    def within(b, h, q_idx, kv_idx):
        doc, other = DOCS[q_idx], DOCS[kv_idx]
        return (doc == other) & inner(b, h, q_idx - OFFSETS[doc], kv_idx - OFFSETS[other])

    return within


def packed_causal():
    return lambda b, h, q, kv: (kv >= OFFSETS[DOCS[q]]) & (q >= kv)


def shared_prefix():
    prefix_of = torch.tensor([0, 0, 2])

    def mask(b, h, q_idx, kv_idx):
        doc = DOCS[q_idx]
        root = prefix_of[doc]
        own = (kv_idx >= OFFSETS[doc]) & (q_idx >= kv_idx)
        return own | ((doc != root) & (kv_idx >= OFFSETS[root]) & (kv_idx < OFFSETS[root + 1]))

    return mask


def natten(width=6, height=4, kernel=3):
    def mask(b, h, q_idx, kv_idx):
        qx, qy, x, y = q_idx // height, q_idx % height, kv_idx // height, kv_idx % height
        cx = qx.clamp(kernel // 2, width - 1 - kernel // 2)
        cy = qy.clamp(kernel // 2, height - 1 - kernel // 2)
        return ((cx - x).abs() <= kernel // 2) & ((cy - y).abs() <= kernel // 2)

    return mask


def tiled_natten(width=6, height=4, tile=2, kernel=3):
    def place(i):
        t, rest = i // (tile * tile), i % (tile * tile)
        return t % (width // tile) * tile + rest % tile, t // (width // tile) * tile + rest // tile

    def mask(b, h, q_idx, kv_idx):
        (qx, qy), (x, y) = place(q_idx), place(kv_idx)
        cx = torch.clamp(qx, min=kernel // 2, max=width - 1 - kernel // 2)
        cy = torch.clamp(qy, min=kernel // 2, max=height - 1 - kernel // 2)
        return (torch.abs(cx - x) <= kernel // 2) & (torch.abs(cy - y) <= kernel // 2)

    return mask


def morton(kernel=3):
    def even_bits(x):
        x = x & 0x55555555
        x = (x | (x >> 1)) & 0x33333333
        x = (x | (x >> 2)) & 0x0F0F0F0F
        x = (x | (x >> 4)) & 0x00FF00FF
        return (x | (x >> 8)) & 0x0000FFFF

    def mask(b, h, q_idx, kv_idx):
        dx = even_bits(q_idx) - even_bits(kv_idx)
        dy = even_bits(q_idx >> 1) - even_bits(kv_idx >> 1)
        return (dx.abs() <= kernel // 2) & (dy.abs() <= kernel // 2)

    return mask


def sliding_tile(width=4, tile=2, text=4):
    """Tiles of a canvas of 5 x 4, and text behind it that everybody sees."""
    n = 20

    def mask(b, h, q_idx, kv_idx):
        row, column = q_idx // tile // (width // tile), q_idx // tile % (width // tile)
        r, c = kv_idx // tile // (width // tile), kv_idx // tile % (width // tile)
        centre = row.clamp(1, 3)
        seen = (r >= centre - 1) & (r <= centre + 1) & (column == c)
        inside = (q_idx < n) & (kv_idx < n)
        return (inside & seen) | ((q_idx < n) & (kv_idx >= n) & (kv_idx < n + text)) | (q_idx >= n)

    return mask


def dilated(window=9, step=3):
    return lambda b, h, q, kv: (torch.abs(q - kv) <= window) & ((q - kv) % step == 0)


def global_and_window(first=2, window=3):
    rules = [lambda b, h, q, kv: kv < first, lambda b, h, q, kv: q < first,
             lambda b, h, q, kv: (q - kv <= window) & (kv - q <= window)]  # fmt: skip
    return or_masks(*rules)


def flamingo(tokens=3):
    spans = torch.tensor([[0, 14], [2, 14], [14, 24]], dtype=torch.int32)
    image = torch.arange(3).repeat_interleave(tokens)

    def mask(b, h, q_idx, kv_idx):
        span = spans[image[kv_idx]]
        return (q_idx >= span[0]) & (q_idx < span[1])

    return mask


def block_diffusion(n=12, size=4):
    def mask(b, h, q_idx, kv_idx):
        noised, other = q_idx < n, kv_idx < n
        mine, its = q_idx % n // size, kv_idx % n // size
        own, before = (mine == its) & (noised == other), (mine > its) & noised & ~other
        return own | before | ((mine >= its) & ~noised & ~other)

    return mask


def jetspec(prefix=8):
    ancestors = torch.eye(6, dtype=torch.bool)
    for node, parent in enumerate([0, 0, 1, 1, 3], start=1):
        ancestors[node] |= ancestors[parent]

    def mask(b, h, q_idx, kv_idx):
        node = (kv_idx - prefix).clamp(min=0, max=5)
        return (kv_idx < prefix) | ((kv_idx >= prefix) & ancestors[q_idx, node])

    return mask


def batchify(inner=noop_mask, size=6):
    return lambda b, h, q, kv: (q // size == kv // size) & inner(b, h, q % size, kv % size)


def video_spatial(prompt=4, frame=5, width=1.5):
    span = int(width * frame)
    return lambda b, h, q, kv: (kv < prompt + frame) | (q < prompt) | (torch.abs(q - kv) < span)


def video_temporal(prompt=4, frame=5):
    def mask(b, h, q_idx, kv_idx):
        near = torch.abs((q_idx - prompt) % frame - (kv_idx - prompt) % frame) < 2
        return (kv_idx < prompt) | (q_idx < prompt) | near

    return mask


def chunked():
    """Queries are the last ones of all tokens."""
    return functools.partial(lambda first, b, h, q, kv: q + first >= kv, 19)


def key_padding():
    torch.manual_seed(1)
    live = torch.rand(B, S) < 0.7
    live[:, 0] = True
    return lambda b, h, q, kv: live[b, kv]


def by_head():
    kinds = torch.tensor([0, 1, 0, 1], dtype=torch.uint8)
    return lambda b, h, q, kv: torch.where(kinds[h] == 1, q >= kv, q - kv < 4) | (h == 3)


class Windows(torch.nn.Module):
    """A mod that is a method, and reads numbers and buffers of its object."""

    def __init__(self):
        super().__init__()
        self.width = 7
        self.register_buffer("extra", torch.tensor([0, 2, 4, 6]))

    def mask(self, b, h, q_idx, kv_idx):
        return (q_idx >= kv_idx) & (q_idx - kv_idx < self.width + self.extra[h])

    def as_mask(self):
        return lambda b, h, q, kv: self.mask(b, h, q, kv)


MASKS = {
    "causal": lambda: causal, "sliding_window": sliding_window, "prefix_lm": prefix_lm, "document": document,
    "document_of": document_of, "packed_causal": packed_causal, "shared_prefix": shared_prefix, "natten": natten,
    "tiled_natten": tiled_natten, "morton": morton, "sliding_tile": sliding_tile, "dilated": dilated,
    "global_and_window": global_and_window, "flamingo": flamingo, "block_diffusion": block_diffusion,
    "jetspec": jetspec, "batchify": batchify, "batchify_causal": lambda: batchify(causal), "chunked": chunked,
    "video_spatial": video_spatial, "video_temporal": video_temporal, "key_padding": key_padding, "by_head": by_head,
    "method": Windows().as_mask, "document_window": lambda: document_of(sliding_window(3)),
    "noop": lambda: noop_mask,
}  # fmt: skip


# ---- scores ----------------------------------------------------------------------------------------------------------


def learned(*shape, dtype=torch.float32, seed=5):
    torch.manual_seed(seed)
    return torch.randn(*shape).to(dtype).requires_grad_()


def alibi():
    def mod(score, b, h, q_idx, kv_idx):
        scale = torch.exp2(-((h + 1) * 8.0 / H))
        return score + (kv_idx - q_idx) * scale

    return mod, ()


def alibi_slopes():
    slopes = learned(H)
    return (lambda score, b, h, q, kv: score + slopes[h] * (kv - q)), (slopes,)


def softcap(cap=30):
    return (lambda score, b, h, q, kv: cap * torch.tanh(score / cap)), ()


def relative():
    return (lambda score, b, h, q, kv: score + (q - kv)), ()


def relative_table():
    table = learned(H, 2 * S - 1)
    return (lambda score, b, h, q, kv: score + table[h, q - kv + S - 1]), (table,)


def from_the_end():
    """Negative indices count from the end."""
    table = learned(2 * S)
    return (lambda score, b, h, q, kv: score + table[q - kv] + table[-1]), (table,)


def buckets():
    """T5: distances in logarithmic buckets."""
    table = learned(16, H)

    def mod(score, b, h, q_idx, kv_idx):
        n = torch.clamp(q_idx - kv_idx, min=0)
        large = 8 + (torch.log(torch.clamp(n, min=1).float() / 8) / 2.7725887 * 8).to(torch.long)
        bucket = torch.where(n < 8, n, torch.minimum(large, torch.full_like(large, 15)))
        return score + table[bucket, h]

    return mod, (table,)


def graphormer():
    table = learned(H, 5)
    distances = torch.randint(0, 5, (B, S, S), dtype=torch.int32)
    return (lambda score, b, h, q, kv: score + table[h, distances[b, q, kv]]), (table,)


def graph_edges():
    """Weights of the edges on a path, averaged."""
    weights = learned(3, 6, H)
    edges = torch.randint(0, 6, (B, S, S, 3))

    def mod(score, b, h, q_idx, kv_idx):
        total = score * 0
        for hop in range(3):
            total = total + weights[hop, edges[b, q_idx, kv_idx, hop], h]
        return score + total / 3

    return mod, (weights,)


def sandwich():
    turns = 1.0 / 10000 ** (2 * torch.arange(4) / 8)
    table = torch.cos((torch.arange(2 * S - 1) - (S - 1)).abs()[:, None] * turns).sum(-1)
    ratio = H / (8.0 * torch.arange(1, H + 1))
    return (lambda score, b, h, q, kv: score + table[q - kv + S - 1] * ratio[h]), ()


def activation(function=torch.nn.functional.gelu, offset=1.0):
    return (lambda score, b, h, q, kv: torch.log(function(score) + offset)), ()


def bias_of_16_bits():
    bias = learned(B, H, S, S, dtype=torch.bfloat16)
    return (lambda score, b, h, q, kv: score + bias[b, h, q, kv]), (bias,)


def masked_scores():
    return (lambda score, b, h, q, kv: torch.where(q >= kv, score, -float("inf"))), ()


def document_bias():
    boost = learned(())
    return (lambda score, b, h, q, kv: torch.where(DOCS[q] == DOCS[kv], score + boost, score * 0.5)), (boost,)


def computed_before():
    """What captured tensors alone decide: an exponential, a row, a cast."""
    rates, bias = learned(H), learned(3, H, S)

    def mod(score, b, h, q_idx, kv_idx):
        return score - rates.exp()[h] * (q_idx - kv_idx).abs() + bias[1][h, kv_idx] + bias.sum()

    return mod, (rates, bias)


def in_place():
    table = learned(H)

    def mod(score, b, h, q_idx, kv_idx):
        score = score * 2
        score += table[h]
        score -= 1
        return score

    return mod, (table,)


def without_gradient():
    table = learned(H)

    def mod(score, b, h, q_idx, kv_idx):
        with torch.no_grad():
            still = torch.sigmoid(score)
        return score * still + table[h] + score.detach() * table[h].detach()

    return mod, (table,)


def whole_numbers():
    """Division, remainders, shifts and bools as torch has them, below 0 too."""

    def mod(score, b, h, q_idx, kv_idx):
        d = q_idx - 2 * kv_idx - 3
        parts = [d // 4, d % 5, d % -3, torch.div(d, 4, rounding_mode="trunc"), torch.fmod(d, 5), d >> 2, d & 6, d ^ 3,
                 d.abs() << 1, torch.sign(d), ~d, (d > 0) * 3, (d > 0) + (d < -4), (d / 3).long(), d**2,
                 -d // 3]  # fmt: skip
        total = score
        for i, part in enumerate(parts):
            total = total + part * (0.01 * (i + 1))
        return total

    return mod, ()


def functions():
    """Many functions of one number."""
    gain = learned(())

    def mod(score, b, h, q_idx, kv_idx):
        s = score * gain
        x = torch.abs(s) + 0.5
        f = torch.nn.functional
        log_sigmoid = f.logsigmoid(s) if DEVICE == "cpu" else -f.softplus(-s)  # torch 2.11's fails under vmap on a GPU
        return (torch.exp(-x) + torch.log(x) + torch.sqrt(x) + torch.rsqrt(x) + torch.sin(s) + torch.cos(s)
                + torch.sigmoid(s) + f.silu(s) + f.softplus(s) + log_sigmoid + torch.erf(s) + torch.exp2(-x)
                + torch.log2(x) + torch.log1p(x) + torch.expm1(-x) + 1 / x + x.reciprocal() + x**1.5 + x**3 + x**-0.5
                + f.leaky_relu(s) + f.elu(s) + f.gelu(s, approximate="tanh") + torch.clamp(s, -1, 1.5)
                + torch.maximum(s, x / 2) + torch.minimum(s, x / 3) + torch.rsub(s, 2.0) + torch.add(s, x, alpha=0.3)
                + torch.floor(s * 3) + torch.round(s * 3) + torch.trunc(s * 3) + torch.frac(s) + f.relu(s)
                + torch.nan_to_num(s) + torch.square(s) + torch.tan(s / 4))  # fmt: skip

    return mod, (gain,)


SCORES = {
    "alibi": alibi, "alibi_slopes": alibi_slopes, "softcap": softcap, "relative": relative, "buckets": buckets,
    "relative_table": relative_table, "from_the_end": from_the_end, "graphormer": graphormer, "sandwich": sandwich,
    "graph_edges": graph_edges, "activation": activation, "bias_of_16_bits": bias_of_16_bits,
    "masked_scores": masked_scores, "document_bias": document_bias, "computed_before": computed_before,
    "in_place": in_place, "without_gradient": without_gradient, "whole_numbers": whole_numbers, "functions": functions,
}  # fmt: skip
