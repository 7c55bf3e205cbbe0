/*
 * bind.h: what the generator shares with launching: problems, products of sizes, sharing. No text is
 * formatted but of failures.
 */
#ifndef LATHE_RT_BIND_H
#define LATHE_RT_BIND_H

#include <stdbool.h>
#include <stdint.h>

#include "lathe.h"
#include "runtime/base/base.h"
#include "runtime/recipe/recipe.h"

/* ---- source.c -------------------------------------------------------------------------------------- */

void source_free(struct source *source); /* texts and parameter rows; the struct itself is the caller's */
/* The same texts and the same recipe? Labels and rates are for reports, and may differ. */
bool source_same(const struct source *a, const struct source *b);

/* ---- bind.c ---------------------------------------------------------------------------------------- */

/* Value of a product for a problem: saturates, and is 0 where a size is not bound. */
int64_t lathe__product_value(const struct product *p, const struct problem *problem);
int64_t lathe__buffer_bytes(const struct buffer *b, const struct problem *problem);
/* How many query heads of a key head take turns in the rows of a tile of `rows` rows, in parts of 64 rows
   each: all of them, where short queries fill tiles clearly better so, else 1. */
int lathe__heads_packed(const struct problem *problem, int rows);
/* Of attention of few queries: tiles of the rows of a key head, which are its tokens and query heads: one of
   up to 16 rows, or as many of `rows` rows as there have to be, of packed sequences at most; and parts of the
   keys of each tile: as many as make `blocks` blocks of all, or, where keys are many, some times more, so
   that none waits long for another. It follows from the sizes of tensors alone, of packed sequences from
   their average, not from lengths that only the device knows. */
int64_t lathe__row_tiles(const struct problem *problem, int rows);
int64_t lathe__key_parts(const struct problem *problem, int rows, int blocks);
/* The same where a part is dear, for o of it is long: as many parts as end first where `blocks` blocks at a
   time take turns, and each has its part of the keys and the end of its rows. */
int64_t lathe__even_key_parts(const struct problem *problem, int rows, int blocks);
/* The same where a row's result may not depend on what else there is: as many as the longest row may be cut
   into, by its own keys alone and into parts of `least` keys or more (own_part_tiles of
   attention/decode_rows.cuh). 1, and no row is cut, where sequences are packed, for a launch has as many
   parts for each of their rows, and where a key head has more than 1024 rows. */
int64_t lathe__own_key_parts(const struct problem *problem, int least);
/* What of lengths is compiled in, as bits: so many keys that attention may take other tiles; so few rows of a
   key head, and so many keys, that these are cut into parts; pages that TMA does not read. And of linear
   attention, where the device says so (plan_lengths): so many heads of sequences, or so long ones in pieces,
   that a block has more of each; so many, or so short ones, that none is cut in pieces; so few and long ones
   that gates may cut them, and with blocks that have more of each. And of attention for
   Hopper, where it says so: tiles of so many rows that multiprocessors would wait, and lower ones are better,
   without a mask and with one; so many rows for each key of 8 bits in pages that these are copied; and so few
   rows of a key head against keys of 8 bits that are nine or more. */
enum {
    LENGTHS_MANY_KEYS = 1,
    LENGTHS_FEW_QUERIES = 2,
    LENGTHS_ODD_PAGES = 4,
    LENGTHS_MANY_BLOCKS = 8,
    LENGTHS_NOT_CUT = 16,
    LENGTHS_LOW_TILES = 32,
    LENGTHS_LOWEST_TILES = 64,
    LENGTHS_LOW_CUT_TILES = 128,
    LENGTHS_LOWEST_CUT_TILES = 256,
    LENGTHS_RUNS = 512,
    LENGTHS_RUNS_OF_TWO = 1024,
    LENGTHS_GATHERED = 2048,
    LENGTHS_NINE_ROWS = 4096,
    LENGTHS_ANY_LOW_TILES =
        LENGTHS_LOW_TILES | LENGTHS_LOWEST_TILES | LENGTHS_LOW_CUT_TILES | LENGTHS_LOWEST_CUT_TILES
};
int lathe__lengths(const struct problem *problem);
/* Has a key head nine rows or more against keys of 8 bits: a sequence's tokens times the query heads that
   share it, of packed sequences on average? Where sums may not depend on the batch, packed sequences have. */
bool lathe__has_nine_rows(const struct problem *problem);
/* What of the determinism that somebody asked for is compiled into kernels of this signature: enum
 * determinism. */
static inline uint8_t lathe__determinism(const struct signature *sig, int asked)
{
    return sig->backward || asked == DETERMINISTIC_BATCH ? (uint8_t)asked : DETERMINISTIC_NOT;
}
/* "1", "batch": as a line has it. */
const char *lathe__determinism_text(uint8_t determinism);
/* How many sequences `cu_q` packs; 0: it is not given. */
int64_t lathe__packed(const struct signature *sig, const struct problem *problem);
/* Does TMA read pages of so many keys, boxes of which are whole patterns of a tile's swizzle? How many tokens
   of a tile of `tokens` a box then has: as many as lie within a page and divide both. */
bool lathe__tma_takes_page(int64_t page);
int lathe__page_box(int64_t page, int tokens);
/* Of 16-bit elements [b, head, token, dim], as sequences are read by TMA: the stride of a token, 0 where
   there is one alone. */
int64_t lathe__token_stride(int64_t stride);
/* Does it count the tokens of all batches, or pages, that lie so many tokens apart? At least one. */
bool lathe__tma_counts(int64_t tokens, int64_t apart, int64_t batches);
/* Does TMA step through a dim of several elements by so many bytes? */
bool lathe__tma_takes(int64_t stride_bytes);
/* In elements, also where strides are NULL (compact). */
int64_t lathe__tensor_stride(const lathe_arg *t, int dim);
/* "forward" */
const char *lathe__pass_text(lathe_pass pass);
/* "h_kv", or the name of a free dim. */
const char *lathe__sym_text(const struct signature *sig, int sym);
/* A size that is not bound becomes the one that it is the same as; with `usual`, for a line of text, also
   what it usually is, and a size of its own brings the argument that it belongs to. */
void lathe__sizes_fill(const struct signature *sig, struct problem *p, bool usual);
/* Does the value of a size follow from those before it? */
bool lathe__size_follows(const struct signature *sig, const struct problem *p, int size);
/* Is it another size, and no other? */
bool lathe__size_is_tied(const struct sig_size *s, const struct problem *p);
/* Product of the sizes that are counted. False: it does not fit. */
bool lathe__count(const struct signature *sig, const struct problem *p, int64_t *out);
/* The number of the argument of that name, -1: there is none. The search begins at number `from`. */
int lathe__arg_find(const struct signature *sig, const char *name, int from);
/* A dim as this problem has it: keys may lie in pages, or be a part of all. */
static inline struct sig_dim lathe__dim_here(const struct problem *p, struct sig_dim dim)
{
    dim.sym = p->paged && dim.paged != SYM_ONE ? dim.paged : dim.sym;
    if (dim.whole != SYM_ONE && (dim.whole == SYM_ALL_KV ? p->cut_keys : p->cut_heads))
        dim.sym = dim.whole;
    return dim;
}
/* Is it the size `sym` itself, and not a multiple of it or one more? */
static inline bool lathe__dim_is(struct sig_dim dim, enum sym sym)
{
    return dim.sym == sym && dim.literal == 0 && dim.times < 2 && dim.plus == 0;
}
/* Elements along a dim of an argument; negative where it is not bound. */
int64_t lathe__dim_value(const struct problem *p, struct sig_dim dim);
bool lathe__is_float(lathe_dtype dtype);
/* Why an argument is not taken that other specs of the kind take; NULL: nothing is known of the name. */
const char *lathe__why_absent(const struct signature *sig, const char *name);
bool lathe__has_narrow(const struct problem *problem); /* Has it a tensor of 8 bits? */
bool lathe__is_narrow(lathe_dtype dtype); /* of 8 bits, as q, k and v may be: numbers, not marks as u8 */
/* That of the argument of this name, where it has 8 bits; else NONE. The role of k or v then has the dtype of
   q, which tiles of kernels have. */
lathe_dtype lathe__narrow_dtype(const struct signature *sig, const struct problem *p, const char *name);
/* May a tensor of a role have that dtype, whatever others have? Else err says why. */
lathe_status lathe__role_dtype_check(const struct sig_arg *a, lathe_dtype dtype, lathe_error *err);
/* Which those are, for people. */
const char *lathe__role_dtypes(const struct sig_arg *a);
/* The arguments whose presence is compiled in. */
uint64_t lathe__built_presence(const struct signature *sig);
/* Is the same compiled in for both problems, but for `unaligned`, `folded` and `deterministic`? */
bool lathe__same_build(const struct signature *sig, const struct problem *a, const struct problem *b);
enum { MAX_ELEMENTS_LOG2 = 44 }; /* of a tensor */
/* May a line name the dtype of argument i, as its own or as that of its role? */
bool lathe__names_dtype(const struct signature *sig, int i);
/* Bytes of an element of a role's tensors. */
static inline int lathe__element_bytes(const struct problem *p, enum dtype_role role)
{
    return (int)lathe_dtype_size(p->dtype[role]);
}
/* The usual dtype, and that of every role whose tensors may have any float. */
void lathe__problem_set_dtype(struct problem *p, lathe_dtype dtype);
/* The dtypes of what is absent, and of roles that nothing has named: the usual one. */
void lathe__problem_fill_dtypes(const struct signature *sig, struct problem *p);
void lathe__problem_clear(struct problem *p); /* nothing is bound, nothing present */
/* Bind sizes and dtypes from arguments. Errors ARG: argument, expected, given. `need_data`: data pointers
   must be there (launch), except for optional outputs. */
lathe_status lathe__problem_from_args(const struct signature *sig, const lathe_arg *args, int n,
                                      bool need_data, struct problem *out, lathe_error *err);

/* ---- overlap.c --------------------------------------------------------------------------------------- */

/* A dim of a tensor with strides >= 0 two of whose elements are, or may be, one place; -1: none. */
int lathe__meeting_dim(const lathe_arg *t);
/* Is every result where enum sharing has it, also one that is left out and goes over an operand? Errors ARG.
 */
lathe_status lathe__check_sharing(const struct signature *sig, const lathe_arg *args, int n, bool need_data,
                                  lathe_error *err);

/* ---- rules.c: what a problem must be whose sizes are bound, wherever it is from. Errors ARG --------------
 */

/* Is there such a pass at all? */
lathe_status lathe__pass_check(const struct signature *sig, lathe_error *err);
/* Does argument i, if its dtype is that of a role, have the dtype of such arguments in the set `others`? No
   kernel takes another mix yet, nor does the host device. */
lathe_status lathe__dtype_check(const struct signature *sig, const struct problem *p, int i, uint64_t others,
                                lathe_error *err);
lathe_status lathe__problem_check(const struct signature *sig, const struct problem *p, lathe_error *err);

/* ---- places.c: a call whose keys or heads are a part of all ----------------------------------------------
 */

/* The size of all of which that size is a part; SYM_ONE: none. */
static inline uint8_t lathe__whole_sym(int sym)
{
    return sym == SYM_KV ? SYM_ALL_KV : sym == SYM_H ? SYM_ALL_H : sym == SYM_H_KV ? SYM_ALL_H_KV : SYM_ONE;
}
/* The number of the argument of that role for keys (SYM_ALL_KV) or heads (SYM_ALL_H); -1: there is none. */
int lathe__place_find(const struct signature *sig, enum arg_role role, enum sym sym);
/* Whether they are a part, from the names of arguments, ahead of their shapes; or from what is present. */
void lathe__places_find(const struct signature *sig, const lathe_arg *args, int n, bool need_data,
                        struct problem *p);
void lathe__places_bring(const struct signature *sig, struct problem *p, bool usual);
/* The size that an argument of ROLE_TOTAL is. */
lathe_status lathe__total_bind(const struct sig_arg *a, const lathe_arg *t, struct problem *p,
                               lathe_error *err);
/* All key heads, from the sizes that are bound. */
void lathe__places_fill(struct problem *p);
/* Sizes that go together. */
lathe_status lathe__places_check(const struct signature *sig, const struct problem *p, lathe_error *err);
/* Sizes as inputs' ranges mean them: of all keys and heads. */
void lathe__dims_of_all(const struct problem *p, int64_t dim[SYM_COUNT]);
/* The first key or head; 0: there is no such argument. arg: by their numbers. */
int64_t lathe__place_start(const struct signature *sig, const lathe_arg *const *arg, enum sym sym);
/* Where the keys of a call are among all: from `start` on, or chunks of them that begin `step` apart; chunk
   0: all of them follow each other. */
struct key_places {
    int64_t start, chunk, step;
};
struct key_places lathe__key_places(const struct signature *sig, const lathe_arg *const *arg);
static inline int64_t lathe__place_of_key(const struct key_places *p, int64_t key)
{
    return p->start + (p->chunk > 0 ? key / p->chunk * p->step + key % p->chunk : key);
}
/* Are the parts within all? */
lathe_status lathe__starts_check(const struct signature *sig, const struct problem *p,
                                 const lathe_arg *const *arg, lathe_error *err);

#endif
