/*
 * emit.h: private to the emitters. An emitter writes C++ text for nodes of a lowered spec; a scope
 * says which nodes already have a name where the text stands.
 */
#ifndef LATHE_EMIT_H
#define LATHE_EMIT_H

#include "gen/base/text.h"
#include "gen/ir/phases.h"
#include "gen/ir/spec.h"

struct backward;
struct kernel_request;
struct plan;

enum { NODE_NAME_BYTES = 96, MAX_DECLARED = 8 };

/* Where a value is computed. A value of a later class may use those of an earlier one. */
enum value_class {
    CLASS_HEAD,    /* once per (batch, head), or per launch */
    CLASS_ROW,     /* once per query row or token, before any tile */
    CLASS_COL,     /* once per key or column */
    CLASS_DYNAMIC, /* per row, from row state or reductions */
    CLASS_ELEMENT,
    CLASS_COUNT
};

struct emitter {
    const struct ir *spec;                      /* before lowering */
    struct ir *w;                               /* a copy of the lowered spec */
    const struct backward *back;                /* of attention's backward pass; NULL: the forward pass */
    void (*mark_more)(const struct emitter *e); /* roots beside those of functions, in `mark`; NULL: none */
    const int *more_roots;                      /* for a mark_more that has nothing else to go by */
    int n_more_roots;
    const struct signature *sig;
    const struct problem *problem;
    struct text_buf *out;
    char (*name)[NODE_NAME_BYTES]; /* per node; "" where it has none in this scope */
    uint8_t *class_of;             /* enum value_class per node */
    bool *mark;                    /* scratch, n_nodes */
    double *most;                  /* per node: an integer is nowhere above it, nor below its opposite */
    bool *of_three;                /* per node: its operands are to be settled (least.c) */
    bool settles_returned;         /* emit_return: templates take the least or the largest of it and others */
    int temp;                      /* number of the next local value */
    const char *declared[MAX_DECLARED]; /* parameter structs that params_open_once has declared */
    int n_declared;
    int starts; /* linear attention whose tokens make several updates: 1 + the buffer of where sequences begin
                   among all updates; 0: there is none */
    bool gathers;   /* attention whose keys are copied out of pages ahead of its kernels */
    int key_starts; /* packed sequences whose keys are copied out of pages: 1 + the buffer of where each
                       begins; 0: there is none */
};

/* False: memory ran out. Whether or not, emitter_close frees what there is. */
bool emitter_open(struct emitter *e, const struct ir *lowered, const struct signature *sig,
                  const struct problem *problem, struct text_buf *out);
void emitter_close(struct emitter *e);

/* ---- least.c */

/* Which nodes are, or may become, a part of a minimum or a maximum of three integers. */
void least_mark(const struct ir *w, bool *of_three);
/* May the compiler make a negation of it? */
bool least_may_negate(const struct ir *w, int node);

/* ---- expr.c */

void scope_clear(struct emitter *e);
void scope_set(struct emitter *e, int node, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void scope_param(struct emitter *e, int param, const char *text); /* names a PARAM leaf, if the spec has it */
/* Lines that compute everything below the roots that has no name yet; afterwards node_text works. */
void emit_values(struct emitter *e, const int *root, int n_roots);
/* The same of one value, and a line that returns it; -1: one that returns `otherwise`. */
void emit_return(struct emitter *e, int value, const char *otherwise);
/* The C++ text of a named node or a leaf. */
const char *node_text(struct emitter *e, int node, char *buf, size_t size);
void float_text(double value, char *out, size_t size); /* hexadecimal, exact as f32, no locale */
const char *c_type(int ir_type);
/* The size of dim d of an input, as C++ text. */
void input_size_text(const struct emitter *e, int input, int d, char *out, size_t size);

/* Index d of a read, clamped where it is not certainly inside. */
void index_text(struct emitter *e, const struct ir_node *n, int d, struct text_buf *t);
/* return g.d_table + (...): of a read whose indices have names or can be computed. */
void emit_address(struct emitter *e, int leaf);

/* A struct of values: the nodes that stand in it, as member f0, f1, ... */
enum { MAX_FIELDS = 64 };
struct field_set {
    const char *type;   /* "head" */
    const char *object; /* "h": how functions call their argument */
    int n;
    int node[MAX_FIELDS];
};
/* Where a set or a list is full, e->out fails, and says so. */
bool field_add(struct emitter *e, struct field_set *set, int node);
/* Every node of `class` that a node of another class below the roots uses, and roots of that class. */
bool fields_collect(struct emitter *e, struct field_set *set, enum value_class class, const int *root,
                    int n_roots);
void fields_name(struct emitter *e, const struct field_set *set); /* in the current scope: "h.f0" */
void fields_declare(struct emitter *e, const struct field_set *set, const char *fixed_members);
/* Compute the fields (nodes with `only`[i], or all where NULL) and assign them to the object. */
void fields_assign(struct emitter *e, const struct field_set *set, const bool *only);

/* ---- passes.c: reductions, and the pass over the elements in which each is made */

/* False: more than there is room for, and e->out says so. */
bool phases_collect(struct emitter *e, const int *root, int n_roots, struct phases *out);
/* PASSES, REDUCTIONS, REDUCE_PASS, REDUCE_OP. */
void phases_declare(struct emitter *e, const struct phases *p);
/* red[i] stands for what `pass` has reduced. */
void phases_name(struct emitter *e, const struct phases *p, int pass);
const char *reduction_name(int op);

/* ---- params.c: parameter structs and recipe rows, made together so that they cannot differ */

struct params {
    struct text_buf *out;    /* the struct's members */
    struct text_buf *report; /* where a failure is said, if `out` is `unread`; else NULL */
    struct text_buf unread;  /* the members of a struct that is declared already */
    struct launch *launch;   /* gets a copy of the rows from params_close; NULL: members only */
    uint32_t offset;
    uint32_t before; /* bytes of the block in front of the struct */
    int n;
    struct param row[MAX_PARAMS];
    struct param none; /* written where the rows are full, never read */
};
struct param_at {
    int arg; /* signature argument, or buffer */
    int dim;
};
void params_open(struct params *p, struct text_buf *out, struct launch *launch, const char *type);
/* The same of a struct that several launches have: the first declares it, in e->out; the others have rows
   alone. `launch` NULL: it is declared, if nothing has declared it, and nothing is launched. */
void params_open_once(struct params *p, struct emitter *e, struct launch *launch, const char *type);
/* The struct comes behind n tensor maps, as in hopper_params of attention/fwd_sm90.cuh. */
void params_behind_maps(struct params *p, int n);
void params_close(struct params *p, const char *type);
/* A row alone, of a member whose text is the caller's. */
struct param *params_row(struct params *p, enum param_kind kind, int arg, int dim, uint32_t bytes);
void params_pointer(struct params *p, const char *type, const char *name, enum param_kind kind, int arg);
void params_strides(struct params *p, const char *name, const char *const *suffix, int arg, int n,
                    int first_dim);
void params_product(struct params *p, const char *name, const struct product *product);
void params_counted(struct params *p, const struct product *product); /* PARAM_COUNTED: no member */
void params_sizes(struct params *p);                                  /* sizes z */
/* The same of a launch whose batches are sequences: n_b of them, q_start as PARAM_Q_START has it for them. */
void params_sequence_sizes(struct params *p, enum sym keys);
/* NAME and NAME_step: a list of integers, nullptr where it is not given. */
void params_list(struct params *p, const struct signature *sig, const char *name);
void params_row_sizes(struct params *p);   /* row_sizes z */
void params_token_sizes(struct params *p); /* sizes z of linear attention */
/* flat: the set of arguments that must be compact for its points to be one long line. */
void params_map_sizes(struct params *p, const char *name, const struct ir_map *map, uint64_t flat);
/* dim[k]: the tensor's dim along dim k of its map, -1: none. */
void params_map_tensor(struct params *p, const char *name, int arg, const int *dim, bool list);
void params_map_counts(struct params *p, const char *name,
                       const struct input *in); /* elements along each dim */
void params_sym(struct params *p, const char *name, enum sym sym);
void params_pack(struct params *p, const char *name, int rows);       /* PARAM_PACK */
void params_start(struct params *p, const char *name, bool is_query); /* position of token 0 */
void params_null(struct params *p, const char *type, const char *name);
/* Arrays of row_source or row_target, and of row_gradient (common/contract.cuh). columns: of rows, not of one
 * value per row. */
void params_rows(struct params *p, const struct signature *sig, const char *type, const char *name,
                 const int *arg, int n, bool columns);
void params_gradients(struct params *p, const struct signature *sig, const char *name, const int *arg, int n);
/* Arrays of n buffers of the workspace; of them as struct scatter_target, with the sizes of gradients arg[].
 */
void params_buffers(struct params *p, const char *type, const char *name, const int *buffer, int n);
void params_scatter_targets(struct params *p, const struct signature *sig, const char *name,
                            const int *buffer, const int *arg, int n);
void params_inputs(struct params *p, struct emitter *e, const char *name);
void emit_inputs_struct(struct emitter *e);
bool input_used(const struct emitter *e, int input);
bool operand_used(const struct emitter *e, int tensor); /* of a map */
const char *element_type(lathe_dtype dtype);            /* "bf16" */
/* Of q, k, v and o, by their numbers in the layouts of attention and linear attention, and of their
 * gradients. */
static inline enum dtype_role tensor_role(int tensor)
{
    static const enum dtype_role role[] = {DTYPE_Q, DTYPE_K, DTYPE_V, DTYPE_O};
    return role[tensor];
}
struct product product_of(int64_t scale);
void product_times(struct product *p, enum sym sym, int tile);
/* Times the sum of tiles and of dim[plus]. */
void product_times_sum(struct product *p, enum sym sym, int tile, enum sym plus);

/* ---- recipe.c: kernels and buffers */

/* "causal_bf16_fwd" */
void recipe_entry_name(const struct ir *ir, lathe_dtype dtype, const char *role, char *out, size_t size);
/* One more; where there is no room for it, e->out fails. */
struct launch *add_launch(struct source *out, const struct emitter *e, const char *role, int threads);
int add_buffer(struct source *out, const struct emitter *e, struct product bytes);
/* parts.c: how many parts the text is compiled in, and, in the config, which kernel is in which. */
void emit_compiled_parts(struct text_buf *config, const struct ir *ir, lathe_dtype dtype, struct source *out);
/* smem.c: the bytes of dynamic shared memory that kernels are launched with, in the config; and that their
   layouts have as many, behind the templates. */
void emit_smem_bytes(struct text_buf *config, const struct ir *ir, lathe_dtype dtype, const struct source *s);
void emit_smem_asserts(struct text_buf *t, const struct ir *ir, lathe_dtype dtype, const struct source *s);

/* ---- attention/emit/emit.c, attention/emit/emit_launch.c, emit_mods.c, rowwise/emit_common.c,
 * rowwise/emit.c */

struct tile_map { /* tile_map.c: one for each batch, each head? */
    bool needed;
    bool ranges; /* of what the mask reads by column, from which the kernel finds classes itself */
    bool per_batch;
    bool per_head;
    int look_heads;
    int rows;       /* of a class, in the forward kernel's map */
    bool look_cols; /* pairs are looked at with a column a lane */
    bool blocks;    /* classes lie within blocks for which the mask is the same: attention/mask_blocks.c */
};
/* Parameter structs into e->out, launches and buffers into out; moved[m]: the tensor of mod m goes through
 * the workspace. */
void emit_attention_launches(struct emitter *e, const struct tile_map *map, const struct plan *plan,
                             struct source *out, bool moved[MOD_COUNT]);
/* struct map_params, launches and buffers. */
void emit_map_launches(struct emitter *e, const struct plan *plan, struct source *out);

#endif
