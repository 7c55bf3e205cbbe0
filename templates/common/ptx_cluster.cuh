// common/ptx_cluster.cuh: one-instruction wrappers for clusters of SIZE blocks (sm_90 and up), beside common/ptx.cuh.
// tests/emulate has the same list.
//
// Blocks hand each other words through an exchange: an mbarrier of the receiving block, in shared memory like the
// words, which counts bytes. A cluster barrier would do, but it waits until all that its threads have stored anywhere
// has arrived.
#pragma once
#include "common/ptx.cuh"

// Every thread of every block of the cluster.
template <int SIZE> DEV void cluster_barrier()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\n\t"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}

// By one thread, ahead of a cluster barrier that comes before the first push.
DEV void exchange_init(u32 exchange)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n\t"
                 "fence.mbarrier_init.release.cluster;" ::"r"(exchange)
                 : "memory");
}

// By one thread: so many bytes come in this phase.
DEV void exchange_expect(u32 exchange, u32 bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(exchange), "r"(bytes) : "memory");
}

// A word goes to `address` of block `rank`, and counts at its exchange; both are said as those of this block.
template <int SIZE> DEV void exchange_push(u32 address, float x, u32 exchange, u32 rank)
{
    asm volatile(
        "{\n\t.reg .u32 there, counter;\n\t"
        "mapa.shared::cluster.u32 there, %0, %3;\n\t"
        "mapa.shared::cluster.u32 counter, %2, %3;\n\t"
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [there], %1, [counter];\n\t}" ::"r"(address),
        "f"(x), "r"(exchange), "r"(rank)
        : "memory");
}

// Every thread of the block: until the phase is over; its parity is 0 for the first one.
template <int SIZE> DEV void exchange_wait(u32 exchange, u32 parity)
{
    asm volatile("{\n\t.reg .pred over;\n\t"
                 "again_%=:\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n\t"
                 "@!over bra again_%=;\n\t}" ::"r"(exchange),
                 "r"(parity)
                 : "memory");
}
