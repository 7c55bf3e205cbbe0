/*
 * emit_backward.c: variant.gen.cuh of linear attention's backward pass. In: a spec, a plan. Out: the struct
 * `variant` of templates/common/concepts.cuh, in e->out: beside the functions of the recurrence, adjoints of
 * the mods and the sites of inputs.
 */
#include "gen/arguments/problem.h"
#include "gen/base/text.h"
#include "gen/linear/backward.h"
#include "gen/linear/emit_recipe.h"
#include "gen/linear/template.h"
#include "gen/plan/plan.h"
#include "runtime/recipe/recipe.h"

#include <stdio.h>

#define AT_TOKEN "const inputs &x, const sizes &z, const head &h, const row &v, int i"

enum { ROOTS_MAX = LINEAR_FUNCTIONS * (1 + 2 * MAX_SITES) + MOD_COUNT * MAX_STAGES * (3 + 2 * MAX_SITES) };

struct root_list {
    int n;
    int root[ROOTS_MAX];
};

// NOLINTNEXTLINE(readability-non-const-parameter): the type of linear_back_each_root's function
static void note_root(void *context, int *root)
{
    struct root_list *list = context;
    list->root[list->n++] = *root;
}

static bool adjoins_key(const struct ir *w, int k)
{
    return linear_slot_sees_key((enum linear_function)k) && linear_has(w, (enum linear_function)k);
}

/* Sites of all functions, one after the other, and adjoints of the key. */
static int site_roots(const struct ir *w, const struct linear_back *b, int *root)
{
    int n = 0;
    for (int k = 0; k < LINEAR_FUNCTIONS; k++)
        if (adjoins_key(w, k))
            root[n++] = b->key[k];
    for (int k = 0; k < LINEAR_FUNCTIONS; k++)
        for (int i = 0; i < b->site[k].n; i++) {
            root[n++] = b->site[k].item[i].value;
            root[n++] = b->site[k].item[i].leaf;
        }
    return n;
}

typedef bool of_site(const struct ir *ir, const struct linear_back *b, enum linear_function of, int site);
static void emit_site_flags(struct text_buf *out, const char *name, const struct ir *ir,
                            const struct linear_back *b, of_site *flag)
{
    text_add(out, "    static constexpr bool %s[] = {", name);
    for (int k = 0; k < LINEAR_FUNCTIONS; k++)
        for (int i = 0; i < b->site[k].n; i++)
            text_add(out, "%s, ", yes(flag(ir, b, (enum linear_function)k, i)));
    text_add(out, "false};\n");
}

static void emit_site_tables(struct text_buf *out, const struct ir *ir, const struct linear_back *b)
{
    static const char *const form[] = {"SITE_HEAD",     "SITE_ROW",     "SITE_COLUMN",
                                       "SITE_DIAGONAL", "SITE_ELEMENT", "SITE_DIM"};
    static const char *const of[LINEAR_FUNCTIONS] = {
        [OF_SCALE] = "OF_SCALE",
#define LINEAR_SLOT(ID, name, ...) [OF_##ID] = "OF_" #ID,
#include "gen/ir/linear_slots.def"
#undef LINEAR_SLOT
    };
    static const char *const of_key[LINEAR_FUNCTIONS] = {/* of templates/linear/rule.cuh */
                                                         [OF_READER] = "FUNCTIONS + 1",
                                                         [OF_WRITER] = "FUNCTIONS + 2"};
    int n = 0;
    for (int k = 0; k < LINEAR_FUNCTIONS; k++)
        n += b->site[k].n;
    text_add(out, "    static constexpr int SITES = %d;\n    static constexpr bool WANTS[] = {", n);
    for (int k = 0; k < LINEAR_FUNCTIONS; k++)
        if (!linear_slot_sees_key((enum linear_function)k))
            text_add(out, "%s%s", k ? ", " : "", yes(b->site[k].n > 0));
    text_add(out, "};\n    static constexpr int SITE_OF[] = {");
    for (int k = 0; k < LINEAR_FUNCTIONS; k++)
        for (int i = 0; i < b->site[k].n; i++)
            text_add(out, "%s, ", of_key[k] ? of_key[k] : of[k]);
    text_add(out, "FUNCTIONS};\n    static constexpr int SITE_FORM[] = {");
    for (int k = 0; k < LINEAR_FUNCTIONS; k++)
        for (int i = 0; i < b->site[k].n; i++)
            text_add(out, "%s, ", form[b->site[k].item[i].form]);
    text_add(out, "SITE_HEAD};\n");
    emit_site_flags(out, "SITE_ADDS", ir, b, linear_back_adds);
    emit_site_flags(out, "SITE_GROUPED", ir, b, linear_back_is_grouped);
}

/* What flows back to the key from slots that see it. */
static void emit_keys(struct functions *f, const struct linear_back *b)
{
    for (int k = 0; k < LINEAR_FUNCTIONS; k++) {
        if (!adjoins_key(f->e->w, k))
            continue;
        text_add(f->e->out, "    DEV float %s_back(" AT_TOKEN ", float k, float seed)\n    {\n",
                 linear_slot_of((enum linear_function)k)->name);
        emit_linear_scope(f);
        scope_param(f->e, LEAF_X, "k");
        scope_param(f->e, LEAF_DX, "seed");
        emit_return(f->e, b->key[k], NULL);
        text_add(f->e->out, "    }\n");
    }
}

/* linear/backward/channel_chunk.cuh has sites of decays, which see no key. */
static const char *site_signature(const struct functions *f, bool in_chunks)
{
    if (!adjoins_key(f->e->w, OF_READER) && !adjoins_key(f->e->w, OF_WRITER))
        return "float site(" AT_TOKEN ", float seed)";
    return in_chunks ? "float site(" AT_TOKEN ", float seed, float k = 0.0f)"
                     : "float site(" AT_TOKEN ", float seed, float k)";
}

/* signature: of values, or NULL for addresses. */
static void emit_sites(struct functions *f, const struct linear_back *b, const char *signature)
{
    struct text_buf *out = f->e->out;
    int n = 0;
    text_add(out, "    template <int G> DEV %s\n    {\n",
             signature ? signature : "auto site_address(const grads &g, " AT_TOKEN ")");
    for (int k = 0; k < LINEAR_FUNCTIONS; k++)
        for (int i = 0; i < b->site[k].n; i++) {
            text_add(out, "        %sif constexpr (G == %d) {\n", n > 0 ? "} else " : "", n);
            n++;
            emit_linear_scope(f);
            scope_param(f->e, LEAF_DX, "seed");
            scope_param(f->e, LEAF_X, "k");
            if (!signature)
                emit_address(f->e, b->site[k].item[i].leaf);
            else
                emit_return(f->e, b->site[k].item[i].value, NULL);
        }
    text_add(out, "%s    }\n", n > 0 ? "        }\n" : signature ? "        return 0.0f;\n" : "");
}

static void emit_back_config(struct text_buf *t, const struct emitter *e, const struct linear_back *b,
                             const struct plan *plan, const struct back_runs *runs)
{
    bool skip = false;
    for (int s = 0; s < e->w->mod[MOD_OUTPUT].n_stages; s++)
        skip |= b->stage[MOD_OUTPUT][s].has_value;
    text_add(t,
             "\nnamespace cfg { // of its backward pass\nconstexpr bool DECAY_GRADIENT = %s, SKIP = %s, "
             "READS_O = %s;\n",
             yes(b->site[OF_DECAY].n > 0), yes(skip), yes(linear_back_reads_output(e->w, b)));
    text_add(t, "constexpr bool GIVES_DECAY = %s;\n", yes(linear_back_gives(e->w, plan, b)));
    text_add(t, "constexpr bool DOUT_F32 = %s, DQ_F32 = %s, DK_F32 = %s, DV_F32 = %s;\n",
             yes(runs->mod[MOD_OUTPUT] && plan->row->linear->wide_dout),
             yes(runs->mod[MOD_QUERY] && !runs->in_chunks[MOD_QUERY]),
             yes(runs->mod[MOD_KEY] && !runs->in_chunks[MOD_KEY]), yes(runs->mod[MOD_VALUE]));
    if (plan->row->linear->takes_mods)
        text_add(t, "constexpr bool ADJOINT_Q = %s, ADJOINT_K = %s;\n", yes(runs->in_chunks[MOD_QUERY]),
                 yes(runs->in_chunks[MOD_KEY]));
    text_add(t, "} // namespace cfg\n");
}

static void emit_variant_back(struct functions *f, const struct linear_back *b, const struct plan *plan,
                              const struct back_runs *runs)
{
    static const char *const mod[MOD_COUNT] = {"query_mod", "key_mod", "value_mod", "output_mod"};
    static const char *const back[MOD_COUNT] = {"query_back", "key_back", "value_back", "output_back"};
    struct emitter *e = f->e;
    const bool in_chunks =
        plan->row->linear == &linear_keyed_rule_bwd || plan->row->linear == &linear_dplr_bwd;
    text_add(e->out, "struct variant {\n");
    for (int m = 0; m < MOD_COUNT; m++) {
        const bool stages = e->w->mod[m].n_stages > 0;
        emit_mod_struct(e, (enum mod)m, mod[m], m == MOD_OUTPUT ? stages : runs->moved[m]);
        emit_mod_back(e, (enum mod)m, back[m], runs->mod[m] ? b->stage[m] : NULL);
    }
    emit_linear_functions(f);
    emit_keys(f, b);
    emit_site_tables(e->out, e->w, b);
    emit_sites(f, b, site_signature(f, in_chunks));
    emit_sites(f, b, NULL);
    text_add(e->out, "};\n");
}

static void mark_roots(const struct emitter *e)
{
    for (int i = 0; i < e->n_more_roots; i++)
        e->mark[e->more_roots[i]] = true;
}

bool emit_linear_backward(struct emitter *e, struct linear_back *b, const struct plan *plan,
                          struct text_buf *config, struct source *out)
{
    int sites[LINEAR_FUNCTIONS * (1 + 2 * MAX_SITES)];
    struct root_list list = {0};
    struct back_runs runs;
    struct functions f = {.e = e};
    linear_back_each_root(b, e->w, note_root, &list);
    e->more_roots = list.root;
    e->n_more_roots = list.n;
    e->mark_more = mark_roots;
    linear_include_slots(e);
    emit_inputs_struct(e);
    emit_linear_grads(e, b);
    emit_linear_back_launches(e, b, plan, out, &runs);
    emit_back_config(config, e, b, plan, &runs);
    if (!linear_collect(&f, sites, site_roots(e->w, b, sites)))
        return false;
    emit_variant_back(&f, b, plan, &runs);
    return true;
}
