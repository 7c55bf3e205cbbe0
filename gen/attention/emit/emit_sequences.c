/*
 * emit_sequences.c: what attention/sequences.cuh asks of a kernel's parameters: where sequences lie, and a
 * function enter() that moves pointers to the first tokens of one. In: a lowered spec, its problem. Out:
 * members of the struct that is being written.
 */
#include "gen/arguments/problem.h"
#include "gen/attention/emit/emit.h"
#include "gen/base/text.h"

#include <stdio.h>
#include <string.h>

bool has_sequences(const struct emitter *e)
{
    const bool paged = e->problem->paged && !e->sig->backward; /* then a plan reckons with sequences */
    return is_packed(e) || paged || problem_has_named(e->sig, e->problem, "used_kv");
}

bool keys_have_pages(const struct emitter *e)
{
    return e->problem->paged && !e->gathers;
}

bool keys_are_gathered(const struct emitter *e)
{
    return e->gathers;
}

enum sym keys_of_call(const struct emitter *e)
{
    return keys_are_gathered(e) ? SYM_GATHERED : SYM_KV;
}

bool is_packed(const struct emitter *e)
{
    return problem_has_named(e->sig, e->problem, "cu_q");
}

/* Packed tiles may end in each sequence. */
void emit_times_tiles(struct product *grid, const struct emitter *e, enum sym heads, enum sym tokens,
                      int rows)
{
    if (!is_packed(e)) {
        product_times(grid, SYM_B, 1);
        product_times(grid, heads, 1);
        product_times(grid, tokens, rows);
        return;
    }
    product_times(grid, heads, 1);
    product_times_sum(grid, tokens, rows, SYM_SEQS);
}

int gradient_of_input(const struct emitter *e, int input)
{
    char name[NAME_MAX_BYTES + 2];
    snprintf(name, sizeof name, "d%s", e->w->input[input].name);
    return lathe__arg_find(e->sig, name, 0);
}

bool grad_wanted(const struct emitter *e, int input)
{
    const int arg = e->w->input[input].grad ? gradient_of_input(e, input) : -1;
    return problem_has(e->problem, arg);
}

/* Inputs with a place for each token begin with the sequence, too; those with one for each key that a
   sequence may have do not. */
static void enter_inputs(const struct emitter *e, struct text_buf *out)
{
    for (int i = 0; i < e->w->n_inputs; i++) {
        const struct input *in = &e->w->input[i];
        for (int d = 0; d < in->n_dims && !in->is_scalar && input_used(e, i); d++)
            if (lathe__dim_is(in->dim[d], SYM_Q) || (lathe__dim_is(in->dim[d], SYM_KV) && !e->problem->paged))
                text_add(out, "        x.in_%s += first_%s * x.s%d_%s;\n", in->name,
                         lathe__dim_is(in->dim[d], SYM_Q) ? "q" : "kv", d, in->name);
    }
}

/* What attention/key_rows.cuh asks of parameters. */
static void add_pages(struct params *p, const struct emitter *e)
{
    static const char *const stride[] = {"b", "step"};
    const int arg = lathe__arg_find(e->sig, "pages", 0);
    params_pointer(p, "const int", "pages", PARAM_ARG_DATA, arg);
    params_strides(p, "pages", stride, arg, 2, 0);
    params_sym(p, "page", SYM_PAGE);
    params_sym(p, "most_pages", SYM_MOST);
    params_sym(p, "n_pages", SYM_POOL);
}

static void add_key_starts(struct params *p, const struct emitter *e)
{
    const struct product one = product_of(1);
    params_pointer(p, "const int", "cu_kv", PARAM_WORK_DATA, e->key_starts - 1);
    params_product(p, "cu_kv_step", &one);
}

void emit_enter(struct params *p, const struct emitter *e)
{
    static const char *const list[] = {"cu_q", "cu_kv", "used_kv"};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (strcmp(list[i], "cu_kv") == 0 && e->key_starts > 0)
            add_key_starts(p, e);
        else
            params_list(p, e->sig, list[i]);
    if (keys_have_pages(e))
        add_pages(p, e);
    text_add(p->out,
             "    __device__ __forceinline__ void enter(long long first_q, long long first_kv)\n    {\n");
}

void emit_enter_rows(const struct emitter *e, const char *type, const char *name, bool keys)
{
    if (keys && keys_have_pages(e))
        return;
    text_add(e->out, "        %s = static_cast<%s *>(%s) + first_%s * %s_t;\n", name, type, name,
             keys ? "kv" : "q", name);
}

void emit_enter_floats(const struct emitter *e, const char *name)
{
    text_add(e->out, "        %s = %s == nullptr ? nullptr : %s + first_q * %s_t;\n", name, name, name, name);
}

void emit_enter_end(const struct emitter *e)
{
    enter_inputs(e, e->out);
    text_add(e->out, "    }\n");
}

void emit_call_sizes(struct params *p, const struct emitter *e)
{
    if (has_sequences(e))
        params_sequence_sizes(p, keys_of_call(e));
    else
        params_sizes(p);
}

/* Rows of q, k, v and do, and of the workspace's, of one sequence. */
void emit_enter_operands(const struct emitter *e, const char *const *name, int n)
{
    static const char *const type[] = {"const cfg::element_q", "const cfg::element_k", "const cfg::element_v",
                                       "const cfg::element_o"};
    for (int t = 0; t < n; t++)
        emit_enter_rows(e, type[t], name[t], t == TENSOR_K || t == TENSOR_V);
}

void emit_enter_numbered(const struct emitter *e, const char *name, int number, bool there)
{
    char member[NAME_MAX_BYTES];
    snprintf(member, sizeof member, "%s%d", name, number);
    if (there)
        emit_enter_floats(e, member);
}

/* Gradients of inputs with a place for each token, in struct grads. */
static void enter_gradients(const struct emitter *e, struct text_buf *out)
{
    for (int i = 0; i < e->w->n_inputs; i++) {
        const struct input *in = &e->w->input[i];
        for (int d = 0; d < in->n_dims && grad_wanted(e, i); d++)
            if (lathe__dim_is(in->dim[d], SYM_Q) || (lathe__dim_is(in->dim[d], SYM_KV) && !e->problem->paged))
                text_add(out, "        g.d_%s += first_%s * g.s%d_%s;\n", in->name,
                         in->dim[d].sym == SYM_Q ? "q" : "kv", d, in->name);
    }
}

void emit_enter_gradients(const struct emitter *e)
{
    enter_gradients(e, e->out);
}

static void say_whose(struct params *p, bool queries)
{
    const struct product flag = product_of(queries);
    params_product(p, "of_queries", &flag);
}

void emit_enter_rows_of(struct params *p, const struct emitter *e, bool queries)
{
    say_whose(p, queries);
    emit_enter(p, e);
    text_add(p->out, "        static_cast<void>(first_q + first_kv);\n");
    enter_inputs(e, p->out);
    text_add(p->out, "    }\n");
}

void emit_enter_dq(struct params *p, const struct emitter *e, bool queries)
{
    const struct product none = product_of(0);
    say_whose(p, queries);
    params_product(p, "first", &none); /* where the sequence's rows begin, which whoever enters it says */
    emit_enter(p, e);
    text_add(p->out, "        static_cast<void>(first_q + first_kv);\n"
                     "        len = of_queries != 0 ? z.len_q : z.len_kv;\n"
                     "        pos0 = of_queries != 0 ? z.q_start : 0;\n");
    enter_inputs(e, p->out);
    enter_gradients(e, p->out);
    text_add(p->out, "    }\n");
}

/* Of a gradient, as the call has it: what has no tokens has one for each sequence, and not for each batch;
   where a call has a part of the keys or heads it is of all. */
struct sig_dim gradient_dim(const struct emitter *e, int input, int d)
{
    return has_sequences(e) ? lathe__dim_here(e->problem, e->sig->arg[gradient_of_input(e, input)].dim[d])
                            : e->w->input[input].dim[d];
}
