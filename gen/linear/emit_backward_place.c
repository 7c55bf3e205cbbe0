/*
 * emit_backward_place.c: where the tensors of linear attention's backward pass live. In: lowered formulas, a
 * plan. Out: gradients as arguments or on their way to the adjoint of a mod; buffers of the workspace, which
 * kernels hand to each other.
 */
#include "gen/linear/emit_recipe.h"
#include "gen/arguments/problem.h"
#include "gen/linear/linear.h"
#include "gen/plan/plan.h"

enum { SLICE = 64, EXACT_SUM_BYTES = 48, TILE_STEP = 32 }; /* of the templates */

static const char *const GRADIENT[TENSOR_O] = {"dq", "dk", "dv"};

bool linear_back_is_sum(const struct emitter *e, const struct linear_back *b, int input)
{
    return !linear_back_is_own(e->w, b, input);
}

void linear_back_times(struct product *p, const struct sig_dim *dim, int tile)
{
    if (dim->literal > 0)
        p->scale *= (dim->literal + tile - 1) / tile;
    else
        product_times(p, (enum sym)dim->sym, tile);
}

static struct product lines(int64_t scale)
{
    struct product p = product_of(scale);
    product_times(&p, SYM_B, 1);
    product_times(&p, SYM_H, 1);
    product_times(&p, SYM_T, 1);
    return p;
}

static void place_tokens(struct recipe *r, bool has, enum buffer_of which, int floats)
{
    r->buffer[which] = has ? add_buffer(r->out, r->e, lines(4ll * floats)) : -1;
}

/* Of saved tiles: columns of the state where its decay varies by value channel, else rows. */
static int64_t saved_bytes(const struct recipe *r, bool by_value)
{
    const int d = (int)r->e->problem->dim[SYM_D];
    const int values = (int)r->e->problem->dim[SYM_D_V] + (r->e->spec->linear.normalise ? 1 : 0);
    const int pad = ((by_value ? d : values) + TILE_STEP - 1) / TILE_STEP * TILE_STEP;
    const int columns = pad > 128 ? 2 : 4;
    const int slices = by_value ? r->plan->linear.slices : r->plan->linear.row_slices;
    return 4ll * slices * (pad / TILE_STEP) * 4 * columns * 32 * r->plan->linear.warps;
}

static void place_saved(struct recipe *r, bool by_value)
{
    struct product chunks = product_of(saved_bytes(r, by_value));
    struct product ends = chunks;
    const struct emitter *e = r->e;
    product_times(&chunks, SYM_B, 1);
    product_times(&chunks, SYM_H, 1);
    product_times(&chunks, SYM_T, r->plan->linear.chunk);
    r->buffer[CHUNKS] = add_buffer(r->out, e, chunks);
    if (!problem_has(e->problem, lathe__arg_find(e->sig, "dstate_out", 0)) &&
        !problem_has(e->problem, lathe__arg_find(e->sig, "dnorm_out", 0)))
        return;
    product_times(&ends, SYM_SEQS, 1);
    product_times(&ends, SYM_H, 1);
    r->buffer[ENDS] = add_buffer(r->out, e, ends);
}

/* Of linear/backward/chunks_sm90.cuh: sums of a token's slices of channels, q dq and k dk, and the last
   states' part of them; heads that share a head of k leave dq and dk each. */
static void place_chunks(struct recipe *r, bool gradient)
{
    const int d = (int)r->e->problem->dim[SYM_D];
    const int slices = r->plan->linear.row_slices;
    struct product heads = lines(4ll * d);
    struct product ends = product_of(4ll * slices);
    heads.grouped = true;
    r->buffer[DQ_HEAD] = add_buffer(r->out, r->e, heads);
    r->buffer[DK_HEAD] = add_buffer(r->out, r->e, heads);
    place_tokens(r, gradient, DLOG, 1);
    place_tokens(r, gradient, READS, slices);
    place_tokens(r, gradient, WRITES, slices);
    if (!gradient || !problem_has(r->e->problem, lathe__arg_find(r->e->sig, "dstate_out", 0)))
        return;
    product_times(&ends, SYM_SEQS, 1);
    product_times(&ends, SYM_H, 1);
    r->buffer[ENDS] = add_buffer(r->out, r->e, ends);
}

/* Of 64 rows and columns, in f16 with 16 bytes for their scale. */
static int64_t state_bytes(const struct recipe *r)
{
    return 2ll * SLICE * SLICE + (r->e->problem->dtype[DTYPE_Q] == LATHE_F16 ? 16 : 0);
}

/* Of the delta rule: of each chunk of each head the inverse, or all that linear/keyed_delta_prepare.cuh has
   made of it, the state in front of it and the gradient of that behind it; what its tokens write, and the
   gradient of that; of each token that of beta. */
static void place_delta(struct recipe *r, bool gradient)
{
    const struct linear_plan *plan = &r->plan->linear;
    const bool keyed = plan->way == LINEAR_KEYED_DELTA;
    const int slices = keyed ? plan->chunk_slices : plan->slices;
    const int d = (int)r->e->problem->dim[SYM_D];
    const int d_v = (int)r->e->problem->dim[SYM_D_V];
    const int64_t state = slices * plan->row_slices * state_bytes(r);
    const int64_t inverse = keyed ? plan->chunk_bytes : LINEAR_INVERSE_BYTES;
    const struct product values = linear_chunks(r->e, 2ll * LINEAR_CHUNK * SLICE * slices, SYM_H);
    struct product heads =
        keyed ? lines(4ll * d) : linear_chunks(r->e, 4ll * LINEAR_CHUNK * SLICE * plan->row_slices, SYM_H_K);
    heads.grouped = true;
    r->buffer[DQ_HEAD] = add_buffer(r->out, r->e, heads);
    r->buffer[DK_HEAD] = add_buffer(r->out, r->e, heads);
    r->buffer[INVERSE] = add_buffer(r->out, r->e, linear_chunks(r->e, inverse, SYM_H));
    r->buffer[STATES] = add_buffer(r->out, r->e, linear_chunks(r->e, state, SYM_H));
    r->buffer[DSTATES] = add_buffer(r->out, r->e, linear_chunks(r->e, state, SYM_H));
    r->buffer[WRITTEN] = add_buffer(r->out, r->e, keyed ? values : lines(2ll * d_v));
    r->buffer[DWRITTEN] = add_buffer(r->out, r->e, keyed ? values : lines(2ll * d_v));
    if (!keyed && linear_decay_form(r->e->spec) != DECAY_NONE)
        r->buffer[SUMS] = add_buffer(r->out, r->e, linear_chunks(r->e, 4ll * LINEAR_CHUNK, SYM_H));
    const bool by_key = linear_decay_form(r->e->spec) == DECAY_KEY;
    place_tokens(r, true, DBETA, 1);
    place_tokens(r, gradient && !linear_back_gives(r->plan, r->b), DLOG,
                 !keyed   ? 1
                 : by_key ? d
                          : plan->key_parts);
}

bool linear_back_keeps_heads(const struct recipe *r)
{
    return r->plan->linear.way != LINEAR_ADDITIVE || r->e->spec->linear.bonus.n_roots > 0 ||
           r->b->site[OF_SCALE].n > 0;
}

bool linear_back_gives(const struct plan *plan, const struct linear_back *b)
{
    return (plan->linear.way == LINEAR_ADDITIVE || plan->linear.way == LINEAR_KEYED_DELTA) &&
           linear_back_gives_decay(b);
}

/* Of linear/backward/additive.cuh: of each chunk of each head the state in front of it and the gradient of
   that behind it, in f16 with 16 bytes for the scale of 64 rows and columns; the gradient of each channel's
   logarithm; dv of each part of the key channels. */
static void place_blocks(struct recipe *r, bool gradient)
{
    const int d = (int)r->e->problem->dim[SYM_D];
    const struct linear_plan *plan = &r->plan->linear;
    const int64_t state = plan->chunk_slices * plan->row_slices * state_bytes(r);
    struct product heads = lines(4ll * d);
    heads.grouped = !linear_back_keeps_heads(r);
    r->buffer[DQ_HEAD] = add_buffer(r->out, r->e, heads);
    r->buffer[DK_HEAD] = add_buffer(r->out, r->e, heads);
    r->buffer[STATES] = add_buffer(r->out, r->e, linear_chunks(r->e, state, SYM_H));
    r->buffer[DSTATES] = add_buffer(r->out, r->e, linear_chunks(r->e, state, SYM_H));
    place_tokens(r, gradient && !linear_back_gives(r->plan, r->b), DLOG, d);
    place_tokens(r, r->e->spec->linear.bonus.n_roots > 0, OWN, 1);
    place_tokens(r, plan->key_parts > 1, DV_PARTS, plan->key_parts * (int)r->e->problem->dim[SYM_D_V]);
}

/* And with a normaliser: of each token 1 / divisor, what flows back to that, and do divided; of each chunk
   the sum of keys in front of it and the gradient of that behind it. */
static void place_divisors(struct recipe *r)
{
    const int d = (int)r->e->problem->dim[SYM_D];
    r->divided = r->dout;
    linear_to_workspace(&r->divided, 2, r->e, r->out);
    r->buffer[DIVIDED_OUT] = r->divided.buffer;
    place_tokens(r, true, DIVIDED, 2);
    r->buffer[NORMS] = add_buffer(r->out, r->e, linear_chunks(r->e, 4ll * d, SYM_H));
    r->buffer[DNORMS] = add_buffer(r->out, r->e, linear_chunks(r->e, 4ll * d, SYM_H));
}

static bool reads_element(const struct ir *w, int root)
{
    return ir_depends_on(w, root, OP_PARAM, LEAF_X) || ir_depends_on(w, root, OP_PARAM, LEAF_LO) ||
           ir_depends_on(w, root, OP_PARAM, LEAF_HI);
}

bool linear_back_reads_output(const struct ir *w, const struct linear_back *b)
{
    bool reads = false;
    for (int s = 0; s < w->mod[MOD_OUTPUT].n_stages; s++) {
        const struct stage_back *stage = &b->stage[MOD_OUTPUT][s];
        reads |= reads_element(w, stage->root[0]) || reads_element(w, stage->root[1]) ||
                 reads_element(w, stage->value);
        for (int i = 0; i < stage->site.n; i++)
            reads |= reads_element(w, stage->site.item[i].value);
    }
    return reads;
}

static bool has_skip(const struct recipe *r)
{
    bool any = false;
    for (int s = 0; s < r->e->w->mod[MOD_OUTPUT].n_stages; s++)
        any |= r->b->stage[MOD_OUTPUT][s].has_value;
    return any;
}

static void place_workspace(struct recipe *r)
{
    const struct ir_linear *l = &r->e->spec->linear;
    const int d = (int)r->e->problem->dim[SYM_D];
    const int d_v = (int)r->e->problem->dim[SYM_D_V];
    const bool delta = l->delta.n_roots > 0;
    const enum decay_form form = linear_decay_form(r->e->spec);
    const bool gradient = r->b->site[OF_DECAY].n > 0 && form != DECAY_NONE;
    const bool by_value = form == DECAY_VALUE;
    const bool outputs = l->normalise || (gradient && by_value) || linear_back_reads_output(r->e->w, r->b);
    for (int k = 0; k < BUFFERS; k++)
        r->buffer[k] = -1;
    place_tokens(r, outputs, AGAIN_O, d_v);
    place_tokens(r, has_skip(r), SKIP, d_v);
    switch (r->plan->linear.way) {
    case LINEAR_DELTA:
    case LINEAR_KEYED_DELTA:
        place_delta(r, gradient);
        return;
    case LINEAR_CHUNKED:
        place_chunks(r, gradient);
        return;
    case LINEAR_ADDITIVE:
        place_blocks(r, gradient);
        if (l->normalise)
            place_divisors(r);
        return;
    case LINEAR_RECURRENT:
        break;
    }
    place_tokens(r, l->normalise, DIVIDED, 2);
    place_tokens(r, delta, ERRORS, d_v);
    place_tokens(r, delta, DX, d_v);
    place_tokens(r, true, DQ_HEAD, d);
    place_tokens(r, true, DK_HEAD, d);
    place_tokens(r, delta, DK_READ, d);
    place_tokens(r, gradient, DLOG, by_value ? d_v : d);
    place_tokens(r, l->bonus.n_roots > 0, OWN, 1);
    if (gradient)
        place_saved(r, by_value);
}

static void place_sums(struct recipe *r)
{
    for (int i = 0; i < r->e->w->n_inputs; i++) {
        struct product bytes = product_of(EXACT_SUM_BYTES);
        r->sum[i] = -1;
        if (!r->b->wanted[i] || !linear_back_is_sum(r->e, r->b, i))
            continue;
        for (int d = 0; d < r->e->w->input[i].n_dims; d++)
            linear_back_times(&bytes, &r->e->w->input[i].dim[d], 1);
        r->sum[i] = add_buffer(r->out, r->e, bytes);
        r->out->buffer[r->sum[i]].zero = true;
    }
}

bool linear_back_is_narrow(const struct plan *plan)
{
    return plan->linear.way != LINEAR_RECURRENT;
}

bool linear_back_by_chunk(const struct plan *plan)
{
    return plan->linear.way != LINEAR_RECURRENT && plan->linear.way != LINEAR_ADDITIVE;
}

/* Of a mod of q or k whose stages take elements by themselves and have no sites:
   linear/backward/chunk_adjoint.cuh has room for the rows where there are as many value channels as key
   channels. */
static bool adjoins_in_chunks(const struct recipe *r, int t)
{
    const struct emitter *e = r->e;
    const struct linear_plan *plan = &r->plan->linear;
    const struct ir_mod *mod = &e->w->mod[t];
    bool fits = r->l.prepared[t] && plan->slices >= plan->row_slices &&
                problem_has(e->problem, r->result[t].arg) &&
                !linear_back_has_sites(e->w, r->b, (enum mod)t) && !linear_has_unaligned_rows(e);
    for (int s = 0; s < mod->n_stages; s++)
        fits = fits && mod->stage[s].form == STAGE_ELEMENT;
    return fits;
}

static void place_gradients(struct recipe *r, struct back_runs *runs)
{
    const struct emitter *e = r->e;
    for (int t = 0; t < TENSOR_O; t++) {
        const int arg = lathe__arg_find(e->sig, GRADIENT[t], 0);
        r->result[t] = r->l.outer[t];
        r->result[t].arg = arg;
        const bool wanted = problem_has(e->problem, arg) || linear_back_has_sites(e->w, r->b, (enum mod)t);
        runs->mod[t] = e->w->mod[t].n_stages > 0 && wanted;
        r->grad[t] = r->result[t];
        runs->in_chunks[t] = runs->mod[t] && adjoins_in_chunks(r, t);
        if (runs->mod[t] && !runs->in_chunks[t])
            linear_to_workspace(&r->grad[t], 4, e, r->out);
    }
    runs->in_chunks[MOD_OUTPUT] = false;
    r->dout = r->l.outer[TENSOR_O];
    r->dout.arg = lathe__arg_find(e->sig, "do", 0);
    runs->mod[MOD_OUTPUT] = e->w->mod[MOD_OUTPUT].n_stages > 0 || arg_in(e->problem->unaligned, r->dout.arg);
    if (runs->mod[MOD_OUTPUT])
        linear_to_workspace(&r->dout, linear_back_is_narrow(r->plan) ? 2 : 4, e, r->out);
}

void linear_back_place(struct recipe *r, struct back_runs *runs)
{
    place_gradients(r, runs);
    place_workspace(r);
    place_sums(r);
}
