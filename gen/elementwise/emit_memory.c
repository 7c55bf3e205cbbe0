/*
 * emit_memory.c: where the elements of a map's tensors lie, and how they come and go: in vectors of W
 * lanes. In: a map and its classes. Out: members of its struct in the variant.
 */
#include "gen/elementwise/emit.h"
#include "gen/base/text.h"

#include <stdio.h>

/* ---- places -------------------------------------------------------------------------------------- */

/* From a pair's lo to its hi. */
static void hi_text(const struct map_emitter *me, int tensor, char *out, size_t size)
{
    if (map_tensor(me, tensor)->form == STAGE_INTERLEAVED)
        snprintf(out, size, "p.t%d.s[%d]", tensor, me->last);
    else
        snprintf(out, size, "p.z%d.n[%d] * p.t%d.s[%d]", me->m, me->last, tensor, me->last);
}

/* Is it read or written at every step? */
static bool in_steps(const struct map_emitter *me, int tensor)
{
    return is_operand(me, 2 * tensor, CLASS_ELEMENT) || is_operand(me, 2 * tensor, CLASS_ROW) ||
           map_uses(me, tensor, USE_STORE);
}

/* Does its place move with the loop? What has a slot does not along the dims that the slot is found by. */
static bool moves(const struct map_emitter *me, int tensor)
{
    return me->loop >= 0 && me->loop != map_slot_dim(me->e->w->maps.tensor, map_tensor(me, tensor));
}

enum last_dim { LAST_LEFT_OUT, LAST_BY_STRIDE, LAST_OF_LANES };

/* at.at[0] * p.t0.s[0] + ..., and of the last dim: lanes, where there are several, are adjacent. */
static void offset_text(const struct map_emitter *me, int tensor, enum last_dim form, struct text_buf *out)
{
    const unsigned span = span_of(map_tensor(me, tensor));
    text_add(out, "0ll");
    for (int k = 0; k < me->last; k++)
        if (span >> k & 1)
            text_add(out, " + at.at[%d] * p.t%d.s[%d]", k, tensor, k);
    if (form == LAST_LEFT_OUT || !(span >> me->last & 1))
        return;
    text_add(out, " + at.first * ");
    text_add(out, form == LAST_BY_STRIDE ? "p.t%d.s[%d]" : "(W > 1 ? 1 : p.t%d.s[%d])", tensor, me->last);
    text_add(out, map_tensor(me, tensor)->form == STAGE_INTERLEAVED ? " * 2" : "");
}

static void emit_advance(struct map_emitter *me)
{
    struct text_buf *out = me->e->out;
    text_add(out, "    template <bool FLAT> DEV void advance(bases &b, const map_params &p, const space &s, "
                  "int steps)\n    {\n");
    for (int i = 0; i < me->e->w->maps.n_tensors; i++) {
        char step[48] = "0";
        if (!in_steps(me, i))
            continue;
        if (moves(me, i))
            snprintf(step, sizeof step, "steps * p.t%d.s[%d]", i, me->loop);
        text_add(out, "        b.t%d += FLAT ? static_cast<i64>(steps) * LINE : %s;\n", i, step);
    }
    emit_part_places(me, PLACE_ADVANCE);
    text_add(out, "    }\n");
}

/* Along a line whose elements are adjacent. */
static void emit_shift(struct map_emitter *me)
{
    struct text_buf *out = me->e->out;
    text_add(out, "    DEV void shift(bases &b, i64 points)\n    {\n");
    for (int i = 0; i < me->e->w->maps.n_tensors; i++)
        if (in_steps(me, i) && (span_of(map_tensor(me, i)) >> me->last & 1))
            text_add(out, "        b.t%d += points%s;\n", i,
                     map_tensor(me, i)->form == STAGE_INTERLEAVED ? " * 2" : "");
    text_add(out, "    }\n");
}

/* Tensors of a list: their own alignment, by the pointers that locate found. */
static void emit_list_question(struct map_emitter *me)
{
    struct text_buf *out = me->e->out;
    text_add(out, "    DEV bool aligned(const bases &b)\n    {\n        return true");
    for (int i = 0; i < me->e->w->maps.n_tensors; i++)
        if (in_steps(me, i))
            text_add(out, " &&\n               (reinterpret_cast<u64>(b.d%d) & 15u) == 0", i);
    text_add(out, ";\n    }\n");
}

void emit_map_bases(struct map_emitter *me)
{
    struct text_buf *out = me->e->out;
    text_add(out, "    struct bases { // of lane 0 of a step, in elements\n        i64 none;\n");
    for (int i = 0; i < me->e->w->maps.n_tensors; i++) {
        if (!in_steps(me, i))
            continue;
        text_add(out, "        i64 t%d; // %s\n", i, map_tensor(me, i)->name);
        if (me->map->list)
            text_add(out, "        %s *d%d;\n", map_type(me, i), i);
    }
    emit_part_places(me, PLACE_MEMBER);
    text_add(out, "    };\n    template <bool FLAT> DEV void locate(bases &b, const map_params &p, const "
                  "space &s, const point &at)\n"
                  "    {\n        b.none = 0;\n");
    for (int i = 0; i < me->e->w->maps.n_tensors; i++) {
        if (!in_steps(me, i))
            continue;
        text_add(out, "        b.t%d = FLAT ? at.first : ", i);
        offset_text(me, i, LAST_BY_STRIDE, out);
        text_add(out, ";\n");
        if (me->map->list)
            text_add(out, "        b.d%d = static_cast<%s *const *>(p.t%d.data)[at.at[0]];\n", i,
                     map_type(me, i), i);
    }
    emit_part_places(me, PLACE_START);
    text_add(out, "    }\n");
    emit_advance(me);
    if (me->gather)
        emit_shift(me);
    if (me->map->list)
        emit_list_question(me);
}

/* const bf16 *const q0 = ..: lane 0 of step u. */
static void pointer_text(struct map_emitter *me, int tensor, bool write)
{
    const char *type = map_type(me, tensor);
    const char *constant = write ? "" : "const ";
    struct text_buf *out = me->e->out;
    text_add(out, "        %s%s *const q%d = ", constant, type, tensor);
    if (me->map->list)
        text_add(out, "b.d%d", tensor);
    else
        text_add(out, "static_cast<%s%s *>(p.t%d.data)", constant, type, tensor);
    text_add(out, " + (b.t%d", tensor);
    if (map_tensor(me, tensor)->slot)
        text_add(out, " + place * p.t%d.s[%d]", tensor,
                 map_slot_dim(me->e->w->maps.tensor, map_tensor(me, tensor)));
    if (moves(me, tensor))
        text_add(out, " + (FLAT ? u * LINE : u * p.t%d.s[%d]));\n", tensor, me->loop);
    else
        text_add(out, " + (FLAT ? u * LINE : 0));\n");
}

void emit_map_questions(struct map_emitter *me)
{
    struct text_buf *out = me->e->out;
    const int n = me->map->n_over;
    if (me->map->list)
        return;
    text_add(out, "    DEV bool whole(const map_params &p)\n    {\n        return true");
    for (int i = 0; i < me->e->w->maps.n_tensors; i++) {
        const struct map_tensor *t = map_tensor(me, i);
        char half[48] = "0";
        if (!(span_of(t) >> me->last & 1) || !(map_uses(me, i, USE_READ) || map_uses(me, i, USE_STORE)))
            continue;
        if (t->form == STAGE_HALF)
            snprintf(half, sizeof half, "p.z%d.n[%d]", me->m, me->last);
        text_add(out, " &&\n               has_vectors<%s, %s, %d>(p.t%d, %s)",
                 t->form == STAGE_INTERLEAVED ? "2 * V" : "V", map_type(me, i), n, i, half);
    }
    emit_early_questions(me);
    text_add(out, ";\n    }\n");
}

/* ---- loads --------------------------------------------------------------------------------------- */

/* enum load_way of elementwise/parts.cuh. */
static const char *load_way(const struct map_emitter *me, int tensor)
{
    return me->e->w->maps.tensor[tensor].n_dims < me->map->n_over ? "SHARED" : "OWN";
}

/* bytes_of<W, bf16> p0, p1; */
static void words_text(struct map_emitter *me, int tensor)
{
    const struct map_tensor *t = map_tensor(me, tensor);
    text_add(me->e->out, "        bytes_of<%s, %s> p%d", t->form == STAGE_INTERLEAVED ? "2 * W" : "W",
             map_type(me, tensor), 2 * tensor);
    if (t->form == STAGE_HALF)
        text_add(me->e->out, ", p%d", 2 * tensor + 1);
    text_add(me->e->out, ";\n");
}

/* <to>p0 = load_lanes<W, true>(q0); */
static void load_text(struct map_emitter *me, int tensor, const char *to)
{
    const struct map_tensor *t = map_tensor(me, tensor);
    struct text_buf *out = me->e->out;
    const char *way = load_way(me, tensor);
    char hi[64];
    hi_text(me, tensor, hi, sizeof hi);
    if (t->form == STAGE_INTERLEAVED)
        text_add(out, "        %sp%d = load_pairs<W, %s>(q%d, %s);\n", to, 2 * tensor, way, tensor, hi);
    else
        text_add(out, "        %sp%d = load_lanes<W, %s>(q%d);\n", to, 2 * tensor, way, tensor);
    if (t->form == STAGE_HALF)
        text_add(out, "        %sp%d = load_lanes<W, %s>(q%d + %s);\n", to, 2 * tensor + 1, way, tensor, hi);
}

/* <to>p0 = element_of<W, bf16>(<from>p0, k); */
static void lane_text(struct map_emitter *me, int tensor, const char *from, const char *to)
{
    const struct map_tensor *t = map_tensor(me, tensor);
    const char *type = map_type(me, tensor);
    for (int v = 2 * tensor; v < 2 * tensor + (is_pair(t) ? 2 : 1); v++) {
        if (t->form == STAGE_INTERLEAVED)
            text_add(me->e->out, "            %sp%d = element_of<2 * W, %s>(%sp%d, 2 * k + %d);\n", to, v,
                     type, from, 2 * tensor, v % 2);
        else
            text_add(me->e->out, "            %sp%d = element_of<W, %s>(%sp%d, k);\n", to, v, type, from, v);
    }
}

/* An operand without lanes: <to>p0 = m_load(..., offset); */
static void load_one_text(struct map_emitter *me, int tensor, const char *to, const char *offset)
{
    const struct map_tensor *t = map_tensor(me, tensor);
    char hi[64];
    hi_text(me, tensor, hi, sizeof hi);
    for (int half = 0; half < (is_pair(t) ? 2 : 1); half++)
        text_add(me->e->out, "        %sp%d = m_load(static_cast<const %s *>(p.t%d.data), %s%s%s);\n", to,
                 2 * tensor + half, map_type(me, tensor), tensor, offset, half ? " + " : "", half ? hi : "");
}

void emit_map_operands(struct map_emitter *me, enum value_class class)
{
    for (int v = 0; v < 2 * me->e->w->maps.n_tensors; v++)
        if (is_operand(me, v, class))
            text_add(me->e->out, "        %s p%d; // %s\n", map_number(me, v / 2), v,
                     map_tensor(me, v / 2)->name);
}

void emit_map_load(struct map_emitter *me)
{
    struct text_buf *out = me->e->out;
    text_add(out, "    template <int W> struct held { // operands of one step, as they are in memory\n");
    for (int i = 0; i < me->e->w->maps.n_tensors; i++)
        if (is_operand(me, 2 * i, CLASS_ELEMENT))
            words_text(me, i);
    emit_map_operands(me, CLASS_ROW);
    emit_early_members(me);
    text_add(out, "    };\n    template <bool FLAT, int W> DEV void load(held<W> &m, const map_params &p, "
                  "const bases &b, const point &from, const head &h, int u)\n    {\n");
    for (int i = 0; i < me->e->w->maps.n_tensors; i++) {
        char offset[64];
        if (is_operand(me, 2 * i, CLASS_ELEMENT)) {
            pointer_text(me, i, false);
            load_text(me, i, "m.");
        }
        snprintf(offset, sizeof offset, "b.t%d + u * p.t%d.s[%d]", i, i, me->loop);
        if (is_operand(me, 2 * i, CLASS_ROW))
            load_one_text(me, i, "m.", offset);
    }
    emit_early_loads(me);
    text_add(out, "    }\n");
}

void emit_map_heads(struct map_emitter *me)
{
    for (int i = 0; i < me->e->w->maps.n_tensors; i++) {
        struct text_buf offset = {0};
        if (!is_operand(me, 2 * i, CLASS_HEAD))
            continue;
        offset_text(me, i, LAST_LEFT_OUT, &offset);
        load_one_text(me, i, "h.", offset.data ? offset.data : "");
        text_fail_with(me->e->out, &offset);
        text_free(&offset);
    }
}

void emit_map_columns(struct map_emitter *me, enum value_class class, const char *to)
{
    struct text_buf *out = me->e->out;
    for (int i = 0; i < me->e->w->maps.n_tensors; i++) {
        if (!is_operand(me, 2 * i, class))
            continue;
        text_add(out, "        const %s *const q%d = static_cast<const %s *>(p.t%d.data) + (",
                 map_type(me, i), i, map_type(me, i), i);
        offset_text(me, i, LAST_OF_LANES, out);
        text_add(out, ");\n");
        words_text(me, i);
        load_text(me, i, "");
        text_add(out, "#pragma unroll\n        for (int k = 0; k < W; k++) {\n");
        lane_text(me, i, "", to);
        text_add(out, "        }\n");
    }
}

void emit_map_lanes(struct map_emitter *me)
{
    char to[32];
    for (int i = 0; i < me->e->w->maps.n_tensors; i++) {
        snprintf(to, sizeof to, "const %s ", map_number(me, i));
        if (is_operand(me, 2 * i, CLASS_ELEMENT))
            lane_text(me, i, "m.", to);
    }
}

/* A result with a slot is stored where there is one; others in a scope alike. */
static void open_slot(struct map_emitter *me, int tensor)
{
    const int operand = map_tensor(me, tensor)->slot - 1;
    if (operand >= 0)
        text_add(me->e->out, "        if (const i64 place = %s.p%d; place >= 0 && place < p.slots%d) {\n",
                 is_operand(me, 2 * operand, CLASS_ROW) ? "r" : "h", 2 * operand, tensor);
}

static void store_lanes(struct map_emitter *me, int tensor)
{
    const struct map_tensor *t = map_tensor(me, tensor);
    struct text_buf *out = me->e->out;
    char hi[64];
    const char *streams = me->map->list ? "false" : "true"; /* lists: mostly in the place of what was read */
    hi_text(me, tensor, hi, sizeof hi);
    pointer_text(me, tensor, true);
    if (t->form == STAGE_INTERLEAVED) {
        text_add(out, "        store_pairs<W, %s>(q%d, %s, y%d, y%d);\n", streams, tensor, hi, 2 * tensor,
                 2 * tensor + 1);
        return;
    }
    text_add(out, "        store_lanes<W, %s>(q%d, y%d);\n", streams, tensor, 2 * tensor);
    if (t->form == STAGE_HALF)
        text_add(out, "        store_lanes<W, %s>(q%d + %s, y%d);\n", streams, tensor, hi, 2 * tensor + 1);
}

void emit_map_store(struct map_emitter *me, int tensor)
{
    open_slot(me, tensor);
    store_lanes(me, tensor);
    if (map_tensor(me, tensor)->slot)
        text_add(me->e->out, "        }\n");
}
