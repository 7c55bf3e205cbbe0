/*
 * plan_registers.c: shapes of the row-wise kernels: how many threads take a row, how much of it each holds in
 * registers. In: a request. Out: its part of struct plan. The limits are those at which ptxas spills nothing,
 * for the shipped specs on sm_80 and sm_90a.
 */
#include "gen/rowwise/kernel.h"
#include "gen/plan/plan.h"
#include "gen/rowwise/planner.h"

#include <stdio.h>

static int next_power_of_two(int n)
{
    int p = 1;
    while (p < n)
        p *= 2;
    return p;
}

/* A row to a block of which no pass holds it. */
static void reread_shape(int64_t n, const struct plan_again *again, struct plan *plan, int vector)
{
    plan->rows.vector = vector;
    plan->rows.reread = true;
    plan->rows.prefetch = false;
    plan->rows.rows_per_block = 1;
    plan->rows.per_thread = again->each * vector;
    plan->rows.threads = round_up(n / vector / again->each + (n / vector % again->each != 0), 32);
}

/* ---- rows of several tensors --------------------------------------------------------------------- */

/* Registers of a thread: for each of its vectors the rows as loaded and the sums of their columns; beside
   them what one vector's formulas and addresses take, which is a matter of experience. */
struct piece {
    int words;
    int sums;
    int base;
    bool powers;  /* of scans: formulas so long that the next row should be under way meanwhile */
    bool whole;   /* 16 bytes, or a multiple, of every tensor that is read */
    bool results; /* rows go out: a warp with four vectors of a lane is then up to 7 % slower than two */
};

/* Values of one element that the formulas compute. */
static int count_values(const struct ir *w)
{
    bool used[IR_MAX_NODES]; /* no memory to run out of: it would be another shape */
    int n = 0;
    ir_mark(w, w->row.root, w->row.n_roots, used);
    for (int i = 0; i < w->n_nodes; i++)
        n += used[i] && w->node[i].n_args > 0 && w->node[i].span == (SPAN_Q | SPAN_KV);
    return n;
}

/* Vectors whose formulas may overlap: long ones hide their own latency. */
static int at_once_of(const struct row_pass *pass, int vector)
{
    enum { LONG = 12 };
    return vector == 1 ? 8 : count_values(pass->ir) > LONG ? 1 : 2;
}

/* Scans: the results of all but the last walk are held, too, of those with a reference what each element
 * adds; ranks and what goes to them, with what each of these compares or moves in its turn. */
static void add_scans(const struct row_pass *pass, int vector, struct piece *p)
{
    p->powers = row_pass_has_powers(pass);
    p->sums += p->powers ? vector : 0;
    p->sums += row_pass_has_ranks(pass) ? vector : 0;
    for (int k = 0; k < pass->n_scans; k++)
        p->sums +=
            ir_scan_form(pass->ir->node[pass->scan[k]].op) >= SCAN_RANK || pass->walk[k] + 1 < pass->n_walks
                ? vector
                : 0;
}

static struct piece piece_of(const struct row_pass *pass, const struct problem *problem, int vector)
{
    struct piece p = {0, vector * pass->n_columns, 0, false, true, pass->n_out > 0};
    for (int k = 0; k < pass->n_in; k++) {
        int bytes = (int)lathe_dtype_size((lathe_dtype)problem->arg_dtype[pass->in[k].arg]);
        p.words += vector == 1 ? 1 : vector * bytes / 4;
        p.whole &= vector * bytes % 16 == 0;
    }
    int live = pass->n_in + pass->n_out + pass->n_columns;
    int values = count_values(pass->ir) / 2;
    p.base = 40 + vector * at_once_of(pass, vector) / 2 * (live > values ? live : values) +
             (at_once_of(pass, vector) == 1 ? 14 : 0);
    add_scans(pass, vector, &p);
    return p;
}

/* Does a thread's share fit the 128 registers that it has where 16 warps fill an SM? */
static bool fits_registers(struct piece p, int each, const struct plan *plan)
{
    if (each > 8) /* before it is multiplied: rows may have 2^31 - 1 elements */
        return false;
    int held = each * (p.words + p.sums);
    int under_way = plan->rows.prefetch ? each * p.words : 0;
    int room = 128 - p.base;
    int all = each <= 2 || p.powers ? 64 : 56;
    return held <= room && held <= 48 && held + under_way <= (room + 16 < all ? room + 16 : all) &&
           each * p.words <= 40;
}

/* Scans with powers: an exponential of each element fills a thread's registers, and of a scan beside another
 * one its weight, so the row itself, and the next one, wait in shared memory. Blocks share an SM, where each
 * element has an exponential alone: while the warps of one meet, others compute. */
static bool scan_shape(int vectors, struct piece piece, int smem_bytes, struct plan *plan)
{
    enum { FEWEST = 128, MOST = 512, STATIC_BYTES = 4096 };
    const int each = piece.sums > plan->rows.vector ? 2 : 4;
    const int threads = round_up((vectors + each - 1) / each, 32);
    if (!piece.powers || piece.sums > 2 * plan->rows.vector || !piece.whole || threads < FEWEST ||
        threads > MOST)
        return false;
    const int bytes = 2 * each * piece.words * 4 * threads;
    if (bytes + STATIC_BYTES > smem_bytes)
        return false;
    plan->rows.threads = threads;
    plan->rows.per_thread = each * plan->rows.vector;
    plan->rows.smem_bytes = bytes;
    plan->rows.prefetch = plan->rows.shared_next = plan->rows.kept = true;
    return true;
}

/* A row to a block: the fewest threads whose registers hold it. A block that has its SM to itself must have
   the next row under way. */
static bool block_shape(int vectors, struct piece piece, struct plan *plan)
{
    static const int THREADS[] = {64, 128, 192, 256, 320, 384, 448, 512};
    const int n = (int)(sizeof THREADS / sizeof *THREADS);
    for (int i = 0; i < 2 * n; i++) {
        plan->rows.threads = THREADS[i % n];
        plan->rows.prefetch = i < n && (plan->rows.threads > 256 || piece.powers);
        int each = (vectors - 1) / plan->rows.threads + 1;
        if (each > 2 && plan->rows.threads < 256)
            continue; /* more threads, more loads under way */
        if (!fits_registers(piece, each, plan))
            continue;
        plan->rows.per_thread = each * plan->rows.vector;
        return true;
    }
    return false;
}

/* Rows that nothing is reduced of: two vectors of a thread, and as many threads as an SM has. */
static bool stream_shape(int vectors, const struct row_pass *pass, struct plan *plan)
{
    enum { FEWEST = 256, MOST = 1024 };
    if (row_pass_reduces(pass) || pass->n_scans > 0 || pass->n_sites > 0 || plan->rows.vector == 1 ||
        vectors <= FEWEST || vectors > MOST)
        return false;
    plan->rows.threads = round_up((vectors + 1) / 2, 32);
    plan->rows.per_thread = 2 * plan->rows.vector;
    plan->rows.rows_per_block = 1;
    plan->rows.prefetch = false;
    return true;
}

/* False: the row does not fit registers; the plan is one that reads it again. */
static bool many_shape(int64_t n, struct piece piece, int smem_bytes, struct plan *plan)
{
    int vectors = (int)((n + plan->rows.vector - 1) / plan->rows.vector);
    int each = (vectors - 1) / 32 + 1;
    plan->rows.threads = 128;
    plan->rows.rows_per_block = 1;
    plan->rows.prefetch = false;
    if (vectors <= 32) {
        plan->rows.rows_per_block = 128 / next_power_of_two(vectors);
        plan->rows.per_thread = plan->rows.vector;
    } else if (each <= (piece.sums > 0 ? 2 : piece.results ? 3 : 4) && fits_registers(piece, each, plan)) {
        plan->rows.rows_per_block = 4;
        plan->rows.per_thread = each * plan->rows.vector;
    } else if (!scan_shape(vectors, piece, smem_bytes, plan) && !block_shape(vectors, piece, plan)) {
        plan->rows.threads = 512;
        plan->rows.per_thread = 0;
        plan->rows.prefetch = false;
        return false;
    }
    return true;
}

/* Along an inner dim: 32 neighbours to a warp, a row to a lane of each of 8 warps. */
static void inner_shape(int64_t n, struct piece piece, struct plan *plan)
{
    plan->rows.threads = 256;
    plan->rows.rows_per_block = 32;
    plan->rows.prefetch = false;
    int each = (int)((n + 7) / 8);
    plan->rows.per_thread = fits_registers(piece, each, plan) ? each : 0;
}

/* Vectors need every row of every tensor at a multiple of 16 bytes. */
static bool rows_are_vectors(const struct row_pass *pass, const struct problem *problem, int vector)
{
    return problem->unaligned == 0 && problem->dim[SYM_N] % vector == 0 && pass->n_in + pass->n_out > 0;
}

/* Blocks that fit the device at once, so that each takes many rows; parts of the rows for the second kernel.
 */
static void share_rows(const struct kernel_request *r, const struct row_pass *pass, struct plan *plan)
{
    struct piece piece = piece_of(pass, r->problem, plan->rows.vector);
    int each = plan->rows.per_thread > 0 ? plan->rows.per_thread / plan->rows.vector : 1;
    int held = each * (piece.words * (plan->rows.prefetch ? 2 : 1) + piece.sums);
    plan->rows.at_once = at_once_of(pass, plan->rows.vector);
    plan->rows.full = plan->rows.per_thread > 0 &&
                      (int64_t)plan->rows.per_thread * plan->rows.threads / plan->rows.rows_per_block ==
                          r->problem->dim[SYM_N];
    plan->rows.registers = plan->rows.shared_next ? 128 : round_up(piece.base + held, 8);
    int blocks =
        4 * (512 / plan->rows.registers) / (plan->rows.threads / 32); /* as MIN_BLOCKS of the template */
    blocks = blocks < 1 ? 1 : blocks > 16 ? 16 : blocks;
    plan->rows.blocks = blocks * r->device->sm_count;
    int64_t strips = (r->problem->dim[SYM_N] - 1) / (128 * plan->rows.vector) + 1;
    int64_t parts = 8 * (int64_t)r->device->sm_count / strips;
    plan->rows.column_parts = parts < 4 ? 4 : (int)parts;
}

static void many_reason(const struct kernel_request *r, const struct row_pass *pass, struct plan *plan)
{
    char sums[96] = "";
    if (pass->n_sites > 0)
        snprintf(sums, sizeof sums, "; %d blocks take rows in turn and add up %d column%s", plan->rows.blocks,
                 pass->n_columns, pass->n_columns == 1 ? "" : "s");
    snprintf(plan->reason, sizeof plan->reason,
             "rows of %lld %s: %d threads, %d row%s a block, %d element%s at once%s%s",
             (long long)r->problem->dim[SYM_N],
             plan->rows.reread           ? "that every pass reads again, from L1 and L2"
             : plan->rows.per_thread > 0 ? "in registers"
                                         : "do not fit registers and are read again in every pass",
             plan->rows.threads, plan->rows.rows_per_block, plan->rows.rows_per_block == 1 ? "" : "s",
             plan->rows.vector, plan->rows.vector == 1 ? "" : "s",
             plan->rows.prefetch ? ", the next row under way" : "", sums);
}

/* ---- one row to one row -------------------------------------------------------------------------- */

enum { LANES = 32, WARP_VECTORS = 128, FEWEST_THREADS = 64, MOST_THREADS = 512, READ_AT_ONCE = 4 };
/* Rows of a block each: what a thread holds of those that 512 threads have room for. None of these spills on
 * sm_80 and sm_90a; 16 vectors of elements of 16 bits would. */
static const struct {
    int each;       /* vectors of 16 bytes of a thread */
    int least_size; /* bytes of an element, at least */
} HELD[] = {{.each = 4, .least_size = 2}, {.each = 8, .least_size = 2}, {.each = 16, .least_size = 4}};

static void single_shape(int64_t vectors, int element_bytes, struct plan *plan)
{
    plan->rows.threads = 128;
    plan->rows.rows_per_block = 1;
    plan->rows.per_thread = 0;
    if (vectors <= LANES) { /* a row is a team of lanes */
        plan->rows.rows_per_block = 128 / next_power_of_two((int)(vectors < 1 ? 1 : vectors));
        plan->rows.per_thread = plan->rows.vector;
        return;
    }
    if (vectors <= WARP_VECTORS) { /* a warp a row */
        plan->rows.rows_per_block = 4;
        plan->rows.per_thread = (int)((vectors + LANES - 1) / LANES) * plan->rows.vector;
        return;
    }
    plan->rows.threads = MOST_THREADS;
    for (size_t i = 0; i < sizeof HELD / sizeof *HELD; i++) {
        const int threads = round_up((vectors + HELD[i].each - 1) / HELD[i].each, 32);
        if (threads > MOST_THREADS || element_bytes < HELD[i].least_size)
            continue;
        plan->rows.threads = threads < FEWEST_THREADS ? FEWEST_THREADS : threads;
        plan->rows.per_thread = HELD[i].each * plan->rows.vector;
        return;
    }
}

/* Does an element read values of its column, or of its row and column? */
static bool reads_columns(const struct ir *w)
{
    bool used[IR_MAX_NODES]; /* no memory to run out of: it would be another shape */
    bool any = false;
    ir_mark(w, w->row.root, w->row.n_roots, used);
    for (int i = 0; i < w->n_nodes; i++)
        any |= used[i] && w->node[i].n_args > 0 && (w->node[i].span == SPAN_KV || row_is_cell(w, i));
    return any;
}

/* The row as it was loaded, one pass over a part of it, addresses. */
static int single_registers(const struct plan *plan, int vectors, bool columns)
{
    const int words = 4 * vectors;
    const int least = columns ? 64 : 48;
    const int beside = columns && words > (plan->rows.rows_per_block == 1 ? 16 : 8) ? 16 : 0;
    return 32 + 2 * words + beside > least ? 32 + 2 * words + beside : least;
}

/* One tensor in and one out, and nothing summed over rows: so many rows are under way that the next ones need
 * not be asked for where an SM has many blocks of them. Rows that are not aligned are read element by
 * element, and again in every pass. */
static void choose_single(const struct kernel_request *r, const struct row_pass *pass,
                          const struct plan_again *again, struct plan *plan)
{
    const int64_t n = r->problem->dim[SYM_N];
    const int bytes = (int)lathe_dtype_size(r->problem->dtype[DTYPE_X]);
    const bool columns = reads_columns(pass->ir);
    const int passes = row_pass_count(pass);
    const int vector = 16 / bytes;
    plan->rows.vector = vector;
    if (again->each > 0)
        reread_shape(n, again, plan, vector);
    else
        single_shape((n + vector - 1) / vector, bytes, plan);
    const int vectors = plan->rows.per_thread > 0 ? plan->rows.per_thread / vector : READ_AT_ONCE;
    const int registers = again->each > 0 ? again->registers : single_registers(plan, vectors, columns);
    plan->rows.ahead = columns ? passes > 1 || vectors < 3 : passes > 1 && plan->rows.threads > 256;
    if (r->problem->unaligned != 0 || n % vector != 0) {
        plan->rows.vector = 1;
        plan->rows.per_thread = 0;
    }
    share_rows(r, pass, plan);
    plan->rows.registers = registers;
    plan->rows.at_once = vectors;
    plan->rows.once = true;
    plan->rows.blocks = 1; /* none takes rows in turn: the same code for any number of multiprocessors */
    plan->rows.column_parts = 1;
}

/* The shape of the pass; where a row does not fit, shorter vectors leave room for more of it. */
static void choose_shape(const struct kernel_request *r, const struct row_pass *pass,
                         const struct plan_again *again, struct plan *plan)
{
    const int64_t n = r->problem->dim[SYM_N];
    const int vector = 16 / (int)lathe_dtype_size(r->problem->dtype[DTYPE_X]);
    const int smem = r->device->smem_bytes;
    plan->rows.ahead = true;
    plan->rows.inner = r->ir->inner;
    if (plan_is_single(r)) {
        choose_single(r, pass, again, plan);
        return;
    }
    plan->rows.vector = !plan->rows.inner && rows_are_vectors(pass, r->problem, vector) ? vector : 1;
    if (again->each > 0) {
        reread_shape(n, again, plan, vector);
        share_rows(r, pass, plan);
        plan->rows.registers = again->registers;
        plan->rows.variance = again->variance;
        plan->rows.at_once = again->beside ? 1 : 2;
        return;
    }
    if (plan->rows.inner) {
        inner_shape(n, piece_of(pass, r->problem, 1), plan);
    } else if (stream_shape((int)(n / plan->rows.vector), pass, plan)) {
        share_rows(r, pass, plan);
        plan->rows.registers = 24 + 8 * (pass->n_in + pass->n_out);
        return;
    } else if (!many_shape(n, piece_of(pass, r->problem, plan->rows.vector), smem, plan) &&
               plan->rows.vector > 1) {
        plan->rows.vector = vector / 2;
        if (!many_shape(n, piece_of(pass, r->problem, plan->rows.vector), smem, plan)) {
            plan->rows.vector = vector;
            (void)many_shape(n, piece_of(pass, r->problem, vector), smem, plan);
        }
    }
    share_rows(r, pass, plan);
}

/* What is ranked stands in shared memory, where each element is compared with all. */
enum { RANKED_WORDS = 8192 };
static bool holds_ranks(const struct plan *plan)
{
    return plan->rows.per_thread > 0 && !plan->rows.inner &&
           plan->rows.per_thread * plan->rows.threads <= RANKED_WORDS;
}

bool plan_registers(const struct kernel_request *r, struct plan *plan, char *why)
{
    struct plan_again again;
    const struct row_pass *pass = &r->rows->pass;
    plan_reread(r, pass, &again);
    choose_shape(r, pass, &again, plan);
    many_reason(r, pass, plan);
    if (row_pass_has_ranks(pass) && !holds_ranks(plan)) {
        snprintf(
            why, REASON_BYTES,
            "rank in rows of %lld%s; a kernel counts in rows along the last dim that fit registers and %d "
            "words of shared memory (the host device takes any)",
            (long long)r->problem->dim[SYM_N], plan->rows.inner ? " along an inner dim" : "", RANKED_WORDS);
        return false;
    }
    if (row_pass_has_first(pass, r->sig) && row_pass_has_powers(pass)) {
        snprintf(
            why, REASON_BYTES,
            "the first elements of a row beside logcumsumexp or its like (the host device computes them; "
            "two specs, one behind the other, run on kernels)");
        return false;
    }
    const bool ok = plan->rows.per_thread > 0 || pass->n_scans == 0 || pass->n_columns == 0;
    if (!ok)
        snprintf(why, REASON_BYTES,
                 "gradients summed by column beside a scan, in rows of %lld, which do not fit registers (the "
                 "host device computes them)",
                 (long long)r->problem->dim[SYM_N]);
    return ok;
}
