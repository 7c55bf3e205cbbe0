"""Linear attention as servers call it: states of a pool, in 16 bits, and behind tokens."""

import numpy as np
import pytest

import lathe

B, T, D = 3, 5, 8


@pytest.fixture
def tokens():
    rng = np.random.default_rng(7)
    q, k, v = (rng.standard_normal((B, 2, T, D)) for _ in range(3))
    return {"q": q, "k": k, "v": v, "g": -rng.random((B, 2, T))}


def test_states_move_from_slot_to_slot(tokens):
    pool = np.random.default_rng(8).standard_normal((6, 2, D, D))
    first = pool[[4, 4, 0]] * np.array([1, 0, 1])[:, None, None, None]  # 1 begins without a state
    o, last = lathe.load("simple_gla")(**tokens, state=first, o=True, state_out=True)
    before = pool.copy()
    made, _ = lathe.load("simple_gla")(
        **tokens, state=pool, state_out=pool, state_index=np.array([4, -1, 0], np.int32),
        state_out_index=np.array([2, 5, -1], np.int32), o=True,
    )  # fmt: skip
    np.testing.assert_allclose(made, o, atol=1e-13)
    np.testing.assert_allclose(pool[[2, 5]], last[:2], atol=1e-13)
    np.testing.assert_array_equal(pool[[0, 1, 3, 4]], before[[0, 1, 3, 4]])


def test_states_behind_tokens(tokens):
    states = np.zeros((B * T, 2, D, D))
    index = np.arange(B * T, dtype=np.int32).reshape(B, T)
    lathe.load("simple_gla")(**tokens, states=states, states_index=index)
    for n in range(1, T + 1):
        part = {name: t[:, :, :n] for name, t in tokens.items()}
        _, last = lathe.load("simple_gla")(**part, o=True, state_out=True)
        np.testing.assert_allclose(states.reshape(B, T, 2, D, D)[:, n - 1], last, atol=1e-13)


def test_gradients_of_states_land_in_their_slots(tokens):
    """What a call makes is of zeros where no sequence has a slot."""
    gla, rng = lathe.load("simple_gla"), np.random.default_rng(9)
    pool, last = (rng.standard_normal((6, 2, D, D)) for _ in range(2))
    do, read, written = rng.standard_normal((B, 2, T, D)), [4, 1, 0], [2, 1, 5]
    alone = gla.backward(**tokens, do=do, state=pool[read], dstate_out=last[written], dk=True, dstate=True)
    index = lambda slots: np.array(slots, np.int32)
    made = gla.backward(**tokens, do=do, state=pool, dstate_out=last, state_index=index(read),
                        state_out_index=index(written), dk=True, dstate=True)  # fmt: skip
    np.testing.assert_allclose(made.dk, alone.dk, atol=1e-13)
    np.testing.assert_allclose(made.dstate[read], alone.dstate, atol=1e-13)
    assert (made.dstate[[2, 3, 5]] == 0).all()


def test_sequences_end_before_the_tensors(tokens):
    flat = {name: np.ascontiguousarray(t[:1]) for name, t in tokens.items()}
    whole = lathe.load("simple_gla")(**{name: t[:, :, :3] for name, t in flat.items()})
    o = np.full((1, 2, T, D), 5.0)
    lathe.load("simple_gla")(**flat, cu=np.array([0, 3, 3], np.int32), o=o)
    np.testing.assert_allclose(o[:, :, :3], whole, atol=1e-13)
    assert (o[:, :, 3:] == 5).all()


def test_states_in_16_bits(tokens):
    torch = pytest.importorskip("torch")
    import lathe.torch

    given = {name: torch.from_numpy(t).float() for name, t in tokens.items()}
    state = torch.randn(B, 2, D, D, generator=torch.Generator().manual_seed(1)).bfloat16().requires_grad_()
    function = lathe.torch.wrap("simple_gla", results=("o", "state_out"))
    o, last = function(**given, state=state)
    exact_o, exact_last = function(**given, state=state.detach().float())
    assert last.dtype == torch.bfloat16 and torch.equal(o, exact_o)
    torch.testing.assert_close(last.float(), exact_last, atol=0.02, rtol=0.01)
    o.sum().backward()
    assert state.grad.dtype == torch.bfloat16


def test_states_have_one_dtype(tokens):
    state = np.ones((B, 2, D, D), np.float16)
    o, last = lathe.load("simple_gla")(**tokens, state=state, o=True, state_out=True)
    assert last.dtype == np.float16
    with pytest.raises(lathe.ArgumentError, match="argument 'state_out': expected dtype f16 as of 'state', given f32"):
        lathe.load("simple_gla")(**tokens, state=state, state_out=np.zeros((B, 2, D, D), np.float32))


def test_query_heads_read_a_state():
    """More heads of q than of k and v, as if k and v were repeated."""
    torch = pytest.importorskip("torch")
    import lathe.torch

    text = """return linear_attention { %s
      inputs = { g = tensor("float", "b", "h", "t", { grad = true, range = { -1, 0 } }) },
      decay = function(at, x) return x.g(at.b, at.h, at.t) end }"""
    draw = torch.Generator().manual_seed(3)
    make = lambda *shape: torch.randn(*shape, generator=draw, dtype=torch.float64).requires_grad_()
    q, k, v = make(2, T, 6, D), make(2, T, 2, D), make(2, T, 2, D)
    g = (-torch.rand(2, T, 2, generator=draw, dtype=torch.float64)).requires_grad_()
    few = lathe.torch.wrap(text % "query_heads = 3,", layout="bshd")
    all = lathe.torch.wrap(text % "", layout="bshd")
    o = few(q=q, k=k, v=v, g=g)
    repeated = all(q=q, **{n: t.repeat_interleave(3, 2) for n, t in {"k": k, "v": v, "g": g}.items()})
    torch.testing.assert_close(o, repeated)
    do = torch.randn(o.shape, generator=draw, dtype=torch.float64)
    for one, other in zip(torch.autograd.grad(o, (q, k, v, g), do), torch.autograd.grad(repeated, (q, k, v, g), do)):
        torch.testing.assert_close(one, other)


# ---- what nobody writes --------------------------------------------------------------------------------------------


@pytest.fixture
def sevens(monkeypatch):
    """Memory that results are made in holds 7, wherever it comes from."""
    from lathe import _arrays

    fill = lambda shape, dtype, device: np.full(shape, 7, _arrays._TO_NUMPY_NAME[dtype])
    monkeypatch.setattr(_arrays.Numpy, "empty", staticmethod(fill))


def test_tokens_and_slots_of_no_sequence_are_zeros(tokens, sevens):
    op = lathe.load("simple_gla")
    flat = {name: np.ascontiguousarray(t[:1]) for name, t in tokens.items()}
    o = op(**flat, cu=np.array([0, 3, 3], np.int32))
    np.testing.assert_allclose(o[:, :, :3], op(**{name: t[:, :, :3] for name, t in flat.items()}), atol=1e-13)
    assert (o[:, :, 3:] == 0).all()
    assert (op(**flat, cu=np.array([0], np.int32)) == 0).all()
    pool, index = np.ones((6, 2, D, D)), np.array([4, -1, 0], np.int32)
    state_out = op(**tokens, state=pool, state_index=index, o=True, state_out=True).state_out
    assert (state_out[[1, 2, 3, 5]] == 0).all() and (state_out[[0, 4]] != 0).all()


def test_rows_of_no_slot_are_zeros(sevens):
    rng = np.random.default_rng(3)
    k, v, q = (rng.standard_normal((1, 2, 1, 8)) for _ in range(3))
    given = {"q": q, "k": k, "v": v, "slot": np.array([[2, -1]], np.int32), "pos": np.zeros((1, 2), np.int32)}
    mine = np.full((4, 1, 8), 5.0)
    made = lathe.load("rope_append")(**given, k_cache=mine, v_cache=True)
    assert (made.v_cache[[0, 1, 3]] == 0).all() and (mine[[0, 1, 3]] == 5).all()
    np.testing.assert_array_equal(made.v_cache[2], v[0, 0])


def test_tokens_of_no_sequence_are_zeros_in_torch(tokens, monkeypatch):
    torch = pytest.importorskip("torch")
    from lathe import torch as ours
    from lathe.torch import _passes

    fill = lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype).fill_(7)
    monkeypatch.setitem(_passes._EMPTY, "cpu", fill)
    flat = {name: torch.from_numpy(np.ascontiguousarray(t[:1])) for name, t in tokens.items()}
    function = ours.wrap(lathe.load("simple_gla"))
    assert (function(**flat, cu=torch.tensor([0, 3, 3]))[:, :, 3:] == 0).all()
    assert (function(**flat, cu=torch.tensor([0, 3, 5])) != 0).all()
    given = {name: torch.from_numpy(t) for name, t in tokens.items()}
    states = ours.wrap(lathe.load("simple_gla"), results=("state_out",))
    pool, index = torch.ones(6, 2, D, D, dtype=torch.float64), torch.tensor([4, -1, 0])
    made = states(**given, state=pool, state_index=index)
    made = made if isinstance(made, torch.Tensor) else made[-1]
    assert (made[[1, 2, 3, 5]] == 0).all() and (made[[0, 4]] != 0).all()


# ---- what is refused, and why --------------------------------------------------------------------------------------


def test_places_that_nobody_counts(tokens):
    index = np.zeros((B, T), np.int32)
    with pytest.raises(lathe.ArgumentError, match="'states': its size 'kept' follows from no other tensor; pass the "
                                                  "tensor, as in states=tensor"):  # fmt: skip
        lathe.load("simple_gla")(**tokens, states=True, states_index=index)
    torch = pytest.importorskip("torch")
    from lathe import torch as ours

    function = ours.wrap("simple_gla", results=("o", "states"))
    with pytest.raises(lathe.ArgumentError, match="result 'states': its size 'kept' follows from no operand"):
        function(**{n: torch.from_numpy(t) for n, t in tokens.items()}, states_index=torch.from_numpy(index))


def test_states_that_a_spec_has_not_say_why(tokens):
    qkv = {n: tokens[n] for n in "qkv"}
    with pytest.raises(lathe.ArgumentError, match="'states': not taken: with causal = false every token reads"):
        lathe.compile("return linear_attention { causal = false }")(**qkv, states=np.zeros((2, 2, D, D)))
    with pytest.raises(lathe.ArgumentError, match="'states': not taken: states behind tokens have no backward pass"):
        lathe.load("linear").backward(**qkv, do=tokens["v"], states=np.zeros((2, 2, D, D)))
    pytest.importorskip("torch")
    from lathe import torch as ours

    for name in ("states", "norms"):
        with pytest.raises(lathe.ArgumentError, match=f"has no result '{name}': a token makes several updates"):
            ours.wrap("gated_delta_product", results=("o", name))
