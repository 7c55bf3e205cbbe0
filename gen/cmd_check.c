/*
 * cmd_check.c: `lathe check`. In: specs. Out: one line per proof on standard output, with its largest
 * error; what is wrong, with the spec's line, on standard error. Exit code 1 where a spec is wrong or a
 * proof fails, 2 where a spec cannot be read. Every spec is looked at, whatever the one before it did.
 */
#include "tool.h"

/* A spec is traced after the prelude: its own file is the last one. */
static const char *own_file(const struct ir *ir, const char *name)
{
    return ir->n_files > 0 ? ir->file[ir->n_files - 1] : name;
}

static bool report(const struct ir *ir, const char *name, const struct proof *p)
{
    if (!p->applies) {
        printf("%-16s %-24s nothing to prove%s%s\n", ir->name, p->what, p->note[0] ? ": " : "", p->note);
        return true;
    }
    const bool remark = p->passed && p->note[0];
    printf("%-16s %-24s %-6s error %.2e (bound %.1e)%s%s\n", ir->name, p->what, p->passed ? "ok" : "FAILED",
           p->error, p->bound, remark ? ": " : "", remark ? p->note : "");
    if (p->passed)
        return true;
    fflush(stdout);
    fprintf(stderr, "%s", own_file(ir, name));
    if (p->line > 0) /* else the formula is the prelude's */
        fprintf(stderr, ":%d", p->line);
    fprintf(stderr, ": %s: ", p->what);
    if (!(p->error <= p->bound)) /* else it fails for what its note says */
        fprintf(stderr, "error %.2e is above %.1e%s", p->error, p->bound, p->note[0] ? ": " : "");
    fprintf(stderr, "%s\n", p->note);
    return false;
}

/* All of the folder specs/ can be checked at once: the prelude, which is no spec, is known by its bytes. */
static bool is_prelude(const char *path)
{
    const struct embedded *prelude = embedded_find("specs/prelude.lua");
    FILE *f = prelude ? fopen(path, "rb") : NULL;
    size_t n = 0;
    int c = EOF;
    if (!f)
        return false;
    while ((c = getc(f)) != EOF && n < prelude->size && c == (unsigned char)prelude->data[n])
        n++;
    fclose(f);
    return c == EOF && n == prelude->size;
}

static int check_one(const char *name, unsigned seed)
{
    struct proof proof[PROOF_MAX];
    struct progress progress;
    int code = CODE_OK;
    if (!tool_spec_readable(name))
        return CODE_USAGE;
    if (is_prelude(name)) {
        complain("%s: this is the prelude, no spec; its functions are checked in the specs that use them",
                 name);
        return CODE_OK;
    }
    struct ir *ir = tool_spec(name, &code);
    if (!ir)
        return code == CODE_USAGE ? CODE_FAILED : code;
    progress_start(&progress, "");
    progress_text(&progress, "checking %s", name);
    const int n = prove(ir, seed, proof);
    progress_stop(&progress);
    for (int i = 0; i < n; i++) {
        if (!report(ir, name, &proof[i]))
            code = CODE_FAILED;
    }
    if (ir->failed) {
        complain("%s: out of memory", name);
        code = CODE_ENVIRONMENT;
    }
    ir_free(ir);
    return code;
}

int cmd_check(const struct options *o)
{
    int code = CODE_OK;
    for (int i = 0; i < o->n_operands; i++) {
        const int one = check_one(o->operand[i], o->seed);
        code = one > code ? one : code;
    }
    return code;
}
