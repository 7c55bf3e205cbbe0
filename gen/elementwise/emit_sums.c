/*
 * emit_sums.c: sums of a map: what a thread adds up, where it leaves it, and the structs of the kernel
 * that adds up the parts. In: a map, or a tensor that is summed or scattered. Out: members of the map's
 * struct; struct total<k>.
 */
#include "gen/elementwise/emit.h"
#include "runtime/recipe/bind.h"
#include "gen/base/text.h"

#include <stdio.h>

bool keeps_lanes(const struct map_emitter *me, int tensor)
{
    return (span_of(map_tensor(me, tensor)) >> me->last & 1) != 0;
}

bool keeps_loop(const struct map_emitter *me, int tensor)
{
    return me->loop >= 0 && (span_of(map_tensor(me, tensor)) >> me->loop & 1) != 0;
}

bool is_scatter_total(const struct map_emitter *me, int s)
{
    return me->e->w->input[map_tensor(me, me->map->scatter[s].tensor)->input].n_dims == 0;
}

static bool is_of_operands(const struct ir *w, int root)
{
    bool is = false;
    for (int p = LEAF_TENSOR; p < LEAF_READ; p++)
        is |= ir_depends_on(w, root, OP_PARAM, p);
    return is;
}

/* A line may have lanes of its own: every lane adds to a place of its own. Where operands say which place,
 * there are none left when a thread leaves its sums. */
bool is_scatter_kept(const struct map_emitter *me, int s)
{
    const struct ir *w = me->e->w;
    const struct map_scatter *to = &me->map->scatter[s];
    const struct input *in = &w->input[map_tensor(me, to->tensor)->input];
    unsigned span = 0;
    bool of_operands = false;
    if (me->gather)
        return true;
    for (int d = 0; d < in->n_dims; d++) {
        span |= w->node[to->index[d]].span;
        of_operands |= is_of_operands(w, to->index[d]);
    }
    return in->n_dims > 0 && !of_operands && me->loop >= 0 && (span & 1u << me->last) &&
           !(span & 1u << me->loop) && (me->outer < 0 || !(span & 1u << me->outer));
}

static bool is_map_sum(const struct map_emitter *me, int v)
{
    return map_uses(me, v / 2, USE_SUM) && (v % 2 == 0 || is_pair(map_tensor(me, v / 2)));
}

/* One value of the block, of a sum without dims. */
static void leave_whole(struct map_emitter *me, int v)
{
    text_add(me->e->out,
             "        const float whole%d = block_sum(t.s%d, shared);\n        if (threadIdx.x == 0) {\n     "
             "       "
             "p.g%d[tile] = whole%d;\n        }\n",
             v, v, v / 2, v);
}

/* Of a line whose sum is whole: nothing is left for the kernel sum. */
static bool is_direct(const struct map_emitter *me, int tensor)
{
    return keeps_lanes(me, tensor) && !keeps_loop(me, tensor) && !is_pair(map_tensor(me, tensor));
}

static void leave_direct(struct map_emitter *me, int tensor, const char *name)
{
    struct text_buf *out = me->e->out;
    text_add(out,
             "            if (m.parts == 1 && p.t%d.data != nullptr) {\n                "
             "leave_results(static_cast<%s *>(p.t%d.data) + (",
             tensor, map_type(me, tensor), tensor);
    for (int k = 0; k < me->last; k++)
        if (span_of(map_tensor(me, tensor)) >> k & 1u)
            text_add(out, "at.at[%d] * p.t%d.s[%d] + ", k, tensor, k);
    text_add(out, "at.first * p.t%d.s[%d]), p.t%d.s[%d], %ss%d);\n            } else {\n    ", tensor,
             me->last, tensor, me->last, name, 2 * tensor);
}

static void leave_item(struct map_emitter *me, int v, const char *name)
{
    const unsigned kept = span_of(map_tensor(me, v / 2));
    const bool lanes = keeps_lanes(me, v / 2);
    text_add(me->e->out, "        {\n            const matrix m = make_matrix<self, %uu>(s);\n", kept);
    if (is_direct(me, v / 2))
        leave_direct(me, v / 2, name);
    text_add(me->e->out,
             "            %s(p.g%d%s + matrix_at<self, %uu>(s, m, at, %s), s, at, %ss%d);\n%s        }\n",
             lanes ? "leave_lanes" : "leave_one", v / 2, v % 2 ? " + m.kept * m.parts" : "", kept,
             lanes ? "static_cast<int>(at.first)" : "0", name, v,
             is_direct(me, v / 2) ? "            }\n" : "");
}

/* A sum over the last dim alone is written as it is where its result is compact: as the workspace would be.
 */
static bool may_be_own(const struct emitter *e, int tensor)
{
    const struct map_tensor *t = &e->w->maps.tensor[tensor];
    const int arg = lathe__arg_find(e->sig, t->name, 0);
    return t->use == USE_SUM && !is_pair(t) && arg >= 0 && e->problem->arg_dtype[arg] == LATHE_F32 &&
           (span_of(t) >> (e->w->maps.map[t->map].n_over - 1) & 1u) == 0;
}

static void emit_part_start(struct map_emitter *me, int v)
{
    const unsigned kept = span_of(map_tensor(me, v / 2));
    text_add(me->e->out,
             "        {\n            const matrix m = make_matrix<self, %uu>(s);\n            b.g%d = ", kept,
             v);
    if (may_be_own(me->e, v / 2))
        text_add(me->e->out, "(is_whole_sum<self, %uu>(p.t%d, s) ? static_cast<float *>(p.t%d.data) : p.g%d)",
                 kept, v / 2, v / 2, v / 2);
    else
        text_add(me->e->out, "p.g%d", v / 2);
    text_add(me->e->out, " + matrix_at<self, %uu>(s, m, at, static_cast<int>(at.first))%s;\n        }\n",
             kept, v % 2 ? " + m.kept * m.parts" : "");
}

void emit_part_places(struct map_emitter *me, enum part_place what)
{
    struct text_buf *out = me->e->out;
    for (int v = 0; v < 2 * me->e->w->maps.n_tensors; v++) {
        const unsigned kept = span_of(map_tensor(me, v / 2));
        if (!is_map_sum(me, v) || !keeps_loop(me, v / 2))
            continue;
        if (what == PLACE_MEMBER)
            text_add(out, "        float *g%d; // part of %s\n", v, map_tensor(me, v / 2)->name);
        else if (what == PLACE_ADVANCE)
            text_add(out, "        b.g%d += steps * matrix_step<self, %uu>(s);\n", v, kept);
        else
            emit_part_start(me, v);
    }
}

void emit_step_leave(struct map_emitter *me, int v)
{
    text_add(me->e->out, "        %s(b.g%d + u * matrix_step<self, %uu>(s), s, at, s%d);\n",
             keeps_lanes(me, v / 2) ? "leave_lanes" : "leave_one", v, span_of(map_tensor(me, v / 2)), v);
}

/* Of sums that keep the last dim, per line; of the others, per item. */
static void emit_members(struct map_emitter *me, bool lanes)
{
    for (int v = 0; v < 2 * me->e->w->maps.n_tensors; v++)
        if (is_map_sum(me, v) && !keeps_loop(me, v / 2) && keeps_lanes(me, v / 2) == lanes)
            text_add(me->e->out, "        float s%d%s; // %s\n", v, lanes ? "[W]" : "",
                     map_tensor(me, v / 2)->name);
}

static void emit_clears(struct map_emitter *me, bool lanes)
{
    struct text_buf *out = me->e->out;
    for (int s = 0; s < me->map->n_scatters && lanes; s++)
        if (is_scatter_kept(me, s))
            text_add(out,
                     "#pragma unroll\n        for (int k = 0; k < W; k++) {\n            sum.c%d[k] = 0.0f;\n"
                     "        }\n",
                     s);
    for (int v = 0; v < 2 * me->e->w->maps.n_tensors; v++) {
        if (!is_map_sum(me, v) || keeps_loop(me, v / 2) || keeps_lanes(me, v / 2) != lanes)
            continue;
        if (lanes)
            text_add(out,
                     "#pragma unroll\n        for (int k = 0; k < W; k++) {\n            sum.s%d[k] = 0.0f;\n"
                     "        }\n",
                     v);
        else
            text_add(out, "        t.s%d = 0.0f;\n", v);
    }
}

static void emit_leaves(struct map_emitter *me, bool lanes)
{
    for (int v = 0; v < 2 * me->e->w->maps.n_tensors; v++) {
        if (!is_map_sum(me, v) || keeps_loop(me, v / 2) || keeps_lanes(me, v / 2) != lanes)
            continue;
        if (span_of(map_tensor(me, v / 2)) == 0)
            leave_whole(me, v);
        else
            leave_item(me, v, lanes ? "sum." : "t.");
    }
}

/* Inputs that are read at the same place in all steps of a thread. */
static void leave_kept(struct map_emitter *me)
{
    struct emitter *e = me->e;
    for (int s = 0; s < me->map->n_scatters; s++) {
        const struct map_scatter *to = &me->map->scatter[s];
        const int n = e->w->input[e->w->maps.tensor[to->tensor].input].n_dims;
        if (me->gather || !is_scatter_kept(me, s))
            continue;
        name_leaves(me);
        text_add(e->out,
                 "        {\n        [[maybe_unused]] const inputs &x = p.x;\n        [[maybe_unused]] "
                 "const map_sizes &z = sizes(p);\n");
        if (is_scatter_line(me, to)) {
            emit_values(e, to->index, n - 1);
            text_add(e->out, "        ");
            emit_scatter_guard(me, to);
            text_add(e->out, "add_lanes<W>(p.g%d + ((", to->tensor);
            emit_scatter_place(me, to, n - 1);
            text_add(e->out, ") * p.h%d.n[%d] + at.first), sum.c%d);\n        }\n", to->tensor, n - 1, s);
            continue;
        }
        text_add(e->out,
                 "#pragma unroll\n        for (int k = 0; k < W; k++) {\n            [[maybe_unused]] const "
                 "int i = static_cast<int>(at.first) + k;\n");
        emit_values(e, to->index, n);
        text_add(e->out, "            ");
        emit_scatter_guard(me, to);
        text_add(e->out, "add_global(p.g%d + ", to->tensor);
        emit_scatter_place(me, to, n);
        text_add(e->out, ", sum.c%d[k]);\n        }\n        }\n", s);
    }
}

/* Scalars that several maps read: a block adds its sum once for a tile. */
static void leave_scatters(struct map_emitter *me)
{
    for (int s = 0; s < me->map->n_scatters; s++)
        if (is_scatter_total(me, s))
            text_add(me->e->out,
                     "        const float all%d = block_sum(t.c%d, shared);\n        if (threadIdx.x == 0) "
                     "{\n            "
                     "add_global(p.g%d, all%d);\n        }\n",
                     s, s, me->map->scatter[s].tensor, s);
}

void emit_map_sums(struct map_emitter *me)
{
    struct text_buf *out = me->e->out;
    text_add(out, "    template <int W> struct sums { // that a thread makes of a line\n");
    emit_members(me, true);
    for (int s = 0; s < me->map->n_scatters; s++)
        if (is_scatter_kept(me, s))
            text_add(out, "        float c%d[W];\n", s);
    text_add(out, "    };\n    struct totals { // of its item\n");
    emit_members(me, false);
    for (int s = 0; s < me->map->n_scatters; s++)
        if (is_scatter_total(me, s))
            text_add(out, "        float c%d;\n", s);
    text_add(out, "    };\n    template <int W> DEV void clear(sums<W> &sum)\n    {\n");
    emit_clears(me, true);
    text_add(out, "    }\n    DEV void clear_totals(totals &t)\n    {\n");
    emit_clears(me, false);
    for (int s = 0; s < me->map->n_scatters; s++)
        if (is_scatter_total(me, s))
            text_add(out, "        t.c%d = 0.0f;\n", s);
    text_add(out, "    }\n    template <int W> DEV void leave(const sums<W> &sum, const map_params &p, const "
                  "space &s, const "
                  "point &at)\n    {\n");
    emit_leaves(me, true);
    leave_kept(me);
    text_add(out, "    }\n    DEV void leave_totals(const totals &t, const map_params &p, const space &s, "
                  "const point &at, "
                  "unsigned tile, scratch &shared)\n    {\n");
    emit_leaves(me, false);
    leave_scatters(me);
    text_add(out, "    }\n");
}

/* ---- the kernel sum ------------------------------------------------------------------------------ */

/* Where element `kept` of the sum lies: dims in the order of the map, or of the input. What is left behind
   the first of them needs no division. */
static void emit_total_place(struct emitter *e, int tensor, const char *sizes)
{
    const struct map_tensor *t = &e->w->maps.tensor[tensor];
    const bool scattered = t->use == USE_SCATTER;
    const int n = scattered ? e->w->input[t->input].n_dims : e->w->maps.map[t->map].n_over;
    const unsigned span = scattered ? (1u << n) - 1u : span_of(t);
    text_add(e->out, "    DEV i64 place(const map_params &p, [[maybe_unused]] const space &s, "
                     "[[maybe_unused]] i64 kept)\n    {\n        i64 at = 0;\n");
    for (int k = n - 1; k >= 0; k--) {
        const char *twice = t->form == STAGE_INTERLEAVED && k == n - 1 ? " * 2" : "";
        if (!(span >> k & 1))
            continue;
        if ((span & ((1u << k) - 1u)) == 0)
            text_add(e->out, "        at += kept * p.t%d.s[%d]%s;\n", tensor, k, twice);
        else
            text_add(e->out, "        at += take_index(kept, %s.n[%d]) * p.t%d.s[%d]%s;\n", sizes, k, tensor,
                     k, twice);
    }
    text_add(e->out, "        return at;\n    }\n");
}

/* The rows of an input are all its elements but those along its last dim. */
static void emit_gather_rows(struct map_emitter *me, const struct map_scatter *to, int rows)
{
    struct text_buf *out = me->e->out;
    text_add(out, "    DEV i64 target_rows(const map_params &p) { return 1ll");
    for (int d = 0; d < rows; d++)
        text_add(out, " * p.h%d.n[%d]", to->tensor, d);
    text_add(out,
             "; }\n    DEV i64 target(const map_params &p, const point &at)\n    {\n        [[maybe_unused]] "
             "const inputs &x = p.x;\n        [[maybe_unused]] const map_sizes &z = sizes(p);\n");
    name_leaves(me);
    emit_values(me->e, to->index, rows);
    text_add(out, "        return ");
    emit_scatter_place(me, to, rows);
    text_add(out, ";\n    }\n");
}

void emit_map_gather(struct map_emitter *me)
{
    struct text_buf *out = me->e->out;
    const struct map_scatter *to = &me->map->scatter[0];
    const int tensor = to->tensor;
    const int rows = me->e->w->input[map_tensor(me, tensor)->input].n_dims - 1;
    const char *type = map_type(me, tensor);
    emit_gather_rows(me, to, rows);
    text_add(out,
             "    DEV bool target_whole(const map_params &p) { return has_vectors<V, %s, %d>(p.t%d, 0); }\n"
             "    template <int W> DEV float *sum_of(sums<W> &sum) { return sum.c0; }\n"
             "    DEV %s *target_row(const map_params &p, i64 row)\n    {\n        i64 at = 0;\n",
             type, rows + 1, tensor, type);
    for (int d = rows - 1; d > 0; d--)
        text_add(out, "        at += take_index(row, p.h%d.n[%d]) * p.t%d.s[%d];\n", tensor, d, tensor, d);
    text_add(
        out,
        "        at += row * p.t%d.s[0];\n        return static_cast<%s *>(p.t%d.data) + at;\n    }\n"
        "    template <int W> DEV void put(%s *row, const map_params &p, i64 first, const sums<W> &sum)\n"
        "    {\n        store_lanes<W, true>(row + first * (W > 1 ? 1 : p.t%d.s[%d]), sum.c0);\n    }\n",
        tensor, type, tensor, type, tensor, rows);
}

static void emit_total_store(struct emitter *e, int tensor, const char *sizes)
{
    const struct map_tensor *t = &e->w->maps.tensor[tensor];
    const int last = e->w->maps.map[t->map].n_over - 1;
    const char *type = element_type((lathe_dtype)e->problem->arg_dtype[lathe__arg_find(e->sig, t->name, 0)]);
    text_add(e->out, "    DEV void store(const map_params &p, const space &s, i64 kept, [[maybe_unused]] int "
                     "plane, float sum)\n    {\n        i64 at = place(p, s, kept);\n");
    if (t->form == STAGE_HALF)
        text_add(e->out, "        at += plane * %s.n[%d] * p.t%d.s[%d];\n", sizes, last, tensor, last);
    if (t->form == STAGE_INTERLEAVED)
        text_add(e->out, "        at += plane * p.t%d.s[%d];\n", tensor, last);
    text_add(e->out, "        static_cast<%s *>(p.t%d.data)[at] = from_sum<%s>(sum);\n    }\n", type, tensor,
             type);
}

void emit_map_total(struct emitter *e, int tensor, int number)
{
    const struct map_tensor *t = &e->w->maps.tensor[tensor];
    const bool scattered = t->use == USE_SCATTER;
    char sizes[16] = "s";
    text_add(e->out,
             "struct total%d { // %s\n    using map = map%d;\n    static constexpr bool SCATTERED = %s;\n    "
             "static "
             "constexpr u32 KEPT = %uu;\n    static constexpr int PLANES = %d;\n",
             number, t->name, t->map, yes(scattered), scattered ? 0 : span_of(t), is_pair(t) ? 2 : 1);
    if (scattered) {
        snprintf(sizes, sizeof sizes, "p.h%d", tensor);
        text_add(e->out, "    DEV i64 count(const map_params &p) { return 1ll");
        for (int d = 0; d < e->w->input[t->input].n_dims; d++)
            text_add(e->out, " * p.h%d.n[%d]", tensor, d);
        text_add(e->out, "; }\n");
    }
    text_add(e->out, "    DEV const %s *parts(const map_params &p) { return p.g%d; }\n",
             map_sum_type(e, tensor), tensor);
    if (may_be_own(e, tensor))
        text_add(e->out,
                 "    DEV bool written(const map_params &p, const space &s) { return is_whole_sum<map, "
                 "KEPT>(p.t%d, "
                 "s); }\n",
                 tensor);
    else
        text_add(e->out, "    DEV bool written(const map_params &, const space &) { return false; }\n");
    emit_total_place(e, tensor, sizes);
    emit_total_store(e, tensor, sizes);
    text_add(e->out, "};\n\n");
}
