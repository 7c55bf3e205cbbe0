/*
 * inspect.c: what a spec takes and what becomes of it: its signatures as the public records of
 * lathe_inspect.h, the text of its kernels, its proofs. In: a spec. Out: records whose strings are the
 * spec's, texts that are the caller's.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gen/gen.h"
#include "lathe_inspect.h"
#include "runtime/jit/jit.h"

_Static_assert((int)LATHE_MAX_DIMS == (int)MAX_DIMS, "arguments have as many dims as signatures");

/* ---- arguments and sizes ----------------------------------------------------------------------- */

static const struct signature *signature_of(const lathe_spec *spec, lathe_pass pass)
{
    return spec && pass >= LATHE_FORWARD && pass <= LATHE_COMBINE ? &spec->sig[pass] : NULL;
}

static const char *size_name(const struct signature *sig, int sym)
{
    return sym == SYM_ONE ? "" : lathe__sym_text(sig, sym);
}

static lathe_dim dim_of(const struct signature *sig, struct sig_dim d)
{
    if (d.literal > 0 || d.sym == SYM_ONE)
        return (lathe_dim){"", 0, (d.literal > 0 ? d.literal : 1) + d.plus};
    return (lathe_dim){lathe__sym_text(sig, d.sym), lathe__times(d), d.plus};
}

static lathe_role role_of(const struct sig_arg *a)
{
    return lathe__is_host_value(a) ? LATHE_ROLE_SCALAR
           : lathe__is_result(a)   ? LATHE_ROLE_RESULT
                                   : LATHE_ROLE_TENSOR;
}

int lathe_spec_arg(const lathe_spec *spec, lathe_pass pass, int number, lathe_arg_info *out)
{
    const struct signature *sig = signature_of(spec, pass);
    if (!sig || !out || number < 0 || number >= sig->n_args)
        return 0;
    const struct sig_arg *a = &sig->arg[number];
    *out = (lathe_arg_info){.name = a->name,
                            .role = role_of(a),
                            .dtype = (lathe_dtype)a->dtype,
                            .shares_dtype = lathe__has_role_dtype(a),
                            .takes_halves = a->halves,
                            .optional = a->optional,
                            .leading_optional = a->leading_optional,
                            .is_input = a->role == ROLE_INPUT || a->role == ROLE_SCALAR,
                            .is_list = a->list,
                            .alias = a->alias ? sig->arg[a->alias - 1].name : "",
                            .default_value = a->default_value,
                            .ndim = a->ndim,
                            .kept_by = a->kept_by ? sig->arg[a->kept_by - 1].name : ""};
    for (int i = 0; i < a->ndim; i++)
        out->dim[i] = dim_of(sig, a->dim[i]);
    return 1;
}

int lathe_spec_size(const lathe_spec *spec, lathe_pass pass, int number, lathe_size_info *out)
{
    const struct signature *sig = signature_of(spec, pass);
    if (!sig || !out || number < 0 || number >= sig->n_sizes)
        return 0;
    const struct sig_size *s = &sig->size[number];
    *out = (lathe_size_info){.name = size_name(sig, s->sym),
                             .same_as = size_name(sig, s->same_as),
                             .is_compiled_in = s->built,
                             .least = s->least,
                             .most = s->most,
                             .step = s->step};
    return 1;
}

int lathe_spec_param(const lathe_spec *spec, int number, lathe_param_info *out)
{
    if (!spec || !out || number < 0 || number >= spec->ir->n_params)
        return 0;
    const struct ir_param *p = &spec->ir->param[number];
    *out = (lathe_param_info){p->name, p->value, p->usual, p->is_integer, p->line};
    return 1;
}

const char *lathe_spec_name(const lathe_spec *spec)
{
    return spec ? spec->ir->name : "";
}

const char *lathe_spec_kind(const lathe_spec *spec)
{
    return spec ? spec->sig[LATHE_FORWARD].kind : "";
}

const char *lathe_spec_absent(const lathe_spec *spec, lathe_pass pass, const char *name)
{
    const struct signature *sig = signature_of(spec, pass);
    const char *const why = sig && name ? lathe__why_absent(sig, name) : NULL;
    return why ? why : "";
}

int lathe_spec_counts(const lathe_spec *spec, int *line)
{
    const int found = spec ? kernel_counting_line(spec->ir) : -1;
    if (line)
        *line = found > 0 ? found : 0;
    return found >= 0;
}

/* ---- texts ------------------------------------------------------------------------------------- */

static lathe_status give_text(char **out, struct text_buf *text, lathe_error *err)
{
    if (text->failed) {
        text_free(text);
        return lathe__fail_memory(err);
    }
    *out = text->data;
    return LATHE_OK;
}

void lathe_text_free(char *text)
{
    free(text);
}

static lathe_status find_arch(const char *arch, struct device *out, lathe_error *err)
{
    struct text_buf known = {0};
    const bool found = device_find(arch ? arch : "", out, &known);
    if (!found)
        (void)lathe__fail(err, LATHE_ARG, "arch: expected one of%s; given '%s'", known.data ? known.data : "",
                          arch ? arch : "(NULL)");
    text_free(&known);
    return found ? LATHE_OK : LATHE_ARG;
}

/* The problem of a call that may have no data, as lathe_kernel_get binds it. */
static lathe_status bind_call(const lathe_spec *spec, lathe_pass pass, const char *arch,
                              const lathe_arg *args, int n, struct problem *problem, struct device *device,
                              lathe_error *err)
{
    const struct signature *sig = signature_of(spec, pass);
    if (!sig)
        return lathe__fail(err, LATHE_ARG, "%s",
                           spec ? "pass: expected LATHE_FORWARD, LATHE_BACKWARD or LATHE_COMBINE"
                                : "spec: expected an object, given NULL");
    TRY(find_arch(arch, device, err));
    return problem_from_args(sig, args, n, false, problem, err);
}

lathe_status lathe_source(char **out, const lathe_spec *spec, lathe_pass pass, const char *arch,
                          const lathe_arg *args, int n, lathe_error *err)
{
    struct problem problem;
    struct device device;
    struct text_buf text = {0};
    if (!out)
        return lathe__fail(err, LATHE_ARG, "out: expected the address of a char pointer, given NULL");
    *out = NULL;
    lathe__error_clear(err);
    TRY(bind_call(spec, pass, arch, args, n, &problem, &device, err));
    struct source *source = calloc(1, sizeof *source); /* large for a stack */
    if (!source)
        return lathe__fail_memory(err);
    lathe_status status =
        kernel_make_source(spec->ir, pass, &spec->sig[pass], &problem, &device, source, err);
    if (status == LATHE_OK) {
        emit_file(source, spec->ir, &spec->sig[pass], &device, &text);
        status = give_text(out, &text, err);
    }
    source_free(source);
    free(source);
    return status;
}

static lathe_status explain_kernel(struct facts *f, const struct kernel_request *r, lathe_error *err)
{
    struct plan plan;
    lathe_error why = {0};
    lathe_status status = plan_pick(r, &plan, &why);
    if (status == LATHE_UNSUPPORTED) {
        explain_unserved(f, why.text);
        return LATHE_OK;
    }
    struct source *source = status == LATHE_OK ? calloc(1, sizeof *source) : NULL; /* large for a stack */
    if (!source)
        return lathe__fail_memory(err);
    explain_plan(f, r, &plan);
    explain_refusals(f, r);
    status = emit(r, &plan, source, err);
    if (status == LATHE_OK)
        explain_kernels(f, r, &plan, source);
    source_free(source);
    free(source);
    return status;
}

lathe_status lathe_explain(char **out, const lathe_spec *spec, lathe_pass pass, const char *arch,
                           const lathe_arg *args, int n, int json, lathe_error *err)
{
    struct problem problem;
    struct device device;
    struct kernel_request request;
    struct facts facts;
    struct text_buf text = {0};
    if (!out)
        return lathe__fail(err, LATHE_ARG, "out: expected the address of a char pointer, given NULL");
    *out = NULL;
    lathe__error_clear(err);
    TRY(bind_call(spec, pass, arch, args, n, &problem, &device, err));
    const struct signature *sig = &spec->sig[pass];
    TRY(kernel_open(&request, spec->ir, pass, sig, &problem, &device, err));
    facts_begin(&facts, &text, json != 0);
    explain_problem(&facts, spec->ir, pass, sig, &problem);
    facts_string(&facts, "arch", device.arch);
    facts_line(&facts, "%s\n", device.arch);
    lathe_status status = explain_kernel(&facts, &request, err);
    kernel_close(&request);
    facts_end(&facts);
    if (status == LATHE_OK)
        return give_text(out, &text, err);
    text_free(&text);
    return status;
}

/* ---- proofs ------------------------------------------------------------------------------------ */

static void tell(const struct proof *p, lathe_proof_fn *fn, void *user)
{
    const bool refuted = !p->passed && !p->unseen;
    const lathe_proof out = {.name = p->what,
                             .applies = p->unseen || p->applies,
                             .passed = !refuted || !p->applies,
                             .cut_short = p->cut_short,
                             .remark = p->unseen   ? LATHE_REMARK_UNSEEN
                                       : p->warned ? LATHE_REMARK_WARNING
                                                   : LATHE_REMARK_NONE,
                             .error = p->error,
                             .bound = p->bound,
                             .line = p->line,
                             .refused = p->status != LATHE_OK,
                             .note = p->note};
    fn(user, &out);
}

lathe_status lathe_prove(const lathe_spec *spec, unsigned seed, lathe_proof_fn *fn, void *user,
                         lathe_error *err)
{
    bool memory = false;
    lathe__error_clear(err);
    if (!spec || !fn)
        return lathe__fail(err, LATHE_ARG, "%s: expected %s, given NULL", spec ? "fn" : "spec",
                           spec ? "a function" : "an object");
    struct proof *proof = calloc(PROOF_MAX + 1, sizeof *proof);
    if (!proof)
        return lathe__fail_memory(err);
    int n = prove(spec->ir, seed, proof);
    prove_ranges(spec->ir, NULL, &proof[n++]);
    for (int i = 0; i < n; i++)
        memory |= proof[i].status == LATHE_MEMORY;
    for (int i = 0; i < n && !memory; i++)
        tell(&proof[i], fn, user);
    free(proof);
    return memory ? lathe__fail_memory(err) : LATHE_OK;
}
