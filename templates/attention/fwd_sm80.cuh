// attention/fwd_sm80.cuh: portable attention forward, sm_80 and up.
//
// A block takes BM query rows of one head and walks the key tiles that the mask leaves. Each warp owns 16 MT
// adjacent rows: scores, weights and o stay in its registers, and no sum crosses warps. K and V come through
// cp.async, either STAGES - 1 tiles ahead with one barrier a tile (STAGES >= 2), or in turns in a single
// buffer each (STAGES == 1: V of a tile under its Q K, K of the next tile under softmax and P V; half the
// shared memory).
#pragma once
#include "attention/key_rows.cuh"
#include "attention/key_tiles.cuh"
#include "common/mma_f32.cuh"
#include "attention/score_passes.cuh"

static_assert(attention_variant<variant, inputs, attention_params>,
              "variant.gen.cuh does not fill the slots of an attention kernel: templates/README.md lists them, "
              "and the notes below name the first one that is missing");
static_assert(same_type<cfg::operand, f16> || same_type<cfg::operand, bf16> || same_type<cfg::operand, float>,
              "cfg::operand is f16, bf16 or float");
static_assert(cfg::D >= 8 && cfg::D % 8 == 0, "cfg::D is a multiple of 8: rows are copied 16 bytes at a time");
static_assert(cfg::D_V >= 8 && cfg::D_V % 8 == 0, "cfg::D_V is a multiple of 8: rows are copied 16 bytes at a time");
static_assert(cfg::D_PAD == round_up(cfg::D, 16), "cfg::D_PAD is cfg::D rounded up to 16, the depth of one mma.sync");
static_assert(cfg::DV_PAD == round_up(cfg::D_V, 16),
              "cfg::DV_PAD is cfg::D_V rounded up to 16: V is read 16 columns at a time");
static_assert(cfg::DV_PAD <= 256, "cfg::DV_PAD is at most 256: 16 rows of o need DV_PAD / 2 registers of each thread");
static_assert(cfg::WARPS == 2 || cfg::WARPS == 4 || cfg::WARPS == 8 || cfg::WARPS == 16, "cfg::WARPS is 2, 4, 8 or 16");
static_assert(cfg::BM % (16 * cfg::WARPS) == 0,
              "cfg::BM is a multiple of 16 cfg::WARPS: a warp owns whole blocks of 16 rows");
static_assert(cfg::BN % 16 == 0 && cfg::BN >= 16 && cfg::BN <= 128, "cfg::BN is a multiple of 16 in 16 .. 128");
static_assert(cfg::STAGES >= 1 && cfg::STAGES <= 8, "cfg::STAGES is 1 .. 8");

// ---- shared memory -----------------------------------------------------------------------------------

// clang-format off
// What to choose. Bytes are for a variant without DIAG (which adds 8 (BM + BN): every row still fits). Registers are
// those of the causal softmax on sm_80 / sm_90a (nvcc 13.0); where no spill is given there is none. A block may have
// 163 KB of shared memory (166912 bytes) on sm_80, 99 KB (101376) on sm_86, sm_89 and sm_120, 227 KB (232448) on sm_90.
//
//     D_PAD, DV_PAD        BM x BN    WARPS  STAGES   bytes   registers   on
//     32, 32               128 x 64     4      2      24576   167 / 168   all
//     64, 64               128 x 64     4      2      49152   228 / 234   all
//     64, 64               128 x 128    4      1      49152   255 / 255   spills 52 / 152 bytes: for trials only
//     96, 96               128 x 64     4      2      73728   251 / 252   all
//     128, 64              128 x 64     4      2      81920   249 / 250   all
//     128, 128             128 x 64     4      1      65536   255 / 255   all
//     128, 128             128 x 64     4      2      98304   255 / 255   one barrier a tile; sm_90a spills 76 bytes
//                                                                         (10 words, 5 of them written in the loop)
//     128, 128             128 x 32     4      2      65536   243 / 241   all
//     128, 128              64 x 64     4      2      81920   139 / 143   all: short queries
//     128, 128              64 x 64     2      1      49152   255 / 255   sm_90, four blocks an SM: masks that leave
//                                                                         rows little (window 319 TFLOP/s where
//                                                                         128 x 64 had 303, on an H200); else 7 % less
//     160, 160             128 x 64     8      1      81920   174 / 193   all
//     192, 128             128 x 64     8      1      90112   145 / 178   all; 2 stages 131072, 136 / 188, sm_80, sm_90
//     192, 192             128 x 64     8      1      98304   196 / 196   all; 2 stages 147456, 198 / 190, sm_80, sm_90
//     224, 224             128 x 64     8      1     114688   235 / 223   sm_80, sm_90
//     256, 256             128 x 64     8      1     131072   234 / 240   sm_80, sm_90
//     256, 256              64 x 64     4      1      98304   234 / 240   all
//     256, 256              64 x 32     4      1      65536   227 / 227   all
//     128, 256             128 x 64     8      1      81920   232 / 243   all
//     64, 256              128 x 64     8      1      65536   238 / 239   all
//
// The rule behind it: 4 warps of 32 rows while DV_PAD <= 128 and D_PAD <= 128, else 8 warps of 16 rows; the first that
// fits of 128 x 64 with 2 stages (D_PAD + DV_PAD < 256, or one block an SM anyway), 128 x 64 with 1, 64 x 64 with 4
// warps, 64 x 32.
// clang-format on

constexpr bool IN_F32 = same_type<cfg::operand, float>;
constexpr int ELEMENT = ELEMENT_BYTES<cfg::operand>; // of tiles
constexpr int HALVES = ELEMENT / 2;                  // of 16 bits: tiles of f32 lie as tiles of twice as many columns
constexpr bool O_FLOATS = cfg::O_F32 || same_type<cfg::element_o, float>; // as rows of o are stored
static_assert(!IN_F32 || !cfg::Q_IN_REGS,
              "Q of f32 is split anew for each tile: hi and lo of it would take too many registers");

struct shared_layout { // offsets in bytes; o takes the place of everything but the diagonals at the end
    static constexpr int K_BYTES = cfg::BN * cfg::D_PAD * ELEMENT;
    static constexpr int V_BYTES = cfg::BN * cfg::DV_PAD * ELEMENT;
    static constexpr int Q = 0;
    static constexpr int K = cfg::Q_IN_REGS ? 0 : cfg::BM * cfg::D_PAD * ELEMENT; // stages, one after the other
    static constexpr int V = K + cfg::STAGES * K_BYTES;
    static constexpr int TILES = max_of(cfg::BM * cfg::D_PAD * ELEMENT, V + cfg::STAGES * V_BYTES); // Q, K and V
    static constexpr int O = 0;
    static constexpr int O_BYTES = O_FLOATS ? 0 : cfg::BM * cfg::DV_PAD * ELEMENT_BYTES<cfg::element_o>;
    static constexpr int DIAG = max_of(TILES, O_BYTES);
    static constexpr int DIAG_BYTES = variant::DIAG ? 4 * (cfg::BM + cfg::BN) : 0; // two of them
    static constexpr int BYTES = DIAG + 2 * DIAG_BYTES;
};
namespace smem_bytes
{
constexpr int fwd = shared_layout::BYTES;
}

constexpr int THREADS = cfg::WARPS * 32;
constexpr int MT = cfg::BM / cfg::WARPS / 16; // blocks of 16 rows of a warp
constexpr int NB = cfg::BN / 8;               // blocks of 8 keys of a tile
constexpr int DB = cfg::DV_PAD / 8;           // blocks of 8 columns of o
constexpr int KSTEPS = cfg::D_PAD / 16;

// ---- which rows and tiles ----------------------------------------------------------------------------

// A thread within its block. Read anew at each construction, so that nothing of it stays in registers
// meanwhile.
struct thread_place {
    int lane;
    int warp_row; // first row of its warp
    __device__ __forceinline__ thread_place()
    {
        const u32 thread = fresh_thread();
        lane = static_cast<int>(thread % 32);
        warp_row = static_cast<int>(thread / 32) * 16 * MT;
    }
    __device__ __forceinline__ int first_column() const { return 2 * (lane % 4); } // of a tile
};

// Bytes of K and V that the heads at work at the same time may have together, for them to stay in L2; but so many
// heads, a power of two, are at work whatever they have: the more there are, the more of the longest rows come first.
constexpr int SECTION_BITS = 25, SECTION_HEADS = 6;

// The order of blocks: heads in sections of a power of two, whose K and V stay in L2 together, and within a section the
// last query tile of all of its heads first: under a causal mask it has the most keys, and no long block is left for
// the end. Where the mask cuts rows at both ends few keys are at work at the same time, and one section takes all
// heads.
DEV u32 section_log(const sizes &z, u32 heads)
{
    if constexpr (!variant::MASKED) {
        return 0;
    }
    const int most = 32 - __clz(static_cast<int>(heads)); // beyond all of them
    if constexpr (cfg::SHORT_ROWS) {
        return static_cast<u32>(most);
    }
    const i64 bytes = static_cast<i64>(z.len_kv) * z.n_h_kv * (ELEMENT * (cfg::D + cfg::D_V)); // of a batch: n_h heads
    const int log = SECTION_BITS + 31 - __clz(z.n_h) - (64 - __clzll(bytes));
    return static_cast<u32>(min(max(log, SECTION_HEADS), most));
}

DEV work_place find_place(const sizes &z)
{
    const u32 block = fresh_block();
    const thread_place thread;
    const u32 n_tiles = max((static_cast<u32>(z.len_q) + cfg::BM - 1) / cfg::BM, 1u);
    const u32 n_h = static_cast<u32>(z.n_h);
    const u32 heads = static_cast<u32>(z.n_b) * n_h;
    const u32 log = section_log(z, heads);
    const u32 section = cfg::SHORT_ROWS ? 0 : (block >> log) / n_tiles;
    const u32 rest = block - (section * n_tiles << log);
    const u32 here = heads - (section << log); // of heads: the last section may be narrower
    const bool full = !cfg::SHORT_ROWS && here >= 1u << log;
    const u32 turn = full ? rest >> log : rest / here;
    const u32 head = (section << log) + (full ? rest & ((1u << log) - 1u) : rest - turn * here);
    work_place at;
    at.b = static_cast<int>(head / n_h);
    at.h = static_cast<int>(head - static_cast<u32>(at.b) * n_h);
    at.query_tile = static_cast<int>(n_tiles - 1 - turn);
    at.n_tiles = static_cast<int>(n_tiles);
    at.row0 = at.query_tile * cfg::BM;
    at.lane = thread.lane;
    at.warp_row = thread.warp_row;
    at.first_row = at.row0 + at.warp_row + at.lane / 4;
    return at;
}

// Where a block works. Of packed sequences: query tile by query tile, the last one of the last sequence first; then p
// is of that
// sequence. False: the tile is left over.
template <class PARAMS> DEV bool find_work(PARAMS &p, work_place &at)
{
    if constexpr (HAS_SEQUENCES<PARAMS>) {
        if (p.cu_q != nullptr) {
            const u32 n_h = static_cast<u32>(p.z.n_h);
            const u32 block = fresh_block();
            const int slots = (p.z.len_q + cfg::BM - 1) / cfg::BM + p.z.n_b;
            if (p.z.n_b == 0) {
                return false;
            }
            const sequences::tile found =
                sequences::find<cfg::BM>(sequences::queries(p), p.z.n_b, slots - 1 - static_cast<int>(block / n_h));
            const thread_place thread;
            at.b = found.b;
            at.h = static_cast<int>(block % n_h);
            at.query_tile = found.number;
            at.lane = thread.lane;
            at.warp_row = thread.warp_row;
        } else {
            at = find_place(p.z);
        }
        sequences::enter(p, at.b);
        at.n_tiles = (p.z.len_q + cfg::BM - 1) / cfg::BM;
        at.row0 = at.query_tile * cfg::BM;
        at.first_row = at.row0 + at.warp_row + at.lane / 4;
        return at.query_tile >= 0 && at.query_tile < at.n_tiles;
    } else {
        at = find_place(p.z);
        return true;
    }
}

template <int DIM, int COLS> using key_rows = block_rows<cfg::BN, DIM, COLS, THREADS, attention_params>;

// ---- one tile ----------------------------------------------------------------------------------------

struct warp_work {
    thread_rows<MT> rows;
    float o[MT][DB][4];
    a_fragments<MT, cfg::Q_IN_REGS ? KSTEPS : 1> q;
};

// Scores become weights; o is scaled as they ask.
template <bool WHOLE, bool BOTH>
DEV void weigh(warp_work &w, float (&s)[MT][NB][4], const at_head &a, u32 shared, int tile, u32 diag_table)
{
    float scale[2 * MT];
    const thread_place at;
    const u32 diagonal = static_cast<u32>((at.warp_row + at.lane / 4 - at.first_column() + cfg::BN - 1) * 4);
    score_tile<WHOLE, MT, NB, variant, BOTH, true> scores{s,
                                                          w.rows,
                                                          a,
                                                          tile_cursor::number(tile) * cfg::BN + at.first_column(),
                                                          shared + shared_layout::DIAG + diag_table + diagonal,
                                                          tile_cursor::class_of(tile) == TILE_ALL,
                                                          tile_cursor::class_of(tile) == TILE_CUT};
    scores.run(scale);
    if constexpr (variant::RESCALE) {
        rescale(w.o, scale);
    }
}

// Whole tiles and others by one body of text, which compiles sooner. It is faster where registers leave room for it (D
// 64 and a window by 4 to 6 %), and slower where they do not (causal at D 128 by 2 %, documents 4 %, ALiBi 7 %).
constexpr bool ONE_BODY =
    variant::DEAD_ONCE && !variant::LOGISTIC && (cfg::Q_IN_REGS || (cfg::SHORT_ROWS && !variant::SCATTERED));

// Scores of the tile in that stage.
DEV void score(warp_work &w, float (&s)[MT][NB][4], u32 shared, int stage)
{
    const thread_place at_k; // addresses are found anew for each product: fewer registers in between
    if constexpr (IN_F32) {
        product_qk_f32<MT, NB, cfg::D_PAD>(
            s, shared + shared_layout::Q + lane_offset_a<HALVES * cfg::D_PAD>(at_k.lane, at_k.warp_row),
            shared + static_cast<u32>(shared_layout::K + stage * shared_layout::K_BYTES) +
                lane_offset_b<HALVES * cfg::D_PAD>(at_k.lane));
    } else {
        product_qk<cfg::operand, MT, NB, cfg::D_PAD, cfg::Q_IN_REGS>(
            s, shared + shared_layout::Q + lane_offset_a<cfg::D_PAD>(at_k.lane, at_k.warp_row), w.q,
            shared + static_cast<u32>(shared_layout::K + stage * shared_layout::K_BYTES) +
                lane_offset_b<cfg::D_PAD>(at_k.lane));
    }
}

// Scores become weights, and o gathers V by them. tile: as the cursor gives it.
DEV void gather(warp_work &w, float (&s)[MT][NB][4], const at_head &a, u32 shared, int tile, int stage, u32 diag_table)
{
    if constexpr (ONE_BODY) {
        weigh<false, true>(w, s, a, shared, tile, diag_table);
    } else if (tile_cursor::class_of(tile) == TILE_ALL) {
        weigh<true, false>(w, s, a, shared, tile, diag_table);
    } else {
        weigh<false, false>(w, s, a, shared, tile, diag_table);
    }
    const u32 v = shared + static_cast<u32>(shared_layout::V + stage * shared_layout::V_BYTES);
    if constexpr (IN_F32) {
        product_pv_f32<MT, NB, DB, cfg::DV_PAD>(w.o, s, v, thread_place().lane);
    } else {
        product_pv<cfg::operand, MT, NB, DB, cfg::DV_PAD>(
            w.o, s, v + lane_offset_b_transposed<cfg::DV_PAD>(thread_place().lane));
    }
}

// ---- kernel ------------------------------------------------------------------------------------------

// 1 block a multiprocessor in f32: all registers that it asks for, or a few spill
#if LATHE_COMPILED(fwd)
extern "C" __global__ void __launch_bounds__(THREADS, IN_F32 ? 1 : 0)
    LATHE_ENTRY(fwd)(const __grid_constant__ attention_params launched)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    const u32 shared = shared_address(shared_bytes);
    // one place in the text loads K: sooner compiled; elsewhere 2 % slower (causal)
    constexpr bool K_ONCE = cfg::SHORT_ROWS && cfg::STAGES == 1;

    work_place place;
    auto &&p = own_params(launched);
    if (!find_work(p, place)) {
        return;
    }
    const work_place at = place;
    const int h_kv = p.z.key_head(at.h);
    const int row0 = at.row0;
    const int lane = at.lane;

    const variant::head head = variant::make_head(p.x, p.z, at.b, at.h);
    const at_head a{p.x, p.z, head};

    const u8 *map_row = nullptr;
    if constexpr (variant::MAP) {
        const int map_head = (variant::MAP_PER_BATCH ? at.b : 0) * (variant::MAP_PER_HEAD ? p.z.n_h : 1) +
                             (variant::MAP_PER_HEAD ? at.h : 0);
        const u32 line = static_cast<u32>(map_head * at.n_tiles + at.query_tile); // of no more than there are blocks
        map_row = p.map + static_cast<u64>(line) * ((static_cast<u32>(p.z.len_kv) + (cfg::BN * MAP_WORD - 1)) /
                                                    (cfg::BN * MAP_WORD) * MAP_WORD);
    }
    const int row1 = min(row0 + cfg::BM, p.z.len_q) - 1;
    if constexpr (variant::MAP) {
        wait_for_launch_before();
    }
    tile_cursor cursor;
    cursor.start(a, map_row, row0, row1);

    const tile_loader<cfg::BM, HALVES * cfg::D, HALVES * cfg::D_PAD, THREADS> q_rows(
        static_cast<const cfg::element_q *>(p.q) + at.b * p.q_b + at.h * p.q_h, p.q_t);
    const key_rows<HALVES * cfg::D, HALVES * cfg::D_PAD> k_rows(p, static_cast<const cfg::element_k *>(p.k), at.b,
                                                                p.k_b, h_kv, p.k_h, p.k_t);
    const key_rows<HALVES * cfg::D_V, HALVES * cfg::DV_PAD> v_rows(p, static_cast<const cfg::element_v *>(p.v), at.b,
                                                                   p.v_b, h_kv, p.v_h, p.v_t);
    const auto load_k = [&](int tile, int stage) {
        k_rows.load(shared + static_cast<u32>(shared_layout::K + stage * shared_layout::K_BYTES), tile * cfg::BN,
                    p.z.len_kv - tile * cfg::BN);
    };
    const auto load_v = [&](int tile, int stage) {
        v_rows.load(shared + static_cast<u32>(shared_layout::V + stage * shared_layout::V_BYTES), tile * cfg::BN,
                    p.z.len_kv - tile * cfg::BN);
    };

    q_rows.load(shared + shared_layout::Q, row0, p.z.len_q - row0);

    warp_work w;
    const auto begin_rows = [&] {
        w.rows.seen = 0;
#pragma unroll
        for (int r = 0; r < 2 * MT; r++) {
            w.rows.row[r] = variant::make_row(a.x, a.z, a.head, at.first_row + 8 * r);
            w.rows.state[r] = variant::init((lane & 3) == 0);
        }
#pragma unroll
        for (int m = 0; m < MT; m++) {
#pragma unroll
            for (int d = 0; d < DB; d++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    w.o[m][d][i] = 0.0f;
                }
            }
        }
    };
    if constexpr (!K_ONCE) {
        begin_rows();
    }
    if constexpr (cfg::Q_IN_REGS) { // K and V take the place of Q
        copy_commit();
        copy_wait<0>();
        __syncthreads();
#pragma unroll
        for (int k = 0; k < KSTEPS; k++) {
            load_a<MT, cfg::D_PAD>(w.q.r[k], shared + shared_layout::Q + lane_offset_a<cfg::D_PAD>(lane, at.warp_row),
                                   k);
        }
    }

    // Tiles on their way, oldest first. The first rounds only fill the queue.
    constexpr int AHEAD = cfg::STAGES > 1 ? cfg::STAGES - 1 : 1;
    int queue[AHEAD + 1];
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
        queue[i] = tile_cursor::IDLE;
    }
    int fill = 0;       // the stage that the next tile goes to
    u32 diag_table = 0; // offset of the table of the tile at hand
#pragma unroll 1
    do {
        copy_wait<(cfg::STAGES > 1 ? cfg::STAGES - 2 : 0)>();
        __syncthreads(); // the tile at hand is there for all; no one reads the stage that is filled next
        const int tile = queue[0];
        const int next = cursor.next(a, map_row, row0, row1);
        queue[AHEAD] = next;
        int stage = 0;
        if constexpr (cfg::STAGES > 1) {
            if (next >= 0) {
                load_k(tile_cursor::number(next), fill);
                load_v(tile_cursor::number(next), fill);
            }
            fill = fill + 1 == cfg::STAGES ? 0 : fill + 1;
            stage = fill;
        } else if (tile >= 0) {
            load_v(tile_cursor::number(tile), 0);
        } else if (!K_ONCE && next >= 0) {
            load_k(tile_cursor::number(next), 0);
        }
        if (!K_ONCE || tile >= 0) {
            copy_commit();
        }
        if constexpr (variant::DIAG) {
            if (queue[1] >= 0) { // of the tile after this one: the barrier of the next round makes it visible
                fill_diagonals<cfg::BM, cfg::BN, THREADS>(
                    shared + shared_layout::DIAG + (shared_layout::DIAG_BYTES - diag_table), a, row0 + p.z.q_start,
                    tile_cursor::number(queue[1]) * cfg::BN, static_cast<int>(threadIdx.x));
            }
        }
        const auto middle = [&] {
            if constexpr (cfg::STAGES == 1) {
                if (tile >= 0) { // V is there for all; no one reads K
                    copy_wait<0>();
                    __syncthreads();
                }
                if (next >= 0) {
                    load_k(tile_cursor::number(next), 0);
                }
                copy_commit();
            }
        };
        float s[MT][NB][4];
        if constexpr (K_ONCE) {
            if (tile >= 0) {
                score(w, s, shared, stage);
            }
            middle();
            if (tile >= 0) {
                gather(w, s, a, shared, tile, stage, diag_table);
            } else {            // Q and the first K are on their way
                if (next < 0) { // Q alone, which no one will read
                    copy_wait<0>();
                    __syncthreads();
                }
                begin_rows();
            }
        } else if (tile >= 0) {
            score(w, s, shared, stage);
            middle();
            gather(w, s, a, shared, tile, stage, diag_table);
        }
        diag_table = shared_layout::DIAG_BYTES - diag_table;
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            queue[i] = queue[i + 1];
        }
    } while (queue[0] != tile_cursor::END);

    // found again where registers are dear
    const work_place end = cfg::SHORT_ROWS || HAS_SEQUENCES<attention_params> ? at : find_place(p.z);
    finish_rows(w.rows, w.o, p, a, end);
    const i64 o_head = end.b * p.o_b + end.h * p.o_h;
    if constexpr (O_FLOATS) {
        store_o_f32(w.o, p, end);
    } else {
        // a warp's rows of o lie where its rows of Q did
        if constexpr (K_ONCE && !cfg::Q_IN_REGS && cfg::D_PAD == cfg::DV_PAD) {
            __syncwarp();
        } else {
            copy_wait<0>();
            __syncthreads();
        }
        store_o(w.o,
                shared +
                    static_cast<u32>(shared_layout::O + end.warp_row * cfg::DV_PAD * ELEMENT_BYTES<cfg::element_o>),
                static_cast<cfg::element_o *>(p.o) + o_head, p.o_t, end, p.z.len_q);
    }
}
#endif
