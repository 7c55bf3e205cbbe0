"""Optimizers of lathe.torch beside those of torch: steps, states that are saved and loaded, what is refused."""

import copy
import math

import lathe
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
import lathe.torch  # noqa: E402


def same(given, wanted, error=1e-10):
    torch.testing.assert_close(given, wanted, rtol=error, atol=error)


def model_and_twin():
    torch.manual_seed(5)
    make = lambda: torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3)).double()
    first, second = make(), make()
    second.load_state_dict(first.state_dict())
    return first, second


def train(model, optimizer, steps=4):
    torch.manual_seed(6)
    for _ in range(steps):
        optimizer.zero_grad()
        (model(torch.randn(4, 7, dtype=torch.float64)) ** 2).sum().backward()
        optimizer.step()


def test_adamw_is_that_of_torch():
    ours, theirs = model_and_twin()
    options = dict(lr=0.05, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)
    train(ours, lathe.torch.AdamW(ours.parameters(), **options))
    train(theirs, torch.optim.AdamW(theirs.parameters(), **options))
    for a, b in zip(ours.parameters(), theirs.parameters()):
        same(a, b)


def test_lion_by_its_formula():
    ours, theirs = model_and_twin()
    train(ours, lathe.torch.Lion(ours.parameters(), lr=0.01, weight_decay=0.1))
    momenta = [torch.zeros_like(p) for p in theirs.parameters()]
    torch.manual_seed(6)
    for _ in range(4):
        theirs.zero_grad()
        (theirs(torch.randn(4, 7, dtype=torch.float64)) ** 2).sum().backward()
        with torch.no_grad():
            for p, m in zip(theirs.parameters(), momenta):
                step = (0.9 * m + 0.1 * p.grad).sign()
                p.mul_(1 - 0.01 * 0.1).sub_(0.01 * step)
                m.mul_(0.99).add_(0.01 * p.grad)
    for a, b in zip(ours.parameters(), theirs.parameters()):
        same(a, b)


def test_optimizers_keep_their_state_and_take_a_schedule():
    ours, theirs = model_and_twin()
    options = dict(lr=0.05, weight_decay=0.0)
    first = lathe.torch.AdamW(ours.parameters(), **options)
    second = torch.optim.AdamW(theirs.parameters(), **options)
    for optimizer, model in ((first, ours), (second, theirs)):
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        train(model, optimizer, 2)
        schedule.step()
        train(model, optimizer, 2)
    again = lathe.torch.AdamW(ours.parameters(), **options)
    again.load_state_dict(first.state_dict())
    train(ours, again, 1)
    train(theirs, second, 1)
    for a, b in zip(ours.parameters(), theirs.parameters()):
        same(a, b)


def test_large_parameters_are_several_entries_of_a_list(monkeypatch):
    """As parameters of more than 2^30 elements are: an entry's length is an i32."""
    monkeypatch.setattr(lathe.torch.optim, "ENTRY_ELEMENTS", 7)
    shapes = [(3, 5), (7,), (0,), (2, 11), (1,)]
    ours, theirs = ([torch.nn.Parameter(torch.arange(math.prod(s)).float().reshape(s)) for s in shapes] for _ in "ab")
    optimizers = [lathe.torch.AdamW(ours, lr=0.01), torch.optim.AdamW(theirs, lr=0.01)]
    for _ in range(3):
        for a, b in zip(ours, theirs, strict=True):
            a.grad = torch.randn_like(a)  # another address each time
            b.grad = a.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


def test_moments_of_another_dtype():
    p = torch.nn.Parameter(torch.ones(5, dtype=torch.bfloat16))
    optimizer = lathe.torch.AdamW([p], lr=0.1, state_dtype=torch.float32, weight_decay=0.0)
    p.grad = torch.full_like(p, 0.5)
    optimizer.step()
    assert optimizer.state[p]["exp_avg"].dtype == torch.float32
    same(p.detach().float(), torch.full((5,), 0.8984375), 0)  # 1 - 0.1, in bf16


# ---- what changes between steps --------------------------------------------------------------------------------------

OPTIONS = dict(lr=0.1, weight_decay=0.01)
KINDS = {"ours": lathe.torch.AdamW, "torch's": torch.optim.AdamW}


def by_both(run):
    """What run(optimizer class) gives with ours and with torch's."""
    same(run(lathe.torch.AdamW), run(torch.optim.AdamW))


def waves(p, shift):
    return (torch.arange(p.numel(), dtype=torch.float64).view(p.shape) + shift).sin()


def test_steps_of_f32_are_as_near_as_those_of_torch():
    def run(kind, dtype):
        generator = torch.Generator().manual_seed(1)
        p = torch.nn.Parameter(torch.zeros(500, dtype=dtype))
        optimizer = kind([p], lr=0.1, weight_decay=0.0)
        for _ in range(5):
            p.grad = torch.randn(500, generator=generator).to(dtype)
            optimizer.step()
        return p.detach().double()

    wanted = run(torch.optim.AdamW, torch.float64)
    same(run(lathe.torch.AdamW, torch.float32), wanted, 3e-7)  # 3e-6, where 1 - beta2 and its power were of two betas


def test_moments_are_laid_as_a_parameter_that_is_laid_anew():
    def run(kind):
        p = torch.nn.Parameter(torch.linspace(-1, 1, 120, dtype=torch.float64).view(2, 3, 4, 5))
        optimizer = kind([p], **OPTIONS)
        p.grad = waves(p, 0)
        optimizer.step()
        turned = torch.nn.Parameter(p.detach().to(memory_format=torch.channels_last))
        other = kind([turned], **OPTIONS)
        other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        turned.grad = waves(p, 1)
        other.step()
        p.data = p.data.to(memory_format=torch.channels_last)  # as module.to(memory_format=...)
        p.grad = waves(p, 1)
        optimizer.step()
        return torch.stack((turned.detach(), p.detach()))

    by_both(run)


def test_a_parameter_of_another_size():
    def run(kind, state=True):
        p = torch.nn.Parameter(torch.ones(4, dtype=torch.float64))
        optimizer = kind([p], **OPTIONS)
        p.grad = waves(p, 0)
        optimizer.step()
        p.data = torch.ones(9000, dtype=torch.float64)
        if state:
            for name in ("exp_avg", "exp_avg_sq"):
                optimizer.state[p][name] = torch.ones(9000, dtype=torch.float64)
        p.grad = waves(p, 1)
        optimizer.step()
        return p.detach()

    by_both(run)
    with pytest.raises(lathe.ArgumentError, match=r"expected exp_avg of shape \(9000,\) on cpu, .* given \(4,\)"):
        run(lathe.torch.AdamW, state=False)
    p = torch.nn.Parameter(torch.ones(4))
    p.grad = torch.ones(4)
    p.data = torch.ones(9000)
    with pytest.raises(lathe.ArgumentError, match=r"expected a gradient of shape \(9000,\)"):
        lathe.torch.AdamW([p]).step()


def test_gradients_of_any_strides_and_signs():
    def run(kind):
        p = torch.nn.Parameter(torch.ones(3, 4, dtype=torch.float64))
        optimizer = kind([p], **OPTIONS)
        gradients = [waves(p, 0).t().contiguous().t(), torch.ones((), dtype=torch.float64).expand(3, 4),
                     torch._neg_view(waves(p, 2)), waves(p, 3)[:, :1].expand(3, 4)]  # fmt: skip
        for p.grad in gradients:
            optimizer.step()
        return p.detach()

    by_both(run)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_autograd_sees_that_parameters_have_changed(kind):
    p = torch.nn.Parameter(torch.ones(3))
    y = p.square().sum()
    y.backward(retain_graph=True)
    kind([p], **OPTIONS).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


# ---- states from elsewhere -------------------------------------------------------------------------------------------


def test_loaded_moments_keep_their_digits():
    def make(state=None):
        p = torch.nn.Parameter(torch.ones(5, dtype=torch.bfloat16))
        optimizer = lathe.torch.AdamW([p], lr=0.1, state_dtype=torch.float32)
        if state:
            optimizer.load_state_dict(state)
        return p, optimizer

    p, first = make()
    p.grad = torch.linspace(1e-3, 1e-2, 5).bfloat16()
    first.step()
    twin, second = make(copy.deepcopy(first.state_dict()))
    for name in ("exp_avg", "exp_avg_sq"):
        given = second.state[twin][name]
        assert given.dtype == torch.float32 and given.data_ptr() != first.state[p][name].data_ptr()
        same(given, first.state[p][name], 0)


def test_states_go_from_torch_to_ours_and_back():
    for first, then in ((torch.optim.AdamW, lathe.torch.AdamW), (lathe.torch.AdamW, torch.optim.AdamW)):
        p = torch.nn.Parameter(torch.ones(5, dtype=torch.float64))
        optimizer = first([p], **OPTIONS)
        p.grad = waves(p, 0)
        optimizer.step()
        twin = torch.nn.Parameter(p.detach().clone())
        other = then([twin])
        other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        p.grad = twin.grad = waves(p, 1)
        optimizer.step()
        other.step()
        same(twin, p)


@pytest.mark.parametrize("kind, options, wanted", [
    (torch.optim.AdamW, dict(maximize=True), "maximize is not served"),
    (torch.optim.AdamW, dict(amsgrad=True), "amsgrad is not served"),
    (torch.optim.Adam, dict(weight_decay=0.1), "added to the gradient .* is not served"),
    (torch.optim.SGD, dict(momentum=0.9), "expected a state with step, given one with momentum_buffer"),
])  # fmt: skip
def test_states_that_ask_for_another_rule_are_refused(kind, options, wanted):
    p = torch.nn.Parameter(torch.ones(5))
    p.grad = torch.ones(5)
    optimizer = kind([p], lr=0.1, **options)
    optimizer.step()
    ours = lathe.torch.AdamW([p])
    with pytest.raises((lathe.UnsupportedError, lathe.ArgumentError), match=wanted):
        ours.load_state_dict(optimizer.state_dict())


@pytest.mark.parametrize("options, wanted", [
    (dict(lr=math.nan), "lr and weight_decay >= 0, given nan"),
    (dict(weight_decay=-0.1), "lr and weight_decay >= 0, given 0.001 and -0.1"),
    (dict(eps=math.nan), "eps >= 0, given nan"),
    (dict(betas=(0.9, 1.0)), r"betas from 0 to below 1, given \(0.9, 1.0\)"),
    (dict(betas=(-0.1, 0.9)), "betas from 0 to below 1"),
])  # fmt: skip
def test_numbers_that_make_no_step_are_refused(options, wanted):
    with pytest.raises(lathe.ArgumentError, match=wanted):
        lathe.torch.AdamW([torch.nn.Parameter(torch.ones(3))], **options)


# ---- memory and groups -----------------------------------------------------------------------------------------------


def parameters_of(*tensors):
    made = [torch.nn.Parameter(t) for t in tensors]
    for p in made:
        p.grad = torch.ones_like(p)
    return made


OURS = pytest.mark.parametrize("kind", [lathe.torch.AdamW, lathe.torch.Lion])


@OURS
def test_parameters_that_share_memory_are_refused(kind):
    """A launch steps all tensors at once: a tied weight that is given as two views would be stepped by both."""
    base = torch.ones(4, 8, dtype=torch.float64)
    for views in ((base, base.view(32)), (base, base.t()), (base.view(32)[:20], base.view(32)[19:]),
                  (base.view(32), base.view(torch.float32))):  # fmt: skip
        one, other = parameters_of(*views)
        for groups in ([one, other], [{"params": [one]}, {"params": [other], "lr": 0.1}]):
            before = base.clone()
            optimizer = kind(groups)
            with pytest.raises(lathe.ArgumentError, match="that have some in common; weights that are tied are given"):
                optimizer.step()
            same(base, before, 0)
            assert optimizer.state[one]["step"] == 0
    both = parameters_of(base.view(32)[:20], base.view(32)[20:])  # beside each other, as in one flat tensor
    kind(both, lr=0.1).step()
    with pytest.raises(lathe.ArgumentError, match="some in common"):  # another address than that of the first step
        optimizer = kind(parameters_of(base, base.clone()), lr=0.1)
        optimizer.step()
        optimizer.param_groups[0]["params"][1].data = base
        optimizer.step()


@OURS
def test_moments_and_gradients_that_share_memory_are_refused(kind):
    p, other = parameters_of(torch.ones(8), torch.ones(8))
    optimizer = kind([p, other])
    optimizer.step()
    p.grad = other.grad  # read alone
    optimizer.step()
    optimizer.state[other]["exp_avg"] = optimizer.state[p]["exp_avg"]
    with pytest.raises(lathe.ArgumentError, match="given exp_avg of shape .8,. and exp_avg of shape"):
        optimizer.step()
    (p,) = parameters_of(torch.ones(8))
    p.grad = p.detach()
    with pytest.raises(lathe.ArgumentError, match="'p': expected tensors with memory of their own, .* tensor 0 of 'g'"):
        kind([p]).step()


@OURS
@pytest.mark.parametrize("options, wanted", [
    (dict(lr=-0.1), "lr and weight_decay >= 0, given -0.1"),
    (dict(betas=(0.9, 1.0)), r"betas from 0 to below 1, given \(0.9, 1.0\)"),
    (dict(maximize=True), "maximize is not served"),
    (dict(amsgrad=True), "amsgrad is not served"),
])  # fmt: skip
def test_groups_that_ask_for_another_rule_are_refused(kind, options, wanted):
    one, other = parameters_of(torch.ones(3), torch.ones(3))
    with pytest.raises(lathe.LatheError, match=wanted):
        kind([{"params": [one], **options}])
    optimizer = kind([one])
    with pytest.raises(lathe.LatheError, match=wanted):
        optimizer.add_param_group({"params": [other], **options})
    assert len(optimizer.param_groups) == 1
    if "maximize" in options:
        optimizer.param_groups[0].update(options)
        with pytest.raises(lathe.UnsupportedError, match=wanted):
            optimizer.step()


@pytest.mark.parametrize("spec", ["adamw", "lion", "adamw_master"])
def test_lists_are_none_of_a_function(spec):
    """Whose tensors would be read as arrays of addresses."""
    with pytest.raises(lathe.ArgumentError, match=f"'g': {spec} takes lists of tensors, as arrays of pointers"):
        lathe.torch.wrap(spec)


def test_parameters_without_data_are_refused():
    with pytest.raises(lathe.ArgumentError, match="parameters on a CPU or a CUDA device, given one on meta"):
        lathe.torch.AdamW(parameters_of(torch.ones(3, device="meta"))).step()


def test_parameters_that_are_sharded(tmp_path):
    """A DTensor is stepped by the elements that a rank has; a gradient that lies otherwise is brought there."""
    distributed = pytest.importorskip("torch.distributed")
    tensor = pytest.importorskip("torch.distributed.tensor")
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        mesh = distributed.device_mesh.init_device_mesh("cpu", (1,))

        def run(kind):
            whole = torch.linspace(-1, 1, 24, dtype=torch.float64).view(6, 4)
            p = torch.nn.Parameter(tensor.distribute_tensor(whole, mesh, [tensor.Shard(0)]))
            optimizer = kind([p], **OPTIONS)
            for shift in range(3):
                grad = waves(whole, shift)
                p.grad = tensor.DTensor.from_local(grad, mesh, [tensor.Shard(0) if shift else tensor.Partial()])
                optimizer.step()
                optimizer.load_state_dict(optimizer.state_dict())
            assert isinstance(optimizer.state[p]["exp_avg"], tensor.DTensor)
            return p.detach().full_tensor()

        by_both(run)
        p = torch.nn.Parameter(tensor.distribute_tensor(torch.ones(4), mesh, [tensor.Shard(0)]))
        y = p.square().sum()
        y.backward(retain_graph=True)
        optimizer = lathe.torch.AdamW([p])
        optimizer.step()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward()
    finally:
        distributed.destroy_process_group()
