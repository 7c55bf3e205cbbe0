// attention/fragment.cuh: which elements of a tile of scores a thread holds, and of o, whose rows are the same ones.
// What meets a spec's rows and columns asks the fragment, and no lane: other instructions have another fragment.
#pragma once
#include "common/contract.cuh"

// Of products by warps and by warpgroups: 2 MT rows, 8 apart, and of each block of 8 columns two adjacent ones. Four
// threads share a row. Element c of row r is [r / 2][c / 2][2 (r % 2) + c % 2] of a thread's array.
template <int MT> struct mma_fragment {
    static constexpr int ROWS = 2 * MT;     // of a thread
    static constexpr int BLOCK = 2;         // columns of a thread in a block of columns
    static constexpr int BLOCK_COLUMNS = 8; // columns of a block

    // The thread's first row and column of a tile, and its others from there.
    DEV int first_row(int lane) { return lane / 4; }
    DEV int first_column(int lane) { return BLOCK * (lane & 3); }
    DEV int row(int r) { return 8 * r; }
    DEV int column(int c) { return c / BLOCK * BLOCK_COLUMNS + c % BLOCK; }
    // How many of its columns are among the next `ahead` from its first one on.
    DEV int columns_in(int ahead) { return BLOCK * (ahead >> 3) + min(ahead & 7, BLOCK); }

    template <int NB> DEV float &at(float (&s)[MT][NB][4], int r, int c)
    {
        return s[r / 2][c / 2][2 * (r % 2) + c % 2];
    }
    template <int NB> DEV const float &at(const float (&s)[MT][NB][4], int r, int c)
    {
        return s[r / 2][c / 2][2 * (r % 2) + c % 2];
    }

    // Over the threads of a row, which are adjacent lanes; one of them leads.
    static constexpr int SHARERS = 4;
    DEV int sharer(int lane) { return lane & 3; }
    DEV bool leads(int lane) { return sharer(lane) == 0; }
    template <int OP> DEV float reduce(float x) { return red_lanes<OP, SHARERS>(x); }
    DEV bool any(bool of_thread) { return (__ballot_sync(ALL_LANES, of_thread) >> (lane_id() & 28) & 15u) != 0; }

    // Values along diagonals, of the block of columns at hand. Rows 8 apart meet columns 8 apart on one diagonal, so
    // going one block to the right needs two new values for all rows of a thread.
    struct diagonals {
        float value[ROWS][BLOCK];

        // `entry`: address of the entry of the thread's first row and first column
        DEV void load(diagonals &d, u32 entry, int block)
        {
#pragma unroll
            for (int r = ROWS - 1; r >= 0; r--) {
#pragma unroll
                for (int j = 0; j < BLOCK; j++) {
                    if (block > 0 && r > 0) {
                        d.value[r][j] = d.value[r - 1][j];
                    } else {
                        d.value[r][j] = load_shared(entry + static_cast<u32>((8 * (r - block) - j) * 4));
                    }
                }
            }
        }
    };
};
