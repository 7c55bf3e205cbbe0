// linear/backward/additive_tiles.cuh: tiles of a chunk of 64 tokens in the backward pass with a decay by key channel,
// on their way from and to global memory: q, k, v, do, the states in front and behind, and what of q and k reads and is
// written under the decays (additive_logs.cuh); of the additive family, and of the delta rule.
#pragma once
#include "linear/backward/additive_logs.cuh"

namespace linear
{

constexpr int OWN_THREADS = 2 * 32 * OWN_WARPS;
// dq and dk of a head of v are wanted once more, by bwd_tokens and bwd_heads
constexpr bool KEEPS_HEADS = cfg::BONUS || variant::WANTS[OF_SCALE];

struct additive_layout { // in shared memory, bytes
    static constexpr int KEY_BYTES = CHUNK_TOKENS * PAD_D * OPERAND, VALUE_BYTES = CHUNK_TOKENS * PAD_V * OPERAND;
    // READS has the scale in it
    static constexpr int Q = 0, K = Q + KEY_BYTES, READS = K + KEY_BYTES, WRITES = READS + KEY_BYTES;
    // what is left of keys at the chunk's end
    static constexpr int LASTS = WRITES + KEY_BYTES, V = LASTS + KEY_BYTES, DO = V + VALUE_BYTES;
    // dS', S
    static constexpr int BEHIND = DO + VALUE_BYTES, FRONT = BEHIND + (cfg::CHUNK_STAGES - 1) * STATE_ELEMENTS * OPERAND;
    // A, dA
    static constexpr int PAIRS = FRONT + STATE_ELEMENTS * OPERAND, BACK = PAIRS + MATRIX_BYTES;
    static constexpr int ENDS = BACK + MATRIX_BYTES, CROSS = ENDS + BLOCKS * PAD_D * 4, STRONG = CROSS + PAD_D * 4,
                         END = STRONG + 64;
    // LASTS is free once dv is done.
    static constexpr int KEYS_CROSS = LASTS, FLOWS = KEYS_CROSS + 2 * PAD_D * 4;
    // Address of f32 sum number `row` of this lane's channel 8 n + lane % 4 * 2 + e, of warp `own`.
    DEV u32 sum_at(int base, int row, int own, int n, int e)
    {
        return static_cast<u32>(base + 4 * (row * PAD_D + 16 * own + 8 * n + lane_id() % 4 * 2 + e));
    }
};
// With the delta rule v is what tokens write, keys read as queries do, and pairs have two gradients. V, Z and states
// have value channels as rows.
struct keyed_layout_back {
    static constexpr int KEY_BYTES = CHUNK_TOKENS * PAD_D * OPERAND, VALUE_BYTES = CHUNK_TOKENS * PAD_V * OPERAND;
    static constexpr int Q = 0, K = Q + KEY_BYTES, READS = K + KEY_BYTES, KEYS_READ = READS + KEY_BYTES,
                         WRITES = KEYS_READ + KEY_BYTES;
    static constexpr int V = WRITES + KEY_BYTES, DO = V + VALUE_BYTES, Z = DO + VALUE_BYTES;       // X, do, dv
    static constexpr int BEHIND = Z + VALUE_BYTES, FRONT = BEHIND + STATE_ELEMENTS * OPERAND;      // dS', S
    static constexpr int BACK = FRONT + STATE_ELEMENTS * OPERAND, KEYS_BACK = BACK + MATRIX_BYTES; // dA, dN
    static constexpr int ENDS = KEYS_BACK + MATRIX_BYTES, CROSS = ENDS + BLOCKS * PAD_D * 4, STRONG = CROSS + PAD_D * 4,
                         END = STRONG + 64;
    // Blocks above the diagonal hold f32 sums: row 8 `row` + `own` has a warp's 16 channels. Pieces 6 and 7 of the
    // first 8 rows stay free for above_pairs().
    static constexpr int KEYS_CROSS = BACK, FLOWS = KEYS_BACK;
    DEV u32 sum_at(int base, int row, int own, int n, int e)
    {
        static_assert(OWN_WARPS <= 8, "row % 8 is `own`, by which the swizzle turns its pieces");
        const u32 turned =
            static_cast<u32>(lane_id() % 4 / 2 ^ own) * 16 ^ static_cast<u32>(2 + row / 2 * 2 + 2 * n) * 16;
        return static_cast<u32>(base + (8 * row + own) * swizzle<CHUNK_TOKENS>::ROW_BYTES) + turned +
               static_cast<u32>(lane_id() % 2 * 8 + 4 * e);
    }
};
static_assert(cfg::CHUNK_STAGES == 1 || cfg::CHUNK_STAGES == 2,
              "cfg::CHUNK_STAGES is 1 or 2: states that there is room for");

struct chunk_tiles : own_blocks {
    using operand = cfg::operand;
    using layout = typename pick<LOOKS, keyed_layout_back, additive_layout>::type;
    const linear_back_params &p;
    const work &w;
    int place;
    int part; // of the key channels
    u32 shared;
    int number, own; // this warp, and of which of the part's channels
    channel_sums logs;

    __device__ __forceinline__ u32 tile(int which) const { return shared + static_cast<u32>(which); }
    __device__ __forceinline__ int first_channel() const { return part * PAD_D; }
    __device__ __forceinline__ int channel(int n) const { return 16 * own + 8 * n + lane_id() % 4 * 2; }
    __device__ __forceinline__ float2 end(int block, int channel) const
    {
        return load_shared8(tile(layout::ENDS + 4 * (block * PAD_D + channel)));
    }
    // An f32 of each token in a block above the diagonal of a matrix, where no pairs are.
    __device__ __forceinline__ u32 above_pairs(int matrix, int token) const
    {
        return tile(matrix) + swizzle<CHUNK_TOKENS>::offset(token / 8, 2 * BLOCKS - 2 + token / 4 % 2) +
               static_cast<u32>(4 * (token % 4));
    }
    // Of its pair with itself.
    __device__ __forceinline__ u32 own_pair(int token) const { return above_pairs(layout::BACK, token); }
    // Addresses of sum_at(): of k times its gradient from dS', by outer or inner blocks; of sums of flow over a block.
    __device__ __forceinline__ u32 keys_cross(bool of_inner, int n, int e) const
    {
        return shared + layout::sum_at(layout::KEYS_CROSS, of_inner, own, n, e);
    }
    __device__ __forceinline__ u32 flow_at(int block, int n, int e) const
    {
        return shared + layout::sum_at(layout::FLOWS, block, own, n, e);
    }

    // ---- memory --------------------------------------------------------------------------------------

    template <int COLS, class T>
    __device__ __forceinline__ void load(int to, const void *base, i64 offset, i64 stride, int columns) const
    {
        load_tokens<COLS, T, OWN_THREADS>(tile(to), w, place, base, offset, stride, columns);
    }
    // ROWS of COLS.
    template <int ROWS, int COLS> __device__ __forceinline__ void load_state(int to, const void *base) const
    {
        const operand *from = state_of(base, p, w, place, part);
#pragma unroll
        for (int i = 0; i < ROWS / CHUNK_TOKENS; i++) {
            load_rows<COLS, OWN_THREADS>(tile(to) + static_cast<u32>(i * CHUNK_TOKENS * swizzle<COLS>::ROW_BYTES),
                                         from + i * CHUNK_TOKENS * COLS, COLS, CHUNK_TOKENS, COLS);
        }
    }
    // 16 columns of this warp's tokens, from `first` on, to rows of T: f32 or 16 bits.
    template <class T>
    __device__ __forceinline__ void store_columns(const fragments &x, T *base, i64 stride, int first, int columns) const
    {
        if constexpr (same_type<T, float>) {
            each_two([&](int m, int n, int r) {
                const int at = place + token(m, r);
                const int column = first + 8 * n + lane_id() % 4 * 2;
                if (w.has(at) && column < columns) {
                    const float two[2] = {x[m][n][2 * r], x[m][n][2 * r + 1]};
                    store_any<2, float>(base + (sequence::token(w.s, at) * stride + column), two);
                }
            });
        } else {
#pragma unroll
            for (int m = 0; m < OWN_BLOCKS; m++) {
                store_eights(x[m], base, stride, first, columns, place + token(m, lane_id() % 4 / 2));
            }
        }
    }
    // Of one block: four lanes have the same two tokens, and each leaves eight columns of one of them.
    template <class T> __device__ __forceinline__ void store_eights(const float (&x)[2][4], T *base, i64 stride,
                                                                    int first, int columns, int at) const
    {
        u32 word[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            word[i] = pack<operand>(x[i % 2][i / 2 * 2], x[i % 2][i / 2 * 2 + 1]);
        }
        const uint4 four = transpose_four(word, lane_id());
        const int column = first + lane_id() % 2 * 8;
        if (!w.has(at) || column >= columns) {
            return;
        }
        T *to = base + (sequence::token(w.s, at) * stride + column);
        if (is_aligned<16>(to)) {
            *reinterpret_cast<uint4 *>(to) = four;
            return;
        }
        const u32 mine[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int e = 0; e < 8; e++) {
            to[e].bits = static_cast<u16>(mine[e / 2] >> (16 * (e % 2)));
        }
    }
    // To `head` for bwd_heads, dq of the additive family without its scale; or `whole`, by `scale`.
    template <class T> __device__ __forceinline__ void store_keys(fragments &x, float scale, float *head, void *whole,
                                                                  i64 s_b, i64 s_h, i64 s_t) const
    {
        const bool apart = KEEPS_HEADS || BANDS > 1 || p.z.n_h != p.z.n_h_kv;
        each_two([&](int m, int n, int r) {
            x[m][n][2 * r] *= apart && !cfg::BY_CHUNK ? 1.0f : scale;
            x[m][n][2 * r + 1] *= apart && !cfg::BY_CHUNK ? 1.0f : scale;
        });
        if (apart) {
            store_columns<float>(x, of_band<cfg::D>(p, w, head) + (first_line(p, w) * cfg::D + first_channel()), cfg::D,
                                 16 * own, cfg::D - first_channel());
        } else if (whole != nullptr) {
            store_columns<T>(x, static_cast<T *>(whole) + (w.s.batch * s_b + w.h * s_h + first_channel()), s_t,
                             16 * own, cfg::D - first_channel());
        }
    }
    // first: column of the band.
    __device__ __forceinline__ void store_values(fragments &x, int first) const
    {
        using target = dv_element;
        const int columns = columns_of_band(w);
        if constexpr (KEY_PARTS > 1 && !LOOKS) { // bwd_values sums what parts have
            const i64 lines = static_cast<i64>(p.z.n_b) * p.z.n_h * p.z.len_q;
            store_columns<float>(x, p.dv_parts + ((part * lines + first_line(p, w)) * cfg::D_V + first_of_band(w)),
                                 cfg::D_V, first, columns);
            return;
        }
        if (cfg::SKIP && !cfg::DV_F32) { // what comes to v through the output mod
            each_two([&](int m, int n, int r) {
                const int at = place + token(m, r);
                const int column = first + 8 * n + lane_id() % 4 * 2;
                if (w.has(at) && column < columns) {
                    const float *skip = p.skip + (line_of(p, w, at) * cfg::D_V + first_of_band(w) + column);
                    x[m][n][2 * r] += skip[0];
                    x[m][n][2 * r + 1] += skip[1];
                }
            });
        }
        if (p.dv != nullptr) {
            store_columns<target>(x,
                                  static_cast<target *>(p.dv) + (w.s.batch * p.dv_b + w.h * p.dv_h + first_of_band(w)),
                                  p.dv_t, first, columns);
        }
    }

    // ---- readers and writers -------------------------------------------------------------------------

    // to = from by weight(m, n, i), of this warp's channels.
    template <class F> __device__ __forceinline__ void weigh(int to, int from, const F &weight) const
    {
        each_two([&](int m, int n, int r) {
            float x[2];
            load_pair<PAD_D>(tile(from), token(m, r), channel(n), x[0], x[1]);
            store_pair<PAD_D>(tile(to), token(m, r), channel(n), x[0] * weight(m, n, 2 * r),
                              x[1] * weight(m, n, 2 * r + 1));
        });
    }
    struct key_ends { // logarithms from the start of this warp's blocks to the end of the chunk
        float x[OWN_BLOCKS][2][2];
    };
    __device__ __forceinline__ key_ends ends_behind() const
    {
        key_ends left = {};
#pragma unroll
        for (int n = 0; DECAYS && n < 2; n++) {
#pragma unroll
            for (int b = 0; b < BLOCKS; b++) {
                const float2 two = end(b, channel(n));
#pragma unroll
                for (int m = 0; m < OWN_BLOCKS; m++) {
                    left.x[m][n][0] += b >= block(m) ? two.x : 0.0f;
                    left.x[m][n][1] += b >= block(m) ? two.y : 0.0f;
                }
            }
        }
        return left;
    }
    // The same to the end of the block alone, some share of it.
    __device__ __forceinline__ key_ends own_ends(float share) const
    {
        key_ends left = {};
#pragma unroll
        for (int k = 0; DECAYS && k < 2 * OWN_BLOCKS; k++) {
            const float2 two = end(block(k / 2), channel(k % 2));
            left.x[k / 2][k % 2][0] = share * two.x;
            left.x[k / 2][k % 2][1] = share * two.y;
        }
        return left;
    }
    // Of a level; from which tile, to which, by what beside.
    __device__ __forceinline__ void weigh_readers(int to, int from, float by, int half, bool ahead) const
    {
        weigh(to, from, [&](int m, int n, int i) { return by * logs.reader(m, n, i, half, ahead); });
    }
    __device__ __forceinline__ void weigh_writers(int half) const
    {
        weigh(layout::WRITES, layout::K, [&](int m, int n, int i) { return logs.writer(m, n, i, half); });
    }

    // ---- the chunk -----------------------------------------------------------------------------------

    // Ends of blocks, and how strong this warp's channels are.
    __device__ __forceinline__ void leave_ends() const
    {
        float least = 0.0f;
#pragma unroll
        for (int e = 0; e < 4 * OWN_BLOCKS; e++) {
            const float log = logs.x[e / 4][e / 2 % 2][2 + e % 2];
            if (lane_id() >= 28) {
                store_shared(tile(layout::ENDS + 4 * (block(e / 4) * PAD_D + channel(e / 2 % 2) + e % 2)), log);
            }
            least = fminf(least, log);
        }
        const bool steep = __any_sync(ALL_LANES, least < STEEP_BLOCK) != 0;
        const bool strong = !LOOKS && __any_sync(ALL_LANES, least < MILD_BLOCK) != 0;
        if (lane_id() == 0) {
            store_shared(tile(layout::STRONG + 4 * number), steep ? 2.0f : strong ? 1.0f : 0.0f);
        }
    }
    // Whether some warp has left more than `than`: 1 where a channel loses more than MILD_BLOCK, which the delta rule
    // does not ask, 2 where one loses more than STEEP_BLOCK.
    __device__ __forceinline__ bool is_stronger(float than) const
    {
        bool any = false;
#pragma unroll
        for (int k = 0; DECAYS && k < OWN_THREADS / 32; k++) {
            any |= load_shared(tile(layout::STRONG + 4 * k)) > than;
        }
        return any;
    }
};

} // namespace linear
