// linear/slots.cuh: states that are read from one slot of a pool and written to another. In the places of a pointer and
// of strides in the parameters stand types that say where a sequence's state is; kernels are the same text.
//
// A slot outside of the pool is none: what is read there is 0, and nothing is written. A sequence with neither is
// skipped.
#pragma once
#include "common/base.cuh"

namespace linear
{

struct slot_list { // of a slot for each sequence
    const int *slot;
    i64 step;
    i64 slots; // of the pool
    DEV i64 of(const slot_list &list, i64 sequence)
    {
        const i64 slot = list.slot[sequence * list.step];
        return slot >= 0 && slot < list.slots ? slot : -1;
    }
};

// In the place of a pointer to the slots of sequences: the sequence itself, or -1, where neither list has one.
struct read_and_written {
    slot_list read, written;
    __device__ __forceinline__ i64 operator[](i64 sequence) const
    {
        return slot_list::of(read, sequence) < 0 && slot_list::of(written, sequence) < 0 ? -1 : sequence;
    }
};
DEV bool operator==(const read_and_written &, decltype(nullptr)) { return false; }

// In the place of the stride from slot to slot: a sequence times it is where the state of its slot begins.
struct slot_stride {
    slot_list list;
    i64 stride;
};
struct slot_offset {
    i64 at;
    bool exists;
};
DEV slot_offset operator*(i64 sequence, const slot_stride &s)
{
    const i64 slot = slot_list::of(s.list, sequence);
    return {slot * s.stride, slot >= 0};
}
DEV slot_offset operator+(const slot_offset &to, i64 more) { return {to.at + more, to.exists}; }
template <class T> DEV T *head_of(T *base, const slot_offset &to)
{
    return base == nullptr || !to.exists ? nullptr : base + to.at;
}

} // namespace linear
