/*
 * dist_device.c: schemes over ranks with kernels of a GPU that pretends: what an object says of them before
 * anything is launched. In: NVRTC, without which tests are skipped.
 */
#include "pretended.h"
#include "lathe_dist.h"

/* Bytes of a ring of four ranks, forward, whose kernels copy rows that are not aligned in their workspace. */
static size_t ring_bytes(lathe_ctx *ctx, const lathe_spec *spec, size_t most_bytes)
{
    const int64_t rows[] = {1, 2, 512, 64};
    const int64_t strides[] = {2 * 512 * 65, 512 * 65, 65, 1};
    const lathe_arg arg[] = {{"q", NULL, LATHE_BF16, 4, rows, strides},
                             {"k", NULL, LATHE_BF16, 4, rows, NULL},
                             {"v", NULL, LATHE_BF16, 4, rows, NULL},
                             {"o", NULL, LATHE_BF16, 4, rows, NULL}};
    const lathe_dist_options options = {.scheme = LATHE_SCHEME_RING, .most_bytes = most_bytes};
    const lathe_transport nobody = {.rank = 1, .ranks = 4};
    lathe_dist *dist;
    lathe_error err = {0};
    if (lathe_dist_create(&dist, ctx, spec, LATHE_FORWARD, &nobody, &options, arg, 4, &err) != LATHE_OK)
        check_fail(__FILE__, __LINE__, err.text);
    const size_t bytes = lathe_dist_workspace_size(dist);
    lathe_dist_destroy(dist);
    return bytes;
}

/* most_bytes is of the whole workspace, and not of the buffers alone, behind which kernels have theirs. */
TEST_TIMEOUT(the_bound_of_a_ring_is_of_the_whole_workspace, 300)
{
    struct messages m;
    lathe_ctx *ctx = fake_ctx(&m);
    lathe_spec *spec = load("full");
    const size_t all = ring_bytes(ctx, spec, 0);
    const size_t merged = ring_bytes(ctx, spec, 1);
    printf("  all parts %zu bytes, merged as they come %zu\n", all, merged);
    CHECK(merged < all);
    CHECK_EQ(ring_bytes(ctx, spec, all), all);
    CHECK_EQ(ring_bytes(ctx, spec, all - 1), merged);
    lathe_spec_destroy(spec);
    lathe_ctx_destroy(ctx);
}
