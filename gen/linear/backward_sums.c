/*
 * backward_sums.c: which gradients of inputs need an exact sum in linear attention's backward pass: where
 * several threads of a kernel add to one element. In: the sites of the derivatives. Out: which sites store,
 * and which add to what an earlier one has stored.
 */
#include "gen/linear/backward.h"
#include "gen/ir/spec.h"
#include "runtime/recipe/recipe.h"

static bool reads_at(const struct ir *ir, int leaf, int field)
{
    const struct ir_node *n = &ir->node[leaf];
    for (int k = 0; k < n->n_args; k++)
        if (ir_is_at(ir, n->arg[k], field))
            return true;
    return false;
}

/* The token that step at.t is of, or which of its steps that is: a lowered spec whose tokens are several. */
static bool is_of_update(const struct ir *ir, int node, enum ir_op op)
{
    const struct ir_node *n = &ir->node[node];
    return ir_steps(ir) > 1 && n->op == op && ir_is_at(ir, n->arg[0], AT_T) &&
           ir->node[n->arg[1]].op == OP_CONST && ir->node[n->arg[1]].value == ir_steps(ir);
}

static bool reads_update(const struct ir *ir, int leaf)
{
    const struct ir_node *n = &ir->node[leaf];
    bool token = false;
    bool update = false;
    for (int k = 0; k < n->n_args; k++) {
        token |= is_of_update(ir, n->arg[k], OP_IDIV);
        update |= is_of_update(ir, n->arg[k], OP_MOD);
    }
    return token && update;
}

/* No two tokens, heads or channels read the same element. A kernel sums first over channels that it lacks. */
static bool is_own_read(const struct ir *ir, int leaf)
{
    const struct ir_node *n = &ir->node[leaf];
    const bool channel = reads_at(ir, leaf, AT_I) || reads_at(ir, leaf, AT_J) || !(n->span & SPAN_DIM);
    const bool head = reads_at(ir, leaf, AT_H) || reads_at(ir, leaf, AT_H_K);
    return n->op == OP_LOAD && channel && head && reads_at(ir, leaf, AT_B) &&
           (reads_at(ir, leaf, AT_T) || reads_update(ir, leaf));
}

/* Is an index below its dim wherever a kernel reads? A dim that is a number may be shorter than its axis. */
static bool index_stays_inside(const struct ir *ir, int index, const struct sig_dim *dim, int m)
{
    const enum sym channels = m == MOD_VALUE || m == MOD_OUTPUT ? SYM_D_V : SYM_D;
    const struct {
        int field;
        enum sym sym, or_sym;
    } axis[] = {{AT_B, SYM_B, SYM_B}, {AT_H, SYM_H, SYM_H},       {AT_H_K, SYM_H_K, SYM_H},
                {AT_T, SYM_T, SYM_T}, {AT_I, channels, channels}, {AT_J, SYM_D_V, SYM_D_V}};
    for (size_t k = 0; k < sizeof axis / sizeof *axis; k++)
        if (ir_is_at(ir, index, axis[k].field))
            return dim->literal <= 0 &&
                   ((enum sym)dim->sym == axis[k].sym || (enum sym)dim->sym == axis[k].or_sym);
    if (is_of_update(ir, index, OP_IDIV))
        return dim->literal <= 0 && dim->sym == SYM_T;
    return !is_of_update(ir, index, OP_MOD) || dim->literal >= ir_steps(ir);
}

/* Beyond a dim's end all reads would be of its last element. `m`: a mod, whose rows are of its tensor; -1: a
   function of the recurrence. */
static bool stays_inside(const struct ir *ir, int leaf, int m)
{
    const struct ir_node *n = &ir->node[leaf];
    bool inside = true;
    for (int d = 0; d < n->n_args; d++)
        inside = inside && index_stays_inside(ir, n->arg[d], &ir->input[n->index].dim[d], m);
    return inside;
}

/* Of functions of the recurrence, in the order of a kernel's sites. -1: none reads the input. */
static int first_read(const struct ir *ir, const struct linear_back *b, int input)
{
    for (int k = 0; k < LINEAR_FUNCTIONS; k++)
        for (int i = 0; i < b->site[k].n; i++)
            if (ir->node[b->site[k].item[i].leaf].index == input)
                return b->site[k].item[i].leaf;
    return -1;
}

/* The same element, token by token and channel by channel? */
static bool is_same_read(const struct ir *ir, int a, int b)
{
    const struct ir_node *x = &ir->node[a];
    const struct ir_node *y = &ir->node[b];
    bool same = x->n_args == y->n_args;
    for (int k = 0; same && k < x->n_args; k++)
        same = x->arg[k] == y->arg[k];
    return same;
}

/* All functions read the same element for a token and a channel, so that one thread adds what they give. */
static bool functions_have_one_adder(const struct ir *ir, const struct linear_back *b, int input)
{
    const int first = first_read(ir, b, input);
    bool own = true;
    for (int k = 0; k < LINEAR_FUNCTIONS; k++)
        for (int i = 0; i < b->site[k].n; i++) {
            const int leaf = b->site[k].item[i].leaf;
            if (ir->node[leaf].index == input)
                own = own && is_own_read(ir, leaf) && stays_inside(ir, leaf, -1) &&
                      is_same_read(ir, first, leaf);
        }
    return own;
}

/* Reads of an input in a mod; *own: each adds to an element once. */
static int reads_of_mod(const struct ir *ir, const struct linear_back *b, int m, int input, bool *own)
{
    int reads = 0;
    for (int s = 0; s < ir->mod[m].n_stages; s++)
        for (int i = 0; i < b->stage[m][s].site.n; i++) {
            const int leaf = b->stage[m][s].site.item[i].leaf;
            if (ir->node[leaf].index != input)
                continue;
            *own = *own && is_own_read(ir, leaf) && stays_inside(ir, leaf, m) &&
                   (m <= MOD_KEY || reads_at(ir, leaf, AT_H));
            reads++;
        }
    return reads;
}

/* Where each kernel adds to an element once at most, the order of sums is that of kernels. */
bool linear_back_has_one_adder(const struct ir *ir, const struct linear_back *b, int input)
{
    bool own = functions_have_one_adder(ir, b, input);
    int reads = first_read(ir, b, input) >= 0;
    for (int m = 0; m < MOD_COUNT; m++) {
        const int more = reads_of_mod(ir, b, m, input, &own);
        own = own && more <= 1;
        reads += more;
    }
    return own && reads > 0;
}

static bool output_mod_reads(const struct ir *ir, const struct linear_back *b, int input)
{
    bool own = true;
    return reads_of_mod(ir, b, MOD_OUTPUT, input, &own) > 0;
}

bool linear_back_adds(const struct ir *ir, const struct linear_back *b, enum linear_function of, int site)
{
    const int input = ir->node[b->site[of].item[site].leaf].index;
    bool adds = output_mod_reads(ir, b, input); /* its adjoint runs ahead of all */
    for (int k = 0; k <= (int)of; k++)
        for (int i = 0; i < (k < (int)of ? b->site[k].n : site); i++)
            adds |= ir->node[b->site[k].item[i].leaf].index == input;
    return adds;
}

/* linear/backward/tokens.cuh goes through the heads of v in order. */
bool linear_back_is_grouped(const struct ir *ir, const struct linear_back *b, enum linear_function of,
                            int site)
{
    const int leaf = b->site[of].item[site].leaf;
    return !reads_at(ir, leaf, AT_H) && linear_back_has_one_adder(ir, b, ir->node[leaf].index);
}

bool linear_back_any_grouped(const struct ir *ir, const struct linear_back *b)
{
    bool any = false;
    for (int k = 0; k < LINEAR_FUNCTIONS; k++)
        for (int i = 0; i < b->site[k].n; i++)
            any |= linear_back_is_grouped(ir, b, (enum linear_function)k, i);
    return any;
}

static bool is_only_read(const struct ir *ir, const struct linear_back *b, int input)
{
    bool own = true;
    int reads = 0;
    for (int m = 0; m < MOD_COUNT; m++)
        reads += reads_of_mod(ir, b, m, input, &own);
    return own && reads == 1 && first_read(ir, b, input) < 0;
}

void linear_back_find_stores(const struct ir *w, struct linear_back *b)
{
    for (int m = 0; m < MOD_COUNT; m++)
        for (int s = 0; s < w->mod[m].n_stages; s++)
            for (int i = 0; i < b->stage[m][s].site.n; i++) {
                struct site *site = &b->stage[m][s].site.item[i];
                site->stores = is_only_read(w, b, w->node[site->leaf].index);
            }
}

/* The axis, as a bit, whose whole an index runs over. Heads of v and of k are one axis. 0: none. */
static unsigned whole_axis(const struct ir *ir, int index, const struct sig_dim *dim)
{
    enum { BATCH = 1, HEAD = 2, TOKEN = 4, CHANNEL = 8, UPDATE = 16 };
    static const struct {
        int field;
        enum sym sym;
        unsigned axis;
    } axis[] = {{AT_B, SYM_B, BATCH}, {AT_H, SYM_H, HEAD},    {AT_H_K, SYM_H_K, HEAD},
                {AT_T, SYM_T, TOKEN}, {AT_I, SYM_D, CHANNEL}, {AT_J, SYM_D_V, CHANNEL}};
    for (size_t k = 0; k < sizeof axis / sizeof *axis; k++)
        if (dim->literal <= 0 && (enum sym)dim->sym == axis[k].sym && ir_is_at(ir, index, axis[k].field))
            return axis[k].axis;
    if (is_of_update(ir, index, OP_IDIV))
        return dim->literal <= 0 && dim->sym == SYM_T ? TOKEN : 0;
    return is_of_update(ir, index, OP_MOD) && dim->literal == ir_steps(ir) ? UPDATE : 0;
}

bool linear_back_fills(const struct ir *ir, const struct linear_back *b, int input)
{
    const int first = linear_back_has_one_adder(ir, b, input) ? first_read(ir, b, input) : -1;
    const struct ir_node *read = first >= 0 && !output_mod_reads(ir, b, input) ? &ir->node[first] : NULL;
    bool fills = read != NULL && read->n_args == ir->input[input].n_dims;
    unsigned found = 0; /* of two dims along one axis a diagonal alone is read */
    for (int k = 0; fills && k < read->n_args; k++) {
        const unsigned axis = whole_axis(ir, read->arg[k], &ir->input[input].dim[k]);
        fills = axis != 0 && (found & axis) == 0;
        found |= axis;
    }
    return fills;
}

bool linear_back_gives_decay(const struct ir *ir, const struct linear_back *b)
{
    const struct site_list *sites = &b->site[OF_DECAY];
    bool all = sites->n > 0;
    for (int i = 0; i < sites->n; i++)
        all = all && sites->item[i].form == ADDRESS_ELEMENT && !linear_back_is_grouped(ir, b, OF_DECAY, i);
    return all;
}
