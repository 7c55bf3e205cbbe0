/*
 * layers.h: what train.c and linear.c share: a device with its specs, tensors, calls, weights with their
 * optimizer, linear layers, and batches of a text. Whatever fails ends the program with a sentence.
 */
#ifndef LATHE_EXAMPLES_LAYERS_H
#define LATHE_EXAMPLES_LAYERS_H

#include <stddef.h>
#include <stdint.h>

#include <lathe.h>

enum { VOCABULARY = 128, MAX_SPECS = 16 };

struct size { /* of a model and of a batch */
    int width, heads, hidden, batch, length, steps;
    lathe_dtype dtype; /* of activations */
    float rate;
};

void give_up(const char *what, const char *why);
void *zeros(size_t n, size_t element_size);

/* ---- a device with its specs ------------------------------------------------------------------------ */

/* What both programs call; the numbers of a program's own specs begin behind. */
enum spec { LINEAR, MLP, EMBED, ADD, ADAMW, NORM, ADD_NORM, LOSS, SHARED_SPECS };

struct machine {
    struct memory *memory;
    lathe_ctx *ctx;
    const char *name[MAX_SPECS];
    lathe_spec *spec[MAX_SPECS];
    void *workspace;
    size_t workspace_size;
};

/* The first GPU, or the host. `own` are n names of shipped specs, or of files in the folder. */
void machine_open(struct machine *m, const char *folder, const char *const *own, int n);
void machine_close(struct machine *m);
/* That of the device, with so many steps where `steps` is not NULL; says so. */
struct size choose_size(const struct machine *m, const struct size *gpu, const struct size *host,
                        const char *steps);

/* ---- tensors ---------------------------------------------------------------------------------------- */

struct tensor {
    void *data;
    lathe_dtype dtype;
    int32_t ndim;
    int64_t shape[4];
    int64_t strides[4];
};

#define DIMS(...)                                                                                            \
    (int)(sizeof(int64_t[]){__VA_ARGS__} / sizeof(int64_t)), (const int64_t[])                               \
    {                                                                                                        \
        __VA_ARGS__                                                                                          \
    }

int64_t count(const struct tensor *t);
struct tensor allocate(const struct machine *m, lathe_dtype dtype, int ndim, const int64_t *shape);
/* From and to n floats; only of compact tensors. */
void upload(const struct machine *m, const struct tensor *t, const float *from);
void download(const struct machine *m, const struct tensor *t, float *to);
void upload_ids(const struct machine *m, const struct tensor *t, const int32_t *from);

/* The same memory otherwise, of a tensor of rows: n rows or columns from `first` on; and cut into sequences
 * and heads. */
struct tensor rows_of(const struct tensor *t, int64_t first, int64_t n);
struct tensor columns_of(const struct tensor *t, int64_t first, int64_t n);
struct tensor as_heads(const struct tensor *t, int batch, int heads);

/* ---- calls ------------------------------------------------------------------------------------------ */

struct named { /* an argument; a scalar where tensor is NULL */
    const char *name;
    const struct tensor *tensor;
    const float *value;
};

void call(struct machine *m, int spec, lathe_pass pass, const struct named *named, int n);

#define FORWARD(m, spec, ...)                                                                                \
    call(m, spec, LATHE_FORWARD, (const struct named[]){__VA_ARGS__},                                        \
         (int)(sizeof((const struct named[]){__VA_ARGS__}) / sizeof(struct named)))
#define BACKWARD(m, spec, ...)                                                                               \
    call(m, spec, LATHE_BACKWARD, (const struct named[]){__VA_ARGS__},                                       \
         (int)(sizeof((const struct named[]){__VA_ARGS__}) / sizeof(struct named)))

/* ---- weights, and layers that are nothing but them ---------------------------------------------------- */

struct weights {          /* one of a model's tensors of weights */
    struct tensor master; /* f32 */
    struct tensor copy;   /* as the kernels read it */
    struct tensor gradient, mean, square;
};

/* Normally distributed. `dtype`: of the copy, and of the gradient as the derived kernel gives it. */
void make_weights(const struct machine *m, struct weights *w, lathe_dtype dtype, float mean, float deviation,
                  int ndim, const int64_t *shape);
/* Of a linear layer to so many outputs. */
void make_matrix(const struct machine *m, struct weights *w, lathe_dtype dtype, int outputs, int inputs);
struct tensor make_identity(const struct machine *m, lathe_dtype dtype, int n);

/* y = x W^T. `identity` has at least as many rows as W. */
void linear(struct machine *m, const struct tensor *x, const struct tensor *w, const struct tensor *identity,
            const struct tensor *y);
void linear_back(struct machine *m, const struct tensor *x, struct weights *w, const struct tensor *identity,
                 const struct tensor *dy, const struct tensor *dx);
/* y = gelu(x U^T) D */
void feed_forward(struct machine *m, const struct tensor *x, const struct weights *up,
                  const struct weights *down, const struct tensor *y);
void feed_forward_back(struct machine *m, const struct tensor *x, struct weights *up, struct weights *down,
                       const struct tensor *dy, const struct tensor *dx);

/* ---- training --------------------------------------------------------------------------------------- */

struct text {
    char *byte;
    size_t size;
};

struct batch { /* of the text */
    struct tensor ids, targets, losses;
    struct tensor each; /* 1 / rows: the gradient of every row's loss */
};

void read_text(struct text *text, const char *folder);
int32_t id_of(const struct text *text, size_t at);
void make_batch(const struct machine *m, struct batch *b, const struct size *s);

/* AdamW of n weights, of which those without memory are left out, after each call of `passes`, which takes
 * the batch through the model and back. Prints the loss of every tenth step; returns by how much it has
 * fallen. */
double train(struct machine *m, const struct size *s, const struct text *text, const struct batch *b,
             struct weights *w, int n, void (*passes)(struct machine *m, void *model), void *model);

#endif
