/*
 * check.c: rules of the model that hold for a whole spec; types, spans and phases were filled in as
 * the nodes were made. In: traced IR. Out: the same IR, or diagnostics with the line of the root at fault.
 */
#include "kinds.h"

#include <string.h>

struct rule {
    struct ir *ir;
    struct diag *diag;
    bool ok;
};

static void complain(struct rule *r, int node, const char *text, const char *who)
{
    const struct ir_node *n = &r->ir->node[node];
    diag_add(r->diag, r->ir->file[n->line ? n->file : 1], n->line, "%s: %s", who, text);
    r->ok = false;
}

/* A root becomes f32 (a bool is a mistake) and may vary only with `allowed`. */
static void require_number(struct rule *r, int *root, uint8_t allowed, const char *who, const char *span_text)
{
    const struct ir_node *n = &r->ir->node[*root];
    if (n->type == TYPE_BOOL) {
        complain(r, *root, "must return a number, returns a bool; use where(c, 1.0, 0.0)", who);
        return;
    }
    if (n->span & ~allowed)
        complain(r, *root, span_text, who);
    if (n->type == TYPE_I32)
        *root = ir1(r->ir, OP_F32, *root);
}

/* No reduction along `axis` below the root, except where the model has one. */
static void forbid_reductions(struct rule *r, int root, uint8_t axis, const char *who, const char *text)
{
    for (int op = 0; op < OP_COUNT; op++)
        if (ir_op_is_reduction(op) && (ir_op_axis(op) & axis) &&
            ir_depends_on(r->ir, root, (enum ir_op)op, -1))
            complain(r, root, text, who);
}

#define ROW_ONLY "must be one value per row; reduce along the row first (rowmax, rowmin, rowsum)"

static void check_mods(struct rule *r)
{
    static const char *const name[MOD_COUNT] = {"query_mod", "key_mod", "value_mod", "output_mod"};
    for (int m = 0; m < MOD_COUNT; m++)
        for (int s = 0; s < r->ir->mod[m].n_stages; s++) {
            struct ir_stage *stage = &r->ir->mod[m].stage[s];
            for (int i = 0; i < stage->fn.n_roots; i++)
                require_number(r, &stage->fn.root[i], SPAN_Q | SPAN_DIM, name[m],
                               "must be one value per element");
        }
}

static void check_mask(struct rule *r)
{
    struct ir *ir = r->ir;
    if (ir->mask.n_roots == 0)
        return;
    int root = ir->mask.root[0];
    if (ir->node[root].type != TYPE_BOOL)
        complain(r, root, "must return a bool such as ge(at.q, at.kv); it returns a number", "mask_mod");
    forbid_reductions(r, root, SPAN_KV, "mask_mod",
                      "a mask looks at one pair at a time; row reductions belong in online_fwd");
}

static void check_score(struct rule *r)
{
    struct ir *ir = r->ir;
    require_number(r, &ir->scale.root[0], 0, "scale",
                   "must be one value per head; it may use inputs indexed by at.b and at.h");
    if (ir->score.n_roots == 0)
        return;
    require_number(r, &ir->score.root[0], SPAN_Q | SPAN_KV, "score_mod", "must be one value per pair");
    forbid_reductions(r, ir->score.root[0], SPAN_KV, "score_mod",
                      "looks at one pair at a time; row reductions belong in online_fwd of an online_func");
}

static void check_online(struct rule *r)
{
    struct ir *ir = r->ir;
    if (ir->online.n_roots == 0 || ir->epilogue.n_roots == 0 || ir->forward.n_roots == 0)
        return; /* its own mistake was reported */
    require_number(r, &ir->online.root[0], SPAN_Q | SPAN_KV, "online_fwd (weights)",
                   "must be one value per pair");
    require_number(r, &ir->online.root[1], SPAN_Q, "online_fwd (factor for o)", ROW_ONLY);
    for (int i = 0; i < ir->n_states; i++)
        require_number(r, &ir->online.root[2 + i], SPAN_Q, "online_fwd (row state)", ROW_ONLY);
    for (int i = 0; i < ir->epilogue.n_roots; i++)
        require_number(r, &ir->epilogue.root[i], SPAN_Q, "online_fwd_epilogue", ROW_ONLY);
    require_number(r, &ir->forward.root[0], SPAN_Q | SPAN_KV, "forward", "must be one value per pair");
    forbid_reductions(
        r, ir->forward.root[0], SPAN_KV, "forward",
        "must follow from the score and final_rowscales alone; save what it needs in online_fwd_epilogue");
    if (ir->backward.n_roots > 0) {
        require_number(r, &ir->backward.root[0], SPAN_Q | SPAN_KV, "backward", "must be one value per pair");
        forbid_reductions(r, ir->backward.root[0], SPAN_KV, "backward",
                          "must follow from its arguments; sums over the row are in delta");
    }
    if (ir->combine.n_roots == 0)
        return;
    require_number(r, &ir->combine.root[0], SPAN_Q | SPAN_SPLIT, "combine", "must be one value per split");
    for (int i = 0; i < ir->n_finals; i++)
        require_number(r, &ir->combine.root[1 + i], SPAN_Q, "combine",
                       "a merged row value must not vary with the split; reduce with splitmax or splitsum");
}

static bool is_dim(struct sig_dim dim, int sym)
{
    return dim.literal == 0 && dim.sym == sym;
}

static bool is_field(const struct ir *ir, int node, int field)
{
    return ir->node[node].op == OP_AT && ir->node[node].index == field;
}

/* By its dims, and by all of its reads. */
static enum input_rows rows_of(const struct ir *ir, int input)
{
    const struct input *in = &ir->input[input];
    const bool integers = in->dtype == LATHE_I32 || in->dtype == LATHE_U8;
    const bool row = in->n_dims == 2 && !integers && is_dim(in->dim[1], SYM_N);
    if (in->is_scalar || !is_dim(in->dim[0], SYM_ROWS) || (in->n_dims != 1 && !row))
        return INPUT_TABLE;
    for (int i = 0; i < ir->n_nodes; i++) {
        const struct ir_node *n = &ir->node[i];
        if (n->op == OP_LOAD && n->index == input &&
            !(is_field(ir, n->arg[0], AT_ROW) && (!row || is_field(ir, n->arg[1], AT_COL))))
            return INPUT_TABLE;
    }
    return row ? INPUT_ROW : INPUT_VALUE;
}

static void check_row(struct rule *r)
{
    struct ir *ir = r->ir;
    if (ir->row.n_roots == 0)
        return;
    require_number(r, &ir->row.root[0], SPAN_Q | SPAN_KV, "forward", "must be one value per element");
    for (int i = 0; i < ir->n_finals; i++)
        require_number(r, &ir->row.root[1 + i], ir->final[i].total ? SPAN_Q : SPAN_Q | SPAN_KV,
                       "forward (results)", "total adds up one value per row; reduce with rowsum first");
    for (int i = 0; i < ir->n_inputs; i++)
        ir->input[i].rows = (uint8_t)rows_of(ir, i);
}

/* Where a row value is made; 0: by the prelude. */
static int final_line(const struct ir *ir, int i)
{
    const struct ir_fn *fn = ir->kind == KIND_ROWWISE ? &ir->row : &ir->epilogue;
    const struct ir_node *n = &ir->node[fn->root[1 + i]];
    return n->file == 1 ? n->line : 0;
}

/* What --problem calls something else cannot be said there of a dim or an argument. */
static void check_problem_name(struct rule *r, const char *name, int line)
{
    static const char *const words[] = {"dtype", "unaligned", "folded", "deterministic"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(words[i], name) != 0)
            continue;
        diag_add(r->diag, r->ir->file[1], line, "'%s' is a word of --problem; use another name", name);
        r->ok = false;
    }
}

static void check_problem_names(struct rule *r)
{
    const struct ir *ir = r->ir;
    for (int i = 0; i < ir->n_finals; i++)
        check_problem_name(r, ir->final[i].name, 0);
    for (int i = 0; i < ir->n_inputs; i++)
        check_problem_name(r, ir->input[i].name, ir->input[i].line);
    for (int i = 0; i < ir->n_tensors; i++)
        check_problem_name(r, ir->tensor[i].name, ir->tensor[i].line);
    for (int i = 0; i < ir->n_free; i++)
        check_problem_name(r, ir->free_name[i], 0);
}

static bool is_gradient_of(const char *name, const char *of)
{
    return name[0] == 'd' && strcmp(name + 1, of) == 0;
}

/* What else of the two passes has the name of a row value: an argument that is always there, an input or the
   gradient of one, the gradient of another row value. NULL: nothing; else a phrase in `text`. */
static const char *namesake(const struct ir *ir, const char *name, char *text, size_t size)
{
    static const char *const taken[] = {"q",  "k",  "v",  "o",  "x",  "y",      "do",
                                        "dq", "dk", "dv", "dx", "dy", "q_start"};
    for (size_t k = 0; k < sizeof taken / sizeof *taken; k++)
        if (strcmp(taken[k], name) == 0)
            return "an argument of every spec";
    for (int k = 0; k < ir->n_inputs; k++) {
        if (strcmp(ir->input[k].name, name) == 0)
            return "an input";
        if (is_gradient_of(name, ir->input[k].name) && ir->input[k].grad) {
            snprintf(text, size, "the gradient of the input '%s'", ir->input[k].name);
            return text;
        }
    }
    for (int k = 0; k < ir->n_finals; k++)
        if (is_gradient_of(name, ir->final[k].name)) {
            snprintf(text, size, "the gradient of the row value '%s'", ir->final[k].name);
            return text;
        }
    return NULL;
}

/* Names of arguments, of both passes: inputs, row values and their gradients ("d" in front) share one space
   with q, k, v, o, x, y. */
static void check_names(struct rule *r)
{
    struct ir *ir = r->ir;
    char text[NAME_MAX_BYTES + 40];
    for (int i = 0; i < ir->n_finals; i++) {
        const char *other = namesake(ir, ir->final[i].name, text, sizeof text);
        if (!other)
            continue;
        diag_add(r->diag, ir->file[1], final_line(ir, i), "the row value '%s' has the name of %s; rename it",
                 ir->final[i].name, other);
        r->ok = false;
    }
    for (int i = 0; i < ir->n_inputs; i++) {
        for (int k = 0; k < ir->n_inputs + ir->n_finals; k++) {
            const bool row_value = k >= ir->n_inputs;
            const char *of = row_value ? ir->final[k - ir->n_inputs].name : ir->input[k].name;
            if (!is_gradient_of(ir->input[i].name, of))
                continue;
            diag_add(r->diag, ir->file[1], ir->input[i].line,
                     "the input '%s' has the name of the gradient of the %s '%s'; rename one",
                     ir->input[i].name, row_value ? "row value" : "input", of);
            r->ok = false;
        }
    }
    check_problem_names(r);
}

bool check_attention(struct ir *ir, struct diag *diag)
{
    struct rule r = {ir, diag, true};
    check_mods(&r);
    check_score(&r);
    check_mask(&r);
    check_online(&r);
    check_names(&r);
    if (r.ok)
        bounds_build(ir);
    return r.ok;
}

bool check_rowwise(struct ir *ir, struct diag *diag)
{
    struct rule r = {ir, diag, true};
    check_row(&r);
    check_names(&r);
    return r.ok;
}

/* ---- elementwise ----------------------------------------------------------------------------- */

/* The gradient of an operand is d<name>, that of a result is an argument of the same form. */
static bool names_clash(const char *a, const char *b)
{
    const bool derived = a[0] == 'd' && strcmp(a + 1, b) == 0;
    return derived || (b[0] == 'd' && strcmp(b + 1, a) == 0) || strcmp(a, b) == 0;
}

static void check_tensor_names(struct rule *r)
{
    struct ir *ir = r->ir;
    for (int i = 0; i < ir->n_tensors; i++) {
        const char *clash = NULL;
        for (int k = 0; k < i; k++)
            if (names_clash(ir->tensor[i].name, ir->tensor[k].name))
                clash = ir->tensor[k].name;
        for (int k = 0; k < ir->n_inputs; k++)
            if (names_clash(ir->tensor[i].name, ir->input[k].name))
                clash = ir->input[k].name;
        if (!clash)
            continue;
        diag_add(r->diag, ir->file[1], ir->tensor[i].line,
                 "'%s' or its gradient has the name of '%s' or of its gradient; rename one",
                 ir->tensor[i].name, clash);
        r->ok = false;
    }
}

/* Of an integer result: it is stored as it is. */
static void require_integer(struct rule *r, int root, const char *name)
{
    char text[96];
    snprintf(text, sizeof text, "returns %s for the i32 result '%.32s'; write i32(...)",
             ir_type_name(r->ir->node[root].type), name);
    if (r->ir->node[root].type != TYPE_I32)
        complain(r, root, text, "forward");
}

static void check_map(struct rule *r, int m)
{
    struct ir_map *map = &r->ir->map[m];
    int root = 0;
    for (int i = 0; i < r->ir->n_tensors && map->fn.n_roots > 0; i++) {
        const struct map_tensor *t = &r->ir->tensor[i];
        const int values = t->map != m || t->use == USE_READ ? 0 : t->form == STAGE_ELEMENT ? 1 : 2;
        for (int k = 0; k < values; k++, root++) {
            if (t->dtype == LATHE_I32)
                require_integer(r, map->fn.root[root], t->name);
            else
                require_number(r, &map->fn.root[root], UINT8_MAX, "forward", "");
        }
    }
    for (int i = 0; i < map->fn.n_roots; i++)
        for (unsigned axis = 1; axis <= SPAN_SPLIT; axis <<= 1)
            forbid_reductions(
                r, map->fn.root[i], (uint8_t)axis, "forward",
                "looks at one point at a time; a result that lacks dims of 'over' is summed over "
                "them, and rowwise { ... } reduces along a row");
    r->ok &= map->fn.n_roots > 0; /* its own mistake was reported */
}

bool check_elementwise(struct ir *ir, struct diag *diag)
{
    struct rule r = {ir, diag, true};
    for (int m = 0; m < ir->n_maps; m++)
        check_map(&r, m);
    check_tensor_names(&r);
    check_names(&r);
    return r.ok && gradient_make(ir, diag);
}

/* ---- the door ---------------------------------------------------------------------------------- */

/* An attention row comes in tiles and a map in points: what is before an element is not there. */
static void forbid_scans(const struct ir *ir, struct diag *diag)
{
    for (int i = 0; i < ir->n_nodes && ir->kind != KIND_ROWWISE; i++)
        if (ir_op_is_scan(ir->node[i].op))
            diag_add(diag, ir->file[ir->node[i].file], ir->node[i].line, "%s belongs in rowwise { ... }",
                     ir_op_name(ir->node[i].op));
}

bool check(struct ir *ir, struct diag *diag)
{
    const int before = diag->n;
    forbid_scans(ir, diag);
    if (diag->n > before)
        return false;
    return kinds[ir->kind].check(ir, diag) && !ir->failed;
}
