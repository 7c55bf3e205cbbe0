/*
 * cmd_list.c: `lathe list` and `lathe show`: the specs that ship with lathe. In: parsed options. Out: their
 * names, each with the first sentence of its comment and its parameters, or the text of one, on standard
 * output.
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

/* The comment in the first line, behind the file's name. */
static void summary_of(const struct embedded *e, char *out, size_t size)
{
    const char *end = memchr(e->data, '\n', e->size);
    const size_t length = end ? (size_t)(end - e->data) : e->size;
    const char *colon = memchr(e->data, ':', length);
    const char *from = colon ? colon + 1 : e->data;
    while (from < e->data + length && (*from == ' ' || *from == '-'))
        from++;
    snprintf(out, size, "%.*s", (int)(e->data + length - from), from);
}

static void list_one(struct facts *f, const struct embedded *e, const char *name)
{
    char summary[512];
    struct diag diag = {0};
    struct ir *ir = spec_load(e->name, e->data, e->size, &diag);
    struct signature sig;
    if (!ir)
        return;
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
    ir_free(ir);
}

static void list_line(struct facts *f, const struct embedded *e, const char *name, bool alone)
{
    char summary[512];
    summary_of(e, summary, sizeof summary);
    if (alone)
        facts_line(f, "%s\n", name);
    else
        facts_line(f, "%-22s %s\n", name, summary);
}

int cmd_list(const struct options *o)
{
    char name[64];
    struct facts f;
    struct text_buf text = {0};
    facts_begin(&f, &text, o->json);
    facts_open(&f, "specs", '[');
    for (const struct embedded *e = embedded_files; e->name; e++) {
        if (!spec_name(e, name, sizeof name))
            continue;
        if (o->json)
            list_one(&f, e, name);
        else
            list_line(&f, e, name, o->names);
    }
    facts_close(&f);
    facts_end(&f);
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
