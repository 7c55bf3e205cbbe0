// rowwise/columns.cuh: for rowwise/staged.cuh: values of a thread's columns that stay in registers over all rows.
//
// COLS_PACKED: as they came from memory, two of 16 bits to a register, and made floats for every use: more instructions
// and half the registers. The variant says how many there are, and which is which.
#pragma once
#include "rowwise/vectors.cuh"

namespace many
{

constexpr bool COLS_HELD = cfg::COLS_HELD && variant::COLS;
constexpr bool PACKED = cfg::COLS_PACKED;

static_assert(!PACKED || (COLS_HELD && fields_of<variant>() > 0 && !has_places<variant>()),
              "columns that are packed: held, of rows without places");
static_assert(!PACKED || (sizeof(element) == 2 && V % 2 == 0), "columns that are packed: two of 16 bits");

struct plain_columns { // of a vector
    variant::col of[V];
};
// `make` fills the columns of a vector; those that are held as they are in their place: a copy of them takes registers
// where loads have branches.
template <class MAKE> DEV void hold_columns(plain_columns &held, const MAKE &make) { make(held.of); }
DEV void take_columns(variant::col (&c)[V], plain_columns &held)
{
#pragma unroll
    for (int j = 0; j < V; j++) {
        c[j] = held.of[j];
    }
}

template <class VARIANT, int K> DEV float &field_of(typename VARIANT::col &c) { return VARIANT::template field<K>(c); }
template <int COUNT> struct packed_columns {
    u32 pair[COUNT][max_of(V / 2, 1)];
};
template <int COUNT, class MAKE> DEV void hold_columns(packed_columns<COUNT> &held, const MAKE &make)
{
    variant::col c[V] = {};
    make(c);
    repeat<0, COUNT>([&]<int K>() {
#pragma unroll
        for (int j = 0; j < V; j += 2) {
            held.pair[K][j / 2] = pack<element>(field_of<variant, K>(c[j]), field_of<variant, K>(c[j + 1]));
        }
    });
}
template <int COUNT> DEV void take_columns(variant::col (&c)[V], packed_columns<COUNT> &held)
{
    repeat<0, COUNT>([&]<int K>() {
#pragma unroll
        for (int j = 0; j < V; j += 2) {
            keep(held.pair[K][j / 2]); // the floats are made again, and not held over all rows
            unpack<element>(held.pair[K][j / 2], field_of<variant, K>(c[j]), field_of<variant, K>(c[j + 1]));
        }
    });
}

template <bool PACKS> struct columns_of_vector {
    using type = plain_columns;
};
template <> struct columns_of_vector<true> {
    using type = packed_columns<fields_of<variant>()>;
};
struct columns { // values of this thread's
    columns_of_vector<PACKED>::type of[COLS_HELD ? VECTORS : 1];
};

} // namespace many
