"""transformers' models with attn_implementation="lathe", beside "eager", on the host device: tiny ones of random
weights, made from configurations. Nothing is downloaded."""

import inspect
import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch", reason="torch is not installed")
hf = pytest.importorskip("transformers", minversion="5.0", reason="transformers is not installed")
import lathe  # noqa: E402

through = pytest.importorskip("lathe.transformers", reason="this transformers has no registry of attention")

DEVICE = os.environ.get("LATHE_TEST_DEVICE", "cpu")
BOUND = 1e-4 if DEVICE == "cpu" else 5e-3
SMALL = dict(vocab_size=60, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=16, max_position_embeddings=128, pad_token_id=0)  # fmt: skip
CAUSAL = {
    "llama": lambda: hf.LlamaConfig(**SMALL),
    "gemma2": lambda: hf.Gemma2Config(**SMALL, sliding_window=5, attn_logit_softcapping=2.0, query_pre_attn_scalar=16),
    "gemma3": lambda: hf.Gemma3TextConfig(**SMALL, sliding_window=5, query_pre_attn_scalar=16),
    "gpt-oss": lambda: hf.GptOssConfig(**SMALL, sliding_window=5, num_local_experts=2, num_experts_per_tok=1),
    "qwen3": lambda: hf.Qwen3Config(**SMALL, use_sliding_window=True, sliding_window=5, max_window_layers=1),
}
N = 14
through.register()


def models(name):
    """The same weights twice."""
    made = []
    for implementation in ("lathe", "eager"):
        torch.manual_seed(0)
        model = hf.AutoModelForCausalLM.from_config(CAUSAL[name](), attn_implementation=implementation)
        for of, parameter in model.named_parameters():
            if of.endswith("sinks"):
                torch.nn.init.normal_(parameter)
        made.append(model.to(DEVICE).eval())
    return made


@pytest.fixture
def forms(monkeypatch):
    """Of the calls that ours has run."""
    seen = []
    real = through._run

    def noting(form, query, key, value, given):
        seen.append((form, set(given)))
        return real(form, query, key, value, given)

    monkeypatch.setattr(through, "_run", noting)
    return seen


def tokens(batch=2, n=N):
    return torch.randint(1, 60, (batch, n), generator=torch.Generator().manual_seed(1)).to(DEVICE)


def same(given, wanted, bound=BOUND):
    torch.testing.assert_close(given, wanted, rtol=bound, atol=bound * max(1.0, float(wanted.detach().abs().max())))


def compare(pair, keep=None, **call):
    """Logits, and gradients of all weights, of rows that are kept."""
    logits = [model(**call).logits for model in pair]
    if keep is not None:
        logits = [one[keep] for one in logits]
    compare_two(logits, pair)


def compare_two(logits, pair):
    seed = torch.randn_like(logits[0])
    same(*logits)
    grads = [torch.autograd.grad(one, list(m.parameters()), seed, allow_unused=True) for one, m in zip(logits, pair)]
    for ours, theirs in zip(*grads):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            same(ours, theirs)


@pytest.mark.parametrize("name", CAUSAL)
def test_logits_and_gradients(name, forms):
    pair = models(name)
    compare(pair, input_ids=tokens())
    windows = {form.window for form, _ in forms}
    assert len(forms) == 2 and windows <= {(-1, 0), (4, 0)}  # formulas, no tables
    assert all("mask" not in given for _, given in forms)
    assert ((4, 0) in windows) == (name != "llama")
    assert all(form.sink == (name == "gpt-oss") and (form.softcap == 2.0) == (name == "gemma2") for form, _ in forms)


@pytest.mark.parametrize("name", CAUSAL)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding(name, side, forms):
    pair = models(name)
    live = torch.ones(2, N, dtype=torch.long, device=DEVICE)
    live[1, slice(0, 4) if side == "left" else slice(N - 4, N)] = 0
    compare(pair, keep=live.bool(), input_ids=tokens(), attention_mask=live)
    assert all("mask" in given for _, given in forms)


@pytest.mark.parametrize("name", CAUSAL)
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_step_by_step_is_the_whole(name, cache, forms):
    ours, eager = models(name)
    ids = tokens()
    is_renamed = "cache" in inspect.signature(ours.forward).parameters  # of newer ones
    cache_name = "cache" if is_renamed else "past_key_values"
    with torch.no_grad():
        whole = eager(input_ids=ids).logits
        is_dynamic = cache == "dynamic"
        made = hf.DynamicCache(config=ours.config) if is_dynamic else hf.StaticCache(ours.config, max_cache_len=20)
        parts = []
        for begin, end in [(0, 6), (6, 9), *((i, i + 1) for i in range(9, N))]:
            parts.append(ours(input_ids=ids[:, begin:end], use_cache=True, **{cache_name: made}).logits)
    same(torch.cat(parts, 1), whole)


@pytest.mark.parametrize("name", ["llama", "gpt-oss"])
def test_generate(name):
    texts = [m.generate(tokens()[:, :6], max_new_tokens=5, do_sample=False, eos_token_id=None) for m in models(name)]
    assert torch.equal(*texts)


def test_a_table_that_was_written_to_has_no_rule():
    table = torch.ones(1, 1, 4, 4, dtype=torch.bool).tril()
    table._lathe_rule = table._version, through.Rule(None, False)
    assert through._rule_of(table) is not None
    table[..., 0] = False
    assert through._rule_of(table) is None


# gpt-oss makes its masks without position_ids: sequences are apart there by starts alone.
PACKED = [(name, starts) for name in CAUSAL for starts in (False, True) if starts or name != "gpt-oss"]


@pytest.mark.parametrize("name, with_starts", PACKED)
def test_packed_sequences(name, with_starts, forms):
    """As each sequence alone."""
    ours, eager = models(name)
    lengths = (5, 2, 7)
    position_ids = torch.cat([torch.arange(n) for n in lengths])[None].to(DEVICE)
    more = {}
    if with_starts:
        starts = torch.tensor([0, 5, 7, 14], dtype=torch.int32, device=DEVICE)
        more = dict(cu_seq_lens_q=starts, cu_seq_lens_k=starts, max_length_q=7, max_length_k=7)
    together = ours(input_ids=tokens(1), position_ids=position_ids, use_cache=False, **more).logits
    alone = torch.cat([eager(input_ids=ids).logits for ids in tokens(1).split(lengths, 1)], 1)
    compare_two((together, alone), (ours, eager))
    wanted = "cu_q" if with_starts else "mask"
    assert all(wanted in given and len(given & {"cu_q", "mask"}) == 1 for _, given in forms)


def t5(implementation):
    config = hf.T5Config(vocab_size=60, d_model=64, d_kv=16, d_ff=64, num_layers=2, num_heads=4, dropout_rate=0.0,
                         decoder_start_token_id=0)  # fmt: skip
    torch.manual_seed(0)
    config._attn_implementation = implementation
    return hf.T5ForConditionalGeneration(config).to(DEVICE)


@pytest.mark.parametrize("padded", [False, True])
def test_t5_learns_its_bias(padded, forms):
    pair = [t5("lathe"), t5("eager")]
    pair[1].load_state_dict(pair[0].state_dict())
    live = torch.ones(2, N, dtype=torch.long, device=DEVICE)
    if padded:
        live[1, N - 5 :] = 0
    compare(pair, input_ids=tokens(), attention_mask=live, decoder_input_ids=tokens(2, 9))
    assert len(forms) == 6 and sum(form.learns_bias for form, _ in forms) == 4
    ours, eager = (m.eval() for m in pair)
    texts = [m.generate(tokens(), max_new_tokens=5, do_sample=False, eos_token_id=None) for m in (ours, eager)]
    assert torch.equal(*texts)


def test_a_mask_that_a_model_has_changed_is_read(forms):
    """The formula goes with the table that it describes, and with no other."""
    ours, eager = models("qwen3")
    table = torch.rand(2, 1, N, N, device=DEVICE) > 0.3
    table |= torch.eye(N, dtype=torch.bool, device=DEVICE)
    added = torch.where(table, 0.0, torch.finfo(torch.float32).min)
    same(ours(input_ids=tokens(), attention_mask=table).logits, eager(input_ids=tokens(), attention_mask=added).logits)
    same(ours(input_ids=tokens(), attention_mask=added).logits, eager(input_ids=tokens(), attention_mask=added).logits)
    assert all({"mask", "bias"} & given for _, given in forms)


def test_dropout(forms):
    config = CAUSAL["llama"]()
    config.attention_dropout = 0.5
    torch.manual_seed(0)
    model = hf.AutoModelForCausalLM.from_config(config, attn_implementation="lathe").to(DEVICE).train()
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(model(input_ids=tokens()).logits)
    assert torch.equal(results[0], results[1]) and not torch.equal(results[0], results[2])
    assert all(form.dropout for form, _ in forms)
    config = CAUSAL["gpt-oss"]()
    config.attention_dropout = 0.5
    model = hf.AutoModelForCausalLM.from_config(config, attn_implementation="lathe").to(DEVICE).train()
    with pytest.raises(lathe.UnsupportedError, match="set attention_dropout to 0"):
        model(input_ids=tokens())
