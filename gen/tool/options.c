/*
 * options.c: what an option of the command line says. In: its row and its text. Out: members of struct
 * options, or a complaint.
 */
#include "gen/tool/commands.h"
#include "lathe_dist.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1000000000 };

static void *member(const struct option_row *row, struct options *o)
{
    return (char *)o + row->member;
}

static bool take_number(const char *option, const char *text, long least, long most, long *out)
{
    char *end = NULL;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < least || value > most) {
        tool_complain("%s: expected a whole number from %ld to %ld, given '%s'", option, least, most, text);
        return false;
    }
    *out = value;
    return true;
}

/* Of one pass, whose name has `size` bytes. */
static bool find_pass(const char *text, size_t size, lathe_pass *out)
{
    for (int pass = LATHE_FORWARD; pass <= LATHE_COMBINE; pass++) {
        const char *name = lathe__pass_text((lathe_pass)pass);
        *out = (lathe_pass)pass;
        if (strlen(name) == size && strncmp(text, name, size) == 0)
            return true;
    }
    return false;
}

bool option_pass(const struct option_row *row, const char *text, struct options *o)
{
    if (find_pass(text, strlen(text), &o->pass))
        return true;
    tool_complain("%s: expected forward, backward or combine, given '%s'", row->name, text);
    return false;
}

bool option_ir(const struct option_row *row, const char *text, struct options *o)
{
    o->ir = strcmp(text, "traced") == 0 ? IR_TRACED : strcmp(text, "lowered") == 0 ? IR_LOWERED : IR_NONE;
    if (o->ir == IR_NONE)
        tool_complain("%s: expected traced or lowered, given '%s'", row->name, text);
    return o->ir != IR_NONE;
}

/* Order does not matter; each once. */
bool option_passes(const struct option_row *row, const char *text, struct options *o)
{
    o->passes = 0;
    for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        lathe_pass pass;
        const bool known = find_pass(at, strcspn(at, ","), &pass);
        if (!known || (o->passes >> pass & 1)) {
            tool_complain("%s: expected forward, backward, combine or several of them with commas, each "
                          "once, given '%s'",
                          row->name, text);
            return false;
        }
        o->passes |= 1u << pass;
    }
    return true;
}

bool option_device(const struct option_row *row, const char *text, struct options *o)
{
    long number = 0;
    if (strcmp(text, "auto") == 0 || strcmp(text, "host") == 0) {
        o->device = *text == 'a' ? LATHE_DEVICE_AUTO : LATHE_DEVICE_HOST;
        return true;
    }
    if (strncmp(text, "cuda:", 5) != 0) {
        tool_complain("%s: expected auto, host or cuda:N, given '%s'", row->name, text);
        return false;
    }
    if (!take_number("--device cuda:N", text + 5, 0, 1023, &number))
        return false;
    o->device = (int)number;
    return true;
}

static bool take_one_arch(const char *text, struct options *o)
{
    if (o->n_archs == MAX_ARCHS) {
        tool_complain("--arch: expected at most %d, given more", MAX_ARCHS);
        return false;
    }
    for (int i = 0; i < o->n_archs; i++) {
        if (strcmp(o->arch[i].arch, text) == 0) {
            tool_complain("--arch: %s is given twice", text);
            return false;
        }
    }
    return device_parse(text, &o->arch[o->n_archs++]);
}

bool option_arch(const struct option_row *row, const char *text, struct options *o)
{
    (void)row;
    for (;;) {
        char one[32];
        const size_t size = strcspn(text, ",");
        snprintf(one, sizeof one, "%.*s", size < sizeof one ? (int)size : (int)sizeof one - 1, text);
        if (!take_one_arch(one, o))
            return false;
        if (!text[size])
            return true;
        text += size + 1;
    }
}

/* What is run says its time and errors on standard output: no place for an array. */
static bool is_file(const char *option, const char *text)
{
    const char *equals = strchr(text, '=');
    if (!equals || strcmp(equals, "=-") != 0)
        return true;
    tool_complain("%s: expected NAME=FILE.npy, given '%s'", option, text);
    return false;
}

bool option_pair(const struct option_row *row, const char *text, struct options *o)
{
    struct name_values *list = member(row, o);
    const char *equals = strchr(text, '=');
    if (!equals || equals == text || !equals[1] || equals - text >= NAME_MAX_BYTES) {
        tool_complain("%s: expected NAME=VALUE, given '%s'", row->name, text);
        return false;
    }
    if (list->n == MAX_PAIRS) {
        tool_complain("%s: expected at most %d, given more", row->name, MAX_PAIRS);
        return false;
    }
    struct name_value *pair = &list->item[list->n];
    snprintf(pair->name, sizeof pair->name, "%.*s", (int)(equals - text), text);
    pair->value = equals + 1;
    if (tool_find_value(list, pair->name)) {
        tool_complain("%s: '%s' is given twice", row->name, pair->name);
        return false;
    }
    list->n++;
    return true;
}

bool option_file(const struct option_row *row, const char *text, struct options *o)
{
    return is_file(row->name, text) && option_pair(row, text, o);
}

bool option_text(const struct option_row *row, const char *text, struct options *o)
{
    *(const char **)member(row, o) = text;
    return true;
}

bool option_flag(const struct option_row *row, const char *text, struct options *o)
{
    (void)text;
    *(bool *)member(row, o) = true;
    return true;
}

bool option_problems(const struct option_row *row, const char *text, struct options *o)
{
    (void)row;
    o->problems[o->n_problems++] = text;
    return true;
}

bool option_template(const struct option_row *row, const char *text, struct options *o)
{
    struct text_buf known = {0};
    const bool is_known = plan_knows(text, &known);
    if (!is_known)
        tool_complain("%s: expected one of%s; given '%s'", row->name, known.data ? known.data : "", text);
    text_free(&known);
    o->template_name = text;
    return is_known;
}

static bool take_int(const char *option, const char *text, long least, long most, int *out)
{
    long number = 0;
    if (!take_number(option, text, least, most, &number))
        return false;
    *out = (int)number;
    return true;
}

bool option_count(const struct option_row *row, const char *text, struct options *o)
{
    return take_int(row->name, text, 1, MOST, member(row, o));
}

bool option_ranks(const struct option_row *row, const char *text, struct options *o)
{
    return take_int(row->name, text, 1, LATHE_MOST_RANKS, &o->ranks);
}

bool option_seed(const struct option_row *row, const char *text, struct options *o)
{
    int seed = 0;
    const bool good = take_int(row->name, text, 0, MOST, &seed);
    o->seed = (unsigned)seed;
    return good;
}

bool option_pixels(const struct option_row *row, const char *text, struct options *o)
{
    return take_int(row->name, text, 64, 1024, &o->pixels);
}

bool option_real(const struct option_row *row, const char *text, struct options *o)
{
    double *const out = member(row, o);
    char *end = NULL;
    *out = strtod(text, &end);
    if (end != text && !*end && isfinite(*out))
        return true;
    tool_complain("%s: expected a number, given '%s'", row->name, text);
    return false;
}
