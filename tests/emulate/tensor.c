/*
 * tensor.c: the arguments of a case: shapes, layouts and values.
 *
 * In: an argument of the signature and a case. Out: tensors with their rounded values, and the results of an
 * output. Every byte that is not an element is poison, in inputs too. The caller closes what it opened.
 */
#include "harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- pages ----------------------------------------------------------------------------------------- */

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* ---- random numbers -------------------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *state) /* splitmix64 */
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static double uniform(uint64_t *state)
{
    return (double)(next_random(state) >> 11) * 0x1p-53;
}

static int64_t between(uint64_t *state, int64_t low, int64_t high) /* both included */
{
    return low + (int64_t)(next_random(state) % (uint64_t)(high - low + 1));
}

static double normal(uint64_t *state)
{
    const double radius = sqrt(-2.0 * log(1.0 - uniform(state)));
    return radius * cos(6.283185307179586 * uniform(state));
}

/* ---- values ---------------------------------------------------------------------------------------- */

static bool is(const struct tensor *t, const char *name)
{
    return strcmp(t->name, name) == 0;
}

/* Elements of tensor i of a list: empty ones, parts of a vector, of a tile, several tiles. */
static int64_t list_length(int64_t i)
{
    static const int64_t LENGTH[] = {5, 0, 1, 2048, 257, 8192, 8193, 20000, 0, 64};
    return LENGTH[i % 10];
}

/* Of a token, in packed sequences of unequal lengths, shorter and longer than what is looked at together. */
static double place_in_sequence(int64_t token)
{
    static const int64_t BEGIN[] = {335, 298, 141, 128, 20, 0};
    int k = 0;
    token %= 447;
    while (token < BEGIN[k])
        k++;
    return (double)(token - BEGIN[k]);
}

/* Of a pool: one sequence has no state. Where it is read and written apart one begins without, one is not
   kept, one has neither, one begins as another does. */
static int64_t slot_of(const struct tensor *t, const struct test_case *c, int64_t sequence)
{
    const int64_t last = c->dim[SYM_SLOTS] - 1;
    if (is(t, "states_index")) /* of every third token */
        return sequence % 3 == 1 ? sequence / 3 : -1;
    if (is(t, "state_out_index"))
        return sequence == 0 ? last : sequence == 2 || sequence == 3 ? -1 : sequence;
    if (case_has(c, "state_out_index") && sequence >= 3)
        return sequence == 3 ? -1 : sequence == 4 ? last - 2 : last - sequence;
    return sequence == 1 ? -1 : last - sequence;
}

/* Of linear attention: logarithms of decays, weak ones, none, and one that forgets all; sequences of which
   some are empty; states of which one sequence has none; sums of keys that may divide. */
static bool linear_value(const struct tensor *t, const struct test_case *c, int64_t flat, uint64_t *state,
                         double *value)
{
    const int64_t seqs = c->dim[SYM_SEQS];
    const int64_t tokens = c->ends > 0 ? c->ends : c->dim[SYM_T];
    const double some = uniform(state);
    if (is(t, "g"))
        *value = some < 0.1 ? 0.0 : some < 0.12 ? -1e4 : -0.3 * fabs(normal(state));
    else if (is(t, "cu"))
        *value = flat < 2 && seqs > 1 ? 0.0
                 : flat == seqs       ? (double)tokens
                                      : (double)(tokens * flat * flat / (seqs * seqs));
    else if (strstr(t->name, "_index"))
        *value = (double)slot_of(t, c, flat);
    else if (is(t, "w") || is(t, "beta") || is(t, "depth"))
        *value = is(t, "w") ? -0.3 * fabs(normal(state)) : some;
    else if (is(t, "norm"))
        *value = 1.0 + fabs(normal(state));
    else
        return false;
    return true;
}

/* Of packed sequences of attention: none, one, a tile, one more, and what is left; the same of few queries
 * against many keys; or many of the same length. */
static int64_t sequence_place(const struct test_case *c, bool keys, int64_t i)
{
    static const int64_t LENGTH[2][6] = {{0, 1, 128, 129, 5, 64}, {3, 0, 130, 64, 129, 40}};
    static const int64_t FEW[2][6] = {{0, 1, 4, 17, 0}, {5, 300, 0, 700, 64}};
    /* Queries without keys and keys without queries behind those of others: is_alone. */
    static const int64_t ALONE[2][6] = {{70, 9, 0, 130, 33, 1}, {50, 0, 20, 140, 0, 64}};
    const int64_t seqs = c->dim[SYM_SEQS];
    const int64_t tokens = c->dim[keys ? SYM_KV : SYM_Q];
    const bool listed = seqs == 6 || seqs == 7 || (seqs == SEQUENCES_ALONE && strstr(c->group, "varlen"));
    int64_t place = 0;
    for (int64_t k = 0; listed && k < i && k < 6; k++)
        place += (seqs == 7 ? LENGTH : seqs == 6 ? FEW : ALONE)[keys][k];
    return i == seqs ? tokens : listed ? place : tokens * i / seqs;
}

/* Of pages: none, one, all, one less; a tile and more, and beside the borders of pages. */
static int64_t keys_in_pages(const struct test_case *c, int64_t i)
{
    const int64_t room = c->dim[SYM_KV];
    const int64_t some[] = {
        room - 1, 0, room / 2 + 1, 1, room, 65 % (room + 1), c->dim[SYM_PAGE] % (room + 1)};
    return c->without && strstr(c->without, "used_kv") ? room : some[i % 7];
}

/* Which page of the pool holds page m of a sequence; places that no key in use needs are outside. */
static int64_t page_of(const struct test_case *c, int64_t sequence, int64_t m)
{
    if (m * c->dim[SYM_PAGE] >= keys_in_pages(c, sequence))
        return m % 2 ? -1 - m : c->dim[SYM_POOL] + m;
    return c->dim[SYM_POOL] - 2 - (m * c->dim[SYM_SEQS] + sequence);
}

static int64_t keys_in_use(const struct test_case *c, int64_t i)
{
    if (case_has_pages(c))
        return keys_in_pages(c, i);

    const bool packed = c->dim[SYM_SEQS] != c->dim[SYM_B];
    const int64_t room =
        packed ? sequence_place(c, true, i + 1) - sequence_place(c, true, i) : c->dim[SYM_KV];
    return packed ? (room > 3 * i ? room - 3 * i : 0) : room * (2 - i % 3) / 2;
}

/* The first key that a spec with such an input looks at: the first, one in the middle, the last, none. */
static int64_t first_live(const struct test_case *c, int64_t i)
{
    const bool listed = case_has_pages(c) || strstr(c->group, "varlen") != NULL;
    const int64_t keys = listed ? keys_in_use(c, i) : c->dim[SYM_KV];
    const int64_t some[] = {keys / 2 + 5, 0, keys - 1, keys};
    return some[i % 4] > 0 ? some[i % 4] : 0;
}

/* A tile of up to 64 keys ahead of it is dead as a whole. */
static bool is_ahead(const struct test_case *c, int64_t sequence, int64_t token)
{
    return c->text && strstr(c->text, "live_from") && token < first_live(c, sequence) / 64 * 64;
}

/* Does no sequence have a key there? */
static bool is_free(const struct test_case *c, int64_t page, int64_t row)
{
    const int64_t turn = c->dim[SYM_POOL] - 2 - page;
    if (turn < 0 || turn >= c->dim[SYM_SEQS] * c->dim[SYM_MOST])
        return true;
    const int64_t token = turn / c->dim[SYM_SEQS] * c->dim[SYM_PAGE] + row;
    const int64_t sequence = turn % c->dim[SYM_SEQS];
    return token >= keys_in_pages(c, sequence) || is_ahead(c, sequence, token);
}

/* Of parts of rows: states that any online function may have had, and which rows have had a live pair in the
   part; every fifth has had none in any. */
static bool part_value(const struct tensor *t, const struct test_case *c, int64_t flat, uint64_t *state,
                       double *value)
{
    if (c->pass != LATHE_COMBINE || !(is(t, "part_o") || is(t, "part_rows")))
        return false;
    const int64_t width = t->shape[t->ndim - 1];
    const int64_t rows = t->shape[1] * t->shape[2] * t->shape[3];
    const int64_t row = flat / width % rows;
    const bool live = row % 5 != 3 && (row + flat / width / rows) % 3 != 1;
    const double some = normal(state);
    if (is(t, "part_o"))
        *value = live ? some : (double)NAN;
    else
        *value = flat % width == width - 1 ? (double)live : live ? 0.5 + fabs(some) : (double)NAN;
    return true;
}

static bool sequence_value(const struct tensor *t, const struct test_case *c, int64_t flat, double *value)
{
    if (is(t, "cu_q") || is(t, "cu_kv"))
        *value = (double)sequence_place(c, is(t, "cu_kv"), flat);
    else if (is(t, "used_kv"))
        *value = (double)keys_in_use(c, flat);
    else if (is(t, "live_from"))
        *value = (double)first_live(c, flat);
    else if (is(t, "pages"))
        *value = (double)page_of(c, flat / c->dim[SYM_MOST], flat % c->dim[SYM_MOST]);
    else
        return false;
    return true;
}

/* Queries of a sequence without keys, and keys of one without queries, are NaN: nothing may come of them,
 * neither there nor in the sequence before, whose last tile goes on over them. */
static bool is_alone(const struct tensor *t, const struct test_case *c, int64_t flat)
{
    const bool keys = is(t, "k") || is(t, "v");
    if (!strstr(c->group, "varlen") || c->dim[SYM_SEQS] != SEQUENCES_ALONE ||
        !(keys || is(t, "q") || is(t, "do")))
        return false;
    const int64_t token = flat / t->shape[3] % t->shape[2];
    int64_t i = 0;
    while (sequence_place(c, keys, i + 1) <= token)
        i++;
    return sequence_place(c, !keys, i) == sequence_place(c, !keys, i + 1);
}

/* Keys and values behind those in use are NaN, too. */
static bool is_not_in_use(const struct tensor *t, const struct test_case *c, int64_t flat)
{
    if (case_has_pages(c) && (is(t, "k") || is(t, "v")))
        return is_free(c, flat / t->shape[3] / t->shape[2] / t->shape[1], flat / t->shape[3] % t->shape[2]);
    if (is_alone(t, c, flat))
        return true;
    if (!(is(t, "k") || is(t, "v")))
        return false;
    const bool used = strstr(c->group, "varlen") && !(c->without && strstr(c->without, "used_kv"));
    if (!used && !(c->text && strstr(c->text, "live_from")))
        return false;
    const int64_t token = flat / t->shape[3] % t->shape[2];
    const int64_t batch = flat / t->shape[3] / t->shape[2] / t->shape[1];
    if (c->dim[SYM_SEQS] < 0 || c->dim[SYM_SEQS] == c->dim[SYM_B])
        return (used && token >= keys_in_use(c, batch)) || is_ahead(c, batch, token);
    int64_t i = 0;
    while (sequence_place(c, true, i + 1) <= token)
        i++;
    const int64_t place = token - sequence_place(c, true, i);
    return (used && place >= keys_in_use(c, i)) || is_ahead(c, i, place);
}

/* Blocks of 64 keys that a query reads, in no order and none twice; columns of rows of blocks. */
static bool selection_value(const struct tensor *t, const struct test_case *c, int64_t flat, int64_t last,
                            uint64_t *state, double *value)
{
    const int64_t blocks = (c->dim[SYM_KV] + 63) / 64;
    const int64_t turn = blocks + 1 > last ? blocks + 1 : last;
    if (is(t, "blocks") && c->dim[SYM_Q] >= 0) {
        const int64_t block = (flat / last * 3 + flat % last * 5) % (turn % 5 == 0 ? turn + 1 : turn);
        *value = block < blocks ? (double)block : -1.0;
    } else if (is(t, "past"))
        *value = (double)between(state, 0, 130);
    else if (is(t, "own"))
        *value = (double)between(state, 0, c->dim[SYM_N] - 1);
    else if (is(t, "first") && !c->sizes)
        *value = (double)(flat % 3 == 0 ? 0 : between(state, 0, c->dim[SYM_N] - 1) / 2);
    else
        return false;
    return true;
}

/* Of chunks of up to 4 tokens, and their steps; and lists of rising numbers, some of them empty, in tensors
 * of 7. */
static bool list_value(const struct tensor *t, int64_t flat, int64_t last, double *value)
{
    if (is(t, "first"))
        *value = 4.0 * (double)flat;
    else if (is(t, "length"))
        *value = (double)(1 + 7 * flat % 4);
    else if (is(t, "place"))
        *value = (double)flat;
    else if (is(t, "counts"))
        *value = (double)(flat * 5 % 8);
    else if (is(t, "blocks"))
        *value = (double)(flat % last * 3 + flat / last % 3);
    else
        return false;
    return true;
}

/* Of the group `variants`: grids of up to 4 points, windows and gaps that cut them, documents that see the
 * one before, images of 7 tokens with 20 rows each, ways through a graph, sums of logarithms of gates. */
static bool variant_value(const struct tensor *t, const struct test_case *c, int64_t flat, int64_t last,
                          uint64_t *state, double *value)
{
    static const struct {
        const char *name;
        double least, most;
    } DRAWN[] = {{"dilation_", 1, 3}, {"window_", 1, 6},   {"globals", 0, 20}, {"text", 0, 30},
                 {"targets", 0, 20},  {"distance", 0, 39}, {"path", -1, 39},   {"keep", 0, 4},
                 {"block", 16, 16},   {"tile", 16, 16},    {"tokens", 7, 7},   {"n", 64, 64}};
    if (strcmp(c->group, "variants") != 0)
        return false;
    for (size_t i = 0; i < sizeof DRAWN / sizeof *DRAWN; i++) {
        const size_t length = strlen(DRAWN[i].name);
        if (strncmp(t->name, DRAWN[i].name, length) == 0 &&
            (DRAWN[i].name[length - 1] == '_' || !t->name[length])) {
            *value = (double)between(state, (int64_t)DRAWN[i].least, (int64_t)DRAWN[i].most);
            *value = is(t, "keep") && *value > 1 ? 1 : *value;
            return true;
        }
    }
    if (is(t, "first") || is(t, "last"))
        *value = fmin((double)(9 * (flat % last) + (is(t, "last") ? 20 : 0)), (double)c->dim[SYM_Q]);
    else if (is(t, "prefix"))
        *value = (double)(flat % last - 1);
    else if (is(t, "since") || is(t, "seq")) /* sequences of 7 tokens */
        *value = (double)(is(t, "since") ? flat % last % 7 : flat % last / 7);
    else if (is(t, "gates"))
        *value = -0.05 * (double)(flat % last) - 0.02 * uniform(state);
    else
        return false;
    return true;
}

/* What makes sense for the inputs of the shipped specs and of this test's own; others are normal. */
static double input_value(const struct tensor *t, const struct test_case *c, int64_t flat, uint64_t *state)
{
    const int64_t last = t->ndim > 0 ? t->shape[t->ndim - 1] : 1;
    double linear = 0;
    if (variant_value(t, c, flat, last, state, &linear))
        return linear;
    if (c->dim[SYM_T] >= 0 && linear_value(t, c, flat, state, &linear))
        return linear;
    if (c->dim[SYM_Q] >= 0 && sequence_value(t, c, flat, &linear))
        return linear;
    if (selection_value(t, c, flat, last, state, &linear) || list_value(t, flat, last, &linear))
        return linear;
    if (is(t, "doc")) /* ascending, a new document every 37 tokens or so */
        return (double)((flat % last + 11 * (flat / last)) / 37);
    if (is(t, "from") || is(t, "count")) /* of every fifth row all keys, up to the largest number */
        return flat % 5 == 0 ? (is(t, "from") ? 2147483647.0 : 0.0) : (double)between(state, 0, 100);
    if (is(t, "grid_h") || is(t, "grid_w")) /* planes of 5 x 7 */
        return is(t, "grid_h") ? 5.0 : 7.0;
    if (is(t, "copy") || is(t, "part"))
        return is(t, "copy") ? 200.0 : 16.0;
    if (is(t, "chosen") || is(t, "live"))
        return uniform(state) < 0.3 ? 1.0 : 0.0;
    if (is(t, "prefix"))
        return (double)between(state, 0, c->dim[SYM_KV] + 3);
    if (is(t, "window"))
        return (double)between(state, 1, 100);
    if (is(t, "eps"))
        return 1e-5;
    if (is(t, "pos") || is(t, "offset"))
        return (double)between(state, 0, 60);
    if (is(t, "n_2") || is(t, "n_3") || is(t, "l")) /* a grid */
        return (double)between(state, 1, 4);
    if (is(t, "slot")) /* each once, from the last down, and one that is none */
        return flat == 1 ? -1.0 : (double)(named_size(c->sizes, "slots") - 1 - flat);
    if (is(t, "e"))
        return 0.0;
    if (is(t, "id"))
        return (double)between(state, 0, 39);
    if (is(t, "lengths_of"))
        return (double)((flat * 7) % 5);
    if (is(t, "cu_seqlens") || is(t, "chunk_offsets")) /* 0 0 3 3 3 6 6 ... */
        return (double)(flat / 3 * 3 + (flat % 3 == 2 ? 3 : 0));
    if (is(t, "n"))
        return (double)named_size(c->sizes, "ends") - 1.0;
    if (is(t, "chunk"))
        return 2.0;
    if (is(t, "base"))
        return 10000.0;
    if (is(t, "lengths"))
        return (double)list_length(flat);
    if (is(t, "p") && t->ndim == 0) /* of dropout */
        return c->skewed ? 0.0 : 0.3;
    if (is(t, "seed"))
        return c->skewed ? 7.0 : 0.0;
    if (is(t, "target")) /* of cross entropy */
        return uniform(state) < 0.2 ? -100.0 : (double)between(state, 0, c->dim[SYM_N] - 1);
    if (is(t, "since")) /* places in packed sequences */
        return place_in_sequence(flat);
    if (is(t, "long_since")) /* the same, all sequences 37 times as long */
        return place_in_sequence(flat / 37) * 37.0 + (double)(flat % 37);
    if (is(t, "groups"))
        return 7.0;
    if (is(t, "channels")) /* a place of its own for each element, or for many */
        return c->dim[SYM_N] <= 33 ? (double)c->dim[SYM_N] : 10.0;
    if (is(t, "ignore"))
        return -100.0;
    if (is(t, "smoothing"))
        return 0.1;
    if (is(t, "lr"))
        return 0.01;
    if (is(t, "beta1") || is(t, "beta2") || is(t, "decay") || is(t, "bias1") || is(t, "bias2"))
        return 0.5 + 0.4 * uniform(state);
    if (is(t, "block") || is(t, "on")) /* masks */
        return (double)(uniform(state) < 0.6);
    if (is(t, "weight") || is(t, "q_gain") || is(t, "k_gain"))
        return 1.0 + 0.3 * normal(state);
    const double value = normal(state);
    if (is(t, "gain") || is(t, "row") || is(t, "column") || is(t, "far") || is(t, "step")) /* factors */
        return value;
    return c->infinite && uniform(state) < 0.2 ? (double)-INFINITY : value;
}

static double element_value(const struct tensor *t, const struct test_case *c, int64_t flat, uint64_t *state)
{
    double part = 0;
    if (is_not_in_use(t, c, flat))
        return (double)NAN;
    if (part_value(t, c, flat, state, &part))
        return part;
    if (t->role != ROLE_IN || t->dtype == LATHE_I32 || t->dtype == LATHE_U8 || is(t, "norm"))
        return input_value(t, c, flat, state);
    if (c->sizes && is(t, "s")) /* a mean of squares */
        return fabs(normal(state));
    if (is(t, "x") && c->skewed && !c->sizes) /* exponents far apart, and near one another in between */
        return flat % 5 == 0 ? 60.0 * normal(state) : 3.0 * normal(state);
    const bool logit = is(t, "q") || is(t, "k");
    if (logit && c->loud > 0)
        return normal(state) * c->loud;
    return normal(state) * (logit && c->skewed ? SKEWED_SPREAD : 1.0) + (is(t, "x") ? 0.5 : 0.0);
}

static int64_t element_place(const struct tensor *t, int64_t flat)
{
    int64_t i = 0;
    while (flat >= list_length(i))
        flat -= list_length(i++);
    return t->start[i] + flat;
}

/* From the start of its block. */
int64_t tensor_place(const struct tensor *t, int64_t flat)
{
    int64_t at = t->offset;
    if (t->list)
        return element_place(t, flat);
    for (int d = t->ndim - 1; d >= 0; d--) {
        at += flat % t->shape[d] * t->strides[d];
        flat /= t->shape[d];
    }
    return at;
}

void tensor_store(struct tensor *t)
{
    for (int64_t i = 0; i < t->count; i++) {
        const int64_t at = tensor_place(t, i);
        dtype_store(t->dtype, t->block.data, at, t->value[i]);
        t->value[i] = dtype_load(t->dtype, t->block.data, at);
    }
}

/* Elements of one place are what came there last. */
static void read_back(struct tensor *t)
{
    for (int64_t i = 0; i < t->count; i++)
        t->value[i] = dtype_load(t->dtype, t->block.data, tensor_place(t, i));
}

/* The element, as any dtype of the test holds it exactly: rounded to the narrowest, bf16 with f16's range. */
static void make_values(struct tensor *t, const struct test_case *c, uint64_t seed)
{
    uint64_t state = seed;
    for (int64_t i = 0; i < t->count; i++) {
        const int64_t at = tensor_place(t, i);
        dtype_store(t->dtype, t->block.data, at, element_value(t, c, i, &state));
    }
    read_back(t);
}

void tensor_fill(struct tensor *t, const double *value)
{
    void *const data = t->block.data ? (void *)t->block.data : &t->scalar;
    for (int64_t i = 0; i < t->count; i++) {
        int64_t at = t->offset;
        int64_t rest = i;
        for (int d = t->ndim - 1; d >= 0; d--) {
            at += rest % t->shape[d] * t->strides[d];
            rest /= t->shape[d];
        }
        dtype_store(t->dtype, data, at, value[i]);
        t->value[i] = dtype_load(t->dtype, data, at);
    }
}

/* ---- layout ---------------------------------------------------------------------------------------- */

static void set_shape(struct tensor *t, const struct sig_arg *a, const struct test_case *c)
{
    const int skip = !a->leading_optional ? 0 : c->sizes ? c->leading : 3 - c->leading;
    t->ndim = a->ndim - skip;
    t->count = 1;
    for (int i = 0; i < t->ndim; i++) {
        const struct problem here = {.paged = case_has_pages(c),
                                     .cut_keys = c->dim[SYM_ALL_KV] >= 0,
                                     .cut_heads = c->dim[SYM_ALL_H] >= 0};
        const struct sig_dim d = lathe__dim_here(&here, a->dim[i + skip]);
        t->shape[i] = d.sym == SYM_ONE ? (d.literal > 0 ? d.literal : 1) : c->dim[d.sym];
        t->shape[i] = t->shape[i] * lathe__times(d) + d.plus;
        t->count *= t->shape[i];
    }
}

static int64_t padding(const struct tensor *t, const struct sig_arg *a, enum layout layout, uint64_t *state)
{
    const int64_t size = (int64_t)lathe_dtype_size(t->dtype);
    if (layout == LAYOUT_MISALIGNED)
        return between(state, 0, 2) * 2 + 1;
    const bool aligned = a->dtype == LATHE_NONE || is(t, "part_o");
    return aligned ? 16 / size * between(state, 1, 3) : between(state, 1, 3);
}

/* On Hopper sequences lie whole tokens apart: others have another kernel. */
static bool has_whole_tokens(const struct test_case *c)
{
    return c->template_name && strcmp(c->template_name, "attention_fwd_sm90") == 0 && c->dim[SYM_SEQS] > 0;
}

/* Strides from the innermost dim outwards; SWAPPED exchanges dims 1 and 2, which are heads and tokens. */
static int64_t lay_out(struct tensor *t, const struct sig_arg *a, const struct test_case *c, uint64_t *state)
{
    const bool padded = c->layout == LAYOUT_PADDED || c->layout == LAYOUT_MISALIGNED;
    const bool dense = a->unit_last || t->ndim == 0 || (c->sizes && c->layout == LAYOUT_PADDED);
    const bool spread = c->layout == LAYOUT_SPREAD && a->any_last;
    const bool still = spread && strcmp(t->name, "do") == 0;
    int64_t stride = padded && !dense ? between(state, 1, 2) : spread ? 3 : 1;
    int64_t reach = t->count > 0 ? 1 : 0;
    for (int i = t->ndim - 1; i >= 0; i--) {
        const bool swap = c->layout == LAYOUT_SWAPPED && t->ndim >= 3 && (i == 1 || i == 2);
        const int dim = swap ? 3 - i : i;
        t->strides[dim] = still ? 0 : stride;
        reach += t->count > 0 ? (t->shape[dim] - 1) * t->strides[dim] : 0;
        stride *= still ? 1 : t->shape[dim] > 0 ? t->shape[dim] : 1;
        stride += padded && i > 0 ? padding(t, a, c->layout, state) : 0;
        if (i == 1 && a->unit_last && t->ndim == 4 && has_whole_tokens(c))
            stride = (stride + t->strides[2] - 1) / t->strides[2] * t->strides[2];
    }
    t->offset = padded ? padding(t, a, c->layout, state) : 0;
    return t->offset + reach;
}

/* ---- lists ------------------------------------------------------------------------------------------- */

/* Every tensor of the list starts at 16 bytes, or anywhere, and is followed by poison. */
static bool open_list(struct tensor *t, const struct test_case *c, uint64_t seed)
{
    uint64_t state = seed;
    const int64_t n = t->shape[0];
    const int64_t vector = 16 / (int64_t)lathe_dtype_size(t->dtype);
    int64_t at = 0;
    t->list = true;
    t->count = 0;
    t->start = calloc((size_t)n + 1, sizeof *t->start);
    t->reference = calloc((size_t)n + 1, sizeof *t->reference);
    for (int64_t i = 0; i < n && t->start; i++) {
        at += c->layout == LAYOUT_MISALIGNED ? between(&state, 1, 3) : vector;
        t->start[i] = at;
        t->count += list_length(i);
        at = (int64_t)round_up((size_t)(at + list_length(i)), (size_t)vector);
    }
    t->value = calloc(t->count > 0 ? (size_t)t->count : 1, sizeof *t->value);
    if (!t->start || !t->reference || !t->value ||
        !block_open(&t->block, (size_t)at * lathe_dtype_size(t->dtype), 16) ||
        !block_open(&t->pointers, (size_t)n * sizeof(void *), 16))
        return false;
    int64_t before = 0;
    for (int64_t i = 0; i < n; i++) {
        void *data = t->block.data + (size_t)t->start[i] * lathe_dtype_size(t->dtype);
        memcpy(t->pointers.data + (size_t)i * sizeof data, (const void *)&data, sizeof data);
        t->reference[i] = (unsigned char *)t->value + (size_t)before * lathe_dtype_size(t->expects);
        before += list_length(i);
    }
    return true;
}

static lathe_dtype named_dtype(const char *dtypes, const char *name)
{
    char item[NAME_MAX_BYTES + 8];
    for (int d = LATHE_F32; d <= LATHE_I8; d++) {
        snprintf(item, sizeof item, "%s=%s", name, lathe_dtype_text((lathe_dtype)d));
        const char *at = strstr(dtypes, item);
        if (at && (at == dtypes || at[-1] == ','))
            return (lathe_dtype)d;
    }
    return LATHE_NONE;
}

/* Where queries, keys and heads stand among all. */
static double place_value(const struct tensor *t, const struct test_case *c)
{
    return (double)(is(t, "q_start")    ? c->q_start
                    : is(t, "kv_start") ? c->kv_start
                    : is(t, "h_start")  ? c->h_start
                    : is(t, "len_kv")   ? c->dim[SYM_ALL_KV]
                                        : c->dim[SYM_ALL_H]);
}

static bool open_scalar(struct tensor *t, const struct test_case *c, uint64_t seed)
{
    uint64_t state = seed;
    t->value = calloc(1, sizeof *t->value);
    if (!t->value)
        return false;
    const double value = t->role < ROLE_Q_START ? input_value(t, c, 0, &state) : place_value(t, c);
    dtype_store(t->dtype, &t->scalar, 0, value);
    t->value[0] = dtype_load(t->dtype, &t->scalar, 0);
    t->count = 1;
    return true;
}

bool tensor_is_output(const struct tensor *t)
{
    return t->role == ROLE_OUT || t->role == ROLE_OUT_OPTIONAL || t->in_place;
}

/* Of integers and of 16 bits, where the spec fixes them, the host device takes no f64 in their place. */
static lathe_dtype expected_dtype(const struct sig_arg *a)
{
    const lathe_dtype dtype = (lathe_dtype)a->dtype;
    return dtype == LATHE_NONE || dtype == LATHE_F32 ? LATHE_F64 : dtype;
}

bool tensor_open(struct tensor *t, const struct signature *sig, int arg, const struct test_case *c,
                 uint64_t seed)
{
    const struct sig_arg *a = &sig->arg[arg];
    uint64_t state = seed ^ 0x5eedu;
    memset(t, 0, sizeof *t);
    snprintf(t->name, sizeof t->name, "%s", a->name);
    t->role = a->role;
    t->by_rows = c->sizes != NULL || c->dim[SYM_T] >= 0 || is(t, "part_o");
    t->dtype = a->dtype == LATHE_NONE ? c->dtype : (lathe_dtype)a->dtype;
    if (a->role == ROLE_INPUT && a->dtype == LATHE_NONE && c->layout == LAYOUT_SWAPPED)
        t->dtype = LATHE_F32; /* an input whose dtype is open may also be wider than the problem's */
    const lathe_dtype own = c->dtypes ? named_dtype(c->dtypes, t->name) : LATHE_NONE;
    t->dtype = own != LATHE_NONE ? own : t->dtype;
    t->expects = expected_dtype(a);
    if (lathe__is_host_value(a))
        return open_scalar(t, c, seed);
    set_shape(t, a, c);
    if (a->list) {
        const bool opened = open_list(t, c, state);
        if (opened && !tensor_is_output(t))
            make_values(t, c, seed);
        return opened;
    }
    const int64_t span = lay_out(t, a, c, &state);
    t->value = calloc(t->count > 0 ? (size_t)t->count : 1, sizeof *t->value);
    if (!t->value || !block_open(&t->block, (size_t)span * lathe_dtype_size(t->dtype), 16))
        return false;
    if (!tensor_is_output(t))
        make_values(t, c, seed);
    return true;
}

void tensor_close(struct tensor *t)
{
    block_close(&t->block);
    block_close(&t->pointers);
    free(t->start);
    free(t->reference);
    free(t->value);
    memset(t, 0, sizeof *t);
}

/* ---- as arguments ---------------------------------------------------------------------------------- */

lathe_arg tensor_arg(const struct tensor *t)
{
    if (!t->block.data)
        return (lathe_arg){t->name, (void *)(uintptr_t)&t->scalar, t->dtype, 0, NULL, NULL};
    if (t->list)
        return (lathe_arg){t->name, t->pointers.data, t->dtype, t->ndim, t->shape, NULL};
    unsigned char *first = t->block.data + (size_t)t->offset * lathe_dtype_size(t->dtype);
    return (lathe_arg){t->name, first, t->dtype, t->ndim, t->shape, t->strides};
}

lathe_arg tensor_reference(const struct tensor *t, const struct sig_arg *a)
{
    const bool fixed = t->expects != LATHE_F64 || (a->role == ROLE_INPUT && a->dtype != LATHE_NONE);
    if (!t->block.data || (fixed && !tensor_is_output(t)))
        return tensor_arg(t);
    if (t->list)
        return (lathe_arg){t->name, t->reference, t->expects, t->ndim, t->shape, NULL};
    return (lathe_arg){t->name, t->value, t->expects, t->ndim, t->shape, NULL};
}

void tensor_widen(struct tensor *t)
{
    if (!tensor_is_output(t) || t->expects == LATHE_F64)
        return;
    for (int64_t i = t->count - 1; i >= 0; i--)
        t->value[i] = dtype_load(t->expects, t->value, i);
}
