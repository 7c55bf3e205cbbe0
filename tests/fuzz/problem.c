/*
 * problem.c: libFuzzer target: any text as a problem, for attention and for rowwise. A problem that is
 * taken has every size of its arguments bound and in range; one that is refused has a sentence.
 */
#include "gen/gen.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct ir *make_ir(enum kind kind)
{
    struct ir *ir = ir_new();
    if (!ir)
        abort();
    ir->kind = kind;
    ir->n_inputs = 2;
    ir->n_free = 1;
    memcpy(ir->free_name[0], "width", 6);
    ir->input[0] = (struct input){.name = "bias", .optional = true, .n_dims = 1, .dim = {{.sym = SYM_FREE}}};
    ir->input[1] = (struct input){.name = "gain", .dtype = LATHE_F32, .is_scalar = true};
    ir->n_finals = 1;
    memcpy(ir->final[0].name, "lse", 4);
    ir->row.root[1] = ir_const(ir, 0, TYPE_F32);
    return ir;
}

static void check_bound(const struct signature *sig, const struct problem *p)
{
    for (int i = 0; i < sig->n_args; i++) {
        const struct sig_arg *a = &sig->arg[i];
        for (int k = 0; k < a->ndim && arg_in(p->present, i); k++) {
            const int64_t value = p->dim[a->dim[k].sym];
            if (value < 0 || value > INT32_MAX)
                abort();
        }
        if (p->arg_dtype[i] == LATHE_NONE)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        struct signature sig;
        struct problem p;
        lathe_error err = {0};
        struct ir *ir = make_ir((enum kind)kind);
        signature_make(ir, LATHE_FORWARD, &sig);
        if (problem_parse(&sig, text, &p, &err) == LATHE_OK)
            check_bound(&sig, &p);
        else if (!err.text[0])
            abort();
        ir_free(ir);
    }
    free(text);
    return 0;
}
