/*
 * cmd_list.c: `lathe list` and `lathe show`: the specs that ship with lathe. In: parsed options. Out: their
 * names, each with its kind, the first sentence of its comment and, as JSON, its parameters, or the text of
 * one, on standard output.
 */
#include "gen/base/facts.h"
#include "gen/tool/tool.h"

#include <stdio.h>
#include <string.h>

/* "specs/causal.lua" -> "causal". False: no spec that a user loads. */
static bool spec_name(const struct embedded *e, char *out, size_t size)
{
    const size_t length = strlen(e->name);
    if (strncmp(e->name, "specs/", 6) != 0 || length <= 10 || strcmp(e->name + length - 4, ".lua") != 0 ||
        strcmp(e->name, "specs/prelude.lua") == 0)
        return false;
    snprintf(out, size, "%.*s", (int)(length - 10), e->name + 6);
    return true;
}

/* Comment lines at the head of a spec, behind the file's name, as one line. */
static void comment_of(const struct embedded *e, char *out, size_t size)
{
    const char *at = memchr(e->data, ':', e->size);
    const char *const end = e->data + e->size;
    size_t n = 0;
    out[0] = '\0';
    at = at ? at + 1 : e->data;
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop ? stop : end;
        while (at < stop && (*at == ' ' || *at == '-'))
            at++;
        n += (size_t)snprintf(out + n, size - n, "%s%.*s", n ? " " : "", (int)(stop - at), at);
        if (n >= size || end - stop < 3 || strncmp(stop + 1, "--", 2) != 0)
            return;
        at = stop + 1;
    }
}

/* The first sentence: a stop with a capital letter behind it ends it, as "et al. 2021" does not. */
static void summary_of(const struct embedded *e, char *out, size_t size)
{
    comment_of(e, out, size);
    for (char *c = out; c[0] && c[1] && c[2]; c++)
        if (c[0] == '.' && c[1] == ' ' && c[2] >= 'A' && c[2] <= 'Z')
            c[1] = '\0';
    const size_t n = strlen(out);
    if (n > 0 && out[n - 1] == '.')
        out[n - 1] = '\0';
}

/* False: there is no memory for it. */
static bool list_one(struct facts *f, const struct embedded *e, const char *name)
{
    char summary[1024];
    struct diag diag = {0};
    struct ir *ir = spec_load(e->name, e->data, e->size, &diag);
    struct signature sig;
    if (!ir)
        return false;
    signature_make(ir, LATHE_FORWARD, &sig);
    summary_of(e, summary, sizeof summary);
    facts_open(f, NULL, '{');
    facts_string(f, "name", name);
    facts_string(f, "kind", sig.kind);
    facts_string(f, "summary", summary);
    facts_open(f, "parameters", '{');
    for (int i = 0; i < ir->n_params; i++)
        facts_number(f, ir->param[i].name, ir->param[i].usual);
    facts_close(f);
    facts_close(f);
    facts_line(f, "%-19s %-16s %s\n", name, sig.kind, summary);
    ir_free(ir);
    return true;
}

int cmd_list(const struct options *o)
{
    char name[64];
    struct facts f;
    struct text_buf text = {0};
    bool whole = true;
    facts_begin(&f, &text, o->json);
    facts_open(&f, "specs", '[');
    for (const struct embedded *e = embedded_files; e->name && whole; e++) {
        if (!spec_name(e, name, sizeof name))
            continue;
        if (o->names)
            facts_line(&f, "%s\n", name);
        else
            whole = list_one(&f, e, name);
    }
    facts_close(&f);
    facts_end(&f);
    if (!whole) {
        text_free(&text);
        tool_complain("list: out of memory");
        return CODE_ENVIRONMENT;
    }
    return tool_print(&text) ? CODE_OK : CODE_ENVIRONMENT;
}

int cmd_show(const struct options *o)
{
    char path[128];
    struct nearest nearest = {.word = o->operand[0]};
    snprintf(path, sizeof path, "specs/%.90s.lua", o->operand[0]);
    const struct embedded *e = embedded_find(path);
    if (!e) {
        embedded_nearest(&nearest);
        tool_complain("spec '%s': not a shipped spec; `lathe list` names them%s", o->operand[0],
                      lathe__nearest_text(&nearest));
        return CODE_USAGE;
    }
    return fwrite(e->data, 1, e->size, stdout) == e->size ? CODE_OK : CODE_ENVIRONMENT;
}
