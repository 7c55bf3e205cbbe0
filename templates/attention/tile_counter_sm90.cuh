// attention/tile_counter_sm90.cuh: how many query tiles have been taken, beyond those that blocks begin with: an
// item_counter.
#pragma once
#include "common/work_counter.cuh"
#include "attention/scheduler_sm90.cuh"

struct tile_counter : item_counter { // for one thread of a block, which asks for each tile that it has
    __device__ __forceinline__ static tile_counter find(const attention_params &p, const tile_order &o)
    {
        return {{p.tile_counter, o.heads * o.tiles}};
    }
    // More tiles than can be counted are taken in turn.
    __device__ __forceinline__ bool counts() const { return cfg::DYNAMIC && items < LIMIT; }
    __device__ __forceinline__ u64 ask() const { return counts() ? item_counter::ask() : 0; }
    // The number of the next query tile; no tile has it where there is none. asked: what ask() gave; number: of the
    // tile before. With take() of an item_counter in it ptxas numbers registers otherwise.
    __device__ __forceinline__ u32 take(u64 asked, u32 number) const
    {
        if (!counts()) {
            return number + gridDim.x;
        }
        const u32 count = static_cast<u32>(count_of(counted(asked)));
        leave(count);
        return gridDim.x + count;
    }
};
