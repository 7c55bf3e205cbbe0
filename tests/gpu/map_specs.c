/*
 * map_specs.c: the shipped element-wise specs as the GPU tests see them: their tensors and inputs, sizes that
 * are on and beside the edges of vectors and tiles, and what data makes sense. A new spec gets a row here.
 */
#include "maps.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IN(name, dims)                                                                                       \
    {                                                                                                        \
        {name, ROLE_TENSOR, LATHE_NONE, dims, FILL_NORMAL, 0.0, 1.5, false, false, true}, NULL, false, false \
    }
#define UNREAD(name, dims)                                                                                   \
    {                                                                                                        \
        {name, ROLE_TENSOR, LATHE_NONE, dims, FILL_NORMAL, 0.0, 1.5, false, false, true}, NULL, true, false  \
    }
#define OUT(name, dims, alias)                                                                               \
    {                                                                                                        \
        {name, ROLE_RESULT, LATHE_NONE, dims, FILL_NORMAL, 0.0, 0.0, false, false, false}, alias, false,     \
            false                                                                                            \
    }
#define WHOLE(name, dims, low, high)                                                                         \
    {                                                                                                        \
        {name, ROLE_INPUT, LATHE_I32, dims, FILL_INTEGER, low, high, false, false, false}, NULL, false,      \
            false                                                                                            \
    }
#define COUNT(name, dims)                                                                                    \
    {                                                                                                        \
        {name, ROLE_RESULT, LATHE_I32, dims, FILL_NORMAL, 0.0, 0.0, false, false, false}, NULL, false, false \
    }
#define NUMBER(name, low, high, optional)                                                                    \
    {                                                                                                        \
        {name, ROLE_SCALAR, LATHE_I32, "", FILL_INTEGER, low, high, false, optional, false}, NULL, false,    \
            false                                                                                            \
    }
#define FACTOR(name, mean, deviation, optional)                                                              \
    {                                                                                                        \
        {name, ROLE_SCALAR, LATHE_F32, "", FILL_NORMAL, mean, deviation, false, optional, false}, NULL,      \
            false, false                                                                                     \
    }
#define LEARNED(name, dims, deviation, scattered)                                                            \
    {                                                                                                        \
        {name, ROLE_INPUT, LATHE_NONE, dims, FILL_NORMAL, 0.0, deviation, false, false, true}, NULL, false,  \
            scattered                                                                                        \
    }
#define END                                                                                                  \
    {                                                                                                        \
        {"", ROLE_TENSOR, LATHE_NONE, "", FILL_NORMAL, 0.0, 0.0, false, false, false}, NULL, false, false    \
    }

static const char *const POINTS[] = {
    "a=1,b=1,rows=3,n=257", "a=1,b=1,rows=2,n=65537", "a=2,b=3,rows=5,n=33",   "a=1,b=1,rows=1,n=1",
    "a=1,b=1,rows=9,n=31",  "a=1,b=2,rows=3,n=255",   "a=2,b=1,rows=2,n=1025", "a=1,b=1,rows=0,n=64",
    "a=3,b=2,rows=7,n=64",  "a=1,b=1,rows=1025,n=33", "a=1,b=1,rows=257,n=1",  NULL};
static const char *const TOKENS[] = {"b=2,t=31,h=3,h_kv=1,i=33",   "b=1,t=257,h=4,h_kv=2,i=64",
                                     "b=1,t=9,h=2,h_kv=4,i=17",    "b=2,t=33,h=8,h_kv=2,i=32",
                                     "b=1,t=1,h=1,h_kv=1,i=1",     "b=2,t=5,h=3,h_kv=0,i=24",
                                     "b=1,t=1025,h=1,h_kv=1,i=16", "b=3,t=31,h=2,h_kv=2,i=255",
                                     "b=0,t=31,h=2,h_kv=2,i=16",   NULL};
static const char *const HEADS[] = {"b=2,h=3,n=257,d=33", "b=1,h=2,n=1025,d=64", "b=3,h=1,n=31,d=16",
                                    "b=1,h=1,n=1,d=1",    "b=2,h=2,n=33,d=255",  "b=1,h=5,n=255,d=31",
                                    "b=1,h=2,n=0,d=64",   "b=2,h=4,n=100,d=128", NULL};
static const char *const GRID1[] = {"b=2,h=3,n=257,d=33,e_dim=33", "b=1,h=2,n=31,d=64,e_dim=64",
                                    "b=2,h=1,n=33,d=128,e_dim=130", "b=1,h=1,n=1,d=1,e_dim=1", NULL};
static const char *const GRID2[] = {"b=2,h=3,n=257,d=33,e_dim=17", "b=1,h=2,n=31,d=64,e_dim=32",
                                    "b=2,h=1,n=33,d=128,e_dim=70", "b=1,h=1,n=1,d=1,e_dim=1", NULL};
static const char *const GRID3[] = {"b=2,h=3,n=257,d=33,e_dim=11", "b=1,h=2,n=31,d=64,e_dim=22",
                                    "b=2,h=1,n=33,d=128,e_dim=43", "b=1,h=1,n=1,d=1,e_dim=1", NULL};
static const char *const WORDS[] = {"b=2,t=33,d=257,words=50",
                                    "b=1,t=257,d=64,words=50",
                                    "b=3,t=31,d=33,words=70",
                                    "b=1,t=1025,d=1,words=50",
                                    "b=1,t=1,d=1025,words=60",
                                    "b=2,t=0,d=64,words=50",
                                    NULL};
static const char *const ENDS[] = {"ends=34,n=33",     "ends=2,n=1", "ends=258,n=257",
                                   "ends=1026,n=1025", "ends=1,n=0", NULL};
static const char *const PACKED_TOKENS[] = {"tokens=257,ends=32", "tokens=31,ends=2", "tokens=0,ends=5",
                                            "tokens=1025,ends=258", NULL};
static const char *const PACKED_CHUNKS[] = {"chunks=257,ends=32", "chunks=31,ends=2", "chunks=0,ends=5",
                                            NULL};
/* Places are drawn up to the fewest steps. */
static const char *const POOLS[] = {"chunks=9,steps=4,d=40,tokens=64",  "chunks=33,steps=8,d=257,tokens=60",
                                    "chunks=1,steps=4,d=1,tokens=58",   "chunks=0,steps=4,d=8,tokens=60",
                                    "chunks=65,steps=5,d=33,tokens=70", NULL};
static const char *const CONVOLVED[] = {"b=2,t=33,c=257,seqs=8", "b=1,t=257,c=64,seqs=5",
                                        "b=3,t=2,c=33,seqs=9",   "b=1,t=1,c=1025,seqs=4",
                                        "b=2,t=0,c=64,seqs=6",   NULL};
static const char *const NO_SIZES[] = {"n=0", NULL};

#define ACTIVATION(name)                                                                                     \
    {                                                                                                        \
        name, POINTS, 3, false, false, false,                                                                \
        {                                                                                                    \
            IN("x", "a b rows n"), OUT("y", "a b rows n", "x"), END                                          \
        }                                                                                                    \
    }
#define GATED(name)                                                                                          \
    {                                                                                                        \
        name, POINTS, 3, false, false, false,                                                                \
        {                                                                                                    \
            IN("gate", "a b rows n"), IN("up", "a b rows n"), OUT("y", "a b rows n", NULL), END              \
        }                                                                                                    \
    }
#define ROTARY                                                                                               \
    UNREAD("q", "b t h 2*i"), UNREAD("k", "b t h_kv 2*i"), OUT("q_out", "b t h 2*i", "q"),                   \
        OUT("k_out", "b t h_kv 2*i", "k")
#define ROPE_INPUTS                                                                                          \
    {{"pos", ROLE_INPUT, LATHE_I32, "b t", FILL_INTEGER, -5.0, 60.0, false, true, false},                    \
     NULL,                                                                                                   \
     false,                                                                                                  \
     false},                                                                                                 \
        NUMBER("offset", -10.0, 60.0, true), FACTOR("base", 10000.0, 0.0, true)
#define LRPE(name)                                                                                           \
    {                                                                                                        \
        name, HEADS, 0, false, false, false,                                                                 \
        {                                                                                                    \
            IN("x", "b h n d"), OUT("y", "b h n 2*d", NULL), LEARNED("theta", "h d", 0.1, false),            \
                NUMBER("offset", -10.0, 60.0, true), END                                                     \
        }                                                                                                    \
    }
#define LRPE_SOFTMAX(name, dims)                                                                             \
    {                                                                                                        \
        name, HEADS, 0, false, false, false,                                                                 \
        {                                                                                                    \
            IN("x", "b h n d"),                                                                              \
                {{"lse", ROLE_TENSOR, LATHE_F32, dims, FILL_NORMAL, 2.0, 0.5, false, false, true},           \
                 NULL,                                                                                       \
                 false,                                                                                      \
                 false},                                                                                     \
                OUT("y", "b h n 2*d", NULL), LEARNED("theta", "h d", 0.1, false),                            \
                NUMBER("offset", -10.0, 60.0, true), END                                                     \
        }                                                                                                    \
    }
#define MD_LRPE                                                                                              \
    IN("x", "b h n d"), OUT("y", "b h n 2*d", NULL), LEARNED("theta", "h e_dim", 0.1, true),                 \
        NUMBER("l", 0.0, 7.0, true)
#define LIST(name, dtype, mean, deviation)                                                                   \
    {                                                                                                        \
        {name, ROLE_TENSOR, dtype, "n", FILL_NORMAL, mean, deviation, false, false, true}, NULL, false,      \
            false                                                                                            \
    }
#define LIST_OUT(name, dtype, alias)                                                                         \
    {                                                                                                        \
        {name, ROLE_RESULT, dtype, "n", FILL_NORMAL, 0.0, 0.0, false, false, false}, alias, false, false     \
    }

const struct map_spec map_specs[] = {
    ACTIVATION("act_none"),
    ACTIVATION("act_relu"),
    ACTIVATION("act_sigmoid"),
    ACTIVATION("act_silu"),
    ACTIVATION("act_gelu"),
    GATED("glu"),
    GATED("reglu"),
    GATED("geglu"),
    GATED("swiglu"),
    {"rope_half", TOKENS, 0, false, false, false, {ROTARY, ROPE_INPUTS, END}},
    {"rope_interleaved", TOKENS, 0, false, false, false, {ROTARY, ROPE_INPUTS, END}},
    {"rope_table",
     TOKENS,
     0,
     false,
     false,
     false,
     {ROTARY,
      {{"cosine", ROLE_INPUT, LATHE_NONE, "b t i", FILL_NORMAL, 0.0, 0.7, false, false, false},
       NULL,
       false,
       false},
      {{"sine", ROLE_INPUT, LATHE_NONE, "b t i", FILL_NORMAL, 0.0, 0.7, false, false, false},
       NULL,
       false,
       false},
      END}},
    LRPE("lrpe"),
    LRPE("lrpe_relu"),
    LRPE("lrpe_sigmoid"),
    LRPE("lrpe_silu"),
    LRPE_SOFTMAX("lrpe_softmax_d", "b h n"),
    LRPE_SOFTMAX("lrpe_softmax_n", "b h d"),
    {"md_lrpe_1d", GRID1, 0, false, false, false, {MD_LRPE, END}},
    {"md_lrpe_2d", GRID2, 0, false, false, false, {MD_LRPE, NUMBER("n_2", 1.0, 6.0, false), END}},
    {"md_lrpe_3d",
     GRID3,
     0,
     false,
     false,
     false,
     {MD_LRPE, NUMBER("n_2", 1.0, 4.0, false), NUMBER("n_3", 1.0, 4.0, false), END}},
    {"embedding",
     WORDS,
     0,
     false,
     false,
     false,
     {WHOLE("id", "b t", 0.0, 49.0), LEARNED("table", "words d", 1.0, true), OUT("y", "b t d", NULL), END}},
    {"mean_pool_packed",
     POOLS,
     0,
     false,
     false,
     false,
     {LEARNED("values", "tokens d", 1.0, true), WHOLE("first", "chunks", 0.0, 50.0),
      WHOLE("length", "chunks", 0.0, 8.0), WHOLE("place", "steps", 0.0, 3.0), OUT("mean", "chunks d", NULL),
      END}},
#define CONV                                                                                                 \
    LEARNED("tokens", "b t c", 1.0, true), LEARNED("weight", "c 4", 0.5, true),                              \
        LEARNED("bias", "c", 0.5, false), LEARNED("state", "seqs 3 c", 1.0, true),                           \
        WHOLE("since", "b t", -1.0, 0.0), WHOLE("seq", "b t", 0.0, 3.0), OUT("y", "b t c", NULL)
    {"short_conv", CONVOLVED, 0, false, false, false, {CONV, END}},
    {"rms_norm_conv",
     CONVOLVED,
     0,
     false,
     false,
     false,
     {CONV,
      {{"rstd", ROLE_INPUT, LATHE_F32, "b t", FILL_NORMAL, 1.0, 0.3, false, false, true}, NULL, false, true},
      LEARNED("gain", "c", 1.0, true),
      END}},
#undef CONV
    {"packed_offsets",
     ENDS,
     0,
     false,
     false,
     true,
     {{{"lengths_of", ROLE_TENSOR, LATHE_I32, "n", FILL_INTEGER, 0.0, 40.0, false, false, false},
       NULL,
       false,
       false},
      NUMBER("chunk", 1.0, 9.0, true),
      COUNT("cu_seqlens", "ends"),
      COUNT("chunk_offsets", "ends"),
      END}},
    {"packed_tokens",
     PACKED_TOKENS,
     0,
     false,
     true,
     true,
     {WHOLE("cu_seqlens", "ends", 0.0, 0.0), NUMBER("n", 0.0, 0.0, false), COUNT("sequence", "tokens"),
      COUNT("position", "tokens"), END}},
    {"packed_chunks",
     PACKED_CHUNKS,
     0,
     false,
     true,
     true,
     {WHOLE("cu_seqlens", "ends", 0.0, 0.0), WHOLE("chunk_offsets", "ends", 0.0, 0.0),
      NUMBER("n", 0.0, 0.0, false), NUMBER("chunk", 2.0, 2.0, false), COUNT("sequence", "chunks"),
      COUNT("index", "chunks"), COUNT("first", "chunks"), COUNT("length", "chunks"), END}},
    {"lion",
     NO_SIZES,
     0,
     true,
     false,
     true,
     {LIST("p", LATHE_NONE, 0.0, 1.0), LIST("g", LATHE_NONE, 0.0, 0.5), LIST("m", LATHE_NONE, 0.0, 0.5),
      LIST_OUT("p_new", LATHE_NONE, "p"), LIST_OUT("m_new", LATHE_NONE, "m"), FACTOR("lr", 0.05, 0.0, false),
      FACTOR("decay", 0.25, 0.0, true), FACTOR("scale", 0.5, 0.0, true), END}},
    {"adamw",
     NO_SIZES,
     0,
     true,
     false,
     true,
     {LIST("p", LATHE_NONE, 0.0, 1.0), LIST("g", LATHE_NONE, 0.0, 0.5), LIST("m", LATHE_NONE, 0.0, 0.5),
      LIST("s", LATHE_NONE, 1.0, 0.1), LIST_OUT("p_new", LATHE_NONE, "p"), LIST_OUT("m_new", LATHE_NONE, "m"),
      LIST_OUT("s_new", LATHE_NONE, "s"), FACTOR("lr", 0.05, 0.0, false), FACTOR("bias1", 0.75, 0.0, true),
      END}},
    {"adamw_master",
     NO_SIZES,
     0,
     true,
     false,
     true,
     {LIST("p", LATHE_F32, 0.0, 1.0), LIST("g", LATHE_NONE, 0.0, 0.5), LIST("m", LATHE_F32, 0.0, 0.5),
      LIST("s", LATHE_F32, 1.0, 0.1), LIST_OUT("p_new", LATHE_F32, "p"), LIST_OUT("m_new", LATHE_F32, "m"),
      LIST_OUT("s_new", LATHE_F32, "s"), LIST_OUT("w", LATHE_NONE, NULL), FACTOR("lr", 0.05, 0.0, false),
      END}},
    {"nsa_gates",
     HEADS,
     0,
     false,
     false,
     false,
     {IN("o_cmp", "b h n d"), IN("o_slc", "b h n d"), IN("o_swa", "b h n d"),
      LEARNED("g_cmp", "b h n", 1.0, false), LEARNED("g_slc", "b h n", 1.0, false),
      LEARNED("g_swa", "b h n", 1.0, false), OUT("o", "b h n d", NULL), END}},
};
const int map_spec_count = (int)(sizeof map_specs / sizeof map_specs[0]);

/* ---- arguments of a pass ------------------------------------------------------------------------- */

int64_t map_size(const char *sizes, const char *name)
{
    const size_t length = strcspn(name, " ");
    for (const char *at = sizes; at && *at;) {
        if (strncmp(at, name, length) == 0 && at[length] == '=') {
            return strtoll(at + length + 1, NULL, 10);
        }
        at = strchr(at, ',');
        at += at != NULL;
    }
    return -1;
}

/* Names become numbers; the first `skip` of them are left out. */
static void number_dims(const char *dims, const char *sizes, int skip, char *out)
{
    size_t used = 0;
    out[0] = 0;
    for (const char *word = dims; *word; word += strcspn(word, " "), word += *word == ' ') {
        char *name = NULL;
        const int64_t factor = strtoll(word, &name, 10);
        const bool product = name != word && *name == '*';
        const int64_t named = map_size(sizes, product ? name + 1 : word);
        const int64_t size = product ? factor * named : named >= 0 ? named : factor;
        if (skip-- <= 0) {
            used += (size_t)snprintf(out + used, MAP_DIMS_BYTES - used, "%s%" PRId64, used ? " " : "", size);
        }
    }
}

static struct map_arg *add_argument(struct map_given *out, const struct map_arg *arg)
{
    static struct map_arg none; /* written where there is no room: never, the table is short */
    struct map_arg *added = out->n < CASE_ARGS ? &out->arg[out->n++] : &none;
    *added = *arg;
    return added;
}

static void add_derived(struct map_given *out, const struct map_arg *arg, enum role role, lathe_dtype dtype)
{
    struct map_arg *added = add_argument(out, arg);
    (void)snprintf(added->row.name, sizeof added->row.name, "d%.14s", arg->row.name);
    added->row.role = role;
    added->row.dtype = dtype;
    added->row.fill = FILL_NORMAL;
    added->row.low = 0.0;
    added->row.high = 1.0;
    added->row.optional = role != ROLE_TENSOR || out->results++ > 0; /* 0 where it is left out */
    added->alias = NULL;
}

static void add_of_pass(struct map_given *out, const struct map_arg *arg, lathe_pass pass)
{
    const bool result = arg->row.role == ROLE_RESULT;
    if (pass == LATHE_FORWARD || !result) {
        struct map_arg *added = add_argument(out, arg);
        added->row.optional |= pass == LATHE_BACKWARD && arg->unread;
    }
    if (pass == LATHE_FORWARD) {
        return;
    }
    if (result) {
        add_derived(out, arg, ROLE_TENSOR, arg->row.dtype);
    } else if (arg->row.role == ROLE_INPUT && arg->row.grad) {
        add_derived(out, arg, ROLE_GRADIENT, LATHE_F32);
    } else if (arg->row.role == ROLE_TENSOR && arg->row.grad) {
        add_derived(out, arg, ROLE_RESULT, arg->row.dtype);
    }
}

void map_arguments(struct map_given *out, const struct test_case *c)
{
    const struct map_case *m = c->map;
    memset(out, 0, sizeof *out);
    for (const struct map_arg *arg = m->spec->arg; arg->row.name[0]; arg++) {
        add_of_pass(out, arg, c->pass);
    }
    for (int i = 0; i < out->n; i++) {
        const bool skips = out->arg[i].row.role != ROLE_SCALAR;
        number_dims(out->arg[i].row.dims, m->sizes, skips ? m->skip : 0, out->text[i]);
        out->arg[i].row.dims = out->text[i];
    }
}

const struct map_arg *map_find(const struct map_given *given, const char *name)
{
    for (int i = 0; i < given->n && name; i++) {
        if (strcmp(given->arg[i].row.name, name) == 0) {
            return &given->arg[i];
        }
    }
    return NULL;
}

lathe_dtype map_dtype(const struct map_arg *arg, int number, const struct test_case *c, struct case_run run)
{
    if (arg->row.dtype != LATHE_NONE) {
        const bool exact =
            run.dtype == LATHE_F64 && arg->row.dtype == LATHE_F32 && arg->row.role != ROLE_SCALAR;
        return exact ? LATHE_F64 : arg->row.dtype;
    }
    return c->map->mixed && run.dtype != LATHE_F64 && number % 2 ? LATHE_F32 : run.dtype;
}
