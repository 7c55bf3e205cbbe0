// attention/latent_narrow.cuh: rows of K of 8 bits as operands, where a kernel reads them itself: each number as
// key_mod makes it, and rounded once, as where a kernel ahead widens rows.
#pragma once
#include "common/narrow.cuh"

namespace mla
{

// N adjacent numbers of a key, from column `first` on.
template <class MOD, int N, class PARAMS>
DEV void modify(float (&x)[N], const PARAMS &p, const typename MOD::head &head, int key, int first)
{
    typename MOD::vals vals = {};
    repeat<0, MOD::STAGES>([&]<int S>() {
        static_assert(MOD::FORM[S] == FORM_ELEMENT && MOD::REDUCTIONS[S] == 0, "elements are made one by one");
        MOD::template begin<S>(vals, p.x, p.z, head, key, key);
        float none = 0.0f;
#pragma unroll
        for (int j = 0; j < N; j++) {
            MOD::template output<S>(x[j], none, first + j, p.x, p.z, head, vals);
        }
    });
}

template <class MOD, class PARAMS> DEV typename MOD::head mod_head(const PARAMS &p, int b, int h_kv)
{
    if constexpr (MOD::PRESENT) {
        return MOD::make_head(p.x, p.z, b, h_kv);
    } else {
        return {};
    }
}

// 16 adjacent numbers of a key as pairs of operands.
template <class MOD, class T, class PARAMS> DEV void widen16(u32 (&pair)[8], const u32 (&word)[4], const PARAMS &p,
                                                             const typename MOD::head &head, int key, int first)
{
    float x[16];
#pragma unroll
    for (int j = 0; j < 16; j += 2) {
        narrow_pair<T>(word[j / 4] >> (8 * (j % 4)), x[j], x[j + 1]);
    }
    if constexpr (MOD::PRESENT) {
        modify<MOD>(x, p, head, key, first);
    }
#pragma unroll
    for (int j = 0; j < 8; j++) {
        pair[j] = pack<cfg::operand>(x[2 * j], x[2 * j + 1]);
    }
}

// Half `number` of these pairs to shared memory.
DEV void store_half16(u32 to, const u32 (&pair)[8], int number)
{
    float made[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        made[j] = __uint_as_float(pair[4 * number + j]);
    }
    store_shared16(to, made);
}

} // namespace mla
