"""lathe.torch.distributed on two GPUs, by NCCL: skipped where there are fewer. The kernels themselves are tested
elsewhere, and all specs over ranks on the CPU: here it is what lies between the calls."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if torch.cuda.device_count() < 2:
    pytest.skip("torch sees fewer than two GPUs", allow_module_level=True)
import distributed_cases as cases  # noqa: E402
from ranks import Ranks  # noqa: E402

SOME = ["causal", "document", "sinks", "alibi"]


# A first run compiles some hundred kernels, of f32 mostly, and whatever torch.compile makes: while one rank does, the
# other waits in a collective. One that hangs is found out later than on a CPU.
FIRST_RUN = 420


@pytest.fixture(scope="module")
def two():
    ranks = Ranks(2, seconds=FIRST_RUN, backend="nccl")
    yield ranks
    ranks.close()


@pytest.mark.parametrize("scheme", ["heads", "gather", "ring"])
def test_attention(two, scheme):
    two.run(cases.attention_specs, SOME, scheme, (5, 9), (11, 3))
    two.run(cases.attention_specs, SOME[:2], scheme, (8, 8), (8, 8), "zigzag")


def test_keys(two):
    two.run(cases.keys_are_whole, SOME, 3, (11, 6))
    two.run(cases.keys_are_whole, SOME[:1], 1, (0, 9))


def test_linear_attention(two):
    two.run(cases.linear_is_whole, ["gated_delta", "kda", "gla", "linear_elu"], (7, 5))


def test_linear_attention_in_chunks_and_pieces(two):
    """Beyond 16 tokens other kernels compute; from 2304 on they take pieces, of one rank's tokens or of both ranks'."""
    names = ["retention_linear", "gated_delta", "kda", "gla", "rwkv7"]
    two.run(cases.long_states, names, (150, 130))
    two.run(cases.long_states, names, (1300, 1200))
    two.run(cases.long_states, names, (2500, 2400))


def test_what_is_placed_compiled_and_gathered(two):
    what = cases.placed, cases.compiled, cases.gathered_inputs, cases.layouts_and_lengths, cases.wholly_masked
    for function in what:
        two.run(function)


def test_ranks_that_differ_are_told(two):
    two.run(cases.flexed)
    two.run(cases.different_calls)
    two.run(cases.refusals)
