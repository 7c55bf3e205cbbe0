/*
 * plan_staged.c: shapes of rowwise_staged.cuh: how many threads take a row, how much of it waits in shared
 * memory, and how many blocks share an SM. In: a request. Out: its part of struct plan, or why it does not
 * serve.
 */
#include "plan.h"
#include "row_pass.h"

#include <stdlib.h>
#include <string.h>

enum {
    UNIT = 16,          /* bytes that a thread copies at once */
    SM_THREADS = 1024,  /* that share an SM where rows are blocks: 64 registers each */
    BLOCK_LIMIT = 1024, /* threads of a block */
    INNER_BYTES = 8192, /* of a block whose rows are neighbours */
    SM_REGISTERS = 65536,
    MOST = 120,                 /* registers of a thread that may be planned with; */
    MOST_TAKEN = 128,           /* with a row in them; */
    MOST_TEAM = 112,            /* where several rows share a block */
    STATIC_BYTES = 1024 + 1024, /* of a block: the device's own, and the reductions */
};

struct staged {
    int vector;      /* elements */
    int units;       /* of 16 bytes, of a vector of every tensor */
    int columns;     /* sums per column */
    int values;      /* of a column that the formulas read */
    int64_t vectors; /* of a row */
    int sm_bytes;
};

/* Values of a column that the formulas of an element read. */
static int count_values(const struct ir *w)
{
    bool *used = calloc((size_t)w->n_nodes + 1, sizeof *used);
    bool *read = calloc((size_t)w->n_nodes + 1, sizeof *read);
    int n = 0;
    if (used && read)
        ir_mark(w, w->row.root, w->row.n_roots, used);
    for (int i = 0; i < w->n_nodes && used && read; i++)
        for (int k = 0; used[i] && w->node[i].span != SPAN_KV && k < w->node[i].n_args; k++)
            read[w->node[i].arg[k]] = true;
    for (int i = 0; i < w->n_nodes && used && read; i++)
        n += read[i] && w->node[i].span == SPAN_KV && w->node[i].n_args > 0;
    free(used);
    free(read);
    return n;
}

static bool count_units(const struct request *r, const struct row_pass *pass, struct staged *s, char *why)
{
    const struct problem *problem = r->problem;
    *s =
        (struct staged){.vector = UNIT / (int)lathe_dtype_size(problem->dtype),
                        .columns = pass->n_columns,
                        .values = count_values(pass->ir),
                        .sm_bytes = r->device->smem_bytes + 1024}; /* a block cannot have the last kilobyte */
    for (int k = 0; k < pass->n_in; k++) {
        int bytes = s->vector * (int)lathe_dtype_size((lathe_dtype)problem->arg_dtype[pass->in[k].arg]);
        if (bytes % UNIT != 0) {
            snprintf(why, REASON_BYTES, "a tensor of rows whose elements are smaller than those of x");
            return false;
        }
        s->units += bytes / UNIT;
    }
    s->vectors = problem->dim[SYM_N] / s->vector;
    return true;
}

/* Where the other kernels are as fast or faster, as measured on an H200. */
static const char *served_elsewhere(const struct request *r, const struct staged *s, lathe_pass which)
{
    enum { IN_REGISTERS = 2560, SHORT = 256, SHORTEST = 16 }; /* vectors of a row */
    if (which == LATHE_FORWARD && !row_pass_reason(r->ir) && s->vectors <= IN_REGISTERS)
        return "a row that fits registers, to a row: rowwise";
    if (s->columns == 0 && s->vectors <= SHORT)
        return "short rows without sums over them: rowwise_many";
    return s->vectors < SHORTEST ? "very short rows: rowwise_many" : NULL;
}

static bool is_asked_for(const struct request *r)
{
    return strstr(r->device->template_name, "rowwise_staged") != NULL;
}

static bool measure(const struct request *r, lathe_pass which, const struct row_pass *pass, struct staged *s,
                    char *why)
{
    const int64_t n = r->problem->dim[SYM_N];
    if (!count_units(r, pass, s, why))
        return false;
    if (r->ir->inner || pass->n_scans > 0 || pass->n_in == 0 || pass->n_scatters > 0)
        snprintf(why, REASON_BYTES, "%s",
                 r->ir->inner           ? "rows along an inner dim"
                 : pass->n_scans > 0    ? "sums along a row"
                 : pass->n_scatters > 0 ? "sums at computed indices"
                                        : "no rows to read");
    else if (r->problem->unaligned != 0 || n % s->vector != 0 || n == 0)
        snprintf(why, REASON_BYTES, "rows that do not all start at multiples of 16 bytes");
    else if (served_elsewhere(r, s, which) && !is_asked_for(r))
        snprintf(why, REASON_BYTES, "%s", served_elsewhere(r, s, which));
    else
        return true;
    return false;
}

static int64_t row_bytes(const struct staged *s, const struct plan *plan)
{
    return (int64_t)plan->per_thread / s->vector * s->units * UNIT * plan->threads;
}

static int64_t column_bytes(const struct staged *s, const struct plan *plan)
{
    return plan->columns_shared ? (int64_t)plan->per_thread * 4 * s->columns * plan->threads : 0;
}

/* Registers of a thread that has `each` vectors of a row: beside the formulas, what it keeps over all rows,
   and the row itself where it takes it. */
static int registers_of(const struct staged *s, const struct plan *plan, int each)
{
    int kept = (plan->cols_held ? s->values : 0) + (plan->columns_shared ? 0 : s->columns);
    return (plan->cols_held ? 64 : 56) + each * (s->vector * kept + (plan->taken ? 4 * s->units : 0));
}

/* Sums of columns of short rows: a warp or less has a row. */
static void team_shape(const struct staged *s, struct plan *plan)
{
    int each = (int)((s->vectors + 31) / 32);
    int lanes = 1;
    while (lanes < 32 && lanes < s->vectors)
        lanes *= 2;
    plan->threads = 256;
    plan->rows_per_block = plan->threads / lanes;
    plan->per_thread = each * s->vector;
    plan->stages = each * s->units >= 4 ? 1 : each * s->units >= 2 ? 2 : 4;
    plan->cols_held = true;
    plan->cols_held = registers_of(s, plan, each) <= MOST_TEAM;
}

/* Sums of columns: two vectors of a thread, whose columns and sums stay in registers; more vectors in long
   rows, and the sums of those in shared memory where registers do not hold them. */
static void sums_shape(const struct staged *s, struct plan *plan)
{
    int each = s->vectors > 1024 ? (int)((s->vectors + 511) / 512) : 2;
    plan->cols_held = true;
    plan->columns_shared = registers_of(s, plan, each) > MOST;
    plan->cols_held = registers_of(s, plan, each) <= MOST;
    plan->taken = s->columns > 1;
    plan->taken = plan->taken && registers_of(s, plan, each) <= MOST_TAKEN;
    plan->threads = round_up((s->vectors + each - 1) / each, 32);
    plan->per_thread = each * s->vector;
    plan->stages = 2;
    if (2 * row_bytes(s, plan) + column_bytes(s, plan) + STATIC_BYTES > s->sm_bytes)
        plan->stages = 1;
}

/* No sums: a thread takes its part into registers while the next row comes, where they hold it. */
static bool taken_shape(const struct staged *s, struct plan *plan)
{
    plan->cols_held = s->values > 0;
    int each = s->vectors > 1024 ? (int)((s->vectors + 511) / 512) : 2;
    plan->taken = true;
    plan->stages = 1;
    plan->threads = round_up((s->vectors + each - 1) / each, 32);
    plan->per_thread = each * s->vector;
    return registers_of(s, plan, each) <= 96;
}

/* As many rows as shared memory holds, of a block each, up to four; what is beyond is read again. */
static void long_shape(const struct staged *s, struct plan *plan)
{
    const int64_t room = s->sm_bytes - STATIC_BYTES;
    const int64_t row = s->vectors * s->units * UNIT;
    int64_t blocks = s->sm_bytes / (row + STATIC_BYTES);
    blocks = blocks < 1 ? 1 : blocks > 4 ? 4 : blocks;
    int threads = SM_THREADS / (int)blocks / 32 * 32;
    int each = (int)((s->vectors + threads - 1) / threads);
    plan->taken = plan->cols_held = false;
    plan->stages = 1;
    plan->more = row > room;
    if (plan->more)
        each = (int)(room / ((int64_t)threads * UNIT * (s->units < 1 ? 1 : s->units)));
    else
        threads = round_up((s->vectors + each - 1) / each, 32);
    plan->threads = threads;
    plan->per_thread = each * s->vector;
}

static bool shape(const struct request *r, const struct staged *s, struct plan *plan, char *why)
{
    plan->rows_per_block = 1;
    plan->vector = s->vector;
    if (s->columns > 0 && s->vectors <= 128)
        team_shape(s, plan);
    else if (s->columns > 0)
        sums_shape(s, plan);
    else if (!taken_shape(s, plan))
        long_shape(s, plan);
    if (plan->per_thread == 0) {
        snprintf(why, REASON_BYTES, "%d units of rows: a stage of %d threads has no shared memory for them",
                 s->units, plan->threads);
        return false;
    }
    const int64_t bytes = plan->stages * row_bytes(s, plan) + column_bytes(s, plan);
    const int most = plan->rows_per_block > 1 ? MOST_TEAM : MOST_TAKEN;
    if (registers_of(s, plan, plan->per_thread / s->vector) > most) {
        snprintf(why, REASON_BYTES, "%d sums over rows: a thread has no registers for its columns",
                 s->columns);
        return false;
    }
    /* Where a team's rows share columns, their parts meet in static shared memory. */
    const int64_t met = plan->rows_per_block > 1 && s->columns > 0 ? 4 * plan->threads * plan->per_thread : 0;
    if (bytes + met + STATIC_BYTES > s->sm_bytes || plan->threads > BLOCK_LIMIT) {
        snprintf(why, REASON_BYTES,
                 "rows of %lld and their sums take %lld bytes of shared memory; a block has %d",
                 (long long)r->problem->dim[SYM_N], (long long)bytes, r->device->smem_bytes);
        return false;
    }
    const int need = registers_of(s, plan, plan->per_thread / s->vector);
    int by_memory = (int)(s->sm_bytes / (bytes + STATIC_BYTES));
    int by_registers =
        plan->taken || s->columns > 0 ? SM_REGISTERS / (plan->threads * need) : SM_THREADS / plan->threads;
    int blocks = by_memory < by_registers ? by_memory : by_registers;
    blocks = blocks < 1 ? 1 : blocks;
    plan->smem_bytes = (int)bytes;
    plan->full = (int64_t)plan->per_thread * plan->threads / plan->rows_per_block == r->problem->dim[SYM_N];
    plan->registers = SM_REGISTERS / (blocks * plan->threads) / 8 * 8;
    plan->registers = plan->registers > 255 ? 255 : plan->registers;
    plan->at_once = 1;
    plan->column_parts = 1;
    plan->blocks = blocks * r->device->sm_count;
    return true;
}

static bool plan_pass(const struct request *r, lathe_pass which, struct plan *plan, char *why)
{
    struct signature sig;
    struct row_pass pass;
    struct staged s;
    if (!plan_rowwise_dtype_ok(r, why))
        return false;
    signature_make(r->ir, which, &sig);
    bool ok = which == LATHE_BACKWARD ? row_pass_backward(r->ir, &sig, r->problem, &pass, why)
                                      : row_pass_forward(r->ir, &sig, r->problem, &pass, why);
    ok = ok && measure(r, which, &pass, &s, why) && shape(r, &s, plan, why);
    if (ok)
        snprintf(
            plan->reason, sizeof plan->reason,
            "rows of %lld wait in shared memory%s: %d threads, %d row%s a block, %d stage%s of %d elements "
            "a thread%s%s; %d blocks take rows in turn",
            (long long)r->problem->dim[SYM_N], plan->more ? " as far as they fit" : "", plan->threads,
            plan->rows_per_block, plan->rows_per_block == 1 ? "" : "s", plan->stages,
            plan->stages == 1 ? "" : "s", plan->per_thread,
            plan->taken ? ", which it takes into registers" : "",
            plan->columns_shared ? "; column sums in shared memory" : "", plan->blocks);
    row_pass_free(&pass);
    return ok;
}

/* ---- rows along an inner dim ------------------------------------------------------------------- */

static bool has_reductions(const struct ir *w)
{
    bool *used = calloc((size_t)w->n_nodes + 1, sizeof *used);
    bool found = !used;
    if (used)
        ir_mark(w, w->row.root, w->row.n_roots, used);
    for (int i = 0; i < w->n_nodes && !found; i++)
        found = used[i] && ir_op_is_reduction(w->node[i].op);
    free(used);
    return found;
}

static bool has_plain_scans(const struct row_pass *pass)
{
    bool plain = pass->n_walks <= 1;
    for (int i = 0; i < pass->n_scans; i++)
        plain &=
            pass->ir->node[pass->scan[i]].op == OP_CUMSUM || pass->ir->node[pass->scan[i]].op == OP_REVCUMSUM;
    return plain;
}

static void inner_shape(const struct request *r, const struct row_pass *pass, const struct staged *s,
                        struct plan *plan)
{
    const int64_t n = r->problem->dim[SYM_N];
    const int64_t room = s->sm_bytes - INNER_BYTES;
    int wide = pass->n_scans > 0 ? 4 : 8; /* 64 and 128 bytes side by side */
    int held = 0;                         /* places of a thread in shared memory */
    int blocks = pass->n_scans > 0 || pass->n_in == 0 ? 2 : 4;
    plan->threads = 256;
    if (pass->n_scans == 0 && pass->n_in > 0 && pass->n_out > 0 && has_reductions(pass->ir)) {
        while (wide > 2 && n * wide * s->units * UNIT > room / 2 - INNER_BYTES)
            wide /= 2;
        const int64_t place = (int64_t)wide * s->units * UNIT;
        blocks = (int)(room / (n * place + INNER_BYTES));
        blocks = blocks < 1 ? 1 : blocks > 4 ? 4 : blocks;
        plan->threads = blocks == 1 ? 512 : 256;
        const int places = plan->threads / wide;
        held = (int)((n + places - 1) / places);
        if ((int64_t)held * places * place > room / blocks - INNER_BYTES)
            held = (int)((room / blocks - INNER_BYTES) / (places * place));
    }
    plan->units_wide = wide;
    plan->vector = s->vector;
    plan->per_thread = held * s->vector;
    plan->rows_per_block = 1;
    plan->smem_bytes = held * s->units * UNIT * plan->threads;
    plan->registers = 65536 / (blocks * plan->threads) / 8 * 8;
    if (plan->registers > 255)
        plan->registers = 255;
    plan->blocks = blocks * r->device->sm_count;
    plan->at_once = 1;
    plan->column_parts = 1;
    snprintf(plan->reason, sizeof plan->reason,
             "rows of %lld along an inner dim: %d threads, %d rows a block, %d places of a thread in shared "
             "memory; "
             "%d blocks take rows in turn",
             (long long)n, plan->threads, wide * s->vector, held, plan->blocks);
}

static bool plan_inner_pass(const struct request *r, lathe_pass which, struct plan *plan, char *why)
{
    struct signature sig;
    struct row_pass pass;
    struct staged s;
    if (!plan_rowwise_dtype_ok(r, why))
        return false;
    signature_make(r->ir, which, &sig);
    bool ok = which == LATHE_BACKWARD ? row_pass_backward(r->ir, &sig, r->problem, &pass, why)
                                      : row_pass_forward(r->ir, &sig, r->problem, &pass, why);
    const char *apart = NULL;
    if (ok && !r->ir->inner)
        apart = "rows along the last dim";
    else if (ok && pass.n_sites > 0)
        apart = "sums over rows";
    else if (ok && r->problem->unaligned != 0)
        apart = "tensors that do not have 16 bytes of neighbours everywhere";
    else if (ok && pass.n_scans > 0 && (has_reductions(pass.ir) || !has_plain_scans(&pass)))
        apart = "scans other than plain sums of the rows themselves";
    if (apart)
        snprintf(why, REASON_BYTES, "%s", apart);
    ok = ok && !apart && count_units(r, &pass, &s, why);
    if (ok)
        inner_shape(r, &pass, &s, plan);
    row_pass_free(&pass);
    return ok;
}

bool plan_inner(const struct request *r, struct plan *plan, char *why)
{
    return plan_inner_pass(r, LATHE_FORWARD, plan, why);
}

bool plan_inner_bwd(const struct request *r, struct plan *plan, char *why)
{
    return plan_inner_pass(r, LATHE_BACKWARD, plan, why);
}

bool plan_staged(const struct request *r, struct plan *plan, char *why)
{
    return plan_pass(r, LATHE_FORWARD, plan, why);
}

bool plan_staged_bwd(const struct request *r, struct plan *plan, char *why)
{
    return plan_pass(r, LATHE_BACKWARD, plan, why);
}
