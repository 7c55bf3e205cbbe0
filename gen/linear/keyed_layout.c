/*
 * keyed_layout.c: bytes of what is made of a chunk of tokens under the delta rule by key channel, and of the
 * shared memory that it is made in, as templates/linear has them. In: a request. Out: sizes.
 */
#include "gen/ir/spec.h"
#include "gen/linear/linear.h"
#include "gen/linear/template.h"
#include "gen/plan/request.h"

enum { CHUNK = LINEAR_CHUNK, STEPS = CHUNK / 16 };

/* Blocks of 16 x 16 on the diagonal and below it, of T two of them, of A one. */
int linear_keyed_prepared(const struct kernel_request *r, int pad, enum keyed_use use)
{
    enum { AHEAD = 128 }; /* how much a chunk shrinks a state */
    const int blocks = STEPS * (STEPS + 1) / 2 * linear_tile(r, CHUNK / STEPS, CHUNK / STEPS);
    return 3 * linear_tile(r, CHUNK, pad) + 3 * blocks + 4 * pad +
           (use == KEYED_BACK     ? 2 * blocks + 4 * CHUNK
            : use == KEYED_PIECES ? AHEAD
                                  : 0);
}

int linear_keyed_layout(const struct kernel_request *r, int pad, enum keyed_use use)
{
    enum { OF_CHANNEL = 4 * (2 * STEPS + STEPS * (STEPS - 1) / 2) };
    const int matrices = 2 * CHUNK * (CHUNK + 8) * 4; /* in the place of tiles */
    const int tiles = 3 * linear_tile(r, CHUNK, pad);
    return (tiles > matrices ? tiles : matrices) + 4 * CHUNK + OF_CHANNEL * pad +
           (use == KEYED_BACK     ? STEPS * linear_tile(r, CHUNK / STEPS, CHUNK / STEPS)
            : use == KEYED_PIECES ? 8 * STEPS
                                  : 0);
}

int linear_more_writers(const struct kernel_request *r)
{
    return r->ir->linear.delta.n_roots > 0 ? 0 : 1;
}

/* With a second vector that writes there are that, A and N_v of it, and N_v for the way back. */
int linear_low_rank_prepared(const struct kernel_request *r, int pad, enum keyed_use use)
{
    const int blocks = STEPS * (STEPS + 1) / 2 * linear_tile(r, CHUNK / STEPS, CHUNK / STEPS);
    const int more = linear_tile(r, CHUNK, pad) + (use == KEYED_BACK ? 3 : 2) * blocks;
    return linear_keyed_prepared(r, pad, use) + linear_more_writers(r) * more;
}

int linear_low_rank_layout(const struct kernel_request *r, int pad)
{
    enum { OF_CHANNEL = 4 * (2 * STEPS + STEPS * (STEPS - 1) / 2), SUMS = STEPS * 4 * 16 * 16 };
    const int matrices = 2 * CHUNK * (CHUNK + 8) * 4; /* in the place of tiles */
    const int tiles = (3 + linear_more_writers(r)) * linear_tile(r, CHUNK, pad);
    return (tiles > matrices ? tiles : matrices) + 4 * CHUNK + OF_CHANNEL * pad + SUMS;
}
