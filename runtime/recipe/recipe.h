/*
 * recipe.h: what crosses from gen/ to runtime/, as plain structs without pointers into either room.
 *
 *  - struct signature: the arguments a spec takes, with their shapes as symbols.
 *  - struct problem:   the value of every symbol and the dtype of every argument.
 *  - struct source:    the texts to compile, and the recipe that launches what comes out.
 *
 * A recipe is data: which kernels, with which grid, and what each byte of a parameter block holds.
 * The launcher walks it without knowing what an operator is, from the JIT as from a static library.
 */
#ifndef LATHE_SOURCE_H
#define LATHE_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lathe_types.h"

enum {
    NAME_MAX_BYTES = 48,
    MAX_ARGS = 64, /* at most: a set of arguments is a uint64_t */
    MAX_DIMS = 5,
    MAX_FACTORS = 5,
    MAX_PARAMS = 256,
    MAX_LAUNCHES = 32,
    MAX_BUFFERS = 32,
    MAX_TEXTS = 224, /* every template and what is generated */
    MAX_FREE_SYMS = 8,
    MAX_SIZES = 16 + MAX_FREE_SYMS,
    MAX_BUILT_SIZES = 2,
    MAX_TENSOR_MAPS = 6,
    MAX_COMPILED_PARTS = 9,
    ROLE_BYTES = 24, /* of a kernel's: "bwd_chunks" */
    NO_PARTS_BYTES = 192
};

/* Symbols: the sizes of a problem. SYM_FREE + k are dims that an input names for itself. */
#define SYM_MAP(X)                                                                                           \
    X(ONE, "1", "one")                                                                                       \
    X(B, "b", "batch")                                                                                       \
    X(H, "h", "query heads")                                                                                 \
    X(H_KV, "h_kv", "key and value heads")                                                                   \
    X(Q, "q", "query length")                                                                                \
    X(KV, "kv", "key length")                                                                                \
    X(D, "d", "head dim of q and k")                                                                         \
    X(D_V, "d_v", "head dim of v and o")                                                                     \
    X(ROWS0, "rows0", "outermost row dim")                                                                   \
    X(ROWS1, "rows1", "middle row dim")                                                                      \
    X(ROWS, "rows", "innermost row dim")                                                                     \
    X(N, "n", "row length")                                                                                  \
    X(TENSORS, "tensors", "tensors of a list")                                                               \
    X(H_K, "h_k", "query and key heads of linear attention")                                                 \
    X(T, "t", "tokens")                                                                                      \
    X(SEQS, "seqs", "sequences")                                                                             \
    X(SLOTS, "slots", "states of a pool")                                                                    \
    X(POOL, "pool", "pages of a pool of keys and values")                                                    \
    X(PAGE, "page", "keys of a page")                                                                        \
    X(MOST, "most", "pages that a sequence may have")                                                        \
    X(PARTS, "parts", "parts of a row")                                                                      \
    X(D2, "d2", "head dim of q2 and k2")                                                                     \
    X(ALL_KV, "len_kv", "keys in all, of which k and v are a part")                                          \
    X(ALL_H, "n_h", "query heads in all, of which q has a part")                                             \
    X(ALL_H_KV, "n_h_kv", "key heads in all")                                                                \
    X(KEPT, "kept", "states that are kept behind tokens")                                                    \
    X(GATHERED, "gathered", "keys of a batch, or of all sequences, that have been copied out of their pages")
enum sym {
#define SYM_ENUM(id, text, what) SYM_##id,
    SYM_MAP(SYM_ENUM)
#undef SYM_ENUM
        SYM_FREE,
    SYM_COUNT = SYM_FREE + MAX_FREE_SYMS
};

enum arg_role {
    ROLE_IN,
    ROLE_OUT,
    ROLE_OUT_OPTIONAL,
    ROLE_INPUT,
    ROLE_SCALAR,
    ROLE_Q_START,
    ROLE_START,    /* i32: where this call's part begins among all keys or heads; how many: size of dim 0 */
    ROLE_TOTAL,    /* i32: how many there are: that size */
    ROLE_CHUNK,    /* i32: so many keys of the part follow each other, */
    ROLE_STEP,     /* i32: and begin so many keys behind those before them */
    ROLE_MASK_KEPT /* i32, not 0: the map of the mask's tiles is in the workspace, from an earlier launch */
};

/* Tensors of one role have one dtype, and a problem has a dtype for each role. */
enum dtype_role {
    DTYPE_USUAL,       /* of all that say nothing else, which a line calls dtype; kernels are named by it */
    DTYPE_Q,           /* q, q2 and their gradients; of attention also what tensor cores multiply */
    DTYPE_X = DTYPE_Q, /* x, y and what lies like them */
    DTYPE_K,           /* k, k2 and their gradients */
    DTYPE_V,           /* v and its gradient */
    DTYPE_O,           /* o and its gradient */
    DTYPE_STATE,       /* what linear attention carries from token to token, and gradients of that */
    DTYPE_ROLES
};

/* Of tensors of a role: numbers of 8 bits are not taken, are, or those of e4m3 are where k and v have them,
 * too. */
enum narrow { NARROW_NOT, NARROW_TAKEN, NARROW_E4M3 };

struct sig_dim {
    uint8_t sym;     /* enum sym; SYM_ONE with literal > 0: a fixed size */
    int32_t literal; /* 0: the symbol's value */
    uint8_t times;   /* so many times that: 2 for pairs, or the updates of a token; 0: once */
    uint8_t plus;    /* and so many more: of places between and around the symbol's elements */
    uint8_t paged;   /* enum sym: in its place where keys lie in pages; SYM_ONE: the same */
    uint8_t
        whole; /* enum sym: in its place where k or q has a part of all keys or heads; SYM_ONE: the same */
};

static inline int lathe__times(struct sig_dim dim)
{
    return dim.times > 1 ? dim.times : 1;
}

struct sig_arg {
    char name[NAME_MAX_BYTES];
    uint8_t role;        /* enum arg_role */
    uint8_t dtype;       /* lathe_dtype; NONE: any of f32 f16 bf16, compiled in */
    uint8_t dtype_role;  /* enum dtype_role; USUAL: none, its dtype is its own */
    bool unit_last;      /* last stride must be 1, or: */
    bool any_last;       /* another makes its rows unaligned, which are copied */
    bool optional;       /* may be left out; a scalar or tensor then reads default_value */
    bool grad;           /* declared with grad = true */
    bool presence_built; /* whether it is there is compiled in: optional tensors that change the code */
    bool rare;           /* optional, and left out of a problem's line unless it is named there */
    uint8_t narrow;      /* enum narrow: may its dtype be one of 8 bits, whatever others have? */
    bool halves; /* f16 and bf16, too: all that say so have one dtype; `dtype` where nobody says another */
    bool list;   /* data is an array of pointers to tensors, in memory that the device reads */
    /* Each is 1 + the number of another argument; 0: there is none. */
    uint8_t alias;   /* the one whose memory this may share, and has where this is left out */
    uint8_t beside;  /* the one without which this may not be given */
    uint8_t unless;  /* the one in whose presence this is left out, whether it is optional or not */
    uint8_t over;    /* the one in whose place this may lie, since a block reads that before it writes */
    uint8_t kept_by; /* a result: the one beside which a call may leave some of its elements as they were; for
                        who makes results, which programs with kernels compiled in do themselves */
    uint8_t
        points; /* elementwise: of tensors with another number, other points have the elements at a place */
    double default_value;
    uint8_t ndim; /* rowwise x and y: 4 with leading ROWS0, ROWS1 that may be left out by the caller */
    bool leading_optional; /* leading dims may be absent (taken as 1) */
    struct sig_dim dim[MAX_DIMS];
};

static inline bool lathe__is_result(const struct sig_arg *a)
{
    return a->role == ROLE_OUT || a->role == ROLE_OUT_OPTIONAL;
}

/* The dtype by which a line brings in what is rarely there. */
static inline lathe_dtype lathe__rare_dtype(const struct sig_arg *a, uint8_t given)
{
    const bool half = a->halves && (given == LATHE_F16 || given == LATHE_BF16);
    return half ? (lathe_dtype)given : (lathe_dtype)a->dtype;
}

/* One number in host memory, and no tensor. */
static inline bool lathe__is_host_value(const struct sig_arg *a)
{
    return a->role >= ROLE_SCALAR && a->role <= ROLE_MASK_KEPT;
}

/* A size that the calls of a spec have. A number of an argument counts from 1; 0: none. */
struct sig_size {
    uint8_t sym;         /* enum sym */
    uint8_t same_as;     /* enum sym: the size that it is where nothing says its own; SYM_ONE: none */
    uint8_t multiple_of; /* enum sym: of which it is a multiple; SYM_ONE: any */
    bool tied;           /* it is same_as and no other, but beside the argument `by` */
    uint8_t by;
    uint8_t packed_by; /* beside this argument it is 1: what it counts lies one behind the other */
    bool built;        /* compiled in */
    bool named;        /* by a line of what is compiled in, too: a problem may need it */
    bool implied;      /* not named by a line where it is what it would be anyway */
    bool positive;     /* at least 1 */
    bool counted;      /* kernels number what is counted by these together: fewer than 2^31 */
    uint8_t within;    /* enum sym: of which it is no more; SYM_ONE: any */
    uint8_t beside;    /* it is there beside this argument alone, which its name in a line brings */
    int32_t usual;     /* what it is in a line that does not say, where same_as does not either; 0: unknown */
    int32_t below;     /* on a GPU, where positions along it are floats; 0: no limit */
    int32_t least;     /* what kernels are made for, where `step` is not 0 */
    int32_t most;
    int32_t step;
};

/* Where a result may lie. */
enum sharing {
    SHARING_NONE, /* in memory of its own: blocks read what others write; or where `over` says */
    SHARING_ROWS, /* or in the place of an operand with its elements, which are read before */
    SHARING_ALIAS /* or in the place of the argument that it is declared for */
};

/* What differs between kinds of operators is said here, by the kind's sign.c: nobody asks for the kind. */
/* A name that other specs of the kind take, or the other pass, and why this one does not. */
struct sig_absent {
    const char *name, *why;
};

struct signature {
    char kind[24]; /* "attention", "rowwise", "elementwise", "linear_attention": for sentences */
    bool backward;
    bool combine;        /* it takes parts of rows */
    bool parts_by_token; /* what ends a row reads its place among all tokens, and must find it there again */
    bool parts_by_key;   /* or its place among the keys */
    bool builds_alignment; /* which tensors have rows that do not start at multiples of 16 bytes is compiled
                              in */
    bool builds_folded;    /* and so is which have strides that TMA does not take */
    bool counts_points;    /* kernels number groups of four elements along the last dim of every tensor */
    uint8_t sharing;       /* enum sharing */
    uint8_t paged_by;      /* 1 + number of the argument beside which keys lie in pages; 0: they never do */
    int32_t most_counted;  /* of one launch on a GPU; 0: as many as there may be */
    int n_sizes;
    struct sig_size size[MAX_SIZES];
    int n_args;
    struct sig_arg arg[MAX_ARGS];
    int n_free;
    char free_name[MAX_FREE_SYMS][NAME_MAX_BYTES];
    const struct sig_absent *absent; /* up to one without a name; NULL: none. Constants */
    char no_parts[NO_PARTS_BYTES];   /* why there are no parts of rows; "": there may be, or nobody asks */
};

/* When results have the same bits. The second is of backward passes; forward ones have it anyway. The third
   is of both: what a sequence gets does not depend on what else is in the batch. lathe_options.deterministic.
 */
enum determinism { DETERMINISTIC_NOT, DETERMINISTIC_RUNS, DETERMINISTIC_BATCH = LATHE_BATCH_INVARIANT };

struct problem {
    lathe_dtype dtype[DTYPE_ROLES]; /* by enum dtype_role */
    int64_t dim[SYM_COUNT];         /* -1: not bound */
    uint8_t arg_dtype[MAX_ARGS];    /* lathe_dtype of each signature argument */
    uint64_t present;               /* bit per signature argument */
    uint64_t
        unaligned; /* the same: rows that do not start at multiples of 16 bytes, where that is compiled in */
    uint64_t folded; /* the same, where that is compiled in: a dim of several elements has a stride that TMA
                        does not take: of 0, below it, or of 2^40 bytes and more; or batches with keys in use,
                        or pages, do not lie whole tokens apart, or are more than 2^30 tokens */
    uint8_t deterministic; /* enum determinism; compiled in */
    bool paged;            /* keys lie in pages: dims take the size of sig_dim.paged */
    bool packed;           /* sequences lie one behind the other, however many there are */
    bool cut_keys;  /* k and v have a part of the keys: dims take the size SYM_ALL_KV of sig_dim.whole */
    bool cut_heads; /* q, k and v a part of the heads: SYM_ALL_H, SYM_ALL_H_KV */
    bool chunked;   /* that part of the keys is chunks that lie apart */
    bool open;      /* a line that leaves batches, heads or tokens out: they stand for any */
};

/* Argument i in a set of arguments: problem.present and its like. */
static inline uint64_t arg_bit(int i)
{
    return UINT64_C(1) << i;
}
/* False of a negative i: an argument that the signature has not. */
static inline bool arg_in(uint64_t set, int i)
{
    return i >= 0 && (set >> i & 1) != 0;
}

/* Any float, whatever other tensors have: compiled in, and named in its line where it is another one. */
static inline bool lathe__has_own_dtype(const struct sig_arg *a)
{
    return a->dtype == LATHE_NONE && a->dtype_role == DTYPE_USUAL;
}
/* Any float, which tensors of its role have, too. */
static inline bool lathe__has_role_dtype(const struct sig_arg *a)
{
    return a->dtype == LATHE_NONE && a->dtype_role != DTYPE_USUAL;
}

/* In the place of a factor's symbol: what attention of few queries is cut into, lathe__row_tiles,
   lathe__key_parts and lathe__even_key_parts of tiles of `plus` rows and of `tile` blocks;
   lathe__own_key_parts of parts of `tile` keys and more. */
enum { FACTOR_ROW_TILES = SYM_COUNT, FACTOR_KEY_PARTS, FACTOR_EVEN_KEY_PARTS, FACTOR_OWN_KEY_PARTS };

/* scale * product of ceil(times * dim[sym] / tile) + dim[plus] */
struct product {
    int64_t scale;
    int n;
    struct {
        uint8_t sym;   /* enum sym, or one of the above */
        int32_t tile;  /* 1: the value itself */
        uint8_t plus;  /* enum sym; SYM_ONE: nothing more */
        uint8_t times; /* of the symbol, in front of the tile; 0: once */
    } factor[MAX_FACTORS];
    bool grouped; /* of what is there where a head of k serves several of v (SYM_H_K, SYM_H): else 0 */
};

enum param_kind {
    PARAM_ARG_DATA,     /* pointer: data of argument `arg`, NULL where an optional one is absent */
    PARAM_ARG_STRIDE,   /* i64: stride of dim `dim` of argument `arg`, in elements; 0 where absent or the dim
                           has size 1 */
    PARAM_ARG_STRIDE32, /* i32: the same; the launcher refuses (size - 1) * stride >= 2^31 */
    PARAM_SYM,          /* i32: value of symbol `arg`, `dim` times; 0: once */
    PARAM_SCALAR_F32,   /* f32: value of scalar argument `arg`, or its default */
    PARAM_SCALAR_I32,
    PARAM_Q_START,   /* i32: q_start, or kv - q; with `arg`, where it is not given: Q_START_BY_LENGTH */
    PARAM_WORK_DATA, /* pointer: workspace buffer `arg` */
    PARAM_PRODUCT,   /* i64: `product` */
    PARAM_PACK,      /* i32: lathe__heads_packed of tiles of `arg` rows; `arg` 0: 1 */
    PARAM_APART,     /* i64: stride of dim 0 of argument `arg`, of [b, head, token, dim], in tokens: below */
    PARAM_COMPACT,   /* i32: 1 where every argument of the set product.scale that is there is compact, and
                        starts at a multiple of 16 bytes */
    PARAM_COUNTED,   /* nothing: a kernel numbers `product` things in 32 bits; the launcher refuses more */
};

enum { Q_START_BY_LENGTH = INT32_MIN }; /* each sequence's keys less its queries */

struct param {
    uint8_t kind; /* enum param_kind */
    int16_t arg;
    int16_t dim;
    uint32_t offset; /* bytes into the block, naturally aligned */
    struct product product;
};

/* A tensor map for TMA (sm_90): 128 bytes of the parameter block, made at launch of other fields of the same
   block. A tensor of 16-bit elements [b, head, token, dim], of which a load takes a box of tokens x dims.
   With `pack` the heads are cut into groups of that many: [b, group, token, head of the group, dim], and a
   box takes all heads of a group, of fewer tokens.
   With `packed` there is no b: the tokens are of sequences one behind the other, or of batches, or pages,
   that lie whole tokens apart (PARAM_APART; a token by itself has 16 bytes), and what a box takes beyond the
   end of its own is 0, or left out. For this the map is [back, end, head, token, dim] with RAGGED_ROWS
   tokens, whatever there are; `end` goes on by a token, too, and one step of `back` takes RAGGED_ROWS tokens
   away, modulo 2^64: token RAGGED_ROWS - length + i of end first + length and back RAGGED_ROWS is token i of
   a sequence, and none of it from i = length on (templates/common/tma_sm90.cuh). Where nothing of a box is
   within the map TMA reads at its address all the same, as a GPU was seen to: so that is the tensor's, and
   not RAGGED_ROWS tokens before it. A page is read in boxes that lie within it and within the tile of which
   they are a part: of gcd(page, box_tokens) tokens. */
enum { TENSOR_MAP_BYTES = 128, RAGGED_ROWS = 1 << 30 };
struct tensor_map_row {
    uint32_t offset;     /* of the map in the block: a multiple of 64 */
    uint32_t data;       /* of the pointer */
    uint32_t strides;    /* of three i64: b, head, token, in elements */
    uint16_t columns;    /* elements of a row */
    uint8_t dim[3];      /* enum sym: token, head, b */
    uint8_t dtype;       /* f16, bf16, or of 8 bits: two of those are an element of the map */
    uint8_t swizzle;     /* 32, 64 or 128 bytes: a box's row, and the pattern it is stored in */
    uint16_t box_tokens; /* 1 to 256; with `pack`: divided by it */
    bool packed;         /* not beside `pack` */
    uint32_t pack;       /* of an i32 in the block; 0: none */
};

struct launch { /* one kernel */
    char entry[NAME_MAX_BYTES];
    struct product grid; /* blocks, all in x; 0 blocks: the launch is skipped */
    int grid_share;      /* of `grid`, so many to a block; 0: each is a block */
    int threads;
    int smem_bytes; /* dynamic */
    int n_params;
    uint32_t param_bytes;
    const struct param *param; /* n_params rows; owned by the source, or static data of a library */
    int n_maps;
    int grid_limit; /* no more blocks than this: they take their work in turn; 0: as many as there are */
    int cluster;    /* blocks of one, of which no more are started than run at once; 0: all are */
    int part;       /* of the text, where its parts are compiled apart (n_parts) */
    int32_t least, most;
    uint8_t when; /* enum sym: launched only where this size is from `least` to `most`; SYM_ONE: always */
    bool early; /* may begin while the launch before it still runs: its text waits where it needs its results
                 */
    bool kept;  /* it makes a map of the mask's tiles: skipped where ROLE_MASK_KEPT says that it is there */
    struct tensor_map_row map[MAX_TENSOR_MAPS];
};

struct buffer { /* one piece of the workspace; each starts 256-byte aligned, in order */
    struct product bytes;
    bool zero;           /* all bytes are zeroed, in stream order, before the first kernel of a launch */
    struct product most; /* and no more than this, where its scale is not 0 */
};

struct text { /* owned by the source */
    char name[64];
    char *data;
    size_t size;
};

struct source {
    char label[128]; /* readable: causal_attention_fwd_sm80_bf16_d128_m128n64s2 */
    int n_texts;
    int n_parts; /* that may be compiled apart, each as LATHE_PART, from 0 on; 0 or 1: in one go */
    char part_role[MAX_COMPILED_PARTS][ROLE_BYTES]; /* the kernel that is this part, where no text says so and
                                                       options have to; else "" */
    struct text text[MAX_TEXTS]; /* text[0] is the file to compile, the others its headers */
    int n_launches;
    struct launch launch[MAX_LAUNCHES];
    int n_buffers;
    struct buffer buffer[MAX_BUFFERS];
};

/* A device as planning sees it: numbers only, so planning runs without a GPU. */
struct device {
    int sm; /* 80, 90, ... compute capability major * 10 + minor */
    int sm_count;
    int smem_bytes;          /* opt-in maximum for one block */
    char arch[16];           /* "sm_80", "sm_90a": what the compiler is told */
    char template_name[256]; /* templates to plan with, which somebody asked for by name, with commas; "": any
                              */
    char
        tile[24]; /* "128x64s2w4q": the one row of a template's tiles to plan with; "": the first that fits */
    bool template_only; /* nothing else will do; else they count for the kind and pass that they compute */
};

#endif
