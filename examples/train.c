/*
 * train.c: a transformer block that learns to continue a text, every layer of it a kernel of Lathe.
 *
 *     train [STEPS] [FOLDER]        FOLDER: examples/train, with the specs and the text
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

#include <lathe.h>

#include "memory.h"

enum { VOCABULARY = 128, NEAR = 32, MAX_ARGUMENTS = 24 };

struct size { /* of the model and of a batch */
    int width, heads, hidden, batch, length, steps;
    lathe_dtype dtype; /* of activations */
    float rate;
};

/* ---- specs ---------------------------------------------------------------------------------------- */

enum spec { LINEAR, MLP, ATTEND, EMBED, ADD, ADAMW, NORM, ADD_NORM, LOSS, SPECS };
static const char *const SPEC[SPECS] = {"linear.lua", "mlp.lua",           "attend.lua",
                                        "embed.lua",  "add.lua",           "adamw.lua",
                                        "rms_norm",   "rms_norm_residual", "cross_entropy"};

struct machine {
    struct memory memory;
    lathe_ctx *ctx;
    lathe_spec *spec[SPECS];
    void *workspace;
    size_t workspace_size;
};

static void give_up(const char *what, const char *why)
{
    fprintf(stderr, "train: %s: %s\n", what, why);
    exit(1);
}

static void machine_open(struct machine *m, const char *folder)
{
    lathe_options options = LATHE_OPTIONS_INIT; /* the first GPU, or the host */
    lathe_error err;
    memset(m, 0, sizeof *m);
    if (lathe_ctx_create(&m->ctx, &options, &err) != LATHE_OK)
        give_up("no device", err.text);
    if (!memory_open(&m->memory, lathe_ctx_device(m->ctx)))
        give_up("memory", "the CUDA driver lacks an entry");
    for (int i = 0; i < SPECS; i++) {
        char path[512];
        const int shipped = strchr(SPEC[i], '.') == NULL;
        snprintf(path, sizeof path, "%s%s%s", shipped ? "" : folder, shipped ? "" : "/", SPEC[i]);
        if (lathe_spec_load(&m->spec[i], path, &err) != LATHE_OK)
            give_up("spec", err.text);
    }
}

static void machine_close(struct machine *m)
{
    for (int i = 0; i < SPECS; i++)
        lathe_spec_destroy(m->spec[i]);
    memory_release(&m->memory, m->workspace);
    lathe_ctx_destroy(m->ctx);
}

/* ---- tensors -------------------------------------------------------------------------------------- */

struct tensor {
    void *data;
    lathe_dtype dtype;
    int32_t ndim;
    int64_t shape[4];
    int64_t strides[4];
};

static struct tensor view(void *data, lathe_dtype dtype, int ndim, const int64_t *shape)
{
    struct tensor t = {data, dtype, ndim, {0}, {0}};
    int64_t stride = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        t.shape[i] = shape[i];
        t.strides[i] = stride;
        stride *= shape[i];
    }
    return t;
}

static int64_t count(const struct tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++)
        n *= t->shape[i];
    return n;
}

static struct tensor allocate(const struct machine *m, lathe_dtype dtype, int ndim, const int64_t *shape)
{
    struct tensor t = view(NULL, dtype, ndim, shape);
    t.data = memory_allocate(&m->memory, (size_t)count(&t) * lathe_dtype_size(dtype));
    if (!t.data)
        give_up("memory", "there is not enough of it");
    return t;
}

#define DIMS(...)                                                                                            \
    (int)(sizeof(int64_t[]){__VA_ARGS__} / sizeof(int64_t)), (const int64_t[])                               \
    {                                                                                                        \
        __VA_ARGS__                                                                                          \
    }

/* From floats; bf16 is the upper half of one, rounded. */
static void upload(const struct machine *m, const struct tensor *t, const float *from)
{
    const size_t n = (size_t)count(t);
    uint16_t *half = malloc(n * sizeof *half + 1);
    for (size_t i = 0; half && i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &from[i], sizeof bits);
        half[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
    if (!half || !memory_upload(&m->memory, t->data, t->dtype == LATHE_BF16 ? (const void *)half : from,
                                n * lathe_dtype_size(t->dtype)))
        give_up("memory", "a tensor cannot be copied to the device");
    free(half);
}

/* Rows as attention sees them: one batch and one head, so many tokens. */
static struct tensor as_rows(const struct tensor *t)
{
    return view(t->data, t->dtype, DIMS(1, 1, t->shape[0], t->shape[1]));
}

/* The same memory, cut into sequences and heads. */
static struct tensor as_heads(const struct tensor *t, const struct size *s)
{
    const int64_t dim = s->width / s->heads;
    struct tensor v = {t->data, t->dtype, 4, {s->batch, s->heads, s->length, dim}, {0}};
    v.strides[0] = (int64_t)s->length * s->width;
    v.strides[1] = dim;
    v.strides[2] = s->width;
    v.strides[3] = 1;
    return v;
}

/* ---- calls ---------------------------------------------------------------------------------------- */

struct named { /* an argument; a scalar where tensor is NULL */
    const char *name;
    const struct tensor *tensor;
    const float *value;
};

static void grow_workspace(struct machine *m, size_t size)
{
    if (size <= m->workspace_size)
        return;
    memory_release(&m->memory, m->workspace);
    m->workspace = memory_allocate(&m->memory, size);
    m->workspace_size = size;
    if (!m->workspace)
        give_up("memory", "there is not enough for a workspace");
}

/* The first call of its kind compiles; the others look the kernel up. */
static void call(struct machine *m, enum spec spec, lathe_pass pass, const struct named *named, int n)
{
    lathe_arg args[MAX_ARGUMENTS];
    lathe_kernel *kernel = NULL;
    lathe_error err;
    size_t size = 0;
    for (int i = 0; i < n; i++) {
        const struct tensor *t = named[i].tensor;
        args[i] = t ? (lathe_arg){named[i].name, t->data, t->dtype, t->ndim, t->shape, t->strides}
                    : (lathe_arg){named[i].name, (void *)(uintptr_t)named[i].value, LATHE_F32, 0, NULL, NULL};
    }
    lathe_status status = lathe_kernel_get(&kernel, m->ctx, m->spec[spec], pass, args, n, &err);
    if (status == LATHE_OK)
        status = lathe_workspace_size(&size, kernel, args, n, &err);
    if (status == LATHE_OK) {
        grow_workspace(m, size);
        status = lathe_launch(kernel, args, n, m->workspace, NULL, &err);
    }
    if (status != LATHE_OK)
        give_up(SPEC[spec], err.text);
    lathe_kernel_release(kernel);
}

#define FORWARD(m, spec, ...)                                                                                \
    call(m, spec, LATHE_FORWARD, (const struct named[]){__VA_ARGS__},                                        \
         (int)(sizeof((const struct named[]){__VA_ARGS__}) / sizeof(struct named)))
#define BACKWARD(m, spec, ...)                                                                               \
    call(m, spec, LATHE_BACKWARD, (const struct named[]){__VA_ARGS__},                                       \
         (int)(sizeof((const struct named[]){__VA_ARGS__}) / sizeof(struct named)))

/* ---- the model -------------------------------------------------------------------------------------- */

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

struct weights {          /* one of the model's tensors of weights */
    struct tensor master; /* f32 */
    struct tensor copy;   /* as the kernels read it */
    struct tensor gradient, mean, square;
};

struct model {
    struct size size;
    struct weights w[WEIGHTS];
    struct tensor identity, identity_logits; /* the values of linear layers */
    struct tensor ids, targets, each;        /* each: 1 / rows, the gradient of every row's loss */
    /* activations, and the gradient of each under the same name */
    struct tensor x0, n1, q, k, v, a, lse, o, s1, n2, h, s2, n3, z, losses;
    struct tensor dx0, dn1, dnq, dnk, dnv, dq, dk, dv, da, ds1, dn2, ds2, dn3, dz;
};

static float normal(void)
{
    const double u = ((double)rand() + 1.0) / ((double)RAND_MAX + 2.0);
    return (float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586 * rand() / RAND_MAX));
}

/* gradient: the dtype that the derived kernel gives it in. */
static void make_weights(const struct machine *m, struct weights *w, lathe_dtype copy, lathe_dtype gradient,
                         float mean, float deviation, int ndim, const int64_t *shape)
{
    w->master = allocate(m, LATHE_F32, ndim, shape);
    w->copy = allocate(m, copy, ndim, shape);
    w->gradient = allocate(m, gradient, ndim, shape);
    w->mean = allocate(m, LATHE_F32, ndim, shape);
    w->square = allocate(m, LATHE_F32, ndim, shape);
    const size_t n = (size_t)count(&w->master);
    float *value = calloc(n, sizeof *value);
    if (!value)
        give_up("memory", "there is not enough of it");
    upload(m, &w->mean, value);
    upload(m, &w->square, value);
    for (size_t i = 0; i < n; i++)
        value[i] = mean + deviation * normal();
    upload(m, &w->master, value);
    upload(m, &w->copy, value);
    free(value);
}

static struct tensor make_identity(const struct machine *m, lathe_dtype dtype, int n)
{
    struct tensor t = allocate(m, dtype, DIMS(1, 1, n, n));
    float *value = calloc((size_t)n * (size_t)n, sizeof *value);
    if (!value)
        give_up("memory", "there is not enough of it");
    for (int i = 0; i < n; i++)
        value[(size_t)i * (size_t)n + (size_t)i] = 1.0f;
    upload(m, &t, value);
    free(value);
    return t;
}

static void make_all_weights(const struct machine *m, struct model *t)
{
    const struct size *s = &t->size;
    const float spread = 1.0f / sqrtf((float)s->width);
    const lathe_dtype a = s->dtype;
    static const enum weight SQUARE[] = {W_Q, W_K, W_V, W_O};
    static const enum weight GAIN[] = {W_NORM1, W_NORM2, W_NORM3};
    for (int i = 0; i < 4; i++)
        make_weights(m, &t->w[SQUARE[i]], a, a, 0, spread, DIMS(1, 1, s->width, s->width));
    for (int i = 0; i < 3; i++)
        make_weights(m, &t->w[GAIN[i]], LATHE_F32, LATHE_F32, 1, 0, DIMS(s->width));
    make_weights(m, &t->w[W_EMBED], LATHE_F32, LATHE_F32, 0, 0.5f, DIMS(VOCABULARY, s->width));
    make_weights(m, &t->w[W_LOGITS], a, a, 0, spread, DIMS(1, 1, VOCABULARY, s->width));
    make_weights(m, &t->w[W_UP], a, a, 0, spread, DIMS(1, 1, s->hidden, s->width));
    make_weights(m, &t->w[W_DOWN], a, a, 0, 1.0f / sqrtf((float)s->hidden), DIMS(1, 1, s->hidden, s->width));
    make_weights(m, &t->w[W_SLOPE], LATHE_F32, LATHE_F32, 0.05f, 0.02f, DIMS(s->heads));
    make_weights(m, &t->w[W_TABLE], LATHE_F32, LATHE_F32, 0, 0.02f, DIMS(s->heads, NEAR));
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
    t->losses = allocate(m, LATHE_F32, DIMS(rows));
    t->each = allocate(m, LATHE_F32, DIMS(rows));
    t->ids = allocate(m, LATHE_I32, DIMS(rows));
    t->targets = allocate(m, LATHE_I32, DIMS(rows));
    t->identity = make_identity(m, s->dtype, s->width);
    t->identity_logits = make_identity(m, s->dtype, VOCABULARY);
    make_all_weights(m, t);
    float *each = malloc((size_t)rows * sizeof *each);
    for (int64_t i = 0; each && i < rows; i++)
        each[i] = 1.0f / (float)rows;
    if (!each)
        give_up("memory", "there is not enough of it");
    upload(m, &t->each, each);
    free(each);
}

/* y = x W^T */
static void linear(struct machine *m, const struct tensor *x, const struct tensor *w,
                   const struct tensor *identity, const struct tensor *y)
{
    const struct tensor q = as_rows(x);
    const struct tensor o = as_rows(y);
    FORWARD(m, LINEAR, {"q", &q, NULL}, {"k", w, NULL}, {"v", identity, NULL}, {"o", &o, NULL});
}

static void linear_back(struct machine *m, const struct tensor *x, struct weights *w,
                        const struct tensor *identity, const struct tensor *dy, const struct tensor *dx)
{
    const struct tensor q = as_rows(x);
    const struct tensor seed = as_rows(dy);
    const struct tensor dq = as_rows(dx);
    BACKWARD(m, LINEAR, {"q", &q, NULL}, {"k", &w->copy, NULL}, {"v", identity, NULL}, {"do", &seed, NULL},
             {"dq", &dq, NULL}, {"dk", &w->gradient, NULL});
}

static void forward(struct machine *m, struct model *t)
{
    struct weights *w = t->w;
    FORWARD(m, EMBED, {"table", &w[W_EMBED].copy, NULL}, {"id", &t->ids, NULL}, {"y", &t->x0, NULL});
    FORWARD(m, NORM, {"x", &t->x0, NULL}, {"weight", &w[W_NORM1].copy, NULL}, {"y", &t->n1, NULL});
    linear(m, &t->n1, &w[W_Q].copy, &t->identity, &t->q);
    linear(m, &t->n1, &w[W_K].copy, &t->identity, &t->k);
    linear(m, &t->n1, &w[W_V].copy, &t->identity, &t->v);
    const struct tensor q = as_heads(&t->q, &t->size);
    const struct tensor k = as_heads(&t->k, &t->size);
    const struct tensor v = as_heads(&t->v, &t->size);
    const struct tensor a = as_heads(&t->a, &t->size);
    FORWARD(m, ATTEND, {"q", &q, NULL}, {"k", &k, NULL}, {"v", &v, NULL}, {"slope", &w[W_SLOPE].copy, NULL},
            {"table", &w[W_TABLE].copy, NULL}, {"o", &a, NULL}, {"lse", &t->lse, NULL});
    linear(m, &t->a, &w[W_O].copy, &t->identity, &t->o);
    FORWARD(m, ADD_NORM, {"x", &t->o, NULL}, {"residual", &t->x0, NULL}, {"weight", &w[W_NORM2].copy, NULL},
            {"y", &t->n2, NULL}, {"sum", &t->s1, NULL});
    const struct tensor n2 = as_rows(&t->n2);
    const struct tensor h = as_rows(&t->h);
    FORWARD(m, MLP, {"q", &n2, NULL}, {"k", &w[W_UP].copy, NULL}, {"v", &w[W_DOWN].copy, NULL},
            {"o", &h, NULL});
    FORWARD(m, ADD_NORM, {"x", &t->h, NULL}, {"residual", &t->s1, NULL}, {"weight", &w[W_NORM3].copy, NULL},
            {"y", &t->n3, NULL}, {"sum", &t->s2, NULL});
    linear(m, &t->n3, &w[W_LOGITS].copy, &t->identity_logits, &t->z);
    FORWARD(m, LOSS, {"x", &t->z, NULL}, {"target", &t->targets, NULL}, {"loss", &t->losses, NULL});
}

/* The gradient of a sum goes to both of its terms, so ds2 is that of h and of s1, and ds1 that of o and of
 * x0. */
static void backward(struct machine *m, struct model *t)
{
    struct weights *w = t->w;
    BACKWARD(m, LOSS, {"x", &t->z, NULL}, {"target", &t->targets, NULL}, {"dloss", &t->each, NULL},
             {"dx", &t->dz, NULL});
    linear_back(m, &t->n3, &w[W_LOGITS], &t->identity_logits, &t->dz, &t->dn3);
    BACKWARD(m, ADD_NORM, {"x", &t->h, NULL}, {"residual", &t->s1, NULL}, {"weight", &w[W_NORM3].copy, NULL},
             {"dy", &t->dn3, NULL}, {"dx", &t->ds2, NULL}, {"dweight", &w[W_NORM3].gradient, NULL});
    const struct tensor n2 = as_rows(&t->n2);
    const struct tensor dh = as_rows(&t->ds2);
    const struct tensor dn2 = as_rows(&t->dn2);
    BACKWARD(m, MLP, {"q", &n2, NULL}, {"k", &w[W_UP].copy, NULL}, {"v", &w[W_DOWN].copy, NULL},
             {"do", &dh, NULL}, {"dq", &dn2, NULL}, {"dk", &w[W_UP].gradient, NULL},
             {"dv", &w[W_DOWN].gradient, NULL});
    BACKWARD(m, ADD_NORM, {"x", &t->o, NULL}, {"residual", &t->x0, NULL}, {"weight", &w[W_NORM2].copy, NULL},
             {"dy", &t->dn2, NULL}, {"dsum", &t->ds2, NULL}, {"dx", &t->ds1, NULL},
             {"dweight", &w[W_NORM2].gradient, NULL});
    linear_back(m, &t->a, &w[W_O], &t->identity, &t->ds1, &t->da);
    const struct size *s = &t->size;
    const struct tensor q = as_heads(&t->q, s), k = as_heads(&t->k, s), v = as_heads(&t->v, s),
                        a = as_heads(&t->a, s);
    const struct tensor da = as_heads(&t->da, s), dq = as_heads(&t->dq, s), dk = as_heads(&t->dk, s);
    const struct tensor dv = as_heads(&t->dv, s);
    BACKWARD(m, ATTEND, {"q", &q, NULL}, {"k", &k, NULL}, {"v", &v, NULL}, {"slope", &w[W_SLOPE].copy, NULL},
             {"table", &w[W_TABLE].copy, NULL}, {"o", &a, NULL}, {"lse", &t->lse, NULL}, {"do", &da, NULL},
             {"dq", &dq, NULL}, {"dk", &dk, NULL}, {"dv", &dv, NULL}, {"dslope", &w[W_SLOPE].gradient, NULL},
             {"dtable", &w[W_TABLE].gradient, NULL});
    linear_back(m, &t->n1, &w[W_Q], &t->identity, &t->dq, &t->dnq);
    linear_back(m, &t->n1, &w[W_K], &t->identity, &t->dk, &t->dnk);
    linear_back(m, &t->n1, &w[W_V], &t->identity, &t->dv, &t->dnv);
    FORWARD(m, ADD, {"a", &t->dnq, NULL}, {"b", &t->dnk, NULL}, {"c", &t->dnv, NULL}, {"y", &t->dn1, NULL});
    BACKWARD(m, NORM, {"x", &t->x0, NULL}, {"weight", &w[W_NORM1].copy, NULL}, {"dy", &t->dn1, NULL},
             {"dx", &t->dn2, NULL}, {"dweight", &w[W_NORM1].gradient, NULL});
    FORWARD(m, ADD, {"a", &t->dn2, NULL}, {"b", &t->ds1, NULL}, {"y", &t->dx0, NULL});
    BACKWARD(m, EMBED, {"table", &w[W_EMBED].copy, NULL}, {"id", &t->ids, NULL}, {"dy", &t->dx0, NULL},
             {"dtable", &w[W_EMBED].gradient, NULL});
}

static void update(struct machine *m, struct model *t, int step)
{
    const float rate = t->size.rate;
    const float number = (float)(step + 1);
    for (int i = 0; i < WEIGHTS; i++) {
        struct weights *w = &t->w[i];
        struct tensor line[5] = {w->master, w->gradient, w->mean, w->square, w->copy};
        for (int k = 0; k < 5; k++)
            line[k] = view(line[k].data, line[k].dtype, DIMS(count(&w->master)));
        call(m, ADAMW, LATHE_FORWARD,
             (const struct named[]){{"p", &line[0], NULL},
                                    {"g", &line[1], NULL},
                                    {"m", &line[2], NULL},
                                    {"v", &line[3], NULL},
                                    {"copy", &line[4], NULL},
                                    {"rate", NULL, &rate},
                                    {"step", NULL, &number}},
             7);
    }
}

/* ---- the text ---------------------------------------------------------------------------------------- */

static char *read_text(const char *folder, size_t *size)
{
    char path[512];
    snprintf(path, sizeof path, "%s/text.txt", folder);
    FILE *f = fopen(path, "rb");
    char *text = malloc(1 << 20);
    *size = f && text ? fread(text, 1, 1 << 20, f) : 0;
    if (f)
        fclose(f);
    if (*size < 10000)
        give_up(path, "cannot be read, or has less than 10000 bytes");
    return text;
}

static void next_batch(const struct machine *m, const struct model *t, const char *text, size_t size)
{
    const int n = t->size.batch * t->size.length;
    int32_t *ids = malloc((size_t)n * 2 * sizeof *ids);
    size_t from = 0;
    for (int i = 0; ids && i < n; i++) {
        if (i % t->size.length == 0)
            from = (size_t)rand() % (size - (size_t)t->size.length - 1);
        const size_t at = from + (size_t)(i % t->size.length);
        ids[i] = text[at] & (VOCABULARY - 1);
        ids[n + i] = text[at + 1] & (VOCABULARY - 1);
    }
    if (!ids || !memory_upload(&m->memory, t->ids.data, ids, (size_t)n * sizeof *ids) ||
        !memory_upload(&m->memory, t->targets.data, ids + n, (size_t)n * sizeof *ids))
        give_up("memory", "a batch cannot be copied to the device");
    free(ids);
}

static double mean_loss(const struct machine *m, const struct model *t)
{
    const int64_t n = count(&t->losses);
    float *loss = malloc((size_t)n * sizeof *loss);
    double sum = 0.0;
    if (!loss || !memory_download(&m->memory, loss, t->losses.data, (size_t)n * sizeof *loss))
        give_up("memory", "the loss cannot be copied from the device");
    for (int64_t i = 0; i < n; i++)
        sum += (double)loss[i];
    free(loss);
    return sum / (double)n;
}

static double train(struct machine *m, struct model *t, const char *text, size_t size)
{
    double first = 0.0;
    double last = 0.0;
    for (int step = 0; step < t->size.steps; step++) {
        next_batch(m, t, text, size);
        forward(m, t);
        backward(m, t);
        update(m, t, step);
        if (step % 10 == 0 || step == t->size.steps - 1) {
            last = mean_loss(m, t);
            first = step == 0 ? last : first;
            printf("step %4d  loss %.4f\n", step, last);
            fflush(stdout);
        }
    }
    return first - last;
}

int main(int argc, char **argv)
{
    static const struct size GPU = {128, 4, 512, 32, 256, 500, LATHE_BF16, 2e-3f};
    static const struct size HOST = {64, 4, 256, 4, 64, 150, LATHE_F32, 1e-2f};
    const char *folder = argc > 2 ? argv[2] : "examples/train";
    struct machine machine;
    struct model model;
    size_t size = 0;
    char *text = read_text(folder, &size);
    machine_open(&machine, folder);
    memset(&model, 0, sizeof model);
    model.size = lathe_ctx_device(machine.ctx) == LATHE_DEVICE_HOST ? HOST : GPU;
    if (argc > 1)
        model.size.steps = (int)strtol(argv[1], NULL, 10);
    printf("running on %s: width %d, %d heads, %d sequences of %d bytes, %d steps\n",
           lathe_ctx_device_name(machine.ctx), model.size.width, model.size.heads, model.size.batch,
           model.size.length, model.size.steps);
    model_open(&machine, &model);
    const double fallen = train(&machine, &model, text, size);
    machine_close(&machine); /* the process ends here: what the model holds goes with it */
    free(text);
    return fallen > 0.0 ? 0 : 1;
}
