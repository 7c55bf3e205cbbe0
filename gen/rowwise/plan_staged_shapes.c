/*
 * plan_staged_shapes.c: of a pass of rows in numbers, the shape that rowwise/staged.cuh gives it: threads,
 * vectors of each, blocks of a cluster, what waits in shared memory and what registers hold. In: struct
 * staged. Out: a part of struct plan; whether a block has room for it is asked in plan_staged.c.
 */
#include "gen/rowwise/plan_staged.h"
#include "gen/plan/plan.h"
#include "gen/rowwise/planner.h"

enum { FOUR = 4 }; /* vectors of a thread */

/* What the blocks of a cluster push to each other, `words` of each reduction: cluster_exchange of
 * rowwise/vectors.cuh. */
int64_t staged_exchange_bytes(const struct plan *plan, const struct staged *s, int words)
{
    return plan->rows.cluster > 1 && s->at_once > 0
               ? (int64_t)2 * 4 * plan->rows.cluster * s->at_once * words + 16
               : 0;
}

/* Warps of a block that push: PUSHING of rowwise/cluster_reduce.cuh. */
int staged_pushing(const struct plan *plan, const struct staged *s)
{
    const int warps = plan->rows.threads / 32;
    const bool columns = s->columns > (s->placed ? s->scatters : 0); /* beside sums at computed indices */
    return (columns || plan->rows.staged.late) && plan->rows.cluster * warps <= 128 ? warps : 1;
}

/* Rows of a team of lanes whose columns are read: registers hold those over many rows. */
bool staged_has_short_rows(const struct staged *s)
{
    enum { FEWEST = 16, MOST_LANES = 32 }; /* vectors of a row */
    const int most = s->values > 1 ? 2 * MOST_LANES : MOST_LANES;
    return s->columns == 0 && s->values > 0 && s->results && s->vectors >= FEWEST && s->vectors <= most;
}

/* Rows that rowwise would take in blocks of 288 to 480 threads, too few of which share an SM where formulas
 * read values of columns. */
bool staged_has_odd_rows(const struct staged *s)
{
    enum { FEWEST = 1024, MOST_VECTORS = 2048 };
    return s->columns == 0 && s->values > 1 && s->units == 1 && s->vectors > FEWEST &&
           s->vectors < MOST_VECTORS;
}

/* Rows that have places: values of cells take registers, which rowwise lacks. */
bool staged_has_long_placed_rows(const struct staged *s)
{
    enum { FEWEST = 256 };
    return s->columns == 0 && s->placed && s->values > 1 && s->units == 1 && s->vectors > FEWEST;
}

/* Long rows of which formulas read values of columns: too many for registers, or rows for which those of a
   cluster are many. */
bool staged_reads_wide_columns(const struct staged *s)
{
    enum { HELD = 1024 * MOST_CLUSTER }; /* vectors of a row, of one value of each column */
    return s->columns == 0 && s->values > 0 && !s->placed && s->results && s->units == 1 &&
           s->vectors > 2048 && (s->values > 1 || s->vectors < HELD || s->vectors > 2 * HELD);
}

int64_t staged_row_bytes(const struct staged *s, const struct plan *plan)
{
    return (int64_t)plan->rows.per_thread / s->vector * s->units * UNIT * plan->rows.threads;
}

int64_t staged_column_bytes(const struct staged *s, const struct plan *plan)
{
    return plan->rows.staged.columns_shared
               ? (int64_t)plan->rows.per_thread * 4 * s->columns * plan->rows.threads
               : 0;
}

/* Of short rows whose columns are summed, three vectors of a lane, of two tensors: their formulas follow each
 * other, and take less beside what is kept. */
static bool sums_two_tensors(const struct staged *s)
{
    return s->columns > 0 && s->units == 2 && s->vector == HALVES;
}
static bool has_three(const struct staged *s, const struct plan *plan, int each)
{
    return plan->rows.rows_per_block > 1 && sums_two_tensors(s) && each == 3;
}

/* Blocks that share an SM, each quarter of which has whole warps. */
int staged_blocks_of(int threads, int registers)
{
    return QUARTERS * (QUARTER_REGISTERS / round_up(registers, 8)) / (threads / 32);
}

/* Registers of a thread that has `each` vectors of a row: beside the formulas, what it keeps over all rows,
   and the row itself where it takes it. */
int staged_registers_of(const struct staged *s, const struct plan *plan, int each)
{
    int kept =
        (plan->rows.staged.cols_held ? s->values : 0) + (plan->rows.staged.columns_shared ? 0 : s->columns);
    if (plan->rows.staged.cols_packed)
        return (s->columns > 0 ? 48 : 56) + each * s->vector * (2 * kept - s->values) / 2;
    if (plan->rows.rows_per_block > 1 && s->columns == 0) /* short formulas, one vector */
        return 44 + each * (s->vector * kept + 4 * s->units);
    if (plan->rows.staged.late &&
        plan->rows.staged.cols_held) /* the least, but for blocks that then were four to an SM */
        return (plan->rows.threads <= 256 && each < 4 ? 64 : 48) +
               each * (s->vector * kept + (plan->rows.taken ? 4 * s->units : 0));
    if (has_three(s, plan, each) && plan->rows.staged.cols_held) {
        const int all = 64 + each * s->vector * kept;
        return all > MOST_TEAM && all <= MOST_THREE ? MOST_TEAM : all;
    }
    if (plan->rows.taken && !plan->rows.staged.cols_held && s->columns == 0 && plan->rows.stages > 1)
        return 48 + each * 4 * s->units;
    return (plan->rows.staged.cols_held ? 64 : 56) +
           each * (s->vector * kept + (plan->rows.taken ? 4 * s->units : 0));
}

/* What the threads of a block have of a row; what is not named is not. */
struct manner {
    int each;            /* vectors of a thread */
    int stages;          /* rows that have places in shared memory */
    bool taken, late;    /* a row is in registers; is written while the next one comes */
    bool held, packed;   /* values of columns, in registers; two in one */
    bool sums_in_memory; /* of columns, in shared memory */
};

static void set_manner(const struct staged *s, struct plan *plan, struct manner m)
{
    plan->rows.taken = m.taken;
    plan->rows.stages = m.stages;
    plan->rows.staged.late = m.late;
    plan->rows.staged.cols_held = m.held;
    plan->rows.staged.cols_packed = m.packed;
    plan->rows.staged.columns_shared = m.sums_in_memory;
    plan->rows.threads = round_up((s->own + m.each - 1) / m.each, 32);
    plan->rows.per_thread = m.each * s->vector;
}

/* Vectors of a thread, of 512 where a part is longer than `longest`; else two. */
static int each_beyond(const struct staged *s, int longest)
{
    return s->own > longest ? (int)((s->own + 511) / 512) : 2;
}

/* Short rows, with sums of their columns or without: a warp or less has a row. */
static bool team_shape(const struct staged *s, struct plan *plan)
{
    const int most = s->units > 2 ? 64 : 96;              /* vectors whose sums a warp can hold */
    const bool pairs = s->columns > 0 || s->vectors > 32; /* of vectors, or more, of a thread */
    if (!(s->columns > 0 && s->vectors <= most) && !staged_has_short_rows(s))
        return false;
    int lanes = 1;
    while (lanes < 32 && (sums_two_tensors(s) ? 3 * lanes < s->vectors
                          : pairs             ? 4 * lanes <= s->vectors
                                              : lanes < s->vectors))
        lanes *= 2;
    const int each = (int)((s->vectors + lanes - 1) / lanes);
    plan->rows.threads = 256;
    plan->rows.rows_per_block = plan->rows.threads / lanes;
    plan->rows.per_thread = each * s->vector;
    const bool whole = has_three(s, plan, each) && s->vectors == (int64_t)each * lanes;
    plan->rows.stages = each * s->units > 6 || whole ? 1 : each * s->units >= 2 ? 2 : 4;
    plan->rows.taken = s->columns == 0;
    plan->rows.staged.cols_held = true;
    plan->rows.staged.cols_held = staged_registers_of(s, plan, each) <= MOST_TEAM;
    return true;
}

/* Blocks of a cluster, on devices that have them: as few as leave each no more than a share of a row. */
static int cluster_up_to(const struct kernel_request *r, int most, int64_t row, int64_t share)
{
    int n = 1;
    while (r->device->sm >= 90 && n < most && row > n * share)
        n *= 2;
    return n;
}
int staged_cluster_of(const struct kernel_request *r, int64_t row, int64_t share)
{
    return cluster_up_to(r, MOST_CLUSTER, row, share);
}
/* Of `least` to `most` blocks, so many that each has `own` vectors of a row, or up to an eighth less where
 * rows need not fill threads; 1: none. Other numbers than powers of two serve as well. */
static int even_cluster(const struct kernel_request *r, const struct staged *s, int own, int least, int most,
                        bool fills)
{
    for (int n = least; n <= most && r->device->sm >= 90 && s->vector == HALVES; n++) {
        const int64_t all = (int64_t)n * own;
        if (s->vectors == all || (!fills && s->vectors < all && 8 * s->vectors >= 7 * all))
            return n;
    }
    return 1;
}
/* 16 blocks where CUDA's tuning guides promise them: Hopper, and Blackwell of data centers. */
static int largest_cluster(const struct kernel_request *r)
{
    const bool promised = r->device->sm == 90 || r->device->sm / 10 == 10;
    return promised && r->device->sm_count >= LARGE_DEVICE ? LARGE_CLUSTER : MOST_CLUSTER;
}

/* Sums of the columns of two tensors: registers of two vectors of a thread hold them, and the values of
   columns. */
static bool holds_two_sums(const struct staged *s)
{
    return s->columns > 1 && s->units == 2 && s->scatters == 0 && !s->placed;
}

/* Four vectors of a thread: registers hold their sums, and a value of each column, packed. */
static bool packs_beside_sums(const struct staged *s)
{
    return holds_two_sums(s) && s->columns == 2 && s->halves && s->values == 1;
}
/* Do they fill blocks of 12 to 16 warps, so many of them? */
static bool fills_blocks(const struct staged *s, int blocks)
{
    return s->vectors % (blocks * FOUR * 32) == 0 && s->vectors >= blocks * FILLED_VECTORS &&
           s->vectors <= blocks * HELD_VECTORS;
}

/* Rows beside packed columns are written late: is there room for three, in blocks of a cluster of n? */
static bool has_three_rows(const struct staged *s, int n)
{
    const int64_t own = (s->vectors + n - 1) / n;
    return 3 * own * s->units * UNIT + 2 * STATIC_BYTES <= s->sm_bytes; /* with what blocks push */
}

/* A row of which a block would have 9 or 10 warps alone: one of twice as many, three of which share an SM. */
static int cluster_of_sums(const struct kernel_request *r, const struct staged *s)
{
    enum { LONGEST = 2048 }; /* vectors of a block whose sums registers hold */
    if (packs_beside_sums(s) && r->device->sm >= 90 && fills_blocks(s, 4) && has_three_rows(s, 4))
        return 4;
    const int full = holds_two_sums(s) ? even_cluster(r, s, 1024, 3, 5, true) : 1;
    const int even = full > 1 || !holds_two_sums(s) ? full : even_cluster(r, s, 512, 5, 5, true);
    if (even > 1)
        return even;
    const bool packs = packs_beside_sums(s) && has_three_rows(s, MOST_CLUSTER);
    const bool halved = holds_two_sums(s) && !packs && s->vectors > MOST_CLUSTER * 1024 &&
                        s->vectors % (LARGE_CLUSTER * 64) == 0;
    const int large = s->vectors > MOST_CLUSTER * LONGEST || halved ? largest_cluster(r) : MOST_CLUSTER;
    const int n = cluster_up_to(r, large, s->vectors, holds_two_sums(s) ? FEW_VECTORS : SUMS_VECTORS);
    const int64_t own = (s->vectors + n - 1) / n;
    const bool halves = r->device->sm >= 90 && holds_two_sums(s) && own > PAIR_VECTORS &&
                        own <= 2 * THREE_VECTORS && n < MOST_CLUSTER;
    return halves ? 2 * n : n;
}

/* Rows of which a block has 12 to 16 warps of four vectors a thread: registers hold the values of their
 * columns. */
static bool holds_long_columns(const struct staged *s, int64_t own)
{
    return s->values > 1 && own > 1408 && own <= HELD_VECTORS;
}
/* Two or four blocks to an SM, where two passes read the values of several columns. */
static int columns_cluster(const struct kernel_request *r, const struct staged *s)
{
    if (s->values < 2 || s->reductions <= s->at_once)
        return 1;
    const int n = even_cluster(r, s, 1024, 4, 6, false);
    return n > 1 ? n : even_cluster(r, s, 512, 5, 5, true);
}

/* Rows that two passes read, or one that makes spreads, and then what is written: registers hold the values
   of two columns, packed, and not the row. */
static bool packs_columns(const struct staged *s)
{
    return s->halves && s->values == 2 && s->columns == 0 && s->units == 1 && s->reductions > 1 &&
           s->vectors > 4 * HELD_VECTORS;
}
static int packed_cluster(const struct kernel_request *r, const struct staged *s)
{
    if (!packs_columns(s) || r->device->sm < 90)
        return 1;
    const int even = even_cluster(r, s, HELD_VECTORS, 5, 5, true);
    const int large = s->vectors > MOST_CLUSTER * WIDE_VECTORS ? largest_cluster(r) : MOST_CLUSTER;
    const int n = even > 1 ? even : large;
    return s->vectors <= n * WIDE_VECTORS && has_three_rows(s, n) ? n : 1;
}
static int cluster_of_columns(const struct kernel_request *r, const struct staged *s)
{
    const int packed = packed_cluster(r, s);
    const int even = packed > 1 ? packed : columns_cluster(r, s);
    if (even > 1)
        return even;
    const int n = staged_cluster_of(r, s->vectors, HELD_VECTORS);
    return holds_long_columns(s, (s->vectors + n - 1) / n) ? n
                                                           : staged_cluster_of(r, s->vectors, WIDE_VECTORS);
}

/* Long rows are shared by the blocks of a cluster, so that an SM has several blocks, whose loads and passes
 * overlap. */
void staged_share_row(const struct kernel_request *r, struct staged *s, struct plan *plan)
{
    const int64_t row = s->vectors * s->units * UNIT;
    s->even = columns_cluster(r, s) > 1;
    if (s->columns > 0)
        plan->rows.cluster = cluster_of_sums(r, s);
    else if (staged_reads_wide_columns(s))
        plan->rows.cluster = cluster_of_columns(r, s);
    else if (staged_has_long_placed_rows(s))
        plan->rows.cluster = staged_cluster_of(r, s->vectors, SUMS_VECTORS);
    else
        plan->rows.cluster = row > WHOLE_BYTES ? s->values > 0 && s->results && s->units == 1
                                                     ? staged_cluster_of(r, row, FEW_BYTES)
                                                     : cluster_up_to(r, largest_cluster(r), row, SHARE_BYTES)
                                               : 1;
    s->own = (s->vectors + plan->rows.cluster - 1) / plan->rows.cluster;
    if (s->columns == 1 && s->units == 2 && s->own > 704 && s->own <= 800 && plan->rows.cluster > 1) {
        plan->rows.cluster /= 2; /* a block of 768 threads, not one of 384 */
        s->own *= 2;
    }
}

/* Of two vectors of a thread: has shared memory room for two rows beside the sums of columns? */
static bool holds_two_rows_beside_sums(const struct staged *s, const struct plan *plan)
{
    struct plan trial = *plan;
    trial.rows.staged.columns_shared = true;
    trial.rows.threads = round_up((s->own + 1) / 2, 32);
    trial.rows.per_thread = 2 * s->vector;
    return 2 * staged_row_bytes(s, &trial) + staged_column_bytes(s, &trial) + STATIC_BYTES + 1024 <=
           s->sm_bytes;
}

/* Sums of columns: two vectors of a thread, whose columns and sums stay in registers; more vectors in long
   rows, and the sums of those in shared memory where registers do not hold them. That is asked as it was when
   these shapes were measured (SUMS_COUNTED is 0): without the sums, and with the row where shared memory has
   no room for two beside sums. Asked with the sums and without the row (1), the backward pass of rms_norm in
   f32 at 196608 has its sums in registers and two stages. */
static bool sums_shape(const struct staged *s, struct plan *plan)
{
    enum { SUMS_COUNTED = 0 };
    plan->rows.staged.columns_shared = !SUMS_COUNTED;
    plan->rows.taken = !SUMS_COUNTED && !holds_two_rows_beside_sums(s, plan);
    const int most = s->columns == 1 ? MOST_TAKEN : MOST;
    const int each = each_beyond(s, s->columns == 1 && s->units == 2 ? 1536 : 1024);
    plan->rows.staged.cols_held = true;
    plan->rows.staged.columns_shared = staged_registers_of(s, plan, each) > most;
    plan->rows.staged.cols_held = staged_registers_of(s, plan, each) <= most;
    plan->rows.taken = s->columns > 1;
    plan->rows.taken = plan->rows.taken && staged_registers_of(s, plan, each) <= MOST_TAKEN;
    plan->rows.threads = round_up((s->own + each - 1) / each, 32);
    plan->rows.per_thread = each * s->vector;
    plan->rows.stages = 2;
    if (2 * staged_row_bytes(s, plan) + staged_column_bytes(s, plan) + STATIC_BYTES > s->sm_bytes)
        plan->rows.stages = 1;
    return true;
}

/* A row is written while what the next one reduces is on its way, if it reduces anything. Rows wait in shared
   memory until then, so that registers hold sums, and the values of columns, packed where a thread has four
   vectors. A part that does not fill its threads needs predicates: of a thread's last vector alone where the
   others are sure. */
static bool late_sums_shape(const struct staged *s, struct plan *plan)
{
    const int each = s->own > 1024 ? 4 : 2;
    const bool large = plan->rows.cluster == LARGE_CLUSTER;
    const bool packs = each == 4 && packs_beside_sums(s);
    const bool wanted = s->columns == 1 ? s->units == 2 && !s->placed && large
                                        : holds_two_sums(s) && (!large || s->own <= 1024 || packs) &&
                                              (plan->rows.cluster > 1 || s->own > PAIR_VECTORS);
    set_manner(s, plan,
               (struct manner){.each = each,
                               .stages = each == 2 && s->own > 2 * THREE_VECTORS ? 4 : 3,
                               .late = true,
                               .held = each == 2 || s->columns == 1 || packs,
                               .packed = packs});
    const int64_t all = (int64_t)plan->rows.threads * plan->rows.cluster;
    const bool fills = each == 2 || s->vectors == each * all || (packs && s->vectors >= (each - 1) * all);
    const int64_t bytes = plan->rows.stages * staged_row_bytes(s, plan) +
                          staged_exchange_bytes(plan, s, staged_pushing(plan, s));
    return wanted && fills && s->reductions > 0 && plan->rows.threads <= 512 &&
           staged_registers_of(s, plan, each) <= (packs ? MOST_TAKEN : MOST) &&
           bytes + STATIC_BYTES <= s->sm_bytes;
}

/* Sums of two columns that registers do not hold: shared memory does, beside one row or two. */
static bool shared_sums_shape(const struct staged *s, struct plan *plan)
{
    const bool two = holds_two_rows_beside_sums(s, plan);
    set_manner(s, plan,
               (struct manner){
                   .each = 2, .stages = two ? 2 : 1, .taken = !two, .held = two, .sums_in_memory = true});
    return holds_two_sums(s) && s->own > 1024 && plan->rows.threads <= BLOCK_LIMIT;
}

/* No rows out, so that nothing but loads waits for memory: two rows on their way, of many small blocks. */
static bool results_shape(const struct staged *s, struct plan *plan)
{
    set_manner(s, plan, (struct manner){.each = 4, .stages = 2, .taken = true});
    return plan->rows.threads <= 512 && !s->results && s->values == 0;
}

/* No sums: a thread takes its part into registers while the next row comes, where they hold it. */
static bool taken_shape(const struct staged *s, struct plan *plan)
{
    const int each = each_beyond(s, 1024);
    set_manner(s, plan, (struct manner){.each = each, .stages = 1, .taken = true, .held = s->values > 0});
    return staged_registers_of(s, plan, each) <= 96;
}

/* The same where formulas read values of columns, for each row anew: two rows wait. */
static bool read_columns_shape(const struct staged *s, struct plan *plan)
{
    const int each = s->own > 2048 ? 4 : (int)((s->own + 511) / 512);
    set_manner(s, plan, (struct manner){.each = each, .stages = 2, .taken = true});
    return s->values > 0 && s->own > 1024 && plan->rows.threads <= BLOCK_LIMIT &&
           staged_registers_of(s, plan, each) <= 72 &&
           2 * staged_row_bytes(s, plan) + STATIC_BYTES <= s->sm_bytes;
}

/* The same of a cluster, whose blocks have the same columns of every row, or of rows that have places:
   registers hold the values of columns over all of them. */
static bool held_columns_shape(const struct staged *s, struct plan *plan)
{
    if (plan->rows.cluster == 1 && !staged_has_long_placed_rows(s))
        return false;
    for (int each = 2; each <= 4; each += 2) {
        const int stages = each == 2 && plan->rows.cluster > 1 ? 4 : 2;
        set_manner(s, plan, (struct manner){.each = each, .stages = stages, .taken = true, .held = true});
        const int need = staged_registers_of(s, plan, each);
        if (s->values > 0 && s->units == 1 && plan->rows.threads <= 512 && need <= MOST_TAKEN &&
            need * plan->rows.threads <= SM_REGISTERS &&
            plan->rows.stages * staged_row_bytes(s, plan) + STATIC_BYTES <= s->sm_bytes)
            return true;
    }
    return false;
}

/* Rows stay in shared memory until they are written, late. Where they fill 12 to 16 warps of four vectors a
   thread, a block to an SM; else as many vectors of a thread as registers have columns for, up to 8, in two
   or three blocks, or in one of 16 warps. */
static bool packed_columns_shape(const struct staged *s, struct plan *plan)
{
    enum { MOST_EACH = 8, MOST_STAGES = 4, FEWEST_STAGES = 3 };
    const int64_t own = s->own;
    const int some = fills_blocks(s, plan->rows.cluster) ? (int)own / FOUR
                     : own > HELD_VECTORS                ? BLOCK_LIMIT / 2
                                                         : round_up((own + MOST_EACH - 1) / MOST_EACH, 32);
    const int each = (int)((own + some - 1) / some);
    set_manner(s, plan, (struct manner){.each = each, .late = true, .held = true, .packed = true});
    const int blocks = staged_blocks_of(plan->rows.threads, staged_registers_of(s, plan, each));
    for (plan->rows.stages = MOST_STAGES; plan->rows.stages >= FEWEST_STAGES; plan->rows.stages--) {
        const int64_t bytes = plan->rows.stages * staged_row_bytes(s, plan) + STATIC_BYTES +
                              staged_exchange_bytes(plan, s, staged_pushing(plan, s));
        if (blocks * bytes <= s->sm_bytes)
            break;
    }
    return packs_columns(s) && s->reductions > 0 && plan->rows.cluster > 4 && each <= MOST_EACH &&
           plan->rows.stages >= FEWEST_STAGES;
}

/* A block to an SM: a thread takes its part into registers while the next row comes; the values of the
   columns stay in L1, with which rows share their memory, or where several are read in registers. */
static bool wide_shape(const struct staged *s, struct plan *plan)
{
    if (!staged_reads_wide_columns(s) || s->own > WIDE_VECTORS)
        return false;
    if (s->even || holds_long_columns(s, s->own) || (s->values > 1 && plan->rows.cluster == MOST_CLUSTER)) {
        const bool two = s->reductions > s->at_once; /* passes: the second one takes the row */
        set_manner(
            s, plan,
            (struct manner){
                .each = FOUR, .stages = 2, .taken = true, .late = two, .held = s->own <= HELD_VECTORS});
        return true;
    }
    const int most = s->values == 1 && plan->rows.cluster == MOST_CLUSTER ? BLOCK_LIMIT / 2 : BLOCK_LIMIT;
    const int each = s->own % most == 0                      ? (int)(s->own / most)
                     : (int)((s->own + most - 1) / most) > 4 ? 8
                                                             : 4;
    set_manner(s, plan, (struct manner){.each = each, .taken = true});
    const bool fits = (2 + s->values) * staged_row_bytes(s, plan) <= s->sm_bytes - STATIC_BYTES;
    plan->rows.stages = fits && (plan->rows.cluster == 2 || s->values == 1) ? 2 : 1;
    return true;
}

/* As many rows as shared memory holds, of a block each, up to four; what is beyond is read again. */
static bool long_shape(const struct staged *s, struct plan *plan)
{
    const int64_t room = s->sm_bytes - STATIC_BYTES;
    const int64_t row = s->own * s->units * UNIT;
    int64_t blocks = s->sm_bytes / (row + STATIC_BYTES);
    blocks = blocks < 1 ? 1 : blocks > 4 ? 4 : blocks;
    const bool shared = plan->rows.cluster > 1;
    int threads = !shared ? SM_THREADS / (int)blocks / 32 * 32 : blocks > 1 ? 256 : 512;
    int each = (int)((s->own + threads - 1) / threads);
    plan->rows.taken = plan->rows.staged.cols_held = false;
    plan->rows.stages = 1;
    plan->rows.more = row > room;
    if (plan->rows.more)
        each = (int)(room / ((int64_t)threads * UNIT * (s->units < 1 ? 1 : s->units)));
    else
        threads = round_up((s->own + each - 1) / each, 32);
    plan->rows.threads = threads;
    plan->rows.per_thread = each * s->vector;
    return true;
}

/* What a candidate that does not serve has written is forgotten: none begins from another's numbers. */
static bool take(bool (*candidate)(const struct staged *s, struct plan *plan), const struct staged *s,
                 struct plan *plan)
{
    struct plan trial = *plan;
    if (!candidate(s, &trial))
        return false;
    *plan = trial;
    return true;
}

/* In the order in which they are preferred: each says whether it serves, where its row does not. */
enum ask { EITHER, YES, NO };
static const struct {
    enum ask sums;   /* of columns */
    enum ask shared; /* a row, by the blocks of a cluster */
    bool (*shape)(const struct staged *s, struct plan *plan);
} CANDIDATES[] = {
    {.shape = team_shape},
    {.sums = YES, .shape = late_sums_shape},
    {.sums = YES, .shape = shared_sums_shape},
    {.sums = YES, .shape = sums_shape},
    {.sums = NO, .shared = YES, .shape = packed_columns_shape},
    {.sums = NO, .shared = YES, .shape = wide_shape},
    {.sums = NO, .shape = held_columns_shape},
    {.sums = NO, .shared = NO, .shape = results_shape},
    {.sums = NO, .shared = NO, .shape = taken_shape},
    {.sums = NO, .shared = NO, .shape = read_columns_shape},
    {.sums = NO, .shape = long_shape},
};

static bool is_asked(enum ask ask, bool given)
{
    return ask == EITHER || (ask == YES) == given;
}

void staged_choose_shape(const struct staged *s, struct plan *plan)
{
    for (size_t i = 0; i < sizeof CANDIDATES / sizeof *CANDIDATES; i++)
        if (is_asked(CANDIDATES[i].sums, s->columns > 0) &&
            is_asked(CANDIDATES[i].shared, plan->rows.cluster > 1) && take(CANDIDATES[i].shape, s, plan))
            return;
}

/* What is given of the next row comes early where few warps share an SM, none of which has work while others
   wait for it. Measured elsewhere, beside 64 threads and beside columns that are not packed in rows written
   late, it loses up to 4 %. */
void staged_look_ahead(const struct staged *s, struct plan *plan)
{
    enum { FEWEST_THREADS = 160 };
    const bool alone = holds_two_sums(s) && !plan->rows.staged.late && plan->rows.rows_per_block == 1 &&
                       plan->rows.cluster == 1 && plan->rows.threads >= FEWEST_THREADS;
    plan->rows.staged.given_ahead = plan->rows.staged.cols_packed || alone;
    plan->rows.staged.sure = plan->rows.staged.cols_packed
                                 ? (int)(s->vectors / ((int64_t)plan->rows.threads * plan->rows.cluster))
                                 : 0;
}
