/*
 * ranks_problem.c: the tensors of one problem over ranks. In: a case. Out: values of the whole, which ranks
 * have which part of them, and the arguments of a call with a part.
 */
#include "ranks.h"

#include "lathe_inspect.h"
#include "shards.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POISON = 0xFF, SMALL_TOKENS = 8, SMALL_D = 16, SMALL_HEADS = 8, PACKED_SEQUENCES = 5 };

/* ---- sizes ------------------------------------------------------------------------------------------------
 */

/* Eighths of a rank's tokens, where shards are uneven; odd numbers of them, too. */
static int64_t uneven(int rank, int64_t tokens)
{
    static const int EIGHTHS[MOST_RANKS] = {5, 0, 11, 8, 3, 13, 1, 7};
    return tokens * EIGHTHS[rank] / 8 + (EIGHTHS[rank] > 0 && rank % 2 == 0);
}

static void set_edges(struct problem *p, int64_t tokens)
{
    const struct ranks_case *c = p->c;
    for (int r = 0; r < c->ranks; r++) {
        p->kv_edge[r + 1] = p->kv_edge[r] + (c->cut == CUT_UNEVEN ? uneven(r, tokens) : tokens);
    }
    if (c->interleave > 0) {
        shard_interleave(c->ranks, c->interleave, p->kv_edge[c->ranks], p->kv_edge);
    }
    memcpy(p->q_edge, p->kv_edge, sizeof p->q_edge);
    for (int r = 0; r < c->ranks; r++) {
        p->kv_tokens[r] = p->kv_edge[r + 1] - p->kv_edge[r];
        p->q_tokens[r] = c->queries ? c->queries : p->kv_tokens[r];
    }
}

static int64_t size_of(const struct problem *p, const char *dim)
{
    const struct {
        const char *name;
        int64_t size;
    } SIZE[] = {
        {"b", 1},
        {"h", p->h},
        {"h_kv", p->h_kv},
        {"h_k", p->h_kv},
        {"q", p->c->queries ? p->c->queries : p->q_edge[p->c->ranks]},
        {"kv", p->kv_edge[p->c->ranks]},
        {"t", p->kv_edge[p->c->ranks]},
        {"d", p->d},
        {"d_v", p->d},
        {"seqs", p->c->how & PACKED_CALL ? PACKED_SEQUENCES : 1},
        {"slots", 1},
    };
    for (size_t i = 0; i < sizeof SIZE / sizeof *SIZE; i++) {
        if (strcmp(SIZE[i].name, dim) == 0) {
            return SIZE[i].size;
        }
    }
    return 1;
}

/* ---- which tensors there are
 * -------------------------------------------------------------------------------- */

static bool is_one_of(const char *name, const char *const *list)
{
    bool found = false;
    for (; *list && !found; list++) {
        found = strcmp(name, *list) == 0;
    }
    return found;
}

static bool is_input_gradient(const struct problem *p, const char *name)
{
    lathe_arg_info info;
    bool found = false;
    for (int i = 0; name[0] == 'd' && !found && lathe_spec_arg(p->spec, LATHE_FORWARD, i, &info); i++) {
        found = info.is_input && strcmp(info.name, name + 1) == 0;
    }
    return found;
}

static bool is_given(const struct problem *p, const lathe_arg_info *info)
{
    static const char *const ALWAYS[] = {"q",  "k",  "v",     "o",         "lse",    "do",         "dq",
                                         "dk", "dv", "state", "state_out", "dstate", "dstate_out", NULL};
    return info->is_input || is_one_of(info->name, ALWAYS) || is_input_gradient(p, info->name) ||
           ((p->c->how & PACKED_CALL) && strcmp(info->name, "cu_q") == 0);
}

static void set_cut(const struct problem *p, struct value *v, const lathe_arg_info *info)
{
    v->cut = -1;
    const bool is_input = info->is_input || is_input_gradient(p, info->name);
    for (int k = 0; k < info->ndim; k++) {
        const char *dim = info->dim[k].name;
        const bool by_query = strcmp(dim, "q") == 0 && !is_input && p->c->queries == 0;
        if (by_query || strcmp(dim, "t") == 0 || (strcmp(dim, "kv") == 0 && !is_input)) {
            v->cut = k;
            v->by_query = by_query;
        }
    }
    v->is_share = v->cut < 0 && is_input_gradient(p, info->name);
}

/* The value of that name: a new one where there is none. */
static struct value *value_of(struct problem *p, const lathe_arg_info *info)
{
    for (int i = 0; i < p->n; i++) {
        if (strcmp(p->value[i].name, info->name) == 0) {
            return &p->value[i];
        }
    }
    struct value *v = &p->value[p->n++];
    const bool is_f32 = info->dtype == LATHE_NONE && info->is_input;
    (void)snprintf(v->name, sizeof v->name, "%s", info->name);
    v->dtype = is_f32 ? LATHE_F32 : info->dtype == LATHE_NONE ? LATHE_BF16 : info->dtype;
    v->ndim = info->ndim;
    v->size = lathe_dtype_size(v->dtype);
    for (int k = 0; k < info->ndim; k++) {
        v->shape[k] = size_of(p, info->dim[k].name) * info->dim[k].times + info->dim[k].plus;
        v->size *= (size_t)v->shape[k];
    }
    set_cut(p, v, info);
    return v;
}

static bool find_values(struct problem *p)
{
    lathe_arg_info info;
    for (int pass = 0; pass < p->c->passes; pass++) {
        for (int i = 0; lathe_spec_arg(p->spec, (lathe_pass)pass, i, &info); i++) {
            if (!is_given(p, &info)) {
                continue;
            }
            if (p->n == MOST_VALUES) {
                return false;
            }
            struct value *v = value_of(p, &info);
            v->used[pass] = true;
            v->written[pass] = info.role == LATHE_ROLE_RESULT;
        }
    }
    return true;
}

/* ---- values -----------------------------------------------------------------------------------------------
 */

/* Numbers that are drawn of a few: of deviation 1, or between two. */
static void fill_floats(struct value *v, double low, double high, uint64_t *random)
{
    enum { KNOWN = 4096 };
    unsigned char known[KNOWN][sizeof(double)];
    const size_t bytes = lathe_dtype_size(v->dtype);
    for (int k = 0; k < KNOWN; k++) {
        const double drawn = low < high ? low + (high - low) * (k + 0.5) / KNOWN : random_gaussian(random);
        dtype_put(v->dtype, known[k], 0, dtype_round(v->dtype, drawn));
    }
    for (size_t at = 0; at < v->size; at += bytes) {
        memcpy(v->bytes + at, known[random_bits(random) % KNOWN], bytes);
    }
}

/* Documents, or where packed sequences begin: of any lengths, one of them without tokens. */
static void fill_sequences(const struct problem *p, struct value *v)
{
    static const int SIXTEENTHS[PACKED_SEQUENCES] = {1, 7, 0, 6, 2};
    const int64_t tokens = p->kv_edge[p->c->ranks];
    const bool starts = strcmp(v->name, "cu_q") == 0;
    int64_t end = 0;
    for (int s = 0; s < PACKED_SEQUENCES; s++) {
        const int64_t begin = end;
        end = s + 1 == PACKED_SEQUENCES ? tokens : begin + tokens * SIXTEENTHS[s] / 16;
        for (int64_t i = begin; i < end && !starts; i++) {
            dtype_put(v->dtype, v->bytes, i, s);
        }
        if (starts) {
            dtype_put(v->dtype, v->bytes, s + 1, (double)end);
        }
    }
}

/* Gates forget so slowly that every rank's state counts for the next one's tokens. */
static void fill(const struct problem *p, struct value *v, uint64_t *random)
{
    if (v->ndim == 0) {
        dtype_put(v->dtype, v->bytes, 0, p->window);
    } else if (strcmp(v->name, "doc") == 0 || strcmp(v->name, "cu_q") == 0) {
        fill_sequences(p, v);
    } else if (strcmp(v->name, "g") == 0) {
        fill_floats(v, -0.01, 0.0, random);
    } else if (strcmp(v->name, "beta") == 0) {
        fill_floats(v, 0.0, 0.3, random);
    } else {
        fill_floats(v, 0.0, 0.0, random);
    }
}

static void set_sizes(struct problem *p, bool small)
{
    const struct ranks_case *c = p->c;
    const int least_tokens = c->interleave > SMALL_TOKENS ? c->interleave : SMALL_TOKENS;
    const int64_t tokens = small ? least_tokens : c->tokens;
    p->h_kv = small && c->h_kv > SMALL_HEADS ? SMALL_HEADS : c->h_kv;
    p->h = small ? p->h_kv * (c->h > c->h_kv ? 2 : 1) : c->h;
    p->d = small ? SMALL_D : c->d;
    p->window = (int32_t)(tokens * 11 / 8 + 1); /* reaches over the shard ahead */
    set_edges(p, tokens);
}

/* Numbers always have one: no call does without. */
static bool give_values(struct problem *p, bool values)
{
    uint64_t random = 7;
    bool good = true;
    for (int i = 0; i < p->n && good; i++) {
        struct value *v = &p->value[i];
        if (!values && v->ndim > 0) {
            continue;
        }
        v->bytes = calloc(1, v->size + 1);
        good = v->bytes != NULL;
        if (good && !v->written[LATHE_FORWARD] && !v->written[LATHE_BACKWARD]) {
            fill(p, v, &random);
        }
    }
    return good;
}

bool problem_open(struct problem *p, const struct ranks_case *c, bool small, bool values, lathe_error *err)
{
    memset(p, 0, sizeof *p);
    p->c = c;
    p->linear = c->scheme == LATHE_SCHEME_STATES;
    set_sizes(p, small);
    if (lathe_spec_load(&p->spec, c->spec, err) != LATHE_OK) {
        return false;
    }
    if (!find_values(p) || !give_values(p, values)) {
        (void)snprintf(err->text, sizeof err->text, "out of host memory, or more than %d arguments",
                       (int)MOST_VALUES);
        return false;
    }
    return true;
}

void problem_close(struct problem *p)
{
    for (int i = 0; i < p->n; i++) {
        free(p->value[i].bytes);
    }
    lathe_spec_destroy(p->spec);
}

lathe_dist_options problem_options(const struct problem *p, lathe_stream comm, lathe_stream second)
{
    const int how = p->c->how;
    return (lathe_dist_options){.scheme = p->c->scheme,
                                .shards = p->c->shards,
                                .q_tokens = p->q_tokens,
                                .kv_tokens = p->kv_tokens,
                                .whole_q = p->c->queries > 0,
                                .heads_at_once = how & FEW_HEADS ? 2 : 0,
                                .most_bytes = how & MERGED ? 1 : 0,
                                .comm_stream = how & ON_COMM ? comm : NULL,
                                .second_compute_stream = how & ON_SECOND ? second : NULL,
                                .parallel_states = how & PARALLEL ? 1 : 0,
                                .interleave = p->c->interleave};
}

/* ---- parts ------------------------------------------------------------------------------------------------
 */

static int64_t own_tokens(const struct problem *p, const struct value *v, int rank)
{
    const int64_t *edge = v->by_query ? p->q_edge : p->kv_edge;
    return edge[rank + 1] - edge[rank];
}

void problem_part(const struct problem *p, const struct value *v, int rank, unsigned char *out)
{
    if (v->cut < 0 || rank == WHOLE) {
        memcpy(out, v->bytes, v->size);
        return;
    }
    const int64_t *edge = v->by_query ? p->q_edge : p->kv_edge;
    const int64_t own = own_tokens(p, v, rank);
    const lathe_shards shards = p->c->shards;
    size_t row = lathe_dtype_size(v->dtype);
    int64_t outer = 1;
    for (int k = 0; k < v->ndim; k++) {
        outer *= k < v->cut ? v->shape[k] : 1;
        row *= k > v->cut ? (size_t)v->shape[k] : 1;
    }
    for (int64_t o = 0; o < outer; o++) {
        for (int64_t i = 0; i < own; i++) {
            const int64_t at = shard_place(shards, p->c->ranks, edge, p->c->interleave, rank, i);
            memcpy(out, v->bytes + (size_t)(o * v->shape[v->cut] + at) * row, row);
            out += row;
        }
    }
}

void call_of_rank(const struct problem *p, lathe_pass pass, int rank, struct call_of_rank *out)
{
    memset(out, 0, sizeof *out);
    out->rank = rank;
    for (int i = 0; i < p->n; i++) {
        const struct value *v = &p->value[i];
        if (!v->used[pass]) {
            continue;
        }
        const int k = out->n++;
        memcpy(out->shape[k], v->shape, sizeof out->shape[k]);
        if (v->cut >= 0 && rank != WHOLE) {
            out->shape[k][v->cut] = own_tokens(p, v, rank);
        }
        out->size[k] = lathe_dtype_size(v->dtype);
        for (int d = 0; d < v->ndim; d++) {
            out->size[k] *= (size_t)out->shape[k][d];
        }
        out->of[k] = v;
        out->arg[k] =
            (lathe_arg){v->name, v->ndim == 0 ? v->bytes : NULL, v->dtype, v->ndim, out->shape[k], NULL};
    }
}

static bool upload_part(const struct problem *p, const struct value *v, int rank, const struct device *device,
                        void *to, size_t size)
{
    unsigned char *part = malloc(size + 1);
    if (part) {
        problem_part(p, v, rank, part);
    }
    const bool good = part && device_upload(device, to, part, size);
    free(part);
    return good;
}

bool call_of_rank_fill(const struct problem *p, lathe_pass pass, const struct device *device,
                       struct call_of_rank *call)
{
    bool good = true;
    for (int k = 0; k < call->n && good; k++) {
        const struct value *v = call->of[k];
        if (v->ndim == 0) {
            continue;
        }
        void *memory = device_alloc(device, call->size[k]);
        call->arg[k].data = memory;
        good = memory && (v->written[pass] ? device_fill(device, memory, POISON, call->size[k])
                                           : upload_part(p, v, call->rank, device, memory, call->size[k]));
    }
    return good;
}

void call_of_rank_free(const struct device *device, struct call_of_rank *call)
{
    for (int k = 0; k < call->n; k++) {
        if (call->of[k]->ndim > 0) {
            device_free(device, call->arg[k].data);
        }
    }
}
