/*
 * emit.h: private to the emitters of attention: the parts of struct variant that both passes have,
 * and the recipe's places and launches.
 */
#ifndef LATHE_EMIT_ATTENTION_H
#define LATHE_EMIT_ATTENTION_H

#include "gen/emit/emit.h"
#include "gen/attention/lower.h"

struct back_plan;
struct backward;
struct plan;
struct text_buf;

#define AT_PAIR "const inputs &x, const sizes &z, const head &h"

struct step { /* what happens to a row in a tile */
    struct ir_fn fn;
    struct schedule s;
    struct field_set tile;
    int n_key_strides; /* among the tile's fields */
    int logistic;      /* x of a weight 1 / (1 + exp2(x)); -1: it is another one */
    int capped;        /* a tanh(b <q, k>), by which alone the product is known; -1: there is no such node */
    int relu; /* x of a weight max(x, 0) whose maximum is left to the conversion; -1: it is another one */
    double cap_factor, cap_scale; /* a and b of `capped` */
};

struct attention {
    struct emitter *e;
    struct step exact;
    struct step kept; /* the running maximum stays */
    bool keeps;       /* there is such a step, and the template wants it */
    bool forward;     /* the forward kernel is launched */
    bool online;      /* rows go through the online function, in whichever kernel */
    struct field_set head;
    struct field_set row;
    struct field_set col;
    struct tile_map map;
    bool selected;    /* kernels walk lists of blocks, and ask about no pair */
    bool shares;      /* the forward kernel's lanes find values of columns for each other */
    bool shares_rows; /* the backward kernel's those of rows */
};

/* ---- emit_scope.c */

/* Names that hold wherever head, row and column are at hand. */
void name_static(struct attention *a, bool row, bool col);
void name_states(struct attention *a);
/* delta = at.q - at.kv stands for every difference of the two. */
void name_distances(struct emitter *e);

/* ---- emit_mask.c */

/* Whether tiles are told by data, and what they vary with. Before the launches. */
void find_map(struct attention *a, const struct plan *plan);
void emit_mask(struct attention *a);

/* ---- emit_fused.c */

/* What of a step the kernel does. Before anything of the step is emitted. */
void find_fused(struct attention *a, const struct plan *plan, struct step *step);
void emit_fused(struct attention *a, const struct step *step);

/* ---- emit_finish.c */

/* finish(), empty_finals() and store_finals(). */
void emit_finish(struct attention *a);
/* Does a row end as a part of it: its states, and o as it was gathered? */
bool ends_as_part(const struct emitter *e);

/* ---- emit_parts.c */

struct launcher;
struct layout;
/* Of rows that are cut by keys: how states of parts become one. False: too many reductions, which is said. */
bool emit_row_parts(struct attention *a, const struct plan *plan);
/* The two kernels, in the place of the one of whole rows; the struct's second text goes to `again`. */
void add_parts(const struct launcher *a, const struct layout *l, const struct plan *plan, struct source *out,
               struct text_buf *again);

/* ---- emit_combine.c */

/* Of the pass that puts parts together: emit_attention_launches of emit/emit.h. */
void emit_combine_launches(struct emitter *e, const struct plan *plan, struct source *out,
                           bool moved[MOD_COUNT]);

/* ---- emit_launch.c */

struct place {  /* where a tensor of [b, heads, len, dim] lives */
    int arg;    /* signature argument, or -1: */
    int buffer; /* a compact workspace buffer */
    enum sym heads;
    enum sym len;
    int dim;
    bool one_batch; /* of a workspace buffer: packed sequences lie in one */
    int tile;       /* of a workspace buffer: tokens lie in tiles of so many; 0: they do not */
};

/* In the order of enum mod. */
enum { TENSOR_Q, TENSOR_K, TENSOR_V, TENSOR_O, TENSOR_COUNT };

struct layout {
    bool moved[TENSOR_COUNT];         /* through the workspace: by a mod, or because rows are not aligned */
    struct place outer[TENSOR_COUNT]; /* the arguments */
    struct place inner[TENSOR_COUNT]; /* what the kernel reads and writes: arguments, or what mods made */
    struct place final[MAX_STATE];
    struct place ends; /* of rows that end as parts, in the place of the finals */
    int map_buffer;
    int counter_buffer; /* of query tiles taken */
};

struct launcher {
    struct emitter *e;
    const struct tile_map *map;
    int d2; /* columns that the kernel reads from q2 and k2; 0: those are copied behind q and k, or not there
             */
    bool reads_narrow;    /* k and v of 8 bits, as they lie in memory */
    bool applies_key_mod; /* the kernel does; else another one does ahead */
    int turned;           /* keys of a tile of V, which lies turned over in the workspace; 0: it does not */
};

/* A compact [b, heads, len, dim] in the workspace, in the place's stead. */
void emit_place_in_workspace(struct place *t, int element_bytes, const struct emitter *e, struct source *out);
void emit_place_pointer(struct params *p, const char *type, const char *name, const struct place *t);
void emit_place_strides(struct params *p, const char *name, const struct place *t);
/* Are batches sequences of their own lengths? Then nothing is moved, and there is no map. */
bool has_sequences(const struct emitter *e);
/* In pages, which k and v are pools of, and which kernels read; in the backward pass, and where a plan says
   so, they are copied out of them first. */
bool keys_have_pages(const struct emitter *e);
bool keys_are_gathered(const struct emitter *e);
/* How many keys a batch has, or all packed sequences. */
enum sym keys_of_call(const struct emitter *e);
/* Do they lie one behind the other, in one batch? */
bool is_packed(const struct emitter *e);
void emit_times_tiles(struct product *grid, const struct emitter *e, enum sym heads, enum sym tokens,
                      int rows);
/* What attention/sequences.cuh asks of parameters: where sequences lie, and a function to begin with one. In
   between: rows of a tensor, and floats of each row, that may be none. */
void emit_enter(struct params *p, const struct emitter *e);
void emit_enter_rows(const struct emitter *e, const char *type, const char *name, bool keys);
void emit_enter_floats(const struct emitter *e, const char *name);
void emit_enter_end(const struct emitter *e);
/* The first n of q, k, v and do by those names; floats of each row by a numbered name, if they are there; and
   what struct grads has for each token. */
void emit_enter_operands(const struct emitter *e, const char *const *name, int n);
void emit_enter_numbered(const struct emitter *e, const char *name, int number, bool there);
void emit_enter_gradients(const struct emitter *e);
/* Of rows that mods work on: of queries, or of keys; the kernel itself adds up where they begin. */
void emit_enter_rows_of(struct params *p, const struct emitter *e, bool queries);
/* Sizes of a call, whose batches may be sequences. */
void emit_call_sizes(struct params *p, const struct emitter *e);
/* The same of their gradients. */
void emit_enter_dq(struct params *p, const struct emitter *e, bool queries);
struct sig_dim gradient_dim(const struct emitter *e, int input, int d);
/* The argument that an input's gradient is, and whether it is asked for. */
int gradient_of_input(const struct emitter *e, int input);
bool grad_wanted(const struct emitter *e, int input);
/* NAME_d: from one element of a row to the next. */
void emit_place_step(struct params *p, const char *name, const struct place *t);
/* Is its head dim no multiple of 8? Then kernels have copies of its rows, with zeros behind them. */
bool is_odd_row(const struct emitter *e, int tensor);
/* Need not all rows of q, k and v be aligned, nor those of do where they are copied? Then mods read them
 * element by element, however far apart. */
bool has_unaligned_rows(const struct emitter *e);
void add_mod(const struct launcher *a, const struct layout *l, int tensor, struct source *out,
             struct text_buf *text);
/* V turned over: attention/turned_values.cuh. */
void add_turned(const struct launcher *a, const struct layout *l, struct source *out);
/* Are rows of this tensor, q or k, copied with those of q2 or k2 behind them? In the place of a mod. */
bool is_copied_pair(const struct launcher *a, int tensor);
void add_pair(const struct launcher *a, const struct layout *l, int tensor, struct source *out,
              struct text_buf *text);
/* From gradients of such rows to dq and dq2, or to dk and dk2. */
void add_pair_back(const struct launcher *a, int tensor, const struct place *both, struct source *out,
                   struct text_buf *text);
/* Rows of do with zeros behind them, where d_v is no multiple of 8. */
void add_copy_of_do(const struct launcher *a, const struct place *from, const struct place *to,
                    struct source *out, struct text_buf *text);
/* Both return the buffer; the struct map_params is written, too: by the second to `text`. */
int add_map(const struct launcher *a, const struct plan *plan, struct source *out);
int add_back_map(const struct launcher *a, const struct back_plan *tile, struct source *out,
                 struct text_buf *text);
void make_layout(const struct launcher *a, struct layout *l, int n_moved, struct source *out);
/* Of a kernel's struct attention_params, what comes first and what comes last. */
void params_tensors(struct params *p, const struct launcher *a, const struct layout *l);
void params_end(struct params *p, const struct launcher *a, const struct layout *l, const struct plan *plan);
void add_forward(const struct launcher *a, const struct layout *l, const struct plan *plan,
                 struct source *out);

/* ---- emit_pages.c: keys that are copied out of pages (attention/pages.cuh) */

struct page_gradients {                              /* that pages get; none of it in the forward pass */
    const struct place *dk_rows, *dv_rows, *dk, *dv; /* NULL: not wanted */
    int first, next; /* buffers: lists of the table's entries, by page; -1: none */
};
/* Where each of the packed sequences begins among such keys: before anything that names the list. */
void emit_key_starts(struct emitter *e, struct source *out);
void emit_page_params(struct emitter *e, const struct layout *l, const struct page_gradients *g,
                      struct launch *launch);
void emit_pages_in(struct emitter *e, const struct layout *l, const struct page_gradients *g,
                   struct source *out);

/* ---- back_pair.c */

/* Formulas of a pair: the weight, ds and the values of its sites. */
int back_value_roots(const struct backward *b, int *root);
/* What of these roots is given per row, also what pairs use as it is. */
bool back_collect_values(struct emitter *e, struct field_set *set, const int *root, int n);
/* The same of the formulas of a pair. */
bool back_collect_row(struct emitter *e, struct field_set *set);
/* Floats of a row that pair() reads; -1: too many. */
int back_row_count(struct emitter *e);
/* What slope() is handed: the weight as it was rounded, where that is as exact as it is, for it is a factor;
   or, for the sake of sites, whose sums may cancel, as it is. -1: neither will do, and slope() finds it anew.
 */
int back_handed_weight(const struct emitter *e, const int *root, int n);
/* Where all of a pair is a matter of its weight, and the weight a product by a value of the row that is 1 but
   in rows with large finals, the product is left to a branch of the kernels: that value's node, and the rest
   of the weight; -1: pairs multiply themselves. */
int back_seldom_norm(const struct emitter *e, int *rest);
/* Is the weights' product by what large finals leave (LEAF_NORM) the kernel's? */
bool back_has_norm(const struct emitter *e);
/* The value that pairs of a diagonal share; -1: there is none. */
int back_find_diagonal(const struct emitter *e);

/* ---- emit_backward.c, emit_backward_launch.c */

void emit_backward(struct attention *a, const struct plan *plan);
/* emit_gradient_tables.c: of sites at which lanes of a warp may meet. */
void emit_meeting_sites(struct attention *a, const struct plan *plan);
void emit_backward_launches(struct emitter *e, const struct tile_map *map, const struct plan *plan, int rows,
                            struct source *out, bool moved[MOD_COUNT]);
void emit_grads_struct(struct emitter *e);
/* dq, dk or dv: given, or on the way to the gradient of an input. */
bool gradient_wanted(const struct emitter *e, enum mod which);
/* Of k or v: does the main kernel leave it in the workspace, for bwd_k or bwd_v to write the result from? */
bool gradient_in_floats(const struct emitter *e, const struct plan *plan, enum mod which);
/* Is bwd_q, bwd_k, bwd_v or bwd_o launched? */
bool back_mod_runs(const struct emitter *e, const struct plan *plan, enum mod which);
void emit_backward_config(struct text_buf *t, const struct emitter *e, const struct plan *plan);

/* ---- emit_split.c */

void emit_split(struct attention *a);
/* high[i] and norm[i] stand for the parts of finals. */
void split_name(struct emitter *e);
/* Of the online function's states: two nodes for each final that is taken apart; returns how many. */
int split_roots(const struct backward *b, int *root);

#endif
