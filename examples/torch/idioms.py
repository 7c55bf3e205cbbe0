"""Idioms of FlexAttention and attention-gym, and the spec of each: the same formula twice.

Every entry has FlexAttention's functions on the left hand (score_mod, mask_mod) and a spec on the right. A test runs
both on the same tensors. What a function of FlexAttention captures is an input of the spec, given by its name.
"""

from typing import Callable, NamedTuple

import torch


class Idiom(NamedTuple):
    spec: str  # a shipped spec's name, or a text
    mask_mod: Callable | None = None  # (b, h, q_idx, kv_idx) -> bool
    score_mod: Callable | None = None  # (score, b, h, q_idx, kv_idx) -> score
    inputs: dict = {}  # what both read, by the spec's names


def causal(b, h, q, k):
    return q >= k


def both(f, g):
    return lambda b, h, q, k: f(b, h, q, k) & g(b, h, q, k)


B, H, S = 2, 4, 48  # sizes that the captured tensors below have


def captured():
    """Tensors that the functions read, on the CPU; int32 where they are indices."""
    generator = torch.Generator().manual_seed(11)
    return {
        "doc": torch.arange(S).div(13, rounding_mode="floor").repeat(B, 1).int(),
        "prefix": torch.tensor([7, 20], dtype=torch.int32),
        "bias": torch.randn(H, 2 * S, generator=generator),
        "pair": torch.randn(B, H, S, S, generator=generator),
        "slopes": torch.rand(H, generator=generator),
        "lengths": torch.tensor([30, 48], dtype=torch.int32),
        "keep": torch.rand(B, H, S, S, generator=generator).gt(0.3).to(torch.uint8),
        "row": torch.arange(S).div(8, rounding_mode="floor").int(),
        "column": torch.arange(S).remainder(8).int(),
    }


def idioms() -> dict[str, Idiom]:
    t = captured()
    only = lambda *names: {n: t[n] for n in names}
    return {
        "causal": Idiom("causal", mask_mod=causal),
        "full attention, no mask": Idiom("full"),
        "sliding window": Idiom(
            """local W = param("W", 16)
            return attention { mask_mod = both(causal, function(at) return le(at.q - at.kv, W) end) }""",
            mask_mod=both(causal, lambda b, h, q, k: q - k <= 16),
        ),
        "dilated sliding window": Idiom(
            """local W, D = param("W", 16), param("D", 2)
            local function near(at)
              local far = at.q - at.kv
              return ge(far, 0) & le(far, W) & eq(far % D, 0)
            end
            return attention { mask_mod = near }""",
            mask_mod=lambda b, h, q, k: (q - k >= 0) & (q - k <= 16) & ((q - k) % 2 == 0),
        ),
        "prefix LM": Idiom(
            "prefix_lm", mask_mod=lambda b, h, q, k: (q >= k) | (k < t["prefix"][b]), inputs=only("prefix")
        ),
        "documents (packed sequences by ids)": Idiom(
            "document", mask_mod=both(causal, lambda b, h, q, k: t["doc"][b, q] == t["doc"][b, k]), inputs=only("doc")
        ),
        "padding: so many keys of each batch": Idiom(
            """return attention {
              inputs = { lengths = tensor("i32", "b") },
              mask_mod = function(at, x) return lt(at.kv, x.lengths(at.b)) end,
            }""",
            mask_mod=lambda b, h, q, k: k < t["lengths"][b],
            inputs=only("lengths"),
        ),
        "global tokens beside a window": Idiom(
            """local W, GLOBAL = param("W", 8), param("GLOBAL", 4)
            local function near(at) return le(abs(at.q - at.kv), W) end
            local function global(at) return lt(at.kv, GLOBAL) | lt(at.q, GLOBAL) end
            return attention { mask_mod = either(near, global) }""",
            mask_mod=lambda b, h, q, k: ((q - k).abs() <= 8) | (k < 4) | (q < 4),
        ),
        "neighbours in two dims (NATTEN)": Idiom(
            """local WIDTH, REACH = param("WIDTH", 8), param("REACH", 2)
            local function near(at)
              local dx, dy = at.q % WIDTH - at.kv % WIDTH, at.q // WIDTH - at.kv // WIDTH
              return le(abs(dx), REACH) & le(abs(dy), REACH)
            end
            return attention { mask_mod = near }""",
            mask_mod=lambda b, h, q, k: ((t["column"][q] - t["column"][k]).abs() <= 2)
            & ((t["row"][q] - t["row"][k]).abs() <= 2),
        ),
        "ALiBi, slopes as a tensor": Idiom(
            """return attention {
              inputs = { slopes = tensor("f32", "h") },
              mask_mod = causal,
              score_mod = function(s, at, x) return s - x.slopes(at.h) * (at.q - at.kv) end,
            }""",
            mask_mod=causal,
            score_mod=lambda s, b, h, q, k: s - t["slopes"][h] * (q - k),
            inputs=only("slopes"),
        ),
        "ALiBi, slopes by formula": Idiom(
            "alibi", mask_mod=causal, score_mod=lambda s, b, h, q, k: s - torch.exp2(-8.0 * (h + 1) / H) * (q - k)
        ),
        "softcap (tanh)": Idiom("softcap", mask_mod=causal, score_mod=lambda s, b, h, q, k: 30 * torch.tanh(s / 30)),
        "relative bias": Idiom(
            """return attention { score_mod = function(s, at) return s + (at.q - at.kv) end }""",
            score_mod=lambda s, b, h, q, k: s + (q - k),
        ),
        "learned bias by distance": Idiom(
            """return attention {
              inputs = { bias = tensor("float", "h", "places", { grad = true }) },
              score_mod = function(s, at, x)
                return s + x.bias(at.h, clamp(at.q - at.kv + at.n_places // 2, 0, at.n_places - 1))
              end,
            }""",
            score_mod=lambda s, b, h, q, k: s + t["bias"][h, q - k + S],
            inputs=only("bias"),
        ),
        "bias for every pair": Idiom(
            """return attention {
              inputs = { pair = tensor("float", "b", "h", "q", "kv", { grad = true }) },
              score_mod = function(s, at, x) return s + x.pair(at.b, at.h, at.row, at.kv) end,
            }""",
            score_mod=lambda s, b, h, q, k: s + t["pair"][b, h, q, k],
            inputs=only("pair"),
        ),
        "mask for every pair": Idiom(
            """return attention {
              inputs = { keep = tensor("u8", "b", "h", "q", "kv") },
              mask_mod = function(at, x) return ne(x.keep(at.b, at.h, at.row, at.kv), 0) end,
            }""",
            mask_mod=lambda b, h, q, k: t["keep"][b, h, q, k] != 0,
            inputs=only("keep"),
        ),
        "a head of its own kind (by h)": Idiom(
            """local function first(at) return lt(at.h, at.n_h // 2) end
            return attention {
              mask_mod = function(at) return (first(at) & ge(at.q, at.kv)) | (~first(at) & le(abs(at.q - at.kv), 8)) end,
            }""",
            mask_mod=lambda b, h, q, k: torch.where(h < H // 2, q >= k, (q - k).abs() <= 8),
        ),
        "blocks that see themselves whole (transfusion)": Idiom(
            """local SIZE = param("SIZE", 12)
            local function block(at) return eq(at.q // SIZE, at.kv // SIZE) end
            return attention { mask_mod = either(causal, block) }""",
            mask_mod=lambda b, h, q, k: (q >= k) | (q // 12 == k // 12),
        ),
    }
