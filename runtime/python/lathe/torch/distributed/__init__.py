"""Specs over the ranks of a process group: sequences, heads and caches that are cut.

    import lathe, lathe.torch.distributed as ld
    attend = ld.wrap("causal", mesh["cp"], layout="bshd")   # a ProcessGroup or a DeviceMesh of one dim
    o = attend(q, k, v)                                     # own tokens in and out; o.sum().backward()
    print(attend.explain(q, k, v))                          # the scheme, what is sent, and why

What each rank computes is an ordinary call that knows its place among all (h_start, kv_start, q_start), so every mask,
score, sink and dropout goes across ranks; what is sent goes by torch.distributed (NCCL, gloo).
"""

from ._call import Sharded, wrap
from ._tokens import gather, shard

__all__ = ["Sharded", "gather", "shard", "wrap"]
