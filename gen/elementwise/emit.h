/*
 * emit.h: what the emitters of elementwise share. Seen by the files of this folder alone.
 */
#ifndef LATHE_EMIT_MAP_H
#define LATHE_EMIT_MAP_H

#include "gen/emit/emit.h"

struct plan;

struct map_emitter { /* one map */
    struct emitter *e;
    int m;
    const struct ir_map *map;
    int last; /* dims: the last one, and that which a thread goes along; -1: none */
    int loop;
    int outer;               /* around the loop; -1: none */
    bool gather;             /* what is added up at computed places waits for the kernel gather */
    bool flat;               /* one long line would do */
    bool early;              /* lines of inputs are loaded with operands */
    bool reads[MAX_TENSORS]; /* operands that some value needs */
    struct field_set head;
    struct field_set fixed;
    struct field_set col;
    struct field_set row;
    int root[MAX_ROOTS + MAX_SCATTERS * (1 + INPUT_DIMS)]; /* all that a point computes */
    int n_roots;
};

/* Values are numbered 2 * tensor + half, as operands are; half 1: the other of a pair. */

static inline const struct map_tensor *map_tensor(const struct map_emitter *me, int tensor)
{
    return &me->e->w->maps.tensor[tensor];
}
static inline bool is_pair(const struct map_tensor *t)
{
    return t->form != STAGE_ELEMENT;
}
static inline unsigned span_of(const struct map_tensor *t)
{
    unsigned span = 0;
    for (int d = 0; d < t->n_dims; d++)
        span |= 1u << t->dim[d];
    return span;
}
/* Is tensor `tensor` used in this way in this map? */
static inline bool map_uses(const struct map_emitter *me, int tensor, enum tensor_use use)
{
    const struct map_tensor *t = map_tensor(me, tensor);
    return t->map == me->m && t->use == use && (use != USE_READ || me->reads[tensor]);
}

/* ---- emit_common.c */

/* CLASS_DYNAMIC: varies with the last dim, but neither along the loop nor along the dim around it. */
enum value_class map_class(const struct map_emitter *me, unsigned span);
/* Is value `v` an operand of this class? */
bool is_operand(const struct map_emitter *me, int v, enum value_class class);
/* "bf16": in memory; "float": as a number. */
const char *map_type(const struct map_emitter *me, int tensor);
const char *map_number(const struct map_emitter *me, int tensor);
/* Indices of an input whose elements lie side by side, for all lanes. */
bool is_map_line(const struct map_emitter *me, int input, const int *index);
void name_leaves(struct map_emitter *me); /* a scope of its own: nothing computed has a name */
/* The elements that a scatter adds to lie side by side. */
bool is_scatter_line(const struct map_emitter *me, const struct map_scatter *to);
/* "if (...) " where what scatter s adds to may have no elements; nothing otherwise. */
void emit_scatter_guard(struct map_emitter *me, const struct map_scatter *to);
/* Where scatter s adds: "p.g3 + ..."; indices have names. */
void emit_scatter_place(struct map_emitter *me, const struct map_scatter *to, int n);
const char *map_sum_type(const struct emitter *e, int tensor);

/* ---- alike.c */

/* Differ the maps in nothing but their tensors and sizes? They are several, then. */
bool maps_are_alike(struct emitter *e, const struct plan *plan);

/* ---- emit_memory.c */

void emit_map_questions(struct map_emitter *me); /* compact, whole */
void emit_map_bases(struct map_emitter *me);     /* bases, locate, advance */
void emit_map_load(struct map_emitter *me);      /* held, load */
/* Members p0, p1 of the operands of a class. */
void emit_map_operands(struct map_emitter *me, enum value_class class);
/* Lines that fill h.p0, ... of all operands of class HEAD; <to>p0, ... of a class of lanes for every lane k.
 */
void emit_map_heads(struct map_emitter *me);
void emit_map_columns(struct map_emitter *me, enum value_class class, const char *to);
/* Inside of the loop over lanes: const float p0 = ... of the operands of class ELEMENT. */
void emit_map_lanes(struct map_emitter *me);
/* Behind it: y0, y1 to memory. */
void emit_map_store(struct map_emitter *me, int tensor);

/* ---- emit_lines.c */

/* Reads of lines, in vectors; their names inside of the lanes. */
void emit_map_lines(struct map_emitter *me, enum value_class class, const int *root, int n_roots);
void name_map_lines(struct map_emitter *me, enum value_class class, const int *root, int n_roots);
/* Of lines that are loaded with the operands of a step: may they be vectors? Members; loads. */
void emit_early_questions(struct map_emitter *me);
void emit_early_members(struct map_emitter *me);
void emit_early_loads(struct map_emitter *me);

/* ---- emit_sums.c */

/* Scatter s of the map goes to a scalar: summed before it is added. */
bool is_scatter_total(const struct map_emitter *me, int s);
/* It goes to the same place in every step of a thread: added up before it is added. */
bool is_scatter_kept(const struct map_emitter *me, int s);
bool keeps_lanes(const struct map_emitter *me, int tensor); /* has the last dim */
bool keeps_loop(const struct map_emitter *me, int tensor);
void emit_map_sums(struct map_emitter *me); /* sums, totals and what is done with them */
/* A sum that keeps the loop leaves its part at every step: where, in bases, and how it moves on. */
enum part_place { PLACE_MEMBER, PLACE_START, PLACE_ADVANCE };
void emit_part_places(struct map_emitter *me, enum part_place what);
void emit_step_leave(struct map_emitter *me, int v);
/* Of elementwise/gather.cuh: which row a line belongs to, and how a row is written. */
void emit_map_gather(struct map_emitter *me);
/* struct total<number> of the kernel sum. */
void emit_map_total(struct emitter *e, int tensor, int number);

#endif
