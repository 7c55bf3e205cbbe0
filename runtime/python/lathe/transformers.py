"""transformers' models on kernels of Lathe.

    import lathe.transformers
    lathe.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(NAME, attn_implementation="lathe")
"""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass

import torch

from . import _library as c
from .torch._forms import DIMS, Form, function_of, table_of

try:
    from transformers import AttentionInterface, masking_utils
except ImportError as error:
    raise ImportError("lathe.transformers: needs transformers 5 or newer (pip install transformers)") from error

__all__ = ["register"]

_PLAIN = {"and_masks", "causal_mask_function", "sliding_window_overlay"}
_PACKED = {"remap_positions_for_packed_sequence", "packed_sequence_mask_function"}


def register() -> None:
    """attn_implementation="lathe", for models that are made or switched afterwards."""
    AttentionInterface.register("lathe", attend)
    masking_utils.AttentionMaskInterface.register("lathe", mask)


@dataclass(frozen=True)
class Rule:
    """What a mask of bools says, as a formula: causal, the last `window` keys alone. It lies beside the table, so that
    a model that writes to the table or makes another is served by that table."""

    window: int | None
    is_packed: bool


# ---- masks ---------------------------------------------------------------------------------------------------------


def mask(batch_size, q_length, kv_length, q_offset=0, kv_offset=0, mask_function=masking_utils.causal_mask_function,
         attention_mask=None, local_size=None, allow_is_causal_skip=True, **more):  # fmt: skip
    """None where the mask is causal, ends of queries and keys aligned; else a table of bools, and its Rule if any."""
    names = _names_of(mask_function)
    meets = _ends_align(q_offset, q_length, kv_offset, kv_length) and _is_whole(attention_mask, kv_offset + kv_length)
    has_window = "sliding_window_overlay" in names
    is_rule = meets and "causal_mask_function" in names and names <= _PLAIN | _PACKED and (local_size or not has_window)
    is_packed = bool(names & _PACKED)
    if is_rule and allow_is_causal_skip and not is_packed and not has_window:
        return None
    table = masking_utils.sdpa_mask(
        batch_size, q_length, kv_length, q_offset, kv_offset, mask_function, attention_mask, local_size,
        allow_is_causal_skip=False, **more)  # fmt: skip
    if is_rule and table is not None and not torch.compiler.is_compiling() and not table.is_inference():
        table._lathe_rule = table._version, Rule(local_size if has_window else None, is_packed)
    return table


def _rule_of(table):
    """The rule of a table that nobody has written to since; a table of inference mode counts no writes."""
    version, rule = getattr(table, "_lathe_rule", (None, None))
    return rule if rule is not None and version == table._version else None


def _ends_align(q_offset, q_length, kv_offset, kv_length) -> bool:
    """Is the last query at the last key? Offsets of caches of fixed size are tensors, which are not read here."""
    if any(isinstance(n, torch.Tensor) for n in (q_offset, q_length, kv_offset, kv_length)):
        return False
    return q_offset + q_length == kv_offset + kv_length


def _is_whole(attention_mask, length: int) -> bool:
    """Is no key padding?"""
    if attention_mask is None:
        return True
    if torch.compiler.is_compiling() or attention_mask.shape[-1] < length:
        return False
    return bool(attention_mask.all())


def _names_of(rule) -> set[str]:
    """Of the functions that a mask function is made of: transformers composes them by closures."""
    names = {getattr(rule, "__qualname__", "?").partition(".")[0]}
    for cell in getattr(rule, "__closure__", None) or ():
        held = cell.cell_contents
        for one in held if isinstance(held, tuple) else (held,):
            if callable(one) and not isinstance(one, torch.Tensor):
                names |= _names_of(one)
    return names


# ---- attention -----------------------------------------------------------------------------------------------------


def attend(module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None, position_bias=None,
           softcap=None, s_aux=None, sliding_window=None, **more):  # fmt: skip
    """As transformers calls it: q, k and v [b, h, s, d]; o [b, s, h, d], and None for the weights."""
    if torch.compiler.is_compiling():
        return _outside_of_graphs(module, query, key, value, attention_mask, dropout, scaling, is_causal, position_bias,
                      softcap, s_aux, sliding_window, **more)  # fmt: skip
    _refuse(query, dropout, s_aux, position_bias, more)
    rule = _rule_of(attention_mask)
    starts = _starts(more, query)
    window = (-1, -1)
    if attention_mask is None:
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        window = (_before(sliding_window), 0) if causal else window
    elif rule is not None and (not rule.is_packed or starts):
        window, attention_mask = (_before(rule.window), 0), None
    elif starts:
        attention_mask = _within(attention_mask, starts)
        starts = {}
    form = {"scale": _number(scaling), "window": window, "softcap": _number(softcap), "sink": s_aux is not None}
    given = dict(starts)
    if s_aux is not None:
        given["sink"] = s_aux.reshape(-1)
    sizes = (query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    _add_tables(form, given, attention_mask, position_bias, sizes, query.dtype)
    if dropout > 0:
        form["dropout"] = True
        given |= {"p": float(dropout), "seed": int(torch.randint(0, 2**31 - 1, (), device="cpu"))}
    return _run(Form(**form), query, key, value, given), None


_outside_of_graphs = torch.compiler.disable(attend)


def _run(form: Form, query, key, value, given):
    """Tokens first, as transformers wants o. Tables have their heads first, and so has the layout that reads them."""
    if not given.keys().isdisjoint(("mask", "bias")):
        return function_of(form)(query, key, value, **given).transpose(1, 2)
    q, k, v = (t.transpose(1, 2) for t in (query, key, value))
    if "cu_q" not in given:
        return function_of(form, "bshd")(q, k, v, **given)
    return function_of(form, "thd")(q[0], k[0], v[0], **given).unsqueeze(0)


def _refuse(query, dropout, s_aux, position_bias, more) -> None:
    if not 0.0 <= dropout <= 1.0:
        raise ValueError(f"lathe.transformers: dropout: expected a number from 0 to 1, given {dropout}")
    if dropout > 0 and query.is_cuda and torch.cuda.is_current_stream_capturing():
        raise c.UnsupportedError(
            "lathe.transformers: dropout in a CUDA graph would drop the same weights each time; capture it without")
    if position_bias is not None and more.get("cu_seq_lens_q") is not None:
        raise c.UnsupportedError(
            "lathe.transformers: position_bias beside cu_seq_lens_q is not served; pad the sequences")
    if dropout > 0 and s_aux is not None:
        raise c.UnsupportedError("lathe.transformers: dropout beside sinks is not served; set attention_dropout to 0")
    if more.get("output_attentions"):
        _warn_of_weights()


@functools.lru_cache(maxsize=1)
def _warn_of_weights() -> None:
    warnings.warn(
        "lathe.transformers: weights are not made (output_attentions); attn_implementation='eager' makes them",
        stacklevel=2)  # fmt: skip


def _before(window) -> int:
    """Keys before a query's own, where it sees the last `window`."""
    return -1 if window is None else int(window) - 1


def _number(value):
    return None if value is None else float(value)


def _starts(more, query) -> dict:
    """Of sequences that lie one after the other in a batch of one."""
    cu_q, cu_k = more.get("cu_seq_lens_q"), more.get("cu_seq_lens_k")
    if cu_q is None or cu_k is None:
        return {}
    if query.shape[0] != 1:
        raise c.ArgumentError(
            f"cu_seq_lens_q: expected a batch of 1, in which sequences are packed, given {query.shape[0]}")
    return {"cu_q": cu_q, "cu_kv": cu_k}


def _within(table, starts):
    """A mask that is no rule, of bools or to be added, held against the sequences that a query and a key belong to."""
    places = [torch.arange(n, device=table.device) for n in table.shape[-2:]]
    q, k = (torch.searchsorted(cu, at, right=True) for cu, at in zip(starts.values(), places))
    same = q[:, None] == k[None]
    return table & same if table.dtype is torch.bool else table.masked_fill(~same, -torch.inf)


def _add_tables(form: dict, given: dict, table, position_bias, sizes, dtype) -> None:
    if table is not None:
        if table.dim() != len(DIMS):
            raise c.ArgumentError(f"attention_mask: expected [b, 1 or h, q, kv], given {list(table.shape)}")
        table = table[..., : sizes[-1]]
        if table.dtype is torch.bool:
            _add(form, given, "mask", table, sizes)
        else:
            position_bias = table if position_bias is None else position_bias + table
    if position_bias is not None:
        form["learns_bias"] = position_bias.requires_grad
        _add(form, given, "bias", position_bias[..., : sizes[-1]], sizes)
    if "bias" in given and dtype is torch.float64:
        given["bias"] = given["bias"].double()


def _add(form: dict, given: dict, name: str, table, sizes) -> None:
    found = table_of(table, sizes)
    if found is None:
        raise c.ArgumentError(
            f"{name}: expected dims of [b, h, q, kv] = {list(sizes)}, or 1, given {list(table.shape)}")
    form[name], given[name] = found
