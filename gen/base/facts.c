/*
 * facts.c: lines for people, or JSON. In: facts one by one. Out: the caller's text; a failure sticks to it.
 */
#include "gen/base/facts.h"
#include "gen/base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

static void add_quoted(struct text_buf *out, const char *s)
{
    text_add_bytes(out, "\"", 1);
    for (; *s; s++) {
        const unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            text_add(out, "\\%c", c);
        else if (c < ' ')
            text_add(out, "\\u%04x", c);
        else
            text_add_bytes(out, s, 1);
    }
    text_add_bytes(out, "\"", 1);
}

/* What stands in front of a value: a comma, a new line, its name. */
static void begin_value(struct facts *f, const char *name)
{
    if (f->depth > 0)
        text_add(f->out, "%s\n%*s", f->any[f->depth - 1] ? "," : "", 2 * f->depth, "");
    if (f->depth > 0)
        f->any[f->depth - 1] = true;
    if (name) {
        add_quoted(f->out, name);
        text_add(f->out, ": ");
    }
}

void facts_open(struct facts *f, const char *name, char bracket)
{
    if (!f->json || f->depth == FACTS_DEPTH)
        return;
    begin_value(f, name);
    text_add(f->out, "%c", bracket);
    f->any[f->depth] = false;
    f->close[f->depth++] = bracket == '{' ? '}' : ']';
}

void facts_close(struct facts *f)
{
    if (!f->json || f->depth == 0)
        return;
    f->depth--;
    if (f->any[f->depth])
        text_add(f->out, "\n%*s", 2 * f->depth, "");
    text_add(f->out, "%c", f->close[f->depth]);
}

void facts_begin(struct facts *f, struct text_buf *out, bool json)
{
    memset(f, 0, sizeof *f);
    f->out = out;
    f->json = json;
    facts_open(f, NULL, '{');
}

void facts_end(struct facts *f)
{
    facts_close(f);
    if (f->json)
        text_add(f->out, "\n");
}

void facts_string(struct facts *f, const char *name, const char *value)
{
    if (!f->json)
        return;
    begin_value(f, name);
    add_quoted(f->out, value);
}

void facts_strings(struct facts *f, const char *name, const char *lines)
{
    facts_open(f, name, '[');
    while (f->json && *lines) {
        const size_t size = strcspn(lines, "\n");
        struct text_buf line = {0};
        text_add_bytes(&line, lines, size);
        facts_string(f, NULL, line.data ? line.data : "");
        text_fail_with(f->out, &line);
        text_free(&line);
        lines += size + (lines[size] == '\n');
    }
    facts_close(f);
}

void facts_integer(struct facts *f, const char *name, int64_t value)
{
    if (!f->json)
        return;
    begin_value(f, name);
    text_add(f->out, "%" PRId64, value);
}

void facts_number(struct facts *f, const char *name, double value)
{
    if (!f->json)
        return;
    begin_value(f, name);
    if (isfinite(value))
        text_add(f->out, "%.17g", value);
    else
        text_add(f->out, "null");
}

void facts_bool(struct facts *f, const char *name, bool value)
{
    if (!f->json)
        return;
    begin_value(f, name);
    text_add(f->out, "%s", yes(value));
}

void facts_line(struct facts *f, const char *fmt, ...)
{
    va_list ap;
    if (f->json)
        return;
    va_start(ap, fmt);
    text_add_list(f->out, fmt, ap);
    va_end(ap);
}
