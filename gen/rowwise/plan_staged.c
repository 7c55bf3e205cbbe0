/*
 * plan_staged.c: shapes of rowwise/staged.cuh: how many threads take a row, how much of it waits in shared
 * memory, and how many blocks share an SM. In: a request. Out: its part of struct plan, or why it does not
 * serve.
 */
#include "gen/rowwise/plan_staged.h"
#include "gen/plan/plan.h"
#include "gen/rowwise/kernel.h"
#include "gen/rowwise/planner.h"

#include <stdio.h>
#include <string.h>

/* Values of a column that the formulas of an element read. `halves`: there are some, and each is_half. */
static int count_values(const struct kernel_request *r, const struct ir *w, bool placed, bool *halves)
{
    *halves = !placed;
    bool used[IR_MAX_NODES]; /* no memory to run out of: it would be another shape */
    bool read[IR_MAX_NODES];
    int n = 0;
    ir_mark(w, w->row.root, w->row.n_roots, used);
    memset(read, 0, (size_t)w->n_nodes * sizeof *read);
    for (int i = 0; i < w->n_nodes; i++) {
        const bool cell = placed && row_is_cell(w, i); /* held in the place of what it reads */
        n += used[i] && cell;
        for (int k = 0; used[i] && !cell && w->node[i].span != SPAN_KV && k < w->node[i].n_args; k++)
            read[w->node[i].arg[k]] = true;
    }
    for (int k = 0; k < w->row.n_roots; k++)
        *halves = *halves && w->node[w->row.root[k]].span != SPAN_KV;
    for (int i = 0; i < w->n_nodes; i++)
        if (read[i] && w->node[i].span == SPAN_KV && w->node[i].n_args > 0) {
            n++;
            *halves = *halves && plan_is_half(r, w, i);
        }
    *halves = *halves && n > 0;
    return n;
}

/* All reductions, and those of the pass that has most of them. */
static void count_reductions(const struct ir *w, struct staged *s)
{
    int together[UINT8_MAX + 1] = {0}; /* by phase */
    bool used[IR_MAX_NODES];           /* no memory to run out of: it would be another shape */
    ir_mark(w, w->row.root, w->row.n_roots, used);
    s->reductions = s->at_once = 0;
    for (int i = 0; i < w->n_nodes; i++) {
        if (!used[i] || !ir_op_is_reduction(w->node[i].op))
            continue;
        s->reductions++;
        if (++together[w->node[i].phase] > s->at_once)
            s->at_once = together[w->node[i].phase];
    }
}

static bool count_units(const struct kernel_request *r, const struct row_pass *pass, struct staged *s,
                        char *why)
{
    const struct problem *problem = r->problem;
    struct row_places places;
    const bool placed = row_pass_places(pass, &places);
    *s =
        (struct staged){.vector = UNIT / (int)lathe_dtype_size(problem->dtype[DTYPE_X]),
                        .columns = pass->n_columns + (placed ? pass->n_scatters : 0),
                        .scatters = pass->n_scatters,
                        .sums = pass->n_sites > 0,
                        .placed = placed,
                        .results = pass->n_out,
                        .sm_bytes = r->device->smem_bytes + 1024}; /* a block cannot have the last kilobyte */
    s->values = count_values(r, pass->ir, placed, &s->halves);
    for (int k = 0; k < pass->n_in; k++) {
        int bytes = s->vector * (int)lathe_dtype_size((lathe_dtype)problem->arg_dtype[pass->in[k].arg]);
        if (bytes % UNIT != 0) {
            snprintf(why, REASON_BYTES, "a tensor of rows whose elements are smaller than those of x");
            return false;
        }
        s->units += bytes / UNIT;
    }
    count_reductions(pass->ir, s);
    s->vectors = s->own = problem->dim[SYM_N] / s->vector;
    return true;
}

/* Where the other kernels are as fast or faster, as measured on an H200. */
static const char *served_elsewhere(const struct kernel_request *r, const struct staged *s)
{
    enum { IN_REGISTERS = 2560, SHORT = 256, SHORTEST = 16 }; /* vectors of a row */
    if (staged_reads_wide_columns(s))
        return NULL;
    if (s->scatters > 0 && s->vectors <= 128)
        return "short rows with sums at computed indices, which rowwise takes";
    if (staged_has_short_rows(s) || staged_has_odd_rows(s) || staged_has_long_placed_rows(s))
        return NULL;
    if (plan_is_single(r) && s->vectors <= IN_REGISTERS)
        return "one row made of one that fits registers, which rowwise takes";
    if (s->columns == 0 && s->vectors <= SHORT)
        return "short rows without sums over them, which rowwise takes";
    if (r->pass == LATHE_FORWARD && s->results > 1 && s->vectors <= 1024)
        return "several rows made of one that fits registers, which rowwise takes";
    if (s->columns == 0 && s->reductions == 0 && s->vectors <= 1024)
        return "rows that fit registers and of which nothing is reduced, which rowwise takes";
    return s->vectors < SHORTEST ? "very short rows, which rowwise takes" : NULL;
}

static bool is_asked_for(const struct kernel_request *r)
{
    return strstr(r->device->template_name, "rowwise_staged") != NULL;
}

static bool measure(const struct kernel_request *r, const struct row_pass *pass, struct staged *s, char *why)
{
    const int64_t n = r->problem->dim[SYM_N];
    if (!count_units(r, pass, s, why))
        return false;
    const bool elsewhere = pass->n_scatters > 0 && !s->placed;
    struct plan_again again;
    plan_reread(r, pass, &again);
    if (r->ir->inner || pass->n_scans > 0 || pass->n_in == 0 || elsewhere)
        snprintf(why, REASON_BYTES, "%s",
                 r->ir->inner        ? "rows along an inner dim; it takes those along the last"
                 : pass->n_scans > 0 ? "sums along a row"
                 : elsewhere         ? "sums at computed indices"
                                     : "no rows to read");
    else if (r->problem->unaligned != 0 || n % s->vector != 0 || n == 0)
        snprintf(why, REASON_BYTES, "rows that do not all start at multiples of 16 bytes");
    else if (again.each > 0 && !is_asked_for(r))
        snprintf(why, REASON_BYTES, "rows that are read again from L1 and L2, which rowwise takes");
    else if (served_elsewhere(r, s) && !is_asked_for(r))
        snprintf(why, REASON_BYTES, "%s", served_elsewhere(r, s));
    else
        return true;
    return false;
}

/* Registers of a thread with which so many blocks do. */
static int registers_for(int threads, int blocks)
{
    const int warps = (blocks * threads / 32 + QUARTERS - 1) / QUARTERS;
    const int registers = QUARTER_REGISTERS / warps / 8 * 8;
    return registers > 255 ? 255 : registers;
}

/* Bytes of dynamic shared memory: rows that wait, sums of columns, what the blocks of a cluster push. */
static int64_t shared_bytes(const struct staged *s, const struct plan *plan)
{
    return plan->rows.stages * staged_row_bytes(s, plan) + staged_column_bytes(s, plan) +
           staged_exchange_bytes(plan, s, staged_pushing(plan, s));
}

static bool fits_registers(const struct staged *s, const struct plan *plan, char *why)
{
    const int most = plan->rows.rows_per_block > 1 ? MOST_TEAM : MOST_TAKEN;
    if (s->scatters > 0 && (!plan->rows.staged.placed || plan->rows.staged.columns_shared))
        snprintf(why, REASON_BYTES, "%d sums at computed indices: a thread has no registers for them",
                 s->scatters);
    else if (staged_registers_of(s, plan, plan->rows.per_thread / s->vector) > most)
        snprintf(why, REASON_BYTES, "%d sums over rows: a thread has no registers for its columns",
                 s->columns);
    else
        return true;
    return false;
}

static bool fits_memory(const struct kernel_request *r, const struct staged *s, const struct plan *plan,
                        char *why)
{
    /* Where a team's rows share columns, their parts meet in static shared memory. */
    const int64_t met =
        plan->rows.rows_per_block > 1 && s->columns > 0 ? 4 * plan->rows.threads * plan->rows.per_thread : 0;
    const int64_t bytes = shared_bytes(s, plan) + met;
    if (bytes + STATIC_BYTES <= s->sm_bytes && plan->rows.threads <= BLOCK_LIMIT)
        return true;
    snprintf(why, REASON_BYTES,
             "rows of %lld and their sums take %lld bytes of shared memory; a block has %d",
             (long long)r->problem->dim[SYM_N], (long long)bytes, r->device->smem_bytes);
    return false;
}

/* How many blocks share an SM, and what each of their threads has. */
static void share_sm(const struct kernel_request *r, const struct staged *s, struct plan *plan)
{
    const int need = staged_registers_of(s, plan, plan->rows.per_thread / s->vector);
    const int by_memory = (int)(s->sm_bytes / (shared_bytes(s, plan) + STATIC_BYTES));
    const int by_registers = plan->rows.taken || plan->rows.staged.cols_packed || s->columns > 0
                                 ? staged_blocks_of(plan->rows.threads, need)
                                 : SM_THREADS / plan->rows.threads;
    const int fewer = by_memory < by_registers ? by_memory : by_registers;
    const int blocks = fewer < 1 ? 1 : fewer;
    plan->rows.smem_bytes = (int)shared_bytes(s, plan);
    plan->rows.registers = registers_for(plan->rows.threads, blocks);
    plan->rows.blocks =
        blocks * r->device->sm_count / plan->rows.cluster * plan->rows.cluster; /* struct launch.cluster */
}

static bool shape(const struct kernel_request *r, struct staged *s, struct plan *plan, char *why)
{
    plan->rows.rows_per_block = 1;
    plan->rows.vector = s->vector;
    plan->rows.at_once = 1;
    plan->rows.column_parts = 1;
    staged_share_row(r, s, plan);
    staged_choose_shape(s, plan);
    if (plan->rows.per_thread == 0) {
        snprintf(why, REASON_BYTES, "%d units of rows: a stage of %d threads has no shared memory for them",
                 s->units, plan->rows.threads);
        return false;
    }
    plan->rows.staged.placed = s->placed && plan->rows.rows_per_block == 1;
    plan->rows.full = (int64_t)plan->rows.per_thread * plan->rows.threads * plan->rows.cluster /
                          plan->rows.rows_per_block ==
                      r->problem->dim[SYM_N];
    staged_look_ahead(s, plan);
    if (!fits_registers(s, plan, why) || !fits_memory(r, s, plan, why))
        return false;
    share_sm(r, s, plan);
    return true;
}

static const char *cluster_text(int blocks, char *text, size_t size)
{
    snprintf(text, size, ", each shared by a cluster of %d blocks", blocks);
    return blocks > 1 ? text : "";
}

static bool make_staged(const struct kernel_request *r, bool spreads, struct plan *plan, char *why)
{
    struct staged s;
    char shared[64];
    struct row_pass pass = r->rows->pass;
    plan->rows.variance = spreads && r->rows->variance;
    if (plan->rows.variance)
        pass.ir = r->rows->variance;
    plan->rows.kept = r->pass == LATHE_BACKWARD || pass.n_in == 1;
    const bool ok = measure(r, &pass, &s, why) && shape(r, &s, plan, why);
    if (ok)
        snprintf(
            plan->reason, sizeof plan->reason,
            "rows of %lld wait in shared memory%s%s: %d threads, %d row%s a block, %d stage%s of %d elements "
            "a thread%s%s%s; %d blocks take rows in turn",
            (long long)r->problem->dim[SYM_N], plan->rows.more ? " as far as they fit" : "",
            cluster_text(plan->rows.cluster, shared, sizeof shared), plan->rows.threads,
            plan->rows.rows_per_block, plan->rows.rows_per_block == 1 ? "" : "s", plan->rows.stages,
            plan->rows.stages == 1 ? "" : "s", plan->rows.per_thread,
            plan->rows.taken ? ", which it takes into registers" : "",
            plan->rows.staged.columns_shared ? "; column sums in shared memory" : "",
            plan->rows.staged.late ? "; written late" : "", plan->rows.blocks);
    return ok;
}

/* One pass instead of two where rows of 16 bits fill their threads: f32 holds means thousands of deviations
   away, which the differences of parts would round. Rows that are written late gain by it where they stay in
   shared memory: columns that are packed. */
bool plan_staged(const struct kernel_request *r, struct plan *plan, char *why)
{
    char other[REASON_BYTES] = "";
    struct plan one = *plan;
    if (!make_staged(r, false, plan, why))
        return false;
    const bool narrow = lathe_dtype_size(r->problem->dtype[DTYPE_X]) == 2;
    if (r->pass != LATHE_FORWARD || !narrow || (plan->rows.staged.late && !plan->rows.staged.cols_packed))
        return true;
    if (make_staged(r, true, &one, other) && one.rows.variance && one.rows.full)
        *plan = one;
    return true;
}

/* ---- rows along an inner dim ------------------------------------------------------------------- */

/* Static shared memory of a block of rowwise_inner: strip_scratch of the template. What waits begins at the
 * next kilobyte. */
static int64_t inner_static_bytes(const struct staged *s, const struct plan *plan, int wide)
{
    const int64_t warps = plan->rows.threads / 32;
    const int64_t words = s->reductions * (warps + 1) * wide * s->vector;
    return (4 * words + 1023) / 1024 * 1024;
}

/* What the blocks of a cluster tell each other of a strip, and which one comes after the next. */
static int64_t strip_exchange_bytes(const struct plan *plan, const struct staged *s, int rows)
{
    return staged_exchange_bytes(plan, s, rows) + (plan->rows.cluster > 1 ? 16 : 0);
}

/* Bytes of a block of rowwise_inner with reductions, beside the places that wait; with the device's own. */
static int64_t strip_bytes(const struct staged *s, const struct plan *plan, int wide)
{
    return 1024 + inner_static_bytes(s, plan, wide) + strip_exchange_bytes(plan, s, wide * s->vector);
}

/* Strips of 256 bytes side by side where one tensor is read, else of 128, and where rows that are written
   would so be shared by fewer blocks; of a block that has its SM to itself. The first pass takes them into
   registers, so that the next one comes while the passes run: blocks of a cluster wait for each other, memory
   does not. */
static bool take_strips(const struct kernel_request *r, const struct staged *s, struct plan *plan,
                        int *blocks)
{
    enum { WIDE = 8, NARROWEST = 4, THREADS = 512, MOST_UNITS = 16, MOST_REDUCTIONS = 2 };
    const int64_t n = r->problem->dim[SYM_N];
    const int64_t most = s->units < 1 ? 0 : MOST_UNITS / s->units; /* places of a thread */
    const int widest = s->units == 1 && s->reductions <= MOST_REDUCTIONS ? 2 * WIDE : WIDE;
    if (r->device->sm < 90 || n * WIDE * s->units * UNIT <= SHARE_BYTES)
        return false;
    for (int wide = widest; wide >= NARROWEST; wide /= 2) {
        const int64_t places = THREADS / wide;
        const int cluster = staged_cluster_of(r, n, places * most);
        const int64_t held = (n + places * cluster - 1) / (places * cluster);
        const bool few_sms = cluster == MOST_CLUSTER && s->results > 0; /* 120 of 132; of four blocks 124 */
        if (held > most || (wide > WIDE && few_sms))
            continue;
        plan->rows.taken = true;
        plan->rows.cluster = cluster;
        plan->rows.threads = THREADS;
        plan->rows.per_thread = (int)held * s->vector;
        plan->rows.smem_bytes =
            (int)(held * THREADS * s->units * UNIT + strip_exchange_bytes(plan, s, wide * s->vector));
        plan->rows.units_wide = wide;
        *blocks = 1;
        return true;
    }
    return false;
}

/* Strips of 128 bytes side by side wait in shared memory, in a cluster's where they are long. */
static int wait_for_strips(const struct kernel_request *r, const struct staged *s, struct plan *plan,
                           int *blocks)
{
    const int64_t n = r->problem->dim[SYM_N];
    int wide = 8;
    if (take_strips(r, s, plan, blocks))
        return plan->rows.units_wide;
    plan->rows.cluster = staged_cluster_of(r, n * wide * s->units * UNIT, SHARE_BYTES);
    const int64_t own = (n + plan->rows.cluster - 1) / plan->rows.cluster;
    while (wide > 2 && own * wide * s->units * UNIT > s->sm_bytes / 2 - strip_bytes(s, plan, wide))
        wide /= 2;
    const int64_t place = (int64_t)wide * s->units * UNIT;
    *blocks = (int)(s->sm_bytes / (own * place + strip_bytes(s, plan, wide)));
    *blocks = *blocks < 1 ? 1 : *blocks > 4 ? 4 : *blocks;
    plan->rows.threads = *blocks == 1 ? 512 : 256;
    const int places = plan->rows.threads / wide;
    const int64_t room = s->sm_bytes / *blocks - strip_bytes(s, plan, wide);
    int held = (int)((own + places - 1) / places);
    if (held * places * place > room)
        held = room > 0 ? (int)(room / (places * place)) : 0;
    plan->rows.per_thread = held * s->vector;
    plan->rows.smem_bytes = (int)(held * places * place + strip_exchange_bytes(plan, s, wide * s->vector));
    return wide;
}

static void inner_reason(const struct kernel_request *r, const struct plan *plan, char *reason, size_t size)
{
    char shared[64];
    snprintf(
        reason, size,
        "rows of %lld along an inner dim%s: %d threads, %d rows a block, %d places of a thread in shared "
        "memory%s; %d blocks take rows %s",
        (long long)r->problem->dim[SYM_N], cluster_text(plan->rows.cluster, shared, sizeof shared),
        plan->rows.threads, plan->rows.units_wide * plan->rows.vector,
        plan->rows.per_thread / plan->rows.vector, plan->rows.taken ? ", which it takes into registers" : "",
        plan->rows.blocks, plan->rows.cluster > 1 ? "from a counter" : "in turn");
}

/* Does a block have the shared memory, the static part of which no device lets grow? Else says why not. */
static bool inner_fits(const struct kernel_request *r, const struct staged *s, const struct plan *plan,
                       char *why)
{
    enum { MOST_STATIC = 48 * 1024 };
    const int64_t fixed = inner_static_bytes(s, plan, plan->rows.units_wide);
    const int64_t bytes = plan->rows.smem_bytes + fixed;
    if (bytes <= r->device->smem_bytes && fixed <= MOST_STATIC)
        return true;
    snprintf(
        why, REASON_BYTES,
        "%d units of rows along an inner dim and %d reductions take %lld bytes of shared memory, %lld of "
        "them static; a block has %d, %d of them static",
        s->units, s->reductions, (long long)bytes, (long long)fixed, r->device->smem_bytes, MOST_STATIC);
    return false;
}

static bool inner_shape(const struct kernel_request *r, const struct row_pass *pass, const struct staged *s,
                        struct plan *plan, char *why)
{
    const int64_t n = r->problem->dim[SYM_N];
    int wide = 8; /* 16 bytes side by side */
    int blocks = 4;
    plan->rows.threads = 256;
    plan->rows.cluster = 1;
    if (pass->n_in == 0)
        blocks = 2;
    else if (pass->n_out > 0 && s->reductions > 0)
        wide = wait_for_strips(r, s, plan, &blocks);
    plan->rows.units_wide = wide;
    const int64_t held =
        (int64_t)plan->rows.per_thread / s->vector * (plan->rows.threads / wide) * plan->rows.cluster;
    plan->rows.more = held < n;
    plan->rows.full = held == n;
    plan->rows.vector = s->vector;
    plan->rows.rows_per_block = 1;
    plan->rows.registers = SM_REGISTERS / (blocks * plan->rows.threads) / 8 * 8;
    if (plan->rows.registers > 255)
        plan->rows.registers = 255;
    plan->rows.blocks = blocks * r->device->sm_count / plan->rows.cluster *
                        plan->rows.cluster; /* the launch starts those that fit */
    plan->rows.at_once = 1;
    plan->rows.column_parts = 1;
    inner_reason(r, plan, plan->reason, sizeof plan->reason);
    return inner_fits(r, s, plan, why);
}

bool plan_inner(const struct kernel_request *r, struct plan *plan, char *why)
{
    struct staged s;
    const char *apart = NULL;
    const struct row_pass *pass = &r->rows->pass;
    plan->rows.kept = r->pass == LATHE_FORWARD && pass->n_in == 1;
    if (!r->ir->inner)
        apart = "rows along the last dim; it takes those along another";
    else if (pass->n_sites > 0)
        apart = "sums over rows";
    else if (r->problem->unaligned != 0)
        apart = "tensors that do not have 16 bytes of neighbours everywhere";
    else if (pass->n_scans > 0)
        apart = "scans along an inner dim";
    if (apart)
        snprintf(why, REASON_BYTES, "%s", apart);
    const bool ok = !apart && count_units(r, pass, &s, why) && inner_shape(r, pass, &s, plan, why);
    return ok;
}
