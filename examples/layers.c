/*
 * layers.c: layers.h. A tensor is an argument of a call as it stands; the first call of its kind compiles a
 * kernel, the others look it up.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "count.h"
#include "layers.h"
#include "memory.h"

enum { MAX_ARGUMENTS = 24, PATH_BYTES = 512 };

static const char *const SHARED[SHARED_SPECS] = {"train/linear.lua",  "train/mlp.lua",   "train/embed.lua",
                                                 "train/add.lua",     "train/adamw.lua", "rms_norm",
                                                 "rms_norm_residual", "cross_entropy"};

void give_up(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

void *zeros(size_t n, size_t element_size)
{
    void *memory = calloc(n ? n : 1, element_size);
    if (!memory)
        give_up("memory", "there is not enough of it");
    return memory;
}

/* ---- a device with its specs ------------------------------------------------------------------------ */

void machine_open(struct machine *m, const char *folder, const char *const *own, int n)
{
    const lathe_options options = LATHE_OPTIONS_INIT;
    lathe_error err;
    memset(m, 0, sizeof *m);
    m->memory = zeros(1, sizeof *m->memory);
    if (n > MAX_SPECS - SHARED_SPECS)
        give_up("specs", "there are too many");
    if (lathe_ctx_create(&m->ctx, &options, &err) != LATHE_OK)
        give_up("no device", err.text);
    if (!memory_open(m->memory, lathe_ctx_device(m->ctx)))
        give_up("memory", "the CUDA driver lacks an entry");
    for (int i = 0; i < SHARED_SPECS + n; i++) {
        char path[PATH_BYTES];
        m->name[i] = i < SHARED_SPECS ? SHARED[i] : own[i - SHARED_SPECS];
        const int shipped = strchr(m->name[i], '.') == NULL;
        snprintf(path, sizeof path, "%s%s%s", shipped ? "" : folder, shipped ? "" : "/", m->name[i]);
        if (lathe_spec_load(&m->spec[i], path, &err) != LATHE_OK)
            give_up("spec", err.text);
    }
}

void machine_close(struct machine *m)
{
    for (int i = 0; i < MAX_SPECS; i++)
        lathe_spec_destroy(m->spec[i]);
    memory_release(m->memory, m->workspace);
    free(m->memory);
    lathe_ctx_destroy(m->ctx);
}

struct size choose_size(const struct machine *m, const struct size *gpu, const struct size *host,
                        const char *steps)
{
    struct size s = lathe_ctx_device(m->ctx) == LATHE_DEVICE_HOST ? *host : *gpu;
    if (steps)
        s.steps = count_of(steps, "steps", 1000000);
    printf("running on %s: width %d, %d heads, %d sequences of %d bytes, %d steps\n",
           lathe_ctx_device_name(m->ctx), s.width, s.heads, s.batch, s.length, s.steps);
    return s;
}

/* ---- tensors ---------------------------------------------------------------------------------------- */

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

int64_t count(const struct tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++)
        n *= t->shape[i];
    return n;
}

struct tensor allocate(const struct machine *m, lathe_dtype dtype, int ndim, const int64_t *shape)
{
    struct tensor t = view(NULL, dtype, ndim, shape);
    t.data = memory_allocate(m->memory, (size_t)count(&t) * lathe_dtype_size(dtype));
    if (!t.data)
        give_up("memory", "there is not enough of it");
    return t;
}

static void copy_to_device(const struct machine *m, const struct tensor *t, const void *from)
{
    if (!memory_upload(m->memory, t->data, from, (size_t)count(t) * lathe_dtype_size(t->dtype)))
        give_up("memory", "a tensor cannot be copied to the device");
}

/* bf16 is the upper half of a float, rounded. */
void upload(const struct machine *m, const struct tensor *t, const float *from)
{
    const size_t n = (size_t)count(t);
    uint16_t *half = zeros(n, sizeof *half);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &from[i], sizeof bits);
        half[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
    copy_to_device(m, t, t->dtype == LATHE_BF16 ? (const void *)half : from);
    free(half);
}

void download(const struct machine *m, const struct tensor *t, float *to)
{
    const size_t n = (size_t)count(t);
    const size_t bytes = n * lathe_dtype_size(t->dtype);
    uint16_t *half = zeros(n, sizeof *half);
    if (!memory_download(m->memory, t->dtype == LATHE_BF16 ? (void *)half : to, t->data, bytes))
        give_up("memory", "a tensor cannot be copied from the device");
    for (size_t i = 0; t->dtype == LATHE_BF16 && i < n; i++) {
        const uint32_t bits = (uint32_t)half[i] << 16;
        memcpy(&to[i], &bits, sizeof bits);
    }
    free(half);
}

void upload_ids(const struct machine *m, const struct tensor *t, const int32_t *from)
{
    copy_to_device(m, t, from);
}

struct tensor rows_of(const struct tensor *t, int64_t first, int64_t n)
{
    struct tensor part = *t;
    part.data = (char *)t->data + first * t->strides[0] * (int64_t)lathe_dtype_size(t->dtype);
    part.shape[0] = n;
    return part;
}

struct tensor columns_of(const struct tensor *t, int64_t first, int64_t n)
{
    struct tensor part = *t;
    part.data = (char *)t->data + first * t->strides[1] * (int64_t)lathe_dtype_size(t->dtype);
    part.shape[1] = n;
    return part;
}

struct tensor as_heads(const struct tensor *t, int batch, int heads)
{
    const int64_t length = t->shape[0] / batch;
    const int64_t dim = t->shape[1] / heads;
    return (struct tensor){t->data,
                           t->dtype,
                           4,
                           {batch, heads, length, dim},
                           {length * t->strides[0], dim * t->strides[1], t->strides[0], t->strides[1]}};
}

/* Rows as attention sees them: one batch and one head, so many tokens. */
static struct tensor as_tokens(const struct tensor *t)
{
    return as_heads(t, 1, 1);
}

/* ---- calls ------------------------------------------------------------------------------------------ */

static void grow_workspace(struct machine *m, size_t size)
{
    if (size <= m->workspace_size)
        return;
    memory_release(m->memory, m->workspace);
    m->workspace = memory_allocate(m->memory, size);
    m->workspace_size = size;
    if (!m->workspace)
        give_up("memory", "there is not enough for a workspace");
}

void call(struct machine *m, int spec, lathe_pass pass, const struct named *named, int n)
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
        give_up(m->name[spec], err.text);
    lathe_kernel_release(kernel);
}

/* ---- weights, and layers that are nothing but them ---------------------------------------------------- */

static float normal(void)
{
    const double u = ((double)rand() + 1.0) / ((double)RAND_MAX + 2.0);
    return (float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586 * rand() / RAND_MAX));
}

void make_weights(const struct machine *m, struct weights *w, lathe_dtype dtype, float mean, float deviation,
                  int ndim, const int64_t *shape)
{
    w->master = allocate(m, LATHE_F32, ndim, shape);
    w->copy = allocate(m, dtype, ndim, shape);
    w->gradient = allocate(m, dtype, ndim, shape);
    w->mean = allocate(m, LATHE_F32, ndim, shape);
    w->square = allocate(m, LATHE_F32, ndim, shape);
    const size_t n = (size_t)count(&w->master);
    float *value = zeros(n, sizeof *value);
    upload(m, &w->mean, value);
    upload(m, &w->square, value);
    for (size_t i = 0; i < n; i++)
        value[i] = mean + deviation * normal();
    upload(m, &w->master, value);
    upload(m, &w->copy, value);
    free(value);
}

void make_matrix(const struct machine *m, struct weights *w, lathe_dtype dtype, int outputs, int inputs)
{
    make_weights(m, w, dtype, 0, 1.0f / sqrtf((float)inputs), DIMS(1, 1, outputs, inputs));
}

struct tensor make_identity(const struct machine *m, lathe_dtype dtype, int n)
{
    const struct tensor t = allocate(m, dtype, DIMS(1, 1, n, n));
    float *value = zeros((size_t)n * (size_t)n, sizeof *value);
    for (size_t i = 0; i < (size_t)n; i++)
        value[i * (size_t)n + i] = 1.0f;
    upload(m, &t, value);
    free(value);
    return t;
}

/* As many rows and columns of it as the layer has outputs. */
static struct tensor identity_of(const struct tensor *identity, const struct tensor *w)
{
    struct tensor v = *identity;
    v.shape[2] = v.shape[3] = w->shape[2];
    return v;
}

void linear(struct machine *m, const struct tensor *x, const struct tensor *w, const struct tensor *identity,
            const struct tensor *y)
{
    const struct tensor q = as_tokens(x);
    const struct tensor v = identity_of(identity, w);
    const struct tensor o = as_tokens(y);
    FORWARD(m, LINEAR, {"q", &q, NULL}, {"k", w, NULL}, {"v", &v, NULL}, {"o", &o, NULL});
}

void linear_back(struct machine *m, const struct tensor *x, struct weights *w, const struct tensor *identity,
                 const struct tensor *dy, const struct tensor *dx)
{
    const struct tensor q = as_tokens(x);
    const struct tensor v = identity_of(identity, &w->copy);
    const struct tensor seed = as_tokens(dy);
    const struct tensor dq = as_tokens(dx);
    BACKWARD(m, LINEAR, {"q", &q, NULL}, {"k", &w->copy, NULL}, {"v", &v, NULL}, {"do", &seed, NULL},
             {"dq", &dq, NULL}, {"dk", &w->gradient, NULL});
}

void feed_forward(struct machine *m, const struct tensor *x, const struct weights *up,
                  const struct weights *down, const struct tensor *y)
{
    const struct tensor q = as_tokens(x);
    const struct tensor o = as_tokens(y);
    FORWARD(m, MLP, {"q", &q, NULL}, {"k", &up->copy, NULL}, {"v", &down->copy, NULL}, {"o", &o, NULL});
}

void feed_forward_back(struct machine *m, const struct tensor *x, struct weights *up, struct weights *down,
                       const struct tensor *dy, const struct tensor *dx)
{
    const struct tensor q = as_tokens(x);
    const struct tensor seed = as_tokens(dy);
    const struct tensor dq = as_tokens(dx);
    BACKWARD(m, MLP, {"q", &q, NULL}, {"k", &up->copy, NULL}, {"v", &down->copy, NULL}, {"do", &seed, NULL},
             {"dq", &dq, NULL}, {"dk", &up->gradient, NULL}, {"dv", &down->gradient, NULL});
}

/* ---- training --------------------------------------------------------------------------------------- */

void read_text(struct text *text, const char *folder)
{
    enum { MOST = 1 << 20, LEAST = 10000 };
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/train/text.txt", folder);
    FILE *f = fopen(path, "rb");
    text->byte = zeros(MOST, 1);
    text->size = f ? fread(text->byte, 1, MOST, f) : 0;
    if (f)
        fclose(f);
    if (text->size < LEAST)
        give_up(path, "cannot be read, or has less than 10000 bytes");
}

int32_t id_of(const struct text *text, size_t at)
{
    return text->byte[at] & (VOCABULARY - 1);
}

void make_batch(const struct machine *m, struct batch *b, const struct size *s)
{
    const int64_t rows = (int64_t)s->batch * s->length;
    float *each = zeros((size_t)rows, sizeof *each);
    b->ids = allocate(m, LATHE_I32, DIMS(rows));
    b->targets = allocate(m, LATHE_I32, DIMS(rows));
    b->losses = allocate(m, LATHE_F32, DIMS(rows));
    b->each = allocate(m, LATHE_F32, DIMS(rows));
    for (int64_t i = 0; i < rows; i++)
        each[i] = 1.0f / (float)rows;
    upload(m, &b->each, each);
    free(each);
}

static void next_batch(const struct machine *m, const struct size *s, const struct text *text,
                       const struct batch *b)
{
    const int n = s->batch * s->length;
    int32_t *ids = zeros((size_t)n * 2, sizeof *ids);
    size_t from = 0;
    for (int i = 0; i < n; i++) {
        if (i % s->length == 0)
            from = (size_t)rand() % (text->size - (size_t)s->length - 1);
        ids[i] = id_of(text, from + (size_t)(i % s->length));
        ids[n + i] = id_of(text, from + (size_t)(i % s->length) + 1);
    }
    upload_ids(m, &b->ids, ids);
    upload_ids(m, &b->targets, ids + n);
    free(ids);
}

static double mean_loss(const struct machine *m, const struct batch *b)
{
    const int64_t n = count(&b->losses);
    float *loss = zeros((size_t)n, sizeof *loss);
    double sum = 0.0;
    download(m, &b->losses, loss);
    for (int64_t i = 0; i < n; i++)
        sum += (double)loss[i];
    free(loss);
    return sum / (double)n;
}

static void update(struct machine *m, struct weights *w, float rate, float number)
{
    struct tensor line[5] = {w->master, w->gradient, w->mean, w->square, w->copy};
    for (int i = 0; i < 5; i++)
        line[i] = view(line[i].data, line[i].dtype, DIMS(count(&w->master)));
    FORWARD(m, ADAMW, {"p", &line[0], NULL}, {"g", &line[1], NULL}, {"m", &line[2], NULL},
            {"v", &line[3], NULL}, {"copy", &line[4], NULL}, {"rate", NULL, &rate}, {"step", NULL, &number});
}

double train(struct machine *m, const struct size *s, const struct text *text, const struct batch *b,
             struct weights *w, int n, void (*passes)(struct machine *m, void *model), void *model)
{
    double first = 0.0;
    double last = 0.0;
    for (int step = 0; step < s->steps; step++) {
        next_batch(m, s, text, b);
        passes(m, model);
        for (int i = 0; i < n; i++)
            if (w[i].master.data)
                update(m, &w[i], s->rate, (float)(step + 1));
        if (step % 10 == 0 || step == s->steps - 1) {
            last = mean_loss(m, b);
            first = step == 0 ? last : first;
            printf("step %4d  loss %.4f\n", step, last);
            fflush(stdout);
        }
    }
    return first - last;
}
