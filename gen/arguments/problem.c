/*
 * problem.c: the sizes and dtypes of one call, from one line of text. In: a signature and
 * "dtype=bf16,q=1000,...". Out: struct problem, the caller's; nothing is allocated. Every mistake is one
 * sentence with what was expected and what was given, status ARG. The rules that hold for problems of either
 * origin, and the way from arguments, are in runtime/recipe/bind.c.
 */
#include "gen/arguments/problem.h"
#include "gen/arguments/signature.h"
#include "gen/ir/spec.h"

#include <stdio.h>
#include <string.h>

enum { PROBLEM_TEXT_MAX = 4096 };

/* Whose names a text may hold. */
struct reader {
    const struct signature *sig;
    const struct signature *other; /* of the spec's other pass, NULL: none. Its names say nothing here */
};

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

/* Of a text in a message: as many bytes as can be read at once. */
static int shown(int size)
{
    return size > 64 ? 64 : size;
}

static bool value_is(const struct item *item, const char *value)
{
    return (int)strlen(value) == item->value_size &&
           memcmp(value, item->value, (size_t)item->value_size) == 0;
}

/* Which of the sizes of a spec has that name; its symbol, -1: none. */
static int find_sym(const struct signature *sig, const struct item *item)
{
    for (int i = 0; i < sig->n_sizes; i++)
        if (item_is(item, lathe__sym_text(sig, sig->size[i].sym)))
            return sig->size[i].sym;
    return -1;
}

static bool has_choice(const struct sig_arg *a) /* of its dtype, or to be left out */
{
    return (a->optional && a->presence_built) || lathe__has_own_dtype(a);
}

static lathe_dtype parse_dtype(const struct item *item)
{
    for (int d = LATHE_F32; d <= LATHE_F64; d++) {
        if (lathe__is_float((lathe_dtype)d) && value_is(item, lathe_dtype_text((lathe_dtype)d)))
            return (lathe_dtype)d;
    }
    return LATHE_NONE;
}

/* The same, or one of 8 bits. */
static lathe_dtype parse_role_dtype(const struct item *item)
{
    for (int d = LATHE_F8_E4M3; d <= LATHE_I8; d++)
        if (value_is(item, lathe_dtype_text((lathe_dtype)d)))
            return (lathe_dtype)d;
    return parse_dtype(item);
}

/* Is it the dtype of a role, by the name of its first argument? */
static bool is_role(const struct signature *sig, int i, const struct item *item)
{
    return lathe__has_role_dtype(&sig->arg[i]) && lathe__names_dtype(sig, i) &&
           parse_role_dtype(item) != LATHE_NONE;
}

static int find_choice(const struct signature *sig, const struct item *item)
{
    for (int i = 0; i < sig->n_args; i++)
        if (item_is(item, sig->arg[i].name) && (has_choice(&sig->arg[i]) || is_role(sig, i, item)))
            return i;
    return -1;
}

static void say_choices(struct phrase *to, const struct sig_arg *a)
{
    const bool any = a->dtype == LATHE_NONE || a->halves;
    lathe__say(to, "%s",
               !any          ? lathe_dtype_text((lathe_dtype)a->dtype)
               : a->narrow   ? lathe__role_dtypes(a)
               : a->optional ? "f32, f16, bf16"
                             : "f32, f16 or bf16");
    if (a->optional)
        lathe__say(to, " or none");
}

/* k=u8: a tensor that may have a dtype of 8 bits, and what is none of them. */
static const struct sig_arg *find_narrow(const struct signature *sig, const struct item *item)
{
    for (int i = 0; i < sig->n_args; i++)
        if (sig->arg[i].narrow && item_is(item, sig->arg[i].name) && lathe__names_dtype(sig, i))
            return &sig->arg[i];
    return NULL;
}

static lathe_status unknown_item(const struct signature *sig, const struct item *item, lathe_error *err)
{
    struct phrase known = {{0}, 0};
    char word[NAME_MAX_BYTES];
    struct nearest nearest = {.word = word};
    const struct sig_arg *narrow = find_narrow(sig, item);
    if (narrow)
        return lathe__fail(err, LATHE_ARG, "problem: expected %s to be %s, given '%.*s'", narrow->name,
                           lathe__role_dtypes(narrow), shown(item->value_size), item->value);
    snprintf(word, sizeof word, "%.*s", item->name_size, item->name);
    if (sig->no_parts[0] && (item_is(item, "part_o") || item_is(item, "part_rows")))
        return lathe__fail(err, LATHE_ARG, "problem: this spec makes no parts of rows: %s", sig->no_parts);
    const char *const why = lathe__why_absent(sig, word);
    if (why)
        return lathe__fail(err, LATHE_ARG, "problem: '%s' is not taken: %s", word, why);
    lathe__say(&known, "dtype");
    lathe__nearest_try(&nearest, "dtype");
    for (int i = 0; i < sig->n_sizes; i++) {
        const char *name = lathe__sym_text(sig, sig->size[i].sym);
        lathe__say(&known, ", %s", name);
        lathe__nearest_try(&nearest, name);
    }
    for (int i = 0; i < sig->n_args; i++) {
        if (!has_choice(&sig->arg[i]) || lathe__is_host_value(&sig->arg[i])) /* its size brings it */
            continue;
        lathe__nearest_try(&nearest, sig->arg[i].name);
        lathe__say(&known, ", %s (", sig->arg[i].name);
        say_choices(&known, &sig->arg[i]);
        lathe__say(&known, ")");
    }
    lathe__say(&known, "%s%s, deterministic", sig->builds_alignment ? ", unaligned" : "",
               sig->builds_folded ? ", folded" : "");
    return lathe__fail(err, LATHE_ARG, "problem: unknown name '%.*s'; this spec knows %s%s",
                       shown(item->name_size), item->name, known.text, lathe__nearest_text(&nearest));
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
        return lathe__fail(err, LATHE_ARG,
                           "problem: expected %s to be a whole number from 0 to 2^31 - 1, given '%.*s'",
                           lathe__sym_text(sig, sym), shown(item->value_size), item->value);
    p->dim[sym] = value;
    return LATHE_OK;
}

/* The dtype of an argument that has its own, by its name: integers, too. */
static bool names_dtype(const struct item *item, lathe_dtype dtype)
{
    return dtype != LATHE_NONE && value_is(item, lathe_dtype_text(dtype));
}

static lathe_status parse_problem_dtype(const struct item *item, struct problem *p, lathe_error *err)
{
    p->dtype[DTYPE_USUAL] = parse_dtype(item);
    if (p->dtype[DTYPE_USUAL] != LATHE_NONE)
        return LATHE_OK;
    return lathe__fail(
        err, LATHE_ARG,
        "problem: expected dtype to be f32, f16 or bf16 (or f64, on the host device), given '%.*s'",
        shown(item->value_size), item->value);
}

static lathe_dtype parse_half(const struct item *item)
{
    const lathe_dtype dtype = parse_dtype(item);
    return dtype == LATHE_F16 || dtype == LATHE_BF16 ? dtype : LATHE_NONE;
}

/* Is it of an argument's dtype or absence? An argument may have the name of a size: h=4 is the size,
   h=none the argument. */
static bool is_choice(const struct signature *sig, const struct item *item)
{
    return find_choice(sig, item) >= 0 &&
           (find_sym(sig, item) < 0 || value_is(item, "none") || parse_role_dtype(item) != LATHE_NONE);
}

/* NAME=f16 chooses the dtype of an input declared "float", or of all tensors of a role, or brings in what is
   rarely there; NAME=none leaves an optional one out. */
static lathe_status parse_choice(const struct signature *sig, int i, const struct item *item,
                                 struct problem *p, lathe_error *err)
{
    const struct sig_arg *a = &sig->arg[i];
    if (a->optional && value_is(item, "none")) {
        p->present &= ~arg_bit(i);
        return LATHE_OK;
    }
    const bool is_cached = lathe__has_own_dtype(a) && a->narrow;
    const bool own = names_dtype(item, (lathe_dtype)a->dtype); /* brings in what is rarely there */
    if (own && !a->rare) {
        p->present |= arg_bit(i);
        return LATHE_OK;
    }
    if (is_role(sig, i, item) && lathe__role_dtype_check(a, parse_role_dtype(item), err) != LATHE_OK)
        return LATHE_ARG;
    const lathe_dtype dtype = own                      ? (lathe_dtype)a->dtype
                              : is_role(sig, i, item)  ? parse_role_dtype(item)
                              : is_cached              ? parse_role_dtype(item)
                              : a->dtype == LATHE_NONE ? parse_dtype(item)
                              : a->halves              ? parse_half(item)
                                                       : LATHE_NONE;
    if (dtype == LATHE_NONE) {
        struct phrase choices = {{0}, 0};
        say_choices(&choices, a);
        return lathe__fail(err, LATHE_ARG, "problem: expected %s to be %s, given '%.*s'", a->name,
                           choices.text, shown(item->value_size), item->value);
    }
    if (is_role(sig, i, item) || a->halves)
        p->dtype[a->dtype_role] = dtype;
    p->arg_dtype[i] = (uint8_t)dtype;
    p->present |= arg_bit(i);
    return LATHE_OK;
}

/* The argument of that name whose rows may lie anyhow, as a set; 0: there is none. */
static uint64_t row_bit(const struct signature *sig, const struct item *name)
{
    for (int i = 0; i < sig->n_args; i++)
        if (sig->arg[i].unit_last && item_is(name, sig->arg[i].name))
            return arg_bit(i);
    return 0;
}

/* unaligned=q+k, folded=k+v: arguments. */
static lathe_status parse_set(const struct reader *of, const struct item *item, const char *what,
                              uint64_t *set, lathe_error *err)
{
    uint64_t elsewhere = 0;
    const char *at = item->value;
    const char *const end = item->value + item->value_size;
    for (bool more = true; more; at++) {
        const char *plus = memchr(at, '+', (size_t)(end - at));
        const struct item name = {at, (int)((plus ? plus : end) - at), NULL, 0};
        uint64_t *const to = of->other && !row_bit(of->sig, &name) ? &elsewhere : set;
        const uint64_t bit = row_bit(to == set ? of->sig : of->other, &name);
        if (!bit || (*to & bit))
            return lathe__fail(err, LATHE_ARG,
                               "problem: expected %s to be names of tensors with rows "
                               "joined by +, %s is '%.*s' of '%.*s'",
                               what, bit ? "named twice" : "and none of them", shown(name.name_size), at,
                               shown(item->value_size), item->value);
        *to |= bit;
        more = plus != NULL;
        at += name.name_size;
    }
    return LATHE_OK;
}

/* A forward pass has no use for 1, and takes it so that one line serves both passes. */
static lathe_status parse_deterministic(const struct signature *sig, const struct item *item,
                                        struct problem *p, lathe_error *err)
{
    const bool batch = value_is(item, "batch");
    if (!value_is(item, "0") && !value_is(item, "1") && !batch)
        return lathe__fail(err, LATHE_ARG,
                           "problem: expected deterministic to be 0, 1 or batch, given '%.*s'",
                           shown(item->value_size), item->value);
    p->deterministic = lathe__determinism(sig, batch ? DETERMINISTIC_BATCH : value_is(item, "1"));
    return LATHE_OK;
}

/* Does a spec of this signature know the name of an item? */
static bool is_known(const struct signature *sig, const struct item *item)
{
    return item_is(item, "dtype") || find_sym(sig, item) >= 0 || find_choice(sig, item) >= 0 ||
           (sig->builds_alignment && item_is(item, "unaligned")) ||
           (sig->builds_folded && item_is(item, "folded")) || item_is(item, "deterministic");
}

static lathe_status parse_item(const struct reader *of, const struct item *item, struct problem *p,
                               lathe_error *err);

/* A name of the other pass: its value says nothing, but must be right. */
static lathe_status parse_unused(const struct signature *other, const struct item *item, lathe_error *err)
{
    struct problem unused;
    const struct reader there = {other, NULL};
    lathe__problem_clear(&unused);
    return parse_item(&there, item, &unused, err);
}

static lathe_status parse_item(const struct reader *of, const struct item *item, struct problem *p,
                               lathe_error *err)
{
    const struct signature *const sig = of->sig;
    if (item_is(item, "dtype"))
        return parse_problem_dtype(item, p, err);
    if (item_is(item, "unaligned") && sig->builds_alignment)
        return parse_set(of, item, "unaligned", &p->unaligned, err);
    if (item_is(item, "folded") && sig->builds_folded)
        return parse_set(of, item, "folded", &p->folded, err);
    if (item_is(item, "deterministic"))
        return parse_deterministic(sig, item, p, err);
    if (is_choice(sig, item))
        return parse_choice(sig, find_choice(sig, item), item, p, err);
    const int sym = find_sym(sig, item);
    if (of->other && (is_choice(of->other, item) || (sym < 0 && is_known(of->other, item))))
        return parse_unused(of->other, item, err);
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
static bool is_repeated(const struct reader *of, const char *text, const struct item *item)
{
    const struct signature *const sig = find_choice(of->sig, item) < 0 && of->other ? of->other : of->sig;
    struct item earlier;
    for (const char *at = text; next_item(&at, &earlier) && earlier.name < item->name; at++)
        if (earlier.name_size == item->name_size &&
            memcmp(earlier.name, item->name, (size_t)item->name_size) == 0 &&
            is_choice(sig, &earlier) == is_choice(sig, item))
            return true;
    return false;
}

static lathe_status split_items(const struct reader *of, const char *text, struct problem *p,
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
                               shown((int)strcspn(here, ",")), here);
        const lathe_status status = parse_item(of, &item, p, err);
        if (status != LATHE_OK)
            return status;
        if (is_repeated(of, text, &item))
            return lathe__fail(err, LATHE_ARG, "problem: '%.*s' is given twice", item.name_size, item.name);
        if (!*at)
            break;
    }
    return LATHE_OK;
}

/* The signature of the spec's other pass. */
static void sign_other(const struct ir *ir, const struct signature *sig, struct signature *out)
{
    signature_make(ir, sig->backward ? LATHE_FORWARD : LATHE_BACKWARD, out);
}

bool problem_is_of(const struct ir *ir, const struct signature *sig, const char *text)
{
    struct signature other;
    sign_other(ir, sig, &other);
    for (const char *at = text; *at; at += *at == ',') {
        struct item item;
        if (!next_item(&at, &item))
            return true; /* for problem_parse to refuse */
        if (!is_known(sig, &item) && !is_known(&other, &item))
            return false;
    }
    return true;
}

static void fill_sizes(const struct signature *sig, struct problem *p)
{
    if (p->dtype[DTYPE_USUAL] == LATHE_NONE)
        p->dtype[DTYPE_USUAL] = LATHE_BF16;
    lathe__sizes_fill(sig, p, true);
}

/* A dim may have no default: an optional input that lacks one is absent, others are refused. */
static lathe_status check_free_dims(const struct signature *sig, struct problem *p, lathe_error *err)
{
    for (int i = 0; i < sig->n_args; i++) {
        const struct sig_arg *a = &sig->arg[i];
        for (int k = 0; k < a->ndim; k++) {
            const struct sig_dim dim = lathe__dim_here(p, a->dim[k]);
            if (!arg_in(p->present, i) || (dim.literal > 0 || p->dim[dim.sym] >= 0))
                continue;
            if (!a->optional)
                return lathe__fail(err, LATHE_ARG,
                                   "problem: the size of dim '%s' of input '%s' has no default; add %s=SIZE "
                                   "(the spec's own name for a "
                                   "size: those of every call are in specs/reference/inputs.md)",
                                   lathe__sym_text(sig, a->dim[k].sym), a->name,
                                   lathe__sym_text(sig, a->dim[k].sym));
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

/* Launches with sequences have no map of the mask's tiles to keep. */
static bool has_map(const struct signature *sig, const struct problem *p)
{
    static const char *const list[] = {"cu_q", "used_kv", "pages"};
    bool any = false;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        any |= problem_has_named(sig, p, list[i]);
    return !any;
}

/* What has no place beside other arguments that the line brings. */
static void leave_out(const struct signature *sig, struct problem *p)
{
    for (int i = 0; i < sig->n_args; i++)
        if ((sig->arg[i].unless && arg_in(p->present, sig->arg[i].unless - 1)) ||
            (sig->arg[i].role == ROLE_MASK_KEPT && !has_map(sig, p)))
            p->present &= ~arg_bit(i);
}

static lathe_status parse_whole(const struct reader *of, const char *text, struct problem *out,
                                lathe_error *err)
{
    lathe__problem_clear(out);
    out->present = usual_args(of->sig);
    lathe_status status = lathe__pass_check(of->sig, err);
    if (status == LATHE_OK)
        status = split_items(of, text ? text : "", out, err);
    if (status != LATHE_OK)
        return status;
    leave_out(of->sig, out);
    out->open = out->dim[SYM_B] < 0 || out->dim[SYM_H] < 0 || out->dim[SYM_Q] < 0;
    fill_sizes(of->sig, out);
    lathe__problem_fill_dtypes(of->sig, out);
    status = check_free_dims(of->sig, out, err);
    if (status == LATHE_OK)
        status = lathe__problem_check(of->sig, out, err);
    return status;
}

lathe_status problem_parse(const struct signature *sig, const char *text, struct problem *out,
                           lathe_error *err)
{
    const struct reader of = {sig, NULL};
    return parse_whole(&of, text, out, err);
}

lathe_status problem_parse_of(const struct ir *ir, const struct signature *sig, const char *text,
                              struct problem *out, lathe_error *err)
{
    struct signature other;
    sign_other(ir, sig, &other);
    const struct reader of = {sig, &other};
    return parse_whole(&of, text, out, err);
}

lathe_status problem_named_of(const struct ir *ir, const struct signature *sig, const char *text,
                              struct problem *out, lathe_error *err)
{
    struct signature other;
    struct problem whole;
    sign_other(ir, sig, &other);
    const struct reader of = {sig, &other};
    lathe__problem_clear(out);
    out->present = usual_args(sig);
    const lathe_status status = split_items(&of, text ? text : "", out, err);
    if (status != LATHE_OK)
        return status;
    if (out->dtype[DTYPE_USUAL] == LATHE_NONE)
        out->dtype[DTYPE_USUAL] = LATHE_F64;
    leave_out(sig, out);
    lathe__problem_fill_dtypes(sig, out);
    whole = *out;
    fill_sizes(sig, &whole);
    return lathe__problem_check(sig, &whole, err);
}
