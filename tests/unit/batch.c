/*
 * batch.c: deterministic=batch: what is compiled, and how a row is cut, does not depend on what else is in
 * the batch. Of every shipped spec and both passes, the texts and the recipe are the same for every batch;
 * what of a recipe is counted at a launch may not count the batch where that changes the order of a sum.
 */
#include "check.h"
#include "emit_call.h"
#include "gen/base/embedded.h"
#include "gen/gen.h"
#include "gen/ir/spec.h"
#include "runtime/recipe/bind.h"

#include <stdio.h>
#include <string.h>

enum { MOST_LINES = 8 };

/* Of one kind of operator: lines that differ in what else there is in the batch alone. The rows in question
 * have as many queries and keys, where these are sizes of a line. */
static const struct family {
    enum kind kind;
    const char *common;
    const char *line[MOST_LINES];
} FAMILIES[] = {
    {KIND_ATTENTION, "q=1,kv=3000", {"b=1", "b=2", "b=3", "b=8", "b=64"}},
    {KIND_ATTENTION, "q=300,kv=300", {"b=1", "b=2", "b=7", "b=64"}},
    {KIND_ATTENTION, "q=9000,kv=9000", {"b=1", "b=2", "b=64"}},
    /* keys in use, of which there is room for as many as the longest has */
    {KIND_ATTENTION,
     "used_kv=i32,q=1",
     {"b=1,kv=100", "b=2,kv=600", "b=3,kv=9000", "b=64,kv=1000", "b=64,kv=40000"}},
    {KIND_ATTENTION, "used_kv=i32,q=200", {"b=1,kv=200", "b=2,kv=600", "b=3,kv=9000", "b=64,kv=40000"}},
    {KIND_ATTENTION,
     "page=16,q=1",
     {"b=1,kv=96", "b=2,kv=608", "b=3,kv=9008", "b=64,kv=1008", "b=64,kv=40000"}},
    {KIND_ATTENTION, "page=64,q=200", {"b=1,kv=256", "b=2,kv=640", "b=3,kv=9024", "b=64,kv=40000"}},
    /* packed: of how many tokens there are together a sequence has some */
    {KIND_ATTENTION,
     "b=1,cu_q=i32",
     {"seqs=1,q=1,kv=1", "seqs=1,q=1000,kv=1000", "seqs=2,q=2,kv=2", "seqs=3,q=700,kv=700",
      "seqs=64,q=64,kv=64", "seqs=64,q=20000,kv=20000"}},
    {KIND_ATTENTION,
     "b=1,cu_q=i32,cu_kv=i32",
     {"seqs=1,q=1,kv=4000", "seqs=2,q=2,kv=4100", "seqs=2,q=400,kv=800000", "seqs=64,q=64,kv=90000"}},
    {KIND_ATTENTION,
     "b=1,cu_q=i32,page=16",
     {"seqs=1,q=1,kv=4000", "seqs=2,q=2,kv=4000", "seqs=2,q=400,kv=8000", "seqs=64,q=64,kv=96000"}},
    {KIND_ROWWISE, "", {"rows=1", "rows=2", "rows=7", "rows=64", "rows=5000", "rows0=3,rows1=5,rows=100"}},
    {KIND_LINEAR, "t=1", {"b=1", "b=2", "b=64"}},
    {KIND_LINEAR, "t=9000", {"b=1", "b=2", "b=3", "b=64"}},
    {KIND_LINEAR,
     "b=1,cu=i32",
     {"seqs=1,t=1", "seqs=1,t=9000", "seqs=2,t=2", "seqs=2,t=700", "seqs=64,t=64", "seqs=64,t=90000"}},
};

/* A line of a problem that may not be one of this spec: then of no batch. */
static lathe_status make_line(const struct ir *ir, const struct device *device, lathe_pass pass,
                              const struct family *f, const char *dims, int line, struct source *out)
{
    struct signature sig;
    struct problem problem;
    lathe_error err = {.status = LATHE_OK};
    char text[256];
    signature_make(ir, pass, &sig);
    snprintf(text, sizeof text, "%s,%s%s%s,deterministic=batch", dims, f->common, f->common[0] ? "," : "",
             f->line[line]);
    lathe_status status = problem_parse_of(ir, &sig, text, &problem, &err);
    if (status == LATHE_OK)
        status = kernel_make_source(ir, pass, &sig, &problem, device, out, &err);
    return status;
}

static bool counts_batch(const struct product *p)
{
    bool any = false;
    for (int i = 0; i < p->n; i++)
        any |= p->factor[i].sym == FACTOR_KEY_PARTS || p->factor[i].sym == FACTOR_EVEN_KEY_PARTS;
    return any;
}

/* Parts of a row that are as many as the rest of the batch leaves room for; launches that there are by how
 * many tokens all sequences have together. */
static bool cuts_by_batch(const struct source *s, bool packed)
{
    bool any = false;
    for (int l = 0; l < s->n_launches; l++) {
        const struct launch *launch = &s->launch[l];
        any |= packed && launch->when != SYM_ONE && (launch->least > 1 || launch->most < INT32_MAX);
        any |= counts_batch(&launch->grid);
        for (int i = 0; i < launch->n_params; i++)
            any |= launch->param[i].kind == PARAM_PRODUCT && counts_batch(&launch->param[i].product);
    }
    return any;
}

/* False, after a line that says so: the batch decides. */
static bool is_same_in_batches(const struct ir *ir, const struct device *device, lathe_pass pass,
                               const struct family *f, const char *dims, int *made)
{
    struct source first;
    const bool packed = strstr(f->common, "cu") != NULL;
    const lathe_status wanted = make_line(ir, device, pass, f, dims, 0, &first);
    bool same = wanted != LATHE_OK || !cuts_by_batch(&first, packed);
    if (!same)
        fprintf(stderr, "%s: keys are cut by the batch\n", first.label);
    for (int line = 1; line < MOST_LINES && f->line[line]; line++) {
        struct source other;
        const lathe_status status = make_line(ir, device, pass, f, dims, line, &other);
        const bool equal =
            status == wanted &&
            (status != LATHE_OK || (source_same(&first, &other) && !cuts_by_batch(&other, packed)));
        if (!equal)
            fprintf(stderr, "%s %s %s: %s,%s,%s is not as %s: %d %s, %d %s\n", ir->name, device->arch,
                    lathe__pass_text(pass), dims, f->common, f->line[line], f->line[0], (int)wanted,
                    wanted == LATHE_OK ? first.label : "", (int)status,
                    status == LATHE_OK ? other.label : "");
        if (status == LATHE_OK)
            source_free(&other);
        same = same && equal;
    }
    if (wanted == LATHE_OK)
        source_free(&first);
    *made += wanted == LATHE_OK;
    return same;
}

static int check_families(const struct ir *ir, const char *dims, int *made)
{
    static const struct device *const device[] = {&A100, &H100};
    int differ = 0;
    for (size_t k = 0; k < sizeof FAMILIES / sizeof *FAMILIES; k++)
        for (int d = 0; d < 2 && FAMILIES[k].kind == ir->kind; d++)
            for (int pass = LATHE_FORWARD; pass <= LATHE_BACKWARD; pass++)
                differ += !is_same_in_batches(ir, device[d], (lathe_pass)pass, &FAMILIES[k], dims, made);
    return differ;
}

static int check_shipped(enum kind kind, const char *dims)
{
    enum { EVERY = LATHE_TEST_EVERY > 1 ? 3 * LATHE_TEST_EVERY : 1 }; /* plans alone, in thousands */
    int differ = 0;
    int made = 0;
    int n = check_drawn(EVERY);
    for (const struct embedded *file = embedded_files; file->name != NULL; file++) {
        struct diag diag = {0};
        if (strncmp(file->name, "specs/", 6) != 0 || strcmp(file->name, "specs/prelude.lua") == 0)
            continue;
        struct ir *ir = spec_load(file->name, file->data, file->size, &diag);
        CHECK(ir != NULL);
        if (ir->kind == kind && n++ % EVERY == 0)
            differ += check_families(ir, dims, &made);
        ir_free(ir);
    }
    printf("%s: %d families\n", dims, made);
    CHECK(made >= (EVERY == 1 ? 50 : 1));
    return differ;
}

TEST_TIMEOUT(attention_is_planned_without_the_batch, 300)
{
    CHECK_EQ(check_shipped(KIND_ATTENTION, "dtype=bf16,h=8,h_kv=2,d=64"), 0);
    CHECK_EQ(check_shipped(KIND_ATTENTION, "dtype=bf16,h=4,d=128"), 0);
}

TEST_TIMEOUT(attention_of_f32_is_planned_without_the_batch, 300)
{
    CHECK_EQ(check_shipped(KIND_ATTENTION, "dtype=f32,h=4,h_kv=1,d=64"), 0);
}

TEST_TIMEOUT(attention_of_wide_heads_is_planned_without_the_batch, 300)
{
    CHECK_EQ(check_shipped(KIND_ATTENTION, "dtype=bf16,h=16,h_kv=1,d=576,d_v=512"), 0);
}

TEST_TIMEOUT(linear_attention_is_planned_without_the_batch, 300)
{
    CHECK_EQ(check_shipped(KIND_LINEAR, "dtype=bf16,h=4,d=128"), 0);
    CHECK_EQ(check_shipped(KIND_LINEAR, "dtype=f16,h=4,h_k=2,d=64,d_v=128"), 0);
}

TEST_TIMEOUT(rows_are_planned_without_the_others, 300)
{
    for (int n = 64; n <= 40000; n = 8 * n + 3) {
        char dims[64];
        snprintf(dims, sizeof dims, "dtype=bf16,n=%d", n);
        CHECK_EQ(check_shipped(KIND_ROWWISE, dims), 0);
    }
}

/* Scans along an inner dim are cut where there are few rows, by a template that another one stands in for.
 * Gradients of points are summed by how many there are. */
TEST(what_is_cut_by_the_batch_is_not_taken)
{
    static const struct {
        const char *spec, *line, *template_name; /* NULL: refused */
        lathe_pass pass;
    } row[] = {{"cumsum", "dtype=bf16,rows=64,n=300", "rowwise", LATHE_FORWARD},
               {"swiglu", "dtype=bf16", "elementwise_bwd", LATHE_BACKWARD},
               {"embedding", "dtype=bf16", NULL, LATHE_BACKWARD}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct signature sig;
        struct problem p;
        struct plan plan;
        char text[128];
        lathe_error err = {.status = LATHE_OK};
        struct ir *ir = load_signed(row[i].spec, row[i].pass, &sig);
        snprintf(text, sizeof text, "%s,deterministic=batch", row[i].line);
        CHECK_EQ(problem_parse(&sig, text, &p, &err), LATHE_OK);
        const lathe_status status = plan_of(ir, row[i].pass, &p, &H100, &plan, &err);
        CHECK_EQ(status, row[i].template_name ? LATHE_OK : LATHE_UNSUPPORTED);
        if (status == LATHE_OK)
            CHECK_STR(plan.row->name, row[i].template_name);
        else
            CHECK_HAS(err.text, "deterministic=batch is asked for, and 'dtable' is a sum over points, which "
                                "is cut by how many");
        ir_free(ir);
    }
}

/* A batch that repeats keys by a stride of 0 has the portable template on Hopper, and a batch of one has not.
 */
TEST(strides_of_zero_are_refused_where_they_bring_another_template)
{
    static const struct {
        const struct device *device;
        const char *line;
        lathe_status status;
    } row[] = {{&H100, "q=200,kv=200,folded=k", LATHE_UNSUPPORTED},
               {&A100, "q=200,kv=200,folded=k", LATHE_OK},
               {&H100, "q=1,kv=200,folded=k", LATHE_OK}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct signature sig;
        struct problem p;
        struct source source;
        char text[128];
        lathe_error err = {.status = LATHE_OK};
        struct ir *ir = load_signed("causal", LATHE_FORWARD, &sig);
        snprintf(text, sizeof text, "dtype=bf16,b=2,h=2,d=64,deterministic=batch,%s", row[i].line);
        CHECK_EQ(problem_parse(&sig, text, &p, &err), LATHE_OK);
        const lathe_status status =
            kernel_make_source(ir, LATHE_FORWARD, &sig, &p, row[i].device, &source, &err);
        CHECK_EQ(status, row[i].status);
        if (status == LATHE_OK)
            source_free(&source);
        else
            CHECK_HAS(err.text, "k is folded");
        ir_free(ir);
    }
}

/* ---- parts of a row ---------------------------------------------------------------------------------- */

/* own_part_tiles of attention/decode_rows.cuh, of tiles of `bn` keys: how many parts a row of `keys` has. */
static int64_t parts_of_own(int64_t keys, int bn, int least)
{
    const int64_t tiles = (keys + bn - 1) / bn;
    int64_t each = (tiles + 15) / 16;
    each = each > least / bn ? each : least / bn;
    each = each < 1024 / bn ? each : 1024 / bn;
    each = each > (tiles + 127) / 128 ? each : (tiles + 127) / 128;
    return (tiles + each - 1) / each;
}

/* A launch has as many parts as any row that there is room for may be cut into, and not many more. */
TEST(there_are_parts_enough_for_every_row)
{
    struct signature sig;
    lathe_error err;
    struct ir *ir = load_signed("causal", LATHE_FORWARD, &sig);
    for (int least = 256; least <= 1024; least += 768)
        for (int64_t room = 1; room < 300000; room += room < 5000 ? 37 : 1717) {
            struct problem p;
            char text[96];
            snprintf(text, sizeof text, "dtype=bf16,d=64,h=8,h_kv=2,b=3,q=1,kv=%lld", (long long)room);
            CHECK_EQ(problem_parse(&sig, text, &p, &err), LATHE_OK);
            const int64_t parts = lathe__own_key_parts(&p, least);
            int64_t most = 0;
            for (int64_t keys = 1; keys <= room; keys += room < 5000 ? 11 : 911)
                for (int bn = 16; bn <= 64; bn *= 2) {
                    const int64_t own = parts_of_own(keys, bn, least);
                    most = own > most ? own : most;
                }
            CHECK(most <= parts && parts <= 128);
            CHECK(parts <= 16 || parts <= room / 1024 + 1);
        }
    ir_free(ir);
}

TEST(few_queries_are_told_by_their_own_number)
{
    static const struct {
        const char *line;
        bool few;
    } row[] = {{"q=1,kv=10", true},
               {"q=16,kv=100", true},
               {"q=17,kv=100000", false},
               {"q=1,kv=10,used_kv=i32", true},
               {"q=1,kv=96,page=16", true},
               {"b=1,seqs=64,q=64,kv=9000", false},
               {"b=1,cu_q=i32,seqs=1,q=1,kv=9000", false}};
    struct signature sig;
    lathe_error err;
    struct ir *ir = load_signed("causal", LATHE_FORWARD, &sig);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct problem p;
        char text[128];
        snprintf(text, sizeof text, "dtype=bf16,d=64,h=8,h_kv=2,deterministic=batch,%s", row[i].line);
        CHECK_EQ(problem_parse(&sig, text, &p, &err), LATHE_OK);
        CHECK_EQ(lathe__lengths(&p), row[i].few ? LENGTHS_FEW_QUERIES : 0);
    }
    ir_free(ir);
}

/* Behind the end of a packed sequence lies the next one: no form of a formula is chosen by all elements of a
 * warp. */
TEST(no_form_is_chosen_by_a_vote_over_a_tile)
{
    static const char *const SPEC[][3] = {{"softcap", "CAPPED = true", "CAPPED = false"},
                                          {"sigmoid", "LOGISTIC = true", "LOGISTIC = false"}};
    for (size_t i = 0; i < sizeof SPEC / sizeof *SPEC; i++)
        for (int batch = 0; batch < 2; batch++) {
            struct source source;
            make_source(SPEC[i][0],
                        batch ? "dtype=bf16,h=2,q=200,kv=200,d=64,seqs=2,deterministic=batch"
                              : "dtype=bf16,h=2,q=200,kv=200,d=64,seqs=2",
                        &source);
            CHECK_HAS(text_named(&source, "variant.gen.cuh")->data, SPEC[i][1 + batch]);
            source_free(&source);
        }
}
