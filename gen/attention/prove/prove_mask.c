/*
 * prove_mask.c: what bounds.c says about a tile against the mask itself, pair by pair. A tile called empty
 * must have no live pair, one called whole no dead pair; "some" is always right, only slower. In: a prover.
 * Out: a verdict that also counts how many of the uniform tiles were recognised. Tiles are placed at random,
 * along the diagonal, and where constants of the mask move its edge.
 */
#include "gen/attention/prove/prove.h"
#include "gen/attention/mask_tiles.h"
#include "gen/attention/tile_map.h"
#include "gen/prove/proof.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TILES = 60, TILE_MAX = 48, EDGES_MAX = 8, MOST_ELEMENTS = 1 << 23 };

struct sizes {
    int64_t q;
    int64_t kv;
};
static const struct sizes SIZES[] = {{7, 11}, {1, 300}, {130, 200}, {100, 40}, {1100, 1500}};

struct bench {
    struct prover *p;
    struct proof *out;
    struct data data;
    struct host_call call;
    struct eval_env env; /* axis KV */
    double kv[TILE_MAX];
    int64_t n_b, n_h, n_h_kv; /* of the present sizes */
    int n_edges;
    double edge[EDGES_MAX]; /* constants of the mask, and defaults of scalars */
    int n_tiles;
    int n_uniform;
    int n_decided;
};

static void find_edges(struct bench *b)
{
    const struct ir *ir = b->p->ir;
    bool *used = calloc((size_t)ir->n_nodes + 1, sizeof *used);
    if (!used)
        return; /* fewer interesting tiles, that is all */
    ir_mark(ir, ir->mask.root, 1, used);
    for (int i = 0; i < ir->n_nodes && b->n_edges < EDGES_MAX; i++) {
        const struct ir_node *n = &ir->node[i];
        if (!used[i] || (n->op != OP_CONST && n->op != OP_SCALAR))
            continue;
        double value = n->op == OP_CONST ? n->value : ir->input[n->index].default_value;
        if (fabs(value) >= 1 && fabs(value) < 1e6)
            b->edge[b->n_edges++] = value;
    }
    free(used);
}

static int64_t limit(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

static void place_tile(struct bench *b, struct sizes z, struct tile_at *t)
{
    struct prover *p = b->p;
    int64_t rows = 1 + random_below(p, TILE_MAX);
    int64_t keys = 1 + random_below(p, TILE_MAX);
    t->row0 = random_below(p, z.q);
    t->row1 = limit(t->row0 + rows - 1, 0, z.q - 1);
    int64_t near = random_below(p, 3);
    if (near == 0) {
        t->kv0 = random_below(p, z.kv);
    } else {
        int64_t edge = near == 2 && b->n_edges > 0 ? (int64_t)b->edge[random_below(p, b->n_edges)] : 0;
        t->kv0 = t->row0 + t->q_start - edge + random_below(p, 4 * TILE_MAX) - 2 * TILE_MAX;
    }
    t->kv0 = limit(t->kv0, 0, z.kv - 1);
    t->kv1 = limit(t->kv0 + keys - 1, 0, z.kv - 1);
}

/* Live pairs of the tile. */
static lathe_status count_live(struct bench *b, const struct tile_at *t, int64_t *out, lathe_error *err)
{
    int root = b->p->ir->mask.root[0];
    lathe_status status = LATHE_OK;
    *out = 0;
    b->env.n = (int)(t->kv1 - t->kv0 + 1);
    b->env.at_axis[AT_KV] = b->kv;
    for (int j = 0; j < b->env.n; j++)
        b->kv[j] = (double)(t->kv0 + j);
    for (int64_t row = t->row0; row <= t->row1 && status == LATHE_OK; row++) {
        b->env.at[AT_ROW] = (double)row;
        b->env.at[AT_Q] = (double)(row + t->q_start);
        status = host_eval(&b->env, &root, 1, err);
        for (int j = 0; j < b->env.n && status == LATHE_OK; j++)
            *out += host_value(&b->env, root, j) != 0;
    }
    return status;
}

static void judge(struct bench *b, struct sizes z, const struct tile_at *t, int64_t live)
{
    static const char *const name[] = {[TILE_NONE] = "empty", [TILE_SOME] = "mixed", [TILE_ALL] = "whole"};
    int64_t pairs = (t->row1 - t->row0 + 1) * (t->kv1 - t->kv0 + 1);
    enum tile_class class = bounds_class(b->p->ir, t);
    bool wrong = (class == TILE_NONE && live > 0) || (class == TILE_ALL && live < pairs);
    b->n_tiles++;
    b->n_uniform += live == 0 || live == pairs;
    b->n_decided += class != TILE_SOME;
    if (proof_record(b->out, wrong ? 1 : 0))
        proof_blame(
            b->out, proof_line(b->p->ir, b->p->ir->mask.root[0]),
            "q=%lld, kv=%lld, q_start=%lld: rows %lld..%lld and keys %lld..%lld are called %s, %lld of %lld "
            "pairs are live",
            (long long)z.q, (long long)z.kv, (long long)t->q_start, (long long)t->row0, (long long)t->row1,
            (long long)t->kv0, (long long)t->kv1, name[class], (long long)live, (long long)pairs);
}

static int64_t pick_start(struct prover *p, struct sizes z)
{
    switch (random_below(p, 4)) {
    case 0:
        return 0;
    case 1:
        return random_below(p, z.kv + z.q) - z.q;
    default:
        return z.kv - z.q;
    }
}

static lathe_status one_tile(struct bench *b, struct sizes z, lathe_error *err)
{
    const bool given = given_arg(b->p, "q_start") != NULL;
    struct tile_at t = {.q_start = given ? b->call.q_start : pick_start(b->p, z), .input = b->env.input};
    place_tile(b, z, &t);
    b->env.at[AT_B] = (double)random_below(b->p, b->n_b);
    b->env.at[AT_H] = (double)random_below(b->p, b->n_h);
    b->env.at[AT_H_KV] = floor(b->env.at[AT_H] / (double)(b->n_h / b->n_h_kv));
    memcpy(t.at, b->env.at, sizeof t.at);
    int64_t live;
    lathe_status status = count_live(b, &t, &live, err);
    bool usual = t.q_start >= 0 && t.q_start + z.q <= z.kv;
    if (status == LATHE_SPEC && !usual && !given)
        return LATHE_OK; /* an input is read by at.q, which lies outside the keys here: no mistake of the spec
                          */
    if (status == LATHE_OK)
        judge(b, z, &t, live);
    return status;
}

static lathe_status one_size(struct bench *b, struct sizes z, lathe_error *err)
{
    int64_t dim[SYM_COUNT] = {[SYM_ONE] = 1,   [SYM_B] = 2, [SYM_H] = 4,  [SYM_H_KV] = 2, [SYM_Q] = z.q,
                              [SYM_KV] = z.kv, [SYM_D] = 2, [SYM_D2] = 2, [SYM_D_V] = 2};
    lathe_arg arg[DATA_MAX];
    while (reach_elements(&b->p->forward, dim) > MOST_ELEMENTS && dim[SYM_Q] > TILE_MAX)
        dim[SYM_Q] /= 2; /* a tensor by pair would take longer than all tiles */
    prover_sizes(b->p, dim);
    z = (struct sizes){dim[SYM_Q], dim[SYM_KV]};
    b->n_b = dim[SYM_B];
    b->n_h = dim[SYM_H];
    b->n_h_kv = dim[SYM_H_KV];
    if (!data_make(&b->data, b->p, dim))
        return host_out_of_memory(err);
    int n = data_select(&b->data, &b->p->forward, arg);
    lathe_status status = host_bind(&b->call, b->p->ir, &b->p->forward, arg, n, err);
    if (status != LATHE_OK)
        return status;
    host_env_init(&b->env, &b->call, SPAN_KV);
    for (int i = 0; i < TILES && status == LATHE_OK && proof_goes_on(b->p, b->out, "tiles", b->n_tiles); i++)
        status = one_tile(b, z, err);
    eval_free(&b->env);
    return status;
}

void prove_mask(struct prover *p, struct proof *out)
{
    lathe_error err = {.status = LATHE_OK};
    proof_begin(out, "mask bounds", 0);
    out->applies = p->ir->mask.n_roots > 0;
    struct bench *b = calloc(1, sizeof *b);
    if (!b) {
        (void)host_out_of_memory(&err);
        proof_refused(out, &err);
        return;
    }
    b->p = p;
    b->out = out;
    if (out->applies)
        find_edges(b);
    lathe_status status = LATHE_OK;
    for (size_t i = 0; i < sizeof SIZES / sizeof SIZES[0] && status == LATHE_OK && out->applies; i++) {
        status = one_size(b, SIZES[i], &err);
        data_free(&b->data);
    }
    if (status != LATHE_OK)
        proof_refused(out, &err);
    else if (out->applies && out->passed && !out->cut_short)
        snprintf(out->note, sizeof out->note, "decides %d of %d uniform tiles%s", b->n_decided, b->n_uniform,
                 b->n_decided == b->n_uniform || !tile_map_wanted(p->ir) ? ""
                 : bounds_mask_reads_data(p->ir) ? ", the others at the launch, by what the mask reads"
                                                 : ", the others at the launch, by their pairs");
    free(b);
}
