/*
 * batch.c: deterministic=batch on the device: one sequence alone, first, last, in the middle and among others
 * of any length, in batches of two sizes, in pages, and with more room for keys than it needs: the same bits
 * each time.
 *
 * In: the contexts that main opened. Out: a line for each problem, counts in totals. All memory is freed
 * here. What results are worth other groups say; here bits are compared with bits.
 */
#include "forms_call.h"
#include "system.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How the sequences of a call lie: as batches of one length; as batches with keys in use; with keys in pages;
   packed; as rows. */
enum form_of_call { BATCHES, USED, PAGES, PACK, ROWS };

struct task {
    const char *spec;
    lathe_pass pass;
    enum form_of_call form;
    lathe_dtype dtype;
    int h, h_kv, q, kv, d, d_v;
    const char *inputs; /* of linear attention: names of numbers of a token and head; "": none */
    int agrees; /* with the bits of the task so many lines above: the same sequence in another form; 0: none
                 */
};
#define BF16 LATHE_BF16
#define F16  LATHE_F16
static const struct task TASKS[] = {
    {"causal", LATHE_FORWARD, BATCHES, BF16, 32, 8, 1, 3000, 128, 128, NULL, 0},
    {"causal", LATHE_FORWARD, USED, BF16, 32, 8, 1, 3000, 128, 128, NULL, 1},
    {"causal", LATHE_FORWARD, PAGES, BF16, 32, 8, 1, 3000, 128, 128, NULL, 2},
    {"alibi", LATHE_FORWARD, PAGES, F16, 8, 2, 4, 700, 64, 64, NULL, 0},
    {"sliding_window", LATHE_FORWARD, USED, BF16, 8, 2, 2, 2100, 128, 128, NULL, 0},
    {"mla", LATHE_FORWARD, BATCHES, BF16, 16, 1, 1, 2500, 576, 512, NULL, 0},
    {"mla", LATHE_FORWARD, PAGES, BF16, 16, 1, 1, 2500, 576, 512, NULL, 1},
    {"causal", LATHE_FORWARD, BATCHES, BF16, 8, 2, 700, 700, 128, 128, NULL, 0},
    {"softcap", LATHE_FORWARD, BATCHES, F16, 4, 4, 333, 500, 64, 64, NULL, 0},
    {"alibi", LATHE_FORWARD, BATCHES, LATHE_F32, 4, 2, 200, 200, 64, 64, NULL, 0},
    {"causal", LATHE_FORWARD, PAGES, BF16, 8, 2, 150, 700, 128, 128, NULL, 0},
    {"causal", LATHE_FORWARD, PACK, BF16, 8, 2, 333, 333, 128, 128, NULL, 0},
    {"sliding_window", LATHE_FORWARD, PACK, F16, 4, 1, 200, 200, 64, 64, NULL, 0},
    {"causal", LATHE_BACKWARD, BATCHES, BF16, 8, 2, 700, 700, 128, 128, NULL, 0},
    {"alibi", LATHE_BACKWARD, BATCHES, F16, 4, 4, 333, 500, 64, 64, NULL, 0},
    {"causal", LATHE_BACKWARD, BATCHES, BF16, 4, 2, 300, 300, 256, 256, NULL, 0},
    {"full", LATHE_BACKWARD, BATCHES, LATHE_F32, 4, 2, 150, 200, 64, 64, NULL, 0},
    {"causal", LATHE_BACKWARD, PACK, BF16, 8, 2, 333, 333, 128, 128, NULL, 0},
    {"sliding_window", LATHE_BACKWARD, PACK, F16, 4, 1, 200, 200, 64, 64, NULL, 0},
    {"causal", LATHE_BACKWARD, USED, BF16, 4, 2, 130, 300, 64, 64, NULL, 0},
    {"linear", LATHE_FORWARD, BATCHES, BF16, 4, 4, 2500, 2500, 128, 128, "", 0},
    {"simple_gla", LATHE_FORWARD, PACK, BF16, 4, 4, 300, 300, 128, 128, "g", 0},
    {"gated_delta", LATHE_FORWARD, BATCHES, BF16, 4, 4, 2500, 2500, 128, 128, "beta g", 0},
    {"gated_delta", LATHE_FORWARD, PACK, BF16, 4, 4, 300, 300, 128, 128, "beta g", 0},
    {"gated_delta", LATHE_BACKWARD, PACK, BF16, 4, 4, 300, 300, 128, 128, "beta g", 0},
    {"simple_gla", LATHE_BACKWARD, BATCHES, BF16, 4, 4, 300, 300, 128, 128, "g", 0},
    {"softmax", LATHE_FORWARD, ROWS, BF16, 1, 1, 1, 1, 3000, 0, NULL, 0},
    {"log_softmax", LATHE_BACKWARD, ROWS, BF16, 1, 1, 1, 1, 20000, 0, NULL, 0},
};

/* Who else is in the batch: how many there are, and which of them is the one. more: room for keys, or longer
 * others. */
struct crowd {
    int n, place, more;
};
static const struct crowd CROWDS[] = {{1, 0, 0}, {64, 0, 0}, {64, 29, 1}, {64, 63, 0}, {5, 2, 1}, {2, 1, 2}};
enum { MOST = 64, PAGE = 16, MOST_RESULTS = 4, DRY_MOST = 3 };

struct plan { /* one call */
    const struct task *t;
    struct crowd c;
    int q[MOST], kv[MOST]; /* tokens of each */
    int32_t cu_q[MOST + 1], cu_kv[MOST + 1];
    int room, pages; /* keys that each has room for; pages of each */
    struct call call;
};

static bool is_packed(const struct plan *p)
{
    return p->t->form == PACK;
}

/* Of the others in lists any lengths, some empty; else all are alike. */
static void draw_lengths(struct plan *p, uint64_t *random)
{
    const struct task *t = p->t;
    const bool own_kv = t->form != BATCHES && t->form != ROWS;
    const int longest = t->kv * (1 + p->c.more);
    for (int i = 0; i < p->c.n; i++) {
        const bool one = i == p->c.place;
        const int drawn = (int)random_between(random, 0, longest);
        p->kv[i] = one || !own_kv ? t->kv : drawn;
        p->q[i] = is_packed(p) ? p->kv[i] : t->q;
        p->cu_q[i + 1] = p->cu_q[i] + p->q[i];
        p->cu_kv[i + 1] = p->cu_kv[i] + p->kv[i];
    }
    p->room = own_kv && !is_packed(p) ? longest : t->kv;
    p->pages = (p->room + PAGE - 1) / PAGE;
}

/* ---- tensors ---------------------------------------------------------------------------------------------
 */

/* One with a slot of rows for each sequence, one behind the other. */
struct slots {
    const char *name;
    lathe_dtype dtype;
    int heads, width; /* of a row of a token; width 0: a number for each head */
    bool keys;
    double low, high; /* of its values */
};

/* Some hundred numbers, as the name and the place in the sequence say: the same in every call. */
static void fill(unsigned char *to, const struct slots *s, int64_t n, uint64_t random)
{
    enum { KINDS = 251 };
    unsigned char known[KINDS][4];
    const size_t bytes = lathe_dtype_size(s->dtype);
    for (int k = 0; k < KINDS; k++) {
        const double value = s->low + (s->high - s->low) * ((double)k / KINDS);
        dtype_put(s->dtype, known[k], 0, dtype_round(s->dtype, value));
    }
    for (int64_t i = 0; i < n; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        memcpy(to + (size_t)i * bytes, known[(random >> 33) % KINDS], bytes);
    }
}

static uint64_t seed_of(const char *name, int sequence)
{
    uint64_t seed = 1469598103934665603u + (uint64_t)sequence * 77u;
    for (; *name; name++) {
        seed = (seed ^ (uint64_t)*name) * 1099511628211u;
    }
    return seed;
}

/* Where page `number` of sequence i lies. */
static int page_of(const struct plan *p, int i, int number)
{
    return (int)(((int64_t)(i * p->pages + number) * 7919 + 3) % (int64_t)(p->c.n * p->pages));
}

static int64_t row_bytes(const struct slots *s)
{
    return (int64_t)s->heads * (s->width > 0 ? s->width : 1) * (int64_t)lathe_dtype_size(s->dtype);
}

static int64_t slot_tokens(const struct plan *p, const struct slots *s)
{
    return s->keys ? p->room : p->t->q;
}

/* Bytes ahead of the rows of sequence i. */
static int64_t slot_start(const struct plan *p, const struct slots *s, int i)
{
    const int64_t first = is_packed(p) ? (s->keys ? p->cu_kv[i] : p->cu_q[i]) : i * slot_tokens(p, s);
    return first * row_bytes(s);
}

static lathe_arg *declare(struct plan *p, const struct slots *s)
{
    const struct task *t = p->t;
    if (t->form == ROWS) {
        const int64_t shape[] = {p->c.n, t->d};
        return call_add(&p->call, s->name, s->dtype, 2, shape);
    }
    if (t->form == PAGES && s->keys) {
        return call_add_rows(&p->call, s->name, s->dtype, (int64_t)p->c.n * p->pages, s->heads, PAGE,
                             s->width);
    }
    const int64_t tokens = is_packed(p) ? (s->keys ? p->cu_kv : p->cu_q)[p->c.n] : slot_tokens(p, s);
    return call_add_rows(&p->call, s->name, s->dtype, is_packed(p) ? 1 : p->c.n, s->heads, tokens, s->width);
}

static int64_t all_bytes(const lathe_arg *a)
{
    int64_t bytes = (int64_t)lathe_dtype_size(a->dtype);
    for (int k = 0; k < a->ndim; k++) {
        bytes *= a->shape[k];
    }
    return bytes;
}

/* Device memory for the last argument; bytes NULL: poison. */
static bool place(struct plan *p, const void *bytes)
{
    const int i = p->call.n - 1;
    const size_t size = (size_t)all_bytes(&p->call.arg[i]);
    const struct device *device = p->call.side->device;
    p->call.memory[i] = device_alloc(device, size);
    p->call.arg[i].data = p->call.memory[i];
    return p->call.memory[i] && (bytes ? device_upload(device, p->call.memory[i], bytes, size)
                                       : device_fill(device, p->call.memory[i], 0xFF, size));
}

/* The one's rows go where they lie; of pages a page at a time. */
static void put_rows(const struct plan *p, const struct slots *s, unsigned char *all,
                     const unsigned char *rows)
{
    const int64_t row = row_bytes(s);
    const int tokens = s->keys ? p->t->kv : p->t->q;
    if (p->t->form != PAGES || !s->keys) {
        memcpy(all + slot_start(p, s, p->c.place), rows, (size_t)(tokens * row));
        return;
    }
    for (int first = 0; first < tokens; first += PAGE) {
        const int here = tokens - first < PAGE ? tokens - first : PAGE;
        memcpy(all + page_of(p, p->c.place, first / PAGE) * PAGE * row, rows + first * row,
               (size_t)(here * row));
    }
}

static bool add_operand(struct plan *p, const struct slots *s)
{
    const lathe_arg *a = declare(p, s);
    const int64_t elements = all_bytes(a) / (int64_t)lathe_dtype_size(s->dtype);
    const int64_t own = (s->keys ? p->t->kv : p->t->q) * row_bytes(s);
    unsigned char *all = malloc((size_t)all_bytes(a) + 1);
    unsigned char *rows = malloc((size_t)own + 1);
    bool good = all && rows;
    if (good) {
        fill(all, s, elements, seed_of(s->name, p->c.n + 10 * p->c.place));
        fill(rows, s, own / (int64_t)lathe_dtype_size(s->dtype), seed_of(s->name, -1));
        put_rows(p, s, all, rows);
        good = place(p, all);
    }
    free(all);
    free(rows);
    return good;
}

static bool add_list(struct plan *p, const char *name, const int32_t *list, int64_t rows, int64_t columns)
{
    const int64_t shape[] = {rows, columns};
    call_add(&p->call, name, LATHE_I32, columns > 0 ? 2 : 1, shape);
    return place(p, list);
}

static bool add_pages(struct plan *p)
{
    int32_t *list = calloc((size_t)(p->c.n * p->pages) + 1, sizeof *list);
    for (int i = 0; list && i < p->c.n; i++) {
        for (int k = 0; k < p->pages; k++) {
            list[i * p->pages + k] = page_of(p, i, k);
        }
    }
    const bool good = list && add_list(p, "pages", list, p->c.n, p->pages);
    free(list);
    return good;
}

static bool add_lists(struct plan *p)
{
    int32_t used[MOST];
    const int n = p->c.n;
    for (int i = 0; i < n; i++) {
        used[i] = p->kv[i];
    }
    if (is_packed(p)) {
        return p->t->inputs ? add_list(p, "cu", p->cu_q, n + 1, 0) : add_list(p, "cu_q", p->cu_q, n + 1, 0);
    }
    if (p->t->form == PAGES && !add_pages(p)) {
        return false;
    }
    return (p->t->form != USED && p->t->form != PAGES) || add_list(p, "used_kv", used, n, 0);
}

/* ---- which tensors a task has
 * ------------------------------------------------------------------------------ */

static int operands_of(const struct task *t, struct slots out[8])
{
    int n = 0;
    if (t->form == ROWS) {
        out[n++] = (struct slots){"x", t->dtype, 1, t->d, false, -1.0, 1.0};
        if (t->pass == LATHE_BACKWARD) {
            out[n++] = (struct slots){"dy", t->dtype, 1, t->d, false, -1.0, 1.0};
        }
        return n;
    }
    out[n++] = (struct slots){"q", t->dtype, t->h, t->d, false, -1.0, 1.0};
    out[n++] = (struct slots){"k", t->dtype, t->h_kv, t->d, true, -1.0, 1.0};
    if (strcmp(t->spec, "mla") != 0) {
        out[n++] = (struct slots){"v", t->dtype, t->h_kv, t->d_v, true, -1.0, 1.0};
    }
    if (t->inputs && strstr(t->inputs, "beta")) {
        out[n++] = (struct slots){"beta", LATHE_F32, t->h, 0, false, 0.0, 1.0};
    }
    if (t->inputs && strchr(t->inputs, 'g')) {
        out[n++] = (struct slots){"g", LATHE_F32, t->h, 0, false, -0.2, 0.0};
    }
    if (t->pass == LATHE_BACKWARD) {
        out[n++] = (struct slots){"do", t->dtype, t->h, t->d_v, false, -1.0, 1.0};
    }
    return n;
}

static int results_of(const struct task *t, struct slots out[MOST_RESULTS])
{
    int n = 0;
    const bool back = t->pass == LATHE_BACKWARD;
    if (t->form == ROWS) {
        out[n++] = (struct slots){back ? "dx" : "y", t->dtype, 1, t->d, false, 0.0, 1.0};
    } else if (back) {
        out[n++] = (struct slots){"dq", t->dtype, t->h, t->d, false, 0.0, 1.0};
        out[n++] = (struct slots){"dk", t->dtype, t->h_kv, t->d, true, 0.0, 1.0};
        out[n++] = (struct slots){"dv", t->dtype, t->h_kv, t->d_v, true, 0.0, 1.0};
    } else {
        out[n++] = (struct slots){"o", t->dtype, t->h, t->d_v, false, 0.0, 1.0};
        if (!t->inputs) {
            out[n++] = (struct slots){"lse", LATHE_F32, t->h, 0, false, 0.0, 1.0};
        }
    }
    return n;
}

/* ---- one call, and all of a task
 * ---------------------------------------------------------------------------- */

/* The one's rows of all results, one result behind the other. */
static bool take_rows(const struct plan *p, const struct slots *s, int n, unsigned char *out)
{
    for (int k = 0; k < n; k++) {
        const int arg = p->call.n - n + k;
        const int64_t bytes = (s[k].keys ? p->t->kv : p->t->q) * row_bytes(&s[k]);
        const unsigned char *from = p->call.memory[arg];
        if (!device_download(p->call.side->device, out, from + slot_start(p, &s[k], p->c.place),
                             (size_t)bytes)) {
            return false;
        }
        out += bytes;
    }
    return true;
}

static bool run_crowd(const struct side *side, lathe_spec *spec, const struct task *t, struct crowd c,
                      unsigned char *out, lathe_error *err)
{
    struct slots in[8];
    struct slots results[MOST_RESULTS];
    const int n_in = operands_of(t, in);
    const int n_out = results_of(t, results);
    struct plan p = {.t = t, .c = c, .call = {.side = side}};
    uint64_t random = seed_of(t->spec, c.n + c.place);
    draw_lengths(&p, &random);
    bool good = true;
    for (int k = 0; k < n_in && good; k++) {
        good = add_operand(&p, &in[k]);
    }
    good = good && add_lists(&p);
    for (int k = 0; k < n_out && good; k++) {
        (void)declare(&p, &results[k]);
        good = place(&p, NULL);
    }
    if (!good) {
        (void)snprintf(err->text, sizeof err->text, "no memory");
    }
    good = good && call_launch(side, spec, t->pass, p.call.arg, p.call.n, err) == LATHE_OK &&
           take_rows(&p, results, n_out, out);
    call_close(&p.call);
    return good;
}

static int64_t result_bytes(const struct task *t)
{
    struct slots results[MOST_RESULTS];
    int64_t bytes = 0;
    const int n = results_of(t, results);
    for (int k = 0; k < n; k++) {
        bytes += (results[k].keys ? t->kv : t->q) * row_bytes(&results[k]);
    }
    return bytes;
}

/* The host device takes its time: smaller, and fewer. */
static struct task task_of(const struct task *t, bool dry)
{
    struct task small = *t;
    if (dry) {
        small.q = t->q > 16 ? 16 : t->q;
        small.kv = t->kv > 40 ? 40 : t->kv;
        small.q = t->inputs || t->form == PACK ? small.kv : small.q;
        small.d = t->form == ROWS ? 64 : t->d;
    }
    return small;
}

static bool is_new(const unsigned char *bytes, int64_t n)
{
    int64_t poison = 0;
    for (int64_t i = 0; i < n; i++) {
        poison += bytes[i] == 0xFF;
    }
    return poison < n;
}

/* bits: of each task, for those that agree with an earlier one. */
static bool check_task(const struct side *side, int number, unsigned char **bits, char *why, size_t size)
{
    const bool dry = device_is_dry(side->device);
    const struct task t = task_of(&TASKS[number], dry);
    const int64_t bytes = result_bytes(&t);
    unsigned char *other = malloc((size_t)bytes + 1);
    lathe_spec *spec = NULL;
    lathe_error err = {0};
    bits[number] = malloc((size_t)bytes + 1);
    bool good = other && bits[number] && lathe_spec_load(&spec, t.spec, &err) == LATHE_OK;
    for (size_t k = 0; k < sizeof CROWDS / sizeof *CROWDS && good; k++) {
        struct crowd c = CROWDS[k];
        if (dry) {
            c.n = c.n > DRY_MOST ? DRY_MOST : c.n;
            c.place = c.place < c.n ? c.place : c.n - 1;
        }
        good = run_crowd(side, spec, &t, c, k ? other : bits[number], &err);
        (void)snprintf(why, size, "%s", err.text[0] ? err.text : device_error());
        if (good && k == 0 && !is_new(bits[number], bytes)) {
            (void)snprintf(why, size, "nothing was written");
            good = false;
        } else if (good && k > 0 && memcmp(other, bits[number], (size_t)bytes) != 0) {
            (void)snprintf(why, size, "other bits as number %d of %d", c.place, c.n);
            good = false;
        }
    }
    const unsigned char *agreed = TASKS[number].agrees > 0 ? bits[number - TASKS[number].agrees] : NULL;
    if (good && agreed && memcmp(agreed, bits[number], (size_t)bytes) != 0) {
        (void)snprintf(why, size, "other bits than in another form of the call");
        good = false;
    }
    lathe_spec_destroy(spec);
    free(other);
    return good;
}

static void run_task(const struct side *side, int number, const char *chosen, unsigned char **bits,
                     struct totals *totals)
{
    static const char *const PASS[] = {"forward", "backward"};
    static const char *const FORM[] = {"batches", "keys in use", "pages", "packed", "rows"};
    const struct task *t = &TASKS[number];
    char why[640] = "";
    char name[200];
    char note[900];
    (void)snprintf(name, sizeof name, "%s %s, %s, %s, q=%d, kv=%d, d=%d", t->spec, PASS[t->pass],
                   FORM[t->form], lathe_dtype_text(t->dtype), t->q, t->kv, t->d);
    if (text_is_chosen(chosen, name)) {
        const bool good = check_task(side, number, bits, why, sizeof why);
        (void)snprintf(note, sizeof note, "%s%s%s", name, good ? "" : ": ", good ? "" : why);
        verdict(totals, good, "batch", note);
    }
}

void batch_run(const struct bench *shared, const struct options *options, struct totals *totals)
{
    enum { COUNT = sizeof TASKS / sizeof *TASKS };
    unsigned char *bits[COUNT] = {NULL};
    struct side side = {.device = NULL};
    lathe_error err = {0};
    if (!side_open_with(&side, shared->tested.device, options->cache, NULL, NULL, LATHE_BATCH_INVARIANT,
                        &err)) {
        verdict(totals, false, "batch", err.text);
        return;
    }
    for (int i = 0; i < COUNT; i++) {
        run_task(&side, i, options->chosen, bits, totals);
    }
    for (int i = 0; i < COUNT; i++) {
        free(bits[i]);
    }
    side_close(&side);
}
