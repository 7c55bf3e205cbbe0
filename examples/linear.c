/*
 * linear.c: a model that mixes linear attention with softmax attention, three blocks to one, learns to
 * continue a text, and then does, token by token.
 *
 *     linear [STEPS] [FOLDER]       FOLDER: examples, whose linear/ and train/ have the specs and the text
 *
 * Four blocks behind a byte embedding, each of norm, mixer, norm and feed-forward layer. Three mixers are
 * Gated DeltaNet (the shipped spec `gated_delta`, its beta and decay made of linear layers by
 * linear/gate.lua), the fourth is causal attention; there are no positions but those. On a GPU in bf16, on
 * the host device smaller and shorter, in f32.
 *
 * What is learned continues a prompt: a call for all of the prompt, then one for each token. To linear
 * attention a token's past is a state of one size, which is updated in place: `state` and `state_out` are one
 * tensor. To softmax attention it is the keys and values of all tokens, a buffer that grows. At the end the
 * same tokens go through the model at once, without a past: the logits have to be the same, within rounding.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layers.h"

enum { BLOCKS = 4, SOFTMAX_BLOCK = 3, PROMPT = 48, GENERATED = 80, TOKENS = PROMPT + GENERATED };

enum own_spec { GATE = SHARED_SPECS, DELTA, ATTEND };
static const char *const SPEC[] = {"linear/gate.lua", "gated_delta", "causal"};

/* Of a block; the last five are Gated DeltaNet's gates, and what is there once, behind the blocks. */
enum weight {
    W_NORM1,
    W_Q,
    W_K,
    W_V,
    W_O,
    W_NORM2,
    W_UP,
    W_DOWN,
    W_GATES,
    W_DECAY,
    W_BIAS,
    W_EMBED,
    W_LOGITS,
    BLOCK_WEIGHTS
};

struct block { /* activations; of what is behind the blocks x and n1 alone */
    struct tensor x, n1, q, k, v, gates, beta, g, a, lse, o, s1, n2, h;
};

struct run { /* of so many tokens through the model */
    int batch, rows;
    struct tensor ids, z;
    struct block block[BLOCKS + 1];
};

struct past { /* of one sequence, behind `length` tokens */
    int length;
    struct tensor state[BLOCKS];
    struct tensor k, v; /* [TOKENS, width] */
};

struct model {
    struct size size;
    struct weights w[BLOCKS + 1][BLOCK_WEIGHTS];
    struct tensor identity; /* the values of linear layers */
    struct batch batch;
    struct run run;
    struct tensor dx, ds, dn, dq, dk, dv, da, dnq, dnk, dnv, dng, dgates, dbeta, dg, dz; /* gradients */
};

/* ---- memory ------------------------------------------------------------------------------------------ */

static void make_run(const struct machine *m, const struct size *s, struct run *r, int batch, int length)
{
    const int rows = batch * length;
    r->batch = batch;
    r->rows = rows;
    r->ids = allocate(m, LATHE_I32, DIMS(rows));
    r->z = allocate(m, s->dtype, DIMS(rows, VOCABULARY));
    for (int i = 0; i <= BLOCKS; i++) {
        struct block *b = &r->block[i];
        struct tensor *const wide[] = {&b->x, &b->n1, &b->q,  &b->k,  &b->v,
                                       &b->a, &b->o,  &b->s1, &b->n2, &b->h};
        for (size_t k = 0; k < (i < BLOCKS ? sizeof wide / sizeof *wide : 2); k++)
            *wide[k] = allocate(m, s->dtype, DIMS(rows, s->width));
        b->gates = allocate(m, s->dtype, DIMS(rows, 2 * s->heads));
        b->beta = allocate(m, LATHE_F32, DIMS(rows, s->heads));
        b->g = allocate(m, LATHE_F32, DIMS(rows, s->heads));
        b->lse = allocate(m, LATHE_F32, DIMS(batch, s->heads, length));
    }
}

static void make_block_weights(const struct machine *m, const struct size *s, struct weights *w, int block)
{
    static const enum weight SQUARE[] = {W_Q, W_K, W_V, W_O};
    for (int i = 0; i < 4; i++)
        make_matrix(m, &w[SQUARE[i]], s->dtype, s->width, s->width);
    make_weights(m, &w[W_NORM1], LATHE_F32, 1, 0, DIMS(s->width));
    make_weights(m, &w[W_NORM2], LATHE_F32, 1, 0, DIMS(s->width));
    make_matrix(m, &w[W_UP], s->dtype, s->hidden, s->width);
    make_weights(m, &w[W_DOWN], s->dtype, 0, 1.0f / sqrtf((float)s->hidden), DIMS(1, 1, s->hidden, s->width));
    if (block == SOFTMAX_BLOCK)
        return;
    make_matrix(m, &w[W_GATES], s->dtype, 2 * s->heads, s->width);
    make_weights(m, &w[W_DECAY], LATHE_F32, 0.5f, 0.5f, DIMS(s->heads));
    make_weights(m, &w[W_BIAS], LATHE_F32, -3, 1, DIMS(s->heads)); /* decays of some ten tokens at first */
}

static void model_open(const struct machine *m, struct model *t)
{
    const struct size *s = &t->size;
    const int rows = s->batch * s->length;
    struct tensor *const wide[] = {&t->dx, &t->ds,  &t->dn,  &t->dq,  &t->dk, &t->dv,
                                   &t->da, &t->dnq, &t->dnk, &t->dnv, &t->dng};
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        *wide[i] = allocate(m, s->dtype, DIMS(rows, s->width));
    t->dgates = allocate(m, s->dtype, DIMS(rows, 2 * s->heads));
    t->dbeta = allocate(m, LATHE_F32, DIMS(rows, s->heads));
    t->dg = allocate(m, LATHE_F32, DIMS(rows, s->heads));
    t->dz = allocate(m, s->dtype, DIMS(rows, VOCABULARY));
    t->identity = make_identity(m, s->dtype, s->width > VOCABULARY ? s->width : VOCABULARY);
    make_batch(m, &t->batch, s);
    make_run(m, s, &t->run, s->batch, s->length);
    t->run.ids = t->batch.ids;
    for (int i = 0; i < BLOCKS; i++)
        make_block_weights(m, s, t->w[i], i);
    make_weights(m, &t->w[BLOCKS][W_NORM1], LATHE_F32, 1, 0, DIMS(s->width));
    make_weights(m, &t->w[BLOCKS][W_EMBED], LATHE_F32, 0, 0.5f, DIMS(VOCABULARY, s->width));
    make_matrix(m, &t->w[BLOCKS][W_LOGITS], s->dtype, VOCABULARY, s->width);
}

static void make_past(const struct machine *m, const struct size *s, struct past *p)
{
    const int dim = s->width / s->heads;
    float *zero = zeros((size_t)s->width * (size_t)dim, sizeof *zero);
    p->length = 0;
    p->k = allocate(m, s->dtype, DIMS(TOKENS, s->width));
    p->v = allocate(m, s->dtype, DIMS(TOKENS, s->width));
    for (int i = 0; i < BLOCKS; i++) {
        p->state[i] = allocate(m, LATHE_F32, DIMS(1, s->heads, dim, dim));
        upload(m, &p->state[i], zero);
    }
    free(zero);
}

/* ---- forward: `past` is NULL where every sequence begins here -------------------------------------------
 */

/* [rows, heads] as [b, h, t] */
static struct tensor per_head(const struct tensor *x, int batch, int heads)
{
    struct tensor t = as_heads(x, batch, heads);
    t.ndim = 3;
    return t;
}

static void make_gates(struct machine *m, const struct model *t, int i, const struct block *b)
{
    const int n = t->size.heads;
    const struct weights *w = t->w[i];
    const struct tensor a = columns_of(&b->gates, 0, n);
    const struct tensor beta = columns_of(&b->gates, n, n);
    linear(m, &b->n1, &w[W_GATES].copy, &t->identity, &b->gates);
    FORWARD(m, GATE, {"a", &a, NULL}, {"b", &beta, NULL}, {"a_log", &w[W_DECAY].copy, NULL},
            {"bias", &w[W_BIAS].copy, NULL}, {"beta", &b->beta, NULL}, {"g", &b->g, NULL});
}

/* Of one token this is the step kernel; the state is read and written where it is. */
static void attend_by_state(struct machine *m, const struct model *t, int i, const struct run *r,
                            struct past *past)
{
    const struct block *b = &r->block[i];
    const int n = t->size.heads;
    const struct tensor q = as_heads(&b->q, r->batch, n);
    const struct tensor k = as_heads(&b->k, r->batch, n);
    const struct tensor v = as_heads(&b->v, r->batch, n);
    const struct tensor o = as_heads(&b->a, r->batch, n);
    const struct tensor beta = per_head(&b->beta, r->batch, n);
    const struct tensor g = per_head(&b->g, r->batch, n);
    const struct tensor *state = past ? &past->state[i] : NULL;
    const struct named args[] = {{"q", &q, NULL},        {"k", &k, NULL},           {"v", &v, NULL},
                                 {"o", &o, NULL},        {"beta", &beta, NULL},     {"g", &g, NULL},
                                 {"state", state, NULL}, {"state_out", state, NULL}};
    make_gates(m, t, i, b);
    call(m, DELTA, LATHE_FORWARD, args, past ? 8 : 6);
}

/* Keys and values are those of all tokens so far; `q_start` is the place of the first query among them. */
static void attend_by_keys(struct machine *m, const struct model *t, int i, const struct run *r,
                           struct past *past)
{
    const struct block *b = &r->block[i];
    const int n = t->size.heads;
    const struct tensor all_k = past ? rows_of(&past->k, 0, past->length + r->rows) : b->k;
    const struct tensor all_v = past ? rows_of(&past->v, 0, past->length + r->rows) : b->v;
    const struct tensor q = as_heads(&b->q, r->batch, n);
    const struct tensor k = as_heads(&all_k, r->batch, n);
    const struct tensor v = as_heads(&all_v, r->batch, n);
    const struct tensor o = as_heads(&b->a, r->batch, n);
    int32_t first = past ? past->length : 0;
    const struct tensor q_start = {&first, LATHE_I32, 0, {0}, {0}};
    FORWARD(m, ATTEND, {"q", &q, NULL}, {"k", &k, NULL}, {"v", &v, NULL}, {"o", &o, NULL},
            {"lse", &b->lse, NULL}, {"q_start", &q_start, NULL});
}

static void mix(struct machine *m, const struct model *t, int i, const struct run *r, struct past *past)
{
    const struct block *b = &r->block[i];
    const struct weights *w = t->w[i];
    const int grows = past && i == SOFTMAX_BLOCK;
    const struct tensor k = grows ? rows_of(&past->k, past->length, r->rows) : b->k;
    const struct tensor v = grows ? rows_of(&past->v, past->length, r->rows) : b->v;
    linear(m, &b->n1, &w[W_Q].copy, &t->identity, &b->q);
    linear(m, &b->n1, &w[W_K].copy, &t->identity, &k);
    linear(m, &b->n1, &w[W_V].copy, &t->identity, &v);
    if (i == SOFTMAX_BLOCK)
        attend_by_keys(m, t, i, r, past);
    else
        attend_by_state(m, t, i, r, past);
    linear(m, &b->a, &w[W_O].copy, &t->identity, &b->o);
}

/* In front of a block, or behind the last one: what the block before has made, and its norm. */
static void enter(struct machine *m, const struct model *t, int i, const struct run *r)
{
    const struct block *b = &r->block[i];
    const struct tensor *gain = &t->w[i][W_NORM1].copy;
    if (i == 0)
        FORWARD(m, NORM, {"x", &b->x, NULL}, {"weight", gain, NULL}, {"y", &b->n1, NULL});
    else
        FORWARD(m, ADD_NORM, {"x", &b[-1].h, NULL}, {"residual", &b[-1].s1, NULL}, {"weight", gain, NULL},
                {"y", &b->n1, NULL}, {"sum", &b->x, NULL});
}

static void forward(struct machine *m, const struct model *t, const struct run *r, struct past *past)
{
    FORWARD(m, EMBED, {"table", &t->w[BLOCKS][W_EMBED].copy, NULL}, {"id", &r->ids, NULL},
            {"y", &r->block[0].x, NULL});
    for (int i = 0; i < BLOCKS; i++) {
        const struct block *b = &r->block[i];
        const struct weights *w = t->w[i];
        enter(m, t, i, r);
        mix(m, t, i, r, past);
        FORWARD(m, ADD_NORM, {"x", &b->o, NULL}, {"residual", &b->x, NULL},
                {"weight", &w[W_NORM2].copy, NULL}, {"y", &b->n2, NULL}, {"sum", &b->s1, NULL});
        feed_forward(m, &b->n2, &w[W_UP], &w[W_DOWN], &b->h);
    }
    enter(m, t, BLOCKS, r);
    linear(m, &r->block[BLOCKS].n1, &t->w[BLOCKS][W_LOGITS].copy, &t->identity, &r->z);
    if (past)
        past->length += r->rows;
}

/* ---- backward ---------------------------------------------------------------------------------------- */

static void attend_by_state_back(struct machine *m, struct model *t, int i, const struct tensor d[4])
{
    const struct run *r = &t->run;
    const struct block *b = &r->block[i];
    const int n = t->size.heads;
    struct weights *w = t->w[i];
    const struct tensor q = as_heads(&b->q, r->batch, n);
    const struct tensor k = as_heads(&b->k, r->batch, n);
    const struct tensor v = as_heads(&b->v, r->batch, n);
    const struct tensor beta = per_head(&b->beta, r->batch, n);
    const struct tensor g = per_head(&b->g, r->batch, n);
    const struct tensor dbeta = per_head(&t->dbeta, r->batch, n);
    const struct tensor dg = per_head(&t->dg, r->batch, n);
    BACKWARD(m, DELTA, {"q", &q, NULL}, {"k", &k, NULL}, {"v", &v, NULL}, {"beta", &beta, NULL},
             {"g", &g, NULL}, {"do", &d[0], NULL}, {"dq", &d[1], NULL}, {"dk", &d[2], NULL},
             {"dv", &d[3], NULL}, {"dbeta", &dbeta, NULL}, {"dg", &dg, NULL});
    const struct tensor in[] = {columns_of(&b->gates, 0, n), columns_of(&b->gates, n, n)};
    const struct tensor din[] = {columns_of(&t->dgates, 0, n), columns_of(&t->dgates, n, n)};
    BACKWARD(m, GATE, {"a", &in[0], NULL}, {"b", &in[1], NULL}, {"a_log", &w[W_DECAY].copy, NULL},
             {"bias", &w[W_BIAS].copy, NULL}, {"dbeta", &t->dbeta, NULL}, {"dg", &t->dg, NULL},
             {"da", &din[0], NULL}, {"db", &din[1], NULL}, {"da_log", &w[W_DECAY].gradient, NULL},
             {"dbias", &w[W_BIAS].gradient, NULL});
    linear_back(m, &b->n1, &w[W_GATES], &t->identity, &t->dgates, &t->dng);
}

static void attend_by_keys_back(struct machine *m, struct model *t, int i, const struct tensor d[4])
{
    const struct run *r = &t->run;
    const struct block *b = &r->block[i];
    const int n = t->size.heads;
    const struct tensor q = as_heads(&b->q, r->batch, n);
    const struct tensor k = as_heads(&b->k, r->batch, n);
    const struct tensor v = as_heads(&b->v, r->batch, n);
    const struct tensor o = as_heads(&b->a, r->batch, n);
    BACKWARD(m, ATTEND, {"q", &q, NULL}, {"k", &k, NULL}, {"v", &v, NULL}, {"o", &o, NULL},
             {"lse", &b->lse, NULL}, {"do", &d[0], NULL}, {"dq", &d[1], NULL}, {"dk", &d[2], NULL},
             {"dv", &d[3], NULL});
}

/* From the gradient of a mixer's output, ds, to that of the block's first norm, dn. */
static void mix_back(struct machine *m, struct model *t, int i)
{
    const struct block *b = &t->run.block[i];
    const struct tensor *id = &t->identity;
    struct weights *w = t->w[i];
    const int batch = t->run.batch;
    const int n = t->size.heads;
    const struct tensor d[] = {as_heads(&t->da, batch, n), as_heads(&t->dq, batch, n),
                               as_heads(&t->dk, batch, n), as_heads(&t->dv, batch, n)};
    linear_back(m, &b->a, &w[W_O], id, &t->ds, &t->da);
    if (i == SOFTMAX_BLOCK)
        attend_by_keys_back(m, t, i, d);
    else
        attend_by_state_back(m, t, i, d);
    linear_back(m, &b->n1, &w[W_Q], id, &t->dq, &t->dnq);
    linear_back(m, &b->n1, &w[W_K], id, &t->dk, &t->dnk);
    linear_back(m, &b->n1, &w[W_V], id, &t->dv, &t->dnv);
    const struct named terms[] = {{"y", &t->dn, NULL},
                                  {"a", &t->dnq, NULL},
                                  {"b", &t->dnk, NULL},
                                  {"c", &t->dnv, NULL},
                                  {"d", &t->dng, NULL}};
    call(m, ADD, LATHE_FORWARD, terms, i == SOFTMAX_BLOCK ? 4 : 5);
}

/* dn is the gradient of the norm, ds that of the sum by its other way; dx is what flows to both terms of the
 * sum. */
static void enter_back(struct machine *m, struct model *t, int i)
{
    const struct block *b = &t->run.block[i];
    struct weights *w = &t->w[i][W_NORM1];
    const struct named args[] = {{"x", &b[-1].h, NULL},      {"residual", &b[-1].s1, NULL},
                                 {"weight", &w->copy, NULL}, {"dy", &t->dn, NULL},
                                 {"dx", &t->dx, NULL},       {"dweight", &w->gradient, NULL},
                                 {"dsum", &t->ds, NULL}};
    call(m, ADD_NORM, LATHE_BACKWARD, args, i == BLOCKS ? 6 : 7);
}

static void embed_back(struct machine *m, struct model *t)
{
    struct weights *gain = &t->w[0][W_NORM1];
    struct weights *table = &t->w[BLOCKS][W_EMBED];
    BACKWARD(m, NORM, {"x", &t->run.block[0].x, NULL}, {"weight", &gain->copy, NULL}, {"dy", &t->dn, NULL},
             {"dx", &t->da, NULL}, {"dweight", &gain->gradient, NULL});
    FORWARD(m, ADD, {"a", &t->da, NULL}, {"b", &t->ds, NULL}, {"y", &t->dx, NULL});
    BACKWARD(m, EMBED, {"table", &table->copy, NULL}, {"id", &t->run.ids, NULL}, {"dy", &t->dx, NULL},
             {"dtable", &table->gradient, NULL});
}

static void backward(struct machine *m, struct model *t)
{
    const struct run *r = &t->run;
    BACKWARD(m, LOSS, {"x", &r->z, NULL}, {"target", &t->batch.targets, NULL},
             {"dloss", &t->batch.each, NULL}, {"dx", &t->dz, NULL});
    linear_back(m, &r->block[BLOCKS].n1, &t->w[BLOCKS][W_LOGITS], &t->identity, &t->dz, &t->dn);
    for (int i = BLOCKS - 1; i >= 0; i--) {
        const struct block *b = &r->block[i];
        struct weights *w = t->w[i];
        enter_back(m, t, i + 1);
        feed_forward_back(m, &b->n2, &w[W_UP], &w[W_DOWN], &t->dx, &t->dn);
        BACKWARD(m, ADD_NORM, {"x", &b->o, NULL}, {"residual", &b->x, NULL},
                 {"weight", &w[W_NORM2].copy, NULL}, {"dy", &t->dn, NULL}, {"dsum", &t->dx, NULL},
                 {"dx", &t->ds, NULL}, {"dweight", &w[W_NORM2].gradient, NULL});
        mix_back(m, t, i);
    }
    embed_back(m, t);
}

static void both_passes(struct machine *m, void *model)
{
    struct model *t = model;
    forward(m, t, &t->run, NULL);
    FORWARD(m, LOSS, {"x", &t->run.z, NULL}, {"target", &t->batch.targets, NULL},
            {"loss", &t->batch.losses, NULL});
    backward(m, t);
}

/* ---- generating -------------------------------------------------------------------------------------- */

/* A byte by its probability, made somewhat sharper. */
static int32_t draw(const float *z)
{
    const double sharper = 1.5;
    double weight[VOCABULARY];
    double total = 0.0;
    double most = (double)z[0];
    int32_t id = 0;
    for (int i = 1; i < VOCABULARY; i++)
        most = (double)z[i] > most ? (double)z[i] : most;
    for (int i = 0; i < VOCABULARY; i++)
        total += weight[i] = exp(sharper * ((double)z[i] - most));
    double left = total * (rand() / (RAND_MAX + 1.0));
    for (id = 0; id < VOCABULARY - 1 && left >= weight[id]; id++)
        left -= weight[id];
    return id;
}

static void print_text(const char *what, const int32_t *id, int n)
{
    printf("%s", what);
    for (int i = 0; i < n; i++)
        putchar(id[i] == '\n' || (id[i] >= ' ' && id[i] < 127) ? (int)id[i] : '.');
    printf("\n");
}

/* The prompt at once, then token by token: all tokens, and the logits behind each of them. */
static void continue_prompt(struct machine *m, const struct model *t, int32_t *id, float *z)
{
    struct past past;
    struct run prompt;
    struct run one;
    make_past(m, &t->size, &past);
    make_run(m, &t->size, &prompt, 1, PROMPT);
    make_run(m, &t->size, &one, 1, 1);
    upload_ids(m, &prompt.ids, id);
    forward(m, t, &prompt, &past);
    download(m, &prompt.z, z);
    for (int i = PROMPT; i < TOKENS; i++) {
        id[i] = draw(z + (size_t)(i - 1) * VOCABULARY);
        upload_ids(m, &one.ids, id + i);
        forward(m, t, &one, &past);
        download(m, &one.z, z + (size_t)i * VOCABULARY);
    }
}

/* The largest difference of logits, of the largest logit; NaN where one is. */
static double difference(const float *a, const float *b, size_t n)
{
    double most = 0.0;
    double largest = 0.0;
    for (size_t i = 0; i < n; i++) {
        const double off = fabs((double)a[i] - (double)b[i]);
        largest = fabs((double)a[i]) > largest ? fabs((double)a[i]) : largest;
        most = off > most || isnan(off) ? off : most;
    }
    return most / largest;
}

static int generate(struct machine *m, const struct model *t, const struct text *text)
{
    const double rounding = t->size.dtype == LATHE_F32 ? 1e-5 : 3e-2;
    const size_t n = (size_t)TOKENS * VOCABULARY;
    int32_t id[TOKENS] = {0};
    float *z = zeros(2 * n, sizeof *z);
    struct run whole;
    for (size_t i = 0; i < PROMPT; i++)
        id[i] = id_of(text, i);
    continue_prompt(m, t, id, z);
    make_run(m, &t->size, &whole, 1, TOKENS);
    upload_ids(m, &whole.ids, id);
    forward(m, t, &whole, NULL);
    download(m, &whole.z, z + n);
    const double off = difference(z, z + n, n);
    print_text("---- prompt\n", id, PROMPT);
    print_text("---- continued\n", id + PROMPT, GENERATED);
    printf("---- logits at once and token by token: %.2g apart, of the largest; %.2g is rounding\n", off,
           rounding);
    free(z);
    return off <= rounding;
}

int main(int argc, char **argv)
{
    /* 16 gates of 8 heads: the fewest outputs of a linear layer on a GPU */
    static const struct size GPU = {256, 8, 1024, 16, 512, 600, LATHE_BF16, 1e-3f};
    static const struct size HOST = {64, 8, 128, 4, 64, 100, LATHE_F32, 5e-3f};
    const char *folder = argc > 2 ? argv[2] : "examples";
    struct machine machine;
    struct text text;
    struct model *model = zeros(1, sizeof *model);
    read_text(&text, folder);
    machine_open(&machine, folder, SPEC, sizeof SPEC / sizeof *SPEC);
    model->size = choose_size(&machine, &GPU, &HOST, argc > 1 ? argv[1] : NULL);
    model_open(&machine, model);
    const double fallen = train(&machine, &model->size, &text, &model->batch, model->w[0],
                                (BLOCKS + 1) * BLOCK_WEIGHTS, both_passes, model);
    const int same = generate(&machine, model, &text);
    machine_close(&machine); /* the process ends here: what the model holds goes with it */
    free(text.byte);
    free(model);
    return fallen > 0.0 && same ? 0 : 1;
}
