/*
 * explain_mask.c: what `lathe explain` says of a mask: where tiles of it are told apart, what share of them
 * is, and why not more. In: a spec, a problem, the plan and its kernels. Out: a line of the caller's text.
 * Tiles are those of the plan, at most TILES of them, drawn at random where there are more; of those that the
 * bounds leave open some are looked at pair by pair.
 */
#include "gen/tool/explain.h"
#include "gen/host/host.h"
#include "gen/tool/run.h"
#include "runtime/recipe/bind.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TILES = 2048, LOOKS = 48 };

struct place_of_tile {
    int64_t row0, kv0;
    int b, h;
};

struct survey {
    const struct ir *ir;
    const struct problem *problem;
    lathe_arg scalar[MAX_INPUTS];
    union {
        float f;
        int32_t i;
    } value[MAX_INPUTS];
    const lathe_arg *input[MAX_INPUTS]; /* of scalars that --set gives; others have their default */
    int64_t all[SYM_COUNT];             /* sizes of all, of which the call may have a part: */
    int64_t q_start, kv_start, h_start; /* it begins there */
    int bm, bn;
    struct random random;
    int tiles, none, full; /* tiles seen, and what their bounds say */
    int n_open, looked, uniform;
    struct place_of_tile open[TILES];
};

static bool reads_tables(const struct ir *ir)
{
    return ir_depends_on(ir, ir->mask.root[0], OP_LOAD, -1);
}

static int64_t draw(struct survey *s, int64_t below)
{
    return below > 1 ? (int64_t)(random_next(&s->random) % (uint64_t)below) : 0;
}

static void tile_of(const struct survey *s, const struct place_of_tile *place, struct tile_at *t)
{
    const struct problem *p = s->problem;
    const int64_t h_kv = p->dim[SYM_H_KV];
    const int64_t group = h_kv > 0 ? p->dim[SYM_H] / h_kv : 1;
    const int64_t h = place->h + s->h_start;
    *t = (struct tile_at){
        .q_start = s->q_start, .row0 = place->row0, .kv0 = place->kv0 + s->kv_start, .input = s->input};
    t->row1 = place->row0 + s->bm < p->dim[SYM_Q] ? place->row0 + s->bm - 1 : p->dim[SYM_Q] - 1;
    t->kv1 = place->kv0 + s->bn < p->dim[SYM_KV] ? place->kv0 + s->bn - 1 : p->dim[SYM_KV] - 1;
    t->kv1 += s->kv_start;
    t->at[AT_B] = place->b;
    t->at[AT_H] = (double)h;
    t->at[AT_H_KV] = (double)(h / (group > 0 ? group : 1));
    t->at[AT_N_B] = (double)p->dim[SYM_B];
    t->at[AT_N_H] = (double)s->all[SYM_H];
    t->at[AT_N_H_KV] = (double)s->all[SYM_H_KV];
    t->at[AT_LEN_Q] = (double)p->dim[SYM_Q];
    t->at[AT_LEN_KV] = (double)s->all[SYM_KV];
    t->at[AT_D] = (double)p->dim[SYM_D];
    t->at[AT_D_V] = (double)p->dim[SYM_D_V];
}

/* ---- looking at pairs ------------------------------------------------------------------------------- */

/* Is every pair of the tile live, or none? False, too, where the mask cannot be computed. */
static bool is_uniform(const struct survey *s, const struct tile_at *t)
{
    const int root = s->ir->mask.root[0];
    const int n = (int)(t->kv1 - t->kv0 + 1);
    struct eval_env env = {.ir = s->ir, .axis = SPAN_KV, .n = n};
    double *key = calloc((size_t)n, sizeof *key);
    int64_t live = 0;
    bool ok = key != NULL;
    memcpy(env.at, t->at, sizeof env.at);
    memcpy(env.input, s->input, sizeof env.input);
    env.at_axis[AT_KV] = key;
    for (int j = 0; ok && j < n; j++)
        key[j] = (double)(t->kv0 + j);
    for (int64_t row = t->row0; ok && row <= t->row1; row++) {
        env.at[AT_ROW] = (double)row;
        env.at[AT_Q] = (double)(row + t->q_start);
        ok = eval_run(&env, &root, 1);
        for (int j = 0; ok && j < n; j++)
            live += host_value(&env, root, j) != 0;
        const int64_t so_far = (row - t->row0 + 1) * n;
        if (live != 0 && live != so_far)
            break;
    }
    eval_free(&env);
    free(key);
    return ok && (live == 0 || live == (t->row1 - t->row0 + 1) * n);
}

/* ---- tiles ------------------------------------------------------------------------------------------ */

static void take_tile(struct survey *s, int64_t number, int64_t key_tiles)
{
    struct tile_at t;
    struct place_of_tile place = {number / key_tiles * s->bm, number % key_tiles * s->bn, 0, 0};
    place.b = (int)draw(s, s->problem->dim[SYM_B]);
    place.h = (int)draw(s, s->problem->dim[SYM_H]);
    tile_of(s, &place, &t);
    const enum tile_class class = bounds_class(s->ir, &t);
    s->tiles++;
    s->none += class == TILE_NONE;
    s->full += class == TILE_ALL;
    if (class == TILE_SOME)
        s->open[s->n_open++] = place;
}

static void survey_tiles(struct survey *s)
{
    const int64_t key_tiles = (s->problem->dim[SYM_KV] + s->bn - 1) / s->bn;
    const int64_t total = (s->problem->dim[SYM_Q] + s->bm - 1) / s->bm * key_tiles;
    for (int i = 0; i < TILES && i < total; i++)
        take_tile(s, total > TILES ? draw(s, total) : i, key_tiles);
    const int step = (s->n_open + LOOKS - 1) / LOOKS;
    for (int i = 0; i < s->n_open; i += step) {
        struct tile_at t;
        tile_of(s, &s->open[i], &t);
        s->looked++;
        s->uniform += is_uniform(s, &t);
    }
}

static bool set_scalars(struct survey *s, const struct name_values *set)
{
    for (int i = 0; i < s->ir->n_inputs; i++) {
        const struct input *in = &s->ir->input[i];
        const char *text = in->is_scalar ? tool_find_value(set, in->name) : NULL;
        double value;
        if (!text)
            continue;
        if (!tool_scalar(in->name, text, in->dtype, &value))
            return false;
        if (in->dtype == LATHE_I32)
            s->value[i].i = (int32_t)value;
        else
            s->value[i].f = (float)value;
        s->scalar[i] = (lathe_arg){in->name, &s->value[i], in->dtype, 0, NULL, NULL};
        s->input[i] = &s->scalar[i];
    }
    return true;
}

/* ---- the line --------------------------------------------------------------------------------------- */

const char *explain_map_kernel(const struct source *source)
{
    for (int i = 0; i < source->n_launches; i++) {
        const char *entry = source->launch[i].entry;
        const size_t size = strlen(entry);
        if (size > 4 && strcmp(entry + size - 4, "_map") == 0)
            return entry;
    }
    return NULL;
}

static double percent(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

static void say_scalars(const struct survey *s, struct text_buf *out)
{
    const char *word = "with";
    for (int i = 0; i < s->ir->n_inputs; i++) {
        const struct input *in = &s->ir->input[i];
        if (!ir_depends_on(s->ir, s->ir->mask.root[0], OP_SCALAR, i))
            continue;
        const double value = !s->input[i]             ? in->default_value
                             : in->dtype == LATHE_I32 ? (double)s->value[i].i
                                                      : (double)s->value[i].f;
        text_add(out, "%s %s = %.9g", word, in->name, value);
        word = ",";
    }
    text_add(out, "%s", word[0] == ',' ? ", " : "");
}

/* Why tiles that are all live, or all dead, are not seen to be. */
static void say_why_not(const struct survey *s, struct text_buf *out)
{
    const struct ir *ir = s->ir;
    const struct ir_node *open = ir->open >= 0 ? &ir->node[ir->open] : NULL;
    char where[DIAG_PLACE_BYTES] = "";
    if (open)
        diag_place(ir->file[open->file], open->line, where);
    if (open)
        text_add(out, "%snothing is known of '%s' on a tile", where, ir_op_name(open->op));
    else
        text_add(out, "the first and the last index of a tile do not tell more");
}

/* looks: the kernel looks at the pairs of a tile that its corners leave open. */
static void say_shares(const struct survey *s, bool looks, struct text_buf *out)
{
    const double open = s->looked > 0 ? (double)s->n_open * s->uniform / s->looked : 0;
    const double some = s->n_open - (looks ? open : 0);
    if (s->tiles == 0) {
        text_add(out, "there is none");
        return;
    }
    say_scalars(s, out);
    text_add(out, "of the tiles %.0f %% are left out, %.0f %% need no mask, ", percent(s->none, s->tiles),
             percent(s->full, s->tiles));
    if (open > 0 && looks)
        text_add(out, "%.0f %% are one or the other by their pairs, ", percent(open, s->tiles));
    text_add(out, "%.0f %% are masked pair by pair", percent(some, s->tiles));
    if (open > 0 && !looks) {
        text_add(out, ", though %.0f %% are all live or all dead: ", percent(open, s->tiles));
        say_why_not(s, out);
    }
}

static int64_t set_value(const struct name_values *set, const char *name, int64_t otherwise)
{
    const char *text = tool_find_value(set, name);
    return text ? strtol(text, NULL, 10) : otherwise;
}

static void set_places(struct survey *s, const struct name_values *set)
{
    lathe__dims_of_all(s->problem, s->all);
    s->q_start = set_value(set, "q_start", s->all[SYM_KV] - s->problem->dim[SYM_Q]);
    s->kv_start = set_value(set, "kv_start", 0);
    s->h_start = set_value(set, "h_start", 0);
}

bool explain_mask(const struct ir *ir, const struct problem *problem, const struct plan *plan,
                  const struct source *source, const struct name_values *set, struct text_buf *out)
{
    if (ir->mask.n_roots == 0 || plan->row->form == PLAN_COMBINE) /* whose keys are behind it */
        return true;
    struct survey *s = calloc(1, sizeof *s);
    const bool backward = plan->row->form == PLAN_ATTENTION_BACK;
    const char *kernel = explain_map_kernel(source);
    if (!s)
        return true; /* a line less */
    s->ir = ir;
    s->problem = problem;
    s->bm = backward ? plan->attention.back.bm : plan->attention.bm;
    s->bn = backward ? plan->attention.back.bn : plan->attention.bn;
    set_places(s, set);
    s->random.state = 1;
    const bool ok = set_scalars(s, set);
    if (ok && kernel)
        text_add(out, "each tile is judged once a launch, by %s: ", kernel);
    else if (ok)
        text_add(out, "each tile is judged by its corners, where the kernel meets it: ");
    if (ok && !reads_tables(ir)) {
        survey_tiles(s);
        say_shares(s, kernel != NULL, out);
    } else if (ok) {
        text_add(out, "the tables that the mask reads decide what is left out");
    }
    free(s);
    return ok;
}
