/*
 * signature.c: what a signature and a problem say, for whoever binds, checks, plans or launches: values of
 * sizes, what is compiled in, products. Pure.
 */
#include <string.h>

#include "runtime/recipe/bind.h"

void lathe__problem_clear(struct problem *p)
{
    memset(p, 0, sizeof *p);
    for (int i = 0; i < SYM_COUNT; i++)
        p->dim[i] = -1;
    p->dim[SYM_ONE] = 1;
}

uint64_t lathe__built_presence(const struct signature *sig)
{
    uint64_t set = 0;
    for (int i = 0; i < sig->n_args; i++)
        if (sig->arg[i].presence_built)
            set |= arg_bit(i);
    return set;
}

/* Dtypes of roles are those of arguments, which are compared. */
bool lathe__same_build(const struct signature *sig, const struct problem *a, const struct problem *b)
{
    bool same = a->dtype[DTYPE_USUAL] == b->dtype[DTYPE_USUAL] &&
                ((a->present ^ b->present) & lathe__built_presence(sig)) == 0 &&
                memcmp(a->arg_dtype, b->arg_dtype, sizeof a->arg_dtype) == 0;
    for (int i = 0; i < sig->n_sizes; i++)
        same &= !sig->size[i].built || a->dim[sig->size[i].sym] == b->dim[sig->size[i].sym];
    return same;
}

/* ---- sizes ------------------------------------------------------------------------------------- */

static bool is_by(const struct problem *p, int number)
{
    return number > 0 && arg_in(p->present, number - 1);
}

bool lathe__size_is_tied(const struct sig_size *s, const struct problem *p)
{
    return s->tied && !is_by(p, s->by);
}

/* In a line, a value of its own stands for the argument that brings it. */
static void fill_size(const struct sig_size *s, struct problem *p, bool usual)
{
    int64_t *const dim = &p->dim[s->sym];
    if (usual && s->tied && s->by && *dim >= 0 && *dim != p->dim[s->same_as])
        p->present |= arg_bit(s->by - 1);
    const bool first = usual && s->usual > 0 && s->tied && is_by(p, s->by);
    if (*dim < 0 && first)
        *dim = s->usual;
    if (*dim < 0 && s->same_as != SYM_ONE && (s->beside == 0 || is_by(p, s->beside)))
        *dim = p->dim[s->same_as];
    if (*dim < 0 && usual && s->usual > 0)
        *dim = s->usual;
}

/* Sizes of pages that a line names bring the pages. */
static void bring_pages(const struct signature *sig, struct problem *p, bool usual)
{
    for (int i = 0; i < sig->n_sizes; i++)
        if (usual && sig->size[i].beside && p->dim[sig->size[i].sym] >= 0)
            p->present |= arg_bit(sig->size[i].beside - 1);
    p->paged = is_by(p, sig->paged_by);
}

/* As many keys as the pages of a sequence hold; in a line as many pages as the keys need. */
static void fill_keys(struct problem *p, bool usual)
{
    enum { USUAL_PAGE = 16, USUAL_KEYS = 1024 };
    int64_t *const dim = p->dim;
    const int64_t keys = dim[SYM_KV] >= 0 ? dim[SYM_KV] : dim[SYM_Q] >= 0 ? dim[SYM_Q] : USUAL_KEYS;
    if (usual && dim[SYM_PAGE] < 0)
        dim[SYM_PAGE] = USUAL_PAGE;
    if (usual && dim[SYM_MOST] < 0) /* pages of no keys are refused later */
        dim[SYM_MOST] = dim[SYM_PAGE] > 0 ? (keys + dim[SYM_PAGE] - 1) / dim[SYM_PAGE] : 0;
    if (dim[SYM_KV] < 0 && dim[SYM_MOST] >= 0 && dim[SYM_PAGE] >= 0)
        dim[SYM_KV] = dim[SYM_MOST] * dim[SYM_PAGE];
}

/* A pool in which no two sequences share a page. */
static void fill_pool(struct problem *p, bool usual)
{
    const int64_t pages = p->dim[SYM_SEQS] * p->dim[SYM_MOST];
    if (usual && p->dim[SYM_POOL] < 0)
        p->dim[SYM_POOL] = pages > 0 ? pages : 1;
}

/* Sequences that are packed have their keys one behind the other, with room for as many as pages hold. */
static int64_t keys_in_rows(const struct problem *p)
{
    const int64_t seqs = p->packed ? p->dim[SYM_SEQS] : 1;
    int64_t keys = 0;
    return __builtin_mul_overflow(seqs, p->dim[SYM_KV], &keys) ? INT64_MAX : keys;
}

static bool is_of_sequences(const struct signature *sig, const struct problem *p)
{
    bool packed = false;
    for (int i = 0; i < sig->n_sizes; i++)
        packed |= sig->size[i].packed_by && is_by(p, sig->size[i].packed_by);
    return packed;
}

void lathe__sizes_fill(const struct signature *sig, struct problem *p, bool usual)
{
    bring_pages(sig, p, usual);
    lathe__places_bring(sig, p, usual);
    if (p->paged)
        fill_keys(p, usual);
    for (int i = 0; i < sig->n_sizes; i++)
        fill_size(&sig->size[i], p, usual);
    lathe__places_fill(p);
    if (p->paged)
        fill_pool(p, usual);
    p->packed = is_of_sequences(sig, p);
    if (p->paged)
        p->dim[SYM_GATHERED] = keys_in_rows(p);
}

bool lathe__size_follows(const struct signature *sig, const struct problem *p, int size)
{
    const struct sig_size *s = &sig->size[size];
    if (s->same_as == SYM_ONE)
        return s->usual > 0 && p->dim[s->sym] == s->usual;
    bool said = false;
    for (int i = 0; i < size; i++)
        said |= sig->size[i].sym == s->same_as;
    return said && p->dim[s->sym] == p->dim[s->same_as];
}

bool lathe__count(const struct signature *sig, const struct problem *p, int64_t *out)
{
    bool fits = true;
    *out = 1;
    for (int i = 0; i < sig->n_sizes; i++)
        if (sig->size[i].counted)
            fits &= !__builtin_mul_overflow(*out, p->dim[sig->size[i].sym], out);
    return fits;
}

/* A size that is not bound (of an absent optional argument) counts as 0: there is nothing of it. */
static int64_t factor_value(const struct product *p, int i, const struct problem *problem)
{
    if (p->factor[i].sym == FACTOR_ROW_TILES)
        return lathe__row_tiles(problem, p->factor[i].plus);
    if (p->factor[i].sym == FACTOR_KEY_PARTS)
        return lathe__key_parts(problem, p->factor[i].plus, p->factor[i].tile);
    if (p->factor[i].sym == FACTOR_EVEN_KEY_PARTS)
        return lathe__even_key_parts(problem, p->factor[i].plus, p->factor[i].tile);
    if (p->factor[i].sym == FACTOR_OWN_KEY_PARTS)
        return lathe__own_key_parts(problem, p->factor[i].tile);
    const int64_t times = p->factor[i].times > 1 ? p->factor[i].times : 1;
    const int64_t dim = times * problem->dim[p->factor[i].sym];
    const int64_t tile = p->factor[i].tile > 1 ? p->factor[i].tile : 1;
    const int64_t more = p->factor[i].plus ? problem->dim[p->factor[i].plus] : 0;
    return (dim > 0 ? (dim - 1) / tile + 1 : 0) + (more > 0 ? more : 0);
}

int64_t lathe__product_value(const struct product *p, const struct problem *problem)
{
    int64_t value = p->scale;
    if (p->grouped && problem->dim[SYM_H] == problem->dim[SYM_H_K])
        return 0;
    for (int i = 0; i < p->n; i++) {
        const int64_t count = factor_value(p, i, problem);
        if (count == 0)
            return 0;
        if (__builtin_mul_overflow(value, count, &value))
            value = INT64_MAX;
    }
    return value;
}

int64_t lathe__buffer_bytes(const struct buffer *b, const struct problem *problem)
{
    const int64_t bytes = lathe__product_value(&b->bytes, problem);
    const int64_t most = b->most.scale > 0 ? lathe__product_value(&b->most, problem) : bytes;
    return bytes < most ? bytes : most;
}

int lathe__heads_packed(const struct problem *problem, int rows)
{
    enum { PART = 64 };
    const int64_t q = problem->dim[SYM_Q];
    const int64_t group = problem->dim[SYM_H_KV] > 0 ? problem->dim[SYM_H] / problem->dim[SYM_H_KV] : 0;
    if (group < 2 || group > PART)
        return 1;
    const int64_t tokens = PART / group * (rows / PART);
    const int64_t packed = (q + tokens - 1) / tokens;
    const int64_t apart = group * ((q + rows - 1) / rows);
    return 10 * packed <= 9 * apart ? (int)group : 1;
}

/* A batch, or, of packed sequences, one as long as they are on average: how long each is the host does not
   know. */
struct sequence {
    int64_t n, q, kv;
};

static int64_t share(int64_t of, int64_t parts)
{
    return of > 0 ? (of - 1) / parts + 1 : of;
}

static bool packs_sequences(const struct problem *problem)
{
    return problem->dim[SYM_SEQS] > 0 && problem->dim[SYM_SEQS] != problem->dim[SYM_B];
}

static struct sequence sequence_of(const struct problem *problem)
{
    const int64_t *const dim = problem->dim;
    struct sequence s = {dim[SYM_B], dim[SYM_Q], dim[SYM_KV]};
    if (packs_sequences(problem)) {
        s.n = dim[SYM_SEQS];
        s.q = share(s.q, s.n);
        s.kv = problem->paged ? s.kv : share(s.kv, s.n);
    }
    return s;
}

/* Of so many tokens, those of a key head: of all query heads that share it. */
static int64_t rows_of_keys(const struct problem *problem, int64_t q)
{
    const int64_t group = problem->dim[SYM_H_KV] > 0 ? problem->dim[SYM_H] / problem->dim[SYM_H_KV] : 0;
    return q > 0 && group > 0 ? q * group : 0;
}

static int64_t tiles_of_rows(int64_t all, int rows)
{
    enum { WARP_ROWS = 16 }; /* attention/decode_rows.cuh */
    return all <= WARP_ROWS ? all > 0 : (all - 1) / rows + 1;
}

int64_t lathe__row_tiles(const struct problem *problem, int rows)
{
    const int64_t all = rows_of_keys(problem, problem->dim[SYM_Q]);
    return packs_sequences(problem) ? all / rows + problem->dim[SYM_SEQS] : tiles_of_rows(all, rows);
}

enum {
    LEAST_KEYS = 256, /* of a part: attention/decode_rows.cuh */
    MOST_PARTS = 128  /* attention/decode_merge.cuh */
};

int64_t lathe__even_key_parts(const struct problem *problem, int rows, int blocks)
{
    enum { END_KEYS = 384 }; /* in whose time a block begins, ends its rows, and they are merged */
    const struct sequence s = sequence_of(problem);
    const int64_t kv = s.kv > 0 ? s.kv : 1;
    const int64_t tiles = s.n * problem->dim[SYM_H_KV] * tiles_of_rows(rows_of_keys(problem, s.q), rows);
    int64_t best = 1;
    int64_t least = INT64_MAX;
    for (int64_t parts = 1; parts <= MOST_PARTS && tiles > 0 && tiles < INT32_MAX; parts++) {
        const int64_t keys = (kv - 1) / parts + 1;
        const int64_t time = ((tiles * parts - 1) / blocks + 1) * (keys + END_KEYS);
        if (parts > 1 && keys < LEAST_KEYS)
            break;
        best = time < least ? parts : best;
        least = time < least ? time : least;
    }
    return best;
}

int64_t lathe__key_parts(const struct problem *problem, int rows, int blocks)
{
    enum {
        GOOD_KEYS = 1024, /* of one among several that a multiprocessor has in turn */
        TURNS = 4
    };
    const struct sequence s = sequence_of(problem);
    const int64_t kv = s.kv > 0 ? s.kv : 1;
    const int64_t tiles = s.n * problem->dim[SYM_H_KV] * tiles_of_rows(rows_of_keys(problem, s.q), rows);
    if (tiles <= 0)
        return 1;
    const int64_t once = blocks / tiles;
    const int64_t turns = (TURNS * (int64_t)blocks - 1) / tiles + 1;
    const int64_t good = (kv - 1) / GOOD_KEYS + 1;
    const int64_t least = (kv - 1) / LEAST_KEYS + 1;
    int64_t parts = good < turns ? good : turns;
    parts = parts > once ? parts : once;
    parts = parts < least ? parts : least;
    return parts < 1 ? 1 : parts < MOST_PARTS ? parts : MOST_PARTS;
}

int64_t lathe__own_key_parts(const struct problem *problem, int least)
{
    enum {
        MOST_ROWS = 1024,
        WANTED = 16,
        GOOD_KEYS = 1024
    }; /* own_part_tiles of attention/decode_rows.cuh */
    const int64_t kv = problem->dim[SYM_KV] > 0 ? problem->dim[SYM_KV] : 1;
    if (problem->packed || rows_of_keys(problem, problem->dim[SYM_Q]) > MOST_ROWS)
        return 1;
    const int64_t of_short = (kv - 1) / least + 1;
    const int64_t of_long = (kv - 1) / GOOD_KEYS + 1;
    const int64_t parts = of_short < WANTED ? of_short : of_long > WANTED ? of_long : WANTED;
    return parts < MOST_PARTS ? parts : MOST_PARTS;
}

const char *lathe__determinism_text(uint8_t determinism)
{
    return determinism == DETERMINISTIC_BATCH ? "batch" : determinism ? "1" : "0";
}

/* Of a sequence, its tokens times the query heads that share it. 0: there are none. */
static int64_t key_head_rows(const struct problem *problem)
{
    return rows_of_keys(problem, sequence_of(problem).q);
}

bool lathe__has_nine_rows(const struct problem *problem)
{
    enum { EIGHT = 8 }; /* attention/narrow_rows.cuh */
    const bool of_batch = problem->deterministic == DETERMINISTIC_BATCH && problem->packed;
    return lathe__has_narrow(problem) && (of_batch || key_head_rows(problem) > EIGHT);
}

enum { FEW_ROWS = 64 };

/* Neither how many keys a row has room for counts, which is as many as the longest one needs, nor how many
   tokens of packed sequences there are together. */
static int own_lengths(const struct problem *problem)
{
    const int64_t rows = problem->packed ? 0 : rows_of_keys(problem, problem->dim[SYM_Q]);
    return rows > 0 && rows <= FEW_ROWS ? LENGTHS_FEW_QUERIES : 0;
}

static int usual_lengths(const struct problem *problem)
{
    enum { MANY = 8192, KEYS = 512, KEYS_OF_QUERY = 16 };
    const struct sequence s = sequence_of(problem);
    const int64_t rows = key_head_rows(problem);
    const bool few = rows > 0 && rows <= FEW_ROWS && s.kv >= KEYS && s.kv >= KEYS_OF_QUERY * s.q;
    return (s.kv >= MANY ? LENGTHS_MANY_KEYS : 0) | (few ? LENGTHS_FEW_QUERIES : 0);
}

int lathe__lengths(const struct problem *problem)
{
    const int64_t page = problem->paged ? problem->dim[SYM_PAGE] : -1;
    const bool odd = page > 0 && !lathe__tma_takes_page(page);
    const bool own = problem->deterministic == DETERMINISTIC_BATCH;
    const int lengths = own ? own_lengths(problem) : usual_lengths(problem);
    const bool nine = lengths & LENGTHS_FEW_QUERIES && lathe__has_nine_rows(problem);
    return lengths | (odd ? LENGTHS_ODD_PAGES : 0) | (nine ? LENGTHS_NINE_ROWS : 0);
}

bool lathe__tma_takes_page(int64_t page)
{
    enum { LEAST = 16, MOST = 256 }; /* tokens of a box */
    return page >= LEAST && page <= MOST && (page & (page - 1)) == 0;
}

int lathe__page_box(int64_t page, int tokens)
{
    const int part = tokens & -tokens; /* the largest power of two in it, as a page is one */
    return page < part ? (int)page : part;
}

int64_t lathe__packed(const struct signature *sig, const struct problem *problem)
{
    const int cu = lathe__arg_find(sig, "cu_q", 0);
    return cu >= 0 && arg_in(problem->present, cu) ? problem->dim[SYM_SEQS] : 0;
}

int64_t lathe__tensor_stride(const lathe_arg *t, int dim)
{
    if (t->strides)
        return t->strides[dim];
    int64_t stride = 1;
    for (int i = dim + 1; i < t->ndim; i++)
        stride *= t->shape[i];
    return stride;
}

bool lathe__is_float(lathe_dtype dtype)
{
    return dtype == LATHE_F32 || dtype == LATHE_F16 || dtype == LATHE_BF16 || dtype == LATHE_F64;
}

bool lathe__is_narrow(lathe_dtype dtype)
{
    return dtype == LATHE_F8_E4M3 || dtype == LATHE_F8_E5M2 || dtype == LATHE_I8;
}

int64_t lathe__dim_value(const struct problem *p, struct sig_dim dim)
{
    const struct sig_dim d = lathe__dim_here(p, dim);
    const int64_t value = d.literal > 0 ? d.literal : p->dim[d.sym];
    return value < 0 ? value : value * lathe__times(d) + d.plus;
}

/* ---- dtypes ------------------------------------------------------------------------------------ */

/* The first argument whose dtype is that of a role; -1: there is none. */
static int dtype_arg(const struct signature *sig, enum dtype_role role)
{
    for (int i = 0; i < sig->n_args; i++)
        if (sig->arg[i].dtype_role == (uint8_t)role && lathe__has_role_dtype(&sig->arg[i]))
            return i;
    return -1;
}

bool lathe__names_dtype(const struct signature *sig, int i)
{
    const struct sig_arg *a = &sig->arg[i];
    return lathe__has_own_dtype(a) || i == dtype_arg(sig, (enum dtype_role)a->dtype_role);
}

void lathe__problem_set_dtype(struct problem *p, lathe_dtype dtype)
{
    for (int role = DTYPE_USUAL; role < DTYPE_ROLES; role++)
        p->dtype[role] = role == DTYPE_STATE ? p->dtype[role] : dtype;
}

/* The dtype that an argument has where nothing says otherwise: gradients of 8 bits have that of q. */
static lathe_dtype default_dtype(const struct sig_arg *a, const struct problem *p)
{
    const lathe_dtype dtype = a->dtype == LATHE_NONE ? p->dtype[a->dtype_role] : (lathe_dtype)a->dtype;
    return lathe__is_narrow(dtype) && !a->narrow ? p->dtype[DTYPE_Q] : dtype;
}

/* A role has the dtype that the spec says, or the usual one. */
static void fill_roles(const struct signature *sig, struct problem *p)
{
    for (int i = 0; i < sig->n_args; i++) {
        lathe_dtype *const of_role = &p->dtype[sig->arg[i].dtype_role];
        if (*of_role == LATHE_NONE)
            *of_role = (lathe_dtype)sig->arg[i].dtype;
    }
    for (int role = DTYPE_Q; role < DTYPE_ROLES; role++)
        if (p->dtype[role] == LATHE_NONE)
            p->dtype[role] = p->dtype[DTYPE_USUAL];
}

/* Absent optional arguments still have a dtype: the plan may name it. */
void lathe__problem_fill_dtypes(const struct signature *sig, struct problem *p)
{
    fill_roles(sig, p);
    for (int i = 0; i < sig->n_args; i++) {
        const struct sig_arg *a = &sig->arg[i];
        if (p->arg_dtype[i] == LATHE_NONE)
            p->arg_dtype[i] = a->alias ? p->arg_dtype[a->alias - 1] : (uint8_t)default_dtype(a, p);
    }
    for (int role = DTYPE_Q; role < DTYPE_ROLES; role++)
        if (lathe__is_narrow(p->dtype[role])) /* as kernels have them, and results beside them */
            p->dtype[role] = p->dtype[DTYPE_Q];
    if (dtype_arg(sig, DTYPE_Q) >= 0) /* where q has 8 bits, the rest is as o is */
        p->dtype[DTYPE_USUAL] = p->dtype[lathe__is_narrow(p->dtype[DTYPE_Q]) ? DTYPE_O : DTYPE_Q];
}

bool lathe__has_narrow(const struct problem *problem)
{
    bool any = false;
    for (int i = 0; i < MAX_ARGS; i++)
        any |= lathe__is_narrow((lathe_dtype)problem->arg_dtype[i]);
    return any;
}

lathe_dtype lathe__narrow_dtype(const struct signature *sig, const struct problem *p, const char *name)
{
    const int i = lathe__arg_find(sig, name, 0);
    const lathe_dtype dtype = i >= 0 ? (lathe_dtype)p->arg_dtype[i] : LATHE_NONE;
    return lathe__is_narrow(dtype) ? dtype : LATHE_NONE;
}

int64_t lathe__token_stride(int64_t stride)
{
    enum { LEAST = 8 }; /* 16 bytes */
    return stride != 0 ? stride : LEAST;
}

bool lathe__tma_counts(int64_t tokens, int64_t apart, int64_t batches)
{
    return tokens <= RAGGED_ROWS && apart <= (RAGGED_ROWS - tokens) / batches;
}

bool lathe__tma_takes(int64_t stride_bytes)
{
    return stride_bytes > 0 && stride_bytes < (int64_t)1 << 40;
}
