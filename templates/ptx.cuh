// ptx.cuh: one-instruction wrappers, sm_80 and up. Shared memory is addressed by its 32-bit shared-window
// address.
#pragma once
#include "base.cuh"

DEV u32 shared_address(const void *p)
{
    return static_cast<u32>(__cvta_generic_to_shared(p));
}

// The compiler takes x for changed here: it can neither split the computation of x nor move it out of a loop.
DEV void keep(const char *&x)
{
    asm volatile("" : "+l"(x));
}
DEV void keep(u32 &x)
{
    asm volatile("" : "+r"(x));
}

// threadIdx.x and blockIdx.x, read anew: what is computed from them is not kept from one use to the next.
DEV u32 fresh_thread()
{
    u32 x;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
    return x;
}
DEV u32 fresh_block()
{
    u32 x;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(x));
    return x;
}

// ---- cp.async: global to shared, 16 bytes a thread ------------------------------------------------------

// Copies `bytes` (16 or 0) and fills the rest of the 16 with zeros; with 0 nothing is read.
DEV void copy16_async(u32 to, const void *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
                 : "memory");
}
DEV void copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most PENDING of this thread's newest groups are still under way.
template <int PENDING> DEV void copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// ---- ldmatrix: four 8x8 matrices of 16-bit elements -----------------------------------------------------

// Lane l gives the address of row l % 8 of matrix l / 8. It gets in r[i] two elements of matrix i: row l / 4,
// columns 2 (l % 4) + {0, 1}.
DEV void load_matrix4(u32 (&r)[4], u32 address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}
// The same of the transposed matrices: rows 2 (l % 4) + {0, 1}, column l / 4 of what is stored.
DEV void load_matrix4_transposed(u32 (&r)[4], u32 address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

// ---- plain shared memory --------------------------------------------------------------------------------

DEV void store_shared(u32 address, u32 x)
{
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(x) : "memory");
}
DEV void store_shared(u32 address, float x)
{
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(x) : "memory");
}
DEV float load_shared(u32 address)
{
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
    return x;
}
DEV uint4 load_shared16(u32 address)
{
    uint4 x;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(address)
                 : "memory");
    return x;
}

// ---- mma.sync: c += a b, fp32 sums ----------------------------------------------------------------------

// With g = lane / 4 and t = lane % 4, a 16x16, b 16x8, c 16x8:
//   a[0] (g, 2t..)  a[1] (g + 8, 2t..)  a[2] (g, 2t + 8..)  a[3] (g + 8, 2t + 8..)
//   b0 (2t.., g)  b1 (2t + 8.., g)      c[2 r + j] (g + 8 r, 2t + j)
template <class T> DEV void mma_16x8x16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    static_assert(same_type<T, f16> || same_type<T, bf16>, "mma.sync takes f16 or bf16");
    if constexpr (same_type<T, f16>) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    } else {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
}
