/*
 * emit_launch.c: the launch recipe of rowwise and its siblings: up to three launches, their
 * parameters, and the workspace that sums over rows and scans go through. In: a row emitter, a plan. Out: the
 * parameter structs as text, launches and buffers.
 */
#include "gen/rowwise/emit.h"
#include "gen/base/text.h"
#include "gen/plan/plan.h"
#include "gen/rowwise/pass.h"

enum { COLUMN_THREADS = 128, SUM_THREADS = 256 }; /* of rowwise/registers.cuh */

static void params_streams(const struct row_emitter *r, struct params *p, const char *type, const char *name,
                           const struct row_stream *list, int n)
{
    int arg[ROW_VALUES];
    for (int k = 0; k < n; k++)
        arg[k] = list[k].arg;
    params_rows(p, r->e->sig, type, name, arg, n, true);
}

static void params_values(const struct row_emitter *r, struct params *p, const char *type, const char *name,
                          const struct row_value *list, int n)
{
    int arg[ROW_VALUES];
    for (int k = 0; k < n; k++)
        arg[k] = list[k].arg;
    params_rows(p, r->e->sig, type, name, arg, n, false);
}

struct work { /* buffers of the workspace; -1: none */
    int columns, sums, values, carries;
    int scatter[ROW_SITES]; /* zeroed: of each gradient that is added up by atomics */
};

/* Must a walk along a row that does not fit registers be taken again from its chunks' beginnings? */
static bool keeps_carries(const struct row_pass *pass, const struct plan *plan)
{
    return pass->n_walks > 1 && plan->rows.per_thread == 0;
}

/* Of a sum for each element of an argument: of a float, or without rounding (exact_sum of
 * common/contract.cuh). */
static struct product bytes_of(const struct row_emitter *r, int arg)
{
    const struct sig_arg *a = &r->e->sig->arg[arg];
    struct product bytes = product_of(r->e->problem->deterministic ? 48 : 4);
    for (int d = 0; d < a->ndim; d++)
        if (a->dim[d].literal > 0)
            bytes.scale *= a->dim[d].literal;
        else
            product_times(&bytes, (enum sym)a->dim[d].sym, 1);
    return bytes;
}

static void add_scatter_buffers(const struct row_emitter *r, struct work *work, struct source *out)
{
    for (int i = 0; i < r->pass->n_sites; i++) {
        if (r->pass->site[i].form != SITE_SCATTER || row_scatter_is_shared(r->pass, i))
            continue;
        const int buffer = add_buffer(out, r->e, bytes_of(r, r->pass->site[i].arg));
        out->buffer[buffer].zero = true;
        work->scatter[row_scatter_buffer(r->pass, i)] = buffer;
    }
}

/* rowwise_inner_scan: in slots (rowwise/inner_scan_tiles.cuh) of what each row hands on: of the batches of a
 * row for each warp of the grid, and one slot more, or for each strip of rows. */
static struct product walk_carry_bytes(const struct row_pass *pass, const struct plan *plan)
{
    enum { SLOT_PLACES = 512, BESIDE_BATCHES = 8 }; /* as there */
    const int strip = 32 * plan->rows.vector;
    const int parts = plan->rows.scan.part_places > 0 ? SLOT_PLACES / plan->rows.scan.part_places : 0;
    struct product bytes = product_of((int64_t)4 * row_pass_carried_words(pass) * strip);
    if (plan->rows.scan.carries_by_warp) {
        bytes.scale *= plan->rows.blocks * (plan->rows.threads / 32) + 1;
        product_times(&bytes, SYM_N, plan->rows.scan.places);
        return bytes;
    }
    bytes.scale *= SLOT_PLACES / plan->rows.scan.places + parts + BESIDE_BATCHES;
    product_times(&bytes, SYM_N, SLOT_PLACES);
    product_times(&bytes, SYM_ROWS0, 1);
    product_times(&bytes, SYM_ROWS1, 1);
    product_times(&bytes, SYM_ROWS, strip);
    return bytes;
}

/* Else of each block, for each of its chunks, three words. */
static struct product carry_bytes(const struct row_emitter *r, const struct plan *plan)
{
    if (plan->row->form == PLAN_ROW_SCAN)
        return walk_carry_bytes(r->pass, plan);
    struct product bytes =
        product_of((int64_t)12 * r->pass->n_scans * plan->rows.rows_per_block * plan->rows.blocks);
    product_times(&bytes, SYM_N, row_chunk(r->pass, plan));
    return bytes;
}

/* rowwise/inner_scan_lookback.cuh: what is told of the parts of each group and of the group itself, 8 bytes a
 * row, behind 16 bytes of a counter: each group has them, so that there is room for one. Of no more strips
 * than are left to it. rowwise_inner_scan clears it. */
static int add_lookback_buffer(const struct row_emitter *r, const struct plan *plan, struct source *out)
{
    const int strip = 32 * plan->rows.vector;
    const int64_t group = 16 + (int64_t)8 * (LOOKBACK_GROUP + 1) * strip;
    struct product bytes = product_of(group);
    struct product most = product_of(group * plan->rows.scan.lookback.strips);
    product_times(&bytes, SYM_ROWS0, 1);
    product_times(&bytes, SYM_ROWS1, 1);
    product_times(&bytes, SYM_ROWS, strip);
    product_times(&bytes, SYM_N, plan->rows.scan.lookback.places * LOOKBACK_GROUP);
    product_times(&most, SYM_N, plan->rows.scan.lookback.places * LOOKBACK_GROUP);
    const int buffer = add_buffer(out, r->e, bytes);
    out->buffer[buffer].most = most;
    return buffer;
}

static struct work add_work(const struct row_emitter *r, const struct plan *plan, struct source *out)
{
    const struct row_pass *pass = r->pass;
    const bool held = plan->rows.per_thread > 0;
    const int clusters = plan->rows.cluster > 1 ? plan->rows.cluster : 1; /* blocks of each */
    struct work work = {-1, -1, -1, -1, {0}};
    if (pass->n_columns > 0) {
        struct product bytes = product_of(
            (int64_t)(held ? plan->rows.blocks / clusters : plan->rows.column_parts) * pass->n_columns * 4);
        product_times(&bytes, SYM_N, 1);
        work.columns = add_buffer(out, r->e, bytes);
    }
    if (row_sums(pass) > 0)
        work.sums =
            add_buffer(out, r->e, product_of((int64_t)(plan->rows.blocks / clusters) * row_sums(pass) * 4));
    if (pass->n_columns > 0 && !held) {
        struct product bytes = product_of(4 * (int64_t)(1 + pass->n_given + pass->n_norms + r->vals.n));
        product_times(&bytes, SYM_ROWS0, 1);
        product_times(&bytes, SYM_ROWS1, 1);
        product_times(&bytes, SYM_ROWS, 1);
        work.values = add_buffer(out, r->e, bytes);
    }
    if (plan->rows.scan.lookback.threads > 0)
        work.values = add_lookback_buffer(r, plan, out);
    if (keeps_carries(pass, plan))
        work.carries = add_buffer(out, r->e, carry_bytes(r, plan));
    else if ((plan->row->form == PLAN_ROW_INNER && plan->rows.cluster > 1) || plan->rows.scan.part_places > 0)
        work.carries =
            add_buffer(out, r->e, product_of(8)); /* what has been taken: a word that nobody clears */
    add_scatter_buffers(r, &work, out);
    return work;
}

static void params_work(struct params *p, const char *type, const char *name, int buffer)
{
    if (buffer >= 0)
        params_pointer(p, type, name, PARAM_WORK_DATA, buffer);
    else
        params_null(p, type, name);
}

/* The buffers with the sizes of their gradients. */
static void params_scatters(const struct row_emitter *r, struct params *p, const struct work *work)
{
    int arg[ROW_SITES];
    const int n = row_scatter_buffer(r->pass, r->pass->n_sites);
    for (int i = 0; i < r->pass->n_sites; i++)
        if (r->pass->site[i].form == SITE_SCATTER)
            arg[row_scatter_buffer(r->pass, i)] = r->pass->site[i].arg;
    params_scatter_targets(p, r->e->sig, "scatter", work->scatter, arg, n);
}

static void rows_params(struct row_emitter *r, struct params *p, const struct work *work)
{
    const struct row_pass *pass = r->pass;
    params_streams(r, p, "row_source", "in", pass->in, pass->n_in);
    params_streams(r, p, "row_target", "out", pass->out, pass->n_out);
    params_values(r, p, "row_source", "given", pass->given, pass->n_given);
    params_values(r, p, "row_target", "kept", pass->kept, pass->n_kept);
    params_work(p, "float", "columns", work->columns);
    params_work(p, "float", "sums", work->sums);
    params_work(p, "void", "values", work->values);
    params_work(p, "void", "carries", work->carries);
    params_scatters(r, p, work);
    params_row_sizes(p);
    params_inputs(p, r->e, "x");
}

static void sum_params(struct row_emitter *r, struct params *p, const struct work *work)
{
    const struct row_pass *pass = r->pass;
    int grad[ROW_SITES];
    int arg[ROW_SITES];
    int n = row_number_gradients(pass, grad);
    for (int i = 0; i < pass->n_sites; i++)
        arg[grad[i]] = pass->site[i].arg;
    params_work(p, "const float", "columns", work->columns);
    params_work(p, "const float", "sums", work->sums);
    params_buffers(p, "const float", "scattered", work->scatter, row_scatter_buffer(pass, pass->n_sites));
    params_row_sizes(p);
    params_gradients(p, r->e->sig, "grad", arg, n);
    params_inputs(p, r->e, "x");
}

/* Parts of all strips, of which rowwise/inner_scan_parts.cuh makes an int: half as many as others count. */
static void count_parts(const struct plan *plan, struct params *p)
{
    struct product twice = product_of(2);
    product_times(&twice, SYM_ROWS0, 1);
    product_times(&twice, SYM_ROWS1, 1);
    product_times(&twice, SYM_ROWS, 32 * plan->rows.vector);
    product_times(&twice, SYM_N, plan->rows.scan.part_places);
    params_counted(p, &twice);
}

static void add_rows_launch(struct row_emitter *r, const struct plan *plan, const struct work *work,
                            struct source *out)
{
    struct params p;
    struct launch *l = add_launch(out, r->e, "rows", plan->rows.threads);
    const bool in_turn = r->pass->n_sites > 0 || plan->rows.prefetch ||
                         plan->row->form != PLAN_ROW_REGISTERS || keeps_carries(r->pass, plan);
    l->grid = product_of(in_turn ? plan->rows.blocks : 1);
    l->smem_bytes = plan->rows.smem_bytes;
    if (in_turn && plan->rows.cluster > 1)
        l->cluster = plan->rows.cluster;
    if (!in_turn) {
        product_times(&l->grid, SYM_ROWS0, 1);
        product_times(&l->grid, SYM_ROWS1, 1);
        product_times(&l->grid, SYM_ROWS, 1);
        l->grid_share = plan->rows.rows_per_block;
    }
    params_open(&p, r->e->out, l, "rows_params");
    rows_params(r, &p, work);
    if (plan->rows.scan.part_places > 0)
        count_parts(plan, &p);
    params_close(&p, "rows_params");
}

/* A second kernel of the same rows: the struct is written once. */
static void add_beside(struct row_emitter *r, const struct work *work, struct launch *l)
{
    struct params p;
    struct text_buf nowhere = {0};
    params_open(&p, &nowhere, l, "rows_params");
    rows_params(r, &p, work);
    params_close(&p, "rows_params");
    text_fail_with(r->e->out, &nowhere);
    text_free(&nowhere);
}

static void add_columns_launch(struct row_emitter *r, const struct plan *plan, const struct work *work,
                               struct source *out)
{
    struct launch *l = add_launch(out, r->e, "columns", COLUMN_THREADS);
    l->grid = product_of(plan->rows.column_parts);
    product_times(&l->grid, SYM_N, COLUMN_THREADS * plan->rows.vector);
    add_beside(r, work, l);
}

static void add_lookback_launch(struct row_emitter *r, const struct plan *plan, const struct work *work,
                                struct source *out)
{
    struct launch *l = add_launch(out, r->e, "lookback", plan->rows.scan.lookback.threads);
    l->grid = product_of(plan->rows.scan.lookback.blocks);
    l->smem_bytes = plan->rows.scan.lookback.smem_bytes;
    add_beside(r, work, l);
}

/* Each gradient has blocks of its own. */
static void add_sum_launch(struct row_emitter *r, const struct plan *plan, const struct work *work,
                           struct source *out)
{
    enum { SCATTER_BLOCKS = 64 };
    const struct row_pass *pass = r->pass;
    struct params p;
    struct launch *l = add_launch(out, r->e, "sum", SUM_THREADS);
    int grad[ROW_SITES];
    const int grads = row_number_gradients(pass, grad);
    l->grid = product_of(grads * (pass->n_scatters > 0 && pass->n_columns == 0 ? SCATTER_BLOCKS : 1));
    if (pass->n_columns > 0)
        product_times(&l->grid, SYM_N, row_share_parts(pass, plan).columns);
    params_open(&p, r->e->out, l, "rows_sum_params");
    sum_params(r, &p, work);
    params_close(&p, "rows_sum_params");
}

void row_add_launches(struct row_emitter *r, const struct plan *plan, struct source *out)
{
    const struct row_pass *pass = r->pass;
    const struct work work = add_work(r, plan, out);
    add_rows_launch(r, plan, &work, out);
    if (plan->rows.scan.lookback.threads > 0)
        add_lookback_launch(r, plan, &work, out);
    else if (work.values >= 0)
        add_columns_launch(r, plan, &work, out);
    if (pass->n_sites > 0) {
        add_sum_launch(r, plan, &work, out);
        return;
    }
    struct params p = {.out = r->e->out}; /* a type for the kernel that is not launched */
    text_add(p.out, "struct rows_sum_params {\n    const float *columns, *sums, *scattered[1];\n    "
                    "row_sizes z;\n    row_gradient "
                    "grad[1];\n    inputs x;\n};\n\n");
}
