/*
 * hopper.c: the emulator's own test of sm_90: TMA loads and products of every swizzle against plain loops,
 * and a kernel of a loading and a computing warpgroup, first sound, then with one rule broken at a time.
 */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DIM = 128,
    TOKENS = 100,
    HEADS = 2,
    BATCHES = 2,
    OUTPUTS = 256,
    N_LOAD_MAPS = 6,
    PACKED_MAP = N_LOAD_MAPS,
    OUT_MAP,
    N_MAPS,
    SMEM_BYTES = 65536 + 64
};

/* Whole numbers below 5 in bf16, [batch][head][token][dim]; maps: swizzles 128, 64, 32 bytes by boxes of 64
   and 48 tokens; then one of 5 dims, whose box has both heads of 32 tokens, and one of the output: 6 of its 8
   rows of 128 bytes are tokens. */
struct params {
    unsigned char map[N_MAPS][128];
    int *out;
    const unsigned short *in;
    long long none[6]; /* up to a multiple of 64 bytes */
};

static const char HEAD[] =
    "#include \"common/tma_sm90.cuh\"\n"
    "struct params { tensor_map map[8]; int *out; const u16 *in; };\n"
    "extern __shared__ __align__(1024) unsigned char shared_bytes[];\n"
    "DEV float at(const params &p, int x, int token, int head, int b)\n"
    "{\n"
    "    if (x < 0 || x >= 128 || token < 0 || token >= 100) { return 0.0f; }\n"
    "    return to_float(bf16{p.in[((b * 2 + head) * 100 + token) * 128 + x]});\n"
    "}\n"
    "DEV int row_of(int i) { return (int)threadIdx.x % 128 / 32 * 16 + lane_id() / 4 + i / 2 % 2 * 8; }\n"
    "DEV int column_of(int b, int i) { return 8 * b + 2 * (lane_id() % 4) + i % 2; }\n"
    "DEV float weight(int row, int k) { return (float)((row * 7 + k * 3) % 5 - 2); }\n"
    "DEV void start(u32 barrier)\n"
    "{\n"
    "    if (threadIdx.x == 0) { mbarrier_init(barrier, 1); mbarrier_init_fence(); }\n"
    "    __syncthreads();\n"
    "}\n"
    "// q: 64 rows from token 0 of head 0; k: 48 from token `first` of head 1\n"
    "template <int COLS> DEV bool is_product(const params &p, const float (&d)[6][4], int first, int b)\n"
    "{\n"
    "    bool good = true;\n"
    "    for (int i = 0; i < 24; i++) {\n"
    "        float sum = 0.0f;\n"
    "        for (int x = 0; x < COLS; x++) { sum += at(p, x, row_of(i), 0, b) * at(p, x, first + "
    "column_of(i / "
    "4, i), 1, b); }\n"
    "        good = good && sum == d[i / 4][i % 4];\n"
    "    }\n"
    "    return good;\n"
    "}\n";

static const char LOADS[] =
    "template <int COLS> DEV bool load(const params &p, const tensor_map *map, int first, u32 parity)\n"
    "{\n"
    "    const u32 s = shared_address(shared_bytes), t = threadIdx.x, barrier = s + 65536;\n"
    "    using shape = panels<COLS>;\n"
    "    if (t == 0) {\n"
    "        mbarrier_arrive_expect(barrier, 64 * COLS * 2);\n"
    "        load_tile<64, COLS>(s, map, barrier, first, 1, 1, L2_KEEP);\n"
    "    }\n"
    "    mbarrier_wait(barrier, parity);\n"
    "    bool good = true;\n"
    "    for (int i = (int)t; i < 64 * COLS / 2; i += 256) {\n"
    "        const int row = i / (COLS / 2), x = i % (COLS / 2) * 2, panel = x * 2 / shape::SPAN;\n"
    "        u32 place = (u32)(panel * 64 * shape::SPAN + row * shape::SPAN + x * 2 % shape::SPAN);\n"
    "        place ^= shape::SPAN == 128 ? (u32)row % 8 * 16 : shape::SPAN == 64 ? (u32)row / 2 % 4 * 16 : "
    "(u32)row / 4 % 2 * 16;\n"
    "        const u32 pair = __float_as_uint(load_shared(s + place));\n"
    "        good = good && to_float(bf16{(u16)pair}) == at(p, x, first + row, 1, 1);\n"
    "        good = good && to_float(bf16{(u16)(pair >> 16)}) == at(p, x + 1, first + row, 1, 1);\n"
    "    }\n"
    "    __syncthreads();\n"
    "    return good;\n"
    "}\n"
    "KERNEL\n"
    "{\n"
    "    start(shared_address(shared_bytes) + 65536);\n"
    "    const bool a = load<128>(p, &p.map[0], -3, 0), b = load<96>(p, &p.map[2], 50, 1), c = load<144>(p, "
    "&p.map[4], 99, 0);\n"
    "    p.out[threadIdx.x] = a && b && c ? (int)threadIdx.x : -1;\n"
    "}\n";

static const char PRODUCTS[] =
    "template <int COLS> DEV bool both(const params &p, const tensor_map *maps, u32 parity)\n"
    "{\n"
    "    const u32 s = shared_address(shared_bytes), barrier = s + 65536;\n"
    "    if (threadIdx.x == 0) {\n"
    "        mbarrier_arrive_expect(barrier, (64 + 48) * COLS * 2);\n"
    "        load_tile<64, COLS>(s, maps, barrier, 0, 0, 1, L2_KEEP);\n"
    "        load_tile<48, COLS>(s + 32768, maps + 1, barrier, 70, 1, 1, L2_KEEP);\n"
    "    }\n"
    "    mbarrier_wait(barrier, parity);\n"
    "    float d[6][4];\n"
    "    float o[COLS / 8][4];\n"
    "    u32 a[3][4];\n"
    "    start_qk<bf16, 48, COLS>(d, s, s + 32768);\n"
    "    wgmma<48>::wait<0>(d);\n"
    "    bool good = is_product<COLS>(p, d, 70, 1);\n"
    "    for (int i = 0; i < 24; i++) { d[i / 4][i % 4] = weight(row_of(i), column_of(i / 4, i)); }\n"
    "    pack_weights<bf16, 6>(a, d);\n"
    "    start_pv<bf16, COLS, 48>(o, a, s + 32768, 0);\n"
    "    start_pv<bf16, COLS, 48>(o, a, s + 32768, 1);\n"
    "    wgmma<COLS>::template wait<0>(o);\n"
    "    for (int i = 0; i < COLS / 2; i++) {\n"
    "        float sum = 0.0f;\n"
    "        for (int k = 0; k < 48; k++) { sum += 2.0f * weight(row_of(i), k) * at(p, column_of(i / 4, i), "
    "70 + k, 1, 1); "
    "}\n"
    "        good = good && sum == o[i / 4][i % 4];\n"
    "    }\n"
    "    __syncthreads();\n"
    "    return good;\n"
    "}\n"
    "KERNEL\n"
    "{\n"
    "    start(shared_address(shared_bytes) + 65536);\n"
    "    const bool a = both<128>(p, &p.map[0], 0), b = both<96>(p, &p.map[2], 1), c = both<144>(p, "
    "&p.map[4], 0);\n"
    "    p.out[threadIdx.x] = a && b && c ? (int)threadIdx.x : -1;\n"
    "}\n";

/* Whole numbers below 5 as codes of e4m3, in tiles of every swizzle, from shared memory and from registers.
 */
static const char E4M3[] =
    "#include \"common/wgmma_fp8_sm90.cuh\"\n"
    "DEV u32 code_of(int n)\n"
    "{\n"
    "    const u32 code[5] = {0, 0x38, 0x40, 0x44, 0x48};\n"
    "    return code[n < 0 ? -n : n] | (n < 0 ? 0x80u : 0u);\n"
    "}\n"
    "DEV int left(int row, int k) { return (row * 5 + k * 3) % 9 - 4; }\n"
    "DEV int right(int n, int k) { return (n * 7 + k * 2 + k / 3) % 9 - 4; }\n"
    "template <int COLS, int ROWS, class F> DEV void fill(u32 to, F f)\n"
    "{\n"
    "    for (int i = (int)threadIdx.x; i < ROWS * COLS / 4; i += 256) {\n"
    "        const int row = i / (COLS / 4), x = i % (COLS / 4) * 4;\n"
    "        u32 word = 0;\n"
    "        for (int k = 0; k < 4; k++) { word |= code_of(f(row, x + k)) << (8 * k); }\n"
    "        store_shared(to + panels<COLS / 2>::template offset<ROWS>(row, x / 16) + (u32)x % 16, word);\n"
    "    }\n"
    "    FENCE\n"
    "    __syncthreads();\n"
    "}\n"
    "using products_of = tile_products<f8_e4m3>;\n"
    "template <int COLS> DEV bool products()\n"
    "{\n"
    "    const u32 s = shared_address(shared_bytes);\n"
    "    float d[6][4], w[COLS / 8][4];\n"
    "    u32 a[COLS / 32][4];\n"
    "    bool good = true;\n"
    "    fill<COLS, 64>(s, left);\n"
    "    fill<COLS, 48>(s + 32768, right);\n"
    "    products_of::start_scores<48, COLS>(d, describe_q<COLS / 2>(s), s + 32768);\n"
    "    wgmma<48>::wait<0>(d);\n"
    "    for (int i = 0; i < 24; i++) {\n"
    "        int sum = 0;\n"
    "        for (int k = 0; k < COLS; k++) { sum += left(row_of(i), k) * right(column_of(i / 4, i), k); }\n"
    "        good = good && d[i / 4][i % 4] == (float)sum;\n"
    "    }\n"
    "    __syncthreads();\n"
    "    fill<COLS, 48>(s, [](int n, int place) { return right(n, place / 16 * 16 + key_of_place(place % "
    "16)); "
    "});\n"
    "    for (int i = 0; i < COLS / 2; i++) { w[i / 4][i % 4] = weight(row_of(i), column_of(i / 4, i)); }\n"
    "    products_of::pack<COLS / 8>(a, w);\n"
    "    products_of::start_output<48, COLS>(d, a, s, 0);\n"
    "    products_of::start_output<48, COLS>(d, a, s, 1);\n"
    "    IN_FLIGHT\n"
    "    wgmma<48>::wait<0>(d);\n"
    "    for (int i = 0; i < 24; i++) {\n"
    "        float sum = 0.0f;\n"
    "        for (int k = 0; k < COLS; k++) { sum += 2.0f * weight(row_of(i), k) * (float)right(column_of(i "
    "/ 4, i), "
    "k); }\n"
    "        good = good && d[i / 4][i % 4] == sum;\n"
    "    }\n"
    "    __syncthreads();\n"
    "    return good;\n"
    "}\n"
    "// Numbers that stand between two of e4m3, too small and too large ones.\n"
    "DEV bool rounds()\n"
    "{\n"
    "    const u32 x = e4m3x4_from_floats(1.0625f, -1.1875f, 1e9f, 0.0009f);\n"
    "    const u32 y = e4m3x4_from_floats(0.001f, 448.0f, -0.0f, 17.5f);\n"
    "    return x == 0x007eba38u && y == 0x5980 * 65536u + 0x7e01u;\n"
    "}\n"
    "KERNEL\n"
    "{\n"
    "    const bool a = products<128>(), b = products<96>(), c = products<64>(), d = products<256>();\n"
    "    p.out[threadIdx.x] = a && b && c && d && rounds() ? (int)threadIdx.x : -1;\n"
    "}\n";
#define E4M3_STEPS "#define FENCE fence_async_proxy();\n#define IN_FLIGHT\n"

/* Operands stored the other way round: A [k][row], B [k][n] beside A in shared memory and [n][k] beside A in
   registers. The tile: 48 tokens of 128. */
static const char TURNED[] =
    "KERNEL\n"
    "{\n"
    "    const u32 s = shared_address(shared_bytes), barrier = s + 65536;\n"
    "    start(barrier);\n"
    "    if (threadIdx.x == 0) {\n"
    "        mbarrier_arrive_expect(barrier, 48 * 256);\n"
    "        load_tile<48, 128>(s, &p.map[1], barrier, 20, 1, 1, L2_KEEP);\n"
    "    }\n"
    "    mbarrier_wait(barrier, 0);\n"
    "    using shape = panels<128>;\n"
    "    float d[8][4], e[6][4];\n"
    "    u32 a[3][4];\n"
    "    const u64 left = shape::descriptor(s, 48 * 128), right = shape::descriptor(s + 48 * 128, 48 * "
    "128);\n"
    "    wgmma<64>::fence(d);\n"
    "    for (int k = 0; k < 3; k++) {\n"
    "        wgmma<64>::template ss<true, true, true>(d, left + descriptor_step(k * 2048), right + "
    "descriptor_step(k * 2048), k != 0);\n"
    "    }\n"
    "    wgmma_commit();\n"
    "    for (int i = 0; i < 24; i++) { e[i / 4][i % 4] = weight(row_of(i), column_of(i / 4, i)); }\n"
    "    pack_weights<bf16, 6>(a, e);\n"
    "    wgmma<48>::fence(e);\n"
    "    for (int k = 0; k < 3; k++) {\n"
    "        wgmma<48>::template rs<true, false>(e, a[k], shape::descriptor(s, 16) + descriptor_step(k * "
    "32), k != 0);\n"
    "    }\n"
    "    wgmma_commit();\n"
    "    wgmma<64>::template wait<0>(d);\n"
    "    wgmma<48>::template wait<0>(e);\n"
    "    bool good = true;\n"
    "    for (int i = 0; i < 32; i++) {\n"
    "        float sum = 0.0f;\n"
    "        for (int k = 0; k < 48; k++) { sum += at(p, row_of(i), 20 + k, 1, 1) * at(p, 64 + column_of(i / "
    "4, i), 20 + k, 1, 1); }\n"
    "        good = good && sum == d[i / 4][i % 4];\n"
    "    }\n"
    "    for (int i = 0; i < 24; i++) {\n"
    "        float sum = 0.0f;\n"
    "        for (int k = 0; k < 48; k++) { sum += weight(row_of(i), k) * at(p, k, 20 + column_of(i / 4, i), "
    "1, 1); }\n"
    "        good = good && sum == e[i / 4][i % 4];\n"
    "    }\n"
    "    p.out[threadIdx.x] = good ? (int)threadIdx.x : -1;\n"
    "}\n";

/* Lines of bytes to shared memory, fragments turned over in it, and floats from there added to global memory,
   three times: the second warpgroup writes, a warp of the first adds. */
static const char LINES[] =
    "#ifndef FENCE\n#define FENCE fence_async_proxy();\n#endif\n"
    "#ifndef WAIT_READ\n#define WAIT_READ tma_wait_read<0>();\n#endif\n"
    "#ifndef LEFT\n#define LEFT barrier_arrive(2, 160);\n#endif\n"
    "KERNEL\n"
    "{\n"
    "    const u32 s = shared_address(shared_bytes), t = threadIdx.x, barrier = s + 65536;\n"
    "    float *sums = reinterpret_cast<float *>(p.out);\n"
    "    if (blockIdx.x != 0) { return; }\n"
    "    sums[t] = 0.0f;\n"
    "    start(barrier);\n"
    "    if (t < 32) {\n"
    "        for (int turn = 0; turn < 3; turn++) {\n"
    "            LEFT\n"
    "            barrier_sync(3, 160);\n"
    "            if (elect_one()) { tma_add_line(sums, s, 1024, L2_KEEP); tma_commit(); WAIT_READ }\n"
    "            __syncwarp();\n"
    "        }\n"
    "    } else if (t >= 128) {\n"
    "        if (t == 128) { mbarrier_arrive_expect(barrier, 512); tma_load_line(s + 4096, p.in, 512, "
    "barrier); }\n"
    "        mbarrier_wait(barrier, 0);\n"
    "        const int lane = lane_id();\n"
    "        const u32 mine = s + 8192 + (t - 128) / 32 * 512, own = (u32)lane;\n"
    "        const u32 r[4] = {own * 65537 * 2 + 65536, (own + 32) * 65537 * 2 + 65536, (own + 64) * 65537 * "
    "2 + 65536, (own + 96) * 65537 * 2 + 65536};\n"
    "        store_matrix4_transposed(mine + own * 16, r);\n"
    "        __syncwarp();\n"
    "        bool good = true;\n"
    "        for (int i = 0; i < 8; i++) { // row `lane` of matrix lane / 8: its element i is column lane % "
    "8 of row i\n"
    "            const u32 two = __float_as_uint(load_shared(mine + own * 16 + i / 2 * 4));\n"
    "            const u32 from = (u32)(i * 4 + lane % 8 / 2 + lane / 8 * 32);\n"
    "            good = good && (i % 2 ? two >> 16 : two & 65535u) == from * 2 + (u32)(lane % 2);\n"
    "        }\n"
    "        const u32 word = __float_as_uint(load_shared(s + 4096 + (t - 128) * 4));\n"
    "        good = good && (u16)word == p.in[2 * (t - 128)] && word >> 16 == p.in[2 * (t - 128) + 1];\n"
    "        for (int turn = 0; turn < 3; turn++) {\n"
    "            barrier_sync(2, 160);\n"
    "            for (u32 i = t - 128; i < 256; i += 128) { store_shared(s + 4 * i, __uint_as_float(turn == "
    "2 ? i : 0u) + (turn < 2 || good ? 0.0f : 1.0f)); }\n"
    "            FENCE\n"
    "            barrier_arrive(3, 160);\n"
    "        }\n"
    "    }\n"
    "}\n";

/* Two tiles of K through one place. A case defines some of the steps anew. */
static const char PIPELINE[] =
    "#ifndef INIT_FENCE\n#define INIT_FENCE mbarrier_init_fence();\n#endif\n"
    "#ifndef INIT_BARRIER\n#define INIT_BARRIER __syncthreads();\n#endif\n"
    "#ifndef REGISTERS_0\n#define REGISTERS_0 registers_down<40>();\n#endif\n"
    "#ifndef REGISTERS_1\n#define REGISTERS_1 registers_up<256>();\n#endif\n"
    "#ifndef BYTES\n#define BYTES (64 + 48) * 256\n#endif\n"
    "#ifndef TO\n#define TO s + 16384\n#endif\n"
    "#ifndef WAIT_FULL\n#define WAIT_FULL mbarrier_wait(full, 0);\n#endif\n"
    "#ifndef START\n#define START start_qk<bf16, 48, 128>(d, s, s + 16384);\n#endif\n"
    "#ifndef IN_FLIGHT\n#define IN_FLIGHT\n#endif\n"
    "#ifndef DONE\n#define DONE wgmma<48>::wait<0>(d);\n#endif\n"
    "#ifndef LEAVE\n#define LEAVE if (lane_id() == 0) { mbarrier_arrive(empty); }\n#endif\n"
    "KERNEL\n"
    "{\n"
    "    const u32 s = shared_address(shared_bytes), t = threadIdx.x, full = s + 65536, empty = full + 8;\n"
    "    if (t == 0) { mbarrier_init(full, 1); mbarrier_init(empty, 4); INIT_FENCE }\n"
    "    INIT_BARRIER\n"
    "    if (t < 128) {\n"
    "        REGISTERS_0\n"
    "        if (t < 32 && elect_one()) {\n"
    "            mbarrier_arrive_expect(full, BYTES);\n"
    "            load_tile<64, 128>(s, &p.map[0], full, 0, 0, 0, L2_KEEP);\n"
    "            load_tile<48, 128>(TO, &p.map[1], full, 10, 1, 0, L2_KEEP);\n"
    "            mbarrier_wait(empty, 0);\n"
    "            mbarrier_arrive_expect(full, 48 * 256);\n"
    "            load_tile<48, 128>(TO, &p.map[1], full, 80, 1, 0, L2_KEEP);\n"
    "        }\n"
    "        p.out[t] = (int)t;\n"
    "    } else {\n"
    "        REGISTERS_1\n"
    "        float d[6][4];\n"
    "        WAIT_FULL\n"
    "        START\n"
    "        IN_FLIGHT\n"
    "        DONE\n"
    "        bool good = is_product<128>(p, d, 10, 0);\n"
    "        LEAVE\n"
    "        mbarrier_wait(full, 1);\n"
    "        start_qk<bf16, 48, 128>(d, s, s + 16384);\n"
    "        wgmma<48>::wait<0>(d);\n"
    "        good = good && is_product<128>(p, d, 80, 0);\n"
    "        p.out[t] = good ? (int)t : -1;\n"
    "    }\n"
    "}\n";

/* Rows of two heads in turn. */
static const char PACKED[] =
    "KERNEL\n"
    "{\n"
    "    const u32 s = shared_address(shared_bytes), t = threadIdx.x, barrier = s + 65536;\n"
    "    start(barrier);\n"
    "    if (t == 0) {\n"
    "        mbarrier_arrive_expect(barrier, 64 * 256);\n"
    "        load_packed_tile<64, 128>(s, &p.map[6], barrier, 80, 0, 1, L2_KEEP);\n"
    "    }\n"
    "    mbarrier_wait(barrier, 0);\n"
    "    bool good = true;\n"
    "    for (int i = (int)t; i < 64 * 64; i += 256) {\n"
    "        const int row = i / 64, x = i % 64 * 2;\n"
    "        const u32 pair = __float_as_uint(load_shared(s + panels<128>::offset<64>(row, x / 8) + (u32)x % "
    "8 * "
    "2));\n"
    "        good = good && to_float(bf16{(u16)pair}) == at(p, x, 80 + row / 2, row % 2, 1);\n"
    "        good = good && to_float(bf16{(u16)(pair >> 16)}) == at(p, x + 1, 80 + row / 2, row % 2, 1);\n"
    "    }\n"
    "    p.out[t] = good ? (int)t : -1;\n"
    "}\n";

/* 8 rows to the output, of which the map takes 6; the threads write the others themselves. */
static const char STORES[] =
    "#ifndef FENCE\n#define FENCE fence_async_proxy();\n#endif\n"
    "#ifndef MEET\n#define MEET __syncthreads();\n#endif\n"
    "#ifndef COMMIT\n#define COMMIT tma_commit();\n#endif\n"
    "#ifndef WAIT\n#define WAIT tma_wait_read<0>();\n#endif\n"
    "#ifndef THEN\n#define THEN __syncthreads();\n#endif\n"
    "KERNEL\n"
    "{\n"
    "    const u32 s = shared_address(shared_bytes), t = threadIdx.x;\n"
    "    const u32 to = s + panels<64>::offset<8>((int)t / 32, (int)t % 32 / 4) + t % 4 * 4;\n"
    "    store_shared(to, t);\n"
    "    FENCE\n"
    "    MEET\n"
    "    if (t == 0) {\n"
    "        tma_store(&p.map[7], s, 0, 0, 0, 0);\n"
    "        COMMIT\n"
    "        WAIT\n"
    "    }\n"
    "    THEN\n"
    "    store_shared(to, ~0u);\n"
    "    if (t >= 192) { p.out[t] = (int)t; }\n"
    "}\n";

#define SLICE "panels<128>::descriptor(s, 16), panels<128>::descriptor(s + 16384, 16), 0"
#define AGAIN " start_qk<bf16, 48, 128>(d, s, s + 16384);"

/* Block 0 stores a line and says so in a word; the other one, where it does not find the line, touches what
   is not its own. */
static const char TOLD[] = "#ifndef WAIT\n#define WAIT tma_wait<0>();\n#endif\n"
                           "KERNEL\n"
                           "{\n"
                           "    const u32 s = shared_address(shared_bytes), t = threadIdx.x;\n"
                           "    u32 *const words = reinterpret_cast<u32 *>(p.out);\n"
                           "    if (blockIdx.x == 0) {\n"
                           "        if (t < 248) { store_shared(s + 4 * t, t); }\n"
                           "        fence_async_proxy();\n"
                           "        __syncthreads();\n"
                           "        if (t == 0) {\n"
                           "            tma_store_line(reinterpret_cast<float *>(p.out), s, 992, L2_KEEP);\n"
                           "            tma_commit();\n"
                           "            WAIT\n"
                           "            end_turn(words + 255);\n"
                           "        }\n"
                           "        return;\n"
                           "    }\n"
                           "    if (t == 0) {\n"
                           "        wait_turn(words + 255, 0);\n"
                           "        if (words[240] != 240) { store_shared(s + (1u << 20), 0u); }\n"
                           "    }\n"
                           "    __syncthreads();\n"
                           "    if (t >= 248) { words[t] = t; }\n"
                           "}\n";

static const struct hopper_case {
    const char *name;
    const char *defines; /* the steps that are not as they should be */
    const char *body;
    const char *report; /* part of the sentence; NULL: it must run */
    bool wrong;         /* no sentence, and wrong results */
    unsigned beside;    /* blocks at the same time; 0: one after the other */
} CASES[] = {
    {"TMA loads", "", LOADS, NULL, false, 0},
    {"wgmma", "", PRODUCTS, NULL, false, 0},
    {"wgmma of operands turned over", "", TURNED, NULL, false, 0},
    {"wgmma of e4m3", E4M3_STEPS, E4M3, NULL, false, 0},
    {"wgmma of e4m3 whose operand A changes under way",
     "#define FENCE fence_async_proxy();\n#define IN_FLIGHT a[0][1] = ~a[0][1];\n", E4M3,
     "registers of the operand A changed", false, 0},
    {"wgmma of e4m3 behind ordinary writes", "#define FENCE\n#define IN_FLIGHT\n", E4M3, "fence_async_proxy",
     false, 0},
    {"lines and additions", "", LINES, NULL, false, 0},
    {"an addition of what is not fenced", "#define FENCE\n", LINES, "fence_async_proxy", false, 0},
    {"an addition that nobody waits for", "#define WAIT_READ\n", LINES, "a bulk addition", false, 0},
    {"a place written while it is added", "#define LEFT barrier_arrive(2, 160);\n#define WAIT_READ\n", LINES,
     "a bulk addition", false, 0},
    {"two warpgroups", "", PIPELINE, NULL, false, 0},
    {"TMA loads of heads in turn", "", PACKED, NULL, false, 0},
    {"TMA stores", "", STORES, NULL, false, 0},
    {"a TMA store without a fence", "#define FENCE\n", STORES, "fence_async_proxy", false, 0},
    {"a TMA store without a barrier", "#define MEET\n", STORES, "of shared memory", false, 0},
    {"a TMA store that nobody waits for", "#define WAIT\n", STORES, "a TMA store", false, 0},
    {"a TMA store of no group", "#define COMMIT\n", STORES, "a TMA store", false, 0},
    {"writes over what a TMA store reads", "#define THEN\n", STORES, "of shared memory", false, 0},
    {"TMA with too few coordinates", "",
     "KERNEL\n{\n    if (threadIdx.x == 0) { tma_store(&p.map[6], shared_address(shared_bytes), 0, 0, 0, 0); "
     "}\n}\n",
     "of rank 5", false, 0},
    {"mbarriers without a fence", "#define INIT_FENCE\n", PIPELINE, "mbarrier_init_fence", false, 0},
    {"mbarriers without a barrier", "#define INIT_BARRIER\n", PIPELINE, "mbarrier at byte", false, 0},
    {"no wait for a TMA load", "#define WAIT_FULL\n", PIPELINE, "of shared memory", false, 0},
    {"a wait with the wrong parity", "#define WAIT_FULL mbarrier_wait(full, 1);\n", PIPELINE,
     "of shared memory", false, 0},
    {"too many bytes expected", "#define BYTES (64 + 64) * 256\n", PIPELINE, "4096 bytes are missing", false,
     0},
    {"too few bytes expected", "#define BYTES 48 * 256\n", PIPELINE, "of shared memory", false, 0},
    {"a tile off its pattern", "#define TO s + 16384 + 512\n", PIPELINE, "the swizzle's pattern", false, 0},
    {"accumulators read too early",
     "#define DONE\n#define LEAVE wgmma<48>::wait<0>(d); if (lane_id() == 0) { mbarrier_arrive(empty); }\n",
     PIPELINE, NULL, true, 0},
    {"accumulators changed under way", "#define IN_FLIGHT d[0][0] = 1.0f;\n", PIPELINE,
     "registers of an accumulator changed", false, 0},
    {"no wgmma.fence",
     "#define START wgmma<48>::ss<true>(d, " SLICE "); wgmma_commit();"
     "\n",
     PIPELINE, "has seen no wgmma.fence", false, 0},
    {"accumulators changed after the fence",
     "#define START wgmma<48>::fence(d); d[0][0] = 1.0f; wgmma<48>::ss<true>(d, " SLICE
     "); wgmma_commit();\n",
     PIPELINE, "between wgmma.fence and wgmma", false, 0},
    {"operand A changed under way",
     "#define START u32 a[4] = {0, 0, 0, 0}; wgmma<48>::fence(d); wgmma<48>::rs<true>(d, a, "
     "panels<48>::descriptor(s + 16384, 48 * 32), 0); wgmma_commit(); a[1] = 1;\n",
     PIPELINE, "registers of the operand A changed", false, 0},
    {"a tile left before its product is done",
     "#define IN_FLIGHT if (lane_id() == 0) { mbarrier_arrive(empty); }\n"
     "#define DONE __nanosleep_turn(); wgmma<48>::wait<0>(d);\n#define LEAVE\n",
     PIPELINE, "of shared memory", false, 0},
    {"a tile that nobody leaves", "#define LEAVE\n", PIPELINE, "deadlock", false, 0},
    {"ordinary writes ahead of a wgmma",
     "#define START store_shared(s + 4 * t, 0u); barrier_sync(1, 128);" AGAIN "\n", PIPELINE,
     "fence_async_proxy", false, 0},
    {"ordinary writes without a barrier",
     "#define START store_shared(s + 4 * t, 0u); fence_async_proxy();" AGAIN "\n", PIPELINE,
     "of shared memory", false, 0},
    {"ordinary writes with both",
     "#define START" AGAIN
     " wgmma<48>::wait<0>(d); const float was = load_shared(s + 4 * (t - 128)); barrier_sync(1, 128); "
     "store_shared(s + 4 * (t - 128), was); fence_async_proxy(); barrier_sync(1, 128);" AGAIN "\n",
     PIPELINE, NULL, false, 0},
    {"warps that do not issue the same",
     "#define START if (t < 160) {" AGAIN " wgmma<48>::wait<0>(d); }" AGAIN "\n", PIPELINE,
     "have not issued the same", false, 0},
    {"more registers than there are", "#define REGISTERS_0\n", PIPELINE, "setmaxnreg asks for", false, 0},
    {"registers of one warp", "#define REGISTERS_0 if (t < 32) { registers_down<40>(); }\n", PIPELINE,
     "of the same warpgroup", false, 0},
    {"a named barrier that some miss", "#define IN_FLIGHT if (t < 224) { barrier_sync(1, 128); }\n", PIPELINE,
     "named barrier 1", false, 0},
    {"a store that another block waits for", "", TOLD, NULL, false, 2},
    {"a store that is told of too early", "#define WAIT tma_wait_read<0>();\n", TOLD,
     "which nobody has waited for", false, 2},
};
const int hopper_count = (int)(sizeof CASES / sizeof *CASES);

const char *hopper_name(int i)
{
    return CASES[i].name;
}

/* ---- texts --------------------------------------------------------------------------------------------- */

static bool add_text(struct source *s, const char *name, const char *data, size_t size)
{
    struct text *t = &s->text[s->n_texts++];
    snprintf(t->name, sizeof t->name, "%s", name);
    t->data = malloc(size + 1);
    t->size = size;
    if (t->data)
        memcpy(t->data, data, size);
    return t->data != NULL;
}

static bool make_source(struct source *s, const struct hopper_case *c)
{
    static const char *const HEADERS[] = {"common/base.cuh", "common/tma_sm90.cuh", "common/wgmma_sm90.cuh",
                                          "common/narrow.cuh", "common/wgmma_fp8_sm90.cuh"};
    struct text_buf t = {0};
    memset(s, 0, sizeof *s);
    text_add(
        &t,
        "%s#define KERNEL extern \"C\" __global__ void __launch_bounds__(256) hopper(const __grid_constant__ "
        "params p)\nDEV void __nanosleep_turn() { __syncwarp(); __syncwarp(); __syncwarp(); }\n%s%s",
        HEAD, c->defines, c->body);
    bool good = !t.failed && add_text(s, "hopper.cuh", t.data, t.size);
    text_free(&t);
    for (size_t i = 0; i < sizeof HEADERS / sizeof *HEADERS && good; i++) {
        char path[64];
        snprintf(path, sizeof path, "templates/%s", HEADERS[i]);
        const struct embedded *file = embedded_find(path);
        good = file && add_text(s, HEADERS[i], file->data, file->size);
    }
    s->n_launches = 1;
    snprintf(s->launch[0].entry, sizeof s->launch[0].entry, "hopper");
    s->launch[0].param_bytes = sizeof(struct params);
    return good;
}

/* ---- runs ---------------------------------------------------------------------------------------------- */

static void fill_params(struct params *p, unsigned char *out, unsigned char *in)
{
    unsigned short *value = (unsigned short *)(void *)in;
    memset(p, 0, sizeof *p);
    memcpy((void *)&p->out, (void *)&out, sizeof out);
    memcpy((void *)&p->in, (void *)&in, sizeof in);
    for (int i = 0; i < DIM * TOKENS * HEADS * BATCHES; i++)
        dtype_store(LATHE_BF16, value, i, (double)(i * 5 % 9 - 4 + (i / DIM * 3 + i / 7) % 3 - 1));
    for (int i = 0; i < N_LOAD_MAPS; i++) {
        const unsigned span = 128U >> (i / 2);
        const struct emulate_tensor_map m = {
            EMULATE_TENSOR_MAP,
            in,
            {DIM, TOKENS, HEADS, BATCHES, 1},
            {2, DIM * 2, DIM * TOKENS * 2, DIM * TOKENS * HEADS * 2, 0},
            {span / 2, i % 2 ? 48 : 64, 1},
            4,
            3U - (unsigned)i / 2,
            2,
        };
        memcpy(p->map[i], &m, sizeof m);
    }
    const struct emulate_tensor_map packed = {
        EMULATE_TENSOR_MAP,
        in,
        {DIM, HEADS, TOKENS, 1, BATCHES},
        {2, DIM * TOKENS * 2, DIM * 2, DIM * TOKENS * HEADS * 2, DIM * TOKENS * HEADS * 2},
        {64, HEADS, 32},
        5,
        3,
        2,
    };
    const struct emulate_tensor_map outputs = {
        EMULATE_TENSOR_MAP, out, {64, 6, 1, 1, 1}, {2, 128, 0, 0, 0}, {64, 8, 1}, 4, 3, 2};
    memcpy(p->map[PACKED_MAP], &packed, sizeof packed);
    memcpy(p->map[OUT_MAP], &outputs, sizeof outputs);
}

/* One run: 0 right, 1 wrong, 2 reported. */
static int try_seed(const struct workshop *w, const struct kernel *k, const struct hopper_case *c,
                    const struct params *p, uint64_t seed, struct emulate_report *report)
{
    const struct emulate_launch order = {
        k->thread[0], p, 2, 256, SMEM_BYTES, seed, 1, c->beside, 0, 0, memory_range(), MEMORY_BYTES};
    memset(p->out, POISON, OUTPUTS * sizeof *p->out);
    if (w->run(&order, report) != 0)
        return 2;
    for (int i = 0; i < OUTPUTS; i++)
        if (p->out[i] != i)
            return 1;
    return 0;
}

static enum verdict judge(const struct hopper_case *c, const int seen[3], const char *report, char *why,
                          size_t size)
{
    const bool good = c->report  ? seen[2] > 0 && strstr(report, c->report)
                      : c->wrong ? seen[1] > 0 && seen[0] == 0
                                 : seen[1] + seen[2] == 0;
    snprintf(why, size, "%d runs were right, %d wrong, %d reported%s%s; expected %s", seen[0], seen[1],
             seen[2], seen[2] > 0 ? ", the last as: " : "", report,
             c->report  ? c->report
             : c->wrong ? "wrong results"
                        : "right results");
    return good ? VERDICT_PASSED : VERDICT_FAILED;
}

enum verdict hopper_run(struct workshop *w, int i, uint64_t seed, char *why, size_t size)
{
    static _Alignas(64) struct params params;
    struct source *source = calloc(1, sizeof *source);
    struct block out;
    struct block in;
    int seen[3] = {0, 0, 0};
    struct emulate_report report = {.address = NULL};
    struct emulate_report last = {.address = NULL};
    memset(&out, 0, sizeof out);
    memset(&in, 0, sizeof in);
    const bool made = source && make_source(source, &CASES[i]);
    const struct kernel *k = made ? workshop_kernel(w, source, why, size) : NULL;
    free(source);
    if (!k || !block_open(&out, OUTPUTS * sizeof(int), 16) ||
        !block_open(&in, (size_t)2 * DIM * TOKENS * HEADS * BATCHES, 16))
        return VERDICT_FAILED;
    fill_params(&params, out.data, in.data);
    for (uint64_t s = 0; s < 8; s++) {
        const int result = try_seed(w, k, &CASES[i], &params, seed * 8 + s, &report);
        seen[result]++;
        last = result == 2 ? report : last;
    }
    block_close(&out);
    block_close(&in);
    return judge(&CASES[i], seen, last.text, why, size);
}
