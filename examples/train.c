/*
 * train.c: a transformer block that learns to continue a text, every layer of it a kernel of Lathe.
 *
 *     train [STEPS] [FOLDER]        FOLDER: examples, whose train/ has the specs and the text
 *
 * One block behind a byte embedding: norm, attention with a learned slope and a learned table of relative
 * positions per head, norm, feed-forward layer, norm, logits, cross entropy; AdamW. On a GPU in bf16, with
 * f32 weights behind it; on the host device smaller and shorter, in f32. Gradients are what lathe derives of
 * the forward specs: there is not one of them in this file. The loss of every tenth step is printed, in nats
 * per byte.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layers.h"

enum { NEAR = 32 };

enum own_spec { ATTEND = SHARED_SPECS };
static const char *const SPEC[] = {"train/attend.lua"};

enum weight {
    W_EMBED,
    W_NORM1,
    W_Q,
    W_K,
    W_V,
    W_SLOPE,
    W_TABLE,
    W_O,
    W_NORM2,
    W_UP,
    W_DOWN,
    W_NORM3,
    W_LOGITS,
    WEIGHTS
};

struct model {
    struct size size;
    struct weights w[WEIGHTS];
    struct tensor identity; /* the values of linear layers */
    struct batch batch;
    /* activations, and the gradient of each under the same name */
    struct tensor x0, n1, q, k, v, a, lse, o, s1, n2, h, s2, n3, z;
    struct tensor dx0, dn1, dnq, dnk, dnv, dq, dk, dv, da, ds1, dn2, ds2, dn3, dz;
};

static void make_all_weights(const struct machine *m, struct model *t)
{
    const struct size *s = &t->size;
    const lathe_dtype a = s->dtype;
    static const enum weight SQUARE[] = {W_Q, W_K, W_V, W_O};
    static const enum weight GAIN[] = {W_NORM1, W_NORM2, W_NORM3};
    for (int i = 0; i < 4; i++)
        make_matrix(m, &t->w[SQUARE[i]], a, s->width, s->width);
    for (int i = 0; i < 3; i++)
        make_weights(m, &t->w[GAIN[i]], LATHE_F32, 1, 0, DIMS(s->width));
    make_weights(m, &t->w[W_EMBED], LATHE_F32, 0, 0.5f, DIMS(VOCABULARY, s->width));
    make_matrix(m, &t->w[W_LOGITS], a, VOCABULARY, s->width);
    make_matrix(m, &t->w[W_UP], a, s->hidden, s->width);
    make_weights(m, &t->w[W_DOWN], a, 0, 1.0f / sqrtf((float)s->hidden), DIMS(1, 1, s->hidden, s->width));
    make_weights(m, &t->w[W_SLOPE], LATHE_F32, 0.05f, 0.02f, DIMS(s->heads));
    make_weights(m, &t->w[W_TABLE], LATHE_F32, 0, 0.02f, DIMS(s->heads, NEAR));
}

static void model_open(const struct machine *m, struct model *t)
{
    const struct size *s = &t->size;
    const int64_t rows = (int64_t)s->batch * s->length;
    struct tensor *const wide[] = {&t->x0,  &t->n1,  &t->q,   &t->k,  &t->v,  &t->a,   &t->o,
                                   &t->s1,  &t->n2,  &t->h,   &t->s2, &t->n3, &t->dx0, &t->dn1,
                                   &t->dnq, &t->dnk, &t->dnv, &t->dq, &t->dk, &t->dv,  &t->da,
                                   &t->ds1, &t->dn2, &t->ds2, &t->dn3};
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        *wide[i] = allocate(m, s->dtype, DIMS(rows, s->width));
    t->z = allocate(m, s->dtype, DIMS(rows, VOCABULARY));
    t->dz = allocate(m, s->dtype, DIMS(rows, VOCABULARY));
    t->lse = allocate(m, LATHE_F32, DIMS(s->batch, s->heads, s->length));
    t->identity = make_identity(m, s->dtype, s->width > VOCABULARY ? s->width : VOCABULARY);
    make_batch(m, &t->batch, s);
    make_all_weights(m, t);
}

static struct tensor heads(const struct model *t, const struct tensor *x)
{
    return as_heads(x, t->size.batch, t->size.heads);
}

static void forward(struct machine *m, const struct model *t)
{
    const struct weights *w = t->w;
    const struct tensor *id = &t->identity;
    FORWARD(m, EMBED, {"table", &w[W_EMBED].copy, NULL}, {"id", &t->batch.ids, NULL}, {"y", &t->x0, NULL});
    FORWARD(m, NORM, {"x", &t->x0, NULL}, {"weight", &w[W_NORM1].copy, NULL}, {"y", &t->n1, NULL});
    linear(m, &t->n1, &w[W_Q].copy, id, &t->q);
    linear(m, &t->n1, &w[W_K].copy, id, &t->k);
    linear(m, &t->n1, &w[W_V].copy, id, &t->v);
    const struct tensor q = heads(t, &t->q);
    const struct tensor k = heads(t, &t->k);
    const struct tensor v = heads(t, &t->v);
    const struct tensor a = heads(t, &t->a);
    FORWARD(m, ATTEND, {"q", &q, NULL}, {"k", &k, NULL}, {"v", &v, NULL}, {"slope", &w[W_SLOPE].copy, NULL},
            {"table", &w[W_TABLE].copy, NULL}, {"o", &a, NULL}, {"lse", &t->lse, NULL});
    linear(m, &t->a, &w[W_O].copy, id, &t->o);
    FORWARD(m, ADD_NORM, {"x", &t->o, NULL}, {"residual", &t->x0, NULL}, {"weight", &w[W_NORM2].copy, NULL},
            {"y", &t->n2, NULL}, {"sum", &t->s1, NULL});
    feed_forward(m, &t->n2, &w[W_UP], &w[W_DOWN], &t->h);
    FORWARD(m, ADD_NORM, {"x", &t->h, NULL}, {"residual", &t->s1, NULL}, {"weight", &w[W_NORM3].copy, NULL},
            {"y", &t->n3, NULL}, {"sum", &t->s2, NULL});
    linear(m, &t->n3, &w[W_LOGITS].copy, id, &t->z);
    FORWARD(m, LOSS, {"x", &t->z, NULL}, {"target", &t->batch.targets, NULL},
            {"loss", &t->batch.losses, NULL});
}

static void attend_back(struct machine *m, struct model *t)
{
    struct weights *w = t->w;
    const struct tensor q = heads(t, &t->q);
    const struct tensor k = heads(t, &t->k);
    const struct tensor v = heads(t, &t->v);
    const struct tensor a = heads(t, &t->a);
    const struct tensor da = heads(t, &t->da);
    const struct tensor dq = heads(t, &t->dq);
    const struct tensor dk = heads(t, &t->dk);
    const struct tensor dv = heads(t, &t->dv);
    BACKWARD(m, ATTEND, {"q", &q, NULL}, {"k", &k, NULL}, {"v", &v, NULL}, {"slope", &w[W_SLOPE].copy, NULL},
             {"table", &w[W_TABLE].copy, NULL}, {"o", &a, NULL}, {"lse", &t->lse, NULL}, {"do", &da, NULL},
             {"dq", &dq, NULL}, {"dk", &dk, NULL}, {"dv", &dv, NULL}, {"dslope", &w[W_SLOPE].gradient, NULL},
             {"dtable", &w[W_TABLE].gradient, NULL});
}

/* The gradient of a sum goes to both of its terms, so ds2 is that of h and of s1, and ds1 that of o and of
 * x0. */
static void backward(struct machine *m, struct model *t)
{
    struct weights *w = t->w;
    const struct tensor *id = &t->identity;
    BACKWARD(m, LOSS, {"x", &t->z, NULL}, {"target", &t->batch.targets, NULL},
             {"dloss", &t->batch.each, NULL}, {"dx", &t->dz, NULL});
    linear_back(m, &t->n3, &w[W_LOGITS], id, &t->dz, &t->dn3);
    BACKWARD(m, ADD_NORM, {"x", &t->h, NULL}, {"residual", &t->s1, NULL}, {"weight", &w[W_NORM3].copy, NULL},
             {"dy", &t->dn3, NULL}, {"dx", &t->ds2, NULL}, {"dweight", &w[W_NORM3].gradient, NULL});
    feed_forward_back(m, &t->n2, &w[W_UP], &w[W_DOWN], &t->ds2, &t->dn2);
    BACKWARD(m, ADD_NORM, {"x", &t->o, NULL}, {"residual", &t->x0, NULL}, {"weight", &w[W_NORM2].copy, NULL},
             {"dy", &t->dn2, NULL}, {"dsum", &t->ds2, NULL}, {"dx", &t->ds1, NULL},
             {"dweight", &w[W_NORM2].gradient, NULL});
    linear_back(m, &t->a, &w[W_O], id, &t->ds1, &t->da);
    attend_back(m, t);
    linear_back(m, &t->n1, &w[W_Q], id, &t->dq, &t->dnq);
    linear_back(m, &t->n1, &w[W_K], id, &t->dk, &t->dnk);
    linear_back(m, &t->n1, &w[W_V], id, &t->dv, &t->dnv);
    FORWARD(m, ADD, {"a", &t->dnq, NULL}, {"b", &t->dnk, NULL}, {"c", &t->dnv, NULL}, {"y", &t->dn1, NULL});
    BACKWARD(m, NORM, {"x", &t->x0, NULL}, {"weight", &w[W_NORM1].copy, NULL}, {"dy", &t->dn1, NULL},
             {"dx", &t->dn2, NULL}, {"dweight", &w[W_NORM1].gradient, NULL});
    FORWARD(m, ADD, {"a", &t->dn2, NULL}, {"b", &t->ds1, NULL}, {"y", &t->dx0, NULL});
    BACKWARD(m, EMBED, {"table", &w[W_EMBED].copy, NULL}, {"id", &t->batch.ids, NULL}, {"dy", &t->dx0, NULL},
             {"dtable", &w[W_EMBED].gradient, NULL});
}

static void both_passes(struct machine *m, void *model)
{
    forward(m, model);
    backward(m, model);
}

int main(int argc, char **argv)
{
    static const struct size GPU = {128, 4, 512, 32, 256, 500, LATHE_BF16, 2e-3f};
    static const struct size HOST = {64, 4, 256, 4, 64, 150, LATHE_F32, 1e-2f};
    const char *folder = argc > 2 ? argv[2] : "examples";
    struct machine machine;
    struct model model;
    struct text text;
    read_text(&text, folder);
    machine_open(&machine, folder, SPEC, sizeof SPEC / sizeof *SPEC);
    memset(&model, 0, sizeof model);
    model.size = choose_size(&machine, &GPU, &HOST, argc > 1 ? argv[1] : NULL);
    model_open(&machine, &model);
    const double fallen =
        train(&machine, &model.size, &text, &model.batch, model.w, WEIGHTS, both_passes, &model);
    machine_close(&machine); /* the process ends here: what the model holds goes with it */
    free(text.byte);
    return fallen > 0.0 ? 0 : 1;
}
