/*
 * plan_rows.c: shapes of row-wise kernels, and that they fit the device: registers, shared memory, clusters.
 */
#include "plan_pick.h"
#include "loaded.h"

TEST(rows_of_any_length_have_a_shape)
{
    static const int lengths[] = {1,    7,    8,    9,    31,    255,   256,    257,
                                  1000, 1024, 1025, 8192, 32768, 65536, 262144, 1000003};
    static const char *const dtypes[] = {"f32", "f16", "bf16"};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int k = 0; k < 3; k++) {
            char text[96];
            struct plan plan;
            lathe_error err;
            snprintf(text, sizeof text, "dtype=%s,rows=10,n=%d", dtypes[k], lengths[i]);
            CHECK_EQ(pick("softmax", text, &H100, &plan, &err), LATHE_OK);
            int team = plan.rows.threads / plan.rows.rows_per_block;
            CHECK(plan.rows.threads % 32 == 0 && plan.rows.threads <= 1024);
            CHECK(plan.rows.rows_per_block == 1 || (team <= 32 && (team & (team - 1)) == 0));
            CHECK_EQ(plan.rows.per_thread % plan.rows.vector, 0);
            if (plan.rows.stages > 0) /* in shared memory, and what is beyond */
                CHECK(plan.rows.more == (team * plan.rows.per_thread * plan.rows.cluster < lengths[i]) &&
                      plan.rows.smem_bytes <= H100.smem_bytes &&
                      plan.rows.smem_bytes >=
                          plan.rows.stages * team * plan.rows.per_thread * (k == 0 ? 4 : 2));
            else if (plan.rows.per_thread > 0)
                CHECK(team * plan.rows.per_thread >= lengths[i]);
            else
                CHECK(lengths[i] > 16384 || lengths[i] % (k == 0 ? 4 : 8) != 0);
        }
}

TEST(the_longest_rows_have_a_shape)
{
    static const char *const SPEC[] = {"softmax", "layer_norm",   "cross_entropy",
                                       "cumsum",  "logcumsumexp", "softmax_inner"};
    static const char *const N[] = {"2146435071", "2146435072", "2146435073", "2147483647"};
    for (int i = 0; i < 2 * (int)(sizeof SPEC / sizeof *SPEC); i++)
        for (int k = 0; k < 4; k++) {
            char text[64];
            struct plan plan;
            lathe_error err = {0};
            snprintf(text, sizeof text, "dtype=bf16,rows=1,n=%s", N[k]);
            const lathe_status status =
                pick_pass(SPEC[i / 2], i % 2 ? LATHE_BACKWARD : LATHE_FORWARD, text, &H100, &plan, &err);
            CHECK_HAS(err.text, k < 2 ? "" : "it takes 0 to 2146435072");
            CHECK_EQ(status, k < 2 ? LATHE_OK : LATHE_UNSUPPORTED);
            CHECK(k >= 2 || (plan.rows.per_thread >= 0 && plan.rows.per_thread < 256 &&
                             plan.rows.rows_per_block <= 32));
        }
}

/* Rows that are long for one block are shared by a cluster, on devices that have clusters; its blocks divide
 * the grid. */
TEST(long_rows_are_shared_by_clusters)
{
    static const struct {
        const char *spec, *sizes;
        int cluster;
    } CASES[] = {
        {"softmax", "dtype=bf16,rows=10,n=32768", 1},     {"softmax", "dtype=bf16,rows=10,n=65536", 2},
        {"softmax", "dtype=bf16,rows=10,n=131072", 4},    {"softmax", "dtype=bf16,rows=10,n=262144", 8},
        {"layer_norm", "dtype=f32,rows=10,n=65536", 8},   {"softmax_inner", "dtype=bf16,rows=512,n=4096", 4},
        {"layer_norm", "dtype=bf16,rows=10,n=49152", 6},  {"layer_norm", "dtype=bf16,rows=10,n=262144", 8},
        {"rms_norm", "dtype=bf16,rows=10,n=65536", 8},    {"rms_norm", "dtype=bf16,rows=10,n=262144", 8},
        {"layer_norm", "dtype=bf16,rows=10,n=40960", 5},  {"layer_norm", "dtype=bf16,rows=10,n=40968", 2},
        {"softmax_inner", "dtype=bf16,rows=512,n=256", 1}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct plan plan;
        lathe_error err;
        CHECK_EQ(pick(CASES[i].spec, CASES[i].sizes, &H100, &plan, &err), LATHE_OK);
        CHECK_EQ(plan.rows.cluster, CASES[i].cluster);
        CHECK(plan.rows.cluster == 0 || plan.rows.blocks % plan.rows.cluster == 0);
        CHECK_EQ(pick(CASES[i].spec, CASES[i].sizes, &A100, &plan, &err), LATHE_OK);
        CHECK(plan.rows.cluster <= 1);
    }
}

/* Clusters of rowwise_inner are not equally fast: they do not take strips in turn. */
TEST(clusters_take_strips_from_a_counter)
{
    struct plan plan;
    lathe_error err;
    CHECK_EQ(pick("softmax_inner", "dtype=bf16,rows=512,n=4096", &H100, &plan, &err), LATHE_OK);
    CHECK_HAS(plan.reason, "blocks take rows from a counter");
    CHECK_EQ(pick("softmax_inner", "dtype=bf16,rows=512,n=256", &H100, &plan, &err), LATHE_OK);
    CHECK_HAS(plan.reason, "blocks take rows in turn");
}

/* What `lathe tune` measures: the rows of the tables that fit, the picked one first, each by its name. */
TEST(candidates_are_the_rows_that_fit)
{
    struct signature sig;
    struct problem problem;
    struct plan best;
    struct plan plan;
    struct plan again;
    lathe_error err;
    struct ir *ir = load_signed("causal", LATHE_FORWARD, &sig);
    CHECK_EQ(problem_parse(&sig, "dtype=bf16,b=1,h=2,q=64,d=128", &problem, &err), LATHE_OK);
    CHECK_EQ(plan_of(ir, LATHE_FORWARD, &problem, &A100, &best, &err), LATHE_OK);
    int n = 0;
    for (; candidate_of(ir, LATHE_FORWARD, &problem, &A100, n, &plan); n++) {
        struct device wish = A100;
        snprintf(wish.tile, sizeof wish.tile, "%s", plan.tile);
        CHECK(plan.rows.smem_bytes <= A100.smem_bytes);
        CHECK_EQ(plan_of(ir, LATHE_FORWARD, &problem, &wish, &again, &err), LATHE_OK);
        CHECK_STR(again.tile, plan.tile);
        CHECK_EQ(again.attention.bm * 1000 + again.attention.bn,
                 plan.attention.bm * 1000 + plan.attention.bn);
        if (n == 0)
            CHECK_STR(plan.tile, best.tile);
    }
    CHECK(n >= 4 && n < 40);
    struct device wish = A100;
    snprintf(wish.tile, sizeof wish.tile, "48x48s1w3");
    CHECK_EQ(plan_of(ir, LATHE_FORWARD, &problem, &wish, &again, &err), LATHE_UNSUPPORTED);
    ir_free(ir);
}

/* Rows in shared memory, on devices with less and less of it: a plan fits with what the kernel has beside, or
 * there is none. */
TEST(rows_in_shared_memory_fit_it)
{
    static const struct {
        const char *spec, *problem;
        lathe_pass pass;
        bool sums; /* over rows: those of a team meet in static shared memory */
    } cases[] = {{"softmax", "dtype=f32,rows=10,n=60000", LATHE_FORWARD, false},
                 {"rms_norm_residual", "dtype=bf16,rows=10,n=60000", LATHE_FORWARD, false},
                 {"layer_norm", "dtype=f32,rows=1000,n=256", LATHE_BACKWARD, true},
                 {"layer_norm", "dtype=bf16,rows=1000,n=4096", LATHE_BACKWARD, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int taken = 0;
        int refused = 0;
        for (int kb = 2; kb < 80; kb++) {
            struct device d =
                asking_for(&A100, cases[i].pass == LATHE_FORWARD ? "rowwise_staged" : "rowwise_staged_bwd");
            struct plan plan;
            lathe_error err = {0};
            d.smem_bytes = kb * 1024;
            if (pick_pass(cases[i].spec, cases[i].pass, cases[i].problem, &d, &plan, &err) != LATHE_OK) {
                CHECK_HAS(err.text, "shared memory");
                refused++;
                continue;
            }
            const int met = cases[i].sums && plan.rows.rows_per_block > 1
                                ? 4 * plan.rows.threads * plan.rows.per_thread
                                : 0;
            CHECK(plan.rows.per_thread > 0);
            CHECK(plan.rows.smem_bytes + met + 1024 <= d.smem_bytes); /* 1 KiB: the reductions */
            taken++;
        }
        CHECK(taken > 0 && refused > 0);
    }
}

/* Beside packed columns a block has three rows: where there is less shared memory, other shapes serve. */
TEST(long_rows_stay_in_shared_memory_where_there_is_less_of_it)
{
    static const struct device SM_120 = {.sm = 120, .sm_count = 170, .smem_bytes = 101376, .arch = "sm_120a"};
    static const struct {
        int n, cluster;
        lathe_pass pass;
        bool packed;
    } cases[] = {
        {70000, 8, LATHE_FORWARD, false},  {131072, 8, LATHE_FORWARD, true},
        {196608, 8, LATHE_FORWARD, false}, {49152, 8, LATHE_BACKWARD, false},
        {65536, 8, LATHE_BACKWARD, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan plan;
        lathe_error err = {0};
        char problem[64];
        snprintf(problem, sizeof problem, "dtype=bf16,rows=512,n=%d", cases[i].n);
        CHECK_EQ(pick_pass("layer_norm", cases[i].pass, problem, &SM_120, &plan, &err), LATHE_OK);
        CHECK(strstr(plan.row->name, "rowwise_staged") != NULL);
        CHECK_EQ(plan.rows.cluster, cases[i].cluster);
        CHECK_EQ(plan.rows.staged.cols_packed, cases[i].packed);
    }
}

/* Threads have all of their vectors, of 16 bits: else variances take a pass of their own, for which rows are
 * held. */
TEST(rows_are_read_again_where_one_pass_makes_mean_and_variance)
{
    static const struct {
        const char *problem;
        lathe_pass pass;
        bool again;
    } cases[] = {
        {"dtype=bf16,rows=99,n=8192", LATHE_FORWARD, true},
        {"dtype=f16,rows=99,n=4608", LATHE_FORWARD, true},
        {"dtype=bf16,rows=99,n=4104", LATHE_FORWARD, false},
        {"dtype=bf16,rows=99,n=3584", LATHE_FORWARD, false},
        {"dtype=f32,rows=99,n=4096", LATHE_FORWARD, false},
        {"dtype=bf16,rows=99,n=8192,weight=f32", LATHE_FORWARD, false},
        {"dtype=bf16,rows=99,n=8192,residual=f32", LATHE_FORWARD, false},
        {"dtype=bf16,rows=99,n=8192", LATHE_BACKWARD, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan plan;
        lathe_error err = {0};
        CHECK_EQ(pick_pass("layer_norm_residual", cases[i].pass, cases[i].problem, &H100, &plan, &err),
                 LATHE_OK);
        CHECK_EQ(plan.rows.reread, cases[i].again);
        CHECK_EQ(plan.rows.variance, cases[i].again);
    }
}

/* Of two tensors reduced in one pass, the second reduction is of one: that alone was looked at. */
TEST(rows_are_read_again_where_the_first_pass_leaves_a_tensor_out)
{
    static const struct {
        const char *sum;
        bool again;
    } cases[] = {{"rowmax(abs(v)) * rowsum(v * v)", true},
                 {"rowmax(abs(v)) * rowsum(r * r)", false},
                 {"rowmax(abs(r)) * rowsum(v * v)", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan plan;
        lathe_error err = {0};
        char spec[512];
        snprintf(
            spec, sizeof spec,
            "return rowwise { inputs = { r = tensor('float', 'rows', 'n') }, forward = function(v, at, x)\n"
            "local r = x.r(at.row, at.i) return (v + r) / %s end }",
            cases[i].sum);
        CHECK_EQ(pick(spec, "dtype=bf16,rows=99,n=8192", &H100, &plan, &err), LATHE_OK);
        CHECK_EQ(plan.rows.reread, cases[i].again);
    }
}

/* Other devices have 8 at most, however many SMs. */
TEST(clusters_of_16_blocks_are_asked_of_devices_that_promise_them)
{
    static const struct {
        int sm, sm_count, cluster;
    } cases[] = {{90, 132, 16}, {100, 148, 16}, {103, 160, 16}, {90, 114, 8}, {110, 132, 8}, {120, 188, 8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct device device = H100;
        struct plan plan;
        lathe_error err = {0};
        device.sm = cases[i].sm;
        device.sm_count = cases[i].sm_count;
        CHECK_EQ(pick("softmax", "dtype=f32,rows=64,n=300000", &device, &plan, &err), LATHE_OK);
        CHECK_EQ(plan.rows.cluster, cases[i].cluster);
    }
}

/* Two to a register, where they come from a tensor of x's 16 bits. */
TEST(columns_of_long_rows_are_packed_where_nothing_is_lost)
{
    static const struct {
        const char *spec, *problem;
        lathe_pass pass;
        bool packed, variance;
    } cases[] = {
        {"layer_norm", "dtype=bf16,rows=99,n=131072", LATHE_FORWARD, true, true},
        {"layer_norm", "dtype=f16,rows=99,n=100000", LATHE_FORWARD, true, false}, /* threads are not full */
        {"layer_norm", "dtype=bf16,rows=99,n=131072,weight=f32", LATHE_FORWARD, false, false},
        {"layer_norm", "dtype=bf16,rows=99,n=100000,weight=f32,bias=f32", LATHE_FORWARD, false, false},
        {"layer_norm", "dtype=f32,rows=99,n=131072", LATHE_FORWARD, false, false},
        {"layer_norm", "dtype=bf16,rows=99,n=131072", LATHE_BACKWARD, true, false},
        {"layer_norm", "dtype=f16,rows=99,n=100000", LATHE_BACKWARD, true, false},
        {"layer_norm", "dtype=bf16,rows=99,n=262144,weight=f32", LATHE_BACKWARD, false, false},
        {"layer_norm", "dtype=f32,rows=99,n=100000", LATHE_BACKWARD, false, false},
        {"rms_norm", "dtype=bf16,rows=99,n=131072", LATHE_FORWARD, false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan plan;
        lathe_error err = {0};
        CHECK_EQ(pick_pass(cases[i].spec, cases[i].pass, cases[i].problem, &H100, &plan, &err), LATHE_OK);
        CHECK_EQ(plan.rows.staged.cols_packed, cases[i].packed);
        CHECK_EQ(plan.rows.variance, cases[i].variance);
        CHECK(!plan.rows.staged.cols_packed ||
              (plan.rows.staged.cols_held && plan.rows.staged.late && !plan.rows.taken));
        CHECK(!plan.rows.staged.cols_packed ||
              plan.rows.staged.sure == plan.rows.per_thread / plan.rows.vector - !plan.rows.full);
    }
}

/* What warps hand on of one sum after the other lies in static shared memory, of which a block has 48 KiB:
 * four sums take as much as one, and all the warps of parts. */
TEST(packed_sums_fit_static_shared_memory)
{
    static const char SPEC[] =
        "return rowwise { along = -2, inputs = { since = tensor('i32', 'n') },\n"
        "  forward = function(x, at, p)\n"
        "    local s = where(eq(p.since(at.i), 0), 1.0, 0.0)\n"
        "    return cumsum(x, s) + cumsum(x * x, s) + cumsum(abs(x), s) + cumsum(exp(x), s)\n  end }";
    struct plan plan;
    lathe_error err = {0};
    CHECK_EQ(pick_pass(SPEC, LATHE_FORWARD, "dtype=bf16,rows=2048,n=4096", &H100, &plan, &err), LATHE_OK);
    CHECK_EQ(strcmp(plan.row->name, "rowwise_inner_scan"), 0);
    CHECK_EQ(plan.rows.threads, 256);
    CHECK(2 * plan.rows.threads * plan.rows.vector * 8 <= 48 * 1024);
    CHECK(plan.rows.scan.whole_warps * 32 <= plan.rows.threads);
    CHECK(plan.rows.scan.part_places > 0);
}

/* One plain sum along an inner dim has a kernel beside it that hands sums on from block to block: as many
 * warps and places as shared memory has room for beside what they tell each other. */
TEST(plain_sums_hand_on_from_block_to_block)
{
    static const struct {
        const char *formula;
        bool chained;
    } specs[] = {
        {"cumsum(x, 0.0)", true},
        {"revcumsum(x * p.a(at.row, at.i) + p.b(at.row, at.i), where(eq(at.i % 9, 0), 1.0, 0.0))", true},
        {"cumsum(x, where(gt(x, 1.0), 1.0, 0.0))", false},
        {"cumsum(x, 0.0) + cumsum(x * x, 0.0)", false},
        {"logcumsumexp(x, 0.0)", false}};
    static const char *const sizes[] = {"dtype=bf16,rows=64,n=100000", "dtype=f32,rows=4096,n=100"};
    static const struct device *const devices[] = {&H100, &A100, &RTX4090};
    for (int i = 0; i < 30; i++) {
        const struct device *device = devices[i / 2 % 3];
        char spec[400];
        struct plan plan;
        lathe_error err = {0};
        snprintf(
            spec, sizeof spec,
            "return rowwise { along = -2, inputs = { a = tensor('float', 'rows', 'n'), b = tensor('float', "
            "'rows', 'n') },\n  forward = function(x, at, p) return %s end }",
            specs[i / 6].formula);
        CHECK_EQ(pick_pass(spec, LATHE_FORWARD, sizes[i % 2], device, &plan, &err), LATHE_OK);
        CHECK_EQ(strcmp(plan.row->name, "rowwise_inner_scan"), 0);
        CHECK_EQ(plan.rows.scan.lookback.threads > 0, specs[i / 6].chained);
        CHECK_EQ(strstr(plan.reason, "hand their sums on") != NULL, specs[i / 6].chained);
        if (!specs[i / 6].chained)
            continue;
        const int workers = plan.rows.scan.lookback.threads / 32 - 3;
        const int piece = plan.rows.scan.lookback.batches * plan.rows.scan.places;
        CHECK(workers >= plan.rows.vector && workers <= 8);
        CHECK(piece > 0 && piece <= 32);
        CHECK_EQ(plan.rows.scan.lookback.places, workers * piece);
        CHECK(plan.rows.scan.lookback.smem_bytes + 3 * 4 * 32 * plan.rows.vector * (workers + 2) + 1024 <=
              device->smem_bytes);
        CHECK_EQ(plan.rows.scan.lookback.blocks, device->sm_count);
    }
}

/* Batches of each warp wait, and beside them what warps hand on: two words of each row, twice; with powers
 * three, and four for where each scan of a walk is. */
TEST(walks_along_an_inner_dim_fit_shared_memory)
{
    static const struct {
        const char *formula;
        int handed_on; /* bytes of a row */
    } specs[] = {{"logcumsumexp(x * p.a(at.row, at.i) + p.b(at.row, at.i), 0.0)", 12 + 16},
                 {"cumsum(x * p.a(at.row, at.i) + p.b(at.row, at.i) * p.b(at.row, at.i), 0.0)", 2 * 8}};
    static const char *const sizes[] = {"dtype=bf16,rows=4096,n=4096", "dtype=f32,rows=64,n=100"};
    static const struct device *const devices[] = {&H100, &A100, &RTX4090};
    for (int i = 0; i < 24; i++) {
        const struct device *device = devices[i / 4 % 3];
        char spec[400];
        struct plan plan;
        lathe_error err = {0};
        snprintf(
            spec, sizeof spec,
            "return rowwise { along = -2, inputs = { a = tensor('float', 'rows', 'n', { grad = true }), b = "
            "tensor('float', 'rows', 'n') },\n  forward = function(x, at, p) return %s end }",
            specs[i / 12].formula);
        CHECK_EQ(
            pick_pass(spec, i % 2 ? LATHE_BACKWARD : LATHE_FORWARD, sizes[i / 2 % 2], device, &plan, &err),
            LATHE_OK);
        CHECK_EQ(strncmp(plan.row->name, "rowwise_inner_scan", strlen("rowwise_inner_scan")), 0);
        CHECK(plan.rows.stages >= 2);
        CHECK(plan.rows.scan.places >= 4);
        CHECK_EQ(plan.rows.smem_bytes %
                     (plan.rows.stages * plan.rows.threads / 32 * plan.rows.scan.places * 64),
                 0);
        CHECK_EQ(plan.rows.scan.again_stages, plan.rows.stages);
        CHECK(plan.rows.smem_bytes + plan.rows.threads * plan.rows.vector * specs[i / 12].handed_on + 1024 <=
              device->smem_bytes);
    }
}

/* Parts of a row that are walked along twice: where the first walk was, a word of each row, stays in shared
 * memory, and the second one finds as many batches as there is room for. */
TEST(parts_that_are_walked_twice_stay_in_shared_memory)
{
    static const struct {
        const struct device *device;
        const char *dtype;
        int stages, again_stages, held_carries;
    } row[] = {{&H100, "bf16", 3, 4, 8},
               {&H100, "f32", 3, 5, 8},
               {&A100, "bf16", 2, 2, 8},
               {&RTX4090, "bf16", 2, 2, 0}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char sizes[96];
        struct plan plan;
        lathe_error err = {0};
        snprintf(sizes, sizeof sizes, "dtype=%s,rows=65536,n=4096", row[i].dtype);
        CHECK_EQ(pick_pass("logcumsumexp_packed", LATHE_BACKWARD, sizes, row[i].device, &plan, &err),
                 LATHE_OK);
        CHECK_EQ(plan.rows.stages, row[i].stages);
        CHECK_EQ(plan.rows.scan.again_stages, row[i].again_stages);
        CHECK_EQ(plan.rows.scan.held_carries, row[i].held_carries);
        const int element = strcmp(row[i].dtype, "f32") == 0 ? 4 : 2;
        const int rings = (plan.rows.stages + plan.rows.scan.again_stages) * plan.rows.scan.places * element;
        CHECK_EQ(plan.rows.smem_bytes,
                 plan.rows.threads * plan.rows.vector * (rings + 4 * plan.rows.scan.held_carries));
        CHECK((plan.rows.smem_bytes + 1024) * plan.rows.min_blocks <= row[i].device->smem_bytes);
    }
}

/* Reductions: the static sums of a strip count, too, and have a limit of their own. */
TEST(strips_along_an_inner_dim_fit_shared_memory)
{
    static const char *const dtypes[] = {"f32", "bf16"};
    for (int kb = 4; kb < 100; kb++)
        for (int k = 0; k < 2; k++) {
            struct device d = RTX4090;
            char sizes[96];
            struct plan plan;
            lathe_error err = {0};
            d.smem_bytes = kb * 1024;
            snprintf(sizes, sizeof sizes, "dtype=%s,rows=512,n=4096", dtypes[k]);
            CHECK_EQ(pick("softmax_inner", sizes, &d, &plan, &err), LATHE_OK);
            if (strcmp(plan.row->name, "rowwise_inner") != 0)
                continue;
            const int sums = 2 * 4 * (plan.rows.threads / 32 + 1) * plan.rows.units_wide * plan.rows.vector;
            CHECK(plan.rows.per_thread >= 0);
            CHECK(plan.rows.smem_bytes + (sums + 1023) / 1024 * 1024 <= d.smem_bytes);
        }
}

/* The one shape that what an earlier candidate had left behind decided: as it was, until both are measured.
 */
TEST(sums_of_the_longest_rows_stay_in_shared_memory)
{
    struct plan plan;
    lathe_error err = {.status = LATHE_OK};
    CHECK_EQ(pick_pass("rms_norm", LATHE_BACKWARD, "dtype=f32,rows=4096,n=196608", &H100, &plan, &err),
             LATHE_OK);
    CHECK(plan.rows.staged.columns_shared);
    CHECK_EQ(plan.rows.stages, 1);
}

/* Each element is compared with its whole row, which registers and shared memory hold. */
TEST(ranks_are_of_rows_that_fit)
{
    static const char INNER[] =
        "return rowwise { along = -2, forward = function(x) return f32(rank(x)) end }";
    static const struct {
        const char *spec, *problem;
        bool served;
    } cases[] = {
        {"largest", "dtype=f32,rows=64,n=8192", true},   {"largest", "dtype=bf16,rows=64,n=1", true},
        {"largest", "dtype=bf16,rows=64,n=9000", false}, {"largest", "dtype=f32,rows=64,n=65537", false},
        {"topk", "dtype=f32,rows=64,n=4096", true},      {"topk", "dtype=bf16,rows=64,n=4", true},
        {"topk", "dtype=bf16,rows=64,n=9000", false},    {INNER, "dtype=f32,rows=64,n=100", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan plan;
        lathe_error err = {0};
        CHECK_EQ(pick_pass(cases[i].spec, LATHE_FORWARD, cases[i].problem, &H100, &plan, &err),
                 cases[i].served ? LATHE_OK : LATHE_UNSUPPORTED);
        if (cases[i].served)
            CHECK(plan.rows.per_thread * plan.rows.threads <= 8192);
        else
            CHECK_HAS(err.text, "the host device takes any");
    }
}
