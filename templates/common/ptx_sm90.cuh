// common/ptx_sm90.cuh: one-instruction wrappers that need sm_90a: mbarriers, TMA, wgmma, register hand-over. With
// common/ptx.cuh the only files with asm in them. tests/emulate/common/ptx_sm90.cuh is the same list in C++ for the
// host: keep them alike.
#pragma once
#include "common/ptx.cuh"

// What cuTensorMapEncodeTiled writes: a tensor in global memory and the box that one load takes from it.
struct alignas(64) tensor_map {
    unsigned char opaque[128];
};

// ---- who a thread is ---------------------------------------------------------------------------------

DEV bool elect_one() // true in one thread of the warp, which must be whole
{
    u32 chosen;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(chosen));
    return chosen != 0;
}

// Registers of a thread from here on; by all warps of a warpgroup, once.
template <int REGISTERS> DEV void registers_down()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS> DEV void registers_up()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// As barrier_sync, and whether `vote` is true in any of them.
DEV bool barrier_any(u32 id, u32 threads, bool vote)
{
    u32 any;
    asm volatile("{\n.reg .pred p, q;\nsetp.ne.u32 p, %1, 0;\nbar.red.or.pred q, %2, %3, p;\nselp.u32 %0, 1, 0, q;\n}"
                 : "=r"(any)
                 : "r"(static_cast<u32>(vote)), "r"(id), "r"(threads)
                 : "memory");
    return any != 0;
}

// ---- mbarriers: 8 bytes of shared memory each --------------------------------------------------------

// A phase ends when `arrivals` have come and all bytes that were announced; then the next begins.
DEV void mbarrier_init(u32 barrier, u32 arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// After the inits and ahead of the block's barrier: TMA sees them too.
DEV void mbarrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEV void mbarrier_arrive(u32 barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives, and announces bytes that TMA will bring in this phase.
DEV void mbarrier_arrive_expect(u32 barrier, u32 bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Arrives once all that this thread has copied by copy16_async so far is there; who waits fences ahead of wgmma
// (fence_async_proxy).
DEV void mbarrier_arrive_copies(u32 barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
// Until the phase of this parity is over: 0 for the first phase. Parity 1 passes at once on a fresh barrier.
DEV void mbarrier_wait(u32 barrier, u32 parity)
{
    asm volatile(
        "{\n.reg .pred p;\nagain_%=:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra again_%=;\n}" ::
            "r"(barrier),
        "r"(parity)
        : "memory");
}

// Whether it is over by now, or becomes so while the hardware looks on.
DEV bool mbarrier_try(u32 barrier, u32 parity)
{
    u32 over;
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(over)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return over != 0;
}

// ---- waits that say what they wait for and stop the kernel, instead of hanging it --------------------

DEV u64 nanoseconds()
{
    u64 x;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(x));
    return x;
}
// A line of each warp that waits: its block, rank in the cluster and number; `place`: an offset in shared memory, or a
// word of global memory.
template <class = void> static __device__ __noinline__ void say_stuck(const char *what, u64 place, u32 value)
{
    const u32 lanes = __activemask();
    if ((lanes & ((1u << threadIdx.x % 32) - 1)) == 0) {
        printf("waits for ever: block %u, rank %u, warp %u, lanes %08x: %s, at %llx, parity or turn %u\n", blockIdx.x,
               cluster_rank(), threadIdx.x / 32, lanes, what, place, value);
    }
}
struct patience {
    static constexpr u64 SPAN = 2000000000;
    u64 since = 0;
    __device__ __forceinline__ void spend(const char *what, u64 place, u32 value)
    {
        const u64 now = nanoseconds();
        since = since == 0 ? now : since;
        if (now - since > SPAN) {
            say_stuck(what, place, value);
            while (nanoseconds() - now < SPAN) { // for the others to say so, too
            }
            asm volatile("trap;");
        }
    }
};
DEV void mbarrier_wait_bounded(u32 barrier, u32 parity, const char *what)
{
    patience left;
    while (!mbarrier_try(barrier, parity)) {
        left.spend(what, barrier & 0xffffff, parity);
    }
}
DEV void wait_turn_bounded(const u32 *p, u32 turn, const char *what)
{
    patience left;
    u32 x;
    while (true) {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
        if (x == turn) {
            break;
        }
        left.spend(what, reinterpret_cast<u64>(p), turn);
    }
}

// ---- TMA: boxes of a tensor to shared memory ---------------------------------------------------------

constexpr u64 L2_STREAM = 0x12F0000000000000ull; // evict first: read once
constexpr u64 L2_KEEP = 0x14F0000000000000ull;   // evict last: read again by other blocks

// The box at (x, y, z, w), first dim first, to `to`; its bytes, all of them, arrive at `barrier`. Elements outside of
// the tensor are 0. By one thread.
DEV void tma_load(u32 to, const tensor_map *map, u32 barrier, int x, int y, int z, int w, u64 l2)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
                 "[%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w), "l"(l2)
                 : "memory");
}
// The same of a tensor of five dims.
DEV void tma_load5(u32 to, const tensor_map *map, u32 barrier, int x, int y, int z, int w, int v, u64 l2)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
                 "[%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v), "l"(l2)
                 : "memory");
}

// The box at (x, y, z, w) from `from`; elements outside of the tensor are left out. By one thread, which then commits
// and waits.
DEV void tma_store(const tensor_map *map, u32 from, int x, int y, int z, int w)
{
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
                 "r"(from), "r"(x), "r"(y), "r"(z), "r"(w)
                 : "memory");
}
DEV void tma_store5(const tensor_map *map, u32 from, int x, int y, int z, int w, int v)
{
    asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(map),
                 "r"(from), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v)
                 : "memory");
}

// `bytes` from global memory to shared memory in a line: multiples of 16, as are both addresses. By one thread.
DEV void tma_load_line(u32 to, const void *from, u32 bytes, u32 barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

// Adds floats of shared memory to global memory, each atomically: a group of one thread's stores and additions is
// closed by tma_commit. tma_wait_read: until at most PENDING groups have not yet read; tma_wait: until at most PENDING
// are not yet there for all.
DEV void tma_add_line(float *to, u32 from, u32 bytes, u64 l2)
{
    asm volatile(
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.L2::cache_hint.add.f32 [%0], [%1], %2, %3;" ::"l"(to),
        "r"(from), "r"(bytes), "l"(l2)
        : "memory");
}
// The same, but stores them.
DEV void tma_store_line(float *to, u32 from, u32 bytes, u64 l2)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;" ::"l"(to), "r"(from),
                 "r"(bytes), "l"(l2)
                 : "memory");
}
DEV void tma_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int PENDING> DEV void tma_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}
template <int PENDING> DEV void tma_wait() { asm volatile("cp.async.bulk.wait_group %0;" ::"n"(PENDING) : "memory"); }

// Ordinary writes to shared memory before it are seen by wgmma and TMA after the next barrier; by every thread that
// wrote.
DEV void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// What this thread's bulk operations, waited for, have written to global memory comes before what it writes there next.
DEV void fence_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

// ---- stmatrix ----------------------------------------------------------------------------------------

// The reverse of load_matrix4 (common/ptx.cuh): each lane's address is of a row of 16 bytes; transposed: the fragments'
// columns become rows.
DEV void store_matrix4(u32 address, const u32 (&r)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r[0]),
                 "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}
DEV void store_matrix4_transposed(u32 address, const u32 (&r)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r[0]),
                 "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

// ---- wgmma: four warps, m64nNk16, fp32 sums ----------------------------------------------------------

// With g = lane / 4 and t = lane % 4: d[b][2 r + j] is row 16 (warp % 4) + g + 8 r, column 8 b + 2 t + j. A in
// registers: as mma.sync's a (common/ptx.cuh), rows likewise. A and B in shared memory: 64-bit descriptors; A is stored
// [row][k], or [k][row] where A_TURNED; B [n][k], or [k][n] where B_TURNED.
template <int N> struct wgmma;
DEV void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Registers of d, eight at a time: their names in the text, and the operands.
#define WGMMA_D16  "%0, %1, %2, %3, %4, %5, %6, %7"
#define WGMMA_D32  WGMMA_D16 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define WGMMA_D48  WGMMA_D32 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define WGMMA_D64  WGMMA_D48 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_D80  WGMMA_D64 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define WGMMA_D96  WGMMA_D80 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define WGMMA_D112 WGMMA_D96 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define WGMMA_D128 WGMMA_D112 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_D144 WGMMA_D128 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define WGMMA_D160 WGMMA_D144 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define WGMMA_D176 WGMMA_D160 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define WGMMA_D192 WGMMA_D176 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define WGMMA_D208 WGMMA_D192 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define WGMMA_D224 WGMMA_D208 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define WGMMA_D240 WGMMA_D224 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define WGMMA_D256 WGMMA_D240 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define WGMMA_PAIR(b)                                                                                                  \
    "+f"(d[b][0]), "+f"(d[b][1]), "+f"(d[b][2]), "+f"(d[b][3]), "+f"(d[b + 1][0]), "+f"(d[b + 1][1]),                  \
        "+f"(d[b + 1][2]), "+f"(d[b + 1][3])
#define WGMMA_R16  WGMMA_PAIR(0)
#define WGMMA_R32  WGMMA_R16, WGMMA_PAIR(2)
#define WGMMA_R48  WGMMA_R32, WGMMA_PAIR(4)
#define WGMMA_R64  WGMMA_R48, WGMMA_PAIR(6)
#define WGMMA_R80  WGMMA_R64, WGMMA_PAIR(8)
#define WGMMA_R96  WGMMA_R80, WGMMA_PAIR(10)
#define WGMMA_R112 WGMMA_R96, WGMMA_PAIR(12)
#define WGMMA_R128 WGMMA_R112, WGMMA_PAIR(14)
#define WGMMA_R144 WGMMA_R128, WGMMA_PAIR(16)
#define WGMMA_R160 WGMMA_R144, WGMMA_PAIR(18)
#define WGMMA_R176 WGMMA_R160, WGMMA_PAIR(20)
#define WGMMA_R192 WGMMA_R176, WGMMA_PAIR(22)
#define WGMMA_R208 WGMMA_R192, WGMMA_PAIR(24)
#define WGMMA_R224 WGMMA_R208, WGMMA_PAIR(26)
#define WGMMA_R240 WGMMA_R224, WGMMA_PAIR(28)
#define WGMMA_R256 WGMMA_R240, WGMMA_PAIR(30)

// Four products are one asm statement where their descriptors are as far from each other: the compiler passes d through
// each statement register by register, which took a tenth of its time.
#define WGMMA_TEXT(N, TYPE, A, B, REST)                                                                                \
    "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" WGMMA_D##N "}, " A ", " B ", p, 1, 1, " REST  \
                                                                                    ";\n"
#define WGMMA_OPEN(SUM)           "{\n.reg .pred p;\n.reg .b64 a, b;\nsetp.ne.b32 p, " SUM ", 0;\n"
#define WGMMA_ON                  "setp.ne.b32 p, 1, 0;\n"
#define WGMMA_FENCE               "wgmma.fence.sync.aligned;\n"
#define WGMMA_FROM(X, FROM, STEP) "add.s64 " X ", " FROM ", " STEP ";\n"
#define WGMMA_SS(N, TYPE, A, B, SUM, TA, TB)                                                                           \
    asm volatile(WGMMA_OPEN(SUM) WGMMA_TEXT(N, TYPE, A, B, TA ", " TB) "}"                                             \
                 : WGMMA_R##N                                                                                          \
                 : "l"(a), "l"(b), "r"(sum), "n"(static_cast<int>(A_TURNED)), "n"(static_cast<int>(B_TURNED)))
#define WGMMA_SS_NEXT(N, TYPE, A, B, TA, TB, AS, BS)                                                                   \
    WGMMA_FROM("a", A, AS) WGMMA_FROM("b", B, BS) WGMMA_TEXT(N, TYPE, "a", "b", TA ", " TB)
#define WGMMA_SS4(N, TYPE, BEGIN, A, B, SUM, TA, TB, A1, A2, A3, B1, B2, B3)                                           \
    asm volatile(BEGIN WGMMA_OPEN(SUM) WGMMA_TEXT(N, TYPE, A, B, TA ", " TB)                                           \
                     WGMMA_ON WGMMA_SS_NEXT(N, TYPE, A, B, TA, TB, A1, B1)                                             \
                         WGMMA_SS_NEXT(N, TYPE, A, B, TA, TB, A2, B2) WGMMA_SS_NEXT(N, TYPE, A, B, TA, TB, A3, B3) "}" \
                 : WGMMA_R##N                                                                                          \
                 : "l"(a), "l"(b), "r"(sum), "n"(static_cast<int>(A_TURNED)), "n"(static_cast<int>(B_TURNED)),         \
                   "n"(A_STEP), "n"(2 * A_STEP), "n"(3 * A_STEP), "n"(B_STEP), "n"(2 * B_STEP), "n"(3 * B_STEP)        \
                 : "memory")
#define WGMMA_A(A0, A1, A2, A3) "{" A0 ", " A1 ", " A2 ", " A3 "}"
#define WGMMA_A_OF(a)           "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])
#define WGMMA_RS(N, TYPE, A, B, SUM, TB)                                                                               \
    asm volatile(WGMMA_OPEN(SUM) WGMMA_TEXT(N, TYPE, A, B, TB) "}"                                                     \
                 : WGMMA_R##N                                                                                          \
                 : WGMMA_A_OF(a), "l"(b), "r"(sum), "n"(static_cast<int>(B_TURNED)))
#define WGMMA_RS_NEXT(N, TYPE, A, B, TB, BS) WGMMA_FROM("b", B, BS) WGMMA_TEXT(N, TYPE, A, "b", TB)
#define WGMMA_RS4(N, TYPE, BEGIN, A0, A1, A2, A3, B, SUM, TB, B1, B2, B3)                                              \
    asm volatile(BEGIN WGMMA_OPEN(SUM) WGMMA_TEXT(N, TYPE, A0, B, TB) WGMMA_ON WGMMA_RS_NEXT(N, TYPE, A1, B, TB, B1)   \
                     WGMMA_RS_NEXT(N, TYPE, A2, B, TB, B2) WGMMA_RS_NEXT(N, TYPE, A3, B, TB, B3) "}"                   \
                 : WGMMA_R##N                                                                                          \
                 : WGMMA_A_OF(a[0]), WGMMA_A_OF(a[1]), WGMMA_A_OF(a[2]), WGMMA_A_OF(a[3]), "l"(b), "r"(sum),           \
                   "n"(static_cast<int>(B_TURNED)), "n"(B_STEP), "n"(2 * B_STEP), "n"(3 * B_STEP)                      \
                 : "memory")

// Fours of products, for kernels that name their widths in config.gen.cuh: the others have no use for them, and each
// takes the compiler a millisecond.
#ifdef WGMMA_WIDTHS
// OF for the dtype, behind a fence where it is the first.
#define WGMMA_EACH(OF, N, ...)                                                                                         \
    if constexpr (BF16 && FIRST) {                                                                                     \
        OF(N, "bf16", WGMMA_FENCE, __VA_ARGS__);                                                                       \
    } else if constexpr (BF16) {                                                                                       \
        OF(N, "bf16", "", __VA_ARGS__);                                                                                \
    } else if constexpr (FIRST) {                                                                                      \
        OF(N, "f16", WGMMA_FENCE, __VA_ARGS__);                                                                        \
    } else {                                                                                                           \
        OF(N, "f16", "", __VA_ARGS__);                                                                                 \
    }
#define WGMMA_FOURS(N, I0, I1, I2, I3, I4, I5, I6, I7, I8, I9, I10, I11, I12, I13, I14, I15, I16, I17, I18, I19, I20,  \
                    I21)                                                                                               \
    template <bool BF16, bool FIRST, int A_STEP, int B_STEP, bool A_TURNED = false, bool B_TURNED = false>             \
    DEV void ss4(float(&d)[N / 8][4], u64 a, u64 b, int sum)                                                           \
    {                                                                                                                  \
        WGMMA_EACH(WGMMA_SS4, N, "%" #I0, "%" #I1, "%" #I2, "%" #I3, "%" #I4, "%" #I5, "%" #I6, "%" #I7, "%" #I8,      \
                   "%" #I9, "%" #I10)                                                                                  \
    }                                                                                                                  \
    template <bool BF16, bool FIRST, int B_STEP, bool B_TURNED = true>                                                 \
    DEV void rs4(float(&d)[N / 8][4], const u32(*a)[4], u64 b, int sum)                                                \
    {                                                                                                                  \
        WGMMA_EACH(WGMMA_RS4, N, WGMMA_A("%" #I0, "%" #I1, "%" #I2, "%" #I3),                                          \
                   WGMMA_A("%" #I4, "%" #I5, "%" #I6, "%" #I7), WGMMA_A("%" #I8, "%" #I9, "%" #I10, "%" #I11),         \
                   WGMMA_A("%" #I12, "%" #I13, "%" #I14, "%" #I15), "%" #I16, "%" #I17, "%" #I18, "%" #I19, "%" #I20,  \
                   "%" #I21)                                                                                           \
    }
#else
#define WGMMA_FOURS(...)
#endif

// The products of one width; the numbers are those of the operands behind d. sum 0: d = a b, else d += a b. ss4, rs4:
// four of them, whose descriptors are A_STEP and B_STEP apart, behind a fence where they are the first. fence: between
// other uses of d (or of A's registers) and the next product. wait: until at most PENDING of the newest groups are
// under way; d is read only after it.
#define WGMMA(N, I0, I1, I2, I3, I4, I5, I6, I7, I8, I9, I10, I11, I12, I13, I14, I15, I16, I17, I18, I19, I20, I21)   \
    template <> struct wgmma<N> {                                                                                      \
        template <bool BF16, bool A_TURNED = false, bool B_TURNED = false>                                             \
        DEV void ss(float (&d)[N / 8][4], u64 a, u64 b, int sum)                                                       \
        {                                                                                                              \
            if constexpr (BF16) {                                                                                      \
                WGMMA_SS(N, "bf16", "%" #I0, "%" #I1, "%" #I2, "%" #I3, "%" #I4);                                      \
            } else {                                                                                                   \
                WGMMA_SS(N, "f16", "%" #I0, "%" #I1, "%" #I2, "%" #I3, "%" #I4);                                       \
            }                                                                                                          \
        }                                                                                                              \
        template <bool BF16, bool B_TURNED = true>                                                                     \
        DEV void rs(float (&d)[N / 8][4], const u32 (&a)[4], u64 b, int sum)                                           \
        {                                                                                                              \
            if constexpr (BF16) {                                                                                      \
                WGMMA_RS(N, "bf16", WGMMA_A("%" #I0, "%" #I1, "%" #I2, "%" #I3), "%" #I4, "%" #I5, "%" #I6);           \
            } else {                                                                                                   \
                WGMMA_RS(N, "f16", WGMMA_A("%" #I0, "%" #I1, "%" #I2, "%" #I3), "%" #I4, "%" #I5, "%" #I6);            \
            }                                                                                                          \
        }                                                                                                              \
        WGMMA_FOURS(N, I0, I1, I2, I3, I4, I5, I6, I7, I8, I9, I10, I11, I12, I13, I14, I15, I16, I17, I18, I19, I20,  \
                    I21)                                                                                               \
        DEV void fence(float (&d)[N / 8][4]) { asm volatile("wgmma.fence.sync.aligned;" : WGMMA_R##N::"memory"); }     \
        template <int PENDING> DEV void wait(float (&d)[N / 8][4])                                                     \
        {                                                                                                              \
            asm volatile("wgmma.wait_group.sync.aligned %" #I0 ";" : WGMMA_R##N : "n"(PENDING) : "memory");            \
        }                                                                                                              \
    }

// Those that a kernel has, where config.gen.cuh names them.
#define WGMMA_16  WGMMA(16, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29);
#define WGMMA_32  WGMMA(32, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37);
#define WGMMA_48  WGMMA(48, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45);
#define WGMMA_64  WGMMA(64, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53);
#define WGMMA_80  WGMMA(80, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61);
#define WGMMA_96  WGMMA(96, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69);
#define WGMMA_112 WGMMA(112, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77);
#define WGMMA_128 WGMMA(128, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85);
#define WGMMA_144 WGMMA(144, 72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93);
#define WGMMA_160 WGMMA(160, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94, 95, 96, 97, 98, 99, 100, 101);
#define WGMMA_176                                                                                                      \
    WGMMA(176, 88, 89, 90, 91, 92, 93, 94, 95, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109);
#define WGMMA_192                                                                                                      \
    WGMMA(192, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114, 115, 116,    \
          117);
#define WGMMA_208                                                                                                      \
    WGMMA(208, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114, 115, 116, 117, 118, 119, 120, 121, 122, 123,     \
          124, 125);
#define WGMMA_224                                                                                                      \
    WGMMA(224, 112, 113, 114, 115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 130, 131,     \
          132, 133);
#define WGMMA_240                                                                                                      \
    WGMMA(240, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 138, 139,     \
          140, 141);
#define WGMMA_256                                                                                                      \
    WGMMA(256, 128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 138, 139, 140, 141, 142, 143, 144, 145, 146, 147,     \
          148, 149);
#ifndef WGMMA_WIDTHS
#define WGMMA_WIDTHS                                                                                                   \
    WGMMA_16 WGMMA_32 WGMMA_48 WGMMA_64 WGMMA_80 WGMMA_96 WGMMA_112 WGMMA_128 WGMMA_144 WGMMA_160 WGMMA_176 WGMMA_192  \
        WGMMA_208 WGMMA_224 WGMMA_240 WGMMA_256
#endif
WGMMA_WIDTHS
