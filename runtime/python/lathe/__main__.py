"""python -m lathe: what needs Python's own eyes.

    python -m lathe

prints versions, devices, NVRTC and caches, for a report of a fault.

    python -m lathe translate FILE.py:NAME [FILE.py:NAME] [b=2 h=8 q=1024 kv=1024]

prints the spec of a score_mod, a mask_mod (or BlockMask), or one of each, as FlexAttention takes them.
"""

from __future__ import annotations

import importlib.util
import inspect
import platform
import shutil
import sys
from importlib import metadata
from pathlib import Path

from ._library import ArgumentError, LatheError, lib, text_of

_SIZES = ("b", "h", "q", "kv")


def main(words: list[str]) -> int:
    if not words or words == ["report"]:
        print(report(), end="")
        return 0
    if words[0] in ("-h", "--help", "help"):
        print(__doc__.strip())
        return 0
    if words[0] != "translate":
        print(f"python -m lathe: no command '{words[0]}'; there are `report` and `translate`", file=sys.stderr)
        return 2
    try:
        print(_translated(words[1:]), end="")
    except LatheError as error:
        print(f"lathe: {error}", file=sys.stderr)
        return 1
    return 0


def report() -> str:
    """Versions of Python's side without importing any of it, and what the library says of the machine."""
    lines = [f"python     {platform.python_version()}, {sys.executable}"]
    for name in ("numpy", "torch", "jax", "jaxlib", "transformers"):
        try:
            lines.append(f"{name:<10} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    lines += [f"package    {Path(__file__).parent}", f"tool       {shutil.which('lathe') or 'not on the PATH'}"]
    return "\n".join(lines) + "\n" + text_of(lib.lathe_report)


def _translated(words: list[str]) -> str:
    try:
        from .torch import spec_of
    except ImportError:
        raise ArgumentError("translate: mods are functions of torch, and torch is not installed") from None
    sizes = {}
    mods = {"score_mod": None, "mask_mod": None}
    for word in words:
        name, sign, value = word.partition("=")
        if sign and name in _SIZES and value.isdigit():
            sizes[name] = int(value)
            continue
        mod = _named(word)
        place = "score_mod" if _takes(mod) == 5 else "mask_mod"
        if mods[place] is not None:
            raise ArgumentError(f"translate: expected one score_mod and one mask_mod at most, given another: {word}")
        mods[place] = mod
    if not any(m is not None for m in mods.values()):
        raise ArgumentError("translate: expected FILE.py:NAME, of a score_mod or a mask_mod")
    return spec_of(**mods, **sizes)


def _named(word: str):
    """FILE.py:NAME, where NAME may have dots."""
    path, colon, name = word.rpartition(":")
    if not colon or not path.endswith(".py") or not name:
        raise ArgumentError(f"translate: expected FILE.py:NAME, or a size such as q=1024, given {word}")
    form = importlib.util.spec_from_file_location("__lathe_translate__", path)
    module = importlib.util.module_from_spec(form)
    sys.modules[form.name] = module
    try:
        form.loader.exec_module(module)
    except FileNotFoundError:
        raise ArgumentError(f"translate: no file {path}") from None
    found = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise ArgumentError(f"translate: {path} has no {name}")
        found = getattr(found, part)
    return found


def _takes(mod) -> int:
    """5 of a score_mod, 4 of a mask_mod: a function that makes a mod is none itself."""
    if hasattr(mod, "mask_mod"):
        return 4
    if callable(mod):
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        n = sum(p.kind in kinds and p.default is p.empty for p in inspect.signature(mod).parameters.values())
        if n in (4, 5):
            return n
    raise ArgumentError("translate: expected score_mod(score, b, h, q_idx, kv_idx), mask_mod(b, h, q_idx, kv_idx) or a "
                        "BlockMask; of a function that makes one, name what it returns")  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
