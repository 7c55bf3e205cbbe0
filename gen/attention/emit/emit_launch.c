/*
 * emit_launch.c: parameter structs and launches of attention. In: a lowered spec, a plan, whether its mask
 * needs a tile map. Out: the structs as text, and launches: mods, tile map, the forward kernel; only those
 * that the problem needs. Tensors that a mod or their alignment moves live in the workspace in between.
 */
#include "gen/arguments/problem.h"
#include "gen/arguments/signature.h"
#include "gen/attention/emit/emit.h"
#include "gen/attention/traits.h"
#include "runtime/recipe/bind.h"
#include "gen/base/text.h"
#include "gen/plan/plan.h"

#include <stdio.h>

static const char *const BHT[] = {"b", "h", "t"};

static void times_tokens(struct product *p, const struct place *t)
{
    const int tile = t->tile > 0 ? t->tile : 1;
    product_times(p, t->len, tile);
    p->scale *= tile;
}

static struct product compact_stride(const struct place *t, int d)
{
    struct product p = product_of(t->dim);
    if (d < 2)
        times_tokens(&p, t);
    if (d < 1)
        product_times(&p, t->heads, 1);
    return p;
}

void emit_place_pointer(struct params *p, const char *type, const char *name, const struct place *t)
{
    params_pointer(p, type, name, t->arg >= 0 ? PARAM_ARG_DATA : PARAM_WORK_DATA,
                   t->arg >= 0 ? t->arg : t->buffer);
}

void emit_place_strides(struct params *p, const char *name, const struct place *t)
{
    if (t->arg >= 0) {
        params_strides(p, name, BHT, t->arg, 3, 0);
        return;
    }
    for (int d = 0; d < 3; d++) {
        char member[32];
        struct product stride = d == 0 && t->one_batch ? product_of(0) : compact_stride(t, d);
        snprintf(member, sizeof member, "%s_%s", name, BHT[d]);
        params_product(p, member, &stride);
    }
}

void emit_place_step(struct params *p, const char *name, const struct place *t)
{
    static const char *const step[] = {"d"};
    char member[32];
    const struct product one = product_of(1);
    snprintf(member, sizeof member, "%s_d", name);
    if (t->arg >= 0)
        params_strides(p, name, step, t->arg, 1, 3);
    else
        params_product(p, member, &one);
}

/* What attention/sequences.cuh asks of parameters: where sequences lie, and to begin with one. */
static void add_sequences(struct params *p, const struct launcher *a, bool o_f32)
{
    const struct emitter *e = a->e;
    emit_enter(p, e);
    emit_enter_rows(e, "const cfg::element_q", "q", false);
    emit_enter_rows(e, a->reads_narrow ? "const cfg::source_k" : "const cfg::element_k", "k", true);
    emit_enter_rows(e, a->reads_narrow ? "const cfg::source_v" : "const cfg::element_v", "v", true);
    emit_enter_rows(e, o_f32 ? "float" : "cfg::element_o", "o", false);
    if (a->d2 > 0) {
        emit_enter_rows(e, "const cfg::element_q", "q2", false);
        emit_enter_rows(e, "const cfg::element_k", "k2", true);
    }
    for (int i = 0; i < e->w->n_finals && !ends_as_part(e); i++) {
        char name[32];
        snprintf(name, sizeof name, "final%d", i);
        emit_enter_floats(e, name);
    }
    if (ends_as_part(e))
        emit_enter_floats(e, "ends");
    emit_enter_end(e);
}

static bool is_unaligned(const struct emitter *e, int arg)
{
    return arg >= 0 && arg_in(e->problem->unaligned, arg);
}

bool is_odd_row(const struct emitter *e, int tensor)
{
    const int64_t dim = e->problem->dim[tensor < TENSOR_V ? SYM_D : SYM_D_V];
    return attention_row(dim) != dim;
}

/* k or v of 8 bits, which no kernel but that of its mod reads; or that which copies them out of pages. */
static bool is_narrow(const struct launcher *a, int tensor)
{
    static const char *const name[TENSOR_COUNT] = {"", "k", "v", ""};
    return !a->reads_narrow && !keys_are_gathered(a->e) &&
           lathe__narrow_dtype(a->e->sig, a->e->problem, name[tensor]) != LATHE_NONE;
}

bool has_unaligned_rows(const struct emitter *e)
{
    static const char *const name[] = {"q", "k", "v"};
    bool any = false;
    for (int t = 0; t < TENSOR_O; t++)
        any |= is_unaligned(e, lathe__arg_find(e->sig, name[t], 0));
    return any || (is_odd_row(e, TENSOR_O) && is_unaligned(e, lathe__arg_find(e->sig, "do", 0)));
}

void emit_place_in_workspace(struct place *t, int element_bytes, const struct emitter *e, struct source *out)
{
    struct product bytes = product_of((int64_t)t->dim * element_bytes);
    product_times(&bytes, SYM_B, 1);
    product_times(&bytes, t->heads, 1);
    times_tokens(&bytes, t);
    t->arg = -1;
    t->one_batch = is_packed(e);
    t->buffer = add_buffer(out, e, bytes);
}

static void place_finals(const struct launcher *a, struct layout *l)
{
    l->ends = (struct place){lathe__arg_find(a->e->sig, a->e->sig->combine ? "merged_rows" : "part_rows", 0),
                             -1,
                             SYM_H,
                             SYM_Q,
                             1,
                             false,
                             0};
    for (int i = 0; i < a->e->w->n_finals; i++)
        l->final[i] = (struct place){
            lathe__arg_find(a->e->sig, a->e->w->final[i].name, 0), -1, SYM_H, SYM_Q, 1, false, 0};
}

bool is_copied_pair(const struct launcher *a, int tensor)
{
    return a->e->w->qk2 && tensor < TENSOR_V && a->d2 == 0;
}

static struct place place_beside(const struct emitter *e, const struct place *first, const char *name)
{
    struct place second = *first;
    second.arg = lathe__arg_find(e->sig, name, 0);
    return second;
}

static struct place second_of(const struct emitter *e, const struct layout *l, int tensor)
{
    return place_beside(e, &l->outer[tensor], tensor == TENSOR_Q ? "q2" : "k2");
}

/* Rows are padded, as the kernel's tiles have them. */
static void turn_values(const struct launcher *a, struct place *v, struct source *out)
{
    enum { COLUMNS = 16 };
    v->dim = (v->dim + COLUMNS - 1) / COLUMNS * COLUMNS;
    v->tile = a->turned;
    emit_place_in_workspace(v, lathe__element_bytes(a->e->problem, DTYPE_V), a->e, out);
}

void make_layout(const struct launcher *a, struct layout *l, int n_moved, struct source *out)
{
    const char *const part = a->e->sig->combine ? "merged_o" : "part_o";
    const char *const name[] = {"q", "k", "v", ends_as_part(a->e) ? part : "o"};
    static const enum mod mod_of[] = {MOD_QUERY, MOD_KEY, MOD_VALUE, MOD_OUTPUT};
    const struct problem *problem = a->e->problem;
    for (int t = 0; t < TENSOR_COUNT; t++) {
        bool key = t == TENSOR_K || t == TENSOR_V;
        int dim = (int)problem->dim[t < TENSOR_V ? SYM_D : SYM_D_V];
        l->outer[t] = (struct place){lathe__arg_find(a->e->sig, name[t], 0),
                                     -1,
                                     key ? SYM_H_KV : SYM_H,
                                     key ? SYM_KV : SYM_Q,
                                     dim,
                                     false,
                                     0};
        l->inner[t] = l->outer[t];
        if (key)
            l->inner[t].len = keys_of_call(a->e);
        if (t == TENSOR_V && a->e->w->v_is_k) { /* it is where K is, after its copy */
            l->inner[t] = l->inner[TENSOR_K];
            continue;
        }
        const bool any = a->e->sig->combine; /* that pass stores rows of any length, wherever they start */
        l->inner[t].dim = any ? dim : attention_row(dim);
        const bool odd = !any && is_odd_row(a->e, t);
        const bool own = t == TENSOR_K && a->applies_key_mod;
        bool mod = a->e->w->mod[mod_of[t]].n_stages > 0 && !own;
        const bool narrow = is_narrow(a, t);
        const bool turned = t == TENSOR_V && a->turned; /* from rows that start anywhere */
        l->moved[t] =
            t < n_moved && (mod || odd || narrow || (!any && !turned && is_unaligned(a->e, l->outer[t].arg)));
        if (a->e->w->qk2 && t < TENSOR_V && !narrow)
            l->moved[t] = is_copied_pair(a, t);
        const int bytes = t == TENSOR_O && (mod || odd) ? 4 : lathe__element_bytes(problem, tensor_role(t));
        if (l->moved[t] || (key && keys_are_gathered(a->e)))
            emit_place_in_workspace(&l->inner[t], bytes, a->e, out);
    }
    if (a->turned)
        turn_values(a, &l->inner[TENSOR_V], out);
    place_finals(a, l);
}

enum {
    MOD_BLOCK_TOKENS = 64,
    MOD_BLOCK_THREADS = 256,
    MAP_BLOCK_THREADS = 256,
    BACK_MAP_BLOCK_THREADS = 512
}; /* heads/vector_mod.cuh, attention/mask_tiles_kernel.cuh, attention/backward/query_lists.cuh */
enum { WARP_THREADS = 32, BOX_ROWS = 64 }; /* attention/fwd_sm90.cuh: of q and o, those of a warpgroup */

/* One struct mod_params serves all mods; the rows differ. queries: of them, and not of keys. */
static void add_rows(const struct launcher *a, const char *role, const struct place *from,
                     const struct place *to, bool queries, struct source *out, struct text_buf *text)
{
    struct launch *launch = add_launch(out, a->e, role, MOD_BLOCK_THREADS);
    launch->grid = product_of(1);
    emit_times_tiles(&launch->grid, a->e, from->heads, from->len, MOD_BLOCK_TOKENS);
    struct params p;
    params_open(&p, text, launch, "mod_params");
    emit_place_pointer(&p, "const void", "src", from);
    emit_place_pointer(&p, "void", "dst", to);
    emit_place_strides(&p, "src", from);
    emit_place_strides(&p, "dst", to);
    params_sym(&p, "n_h", from->heads);
    params_sym(&p, "len", from->len);
    params_start(&p, "pos0", queries);
    emit_call_sizes(&p, a->e);
    params_inputs(&p, a->e, "x");
    if (has_unaligned_rows(a->e)) /* behind the members that attention/backward/mods.cuh fills */
        emit_place_step(&p, "src", from);
    if (has_sequences(a->e))
        emit_enter_rows_of(&p, a->e, queries);
    params_close(&p, "mod_params");
}

void add_mod(const struct launcher *a, const struct layout *l, int tensor, struct source *out,
             struct text_buf *text)
{
    static const char *const plain[] = {"mod_q", "mod_k", "mod_v", "mod_o"};
    static const char *const narrow[] = {"", "narrow_k", "narrow_v", ""};
    const char *const role = is_narrow(a, tensor) ? narrow[tensor] : plain[tensor];
    const struct place *from = tensor == TENSOR_O ? &l->inner[tensor] : &l->outer[tensor];
    const struct place *to = tensor == TENSOR_O ? &l->outer[tensor] : &l->inner[tensor];
    add_rows(a, role, from, to, tensor == TENSOR_Q || tensor == TENSOR_O, out, text);
}

void add_turned(const struct launcher *a, const struct layout *l, struct source *out)
{
    const struct place *from = &l->outer[TENSOR_V];
    struct launch *launch = add_launch(out, a->e, "turn_v", MOD_BLOCK_THREADS);
    launch->grid = product_of(1);
    emit_times_tiles(&launch->grid, a->e, from->heads, from->len, a->turned);
    struct params p;
    params_open(&p, a->e->out, launch, "turn_params");
    emit_place_pointer(&p, "const void", "src", from);
    emit_place_pointer(&p, "void", "dst", &l->inner[TENSOR_V]);
    emit_place_strides(&p, "src", from);
    emit_place_step(&p, "src", from);
    emit_place_strides(&p, "dst", &l->inner[TENSOR_V]);
    params_sym(&p, "n_h", from->heads);
    params_sym(&p, "len", from->len);
    params_close(&p, "turn_params");
}

/* One struct pair_params serves all of them. */
static void add_pair_rows(const struct launcher *a, const char *role, const struct place *first,
                          const struct place *second, const struct place *both, struct source *out,
                          struct text_buf *text)
{
    struct launch *launch = add_launch(out, a->e, role, MOD_BLOCK_THREADS);
    launch->grid = product_of(1);
    product_times(&launch->grid, SYM_B, 1);
    product_times(&launch->grid, first->heads, 1);
    product_times(&launch->grid, first->len, MOD_BLOCK_TOKENS);
    struct params p;
    params_open(&p, text, launch, "pair_params");
    emit_place_pointer(&p, "void", "first", first);
    emit_place_pointer(&p, "void", "second", second);
    emit_place_pointer(&p, "void", "both", both);
    emit_place_strides(&p, "first", first);
    emit_place_step(&p, "first", first);
    emit_place_strides(&p, "second", second);
    emit_place_step(&p, "second", second);
    emit_place_strides(&p, "both", both);
    params_sym(&p, "n_h", first->heads);
    params_sym(&p, "len", first->len);
    params_sym(&p, "d1", SYM_D);
    params_close(&p, "pair_params");
}

void add_pair(const struct launcher *a, const struct layout *l, int tensor, struct source *out,
              struct text_buf *text)
{
    const struct place second = second_of(a->e, l, tensor);
    add_pair_rows(a, tensor == TENSOR_Q ? "pair_q" : "pair_k", &l->outer[tensor], &second, &l->inner[tensor],
                  out, text);
}

void add_pair_back(const struct launcher *a, int tensor, const struct place *both, struct source *out,
                   struct text_buf *text)
{
    const bool query = tensor == TENSOR_Q;
    struct place first = *both;
    first.arg = lathe__arg_find(a->e->sig, query ? "dq" : "dk", 0);
    const struct place second = place_beside(a->e, &first, query ? "dq2" : "dk2");
    add_pair_rows(a, query ? "bwd_pair_q" : "bwd_pair_k", &first, &second, both, out, text);
}

void add_copy_of_do(const struct launcher *a, const struct place *from, const struct place *to,
                    struct source *out, struct text_buf *text)
{
    add_rows(a, "mod_do", from, to, true, out, text);
}

/* Batches and heads whose masks differ. */
static struct product map_lines(const struct tile_map *map)
{
    struct product lines = product_of(1);
    if (map->per_batch)
        product_times(&lines, SYM_B, 1);
    if (map->per_head)
        product_times(&lines, SYM_H, 1);
    return lines;
}

static void add_map_params(const struct launcher *a, struct launch *launch, int buffer, struct text_buf *text)
{
    struct params p;
    params_open(&p, text, launch, "map_params");
    params_pointer(&p, "unsigned char", "map", PARAM_WORK_DATA, buffer);
    params_sizes(&p);
    params_inputs(&p, a->e, "x");
    params_close(&p, "map_params");
}

int add_map(const struct launcher *a, const struct plan *plan, struct source *out)
{
    enum { RANGE_BYTES = 8, MAP_WORD = 4 };                      /* MAP_WORD: of common/contract.cuh */
    const bool many_warps = a->map->ranges || a->map->look_cols; /* that wait for memory */
    const int tiles_of_warp = a->map->blocks ? 32 : many_warps ? 1 : 4;
    struct product tiles = map_lines(a->map);
    if (!a->map->ranges)
        product_times(&tiles, SYM_Q, a->map->rows);
    struct product bytes = tiles;
    product_times(&bytes, SYM_KV, MAP_WORD * plan->attention.bn); /* whole words are read */
    bytes.scale *= MAP_WORD * (a->map->ranges ? RANGE_BYTES * a->e->w->lowered.n_reads : 1);
    const int buffer = add_buffer(out, a->e, bytes);
    struct launch *launch = add_launch(out, a->e, "map", MAP_BLOCK_THREADS);
    launch->grid = tiles;
    product_times(&launch->grid, SYM_KV, plan->attention.bn * MAP_BLOCK_THREADS / 32 * tiles_of_warp);
    launch->kept = true;
    add_map_params(a, launch, buffer, a->e->out);
    return buffer;
}

/* attention/backward/query_lists.cuh: a block for each key tile; a word for each of its query tiles, and
 * where blocks take turns a byte more. */
int add_back_map(const struct launcher *a, const struct back_plan *tile, struct source *out,
                 struct text_buf *text)
{
    enum { WORD_BYTES = 4 };
    struct product lines = map_lines(a->map);
    lines.scale *= tile->paired ? 2 : 1; /* the last pair's, too */
    product_times(&lines, SYM_KV, tile->bn * (tile->paired ? 2 : 1));
    struct product bytes = lines;
    product_times(&bytes, SYM_Q, tile->bm);
    bytes.scale *= WORD_BYTES + 1;
    const int buffer = add_buffer(out, a->e, bytes);
    struct launch *launch = add_launch(out, a->e, "bwd_map", BACK_MAP_BLOCK_THREADS);
    launch->grid = lines;
    launch->kept = true;
    add_map_params(a, launch, buffer, text);
    return buffer;
}

/* The largest power of two that divides a row is the box's row, up to 128 bytes: panels of
   common/wgmma_sm90.cuh. pack: where the parameter of that name is. */
static void add_tensor_map(struct launch *launch, const struct params *p, const struct emitter *e, int which,
                           const struct plan *plan, uint32_t pack)
{
    const struct problem *problem = e->problem;
    const bool key = which == TENSOR_K || which == TENSOR_V;
    const bool value = which == TENSOR_V || which == TENSOR_O;
    const bool pages = key && keys_have_pages(e);
    const enum sym tokens = pages ? SYM_PAGE : key ? keys_of_call(e) : SYM_Q;
    const enum dtype_role role = tensor_role(which);
    const int row_bytes =
        lathe__element_bytes(problem, role) * (value ? plan->attention.dv_pad : plan->attention.d_pad);
    struct tensor_map_row *m = &launch->map[launch->n_maps++];
    *m = (struct tensor_map_row){.offset = (uint32_t)which * TENSOR_MAP_BYTES,
                                 .data = p->before + (uint32_t)which * 8,
                                 .strides = p->before + TENSOR_COUNT * 8 + (uint32_t)which * 24,
                                 .columns = (uint16_t)problem->dim[value ? SYM_D_V : SYM_D],
                                 .dim = {(uint8_t)tokens, key ? SYM_H_KV : SYM_H, pages ? SYM_POOL : SYM_B},
                                 .dtype = (uint8_t)problem->dtype[role],
                                 .swizzle = row_bytes % 128 == 0  ? 128
                                            : row_bytes % 64 == 0 ? 64
                                                                  : 32,
                                 .box_tokens = (uint16_t)(key ? plan->attention.bn : BOX_ROWS),
                                 .packed = has_sequences(e),
                                 .pack = plan->attention.pack && !key ? pack : 0};
}

/* What the kernel's maps are made of stands at fixed places behind them. */
static void add_tensor_maps(struct launch *launch, const struct params *p, const struct launcher *a,
                            const struct plan *plan, uint32_t pack)
{
    const bool stored = plan->attention.own_o && !plan->attention.o_f32;
    for (int t = 0; t < TENSOR_COUNT; t++)
        if ((t != TENSOR_O || stored) && (t != TENSOR_V || !a->turned))
            add_tensor_map(launch, p, a->e, t, plan, pack);
}

/* Those of q2 and k2, behind the others: as of q and k, which then have fewer columns. Strides stand behind a
   pointer. */
static void add_second_maps(struct launch *launch, const struct params *p, const struct launcher *a)
{
    for (int t = TENSOR_Q; t <= TENSOR_K; t++) {
        struct tensor_map_row *first = &launch->map[t];
        struct tensor_map_row *second = &launch->map[launch->n_maps++];
        const int arg = lathe__arg_find(a->e->sig, t == TENSOR_Q ? "q2" : "k2", 0);
        *second = *first;
        second->offset = (uint32_t)(TENSOR_COUNT + t) * TENSOR_MAP_BYTES;
        second->columns = (uint16_t)a->d2;
        first->columns = (uint16_t)(first->columns - a->d2);
        for (int i = 0; i < p->n; i++)
            if (p->row[i].kind == PARAM_ARG_DATA && p->row[i].arg == arg) {
                second->data = p->row[i].offset;
                second->strides = second->data + 8;
            }
    }
}

/* How many tokens of it the batches, or pages, of a tensor lie apart. */
static void add_apart(struct params *p, const struct place *t)
{
    struct product compact = product_of(t->one_batch ? 0 : 1);
    product_times(&compact, t->heads, 1);
    product_times(&compact, t->len, 1);
    if (t->arg >= 0)
        params_row(p, PARAM_APART, t->arg, 0, 8);
    else
        params_row(p, PARAM_PRODUCT, 0, 0, 8)->product = compact;
}

/* In the order of the maps. */
static void add_all_apart(struct params *p, const struct launcher *a, const struct layout *l)
{
    for (int t = 0; t < TENSOR_COUNT; t++)
        add_apart(p, &l->inner[t]);
    for (int t = TENSOR_Q; a->d2 > 0 && t <= TENSOR_K; t++) {
        const struct place second = second_of(a->e, l, t);
        add_apart(p, &second);
    }
    text_add(p->out, "    long long apart[%d];\n", TENSOR_COUNT + (a->d2 > 0 ? 2 : 0));
}

void params_tensors(struct params *p, const struct launcher *a, const struct layout *l)
{
    static const char *const name[] = {"q", "k", "v", "o"};
    for (int t = 0; t < TENSOR_COUNT; t++)
        emit_place_pointer(p, t == TENSOR_O ? "void" : "const void", name[t], &l->inner[t]);
    for (int t = 0; t < TENSOR_COUNT; t++)
        emit_place_strides(p, name[t], &l->inner[t]);
    emit_call_sizes(p, a->e);
}

void params_end(struct params *p, const struct launcher *a, const struct layout *l, const struct plan *plan)
{
    if (ends_as_part(a->e)) {
        emit_place_pointer(p, "float", "ends", &l->ends);
        emit_place_strides(p, "ends", &l->ends);
    }
    for (int i = 0; i < a->e->w->n_finals && !ends_as_part(a->e); i++) {
        char member[32];
        snprintf(member, sizeof member, "final%d", i);
        emit_place_pointer(p, "float", member, &l->final[i]);
        emit_place_strides(p, member, &l->final[i]);
    }
    for (int t = TENSOR_Q; a->d2 > 0 && t <= TENSOR_K; t++) {
        const struct place second = second_of(a->e, l, t);
        emit_place_pointer(p, "const void", t == TENSOR_Q ? "q2" : "k2", &second);
        emit_place_strides(p, t == TENSOR_Q ? "q2" : "k2", &second);
    }
    params_inputs(p, a->e, "x");
    if (has_sequences(a->e))
        add_sequences(p, a, plan->attention.o_f32);
}

void add_forward(const struct launcher *a, const struct layout *l, const struct plan *plan,
                 struct source *out)
{
    const struct attention_traits *traits = attention_forward_traits(plan);
    struct launch *launch =
        add_launch(out, a->e, "fwd", (plan->attention.warps + traits->loader_warps) * WARP_THREADS);
    launch->smem_bytes = plan->attention.smem_bytes;
    launch->grid = product_of(1);
    if (plan->attention.selected)
        emit_times_tiles(&launch->grid, a->e, SYM_H_KV, SYM_Q, 1);
    else
        emit_times_tiles(&launch->grid, a->e, SYM_H, SYM_Q, plan->attention.bm);
    const struct product tiles = launch->grid;
    if (plan->attention.blocks > 0)
        launch->grid = product_of(plan->attention.blocks);
    launch->early = a->map->needed; /* the launch before it makes the map, and has waited for all others */
    struct params p;
    params_open(&p, a->e->out, launch, "attention_params");
    if (traits->tensor_maps)
        params_behind_maps(&p, TENSOR_COUNT + (a->d2 > 0 ? 2 : 0));
    params_tensors(&p, a, l);
    if (a->map->needed)
        params_pointer(&p, "const unsigned char", "map", PARAM_WORK_DATA, l->map_buffer);
    else
        params_null(&p, "const unsigned char", "map");
    if (plan->attention.dynamic)
        params_pointer(&p, "unsigned long long", "tile_counter", PARAM_WORK_DATA, l->counter_buffer);
    else if (plan->attention.blocks > 0)
        params_null(&p, "unsigned long long", "tile_counter");
    if (traits->tensor_maps) {
        params_pack(&p, "pack", plan->attention.pack ? plan->attention.bm : 0);
        add_tensor_maps(launch, &p, a, plan, p.before + p.offset - 4);
        if (keys_have_pages(a->e) || (has_sequences(a->e) && !is_packed(a->e)))
            add_all_apart(&p, a, l);
    }
    params_end(&p, a, l, plan);
    if (plan->attention.blocks > 0) /* else a grid has them all */
        params_counted(&p, &tiles);
    if (traits->tensor_maps && a->d2 > 0)
        add_second_maps(launch, &p, a);
    params_close(&p, "attention_params");
}
