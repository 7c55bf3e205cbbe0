"""lathe.draw: the numbers of pictures; the pictures themselves where matplotlib is installed."""

import json
import os
import struct
import subprocess
import zlib

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
    with pytest.raises(lathe.ArgumentError, match="pictures are of attention"):
        draw.weights(lathe.load("rms_norm"), 4, 1)
    inputs = "inputs = { keys = scalar('f32') }, score_mod = function(s, _, x) return s * x.keys end"
    with pytest.raises(lathe.ArgumentError, match="has an input 'keys', an argument of draw"):
        draw.weights(lathe.compile("return attention { " + inputs + " }"), 4, 1)


def test_blocks_are_drawn():
    w = draw.weights(lathe.load("block_mask", BLOCK=4), 16, 2) != 0
    blocks = w.reshape(2, 4, 4, 4, 4).swapaxes(2, 3)
    assert (blocks.all((3, 4)) == blocks.any((3, 4))).all()  # whole blocks are live or dead
    assert 0 < w.mean() < 1
    live = np.ones((1, 1, 4, 4), np.int32)
    live[..., 0] = 0
    w = draw.weights(lathe.load("block_mask", BLOCK=4), 16, 1, live=live)
    assert not w[..., :4].any() and (w[..., 4:] == 1 / 12).all()


@pytest.mark.parametrize("name", ["mla", "mla_decoupled"])
def test_values_that_lie_in_keys(name):
    wanted = draw.weights(lathe.load("causal"), 5, 2)
    np.testing.assert_allclose(draw.weights(lathe.load(name), 5, 2), wanted, atol=1e-12)


def test_weights_that_are_0_where_scores_are():
    np.testing.assert_allclose(draw.weights(lathe.load("relu"), 4, 2), 0.25)
    assert draw.weights(lathe.load("retention"), 4, 2)[0][np.tril_indices(4)].all()


def test_a_picture(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    figure = lathe.load("alibi").draw(16, 3)
    assert figure.get_suptitle() == "alibi: 408 of 768 pairs are live"
    figure.savefig(tmp_path / "alibi.png")
    assert (tmp_path / "alibi.png").read_bytes().startswith(b"\x89PNG")


def png(path):
    """The pixels [height, width, 3] of a PNG with a palette."""
    data, at, idat, palette = path.read_bytes(), 8, b"", None
    while at < len(data):
        size, name = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + size]
        if name == b"IHDR":
            width, height, depth, kind = struct.unpack(">IIBB", body[:10])
        palette = np.frombuffer(body, np.uint8).reshape(-1, 3) if name == b"PLTE" else palette
        idat += body if name == b"IDAT" else b""
        at += size + 12
    assert (depth, kind) == (8, 3)
    lines = np.frombuffer(zlib.decompress(idat), np.uint8).reshape(height, width + 1)
    assert not lines[:, 0].any(), "rows are not filtered"
    return palette[lines[:, 1:]]


@pytest.mark.skipif("LATHE_TOOL" not in os.environ, reason="LATHE_TOOL does not name the tool lathe")
def test_the_tool_draws_the_same(tmp_path):
    tool = [os.environ["LATHE_TOOL"], "draw", "alibi", "--problem", "h=2,q=64,d=16"]
    said = subprocess.run([*tool, "--json"], capture_output=True, text=True, check=True)
    shown = [p for p in json.loads(said.stdout)["panels"] if p["form"] == "weights"]
    w = draw.weights(lathe.load("alibi"), 64, 2)
    assert len(shown) == 2
    np.testing.assert_allclose([shown[0]["least"], shown[0]["most"]], [w[w != 0].min(), w.max()], rtol=1e-6)
    drawn = subprocess.run([*tool, "-o", str(tmp_path / "alibi.png")], capture_output=True, text=True)
    if "without libpng" in drawn.stderr:
        pytest.skip("lathe was built without libpng")
    picture = png(tmp_path / "alibi.png")
    live = np.tril(np.ones((64, 64), bool))
    for x, y, colours in ((74, 68, 1), (74 + 352, 68, None), (74, 68 + 386, None)):  # live pairs, tiles, scores
        cells = picture[y + 1 : y + 257 : 4, x + 1 : x + 257 : 4]
        if x > 74:  # a tile of 64 x 64 or more: some
            assert (cells[live] == (222, 126, 32)).all() and (cells[~live] == (250, 222, 184)).all()
        else:
            assert (cells[~live] == 255).all() and (cells[live] != 255).any(-1).all()
            assert colours is None or len(np.unique(cells[live], axis=0)) == colours
