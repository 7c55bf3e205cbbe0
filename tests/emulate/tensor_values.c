/*
 * tensor_values.c: the values of a case's inputs: normal ones, and by an argument's name what makes sense for
 * it, as places, lengths, pages, masks and gates.
 *
 * In: a tensor with its shape, the number of an element, the state of the random numbers. Out: its value,
 * which its dtype has not rounded yet.
 */
#include "tensor_values.h"
#include "draw.h"

#include <string.h>

/* Elements of tensor i of a list: empty ones, parts of a vector, of a tile, several tiles. */
int64_t tensor_list_length(int64_t i)
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

/* Where packed sequences of linear attention begin: twelve have lengths beside ends of steps of 16 tokens and
   of chunks of 64, of several chunks, and none: in front, in the middle and last. */
static double place_of_packed(const struct test_case *c, int64_t sequence)
{
    static const int LENGTH[] = {0, 1, 15, 16, 17, 0, 63, 64, 65, 127, 130, 0};
    const int64_t seqs = c->dim[SYM_SEQS];
    const int64_t tokens = c->ends > 0 ? c->ends : c->dim[SYM_T];
    int64_t place = 0;
    if (seqs != (int64_t)(sizeof LENGTH / sizeof *LENGTH))
        return sequence < 2 && seqs > 1 ? 0.0
               : sequence == seqs       ? (double)tokens
                                        : (double)(tokens * sequence * sequence / (seqs * seqs));
    for (int64_t k = 0; k < sequence; k++)
        place += LENGTH[k];
    return (double)(place < tokens ? place : tokens);
}

/* Of a case that names a template by chunks: the state behind every n-th token of its sequence as they are
   read, and behind the last one; of each third sequence also one in between. */
static bool is_kept(const struct test_case *c, int64_t token)
{
    const int64_t t = c->dim[SYM_T];
    const bool packed = !(c->without && strstr(c->without, " cu "));
    const bool back = c->text && strstr(c->text, "reverse = true");
    const int64_t each = strstr(c->template_name, "additive") ? 48 : 64;
    int64_t number = packed ? 0 : token / t;
    int64_t begin = packed ? 0 : number * t;
    int64_t end = packed ? 0 : begin + t;
    for (; packed && number < c->dim[SYM_SEQS]; number++) {
        begin = (int64_t)place_of_packed(c, number);
        end = (int64_t)place_of_packed(c, number + 1);
        if (begin <= token && token < end)
            break;
    }
    if (token >= end) /* of no sequence */
        return false;
    const int64_t place = back ? end - 1 - token : token - begin;
    return (place + 1) % each == 0 || place == end - begin - 1 ||
           (number % 3 == 1 && place == (end - begin) / 2);
}

int64_t kept_before(const struct test_case *c, int64_t token)
{
    int64_t n = 0;
    for (int64_t i = 0; i < token; i++)
        n += is_kept(c, i);
    return n;
}

/* Of a pool: one sequence has no state. Where it is read and written apart one begins without, one is not
   kept, one has neither, one begins as another does. */
static int64_t slot_of(const struct tensor *t, const struct test_case *c, int64_t sequence)
{
    const int64_t last = c->dim[SYM_SLOTS] - 1;
    if (tensor_is(t, "states_index") && c->template_name)
        return is_kept(c, sequence) ? kept_before(c, sequence) : -1;
    if (tensor_is(t, "states_index")) /* of every third token */
        return sequence % 3 == 1 ? sequence / 3 : -1;
    if (tensor_is(t, "state_out_index"))
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
    const double some = uniform(state);
    if (tensor_is(t, "g"))
        *value = some < 0.1 ? 0.0 : some < 0.12 ? -1e4 : -0.3 * fabs(normal(state));
    else if (tensor_is(t, "cu"))
        *value = place_of_packed(c, flat);
    else if (strstr(t->name, "_index"))
        *value = (double)slot_of(t, c, flat);
    else if (tensor_is(t, "w") || tensor_is(t, "beta") || tensor_is(t, "depth"))
        *value = tensor_is(t, "w") ? -0.3 * fabs(normal(state)) : some;
    else if (tensor_is(t, "norm"))
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

/* How many sequences have pages of their own: all; or, where the pool has no room for that, two, and others
   share these in turn. */
static int64_t owners_of_pages(const struct test_case *c)
{
    const int64_t seqs = c->dim[SYM_SEQS];
    return c->dim[SYM_POOL] >= seqs * c->dim[SYM_MOST] || seqs < 2 ? seqs : 2;
}

/* Which page of the pool holds page m of a sequence; places that no key in use needs are outside. */
static int64_t page_of(const struct test_case *c, int64_t sequence, int64_t m)
{
    if (m * c->dim[SYM_PAGE] >= keys_in_pages(c, sequence))
        return m % 2 ? -1 - m : c->dim[SYM_POOL] + m;
    return c->dim[SYM_POOL] - 2 - (m * owners_of_pages(c) + sequence % owners_of_pages(c));
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
    const int64_t owners = owners_of_pages(c);
    if (turn < 0 || turn >= owners * c->dim[SYM_MOST])
        return true;
    const int64_t token = turn / owners * c->dim[SYM_PAGE] + row;
    bool free = true;
    for (int64_t i = turn % owners; i < c->dim[SYM_SEQS]; i += owners)
        free = free && (token >= keys_in_pages(c, i) || is_ahead(c, i, token));
    return free;
}

/* Of parts of rows: states that any online function may have had, and which rows have had a live pair in the
   part; every fifth has had none in any. */
static bool part_value(const struct tensor *t, const struct test_case *c, int64_t flat, uint64_t *state,
                       double *value)
{
    if (c->pass != LATHE_COMBINE || !(tensor_is(t, "part_o") || tensor_is(t, "part_rows")))
        return false;
    const int64_t width = t->shape[t->ndim - 1];
    const int64_t rows = t->shape[1] * t->shape[2] * t->shape[3];
    const int64_t row = flat / width % rows;
    const bool live = row % 5 != 3 && (row + flat / width / rows) % 3 != 1;
    const double some = normal(state);
    if (tensor_is(t, "part_o"))
        *value = live ? some : (double)NAN;
    else
        *value = flat % width == width - 1 ? (double)live : live ? 0.5 + fabs(some) : (double)NAN;
    return true;
}

static bool sequence_value(const struct tensor *t, const struct test_case *c, int64_t flat, double *value)
{
    if (tensor_is(t, "cu_q") || tensor_is(t, "cu_kv"))
        *value = (double)sequence_place(c, tensor_is(t, "cu_kv"), flat);
    else if (tensor_is(t, "used_kv"))
        *value = (double)keys_in_use(c, flat);
    else if (tensor_is(t, "live_from"))
        *value = (double)first_live(c, flat);
    else if (tensor_is(t, "pages"))
        *value = (double)page_of(c, flat / c->dim[SYM_MOST], flat % c->dim[SYM_MOST]);
    else
        return false;
    return true;
}

/* Queries of a sequence without keys, and keys of one without queries, are NaN: nothing may come of them,
 * neither there nor in the sequence before, whose last tile goes on over them. */
static bool is_alone(const struct tensor *t, const struct test_case *c, int64_t flat)
{
    const bool keys = tensor_is(t, "k") || tensor_is(t, "v");
    if (!strstr(c->group, "varlen") || c->dim[SYM_SEQS] != SEQUENCES_ALONE ||
        !(keys || tensor_is(t, "q") || tensor_is(t, "do")))
        return false;
    const int64_t token = flat / t->shape[3] % t->shape[2];
    int64_t i = 0;
    while (sequence_place(c, keys, i + 1) <= token)
        i++;
    return sequence_place(c, !keys, i) == sequence_place(c, !keys, i + 1);
}

/* Does the case leave elements of this tensor unused? Asked once of a tensor: its answer is found in texts.
 */
bool tensor_may_be_unused(const struct tensor *t, const struct test_case *c)
{
    const bool keys = tensor_is(t, "k") || tensor_is(t, "v");
    const bool varlen = strstr(c->group, "varlen") != NULL;
    return (keys && (case_has_pages(c) || varlen || (c->text && strstr(c->text, "live_from")))) ||
           (varlen && c->dim[SYM_SEQS] == SEQUENCES_ALONE && (tensor_is(t, "q") || tensor_is(t, "do")));
}

/* Keys and values behind those in use are NaN, too. */
bool tensor_is_unused(const struct tensor *t, const struct test_case *c, int64_t flat)
{
    if (case_has_pages(c) && (tensor_is(t, "k") || tensor_is(t, "v")))
        return is_free(c, flat / t->shape[3] / t->shape[2] / t->shape[1], flat / t->shape[3] % t->shape[2]);
    if (is_alone(t, c, flat))
        return true;
    if (!(tensor_is(t, "k") || tensor_is(t, "v")))
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
    if (tensor_is(t, "blocks") && c->dim[SYM_Q] >= 0) {
        const int64_t block = (flat / last * 3 + flat % last * 5) % (turn % 5 == 0 ? turn + 1 : turn);
        *value = block < blocks ? (double)block : -1.0;
    } else if (tensor_is(t, "past"))
        *value = (double)between(state, 0, 130);
    else if (tensor_is(t, "own"))
        *value = (double)between(state, 0, c->dim[SYM_N] - 1);
    else if (tensor_is(t, "first") && !c->sizes)
        *value = (double)(flat % 3 == 0 ? 0 : between(state, 0, c->dim[SYM_N] - 1) / 2);
    else
        return false;
    return true;
}

/* Of chunks of up to 4 tokens, and their steps; and lists of rising numbers, some of them empty, in tensors
 * of 7. */
static bool list_value(const struct tensor *t, int64_t flat, int64_t last, double *value)
{
    if (tensor_is(t, "first"))
        *value = 4.0 * (double)flat;
    else if (tensor_is(t, "length"))
        *value = (double)(1 + 7 * flat % 4);
    else if (tensor_is(t, "place"))
        *value = (double)flat;
    else if (tensor_is(t, "counts"))
        *value = (double)(flat * 5 % 8);
    else if (tensor_is(t, "blocks"))
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
            *value = tensor_is(t, "keep") && *value > 1 ? 1 : *value;
            return true;
        }
    }
    if (tensor_is(t, "first") || tensor_is(t, "last"))
        *value = fmin((double)(9 * (flat % last) + (tensor_is(t, "last") ? 20 : 0)), (double)c->dim[SYM_Q]);
    else if (tensor_is(t, "prefix"))
        *value = (double)(flat % last - 1);
    else if (tensor_is(t, "since") || tensor_is(t, "seq")) /* sequences of 7 tokens */
        *value = (double)(tensor_is(t, "since") ? flat % last % 7 : flat % last / 7);
    else if (tensor_is(t, "gates"))
        *value = -0.05 * (double)(flat % last) - 0.02 * uniform(state);
    else
        return false;
    return true;
}

/* Scalars and factors of operators on rows and elements. */
static bool operator_value(const struct tensor *t, const struct test_case *c, uint64_t *state, double *value)
{
    if (tensor_is(t, "groups"))
        *value = 7.0;
    else if (tensor_is(t, "channels")) /* a place of its own for each element, or for many */
        *value = c->dim[SYM_N] <= 33 ? (double)c->dim[SYM_N] : 10.0;
    else if (tensor_is(t, "ignore"))
        *value = -100.0;
    else if (tensor_is(t, "smoothing"))
        *value = 0.1;
    else if (tensor_is(t, "lr"))
        *value = 0.01;
    else if (tensor_is(t, "beta1") || tensor_is(t, "beta2") || tensor_is(t, "decay") ||
             tensor_is(t, "bias1") || tensor_is(t, "bias2"))
        *value = 0.5 + 0.4 * uniform(state);
    else if (tensor_is(t, "block") || tensor_is(t, "on")) /* masks */
        *value = (double)(uniform(state) < 0.6);
    else if (tensor_is(t, "weight") || tensor_is(t, "q_gain") || tensor_is(t, "k_gain"))
        *value = 1.0 + 0.3 * normal(state);
    else
        return false;
    return true;
}

/* What makes sense for the inputs of the shipped specs and of this test's own; others are normal. */
double tensor_input(const struct tensor *t, const struct test_case *c, int64_t flat, uint64_t *state)
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
    if (tensor_is(t, "doc")) /* ascending, a new document every 37 tokens or so */
        return (double)((flat % last + 11 * (flat / last)) / 37);
    if (tensor_is(t, "from") ||
        tensor_is(t, "count")) /* of every fifth row all keys, up to the largest number */
        return flat % 5 == 0 ? (tensor_is(t, "from") ? 2147483647.0 : 0.0) : (double)between(state, 0, 100);
    if (tensor_is(t, "grid_h") || tensor_is(t, "grid_w")) /* planes of 5 x 7 */
        return tensor_is(t, "grid_h") ? 5.0 : 7.0;
    if (tensor_is(t, "copy") || tensor_is(t, "part"))
        return tensor_is(t, "copy") ? 200.0 : 16.0;
    if (tensor_is(t, "chosen") || tensor_is(t, "live"))
        return uniform(state) < 0.3 ? 1.0 : 0.0;
    if (tensor_is(t, "prefix"))
        return (double)between(state, 0, c->dim[SYM_KV] + 3);
    if (tensor_is(t, "window"))
        return (double)between(state, 1, 100);
    if (tensor_is(t, "eps"))
        return 1e-5;
    if (tensor_is(t, "pos") || tensor_is(t, "offset"))
        return (double)between(state, 0, 60);
    if (tensor_is(t, "n_2") || tensor_is(t, "n_3") || tensor_is(t, "l")) /* a grid */
        return (double)between(state, 1, 4);
    if (tensor_is(t, "slot") ||
        tensor_is(t, "scale_slot")) /* each once, from the last down, and one that is none */
        return flat == 1 ? -1.0 : (double)(named_size(c->sizes, "slots") - 1 - flat);
    if (tensor_is(t, "e"))
        return 0.0;
    if (tensor_is(t, "id"))
        return (double)between(state, 0, 39);
    if (tensor_is(t, "lengths_of"))
        return (double)((flat * 7) % 5);
    if (tensor_is(t, "cu_seqlens") || tensor_is(t, "chunk_offsets")) /* 0 0 3 3 3 6 6 ... */
        return (double)(flat / 3 * 3 + (flat % 3 == 2 ? 3 : 0));
    if (tensor_is(t, "n"))
        return (double)named_size(c->sizes, "ends") - 1.0;
    if (tensor_is(t, "chunk"))
        return 2.0;
    if (tensor_is(t, "base"))
        return 10000.0;
    if (tensor_is(t, "lengths"))
        return (double)tensor_list_length(flat);
    if (tensor_is(t, "p") && t->ndim == 0) /* of dropout */
        return c->skewed ? 0.0 : 0.3;
    if (tensor_is(t, "seed"))
        return c->skewed ? 7.0 : 0.0;
    if (tensor_is(t, "target")) /* of cross entropy */
        return uniform(state) < 0.2 ? -100.0 : (double)between(state, 0, c->dim[SYM_N] - 1);
    if (tensor_is(t, "since")) /* places in packed sequences */
        return place_in_sequence(flat);
    if (tensor_is(t, "long_since")) /* the same, all sequences 37 times as long */
        return place_in_sequence(flat / 37) * 37.0 + (double)(flat % 37);
    if (operator_value(t, c, state, &linear))
        return linear;
    const double value = normal(state);
    if (tensor_is(t, "gain") || tensor_is(t, "row") || tensor_is(t, "column") || tensor_is(t, "far") ||
        tensor_is(t, "step")) /* factors */
        return value;
    return c->infinite && uniform(state) < 0.2 ? (double)-INFINITY : value;
}

/* Of 8 bits: where they are loud, codes of every size, and in v some that are no number. */
static bool narrow_value(const struct tensor *t, const struct test_case *c, uint64_t *state, double *value)
{
    const bool whole = t->dtype == LATHE_I8;
    if (c->loud <= 0 || !(whole || t->dtype == LATHE_F8_E4M3 || t->dtype == LATHE_F8_E5M2))
        return false;
    const bool none = tensor_is(t, "v") && !whole && uniform(state) < 0.004;
    *value = none ? (double)NAN : normal(state) * c->loud;
    return true;
}

double tensor_element(const struct tensor *t, const struct test_case *c, int64_t flat, uint64_t *state)
{
    double part = 0;
    if (narrow_value(t, c, state, &part))
        return part;
    if (part_value(t, c, flat, state, &part))
        return part;
    if (t->role != ROLE_IN || t->dtype == LATHE_I32 || t->dtype == LATHE_U8 || tensor_is(t, "norm"))
        return tensor_input(t, c, flat, state);
    if (c->sizes && tensor_is(t, "s")) /* a mean of squares */
        return fabs(normal(state));
    if (tensor_is(t, "x") && c->skewed &&
        !c->sizes) /* exponents far apart, and near one another in between */
        return flat % 5 == 0 ? 60.0 * normal(state) : 3.0 * normal(state);
    const bool logit = tensor_is(t, "q") || tensor_is(t, "k");
    if (logit && c->loud > 0)
        return normal(state) * c->loud;
    return normal(state) * (logit && c->skewed ? SKEWED_SPREAD : 1.0) + (tensor_is(t, "x") ? 0.5 : 0.0);
}
