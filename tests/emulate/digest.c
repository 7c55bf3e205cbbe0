/*
 * digest.c: all that decides the verdict of a case, as one digest: what is known by it need not run again.
 *
 * In: a case whose arguments, expected results and kernel are there. Out: a digest that is the same on every
 * machine. So addresses are those of a range that begins at 0, and what the host device has computed is
 * rounded: another C library has other last bits.
 */
#include "harness.h"

#include <math.h>
#include <string.h>

/* ---- what is launched -----------------------------------------------------------------------------------
 */

static void add_number(struct sha256 *digest, int64_t number)
{
    store_add(digest, &number, sizeof number);
}

static void add_texts(struct sha256 *digest, const struct source *s)
{
    for (int i = 0; i < s->n_texts; i++) {
        store_add_text(digest, s->text[i].name);
        if (!text_is_stood_in_for(&s->text[i])) /* else it is not compiled here */
            store_add_code(digest, s->text[i].data, s->text[i].size);
    }
}

/* Words that are addresses of arguments count from where all memory begins. */
static void add_words(struct sha256 *digest, const unsigned char *block, size_t bytes)
{
    const uint64_t base = (uint64_t)(uintptr_t)memory_range();
    add_number(digest, (int64_t)bytes);
    for (size_t at = 0; at < bytes; at += sizeof base) {
        uint64_t word = 0;
        memcpy(&word, block + at, bytes - at < sizeof word ? bytes - at : sizeof word);
        word -= word >= base && word - base < MEMORY_BYTES ? base : 0;
        add_number(digest, (int64_t)word);
    }
}

static void add_maps(struct sha256 *digest, const struct launch *l)
{
    for (int i = 0; i < l->n_maps; i++) {
        const struct tensor_map_row *m = &l->map[i];
        const int64_t number[] = {m->offset, m->data,  m->strides, m->columns,    m->dim[0], m->dim[1],
                                  m->dim[2], m->dtype, m->swizzle, m->box_tokens, m->packed, m->pack};
        store_add(digest, number, sizeof number);
    }
}

/* A launch as the device gets it; pieces of the workspace have addresses by their number. */
static void add_launch(struct sha256 *digest, const struct scene *s, const struct launch *l)
{
    static _Alignas(64) unsigned char block[PARAM_BLOCK_BYTES];
    size_t place[MAX_BUFFERS];
    unsigned blocks = 0;
    for (int i = 0; i < MAX_BUFFERS; i++)
        place[i] = (size_t)(i + 1) << 12;
    memset(block, 0, sizeof block);
    const bool sized = lathe__grid_size(l, &s->problem, &blocks, NULL) == LATHE_OK;
    const bool filled =
        lathe__params_fill(l, &s->sig, &s->problem, &s->bound, NULL, place, block, NULL) == LATHE_OK;
    const int64_t number[] = {sized, filled, blocks, l->threads, l->smem_bytes, l->cluster, l->early};
    store_add_text(digest, l->entry);
    store_add(digest, number, sizeof number);
    add_words(digest, block, l->param_bytes < sizeof block ? l->param_bytes : sizeof block);
    add_maps(digest, l);
}

static void add_recipe(struct sha256 *digest, const struct scene *s, const struct source *source)
{
    add_number(digest, source->n_launches);
    for (int i = 0; i < source->n_launches; i++)
        add_launch(digest, s, &source->launch[i]);
    for (int i = 0; i < source->n_buffers; i++) {
        add_number(digest, lathe__buffer_bytes(&source->buffer[i], &s->problem));
        add_number(digest, source->buffer[i].zero);
    }
}

/* ---- what it works on, and what is expected of it --------------------------------------------------------
 */

static double largest(const double *value, int64_t n)
{
    double most = 0.0;
    for (int64_t i = 0; i < n; i++)
        most = isfinite(value[i]) && fabs(value[i]) > most ? fabs(value[i]) : most;
    return most;
}

/* 2^(exponent - bits) of what frexp says of a value; of numbers that are not normal by frexp itself. */
static double fine_of(double value, int bits)
{
    uint64_t word = 0;
    double fine = 0.0;
    int exponent = 0;
    memcpy(&word, &value, sizeof word);
    const uint64_t biased = word >> 52 & 0x7ff;
    if (biased <= (uint64_t)bits || biased == 0x7ff) {
        (void)frexp(value, &exponent);
        return ldexp(1.0, exponent - bits);
    }
    word = (biased + 1 - (uint64_t)bits) << 52;
    memcpy(&fine, &word, sizeof fine);
    return fine;
}

/* 24 bits of each, but none below the largest one's 40th: there is only what cancels. Bounds are wider than
   either by far. */
static double rounded(double value, double most)
{
    if (!isfinite(value) || most == 0.0)
        return value;
    const double fine = fmax(fine_of(value, 24), most);
    return rint(value / fine) * fine + 0.0; /* no -0 */
}

static void add_values(struct sha256 *digest, const double *value, int64_t n)
{
    enum { AT_ONCE = 64 };
    double said[AT_ONCE];
    const double most = largest(value, n);
    const double least = most > 0.0 ? fine_of(most, 40) : 0.0;
    add_number(digest, n);
    for (int64_t i = 0; i < n; i++) {
        const double v = rounded(value[i], least);
        said[i % AT_ONCE] = isnan(v) ? (double)NAN : v; /* of one kind */
        if ((i + 1) % AT_ONCE == 0 || i + 1 == n)
            lathe__sha256_add(digest, said, (size_t)(i % AT_ONCE + 1) * sizeof *said);
    }
}

static void add_tensors(struct sha256 *digest, const struct scene *s)
{
    for (int i = 0; i < s->n; i++) {
        const struct tensor *t = &s->tensor[i];
        const int64_t number[] = {t->role == ROLE_OUT,
                                  tensor_is_output(t),
                                  t->dtype,
                                  t->expects,
                                  t->ndim,
                                  t->offset,
                                  t->count,
                                  t->list,
                                  t->by_rows,
                                  t->in_place};
        store_add_text(digest, t->name);
        store_add(digest, number, sizeof number);
        store_add(digest, t->shape, sizeof t->shape);
        store_add(digest, t->strides, sizeof t->strides);
        store_add(digest, &t->scalar, sizeof t->scalar);
        store_add(digest, t->block.data, t->block.bytes);
        add_words(digest, t->pointers.data, t->pointers.bytes);
        add_values(digest, t->value, t->value ? t->count : 0);
    }
}

static void add_bounds(struct sha256 *digest, const struct scene *s)
{
    const struct bounds b = case_bounds(s);
    const double number[] = {b.row, b.final, b.gradient, b.spread, b.mean, b.least};
    store_add(digest, number, sizeof number);
}

/* ---- the whole -------------------------------------------------------------------------------------------
 */

void case_digest(struct sha256 *digest, const struct workshop *w, const struct scene *s,
                 const struct source *source, uint64_t seed)
{
    const struct test_case *c = s->c;
    char name[300];
    case_name(c, name, sizeof name);
    const uint64_t number[] = {
        seed,        w->first_order, w->orders, (uint64_t)c->blocks, (uint64_t)c->beside,
        c->unwanted, c->may_refuse,  c->hollow, c->deterministic,    c->skewed,
        s->ir->kind, s->ir->inner};
    store_start(&w->store, digest, true);
    store_add_text(digest, name);
    store_add(digest, number, sizeof number);
    add_texts(digest, source);
    add_recipe(digest, s, source);
    add_tensors(digest, s);
    add_bounds(digest, s);
}
