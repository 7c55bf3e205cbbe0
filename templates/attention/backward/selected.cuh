// attention/backward/selected.cuh: attention backward for rows that have lists of blocks of keys, sm_80 and up: what a
// block of threads adds to dk' and dv' of a tile of keys, and to dq' of the tokens that have chosen it.
//
// A block of threads has BN keys of one key head and the tokens of a range that have chosen them
// (attention/backward/selected_lists.cuh). Rows of a tile are query heads of these tokens, one token after the other,
// BM at a time: a tile of 64 rows has four tokens of 16 heads. Their rows of Q and dO are gathered; products are those
// of attention/backward/sm80.cuh. dq' goes to the rows' own places by fp32 atomics, dk' and dv' once at the end, since
// other ranges add to the same keys. The other way round, a token at a time, dq' would stay in registers, and K and V
// of every block of its list would be read for 16 rows alone: four times what comes here.
//
// Which rows a tile has is known two tiles ahead, so that copies of the next tile need not wait for it.
//
// Launch: n_b * n_h_kv * ceil(len_q / LIST_RANGE) * ceil(len_kv / BN) blocks; of packed sequences n_h_kv * ceil(tokens
// / LIST_RANGE) * (floor(keys / BN) + sequences), as a sequence has no more ranges than all of them. dk', dv' and dq'
// are 0 before.
#pragma once
#include "attention/backward/selected_lists.cuh"
#include "attention/backward/sm80_products.cuh"

static_assert(backward_variant<variant, inputs, back_params, grads>,
              "variant.gen.cuh does not fill the slots of attention backward: templates/README.md lists them, "
              "and the notes below name the first one that is missing");
static_assert(same_type<cfg::operand, f16> || same_type<cfg::operand, bf16>, "cfg::operand is f16 or bf16");
static_assert(cfg::D >= 8 && cfg::D % 8 == 0 && cfg::D_V >= 8 && cfg::D_V % 8 == 0,
              "cfg::D and cfg::D_V are multiples of 8: rows are copied 16 bytes at a time");
static_assert(variant::SITES == 0, "rows of a tile are of several heads: a pair adds to no input");
static_assert(variant::SELECTED_KEYS % cfg::BACK_BN == 0, "a block of keys is tiles of BN");
static_assert(cfg::DK_F32 && cfg::DV_F32 && cfg::BACK_BY_ROWS && !cfg::DETERMINISTIC,
              "all sums are added in memory, in floats");

namespace back
{

constexpr int VALUE_BYTES = 16; // of a row's value: it comes with those of the tokens beside it

struct selected_layout { // offsets in bytes
    static constexpr int K = 0;
    static constexpr int V = K + BN * DK * ELEMENT_BYTES<cfg::operand>;
    static constexpr int RING = V + BN * DV * ELEMENT_BYTES<cfg::operand>;
    static constexpr int Q = 0; // within a stage
    static constexpr int DO = Q + BM * DK * ELEMENT_BYTES<cfg::operand>;
    static constexpr int ROWS = DO + BM * DV * ELEMENT_BYTES<cfg::operand>;
    static constexpr int STAGE = ROWS + ROW_VALUES * BM * VALUE_BYTES;
    static constexpr int DS = RING + STAGES * STAGE;
    static constexpr int W = DS + BN * BM * ELEMENT_BYTES<cfg::operand>;
    // of three tiles: 8 bytes of each row
    static constexpr int OWNERS = W + (SPLIT > 1 ? BN * BM * ELEMENT_BYTES<cfg::operand> : 0);
    static constexpr int OWNERS_BYTES = 8 * BM;
    static constexpr int BYTES = OWNERS + 3 * OWNERS_BYTES;
};

// Whose a row of a tile is.
struct owner {
    int token; // less than 0: there is no such row
    int head;
    bool whole; // all its pairs with the tile's keys are live
};
DEV owner owner_of(u32 token, u32 rest)
{
    return {static_cast<int>(token), static_cast<int>(rest >> 1), (rest & 1) != 0};
}
DEV owner load_owner(u32 owners, int row)
{
    const float2 two = load_shared8(owners + static_cast<u32>(8 * row));
    return owner_of(__float_as_uint(two.x), __float_as_uint(two.y));
}

// What a block of threads has.
struct selected_work {
    int b, h_kv;
    int tile; // of keys
    const u32 *tokens;
    int rows;  // query heads of these tokens
    int group; // of them each has
    __device__ __forceinline__ int tiles() const { return (rows + BM - 1) / BM; }
    __device__ __forceinline__ int kv0() const { return tile * BN; }
};
// Which tile of keys a block has, and which range of tokens.
struct selected_tile {
    int b, h_kv, range, tile;
};
template <class PARAMS> DEV bool find_tile(const PARAMS &p, selected_tile &at)
{
    const sizes &z = p.z;
    const u32 ranges = static_cast<u32>(lists::ranges(z));
    if constexpr (HAS_SEQUENCES<PARAMS>) {
        if (z.n_b == 0) {
            return false;
        }
        if (p.cu_q != nullptr) {
            const u32 slots = gridDim.x / (ranges * static_cast<u32>(z.n_h_kv)); // of tiles of keys
            const u32 line = fresh_block() / slots;
            const sequences::tile found =
                sequences::find<BN>(sequences::keys(p), z.n_b, static_cast<int>(fresh_block() - line * slots));
            at = {found.b, static_cast<int>(line / ranges), static_cast<int>(line % ranges), found.number};
            return at.tile >= 0;
        }
    }
    const u32 tiles = static_cast<u32>(key_tiles(z));
    const u32 list = fresh_block() / tiles; // of those of a range of a key head
    const u32 line = list / ranges;
    at.tile = static_cast<int>(fresh_block() - list * tiles);
    at.range = static_cast<int>(list - line * ranges);
    at.b = static_cast<int>(line / static_cast<u32>(z.n_h_kv));
    at.h_kv = static_cast<int>(line) - at.b * z.n_h_kv;
    return true;
}
// To the sequence's values of rows, and its dq.
template <class PARAMS> DEV void enter_selected(PARAMS &p, int b)
{
    if constexpr (HAS_SEQUENCES<PARAMS>) {
        const i64 tiles = sequences::tiles_before<BM>(p, b) * p.z.n_h;
        p.rows += tiles * (BM * ROW_VALUES);
        p.dq += tiles * dq_shape::FLOATS;
        sequences::enter(p, b);
    }
}
// p becomes that of the block's sequence. False: it has nothing to do.
template <class PARAMS> DEV bool find_selected(PARAMS &p, selected_work &own)
{
    selected_tile at;
    if (!find_tile(p, at)) {
        return false;
    }
    const int n = lists::key_blocks(p.z);
    const u32 list = lists::list_of(p, at.b, at.h_kv, at.range);
    own.tile = at.tile;
    own.b = at.b;
    own.h_kv = at.h_kv;
    own.group = p.z.group();
    enter_selected(p, at.b);
    if (HAS_SEQUENCES<PARAMS> && (at.range * LIST_RANGE >= p.z.len_q || own.kv0() >= p.z.len_kv)) {
        return false;
    }
    const u32 *ends = reinterpret_cast<const u32 *>(p.map) + static_cast<i64>(list) * n;
    const int block = own.tile / (variant::SELECTED_KEYS / BN);
    const u32 begin = block == 0 ? 0 : ends[block - 1];
    own.tokens = p.tokens + static_cast<i64>(list) * lists::ROOM + begin;
    own.rows = static_cast<int>(ends[block] - begin) * own.group;
    return own.rows > 0;
}

// ---- which rows --------------------------------------------------------------------------------------

// The first BM threads have a row of every tile each, and ask for its token a tile before they tell the others.
struct row_finder {
    u32 next = 0; // the token that was asked for

    __device__ __forceinline__ void ask(const selected_work &own, int tile)
    {
        const int row = tile * BM + static_cast<int>(fresh_thread());
        if (fresh_thread() < BM && row < own.rows) {
            next = own.tokens[row / own.group];
        }
    }
    __device__ __forceinline__ void tell(const back_params &p, const selected_work &own, int tile, u32 owners) const
    {
        if (fresh_thread() >= BM) {
            return;
        }
        const int row = tile * BM + static_cast<int>(fresh_thread());
        const int h = own.h_kv * own.group + row % own.group;
        const bool exists = row < own.rows;
        bool whole = false;
        if (exists) {
            const variant::head head = variant::make_head(p.x, p.z, own.b, h);
            const variant::row at = variant::make_row(p.x, p.z, head, static_cast<int>(next));
            whole = variant::first_key(p.x, p.z, head, at) <= own.kv0() &&
                    min(variant::last_key(p.x, p.z, head, at), p.z.len_kv - 1) >= own.kv0() + BN - 1;
        }
        const u32 to = owners + 8 * fresh_thread();
        store_shared(to, exists ? next : ~0u);
        store_shared(to + 4, static_cast<u32>(2 * h + (whole ? 1 : 0)));
    }
};

// ---- a tile's rows -----------------------------------------------------------------------------------

// Rows of a tensor of DIM columns; others are zeros.
template <int DIM, int COLUMNS, class T>
DEV void gather_rows(u32 tile, const T *from, i64 head_stride, i64 token_stride, u32 owners)
{
    using shape = swizzle<COLUMNS>;
    constexpr int PIECES = BM * shape::CHUNKS;
#pragma unroll
    for (int first = 0; first < PIECES; first += THREADS) {
        const int i = first + static_cast<int>(fresh_thread());
        const int row = i / shape::CHUNKS;
        const int chunk = i % shape::CHUNKS;
        if (PIECES % THREADS == 0 || i < PIECES) {
            const owner of = load_owner(owners, row);
            const bool inside = of.token >= 0 && chunk * 8 < DIM;
            copy16_async(tile + shape::offset(row, chunk),
                         from + (inside ? of.head * head_stride + of.token * token_stride + chunk * 8 : 0),
                         inside ? 16 : 0);
        }
    }
}
DEV void gather(const back_params &p, const selected_work &own, u32 stage, u32 owners)
{
    gather_rows<cfg::D, DK>(stage + selected_layout::Q, static_cast<const cfg::element_q *>(p.q) + own.b * p.q_b, p.q_h,
                            p.q_t, owners);
    gather_rows<cfg::D_V, DV>(stage + selected_layout::DO,
                              static_cast<const cfg::element_o *>(p.dout) + own.b * p.dout_b, p.dout_h, p.dout_t,
                              owners);
    if (ROW_VALUES > 0 && fresh_thread() < BM) {
        const int row = static_cast<int>(fresh_thread());
        const owner of = load_owner(owners, row);
        const bool exists = of.token >= 0;
        const i64 length = static_cast<i64>(query_tiles(p.z)) * BM;
        const float *from =
            p.rows +
            (exists ? (static_cast<i64>(own_batch(p, own.b)) * p.z.n_h + of.head) * length + of.token / 4 * 4 : 0);
#pragma unroll
        for (int k = 0; k < ROW_VALUES; k++) {
            copy16_async(stage + static_cast<u32>(selected_layout::ROWS + (k * BM + row) * VALUE_BYTES),
                         from + (exists ? k * length * own_batches(p) * p.z.n_h : 0), exists ? 16 : 0);
        }
    }
}

// Value k of a row of the tile whose values are at `rows`.
DEV float row_value(u32 rows, int k, int row, const owner &of)
{
    return load_shared(rows + static_cast<u32>((k * BM + row) * VALUE_BYTES + of.token % 4 * 4));
}

// ---- pairs -------------------------------------------------------------------------------------------

// Are all pairs of the warp's rows live, and no row's finals large?
DEV bool rows_are_plain(u32 owners, u32 rows)
{
    constexpr int OWN = 8 * NB;
    bool plain = true;
#pragma unroll
    for (int first = 0; first < OWN; first += 32) {
        const int i = first + lane_id();
        if (OWN % 32 == 0 || i < OWN) {
            const int row = place().query0() + i;
            const owner of = load_owner(owners, row);
            plain = plain && of.token >= 0 && of.whole;
            if constexpr (variant::NORM) {
                plain = plain && (of.token < 0 || __float_as_int(row_value(rows, variant::BACK_ROWS, row, of)) >= 0);
            }
        }
    }
    return __all_sync(ALL_LANES, plain);
}

// From s^T and dw^T to w^T and ds^T, in place: as pairs() of attention/backward/pairs.cuh, for rows that have a head
// and a token each.
template <bool PLAIN> DEV void selected_pairs(float (&s)[MT][NB][4], float (&dw)[MT][NB][4], const back_params &p,
                                              const selected_work &own, u32 owners, u32 rows)
{
    const place here;
    const int kv0 = own.kv0() + here.key();
#pragma unroll
    for (int b = 0; b < NB; b++) {
        const int first = here.query() + 8 * b;
        const uint4 both = load_shared16(owners + static_cast<u32>(8 * first));
#pragma unroll
        for (int j = 0; j < 2; j++) {
            owner of = j == 0 ? owner_of(both.x, both.y) : owner_of(both.z, both.w);
            const bool exists = PLAIN || of.token >= 0;
            of.token = exists ? of.token : 0;
            float back[max_of(ROW_VALUES, 1)];
#pragma unroll
            for (int k = 0; k < ROW_VALUES; k++) {
                const bool norm = k == variant::BACK_ROWS;
                const float x = PLAIN && norm ? 1.0f : row_value(rows, k, first + j, of);
                back[k] = norm ? fabsf(x) : x;
            }
            const variant::head head = variant::make_head(p.x, p.z, own.b, of.head);
            const variant::row row = variant::make_row(p.x, p.z, head, of.token);
            int first_key = 0; // live pairs lie from here to there
            int last_key = -1;
            if (!PLAIN && exists) {
                first_key = variant::first_key(p.x, p.z, head, row);
                last_key = min(variant::last_key(p.x, p.z, head, row), p.z.len_kv - 1);
            }
#pragma unroll
            for (int c = 0; c < COLS; c++) {
                float &e = s[c / 2][b][2 * (c % 2) + j];
                float &d = dw[c / 2][b][2 * (c % 2) + j];
                const int key = kv0 + 8 * c;
                const bool live = PLAIN || (key >= first_key && key <= last_key);
                float diag = 0.0f;
                if constexpr (variant::BACK_DIAG) {
                    diag = variant::make_back_diag(p.x, p.z, head, of.token + p.z.q_start - key);
                }
                float w = 0.0f;
                float ds = 0.0f;
                float site[SLOTS] = {};
                variant::pair(e, d, p.x, p.z, head, row, variant::make_col(p.x, p.z, head, key), diag, back, w, ds,
                              site);
                e = live ? w : 0.0f;
                d = live ? ds : 0.0f;
            }
        }
    }
}

// ---- sums in memory ----------------------------------------------------------------------------------

// dq' of the tile: this warp's piece of ds K, to its rows' places.
DEV void add_selected_dq(const back_params &p, const selected_work &own, u32 turned, u32 keys, u32 owners)
{
    using shape = dq_shape;
    const place at;
    float dq[shape::MT][shape::DB][4];
    multiply_dq(dq, turned, keys);
#pragma unroll
    for (int c = 0; c < 2 * shape::MT; c++) {
        const owner of = load_owner(owners, at.warp / shape::ACROSS * 16 * shape::MT + 8 * c + at.lane / 4);
        if (of.token < 0) {
            continue;
        }
        float *row = p.dq + (tile_line(p.z, own_batch(p, own.b), of.head) * BM + of.token) * DK;
#pragma unroll
        for (int d = 0; d < shape::DB; d += 2) {
            const float(&x)[4] = dq[c / 2][d];
            const float(&y)[4] = dq[c / 2][d + 1];
            const float sum[4] = {x[2 * (c % 2)], x[2 * (c % 2) + 1], y[2 * (c % 2)], y[2 * (c % 2) + 1]};
            add_lanes<4>(row + shape::offset(at.warp % shape::ACROSS * shape::DB + d, at.lane), sum);
        }
    }
}

// x times `factor` to the tile's rows of dk' or dv', of DIM columns each. Two lanes exchange halves, so that each has
// four columns of a block.
template <int DIM, int DB>
DEV void add_keys_of(const float (&x)[MT][DB][4], float factor, float *out, i64 row_stride, int left)
{
    static_assert(DB % 2 == 0, "blocks of columns in pairs");
    const place at;
    const bool odd = (at.lane & 1) != 0;
#pragma unroll
    for (int c = 0; c < COLS; c++) {
        const int row = at.key() + 8 * c;
#pragma unroll
        for (int d = 0; d < DB; d += 2) {
            float own[2];
            float others[2];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const float first = x[c / 2][d][2 * (c % 2) + i] * factor;
                const float second = x[c / 2][d + 1][2 * (c % 2) + i] * factor;
                own[i] = odd ? second : first;
                others[i] = __shfl_xor_sync(ALL_LANES, odd ? first : second, 1);
            }
            const float sum[4] = {odd ? others[0] : own[0], odd ? others[1] : own[1], odd ? own[0] : others[0],
                                  odd ? own[1] : others[1]};
            const int column = (at.part() * DB + d + (odd ? 1 : 0)) * 8 + (at.lane & 2) * 2;
            if (row < left && column < DIM) {
                add_lanes<4>(out + row * row_stride + column, sum);
            }
        }
    }
}

} // namespace back

// ---- kernel ------------------------------------------------------------------------------------------

namespace smem_bytes
{
constexpr int bwd = back::selected_layout::BYTES;
}

#if LATHE_COMPILED(bwd)
extern "C" __global__ void __launch_bounds__(back::THREADS, cfg::BACK_BLOCKS)
    LATHE_ENTRY(bwd)(const __grid_constant__ back_params launched)
{
    using namespace back;
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    const u32 shared = shared_address(shared_bytes);
    auto &&p = own_params(launched);
    const sizes &z = p.z;
    selected_work own;
    if (!find_selected(p, own)) {
        return;
    }
    const auto owners_of = [&](int tile) {
        return shared + static_cast<u32>(selected_layout::OWNERS + tile % 3 * selected_layout::OWNERS_BYTES);
    };
    const auto stage_of = [&](int tile) {
        return shared + static_cast<u32>(selected_layout::RING + tile % STAGES * selected_layout::STAGE);
    };
    const int tiles = own.tiles();
    row_finder rows;
    rows.ask(own, 0);
    {
        const tile_loader<BN, cfg::D, DK, THREADS> k_rows(
            static_cast<const cfg::element_k *>(p.k) + own.b * p.k_b + own.h_kv * p.k_h, p.k_t);
        const tile_loader<BN, cfg::D_V, DV, THREADS> v_rows(
            static_cast<const cfg::element_v *>(p.v) + own.b * p.v_b + own.h_kv * p.v_h, p.v_t);
        k_rows.load(shared + selected_layout::K, own.kv0(), z.len_kv - own.kv0());
        v_rows.load(shared + selected_layout::V, own.kv0(), z.len_kv - own.kv0());
    }
    rows.tell(p, own, 0, owners_of(0));
    rows.ask(own, 1);
    __syncthreads();
    gather(p, own, stage_of(0), owners_of(0));
    copy_commit();
    rows.tell(p, own, 1, owners_of(1));
    rows.ask(own, 2);

    warp_sums sums;
    clear(sums.dk);
    clear(sums.dv);
#pragma unroll 1
    for (int tile = 0; tile < tiles; tile++) {
        copy_wait<0>();
        __syncthreads(); // the tile at hand is there for all; no one reads what is written next
        const u32 ring = stage_of(tile);
        const u32 owners = owners_of(tile);
        if constexpr (STAGES == 2) {
            if (tile + 1 < tiles) {
                gather(p, own, stage_of(tile + 1), owners_of(tile + 1));
            }
            copy_commit();
        }
        rows.tell(p, own, tile + 2, owners_of(tile + 2));
        rows.ask(own, tile + 3);

        float s[MT][NB][4];
        float dw[MT][NB][4];
        {
            const place here;
            const u32 first = static_cast<u32>(here.query0()) * 2;
            multiply_rows<cfg::operand, DK>(s, shared + selected_layout::K + offset_a<DK>(here.lane, here.key0()),
                                            ring + selected_layout::Q + first * DK + offset_b<DK>(here.lane));
            if constexpr (WANT_DW) {
                multiply_rows<cfg::operand, DV>(dw, shared + selected_layout::V + offset_a<DV>(here.lane, here.key0()),
                                                ring + selected_layout::DO + first * DV + offset_b<DV>(here.lane));
            } else {
                clear(dw);
            }
        }
        if (rows_are_plain(owners, ring + selected_layout::ROWS)) {
            selected_pairs<true>(s, dw, p, own, owners, ring + selected_layout::ROWS);
        } else {
            selected_pairs<false>(s, dw, p, own, owners, ring + selected_layout::ROWS);
        }
        {
            const turned weights(s);
            const turned ds(dw);
            if constexpr (SHARE_W) {
                weights.store(shared + selected_layout::W);
            }
            if constexpr (WANT_DS) {
                ds.store(shared + selected_layout::DS);
            }
            if constexpr (cfg::WANT_DV) {
                add_own<DV>(sums.dv, weights, ring + selected_layout::DO);
            }
            if constexpr (cfg::WANT_DK) {
                add_own<DK>(sums.dk, ds, ring + selected_layout::Q);
            }
        }
        __syncthreads();
        if constexpr (cfg::WANT_DV) {
            add_others<DV>(sums.dv, shared + selected_layout::W, ring + selected_layout::DO);
        }
        if constexpr (cfg::WANT_DK) {
            add_others<DK>(sums.dk, shared + selected_layout::DS, ring + selected_layout::Q);
        }
        if constexpr (STAGES == 1) {
            if constexpr (SPLIT > 1) {
                __syncthreads(); // Q and dO are read
            }
            if (tile + 1 < tiles) {
                gather(p, own, stage_of(tile + 1), owners_of(tile + 1));
            }
            copy_commit();
        }
        if constexpr (cfg::WANT_DQ) {
            add_selected_dq(p, own, shared + selected_layout::DS, shared + selected_layout::K, owners);
        }
    }
    copy_wait<0>();
    const int left = z.len_kv - own.kv0();
    if constexpr (cfg::WANT_DK) {
        const float factor = variant::ds_factor(p.x, z, variant::make_head(p.x, z, own.b, own.h_kv * own.group));
        add_keys_of<cfg::D>(sums.dk, factor,
                            static_cast<float *>(p.dk) + own.b * p.dk_b + own.h_kv * p.dk_h + own.kv0() * p.dk_t,
                            p.dk_t, left);
    }
    if constexpr (cfg::WANT_DV) {
        add_keys_of<cfg::D_V>(sums.dv, 1.0f,
                              static_cast<float *>(p.dv) + own.b * p.dv_b + own.h_kv * p.dv_h + own.kv0() * p.dv_t,
                              p.dv_t, left);
    }
}
#endif
