/*
 * params.c: parameter structs of kernels and the recipe rows that fill them, written by one loop, so
 * that host and device agree by construction; a static_assert on the size follows each struct. In: what a
 * kernel takes. Out: C++ members in text, struct param rows in a struct launch.
 */
#include "gen/emit/emit.h"
#include "runtime/recipe/bind.h"
#include "gen/base/text.h"
#include "gen/ir/kind.h"

#include <stdlib.h>
#include <string.h>

enum { TENSOR_MAP_ALIGNMENT = 64 };

/* ---- layout ---------------------------------------------------------------------------------- */

static void align_to(struct params *p, uint32_t bytes)
{
    p->offset = (p->offset + bytes - 1) / bytes * bytes;
}

struct param *params_row(struct params *p, enum param_kind kind, int arg, int dim, uint32_t bytes)
{
    align_to(p, bytes);
    uint32_t at = p->offset;
    p->offset += bytes;
    if (p->n == MAX_PARAMS) {
        text_exceed(p->out, MAX_PARAMS, "parameters");
        return &p->none;
    }
    struct param *row = &p->row[p->n++];
    *row = (struct param){
        .kind = (uint8_t)kind, .arg = (int16_t)arg, .dim = (int16_t)dim, .offset = p->before + at};
    return row;
}

void params_open(struct params *p, struct text_buf *out, struct launch *launch, const char *type)
{
    *p = (struct params){.out = out, .launch = launch};
    text_add(out, "struct %s {\n", type);
}

static bool is_declared(const struct emitter *e, const char *type)
{
    for (int i = 0; i < e->n_declared; i++)
        if (strcmp(e->declared[i], type) == 0)
            return true;
    return false;
}

void params_open_once(struct params *p, struct emitter *e, struct launch *launch, const char *type)
{
    if (!is_declared(e, type)) {
        if (e->n_declared == MAX_DECLARED)
            text_exceed(e->out, MAX_DECLARED, "parameter structs");
        else
            e->declared[e->n_declared++] = type;
        params_open(p, e->out, launch, type);
        return;
    }
    *p = (struct params){.report = e->out, .launch = launch};
    p->out = &p->unread;
}

void params_behind_maps(struct params *p, int n)
{
    p->before = (uint32_t)n * TENSOR_MAP_BYTES;
}

/* The source owns the copy. */
static void keep_rows(struct params *p)
{
    const size_t bytes = (size_t)p->n * sizeof p->row[0];
    struct param *rows = malloc(bytes + 1);
    if (!rows) {
        p->out->failed = true;
        return;
    }
    memcpy(rows, p->row, bytes);
    p->launch->param = rows;
    p->launch->n_params = p->n;
}

void params_close(struct params *p, const char *type)
{
    align_to(p, 8);
    const uint32_t alignment = p->before > 0 ? TENSOR_MAP_ALIGNMENT : 8;
    if (p->launch) {
        p->launch->param_bytes = (p->before + p->offset + alignment - 1) / alignment * alignment;
        keep_rows(p);
    }
    text_add(p->out, "};\nstatic_assert(sizeof(%s) == %u, \"host and device disagree about %s\");\n\n", type,
             p->offset, type);
    if (p->report)
        text_fail_with(p->report, &p->unread);
    text_free(&p->unread);
}

void params_pointer(struct params *p, const char *type, const char *name, enum param_kind kind, int arg)
{
    params_row(p, kind, arg, 0, 8);
    text_add(p->out, "    %s *%s;\n", type, name);
}

void params_strides(struct params *p, const char *name, const char *const *suffix, int arg, int n,
                    int first_dim)
{
    for (int i = 0; i < n; i++) {
        params_row(p, PARAM_ARG_STRIDE, arg, first_dim + i, 8);
        text_add(p->out, "    long long %s_%s;\n", name, suffix[i]);
    }
}

void params_product(struct params *p, const char *name, const struct product *product)
{
    params_row(p, PARAM_PRODUCT, 0, 0, 8)->product = *product;
    text_add(p->out, "    long long %s;\n", name);
}

void params_counted(struct params *p, const struct product *product)
{
    const uint32_t behind = p->offset;
    params_row(p, PARAM_COUNTED, 0, 0, 1)->product = *product;
    p->offset = behind;
}

void params_sym(struct params *p, const char *name, enum sym sym)
{
    params_row(p, PARAM_SYM, (int)sym, 0, 4);
    text_add(p->out, "    int %s;\n", name);
}

void params_pack(struct params *p, const char *name, int rows)
{
    params_row(p, PARAM_PACK, rows, 0, 4);
    text_add(p->out, "    int %s;\n", name);
}

void params_start(struct params *p, const char *name, bool is_query)
{
    if (is_query)
        params_row(p, PARAM_Q_START, 0, 0, 4);
    else
        p->offset += 4; /* keys start at 0, as everything that no row fills */
    text_add(p->out, "    int %s;\n", name);
}

void params_null(struct params *p, const char *type, const char *name)
{
    align_to(p, 8);
    p->offset += 8;
    text_add(p->out, "    %s *%s;\n", type, name);
}

static void sizes_of(struct params *p, enum sym batches, enum sym keys, int by_length)
{
    const enum sym order[] = {batches, SYM_H, SYM_H_KV, SYM_Q, keys};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        params_row(p, PARAM_SYM, (int)order[i], 0, 4);
    params_row(p, PARAM_Q_START, by_length, 0, 4);
    text_add(p->out, "    sizes z;\n");
}

void params_sizes(struct params *p)
{
    sizes_of(p, SYM_B, SYM_KV, 0);
}

void params_sequence_sizes(struct params *p, enum sym keys)
{
    sizes_of(p, SYM_SEQS, keys, 1);
}

void params_list(struct params *p, const struct signature *sig, const char *name)
{
    static const char *const step[] = {"step"};
    const int arg = lathe__arg_find(sig, name, 0);
    params_pointer(p, "const int", name, PARAM_ARG_DATA, arg);
    params_strides(p, name, step, arg, 1, 0);
}

/* Queries and keys are the same tokens, and key heads those of both. */
void params_token_sizes(struct params *p)
{
    static const enum sym order[] = {SYM_B, SYM_H, SYM_H_K, SYM_T, SYM_T};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        params_row(p, PARAM_SYM, (int)order[i], 0, 4);
    p->offset += 4;
    text_add(p->out, "    sizes z;\n");
}

void params_row_sizes(struct params *p)
{
    static const enum sym order[] = {SYM_ROWS0, SYM_ROWS1, SYM_ROWS, SYM_N};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        params_row(p, PARAM_SYM, (int)order[i], 0, 4);
    text_add(p->out, "    row_sizes z;\n");
}

/* ---- rows of tensors ------------------------------------------------------------------------- */

/* Strides of rows0, rows1, rows and n. Leading dims that a tensor lacks come first: stride 0. */
void params_rows(struct params *p, const struct signature *sig, const char *type, const char *name,
                 const int *arg, int n, bool columns)
{
    enum { LEADING = 3, STRIDES = LEADING + 1 };
    align_to(p, 8);
    for (int i = 0; i < n; i++) {
        const struct sig_arg *a = &sig->arg[arg[i]];
        const bool inner = columns && a->dim[2].sym == SYM_N;
        const int skip = LEADING - (a->ndim - columns);
        params_row(p, PARAM_ARG_DATA, arg[i], 0, 8);
        p->offset += 8 * (uint32_t)skip;
        for (int d = 0; d < LEADING - skip; d++)
            params_row(p, PARAM_ARG_STRIDE, arg[i], inner && d == 2 ? 3 : d, 8);
        if (columns)
            params_row(p, PARAM_ARG_STRIDE, arg[i], inner ? 2 : a->ndim - 1, 8);
        else
            p->offset += 8;
    }
    if (n == 0)
        p->offset += 8 + 8 * STRIDES;
    text_add(p->out, "    %s %s[%d];\n", type, name, n > 0 ? n : 1);
}

void params_buffers(struct params *p, const char *type, const char *name, const int *buffer, int n)
{
    align_to(p, 8);
    for (int i = 0; i < n; i++)
        params_row(p, PARAM_WORK_DATA, buffer[i], 0, 8);
    if (n == 0)
        p->offset += 8;
    text_add(p->out, "    %s *%s[%d];\n", type, name, n > 0 ? n : 1);
}

/* Buffers in the place of gradients, with the size of each dim; dims that there are not are last, and 1. */
void params_scatter_targets(struct params *p, const struct signature *sig, const char *name,
                            const int *buffer, const int *arg, int n)
{
    align_to(p, 8);
    for (int i = 0; i < n; i++) {
        const struct sig_arg *a = &sig->arg[arg[i]];
        params_row(p, PARAM_WORK_DATA, buffer[i], 0, 8);
        for (int d = 0; d < INPUT_DIMS; d++) {
            const struct sig_dim *dim = d < a->ndim ? &a->dim[d] : NULL;
            struct product size = product_of(dim && dim->literal > 0 ? dim->literal : 1);
            if (dim && dim->literal == 0)
                product_times(&size, (enum sym)dim->sym, 1);
            params_row(p, PARAM_PRODUCT, 0, 0, 8)->product = size;
        }
    }
    if (n == 0)
        p->offset += 8 + 8 * INPUT_DIMS;
    text_add(p->out, "    scatter_target %s[%d];\n", name, n > 0 ? n : 1);
}

/* Dims that the gradient lacks come first: size 1, stride 0. */
void params_gradients(struct params *p, const struct signature *sig, const char *name, const int *arg, int n)
{
    align_to(p, 8);
    for (int i = 0; i < n; i++) {
        const struct sig_arg *a = &sig->arg[arg[i]];
        const int skip = INPUT_DIMS - a->ndim;
        params_row(p, PARAM_ARG_DATA, arg[i], 0, 8);
        p->offset += 8 * (uint32_t)skip;
        for (int d = 0; d < a->ndim; d++)
            params_row(p, PARAM_ARG_STRIDE, arg[i], d, 8);
        for (int d = 0; d < INPUT_DIMS; d++) {
            const struct sig_dim *dim = d >= skip ? &a->dim[d - skip] : NULL;
            struct product size = product_of(dim && dim->literal > 0 ? dim->literal : 1);
            if (dim && dim->literal == 0)
                product_times(&size, (enum sym)dim->sym, 1);
            params_row(p, PARAM_PRODUCT, 0, 0, 8)->product = size;
        }
    }
    text_add(p->out, "    row_gradient %s[%d];\n", name, n);
}

/* ---- maps of elementwise --------------------------------------------------------------------- */

void params_map_sizes(struct params *p, const char *name, const struct ir_map *map, uint64_t flat)
{
    align_to(p, 8);
    const uint32_t start = p->offset;
    for (int k = 0; k < map->n_over && !map->list; k++)
        params_row(p, PARAM_SYM, map->over[k], 0, 4);
    if (map->list)
        params_row(p, PARAM_SYM, SYM_TENSORS, 0, 4);
    p->offset = start + MAX_OVER * 4;
    params_row(p, PARAM_COMPACT, 0, 0, 4)->product.scale = (int64_t)flat;
    text_add(p->out, "    map_sizes %s;\n", name);
}

void params_map_tensor(struct params *p, const char *name, int arg, const int *dim, bool list)
{
    params_row(p, PARAM_ARG_DATA, arg, 0, 8);
    for (int k = 0; k < MAX_OVER; k++) {
        if (dim[k] >= 0 && !list)
            params_row(p, PARAM_ARG_STRIDE, arg, dim[k], 8);
        else
            p->offset += 8;
    }
    text_add(p->out, "    map_tensor %s;\n", name);
}

void params_map_counts(struct params *p, const char *name, const struct input *in)
{
    align_to(p, 8);
    const uint32_t start = p->offset;
    for (int d = 0; d < in->n_dims; d++) {
        struct product n = product_of(in->dim[d].literal > 0 ? in->dim[d].literal : 1);
        if (in->dim[d].literal == 0)
            product_times(&n, (enum sym)in->dim[d].sym, 1);
        params_row(p, PARAM_PRODUCT, 0, 0, 8)->product = n;
    }
    p->offset = start + INPUT_DIMS * 8;
    text_add(p->out, "    map_counts %s;\n", name);
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static void mark_map(const struct emitter *e, const struct ir_map *map)
{
    for (int i = 0; i < map->fn.n_roots; i++)
        e->mark[map->fn.root[i]] = true;
    for (int s = 0; s < map->n_scatters; s++) {
        const struct map_scatter *to = &map->scatter[s];
        e->mark[to->value] = true;
        for (int d = 0; d < e->w->input[e->w->maps.tensor[to->tensor].input].n_dims; d++)
            e->mark[to->index[d]] = true;
    }
}

/* Nodes that some function of the lowered spec still uses: absent inputs are gone by now. */
static void mark_all(const struct emitter *e)
{
    const struct ir *w = e->w;
    const struct ir_fn *fn[] = {&w->scale, &w->mask, &w->bounds, &w->online, &w->epilogue, &w->row};
    const int n = sizeof fn / sizeof *fn;
    memset(e->mark, 0, (size_t)w->n_nodes * sizeof *e->mark);
    for (int f = 0; f < n + LINEAR_SLOTS; f++) {
        const struct ir_fn *one = f < n ? fn[f] : &w->linear.slot[f - n];
        for (int i = 0; i < one->n_roots; i++)
            e->mark[one->root[i]] = true;
    }
    for (int m = 0; m < MOD_COUNT; m++)
        for (int s = 0; s < w->mod[m].n_stages; s++)
            for (int i = 0; i < w->mod[m].stage[s].fn.n_roots; i++)
                e->mark[w->mod[m].stage[s].fn.root[i]] = true;
    for (int m = 0; m < w->maps.n_maps; m++)
        mark_map(e, &w->maps.map[m]);
    if (e->mark_more)
        e->mark_more(e);
    for (int i = w->n_nodes - 1; i >= 0; i--)
        for (int k = 0; e->mark[i] && k < w->node[i].n_args; k++)
            e->mark[w->node[i].arg[k]] = true;
}

bool operand_used(const struct emitter *e, int tensor)
{
    for (int i = 0; i < e->w->maps.n_tensors; i++)
        if (e->w->maps.tensor[i].use == USE_STORE && e->w->maps.tensor[i].slot == tensor + 1)
            return true;
    mark_all(e);
    for (int i = 0; i < e->w->n_nodes; i++) {
        const struct ir_node *n = &e->w->node[i];
        if (e->mark[i] && n->op == OP_PARAM && n->index >= LEAF_TENSOR &&
            (n->index - LEAF_TENSOR) / 2 == tensor)
            return true;
    }
    return false;
}

bool input_used(const struct emitter *e, int input)
{
    for (int i = 0; i < e->w->maps.n_tensors; i++)
        if (e->w->maps.tensor[i].use == USE_STORE && e->w->maps.tensor[i].dither == input)
            return true;
    mark_all(e);
    for (int i = 0; i < e->w->n_nodes; i++) {
        const struct ir_node *n = &e->w->node[i];
        if (e->mark[i] && (n->op == OP_LOAD || n->op == OP_SCALAR) && n->index == input)
            return true;
    }
    return false;
}

/* A dim that every read indexes by head or batch alone has a 64-bit stride; the others, which are multiplied
   per row or element, have a 32-bit one. */
static bool stride_is_wide(const struct emitter *e, int input, int dim)
{
    for (int i = 0; i < e->w->n_nodes; i++) {
        const struct ir_node *n = &e->w->node[i];
        if (n->op == OP_LOAD && n->index == input && e->w->node[n->arg[dim]].span != 0)
            return false;
    }
    return true;
}

const char *element_type(lathe_dtype dtype)
{
    switch (dtype) {
    case LATHE_F16:
        return "f16";
    case LATHE_BF16:
        return "bf16";
    case LATHE_I32:
        return "int";
    case LATHE_U8:
        return "unsigned char";
    case LATHE_F8_E4M3:
        return "f8_e4m3";
    case LATHE_F8_E5M2:
        return "f8_e5m2";
    case LATHE_I8:
        return "i8";
    default:
        return "float";
    }
}

static void tensor_members(struct params *p, struct emitter *e, int input, bool text)
{
    const struct input *in = &e->w->input[input];
    int arg = lathe__arg_find(e->sig, in->name, 0);
    int by_row = in->rows == INPUT_VALUE ? e->sig->arg[arg].ndim : 0; /* its leading dims */
    params_row(p, PARAM_ARG_DATA, arg, 0, 8);
    if (text)
        text_add(p->out, "    const %s *in_%s;\n", element_type((lathe_dtype)e->problem->arg_dtype[arg]),
                 in->name);
    for (int d = 0; d < by_row; d++) {
        params_row(p, PARAM_ARG_STRIDE, arg, d, 8);
        if (text)
            text_add(p->out, "    long long s%d_%s;\n", d, in->name);
    }
    for (int d = 0; d < in->n_dims && by_row == 0; d++) {
        bool wide = stride_is_wide(e, input, d);
        params_row(p, wide ? PARAM_ARG_STRIDE : PARAM_ARG_STRIDE32, arg, d, wide ? 8 : 4);
        if (text)
            text_add(p->out, "    %s s%d_%s;\n", wide ? "long long" : "int", d, in->name);
        if (in->dim[d].sym < SYM_FREE)
            continue;
        params_row(p, PARAM_SYM, in->dim[d].sym, 0, 4);
        if (text)
            text_add(p->out, "    int n%d_%s;\n", d, in->name);
    }
}

static void scalar_member(struct params *p, struct emitter *e, int input, bool text)
{
    const struct input *in = &e->w->input[input];
    bool integer = in->dtype == LATHE_I32;
    params_row(p, integer ? PARAM_SCALAR_I32 : PARAM_SCALAR_F32, lathe__arg_find(e->sig, in->name, 0), 0, 4);
    if (text)
        text_add(p->out, "    %s in_%s;\n", integer ? "int" : "float", in->name);
}

/* at.n_NAME of a dim that inputs name for themselves. */
static void size_members(struct params *p, struct emitter *e, bool text)
{
    bool used[MAX_FREE_SYMS] = {false};
    mark_all(e);
    for (int i = 0; i < e->w->n_nodes; i++)
        if (e->mark[i] && ir_free_size(&e->w->node[i]) >= 0)
            used[ir_free_size(&e->w->node[i])] = true;
    for (int k = 0; k < MAX_FREE_SYMS; k++) {
        if (!used[k])
            continue;
        params_row(p, PARAM_SYM, SYM_FREE + k, 0, 4);
        if (text)
            text_add(p->out, "    int size_%s;\n", e->w->free_name[k]);
    }
}

static bool reads_size(const struct emitter *e, int field, enum sym sym)
{
    bool found = false;
    mark_all(e);
    for (int i = 0; i < e->w->n_nodes; i++) {
        const struct ir_node *n = &e->w->node[i];
        found |= e->mark[i] && n->op == OP_AT && n->index == field;
        for (int d = 0; e->mark[i] && n->op == OP_LOAD && d < n->n_args; d++)
            found |= sym != SYM_ONE && e->w->input[n->index].dim[d].sym == sym;
    }
    return found;
}

/* Where the keys and heads that are here stand among all. */
static void place_members(struct params *p, struct emitter *e, bool text)
{
    static const struct {
        int field;
        enum arg_role role;
        enum sym sym, all;
        const char *name;
    } member[] = {{AT_KV_START, ROLE_START, SYM_ONE, SYM_ALL_KV, "kv_start"},
                  {AT_KV_CHUNK, ROLE_CHUNK, SYM_ONE, SYM_ALL_KV, "kv_chunk"},
                  {AT_KV_STEP, ROLE_STEP, SYM_ONE, SYM_ALL_KV, "kv_step"},
                  {AT_H_START, ROLE_START, SYM_ONE, SYM_ALL_H, "h_start"},
                  {AT_ALL_KV, ROLE_TOTAL, SYM_ALL_KV, SYM_ALL_KV, "all_kv"},
                  {AT_ALL_H, ROLE_TOTAL, SYM_ALL_H, SYM_ALL_H, "all_h"},
                  {AT_COUNT, ROLE_TOTAL, SYM_ALL_H_KV, SYM_ALL_H_KV, "all_h_kv"}};
    for (size_t i = 0; i < sizeof member / sizeof *member; i++) {
        if (!reads_size(e, member[i].field, member[i].sym))
            continue;
        if (member[i].sym == SYM_ONE)
            params_row(p, PARAM_SCALAR_I32, lathe__place_find(e->sig, member[i].role, member[i].all), 0, 4);
        else
            params_row(p, PARAM_SYM, (int)member[i].all, 0, 4);
        if (text)
            text_add(p->out, "    int %s;\n", member[i].name);
    }
}

/* Members of struct inputs, which starts and ends on 8 bytes. */
static void input_members(struct params *p, struct emitter *e, bool text)
{
    for (int i = 0; i < e->w->n_inputs; i++) {
        if (!input_used(e, i) || e->w->input[i].rows == INPUT_ROW)
            continue;
        if (e->w->input[i].is_scalar)
            scalar_member(p, e, i, text);
        else
            tensor_members(p, e, i, text);
    }
    size_members(p, e, text);
    if (e->problem->cut_keys || e->problem->cut_heads)
        place_members(p, e, text);
    if (kinds[e->w->kind].own_inputs)
        kinds[e->w->kind].own_inputs(p, e, text);
}

void emit_inputs_struct(struct emitter *e)
{
    static const char note[] = "    long long none; // an empty struct would have a size of its own\n";
    struct params p = {.out = e->out};
    text_add(e->out, "struct alignas(8) inputs { // data, strides and sizes of the spec's inputs\n");
    input_members(&p, e, true);
    if (p.offset == 0)
        text_add(e->out, "%s", note);
    text_add(e->out, "};\n\n");
}

void params_inputs(struct params *p, struct emitter *e, const char *name)
{
    align_to(p, 8);
    uint32_t start = p->offset;
    input_members(p, e, false);
    if (p->offset == start)
        p->offset += 8;
    align_to(p, 8);
    text_add(p->out, "    inputs %s;\n", name);
}

/* ---- products -------------------------------------------------------------------------------- */

struct product product_of(int64_t scale)
{
    return (struct product){.scale = scale};
}

void product_times(struct product *p, enum sym sym, int tile)
{
    product_times_sum(p, sym, tile, SYM_ONE);
}

void product_times_sum(struct product *p, enum sym sym, int tile, enum sym plus)
{
    p->factor[p->n].sym = (uint8_t)sym;
    p->factor[p->n].tile = tile;
    p->factor[p->n++].plus = (uint8_t)plus;
}
