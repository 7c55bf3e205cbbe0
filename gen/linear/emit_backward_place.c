/*
 * emit_backward_place.c: where the tensors of linear attention's backward pass live. In: lowered formulas, a
 * plan. Out: gradients as arguments or on their way to the adjoint of a mod; buffers of the workspace, which
 * kernels hand to each other.
 */
#include "gen/linear/emit_recipe.h"
#include "gen/arguments/problem.h"
#include "gen/linear/linear.h"
#include "gen/linear/template.h"
#include "gen/plan/plan.h"

enum { EXACT_SUM_BYTES = 48 }; /* of the templates */

static const char *const GRADIENT[TENSOR_O] = {"dq", "dk", "dv"};

bool linear_back_is_sum(const struct emitter *e, const struct linear_back *b, int input)
{
    return !linear_back_has_one_adder(e->w, b, input);
}

void linear_back_times(struct product *p, const struct sig_dim *dim, int tile)
{
    if (dim->literal > 0)
        p->scale *= (dim->literal + tile - 1) / tile;
    else {
        product_times(p, (enum sym)dim->sym, tile);
        p->factor[p->n - 1].times = 1; /* inputs are of tokens */
    }
}

/* ---- buffers of templates --------------------------------------------------------------------------------
 */

struct product back_lines(int64_t bytes)
{
    struct product p = product_of(bytes);
    product_times(&p, SYM_B, 1);
    product_times(&p, SYM_H, 1);
    product_times(&p, SYM_T, 1);
    return p;
}

void back_place_tokens(struct recipe *r, bool has, enum buffer_of which, int floats)
{
    r->buffer[which] = has ? add_buffer(r->out, r->e, back_lines(4ll * floats)) : -1;
}

void back_place_sequences(struct recipe *r, enum buffer_of which, int64_t bytes)
{
    struct product p = product_of(bytes);
    product_times(&p, SYM_SEQS, 1);
    product_times(&p, SYM_H, 1);
    r->buffer[which] = add_buffer(r->out, r->e, p);
}

void back_place_chunks(struct recipe *r, enum buffer_of which, int64_t bytes)
{
    r->buffer[which] = add_buffer(r->out, r->e, linear_chunks(r->e, bytes, SYM_H));
}

void back_place_heads(struct recipe *r, struct product bytes, bool grouped)
{
    bytes.grouped = grouped;
    r->buffer[DQ_HEAD] = add_buffer(r->out, r->e, bytes);
    r->buffer[DK_HEAD] = add_buffer(r->out, r->e, bytes);
}

void back_place_states(struct recipe *r, int squares)
{
    const int64_t square = (int64_t)BACK_SLICE * BACK_SLICE * lathe__element_bytes(r->e->problem, DTYPE_Q) +
                           (r->e->problem->dtype[DTYPE_Q] == LATHE_F16 ? 16 : 0);
    back_place_chunks(r, STATES, squares * square);
    back_place_chunks(r, DSTATES, squares * square);
}

/* ---- what the recipe asks --------------------------------------------------------------------------------
 */

bool linear_back_keeps_heads(const struct recipe *r)
{
    return r->plan->linear.bands > 1 || !r->plan->row->linear->groups_dq ||
           r->e->spec->linear.bonus.n_roots > 0 || r->b->site[OF_SCALE].n > 0;
}

bool linear_back_gives(const struct ir *w, const struct plan *plan, const struct linear_back *b)
{
    return plan->row->linear->gives_decay && plan->linear.bands <= 1 && linear_back_gives_decay(w, b);
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
    const int d_v = (int)r->e->problem->dim[SYM_D_V];
    const enum decay_form form = linear_decay_form(r->e->spec);
    const bool gradient = r->b->site[OF_DECAY].n > 0 && form != DECAY_NONE;
    const bool outputs = r->e->spec->linear.normalise || (gradient && form == DECAY_VALUE) ||
                         linear_back_reads_output(r->e->w, r->b);
    for (int k = 0; k < BUFFERS; k++)
        r->buffer[k] = -1;
    back_place_tokens(r, outputs, AGAIN_O, d_v);
    back_place_tokens(r, has_skip(r), SKIP, d_v);
    r->plan->row->linear->place(r, gradient);
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
    struct emitter *e = r->e;
    for (int t = 0; t < TENSOR_O; t++) {
        const int arg = lathe__arg_find(e->sig, GRADIENT[t], 0);
        r->result[t] = r->l.outer[t];
        r->result[t].arg = arg;
        if (arg < 0) /* keys of inputs alone stand where queries do */
            r->result[t].buffer = -1;
        const bool wanted = problem_has(e->problem, arg) || linear_back_has_sites(e->w, r->b, (enum mod)t);
        runs->mod[t] = e->w->mod[t].n_stages > 0 && wanted;
        if (problem_has(e->problem, arg))
            updates_leave(e, t, &r->result[t], r->out);
        r->grad[t] = r->result[t];
        runs->in_chunks[t] = runs->mod[t] && adjoins_in_chunks(r, t);
        if (runs->mod[t] && !runs->in_chunks[t])
            linear_to_workspace(&r->grad[t], 4, e, r->out);
    }
    runs->in_chunks[MOD_OUTPUT] = false;
    r->dout = r->l.outer[TENSOR_O];
    r->dout.arg = lathe__arg_find(e->sig, "do", 0);
    updates_spread(e, TENSOR_O, &r->dout, r->out);
    r->given_dout = r->dout;
    runs->mod[MOD_OUTPUT] = e->w->mod[MOD_OUTPUT].n_stages > 0 || arg_in(e->problem->unaligned, r->dout.arg);
    if (runs->mod[MOD_OUTPUT])
        linear_to_workspace(&r->dout, r->plan->row->linear->wide_dout ? 4 : 2, e, r->out);
}

void linear_back_place(struct recipe *r, struct back_runs *runs)
{
    place_gradients(r, runs);
    place_workspace(r);
    place_sums(r);
}
