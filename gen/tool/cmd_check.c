/*
 * cmd_check.c: `lathe check`. In: specs, and what --problem, --input and --set say of their data. Out: one
 * line per proof on standard output, with its largest error; what is wrong, with the spec's line and what it
 * was tried on, on standard error. Exit code 1 where a spec is wrong or a proof fails, 2 where a spec cannot
 * be read or the options give no data for it, 3 where memory ran out. Every spec is looked at, whatever the
 * one before it did.
 */
#include "gen/prove/index_ranges.h"
#include "gen/prove/kind_proofs.h"
#include "gen/tool/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Time is no mistake of a spec: what --strict fails on must be out of reach on a slow machine, too. */
enum { STRICT_SECONDS = 60 };

/* A spec is traced after the prelude: its own file is the last one. */
static const char *own_file(const struct ir *ir, const char *name)
{
    return ir->n_files > 0 ? ir->file[ir->n_files - 1] : name;
}

/* A proof may fail without an error: what it compared tells nothing, or it could not be run. */
static void print_verdict(const struct ir *ir, const char *name, const struct proof *p)
{
    const bool remark = p->passed && p->note[0];
    printf("%-16s %-24s %-6s ", ir->name, p->what,
           !p->passed     ? "FAILED"
           : p->cut_short ? "part"
           : p->warned    ? "warn"
                          : "ok");
    if (p->passed && p->bound == 0 && p->error == 0) { /* nothing is measured */
        printf("%s", p->note);
        if (p->warned && p->line > 0)
            printf(" (%s:%d)", own_file(ir, name), p->line);
        puts("");
        return;
    }
    if (isinf(p->error) && p->status != LATHE_OK)
        printf("not run to its end");
    else if (!p->passed && p->error <= p->bound)
        printf("tells nothing");
    else
        printf("error %.2e (bound %.1e)", number_shown(p->error), p->bound);
    printf("%s%s", remark ? ": " : "", remark ? p->note : "");
    if (p->warned && p->line > 0)
        printf(" (%s:%d)", own_file(ir, name), p->line);
    puts("");
}

/* A remark; with --strict a mistake. */
static bool report_unseen(const struct ir *ir, const char *name, const struct proof *p, bool strict)
{
    if (p->line > 0)
        printf("%-16s %-24s line %d: %s\n", ir->name, p->what, p->line, p->note);
    else
        printf("%-16s %-24s %s\n", ir->name, p->what, p->note);
    fflush(stdout);
    if (strict && p->line > 0)
        fprintf(stderr, "%s:%d: %s: %s\n", own_file(ir, name), p->line, p->what, p->note);
    return !strict;
}

static bool report(const struct ir *ir, const char *name, const struct proof *p, bool strict)
{
    if (p->unseen)
        return report_unseen(ir, name, p, strict);
    if (!p->applies) {
        printf("%-16s %-24s nothing to prove%s%s\n", ir->name, p->what, p->note[0] ? ": " : "", p->note);
        return true;
    }
    print_verdict(ir, name, p);
    fflush(stdout);
    if (p->passed && strict && p->cut_short)
        fprintf(stderr, "%s: %s: time ran out before all of it was looked at; --seconds gives it more\n",
                own_file(ir, name), p->what);
    if (p->passed)
        return !(strict && p->cut_short);
    fprintf(stderr, "%s", own_file(ir, name));
    if (p->line > 0) /* else the formula is the prelude's */
        fprintf(stderr, ":%d", p->line);
    fprintf(stderr, ": %s: ", p->what);
    if (!(p->error <= p->bound) && p->status == LATHE_OK) /* else it fails for what its note says */
        fprintf(stderr, "error %.2e is above %.1e%s", number_shown(p->error), p->bound,
                p->note[0] ? ": " : "");
    fprintf(stderr, "%s\n", p->note);
    if (p->tried[0])
        fprintf(stderr, "  tried on %s\n", p->tried);
    return false;
}

/* By a formula; as the seed that a result is rounded by; as how many entries of a line another one sorts. */
static bool is_read(const struct ir *ir, int input)
{
    bool read = false;
    for (int i = 0; i < ir->n_nodes; i++)
        read |= (ir->node[i].op == OP_LOAD || ir->node[i].op == OP_SCALAR) && ir->node[i].index == input;
    for (int i = 0; i < ir->maps.n_tensors; i++)
        read |= ir->maps.tensor[i].use == USE_STORE && ir->maps.tensor[i].dither == input;
    for (int i = 0; i < ir->n_inputs; i++)
        read |= strcmp(ir->input[i].range.sorted_by, ir->input[input].name) == 0;
    return read;
}

/* A call must bring it, though nothing depends on it: a formula that was forgotten, or a name too many. */
static void warn_unread(const struct ir *ir, const char *name)
{
    for (int i = 0; i < ir->n_inputs; i++)
        if (!is_read(ir, i))
            tool_complain("warning: %s:%d: input '%s' is declared, and no function reads it",
                          own_file(ir, name), ir->input[i].line, ir->input[i].name);
}

/* All of the folder specs/ can be checked at once: the prelude, which is no spec, is known by its bytes. */
static bool is_prelude(const char *path)
{
    const struct embedded *prelude = embedded_find("specs/prelude.lua");
    struct stat status;
    /* opening a pipe would wait for its writer */
    const bool regular = stat(path, &status) == 0 && S_ISREG(status.st_mode);
    FILE *f = prelude && regular ? fopen(path, "rb") : NULL;
    size_t n = 0;
    int c = EOF;
    if (!f)
        return false;
    while ((c = getc(f)) != EOF && n < prelude->size && c == (unsigned char)prelude->data[n])
        n++;
    fclose(f);
    return c == EOF && n == prelude->size;
}

/* ---- data -------------------------------------------------------------------------------------- */

static bool is_input(const struct ir *ir, const char *name)
{
    for (int i = 0; i < ir->n_inputs; i++)
        if (strcmp(ir->input[i].name, name) == 0)
            return true;
    return false;
}

/* Sizes that are not given are small. */
static double elements_of(const struct ir *ir, const struct sig_arg *a, const struct prove_given *given)
{
    double n = 1;
    for (int d = 0; d < a->ndim; d++) {
        const int64_t size = a->dim[d].literal > 0 ? a->dim[d].literal : given->dim[a->dim[d].sym];
        n *= size > 1 ? (double)size : 1;
    }
    return a->optional || is_input(ir, a->name) ? 0 : n; /* of inputs the proofs say it, with the line */
}

static bool complain_elements(const struct run *run, const struct prove_given *given)
{
    static const double MOST = 0x1p26;
    double n = 0;
    for (int i = 0; i < run->sig.n_args; i++)
        n += elements_of(run->ir, &run->sig.arg[i], given);
    if (n > MOST)
        tool_complain("problem: expected tensors of at most %.0f elements in all, since proofs evaluate each "
                      "some hundred times, "
                      "given %.0f; a shorter problem, or --input with fewer tokens, has the same formulas",
                      MOST, n);
    return n > MOST;
}

static int complain_zero(const struct run *run, struct prove_given *given)
{
    double pairs;
    double most;
    for (int i = 0; i < run->sig.n_sizes; i++) {
        const int sym = run->sig.size[i].sym;
        if (given->dim[sym] != 0)
            continue;
        tool_complain("problem: expected %s to be at least 1, of which something can be proved, given 0",
                      sym_name(&run->sig, sym));
        return CODE_USAGE;
    }
    const bool fits = prove_given_fits(given, &pairs, &most);
    if (!fits && prove_has_positions(run->ir)) { /* which data have no part in */
        given->positions_alone = true;
        tool_complain(
            "problem: of so many pairs of queries and keys only what is decided by positions is proved, "
            "and ranges of integers; proofs on data take at most %.0f pairs, and kv = %d",
            most, PROVE_KEYS_MAX);
        return CODE_OK;
    }
    if (complain_elements(run, given))
        return CODE_USAGE;
    if (fits)
        return CODE_OK;
    tool_complain(
        "problem: expected at most %.0f pairs of queries and keys over all heads, and kv at most %d, since "
        "proofs evaluate each some hundred times, given %.0f",
        most, PROVE_KEYS_MAX, pairs);
    return CODE_USAGE;
}

/* Proofs have a state for each sequence and no pool of them, so that states decide how many sequences there
   are where nothing else does. */
static int complain_pool(struct prove_given *given)
{
    const int64_t slots = given->dim[SYM_SLOTS];
    const int64_t seqs = given->dim[SYM_SEQS] >= 0 ? given->dim[SYM_SEQS] : given->dim[SYM_B];
    if (slots >= 0 && seqs < 0)
        given->dim[SYM_B] = slots;
    if (slots < 0 || seqs < 0 || slots == seqs)
        return CODE_OK;
    tool_complain(
        "problem: expected slots to be %lld, since proofs have a state for each sequence and no pool, "
        "given %lld",
        (long long)seqs, (long long)slots);
    return CODE_USAGE;
}

static bool is_list(const struct sig_arg *a)
{
    return a->rare && a->dtype == LATHE_I32 && a->dim[0].sym == SYM_SEQS;
}

/* Where packed sequences begin: tokens are as many as it says, where nothing else does. */
static int take_places(const struct run_tensor *t, const char *name, struct prove_given *given)
{
    const int32_t *place = t->host;
    for (int64_t i = 0; i < t->count; i++) {
        if (place[i] >= (i > 0 ? place[i - 1] : 0) && (i > 0 || place[i] == 0))
            continue;
        tool_complain("--input %s: expected places from 0 that do not fall, given %d at [%lld]", name,
                      place[i], (long long)i);
        return CODE_USAGE;
    }
    if (given->dim[SYM_B] > 1) {
        tool_complain("--input %s: expected b=1, since packed sequences lie one behind the other in one "
                      "batch, given b=%lld",
                      name, (long long)given->dim[SYM_B]);
        return CODE_USAGE;
    }
    if (given->dim[SYM_T] < 0)
        given->dim[SYM_T] = place[t->count - 1];
    if (given->dim[SYM_T] == place[t->count - 1])
        return CODE_OK;
    tool_complain("--input %s: expected it to end at t=%lld, given %d", name, (long long)given->dim[SYM_T],
                  place[t->count - 1]);
    return CODE_USAGE;
}

/* Keys in use, pages and places in a pool have no part in proofs, and packed sequences where each is a call
   of its own. */
static int take_lists(const struct run *run, struct prove_given *given)
{
    const bool unpacked = proofs_of(run->ir)->unpacked;
    int code = CODE_OK;
    for (int i = 0; i < run->n && code == CODE_OK; i++) {
        const struct sig_arg *a = &run->sig.arg[run->tensor[i].sig];
        if (is_list(a) && a->dim[0].plus > 0 && !unpacked) {
            code = take_places(&run->tensor[i], a->name, given);
        } else if (is_list(a)) {
            tool_complain("--input %s: proofs go without it; `lathe run --verify` takes it", a->name);
            code = CODE_USAGE;
        }
    }
    return code;
}

/* What the options say, as `lathe run` reads them. */
static int take_data(struct run *run, struct prove_given *given)
{
    prove_given_init(given);
    given->seconds = run->o->seconds ? run->o->seconds : run->o->strict ? STRICT_SECONDS : 0;
    int code = run_prepare_given(run);
    if (code != CODE_OK)
        return code;
    memcpy(given->dim, run->problem.dim, sizeof given->dim);
    for (int i = 0; i < run->n; i++) {
        given->arg[given->n] = run->tensor[i].arg;
        given->arg[given->n].shape = run->tensor[i].shape;
        given->arg[given->n++].name = run->sig.arg[run->tensor[i].sig].name;
    }
    for (int i = 0; i < run->sig.n_args; i++)
        if (run->sig.arg[i].optional && run->sig.arg[i].presence_built && !run->sig.arg[i].rare &&
            !arg_in(run->problem.present, i))
            snprintf(given->absent[given->n_absent++], NAME_MAX_BYTES, "%s", run->sig.arg[i].name);
    code = take_lists(run, given);
    if (code == CODE_OK)
        code = complain_pool(given);
    return code == CODE_OK ? complain_zero(run, given) : code;
}

/* ---- proofs ------------------------------------------------------------------------------------ */

static int prove_one(struct ir *ir, const char *name, const struct options *o,
                     const struct prove_given *given)
{
    struct proof proof[PROOF_MAX + 1] = {{0}};
    struct progress progress;
    int code = CODE_OK;
    bool memory = ir->failed;
    progress_start(&progress, "");
    progress_text(&progress, "checking %s", name);
    int n = prove_with(ir, o->seed, given, proof);
    prove_ranges(ir, given, &proof[n++]);
    progress_stop(&progress);
    warn_unread(ir, name);
    for (int i = 0; i < n; i++) {
        memory |= proof[i].status == LATHE_MEMORY;
        if (!report(ir, name, &proof[i], o->strict))
            code = CODE_FAILED;
    }
    if (!memory)
        return code;
    tool_complain("%s: out of memory: it is neither proved nor refuted", name);
    return CODE_ENVIRONMENT;
}

static int check_one(const char *name, const struct options *o)
{
    int code = CODE_OK;
    if (!tool_spec_readable(name))
        return CODE_USAGE;
    if (is_prelude(name)) {
        tool_complain(
            "%s: this is the prelude, no spec; its functions are checked in the specs that use them", name);
        return CODE_OK;
    }
    struct run *run = calloc(1, sizeof *run); /* large for a stack */
    struct prove_given *given = calloc(1, sizeof *given);
    if (!run || !given) {
        free(run);
        free(given);
        tool_complain("%s: out of memory: it is neither proved nor refuted", name);
        return CODE_ENVIRONMENT;
    }
    run->o = o;
    run->ir = tool_spec(name, o, &code);
    if (!run->ir)
        code = code == CODE_USAGE ? CODE_FAILED : code;
    else
        code = take_data(run, given);
    if (run->ir && code == CODE_OK)
        code = prove_one(run->ir, name, o, given);
    run_free(run);
    ir_free(run->ir);
    free(run);
    free(given);
    return code;
}

int cmd_check(const struct options *o)
{
    int code = CODE_OK;
    for (int i = 0; i < o->n_operands; i++) {
        const int one = check_one(o->operand[i], o);
        code = one > code ? one : code;
    }
    return code == CODE_OK ? tool_params_known(o) : code;
}
