/*
 * problem.c: the sizes and dtypes of one call, from one line of text. In: a signature and
 * "dtype=bf16,q=1000,...". Out: struct problem, the caller's; nothing is allocated. Every mistake is one
 * sentence with what was expected and what was given, status ARG. The rules that hold for problems of either
 * origin, and the way from arguments, are in runtime/bind.c.
 */
#include "gen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROBLEM_TEXT_MAX = 4096 };

struct item { /* one NAME=VALUE, not terminated */
    const char *name;
    int name_size;
    const char *value;
    int value_size;
};

static bool item_is(const struct item *item, const char *name)
{
    return (int)strlen(name) == item->name_size && memcmp(name, item->name, (size_t)item->name_size) == 0;
}

static bool value_is(const struct item *item, const char *value)
{
    return (int)strlen(value) == item->value_size &&
           memcmp(value, item->value, (size_t)item->value_size) == 0;
}

static bool has_lists(const struct signature *sig)
{
    bool any = false;
    for (int i = 0; i < sig->n_args; i++)
        any |= sig->arg[i].list;
    return any;
}

/* Symbols that a problem of this kind may set: the range of SYM_MAP, then the free dims. */
static bool sym_is_settable(const struct signature *sig, int sym)
{
    if (sym >= SYM_FREE)
        return sym < SYM_FREE + sig->n_free;
    if (!lathe__is_attention(sig) && !lathe__is_rowwise(sig))
        return sym == SYM_TENSORS && has_lists(sig);
    return lathe__is_attention(sig) ? sym >= SYM_B && sym <= SYM_D_V : sym >= SYM_ROWS0 && sym <= SYM_N;
}

static int find_sym(const struct signature *sig, const struct item *item)
{
    for (int sym = 0; sym < SYM_COUNT; sym++) {
        if (sym_is_settable(sig, sym) && item_is(item, lathe__sym_text(sig, sym)))
            return sym;
    }
    return -1;
}

static bool has_choice(const struct sig_arg *a) /* of its dtype, or to be left out */
{
    return (a->optional && a->presence_built) || lathe__has_own_dtype(a);
}

static int find_choice(const struct signature *sig, const struct item *item)
{
    for (int i = 0; i < sig->n_args; i++)
        if (has_choice(&sig->arg[i]) && item_is(item, sig->arg[i].name))
            return i;
    return -1;
}

static void say_choices(struct phrase *to, const struct sig_arg *a)
{
    const bool any = a->dtype == LATHE_NONE;
    const bool dtypes = any || a->rare; /* one that is rare has its own: naming it brings it in */
    if (dtypes)
        lathe__say(to, "%s",
                   !any          ? lathe_dtype_text((lathe_dtype)a->dtype)
                   : a->optional ? "f32, f16, bf16"
                                 : "f32, f16 or bf16");
    if (a->optional)
        lathe__say(to, "%snone", dtypes ? " or " : "");
}

static lathe_status unknown_item(const struct signature *sig, const struct item *item, lathe_error *err)
{
    struct phrase known = {{0}, 0};
    lathe__say(&known, "dtype");
    for (int sym = 0; sym < SYM_COUNT; sym++) {
        if (sym_is_settable(sig, sym))
            lathe__say(&known, ", %s", lathe__sym_text(sig, sym));
    }
    for (int i = 0; i < sig->n_args; i++) {
        if (!has_choice(&sig->arg[i]))
            continue;
        lathe__say(&known, ", %s (", sig->arg[i].name);
        say_choices(&known, &sig->arg[i]);
        lathe__say(&known, ")");
    }
    lathe__say(&known, "%s%s%s", sig->builds_alignment ? ", unaligned" : "",
               lathe__is_attention(sig) ? ", folded" : "", sig->backward ? ", deterministic" : "");
    return lathe__fail(err, LATHE_ARG, "problem: unknown name '%.*s'; this spec knows %s",
                       item->name_size > 64 ? 64 : item->name_size, item->name, known.text);
}

static lathe_status parse_size(const struct signature *sig, int sym, const struct item *item,
                               struct problem *p, lathe_error *err)
{
    int64_t value = 0;
    bool good = item->value_size > 0 && item->value_size <= 10;
    for (int i = 0; i < item->value_size && good; i++) {
        good = item->value[i] >= '0' && item->value[i] <= '9';
        value = value * 10 + (item->value[i] - '0');
    }
    if (!good || value > INT32_MAX)
        return lathe__fail(
            err, LATHE_ARG, "problem: expected %s to be a whole number from 0 to 2^31 - 1, given '%.*s'",
            lathe__sym_text(sig, sym), item->value_size > 64 ? 64 : item->value_size, item->value);
    p->dim[sym] = value;
    return LATHE_OK;
}

static lathe_dtype parse_dtype(const struct item *item)
{
    for (int d = LATHE_F32; d <= LATHE_F64; d++) {
        if (lathe__is_float((lathe_dtype)d) && value_is(item, lathe_dtype_text((lathe_dtype)d)))
            return (lathe_dtype)d;
    }
    return LATHE_NONE;
}

static lathe_status parse_problem_dtype(const struct item *item, struct problem *p, lathe_error *err)
{
    p->dtype = parse_dtype(item);
    if (p->dtype != LATHE_NONE)
        return LATHE_OK;
    return lathe__fail(
        err, LATHE_ARG,
        "problem: expected dtype to be f32, f16 or bf16 (or f64, on the host device), given '%.*s'",
        item->value_size > 64 ? 64 : item->value_size, item->value);
}

/* Is it of an argument's dtype or absence? An argument may have the name of a size: h=4 is the size,
   h=none the argument. */
static bool is_choice(const struct signature *sig, const struct item *item)
{
    return find_choice(sig, item) >= 0 &&
           (find_sym(sig, item) < 0 || value_is(item, "none") || parse_dtype(item) != LATHE_NONE);
}

/* NAME=f16 chooses the dtype of an input declared "float", or brings in what is rarely there; NAME=none
   leaves an optional one out. */
static lathe_status parse_choice(const struct signature *sig, int i, const struct item *item,
                                 struct problem *p, lathe_error *err)
{
    const struct sig_arg *a = &sig->arg[i];
    if (a->optional && value_is(item, "none")) {
        p->present &= ~arg_bit(i);
        return LATHE_OK;
    }
    const lathe_dtype given = parse_dtype(item);
    const bool fits = a->dtype == LATHE_NONE || (a->rare && given == (lathe_dtype)a->dtype);
    const lathe_dtype dtype = fits ? given : LATHE_NONE;
    if (dtype == LATHE_NONE) {
        struct phrase choices = {{0}, 0};
        say_choices(&choices, a);
        return lathe__fail(err, LATHE_ARG, "problem: expected %s to be %s, given '%.*s'", a->name,
                           choices.text, item->value_size > 64 ? 64 : item->value_size, item->value);
    }
    p->arg_dtype[i] = (uint8_t)dtype;
    p->present |= arg_bit(i);
    return LATHE_OK;
}

/* unaligned=q+k, folded=k+v: arguments. */
static lathe_status parse_set(const struct signature *sig, const struct item *item, const char *what,
                              uint64_t *set, lathe_error *err)
{
    const char *at = item->value;
    const char *const end = item->value + item->value_size;
    for (bool more = true; more; at++) {
        const char *plus = memchr(at, '+', (size_t)(end - at));
        const struct item name = {at, (int)((plus ? plus : end) - at), NULL, 0};
        uint64_t bit = 0;
        for (int i = 0; i < sig->n_args; i++)
            if (sig->arg[i].unit_last && item_is(&name, sig->arg[i].name))
                bit = arg_bit(i);
        if (!bit || (*set & bit))
            return lathe__fail(err, LATHE_ARG,
                               "problem: expected %s to be names of tensors with rows "
                               "joined by +, given '%.*s'",
                               what, item->value_size > 64 ? 64 : item->value_size, item->value);
        *set |= bit;
        more = plus != NULL;
        at += name.name_size;
    }
    return LATHE_OK;
}

static lathe_status parse_deterministic(const struct item *item, struct problem *p, lathe_error *err)
{
    if (!value_is(item, "0") && !value_is(item, "1"))
        return lathe__fail(err, LATHE_ARG, "problem: expected deterministic to be 0 or 1, given '%.*s'",
                           item->value_size > 64 ? 64 : item->value_size, item->value);
    p->deterministic = value_is(item, "1");
    return LATHE_OK;
}

static lathe_status parse_item(const struct signature *sig, const struct item *item, struct problem *p,
                               lathe_error *err)
{
    if (item_is(item, "dtype"))
        return parse_problem_dtype(item, p, err);
    if (item_is(item, "unaligned") && sig->builds_alignment)
        return parse_set(sig, item, "unaligned", &p->unaligned, err);
    if (item_is(item, "folded") && lathe__is_attention(sig))
        return parse_set(sig, item, "folded", &p->folded, err);
    if (item_is(item, "deterministic") && sig->backward)
        return parse_deterministic(item, p, err);
    if (is_choice(sig, item))
        return parse_choice(sig, find_choice(sig, item), item, p, err);
    const int sym = find_sym(sig, item);
    return sym >= 0 ? parse_size(sig, sym, item, p, err) : unknown_item(sig, item, err);
}

/* The next NAME=VALUE of a line, and where the text goes on behind it; false: there is no such thing. */
static bool next_item(const char **at, struct item *out)
{
    const int size = (int)strcspn(*at, ",");
    const char *equals = memchr(*at, '=', (size_t)size);
    if (!equals || equals == *at)
        return false;
    *out = (struct item){*at, (int)(equals - *at), equals + 1, size - (int)(equals - *at) - 1};
    *at += size;
    return true;
}

/* Is it said before, in `text`? A size and a choice of one name are two things. */
static bool is_repeated(const struct signature *sig, const char *text, const struct item *item)
{
    struct item earlier;
    for (const char *at = text; next_item(&at, &earlier) && earlier.name < item->name; at++)
        if (earlier.name_size == item->name_size &&
            memcmp(earlier.name, item->name, (size_t)item->name_size) == 0 &&
            is_choice(sig, &earlier) == is_choice(sig, item))
            return true;
    return false;
}

static lathe_status split_items(const struct signature *sig, const char *text, struct problem *p,
                                lathe_error *err)
{
    if (strlen(text) > PROBLEM_TEXT_MAX)
        return lathe__fail(err, LATHE_ARG, "problem: expected at most %d characters, given %zu",
                           PROBLEM_TEXT_MAX, strlen(text));
    for (const char *at = text; *text; at++) {
        const char *const here = at;
        struct item item;
        if (!next_item(&at, &item))
            return lathe__fail(err, LATHE_ARG,
                               "problem: expected NAME=VALUE separated by commas, given '%.*s'",
                               (int)strcspn(here, ",") > 64 ? 64 : (int)strcspn(here, ","), here);
        const lathe_status status = parse_item(sig, &item, p, err);
        if (status != LATHE_OK)
            return status;
        if (is_repeated(sig, text, &item))
            return lathe__fail(err, LATHE_ARG, "problem: '%.*s' is given twice", item.name_size, item.name);
        if (!*at)
            break;
    }
    return LATHE_OK;
}

bool problem_is_of(const struct signature *sig, const char *text)
{
    for (const char *at = text; *at; at += *at == ',') {
        struct item item;
        if (!next_item(&at, &item))
            return true; /* for problem_parse to refuse */
        bool known = item_is(&item, "dtype") || find_sym(sig, &item) >= 0 ||
                     (sig->builds_alignment && item_is(&item, "unaligned")) ||
                     (lathe__is_attention(sig) && item_is(&item, "folded")) ||
                     (sig->backward && item_is(&item, "deterministic")) || find_choice(sig, &item) >= 0;
        if (!known)
            return false;
    }
    return true;
}

static void fill(struct problem *p, enum sym sym, int64_t value)
{
    if (p->dim[sym] < 0)
        p->dim[sym] = value;
}

/* A parameter that cannot be left out has dims of 1: of one group, say. */
static void fill_parameters(const struct signature *sig, struct problem *p)
{
    for (int i = 0; i < sig->n_args; i++)
        for (int k = 0; k < sig->arg[i].ndim && !sig->arg[i].optional; k++)
            if (sig->arg[i].dim[k].literal == 0 && sig->arg[i].dim[k].sym >= SYM_FREE)
                fill(p, (enum sym)sig->arg[i].dim[k].sym, 1);
}

static void fill_sizes(const struct signature *sig, struct problem *p)
{
    if (p->dtype == LATHE_NONE)
        p->dtype = LATHE_BF16;
    if (!lathe__is_attention(sig) && !lathe__is_rowwise(sig)) {
        if (has_lists(sig))
            fill(p, SYM_TENSORS, 4);
        for (int sym = SYM_FREE; sym < SYM_FREE + sig->n_free; sym++)
            fill(p, (enum sym)sym, 64);
        return;
    }
    if (!lathe__is_attention(sig)) {
        fill(p, SYM_ROWS0, 1);
        fill(p, SYM_ROWS1, 1);
        fill(p, SYM_ROWS, 1024);
        fill(p, SYM_N, 1024);
        fill_parameters(sig, p);
        return;
    }
    fill(p, SYM_B, 1);
    fill(p, SYM_H, p->dim[SYM_H_KV] >= 0 ? p->dim[SYM_H_KV] : 8);
    fill(p, SYM_H_KV, p->dim[SYM_H]);
    fill(p, SYM_Q, p->dim[SYM_KV] >= 0 ? p->dim[SYM_KV] : 1024);
    fill(p, SYM_KV, p->dim[SYM_Q]);
    fill(p, SYM_D, p->dim[SYM_D_V] >= 0 ? p->dim[SYM_D_V] : 128);
    fill(p, SYM_D_V, p->dim[SYM_D]);
}

/* Free dims of attention have no default: an optional input that lacks one is absent, others are refused. */
static lathe_status check_free_dims(const struct signature *sig, struct problem *p, lathe_error *err)
{
    for (int i = 0; i < sig->n_args; i++) {
        const struct sig_arg *a = &sig->arg[i];
        for (int k = 0; k < a->ndim; k++) {
            if (!arg_in(p->present, i) || (a->dim[k].literal > 0 || p->dim[a->dim[k].sym] >= 0))
                continue;
            if (!a->optional)
                return lathe__fail(
                    err, LATHE_ARG, "problem: the size of dim '%s' of input '%s' has no default; add %s=SIZE",
                    lathe__sym_text(sig, a->dim[k].sym), a->name, lathe__sym_text(sig, a->dim[k].sym));
            p->present &= ~arg_bit(i);
        }
    }
    return LATHE_OK;
}

static uint64_t usual_args(const struct signature *sig)
{
    uint64_t set = 0;
    for (int i = 0; i < sig->n_args; i++)
        if (!sig->arg[i].rare)
            set |= arg_bit(i);
    return set;
}

lathe_status problem_parse(const struct signature *sig, const char *text, struct problem *out,
                           lathe_error *err)
{
    lathe__problem_clear(out);
    out->present = usual_args(sig);
    lathe_status status = split_items(sig, text ? text : "", out, err);
    if (status != LATHE_OK)
        return status;
    fill_sizes(sig, out);
    lathe__problem_fill_dtypes(sig, out);
    status = check_free_dims(sig, out, err);
    if (status == LATHE_OK)
        status = lathe__problem_check(sig, out, err);
    return status;
}
