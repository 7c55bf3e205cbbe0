"""lathe.draw: the numbers of pictures; the pictures themselves where matplotlib is installed."""

import lathe
import numpy as np
import pytest
from lathe import draw


def test_weights_of_a_mask():
    w = draw.weights(lathe.load("causal"), 5, 2)
    wanted = np.tril(np.ones((5, 5))) / np.arange(1, 6)[:, None]
    np.testing.assert_allclose(w, np.broadcast_to(wanted, (2, 5, 5)), atol=1e-12)


def test_weights_of_a_score():
    w = draw.weights(lathe.load("alibi"), 6, 2)
    at = np.arange(6)
    for head, slope in enumerate((2.0**-4, 2.0**-8)):
        scores = np.where(at[:, None] >= at, -slope * (at[:, None] - at), -np.inf)
        weights = np.exp(scores)
        np.testing.assert_allclose(w[head], weights / weights.sum(-1, keepdims=True), atol=1e-9)


def test_decay_of_linear_attention():
    w = draw.weights(lathe.load("lightning"), 4, 2)
    at = np.arange(4)
    for head in range(2):
        decay = np.exp(-8.0 * head / 2 * (at[:, None] - at))
        np.testing.assert_allclose(w[head], np.tril(decay), atol=1e-9)


def test_inputs_are_given_by_name():
    w = draw.weights(lathe.load("prefix_lm"), 4, 1, prefix=np.array([3], np.int32))
    assert (w[0] != 0).tolist() == [[True] * 3 + [False]] * 3 + [[True] * 4]
    with pytest.raises(lathe.ArgumentError, match="prefix"):
        draw.weights(lathe.load("prefix_lm"), 4, 1)
    with pytest.raises(lathe.ArgumentError, match="pictures are of attention"):
        draw.weights(lathe.load("rms_norm"), 4, 1)


def test_a_picture(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    figure = lathe.load("alibi").draw(16, 3)
    assert figure.get_suptitle() == "alibi: 408 of 768 pairs are live"
    figure.savefig(tmp_path / "alibi.png")
    assert (tmp_path / "alibi.png").read_bytes().startswith(b"\x89PNG")
