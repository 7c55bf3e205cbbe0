/*
 * map_plan.h: the numbers of kernels of maps, a part of struct plan.
 */
#ifndef LATHE_GEN_MAP_PLAN_H
#define LATHE_GEN_MAP_PLAN_H

#include "gen/ir/ir.h"

struct map_plan {
    int threads, vector, unroll, steps; /* see elementwise/map.cuh */
    bool long_loops, ahead;
    int min_blocks;      /* on an SM: bounds registers */
    int loop[MAX_MAPS];  /* dim of the map that a thread goes along; -1: none */
    int outer[MAX_MAPS]; /* dim around it, whose turns a thread adds up; -1: none */
    int most_blocks;     /* of a map by itself; */
    int blocks;          /* of several maps, and of what is added up */
    int turns;           /* at least, of a thread, along outer */
    bool gather;         /* elementwise/gather.cuh: of the only map, whose one result is a gradient of rows */
};

#endif
