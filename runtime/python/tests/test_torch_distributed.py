"""lathe.torch.distributed on gloo: every shipped spec that can be cut, over 2, 3 and 4 ranks, beside one rank."""

import pathlib

import lathe
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
import torch.distributed  # noqa: E402

if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("torch has no gloo", allow_module_level=True)
import distributed_cases as cases  # noqa: E402
from lathe._nature import counts_tokens, nature  # noqa: E402
from lathe.torch.distributed._problem import check_names  # noqa: E402
from lathe.torch.distributed._states import has_updates  # noqa: E402
import lathe.torch.distributed as ld  # noqa: E402
from ranks import Ranks  # noqa: E402

SPECS = pathlib.Path(__file__).parents[3] / "specs"


@pytest.fixture(scope="module")
def two():
    ranks = Ranks(2)
    yield ranks
    ranks.close()


@pytest.fixture(scope="module")
def three():
    ranks = Ranks(3)
    yield ranks
    ranks.close()


def shipped(kind):
    ops = (lathe.load(file.stem) for file in sorted(SPECS.glob("*.lua")) if file.stem != "prelude")
    return [op for op in ops if op.kind == kind]


ATTENTION = [op.name for op in shipped("attention")]
COUNTING = ["block_mask", "flamingo", "nsa_compressed"]
CUT = [n for n in ATTENTION if n not in COUNTING]


def test_what_counts_tokens():
    assert [n for n in ATTENTION if counts_tokens(lathe.load(n))] == COUNTING


def test_heads(two):
    two.run(cases.attention_specs, ATTENTION, "heads", (5, 9), (11, 3))


def test_gather(two):
    two.run(cases.attention_specs, CUT, "gather", (5, 9), (11, 3))


RINGS = [n for n in CUT if lathe.load(n).joining.arguments]


def test_ring(two):
    two.run(cases.attention_specs, RINGS, "ring", (5, 9), (11, 3))
    two.run(cases.ring_results)


def test_a_ring_of_three_and_four_ranks(three):
    some = ["document", "dropout", "sinks", "alibi", "mla_decoupled"]
    three.run(cases.attention_specs, some, "ring", (4, 0, 9), (7, 6, 0))
    three.run(cases.attention_specs, some, "ring", (4, 4, 4), (4, 4, 4), "zigzag")
    ranks = Ranks(4)
    ranks.run(cases.attention_specs, ["document", "sinks"], "ring", (6, 6, 6, 6), (6, 6, 6, 6), "zigzag")
    ranks.close()


def test_three_ranks(three):
    some = ["document", "dropout", "sinks", "forgetting", "alibi"]
    three.run(cases.attention_specs, [*some, "nsa_selected", "mla_decoupled"], "heads", (4, 0, 9), (7, 6, 0))
    three.run(cases.attention_specs, some, "gather", (4, 0, 9), (7, 6, 0))


def test_zigzag(two):
    for scheme in ("heads", "gather", "ring"):
        two.run(cases.attention_specs, ["causal", "document", "pair_bias", "sinks"], scheme, (8, 8), (8, 8), "zigzag")


def test_keys(two, three):
    names = [n for n in ATTENTION if lathe.load(n).joining.arguments]
    two.run(cases.keys_are_whole, names, 3, (11, 6))
    three.run(cases.keys_are_whole, names, 1, (0, 9, 5))


def test_interleaved_keys(two, three):
    names = [n for n in ATTENTION if lathe.load(n).joining.arguments]
    two.run(cases.keys_are_whole, names, 3, (9, 8), 4)
    three.run(cases.keys_are_whole, names, 1, (5, 5, 4), 1)
    three.run(cases.keys_are_whole, ["causal", "document"], 2, (8, 6, 0), 8)
    with pytest.raises(lathe.ArgumentError, match="interleave: expected the tokens of a chunk, 1 or more"):
        ld.wrap("causal", queries="whole", order="interleaved")
    with pytest.raises(lathe.ArgumentError, match="interleave: expected 0 beside order='contiguous', given 4"):
        ld.wrap("causal", interleave=4)
    with pytest.raises(lathe.UnsupportedError, match="a state goes through tokens in their order"):
        ld.wrap("gla", order="interleaved", interleave=4)


def test_ranks_that_differ_are_told(two):
    two.run(cases.different_calls)


def test_what_cannot_be_cut_is_refused(two):
    two.run(cases.refusals)
    with pytest.raises(lathe.ArgumentError, match="a spec of rowwise, whose rows know nothing of each other"):
        ld.wrap("rms_norm")


def test_a_state_that_goes_by_the_number_of_value_channels():
    rule = "return linear_attention {{ delta = function(at) return {} end }}"
    assert nature(lathe.compile(rule.format("8.0 / at.d_v"))).reads_width
    assert not nature(lathe.compile(rule.format("8.0 / at.d"))).reads_width
    assert not any(nature(lathe.load(n)).reads_width for n in STEPS)


def test_states_behind_tokens_are_of_one_rank():
    with pytest.raises(lathe.UnsupportedError, match="'states': of tokens that are cut there are o, state_out"):
        ld.wrap("gla", results=("o", "states"))
    for name in ("states_index", "state_out_index"):
        with pytest.raises(lathe.ArgumentError, match=f"argument '{name}': not taken by a call over several ranks"):
            check_names(lathe.load("gla"), {name: None})


def test_explain(two):
    two.run(cases.explained)


SAID = [("causal", "heads"), ("mla_decoupled", "heads"), ("causal", "gather"), ("mla_decoupled", "gather"),
        ("causal", "ring"), ("sinks", "ring"), ("causal", "keys"), ("gated_delta", "states"), ("gla", "states"),
        ("linear_elu", "states"), ("retention_linear", "states")]  # fmt: skip


@pytest.mark.parametrize("name, scheme", SAID)
def test_what_explain_says_is_sent(two, three, name, scheme):
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        two.run(cases.sent_is_said, name, scheme, dtype)
        three.run(cases.sent_is_said, name, scheme, dtype)


def test_what_explain_says_of_states_behind_tokens(two, three):
    two.run(cases.sent_is_said, "gated_delta", "states", torch.float32, "contiguous", ("o", "state_out"))
    three.run(cases.sent_is_said, "linear_elu", "states", torch.float32, "contiguous", ("o", "state_out", "norm_out"))
    two.run(cases.sent_is_said, "causal", "ring", torch.float32, "zigzag")


def test_wholly_masked_shards(two):
    two.run(cases.wholly_masked)


def test_layouts_and_lengths(two):
    two.run(cases.layouts_and_lengths)


def test_keys_of_8_bits(two):
    two.run(cases.keys_of_8_bits)


def test_gathered_inputs(two):
    two.run(cases.gathered_inputs)


def test_a_rank_that_fails_leaves_no_hang():
    ranks = Ranks(2, seconds=2)
    (waiting, why), (failed, fault) = ranks.outcomes(cases.one_fails)
    ranks.close()
    assert not failed and "a fault of its own" in fault
    assert not waiting and "RuntimeError" in why


GATED = ["gated_delta", "kda", "gla", "rwkv7", "comba"]
LINEAR = [op.name for op in shipped("linear_attention")]
PLACED = ["flao_lrpe"]  # by at.pos
STEPS = [n for n in LINEAR if n not in PLACED and not has_updates(lathe.load(n))]
MORE = [
    "return linear_attention { reverse = true, normalise = true, decay = function(at) return -0.1 * (at.h + 1) end }",
    "return linear_attention { causal = false, normalise = true, key_mod = function(v) return exp(v) end }",
    "return linear_attention { decay = function(at) return -0.05 * (at.j + 1) end }",
]


def test_linear_attention_of_two_ranks(two):
    two.run(cases.linear_is_whole, STEPS, (7, 5), MORE)
    two.run(cases.linear_is_whole, ["gated_delta", "linear_elu", "flao"], (7, 5), MORE[:1], False)


def test_linear_attention_by_positions(two):
    two.run(cases.by_offset)


def test_linear_attention_of_three_ranks(three):
    some = ["gated_delta", "kda", "gdn2", "rwkv7", "precond_kda", "gla", "linear_elu", "mamba2", "rwkv6", "flao"]
    three.run(cases.linear_is_whole, some, (4, 6, 3), MORE)
    three.run(cases.linear_is_whole, ["gla", "kda"], (4, 0, 3))
    three.run(cases.linear_is_whole, ["gla", "kda"], (0, 5, 0), (), False)


def test_states_of_strong_gates_and_of_none(two, three):
    two.run(cases.gates_are_whole, GATED, (7, 5))
    three.run(cases.gates_are_whole, GATED, (4, 6, 3))


def test_states_of_many_tokens_in_bf16(two, three):
    two.run(cases.long_states, [*GATED, "retention_linear"], (70, 50))
    three.run(cases.long_states, [*GATED, "retention_linear"], (40, 30, 50))


def test_states_under_autocast(three):
    three.run(cases.states_under_autocast, (4, 6, 3))


def test_placements_of_dtensors(two):
    two.run(cases.placed)


def test_four_ranks():
    ranks = Ranks(4)
    ranks.run(cases.placed)
    ranks.run(cases.attention_specs, ["document", "sinks"], "gather", (3, 4, 0, 2), (2, 0, 6, 4))
    ranks.run(cases.linear_is_whole, ["gated_delta", "gla"], (3, 4, 2, 5))
    ranks.close()


def test_flex_attention(two):
    two.run(cases.flexed)


def test_compiled(two):
    two.run(cases.compiled)
