"""cases.py: the operators of the benchmark in plain torch: inputs, live pairs, formulas for checking, FlexAttention mods.

Every formula is written here once more, independent of the specs, in float64 on sampled rows.
"""

import math
import os

import torch

SOFTCAP = 30.0
WINDOW = 1024
PREFIX = 1024
DOCUMENTS = 8
BUCKETS = 32
SIGMOID_BIAS = -9.0  # about -log of the length, as its authors have it
EXACT = 8  # T5: distances below this have a bucket each
FARTHEST = 128


def bucket(distance):
    """T5's bidirectional bucket of query minus key (Raffel et al. 2019); keys after the query use 16 to 31.

    The logarithmic part in base 2, where the edges are powers of two; 1e-3 keeps rounding off them. FlexAttention's FA4
    kernels have no minimum or maximum.
    """
    n = distance.abs()
    ratio = torch.where(n < EXACT, EXACT, n).to(torch.float32) / EXACT
    far = EXACT + (torch.log2(ratio) * (EXACT / math.log2(FARTHEST / EXACT)) + 1e-3).to(torch.int32)
    small = torch.where(n < EXACT, n, torch.where(far < 2 * EXACT, far, 2 * EXACT - 1))
    return (distance < 0).to(torch.int32) * (2 * EXACT) + small


def softmax_weights(s, live, x):
    if live is not None:
        s = s.masked_fill(~live, -math.inf)
    return torch.softmax(s, -1)


def sigmoid_weights(s, live, x):
    w = torch.sigmoid(s)
    return w if live is None else w.masked_fill(~live, 0.0)


def relu_weights(s, live, x):
    return s.clamp(min=0.0)


def retention_weights(s, live, x):
    s = s.masked_fill(~live, 0.0)
    return s / s.abs().sum(-1, keepdim=True).clamp(min=1.0)


class Variant:
    """One attention operator. `score(s, h, q, kv, x)` and `live(b, q, kv, x)` take index tensors that broadcast,
    `weights(s, live, x)` gives the weights of whole rows. For gradients: slope(s) is the derivative of the score mod, and
    learned[name](ds, row0, row1, keys) the gradient of one head's part of an input, ds that of the scores. parts: the live
    pairs are those of causal attention within each of so many equal parts of the sequence."""

    def __init__(self, spec, live=None, score=None, inputs=None, scalars=None, weights=softmax_weights, flex=True, slope=None,
                 learned=None, parts=1):
        self.spec = spec
        self.live = live
        self.score = score
        self.make_inputs = inputs or (lambda problem: {})
        self.scalars = scalars or {}
        self.weights = weights
        self.flex = flex  # FlexAttention can write it
        self.slope = slope
        self.learned = learned or {}
        self.parts = parts


def _causal(b, q, kv, x):
    return q >= kv


def _slope(h, heads):
    return torch.exp2(-8.0 * (h + 1) / heads)


def _distances(row0, row1, keys):
    return torch.arange(row0, row1, device="cuda")[:, None] - torch.arange(keys, device="cuda")[None, :]


def _slope_gradient(ds, row0, row1, keys):
    return -(ds * _distances(row0, row1, keys)).sum()


def _table_gradient(ds, row0, row1, keys):
    of = bucket(_distances(row0, row1, keys))
    return torch.stack([(ds * (of == i)).sum() for i in range(BUCKETS)])


def _decay(s, h, q, kv, x):
    """gamma_h^(q - kv), gamma_h = 1 - 2^(-5 - h)"""
    return s * torch.exp2(torch.log2(1.0 - torch.exp2(-5.0 - h)) * (q - kv))


def document_length(problem):
    return max(problem.kv // DOCUMENTS, 1)


def _documents(problem):
    ids = (torch.arange(problem.kv, device="cuda") // document_length(problem)).to(torch.int32)
    return {"doc": ids.expand(problem.b, problem.kv).contiguous()}


VARIANTS = {
    "full": Variant("full"),
    "causal": Variant("causal", _causal),
    "alibi": Variant("alibi", _causal, lambda s, h, q, kv, x: s - _slope(h, x["heads"]) * (q - kv)),
    "softcap": Variant("softcap", _causal, lambda s, h, q, kv, x: SOFTCAP * torch.tanh(s / SOFTCAP),
                       slope=lambda s: 1.0 - torch.tanh(s / SOFTCAP) * torch.tanh(s / SOFTCAP)),
    "window": Variant("sliding_window", lambda b, q, kv, x: (q >= kv) & (q - kv < WINDOW), scalars={"window": WINDOW}),
    "document": Variant("document", lambda b, q, kv, x: (q >= kv) & (x["doc"][b, q] == x["doc"][b, kv]),
                        inputs=_documents, parts=DOCUMENTS),
    "relative_bias": Variant("relative_bias", None, lambda s, h, q, kv, x: s + x["table"][h, bucket(q - kv)],
                             inputs=lambda p: {"table": torch.randn(p.h, BUCKETS, device="cuda")},
                             learned={"table": _table_gradient}),
    "alibi_slopes": Variant("alibi_slopes.lua", _causal, lambda s, h, q, kv, x: s - x["slopes"][h] * (q - kv),
                            inputs=lambda p: {"slopes": torch.exp2(-0.5 * torch.arange(1, p.h + 1, device="cuda"))
                                              .to(torch.float32)},
                            learned={"slopes": _slope_gradient}),
    "prefix_lm": Variant("prefix_lm", lambda b, q, kv, x: (q >= kv) | (kv < x["prefix"][b]),
                         inputs=lambda p: {"prefix": torch.full((p.b,), PREFIX, dtype=torch.int32, device="cuda")}),
    "sigmoid": Variant("sigmoid_full.lua", score=lambda s, h, q, kv, x: s + SIGMOID_BIAS, scalars={"bias": SIGMOID_BIAS},
                       weights=sigmoid_weights, flex=False),
    "relu": Variant("relu", score=lambda s, h, q, kv, x: s / x["len_kv"], weights=relu_weights, flex=False),
    "retention": Variant("retention", _causal, _decay, weights=retention_weights, flex=False),
}


class Problem:
    """Sizes of an attention call, its random tensors, and what they are worth in floating-point operations."""

    def __init__(self, variant, b, h, s, d, h_kv=None, d_v=None, dtype=torch.bfloat16):
        self.name, self.dtype = variant, dtype
        self.variant = VARIANTS[variant]
        self.b, self.h, self.h_kv, self.q, self.kv, self.d, self.d_v = b, h, h_kv or h, s, s, d, d_v or d

    def title(self):
        heads = f"{self.h}" if self.h == self.h_kv else f"{self.h}/{self.h_kv}"
        dims = f"{self.d}" if self.d == self.d_v else f"{self.d}/{self.d_v}"
        precise = " f32" if self.dtype == torch.float32 else ""
        return f"{self.name} B{self.b} H{heads} S{self.q} D{dims}{precise}"

    def exact(self, bound):
        """The error that is allowed: in f32 one that products of tf32 would miss, else what the row's pass is given."""
        return 1e-4 if self.dtype == torch.float32 else bound

    def spec(self):
        """As the library takes it: the name of a shipped spec, or a file beside this one."""
        name = self.variant.spec
        return os.path.join(os.path.dirname(os.path.abspath(__file__)), name) if name.endswith(".lua") else name

    def allocate(self, seed):
        torch.manual_seed(seed)
        options = {"dtype": self.dtype, "device": "cuda"}
        self.tensors = {
            "q": torch.randn(self.b, self.h, self.q, self.d, **options),
            "k": torch.randn(self.b, self.h_kv, self.kv, self.d, **options),
            "v": torch.randn(self.b, self.h_kv, self.kv, self.d_v, **options),
        }
        self.out = torch.empty(self.b, self.h, self.q, self.d_v, **options)
        self.inputs = self.variant.make_inputs(self)
        return self

    def alone(self):
        """The live part by itself: the same tensors as causal attention over shorter sequences, without a mask that says so.
        A part of a head is a head there."""
        parts = self.variant.parts
        short = Problem("causal", self.b, self.h * parts, self.q // parts, self.d, self.h_kv * parts, self.d_v,
                        self.dtype)
        short.tensors = {name: t.reshape(self.b, -1, short.q, t.shape[-1]) for name, t in self.tensors.items()}
        short.out, short.inputs = torch.empty_like(self.out).reshape(self.b, short.h, short.q, self.d_v), {}
        return short

    def live_pairs(self):
        """Query-key pairs of one head and one batch entry that the mask keeps."""
        if self.variant.live is None:
            return self.q * self.kv
        total = 0
        kv = torch.arange(self.kv, device="cuda")[None, :]
        for start in range(0, self.q, 1024):
            q = torch.arange(start, min(start + 1024, self.q), device="cuda")[:, None]
            total += int(self.variant.live(torch.zeros_like(q), q, kv, self.inputs).sum())
        return total

    def flops(self):
        return 2.0 * self.b * self.h * self.live_pairs() * (self.d + self.d_v)

    def reference(self, b, h, rows):
        """float64 rows [len(rows), d_v] of one head."""
        q, k, v = (t.double() for t in (self.tensors["q"][b, h, rows], *self._keys(b, h)))
        s = (q @ k.T) / math.sqrt(self.d)
        kv = torch.arange(self.kv, device="cuda")[None, :]
        row = rows[:, None]
        x = {name: t.double() if t.is_floating_point() else t for name, t in self.inputs.items()}
        x["heads"] = self.h
        x["len_kv"] = self.kv
        if self.variant.score:
            head = torch.tensor(h, device="cuda")
            s = self.variant.score(s, head, row, kv, x)
        live = self.variant.live(torch.full_like(row, b), row, kv, x) if self.variant.live else None
        return self.variant.weights(s, live, x) @ v

    def _keys(self, b, h):
        of = h // (self.h // self.h_kv)
        return self.tensors["k"][b, of], self.tensors["v"][b, of]

    def error(self, out):
        """Largest relative L2 error over sampled heads, on 64 rows each; first and last rows are among them."""
        generator = torch.Generator().manual_seed(7)
        worst = 0.0
        for b, h in ((0, 0), (self.b - 1, self.h - 1), (0, self.h // 2)):
            rows = torch.randint(0, self.q, (60,), generator=generator)
            rows = torch.cat([rows, torch.tensor([0, 1, self.q // 2, self.q - 1])]).to("cuda")
            expected = self.reference(b, h, rows)
            got = out[b, h, rows].double()
            error = float((got - expected).norm() / expected.norm())
            worst = error if not error <= worst else worst  # NaN stays
        return worst if math.isfinite(worst) else math.inf


def flex_mods(problem):
    """(score_mod, mask_mod) for FlexAttention, written as its users write them."""
    spec, heads, x = problem.variant.spec, problem.h, problem.inputs
    score = None
    if spec == "alibi":
        def score(s, b, h, q, kv):
            return s - torch.exp2(-8.0 * (h + 1) / heads) * (q - kv)
    elif spec == "alibi_slopes.lua":
        slopes = x["slopes"]

        def score(s, b, h, q, kv):
            return s - slopes[h] * (q - kv)
    elif spec == "softcap":
        def score(s, b, h, q, kv):
            return SOFTCAP * torch.tanh(s / SOFTCAP)
    elif spec == "relative_bias":
        table = x["table"]

        def score(s, b, h, q, kv):
            return s + table[h, bucket(q - kv)]

    def mask(b, h, q, kv):
        return q >= kv
    if spec in ("full", "relative_bias"):
        mask = None
    elif spec == "sliding_window":
        def mask(b, h, q, kv):
            return (q >= kv) & (q - kv < WINDOW)
    elif spec == "document":
        doc = x["doc"]

        def mask(b, h, q, kv):
            return (q >= kv) & (doc[b, q] == doc[b, kv])
    elif spec == "prefix_lm":
        prefix = x["prefix"]

        def mask(b, h, q, kv):
            return (q >= kv) | (kv < prefix[b])
    return score, mask


# ---- row-wise ------------------------------------------------------------------------------------------

def rowwise_inputs(spec, n, dtype):
    options = {"dtype": dtype, "device": "cuda"}
    inputs = {}
    if spec in ("rms_norm", "layer_norm"):
        inputs["weight"] = 1.0 + 0.1 * torch.randn(n, **options)
    if spec == "layer_norm":
        inputs["bias"] = 0.1 * torch.randn(n, **options)
    return inputs


EPS = 1e-6


def rowwise_torch(spec, x, inputs):
    """What a user of torch writes."""
    n = x.shape[-1]
    if spec == "softmax":
        return torch.softmax(x, -1)
    if spec == "rms_norm":
        return torch.nn.functional.rms_norm(x, (n,), inputs["weight"], EPS)
    return torch.nn.functional.layer_norm(x, (n,), inputs["weight"], inputs["bias"], EPS)


def rowwise_error(spec, x, inputs, out):
    rows = torch.randint(0, x.shape[0], (64,), generator=torch.Generator().manual_seed(7)).to("cuda")
    wide = {name: t.double() for name, t in inputs.items()}
    x = x[rows].double()
    if spec == "softmax":
        expected = torch.softmax(x, -1)
    elif spec == "rms_norm":
        expected = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPS) * wide["weight"]
    else:
        centred = x - x.mean(-1, keepdim=True)
        expected = centred * torch.rsqrt((centred * centred).mean(-1, keepdim=True) + EPS) * wide["weight"] + wide["bias"]
    error = float((out[rows].double() - expected).norm() / expected.norm())
    return error if math.isfinite(error) else math.inf
