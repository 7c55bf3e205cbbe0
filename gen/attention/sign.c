/*
 * sign.c: which arguments attention takes: q, k, v, o, finals, the spec's inputs, where token 0 stands, the
 * map of the mask's tiles, and where sequences lie; backward also do, seeds and gradients.
 */
#include "gen/arguments/sign.h"
#include "gen/attention/columns.h"
#include "gen/attention/places.h"
#include "gen/attention/sign_parts.h"
#include "gen/attention/tile_map.h"
#include "gen/ir/kind.h"
#include "runtime/recipe/bind.h"

#include <string.h>

static void add_f32(struct signature *s, enum arg_role role, const char *prefix, const char *name,
                    const enum sym *syms, int n, bool leading_optional)
{
    struct sig_arg *a = sign_add(s, role, prefix, name);
    if (!a)
        return;
    a->dtype = LATHE_F32;
    a->optional = true;
    a->leading_optional = leading_optional;
    sign_dims(a, syms, n);
}

/* Gradients of the finals, which few losses read. */
static void add_seeds(struct signature *s, const struct ir *ir, const enum sym *syms, bool leading_optional)
{
    for (int i = 0; i < ir->n_finals; i++) {
        add_f32(s, ROLE_IN, "d", ir->final[i].name, syms, 3, leading_optional);
        s->arg[s->n_args - 1].rare = true;
    }
}

/* Its rows are copied where they are not as kernels read them. */
static void add_read(struct signature *s, enum dtype_role dtype, const char *name, const enum sym *syms)
{
    struct sig_arg *a = sign_main(s, ROLE_IN, dtype, name, syms, 4);
    if (a)
        a->any_last = true;
}

/* Caches of keys and values may be of 8 bits. */
static void add_cached(struct signature *s, enum dtype_role dtype, const char *name, const enum sym *syms)
{
    add_read(s, dtype, name, syms);
    s->arg[s->n_args - 1].narrow = NARROW_TAKEN;
}

static const enum sym QUERY[] = {SYM_B, SYM_H, SYM_Q, SYM_D};
static const enum sym KEY[] = {SYM_B, SYM_H_KV, SYM_KV, SYM_D};
static const enum sym QUERY2[] = {SYM_B, SYM_H, SYM_Q, SYM_D2};
static const enum sym KEY2[] = {SYM_B, SYM_H_KV, SYM_KV, SYM_D2};
static const enum sym VALUE[] = {SYM_B, SYM_H_KV, SYM_KV, SYM_D_V};
static const enum sym OUTPUT[] = {SYM_B, SYM_H, SYM_Q, SYM_D_V};

static void add_pages(struct signature *s)
{
    struct sig_arg *a = sign_rare(s, ROLE_IN, "pages", LATHE_I32);
    if (!a)
        return;
    a->presence_built = true;
    a->ndim = 2;
    a->dim[0] = (struct sig_dim){.sym = SYM_SEQS};
    a->dim[1] = (struct sig_dim){.sym = SYM_MOST};
    s->paged_by = (uint8_t)s->n_args;
}

static bool is_pool(const char *name)
{
    static const char *const pool[] = {"k", "v", "k2", "dk", "dv", "dk2"};
    bool found = false;
    for (size_t i = 0; i < sizeof pool / sizeof *pool; i++)
        found |= strcmp(name, pool[i]) == 0;
    return found;
}

/* Beside `pages` k and v are pools of pages, and so are their gradients; what has a place for each key of a
   batch has one for each key that a sequence may have. */
static void mark_paged_dims(struct signature *s)
{
    for (int i = 0; i < s->n_args && s->paged_by; i++) {
        const bool pool = is_pool(s->arg[i].name);
        bool queries = false;
        bool keys = false;
        for (int d = 0; d < s->arg[i].ndim; d++) {
            queries |= s->arg[i].dim[d].sym == SYM_Q;
            keys |= s->arg[i].dim[d].sym == SYM_KV;
        }
        for (int d = 0; d < s->arg[i].ndim && keys && !queries; d++) {
            struct sig_dim *dim = &s->arg[i].dim[d];
            if (dim->sym == SYM_B)
                dim->paged = pool ? SYM_POOL : SYM_SEQS;
            else if (dim->sym == SYM_KV && pool)
                dim->paged = SYM_PAGE;
        }
    }
}

/* Where packed sequences lie, how many keys of each are in use, and in which pages. */
static void add_sequences(struct signature *s)
{
    static const struct {
        const char *name;
        uint8_t plus;
    } list[] = {{"cu_q", 1}, {"cu_kv", 1}, {"used_kv", 0}};
    const uint8_t cu = (uint8_t)(1 + s->n_args);
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        struct sig_arg *a = sign_rare(s, ROLE_IN, list[i].name, LATHE_I32);
        if (!a)
            return;
        a->presence_built = true;
        a->ndim = 1;
        a->dim[0] = (struct sig_dim){.sym = SYM_SEQS, .plus = list[i].plus};
        a->beside = strcmp(list[i].name, "cu_kv") == 0 ? cu : 0;
    }
    add_pages(s);
}

/* What has a place for each batch and none for tokens has one for each sequence. */
static void count_sequences(struct signature *s)
{
    for (int i = 0; i < s->n_args; i++) {
        bool tokens = false;
        for (int d = 0; d < s->arg[i].ndim; d++)
            tokens |= s->arg[i].dim[d].sym == SYM_Q || s->arg[i].dim[d].sym == SYM_KV;
        for (int d = 0; d < s->arg[i].ndim && !tokens; d++)
            if (s->arg[i].dim[d].sym == SYM_B)
                s->arg[i].dim[d].sym = SYM_SEQS;
    }
}

/* Each batch is a sequence, but where `cu_q` says otherwise. */
static void add_sizes(struct signature *s, const struct ir *ir)
{
    const uint8_t cu = (uint8_t)(1 + lathe__arg_find(s, "cu_q", 0));
    const uint8_t pages = s->paged_by;
    const uint8_t keys = (uint8_t)(1 + lathe__place_find(s, ROLE_TOTAL, SYM_ALL_KV));
    const uint8_t heads = (uint8_t)(1 + lathe__place_find(s, ROLE_TOTAL, SYM_ALL_H));
    const struct sig_size sizes[] = {
        {.sym = SYM_B, .usual = 1, .packed_by = cu},
        {.sym = SYM_H,
         .same_as = SYM_H_KV,
         .usual = 8,
         .multiple_of = SYM_H_KV,
         .positive = true,
         .counted = true},
        {.sym = SYM_H_KV, .same_as = SYM_H, .positive = true},
        {.sym = SYM_Q, .same_as = SYM_KV, .usual = 1024, .below = SIZE_POSITIONS},
        {.sym = SYM_KV, .same_as = SYM_Q, .below = SIZE_POSITIONS},
        SIGN_SEQUENCES(cu),
        {.sym = SYM_PAGE, .beside = pages, .positive = true},
        {.sym = SYM_MOST, .beside = pages},
        {.sym = SYM_POOL, .beside = pages, .positive = true},
        {.sym = SYM_ALL_KV, .same_as = SYM_KV, .below = SIZE_POSITIONS, .beside = keys},
        {.sym = SYM_ALL_H, .same_as = SYM_H, .beside = heads},
        SIGN_HEAD_DIMS(ATTENTION_WIDEST_DIM, ATTENTION_MOST_DV, 1),
    };
    static const struct sig_size second = {.sym = SYM_D2,
                                           .usual = 64,
                                           .built = true,
                                           .positive = true,
                                           .least = ATTENTION_DIM_STEP,
                                           .most = ATTENTION_WIDEST_DIM - ATTENTION_LEAST_DIM,
                                           .step = ATTENTION_DIM_STEP};
    static const struct sig_size free_size = {.named = true};
    sign_sizes(s, sizes, sizeof sizes / sizeof sizes[0]);
    s->size[s->n_sizes - 1].within = ir->v_is_k ? SYM_D : SYM_ONE;
    if (ir->qk2)
        sign_sizes(s, &second, 1);
    sign_free_sizes(s, &free_size);
}

static void add_gradients(struct signature *s, const struct ir *ir)
{
    add_read(s, DTYPE_O, "do", OUTPUT);
    add_seeds(s, ir, QUERY, false);
    sign_main(s, ROLE_OUT_OPTIONAL, DTYPE_Q, "dq", QUERY, 4);
    sign_main(s, ROLE_OUT_OPTIONAL, DTYPE_K, "dk", KEY, 4);
    if (!ir->v_is_k) /* else it is in dk */
        sign_main(s, ROLE_OUT_OPTIONAL, DTYPE_V, "dv", VALUE, 4);
    if (ir->qk2) {
        sign_main(s, ROLE_OUT_OPTIONAL, DTYPE_Q, "dq2", QUERY2, 4);
        sign_main(s, ROLE_OUT_OPTIONAL, DTYPE_Q, "dk2", KEY2, 4);
    }
    sign_input_gradients(s, ir);
    sign_presence_built(s);
}

void sign_attention(struct signature *s, const struct ir *ir, bool backward)
{
    add_read(s, DTYPE_Q, "q", QUERY);
    if (!backward && !ir->qk2 && !ir->v_is_k)
        s->arg[s->n_args - 1].narrow = NARROW_E4M3;
    add_cached(s, DTYPE_K, "k", KEY);
    if (!ir->v_is_k)
        add_cached(s, DTYPE_V, "v", VALUE);
    if (ir->qk2) {
        add_read(s, DTYPE_Q, "q2", QUERY2);
        add_read(s, DTYPE_Q, "k2", KEY2); /* k may have 8 bits beside it */
    }
    struct sig_arg *o = sign_main(s, backward ? ROLE_IN : ROLE_OUT, DTYPE_O, "o", OUTPUT, 4);
    if (o)
        o->optional = backward; /* of the forward pass; recomputed where it is not given */
    for (int i = 0; i < ir->n_finals; i++)
        add_f32(s, backward ? ROLE_IN : ROLE_OUT_OPTIONAL, "", ir->final[i].name, QUERY, 3, false);
    sign_inputs(s, ir);
    struct sig_arg *start = sign_add(s, ROLE_Q_START, "", "q_start");
    if (start) {
        start->dtype = LATHE_I32;
        start->optional = true;
    }
    struct sig_arg *kept = tile_map_wanted(ir) ? sign_add(s, ROLE_MASK_KEPT, "", "mask_kept") : NULL;
    if (kept) {
        kept->dtype = LATHE_I32;
        kept->optional = true;
    }
    add_sequences(s);
    sign_places(s, SYM_ALL_KV, "kv_start", "len_kv");
    sign_places(s, SYM_ALL_H, "h_start", "n_h");
    if (!backward)
        sign_parts(s, ir);
    s->builds_alignment = true;
    s->builds_folded = true;
    s->sharing = SHARING_NONE;
    if (backward)
        add_gradients(s, ir);
    sign_chunks(s); /* rarer than all that is ahead of it */
    mark_paged_dims(s);
    count_sequences(s);
    sign_whole_inputs(s, ir);
    add_sizes(s, ir);
}
