/*
 * prove_chunks.c: linear attention in chunks against the recurrence, and parts of a sequence against the
 * whole. In: a prover. Out: the verdicts "chunks = recurrence" and "steps = whole". A chunk is computed as
 * kernels do: sums of decays within it, weights of pairs by their differences, the delta rule by
 * substitution, a state handed over; the whole goes token by token. Parts are calls of their own on slices of
 * all tensors, with the state of one given to the next. Scratch is freed here.
 */
#include "gen/linear/prove.h"
#include "runtime/recipe/bind.h"
#include "gen/host/call.h"
#include "gen/ir/tensor.h"
#include "gen/linear/columns.h"
#include "gen/linear/host.h"
#include "gen/prove/proof.h"
#include "gen/prove/prove.h"
#include "runtime/base/base.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 12, QUICK_ROUNDS = 2, MOST_TOKENS = 128 /* of a chunk */ };
static const double BOUND = 1e-9;
static const double LEAST_DECAY =
    -80;                           /* what is older counts nothing; and differences of -inf are no numbers */
static const double LEAST = 1e-10; /* recurrence.c */

/* ---- a chunk ------------------------------------------------------------------------------------------ */

struct chunk { /* of one head: tokens at steps first .. first + n - 1 */
    const struct linear_tokens *x;
    int64_t first;
    int n;
    double *rows, *columns; /* [n + 1, d], [n + 1, d_v]: sums of decays in front of each step, then of all */
    double *pair;           /* [n, n]: of two steps, the products of one's vector and the other's key */
    double *value;          /* [n, d_v]: what each step adds under its key */
    double *pair_seen;      /* the same of what it adds under its writer: what its reader saw */
    double *seen;
};

static double decay_at(const struct linear_tokens *x, int64_t t, enum decay_form form, int channel)
{
    const bool here = x->form == form || (form == DECAY_KEY && x->form != DECAY_VALUE);
    if (linear_decays(x) == 0 || !here)
        return 0;
    return fmax(x->decay[t * linear_decays(x) + (linear_decays(x) > 1 ? channel : 0)], LEAST_DECAY);
}

static void sum_decays(const struct chunk *c)
{
    const struct linear_tokens *x = c->x;
    memset(c->rows, 0, (size_t)x->d * sizeof *c->rows);
    memset(c->columns, 0, (size_t)x->d_v * sizeof *c->columns);
    for (int i = 0; i < c->n; i++) {
        const int64_t t = linear_token(x, c->first + i);
        for (int k = 0; k < x->d; k++)
            c->rows[(i + 1) * x->d + k] = c->rows[i * x->d + k] + decay_at(x, t, DECAY_KEY, k);
        for (int k = 0; k < x->d_v; k++)
            c->columns[(i + 1) * x->d_v + k] = c->columns[i * x->d_v + k] + decay_at(x, t, DECAY_VALUE, k);
    }
}

/* pair[i, j] = sum over channels of vector_i key_j e^(decays behind step j, up to and with step i, or with
   `before` up to the one before it), for j < i and, where `own`, j = i. */
static void multiply(const struct chunk *c, const double *vector, const double *keys, bool before, bool own,
                     double *pair)
{
    const struct linear_tokens *x = c->x;
    for (int i = 0; i < c->n; i++)
        for (int j = 0; j < i + own; j++) {
            const double *q = vector + linear_token(x, c->first + i) * x->d;
            const double *k = keys + linear_token(x, c->first + j) * x->d;
            const double *to = c->rows + (i + !before) * x->d;
            const double *from = c->rows + (j + 1) * x->d;
            double sum = 0;
            for (int d = 0; d < x->d; d++)
                sum += q[d] * k[d] * exp(to[d] - from[d]);
            pair[i * c->n + j] = sum;
        }
}

/* With all that steps add to the state. */
static void multiply_pairs(const struct chunk *c, const double *vector, bool before, bool own)
{
    multiply(c, vector, linear_writer(c->x, 0), before, own, c->pair);
    if (linear_adds_seen(c->x))
        multiply(c, vector, c->x->writer, before, own, c->pair_seen);
}

/* What one step reads with a vector of the state in front of the chunk and of the steps before it (its own
   included where `own`), for one value channel; a column of -1 is that of ones, whose state is z. */
static double read_channel(const struct chunk *c, int i, const double *vector, bool before, bool own,
                           int column, const double *s, const double *z)
{
    const struct linear_tokens *x = c->x;
    const int at = i + !before;
    const double to = column < 0 ? 0 : c->columns[at * x->d_v + column];
    double sum = 0;
    for (int d = 0; d < x->d; d++)
        sum += vector[d] * exp(c->rows[at * x->d + d] + to) * (column < 0 ? z[d] : s[d * x->d_v + column]);
    for (int j = 0; j < i + own; j++) {
        const double from = column < 0 ? 0 : c->columns[(j + 1) * x->d_v + column];
        sum += c->pair[i * c->n + j] * (column < 0 ? 1 : c->value[j * x->d_v + column] * exp(to - from));
        if (linear_adds_seen(x) && column >= 0)
            sum += c->pair_seen[i * c->n + j] * c->seen[j * x->d_v + column] * exp(to - from);
    }
    return sum;
}

static void make_values(const struct chunk *c, const double *s)
{
    const struct linear_tokens *x = c->x;
    const bool before = x->read_first;
    if (linear_looks(x))
        multiply_pairs(c, linear_reader(x, 0), before, false);
    for (int i = 0; i < c->n; i++) {
        const int64_t t = linear_token(x, c->first + i);
        for (int e = 0; e < x->d_v; e++) {
            const int at = i * x->d_v + e;
            c->value[at] = linear_taken(x, t, e);
            if (linear_looks(x))
                c->seen[at] = read_channel(c, i, linear_reader(x, t), before, false, e, s, NULL);
            if (x->delta)
                c->value[at] = x->delta[t] * (c->value[at] - c->seen[at]);
        }
    }
}

static void read_outputs(const struct chunk *c, const double *s, const double *z, double *o)
{
    const struct linear_tokens *x = c->x;
    const bool before = x->bonus != NULL;
    multiply_pairs(c, x->q, before, !before);
    for (int i = 0; i < c->n; i++) {
        const int64_t t = linear_token(x, c->first + i);
        const double *q = x->q + t * x->d;
        double own = 0;
        for (int d = 0; d < x->d && before; d++)
            own += q[d] * x->bonus[d] * x->k[t * x->d + d];
        const double keys = read_channel(c, i, q, before, !before, -1, s, z) + own;
        for (int e = 0; e < x->d_v; e++) {
            const double sum = read_channel(c, i, q, before, !before, e, s, z);
            o[t * x->d_v + e] =
                x->scale * (sum + own * x->v[t * x->d_v + e]) / (x->normalise ? x->scale * keys + LEAST : 1);
        }
    }
}

/* What step j adds to row d of the state behind the chunk: `what` under the vector of `keys`. */
static double add_row(const struct chunk *c, int j, int d, const double *keys, const double *what, double *s)
{
    const struct linear_tokens *x = c->x;
    const double *columns = c->columns + c->n * x->d_v;
    const double k = keys[linear_token(x, c->first + j) * x->d + d] *
                     exp(c->rows[c->n * x->d + d] - c->rows[(j + 1) * x->d + d]);
    for (int e = 0; e < x->d_v; e++)
        s[d * x->d_v + e] += k * what[j * x->d_v + e] * exp(columns[e] - c->columns[(j + 1) * x->d_v + e]);
    return k;
}

/* s and z behind the chunk. */
static void hand_over(const struct chunk *c, double *s, double *z)
{
    const struct linear_tokens *x = c->x;
    const double *rows = c->rows + c->n * x->d;
    const double *columns = c->columns + c->n * x->d_v;
    for (int d = 0; d < x->d; d++) {
        z[d] *= exp(rows[d]);
        for (int e = 0; e < x->d_v; e++)
            s[d * x->d_v + e] *= exp(rows[d] + columns[e]);
        for (int j = 0; j < c->n; j++) {
            z[d] += add_row(c, j, d, linear_writer(x, 0), c->value, s);
            if (linear_adds_seen(x))
                (void)add_row(c, j, d, x->writer, c->seen, s);
        }
    }
}

/* ---- a head in chunks --------------------------------------------------------------------------------- */

struct trial {
    struct prover *p;
    struct proof *out;
    struct data data;
    lathe_arg arg[DATA_MAX];
    int n_args;
    double growth; /* the largest beta <a, b>, of the delta rule beta |k|^2; without delta -<a, b> */
    double least;  /* the least of it */
};

static bool take_chunk(struct chunk *c, const struct linear_tokens *x, int n)
{
    const size_t size = sizeof(double);
    *c = (struct chunk){.x = x};
    c->rows = calloc((size_t)(n + 1) * (size_t)x->d, size);
    c->columns = calloc((size_t)(n + 1) * (size_t)x->d_v, size);
    c->pair = calloc((size_t)n * (size_t)n + 1, size);
    c->value = calloc((size_t)n * (size_t)x->d_v + 1, size);
    c->pair_seen = calloc((size_t)n * (size_t)n + 1, size);
    c->seen = calloc((size_t)n * (size_t)x->d_v + 1, size);
    return c->rows && c->columns && c->pair && c->value && c->pair_seen && c->seen;
}

static void drop_chunk(struct chunk *c)
{
    free(c->rows);
    free(c->columns);
    free(c->pair);
    free(c->value);
    free(c->pair_seen);
    free(c->seen);
}

/* A sum over all tokens needs no order: chunks add to the state, then every token reads it. */
static void read_all(const struct linear_tokens *x, const double *s, const double *z, double *o)
{
    for (int64_t t = 0; t < x->n; t++)
        linear_read(x, t, s, z, o + t * x->d_v);
}

/* s, z: the state in front of the head's tokens, then that behind them. */
static void run_chunks(struct trial *b, struct chunk *c, double *s, double *z, double *o)
{
    const struct linear_tokens *x = c->x;
    for (c->first = 0; c->first < x->n; c->first += c->n) {
        const int64_t left = x->n - c->first;
        c->n = (int)(1 + random_below(b->p, left < MOST_TOKENS ? left : MOST_TOKENS));
        sum_decays(c);
        make_values(c, s);
        if (!x->all_tokens)
            read_outputs(c, s, z, o);
        hand_over(c, s, z);
    }
    if (x->all_tokens)
        read_all(x, s, z, o);
}

static void run_tokens(const struct linear_tokens *x, double *s, double *z, double *o)
{
    for (int64_t i = 0; i < x->n; i++) {
        const int64_t t = linear_token(x, i);
        if (x->all_tokens)
            linear_update(x, t, s, z);
        else
            linear_step(x, t, s, z, o + t * x->d_v);
    }
    if (x->all_tokens)
        read_all(x, s, z, o);
}

static double largest_of(const double *value, int64_t n)
{
    double largest = 0;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(value[i]));
    return largest;
}

/* The line of what makes a state what it is. */
static int state_line(const struct ir *ir)
{
    const struct ir_fn *fn[] = {&ir->linear.delta, &ir->linear.reader, &ir->linear.decay};
    for (int i = 0; i < 3; i++)
        if (fn[i]->n_roots > 0)
            return proof_line(ir, fn[i]->root[0]);
    const struct ir_mod *key = &ir->mod[MOD_KEY];
    return key->n_stages > 0 ? proof_line(ir, key->stage[0].fn.root[0]) : 0;
}

static void compare_all(const struct trial *b, const char *what, const double *whole, const double *other,
                        int64_t n)
{
    const double scale = fmax(largest_of(whole, n), 1e-30);
    for (int64_t i = 0; i < n; i++)
        if (proof_record(b->out, proof_distance(other[i], whole[i], scale)))
            proof_blame(b->out, state_line(b->p->ir), "%s is %.8g in chunks, %.8g token by token", what,
                        proof_shown(other[i]), proof_shown(whole[i]));
}

/* By the delta rule I - beta k' k takes away what a key had: beyond beta |k|^2 = 2 it turns it around and
   makes it larger, with every token. I + b' a has the eigenvalue 1 + <a, b> in place of 1 - beta |k|^2,
   and 1. */
static void watch_growth(struct trial *b, const struct linear_tokens *x)
{
    for (int64_t t = 0; t < x->n && linear_looks(x); t++) {
        const double *reads = linear_reader(x, t);
        const double *writes = x->delta ? linear_writer(x, t) : x->writer + t * x->d;
        double product = 0;
        for (int d = 0; d < x->d; d++)
            product += reads[d] * writes[d];
        product *= x->delta ? x->delta[t] : -1;
        b->growth = fmax(b->growth, product);
        b->least = fmin(b->least, product);
    }
}

static void warn_of_growth(const struct trial *b, struct proof *out)
{
    const struct ir_linear *l = &b->p->ir->linear;
    const bool delta = l->delta.n_roots > 0;
    if (!out->passed || (b->growth <= 2.001 && b->least >= -0.001))
        return;
    out->warned = true;
    out->line = state_line(b->p->ir);
    if (delta && l->reader.n_roots == 0 && l->writer.n_roots == 0)
        lathe__print(
            out->note, sizeof out->note,
            "beta |k|^2 is up to %.3g: beyond 2 the state grows with every token; key_mod = unit keeps it; "
            "kernels that go in chunks may then give NaN where the state is finite",
            b->growth);
    else
        lathe__print(out->note, sizeof out->note,
                     "%s goes from %.3g to %.3g: outside of 0 to 2 a token makes part of the state larger, "
                     "and nothing says that decays make up for it",
                     delta ? "beta <reader, writer>" : "-<reader, writer>", b->least, b->growth);
}

static lathe_status compare_head(struct trial *b, struct linear_head *head, lathe_error *err)
{
    const struct linear_tokens *x = &head->x;
    const int64_t state = (int64_t)x->d * x->d_v;
    const int64_t outputs = x->n * x->d_v;
    struct chunk c;
    double *buffer = calloc((size_t)(state + x->d + 2 * outputs) + 1, sizeof *buffer);
    double *z = buffer + state;
    double *whole = z + x->d;
    const bool ok = take_chunk(&c, x, x->n < MOST_TOKENS ? (int)x->n : MOST_TOKENS) && buffer;
    watch_growth(b, x);
    if (ok) {
        memcpy(buffer, head->s, (size_t)state * sizeof *buffer);
        memcpy(z, head->z, (size_t)x->d * sizeof *buffer);
        run_chunks(b, &c, buffer, z, whole + outputs);
        run_tokens(x, head->s, head->z, whole);
        compare_all(b, "o", whole, whole + outputs, outputs);
        compare_all(b, "the state", head->s, buffer, state);
        compare_all(b, "the sum of keys", head->z, z, x->d);
    }
    drop_chunk(&c);
    free(buffer);
    return ok ? LATHE_OK : host_out_of_memory(err);
}

static lathe_status compare_chunks(struct trial *b, lathe_error *err)
{
    struct host_call call;
    struct linear_head head;
    lathe_status status = host_bind(&call, b->p->ir, &b->p->forward, b->arg, b->n_args, err);
    if (status == LATHE_OK)
        status = linear_head_init(&head, &call, err);
    if (status != LATHE_OK)
        return status;
    const int64_t n_h = host_dim(&call, SYM_H);
    for (int64_t i = 0; i < host_linear_units(&call) && status == LATHE_OK; i++) {
        status = linear_head_enter(&head, i / n_h, i % n_h, err);
        if (status == LATHE_OK)
            status = compare_head(b, &head, err);
    }
    linear_head_free(&head);
    return status;
}

/* ---- parts of a sequence ------------------------------------------------------------------------------ */

struct stretch { /* of the tokens of a call */
    int64_t first, n;
};

/* The tokens of an argument that are a part's: the same memory. */
static void slice(const struct sig_arg *a, struct stretch part, lathe_arg *t, int64_t *shape, int64_t *stride)
{
    int64_t before = 0; /* elements */
    for (int d = 0; d < t->ndim; d++) {
        const bool along = a->dim[d].sym == SYM_T && a->dim[d].literal == 0;
        shape[d] = along ? part.n * lathe__times(a->dim[d]) : t->shape[d];
        stride[d] = tensor_stride(t, d);
        before += along ? part.first * lathe__times(a->dim[d]) * stride[d] : 0;
    }
    t->data = (char *)t->data + before * (int64_t)lathe_dtype_size(t->dtype);
    t->shape = shape;
    t->strides = stride;
}

/* One part: it reads its state where it then writes it. The next sum of keys has memory of its own. */
static lathe_status run_part(const struct trial *b, struct stretch part, double *state, double *norm,
                             lathe_error *err)
{
    lathe_arg arg[DATA_MAX];
    int64_t shape[DATA_MAX][MAX_DIMS];
    int64_t stride[DATA_MAX][MAX_DIMS];
    for (int i = 0; i < b->n_args; i++) {
        arg[i] = b->arg[i];
        const int number = lathe__arg_find(&b->p->forward, arg[i].name, 0);
        if (strcmp(arg[i].name, "state") == 0 || strcmp(arg[i].name, "state_out") == 0)
            arg[i].data = state;
        else if (strcmp(arg[i].name, "norm") == 0)
            arg[i].data = norm;
        else
            slice(&b->p->forward.arg[number], part, &arg[i], shape[i], stride[i]);
    }
    const lathe_status status = host_forward(b->p->ir, &b->p->forward, arg, b->n_args, NULL, 0, err);
    const lathe_arg *sum = data_find(&b->data, "norm_out");
    if (status == LATHE_OK && sum)
        memcpy(norm, sum->data, (size_t)tensor_count(sum) * sizeof *norm);
    return status;
}

static double *copy_of(const struct trial *b, const char *name)
{
    const lathe_arg *t = data_find(&b->data, name);
    const size_t n = t ? (size_t)tensor_count(t) : 0;
    double *copy = calloc(n + 1, sizeof *copy);
    if (copy && n > 0)
        memcpy(copy, t->data, n * sizeof *copy);
    return copy;
}

static lathe_status run_parts(struct trial *b, double *state, double *norm, lathe_error *err)
{
    const int64_t t = data_find(&b->data, "q")->shape[2];
    lathe_status status = LATHE_OK;
    for (struct stretch part = {0, 0}; part.first < t && status == LATHE_OK; part.first += part.n) {
        const int64_t left = t - part.first;
        part.n = random_unit(b->p) < 0.5 ? 1 : 1 + random_below(b->p, left);
        struct stretch now = part;
        if (b->p->ir->linear.reverse)
            now.first = t - part.first - part.n;
        status = run_part(b, now, state, norm, err);
    }
    return status;
}

static void judge_parts(const struct trial *b, const char *what, const double *whole, const double *parts)
{
    const int64_t n = tensor_count(data_find(&b->data, what));
    const double scale = fmax(largest_of(whole, n), 1e-30);
    for (int64_t i = 0; i < n; i++)
        if (proof_record(b->out, proof_distance(parts[i], whole[i], scale)))
            proof_blame(
                b->out, state_line(b->p->ir),
                "%s is %.8g where a sequence comes in parts, %.8g where it comes whole: a formula depends "
                "on the length or the position",
                what, proof_shown(parts[i]), proof_shown(whole[i]));
}

static lathe_status compare_parts(struct trial *b, lathe_error *err)
{
    lathe_status status = host_forward(b->p->ir, &b->p->forward, b->arg, b->n_args, NULL, 0, err);
    double *o = copy_of(b, "o");
    double *state = copy_of(b, "state");
    double *norm = copy_of(b, "norm");
    if (status == LATHE_OK && !(o && state && norm))
        status = host_out_of_memory(err);
    if (status == LATHE_OK)
        status = run_parts(b, state, norm, err);
    if (status == LATHE_OK) {
        judge_parts(b, "o", o, data_find(&b->data, "o")->data);
        if (!b->p->ir->linear.all_tokens)
            judge_parts(b, "state", data_find(&b->data, "state_out")->data, state);
    }
    free(o);
    free(state);
    free(norm);
    return status;
}

/* ---- rounds ------------------------------------------------------------------------------------------- */

/* Few tokens and channels, of another number in each round; every third round has packed sequences. */
static void round_sizes(struct prover *p, int round, bool packed, int64_t *dim)
{
    const int64_t shared = 1 + random_below(p, 2);
    memset(dim, 0, SYM_COUNT * sizeof *dim);
    dim[SYM_ONE] = 1;
    dim[SYM_B] = packed ? 1 : 1 + random_below(p, 2);
    dim[SYM_SEQS] = dim[SYM_SLOTS] = packed ? 4 : dim[SYM_B];
    dim[SYM_H_K] = shared;
    dim[SYM_H] = shared * (1 + random_below(p, 2));
    dim[SYM_T] = round == 0 ? 1 : 2 + random_below(p, 30);
    dim[SYM_D] = 2 * (1 + random_below(p, 4));
    dim[SYM_D_V] = 2 * (1 + random_below(p, 3));
    prover_sizes(p, dim);
}

typedef lathe_status trial_fn(struct trial *b, lathe_error *err);

static lathe_status one_round(struct trial *b, int round, bool packs, trial_fn *compare, lathe_error *err)
{
    int64_t dim[SYM_COUNT];
    round_sizes(b->p, round, packs && round % 3 == 2, dim);
    lathe_status status = data_make(&b->data, b->p, dim) ? LATHE_OK : host_out_of_memory(err);
    if (status == LATHE_OK) {
        b->n_args = data_select(&b->data, &b->p->forward, b->arg);
        status = compare(b, err);
    }
    data_free(&b->data);
    return status;
}

static void run_rounds(struct prover *p, struct proof *out, bool packs, trial_fn *compare)
{
    lathe_error err = {.status = LATHE_OK};
    lathe_status status = LATHE_OK;
    struct trial *b = calloc(1, sizeof *b);
    if (!b)
        status = host_out_of_memory(&err);
    else
        b->p = p;
    for (int i = 0; b && i < (p->quick ? QUICK_ROUNDS : ROUNDS) && status == LATHE_OK; i++) {
        if (!proof_goes_on(p, out, "rounds", i))
            break;
        b->out = out;
        status = one_round(b, i, packs, compare, &err);
    }
    if (status != LATHE_OK && out->passed)
        proof_refused(out, &err);
    if (b)
        warn_of_growth(b, out);
    free(b);
}

void prove_chunks(struct prover *p, struct proof *out)
{
    proof_begin(out, "chunks = recurrence", BOUND);
    run_rounds(p, out, true, compare_chunks);
}

/* Does a formula see where in its sequence a token stands? */
static bool sees_position(const struct ir *ir)
{
    for (int i = 0; i < ir->n_nodes; i++)
        if (ir_is_at(ir, i, AT_POS))
            return true;
    return false;
}

void prove_parts(struct prover *p, struct proof *out)
{
    proof_begin(out, "steps = whole", BOUND);
    const int64_t packed = p->given ? p->given->dim[SYM_SEQS] : -1; /* whose parts are no slices */
    out->applies = !p->ir->linear.all_tokens && !sees_position(p->ir) && packed < 0;
    if (out->applies)
        run_rounds(p, out, false, compare_parts);
}
