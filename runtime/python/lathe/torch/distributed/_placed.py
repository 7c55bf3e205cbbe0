"""DTensors: their placements say which ranks have which tokens and heads."""

from __future__ import annotations

import sys

from ... import _library as c


def of_tensors(function, args, named):
    """None where no argument is a DTensor."""
    module = sys.modules.get("torch.distributed.tensor")
    if module is None or not any(isinstance(x, module.DTensor) for x in (*args, *named.values())):
        return None
    raise c.ArgumentError(f"{function.op.name}: a DTensor, which is not taken yet; give to_local()")
