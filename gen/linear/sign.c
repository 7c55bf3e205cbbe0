/*
 * sign.c: which arguments linear attention takes: q, k, v, o, states, where packed sequences begin, which
 * state each has, and the spec's inputs; backward also do, gradients, and those of states. Of what is
 * optional each kernel has what is there: a state that nobody gives or takes costs nothing.
 */
#include "gen/arguments/sign.h"
#include "gen/ir/kind.h"
#include "gen/linear/columns.h"
#include "gen/linear/linear.h"
#include "runtime/recipe/bind.h"

static const enum sym KEY[] = {SYM_B, SYM_H_K, SYM_T, SYM_D};
static const enum sym OUTPUT[] = {SYM_B, SYM_H, SYM_T, SYM_D_V};
static const enum sym STATE[] = {SYM_SLOTS, SYM_H, SYM_D, SYM_D_V};

/* A row for each update of the state by a token. */
static struct sig_arg *by_update(struct sig_arg *a, const struct ir *ir)
{
    if (a && ir_updates(ir) > 1)
        a->dim[2].times = (uint8_t)ir_updates(ir);
    return a;
}

/* A head for each query that reads a head of the state. */
static struct sig_arg *by_query(struct sig_arg *a, const struct ir *ir)
{
    if (a && ir_query_heads(ir) > 1)
        a->dim[1].times = (uint8_t)ir_query_heads(ir);
    return a;
}

/* Its rows are copied where they are not as kernels read them. */
static struct sig_arg *add_rows(struct signature *s, enum dtype_role dtype, const char *name,
                                const enum sym *syms)
{
    struct sig_arg *a = sign_main(s, ROLE_IN, dtype, name, syms, 4);
    if (a)
        a->any_last = true;
    return a;
}

static void add_state_of(struct signature *s, enum arg_role role, const char *name, const enum sym *syms,
                         int n)
{
    struct sig_arg *a = sign_rare(s, role, name, LATHE_F32);
    if (!a)
        return;
    a->dtype_role = DTYPE_STATE;
    a->halves = true;
    sign_dims(a, syms, n);
}

static void add_state(struct signature *s, enum arg_role role, const char *name, int n)
{
    add_state_of(s, role, name, STATE, n);
}

/* S, or its gradient; with `normalise` the sum of keys beside it. */
static void add_states(struct signature *s, const struct ir *ir, enum arg_role role, const char *state,
                       const char *norm)
{
    add_state(s, role, state, 4);
    if (ir->linear.normalise)
        add_state(s, role, norm, 3);
}

/* Which state of a pool each sequence has. */
static void add_read_slots(struct signature *s)
{
    static const enum sym index[] = {SYM_SEQS};
    struct sig_arg *a = sign_rare(s, ROLE_IN, "state_index", LATHE_I32);
    if (a)
        sign_dims(a, index, 1);
}

static void add_sequences(struct signature *s, bool backward)
{
    struct sig_arg *cu = sign_rare(s, ROLE_IN, "cu", LATHE_I32);
    if (cu) {
        cu->ndim = 1;
        cu->dim[0] = (struct sig_dim){.sym = SYM_SEQS, .plus = 1};
    }
    if (!backward)
        add_read_slots(s);
}

static uint8_t number_of(const struct signature *s, const char *name)
{
    return (uint8_t)(1 + lathe__arg_find(s, name, 0));
}

/* Where it is not there, states are written to the slots that they are read from. */
static void add_written_slots(struct signature *s)
{
    static const enum sym index[] = {SYM_SEQS};
    struct sig_arg *a = sign_rare(s, ROLE_IN, "state_out_index", LATHE_I32);
    if (!a)
        return;
    sign_dims(a, index, 1);
    a->beside = number_of(s, "state_index");
}

/* States behind tokens, and which place of them each token's has: none of the two or three is there alone.
   Where every token reads the sum over all there are no such states; where a token is several steps of the
   recurrence kernels would count those. */
static void add_kept(struct signature *s, const struct ir *ir)
{
    static const enum sym kept[] = {SYM_KEPT, SYM_H, SYM_D, SYM_D_V};
    static const enum sym tokens[] = {SYM_B, SYM_T};
    const bool norms = ir->linear.normalise;
    add_state_of(s, ROLE_OUT_OPTIONAL, "states", kept, 4);
    if (norms)
        add_state_of(s, ROLE_OUT_OPTIONAL, "norms", kept, 3);
    struct sig_arg *a = sign_rare(s, ROLE_IN, "states_index", LATHE_I32);
    if (!a)
        return;
    sign_dims(a, tokens, 2);
    a->beside = number_of(s, "states");
    s->arg[number_of(s, "states") - 1].beside = number_of(s, norms ? "norms" : "states_index");
    s->arg[number_of(s, "states") - 1].over = number_of(s, "state");
    if (norms)
        s->arg[number_of(s, "norms") - 1].beside = number_of(s, "states_index");
}

/* Each batch is a sequence and each sequence has a state, but where `cu` and `state_index` say otherwise. */
static void add_sizes(struct signature *s, int steps)
{
    const uint8_t cu = number_of(s, "cu");
    const struct sig_size sizes[] = {
        {.sym = SYM_B, .usual = 1, .packed_by = cu},
        {.sym = SYM_H,
         .same_as = SYM_H_K,
         .usual = 8,
         .multiple_of = SYM_H_K,
         .positive = true,
         .counted = true},
        {.sym = SYM_H_K, .same_as = SYM_H, .positive = true},
        {.sym = SYM_T, .usual = 1024, .below = SIZE_POSITIONS / steps},
        SIGN_SEQUENCES(cu),
        {.sym = SYM_SLOTS,
         .same_as = SYM_SEQS,
         .tied = true,
         .by = number_of(s, "state_index"),
         .implied = true},
        SIGN_HEAD_DIMS(ATTENTION_MOST_DIM, ATTENTION_MOST_DV, ATTENTION_DIM_STEP),
    };
    const uint8_t states = number_of(s, "states");
    const struct sig_size kept = {.sym = SYM_KEPT, .beside = states};
    static const struct sig_size free_size = {.named = true};
    sign_sizes(s, sizes, sizeof sizes / sizeof sizes[0]);
    if (states)
        sign_sizes(s, &kept, 1);
    sign_free_sizes(s, &free_size);
}

/* A block reads its columns of a state before it writes them. Sums of keys and gradients of states have no
   such place: other blocks, and later kernels, read what they lie over. */
static void set_in_place(struct signature *s)
{
    const int result = lathe__arg_find(s, "state_out", 0);
    if (result >= 0 && lathe__is_result(&s->arg[result]))
        s->arg[result].over = number_of(s, "state");
}

/* A state that is divided by a sum of keys goes on with that sum. */
static void set_beside(struct signature *s)
{
    static const char *const pair[][2] = {{"state", "norm"}, {"state_out", "norm_out"}};
    for (size_t i = 0; i < sizeof pair / sizeof pair[0]; i++) {
        const int state = lathe__arg_find(s, pair[i][0], 0);
        const int norm = lathe__arg_find(s, pair[i][1], 0);
        if (state < 0 || norm < 0)
            continue;
        s->arg[state].beside = (uint8_t)(1 + norm);
        s->arg[norm].beside = (uint8_t)(1 + state);
    }
}

/* Which results may have elements that nobody writes: o of tokens behind the last sequence, states of a pool
   that no sequence has, places that no token's state goes to. */
static void set_kept(struct signature *s)
{
    static const char *const pair[][2] = {{"o", "cu"},
                                          {"state_out", "state_index"},
                                          {"norm_out", "state_index"},
                                          {"dstate", "state_index"},
                                          {"dnorm", "state_index"},
                                          {"states", "states_index"},
                                          {"norms", "states_index"}};
    for (size_t i = 0; i < sizeof pair / sizeof pair[0]; i++) {
        const int result = lathe__arg_find(s, pair[i][0], 0);
        if (result >= 0 && lathe__is_result(&s->arg[result]))
            s->arg[result].kept_by = number_of(s, pair[i][1]);
    }
}

/* Names that other specs take, or the other pass. */
static const struct sig_absent *absent_names(const struct ir *ir, bool backward)
{
#define KEPT(why)                                                                                            \
    {"states", why}, {"norms", why}, {"states_index", why},                                                  \
    {                                                                                                        \
        "kept", why                                                                                          \
    }
    static const struct sig_absent of_backward[] = {
        KEPT("states behind tokens have no backward pass; a backward pass takes state and dstate_out"),
        {NULL, NULL}};
    static const struct sig_absent of_all_tokens[] = {
        KEPT("with causal = false every token reads the sum over all, so there are no states behind tokens; "
             "state_out is that sum"),
        {NULL, NULL}};
    static const struct sig_absent of_updates[] = {
        KEPT("a token makes several updates, and states are kept behind tokens of one update alone; "
             "state_out is the state behind the last token"),
        {NULL, NULL}};
    static const struct sig_absent of_query_heads[] = {
        KEPT(
            "several heads of q read each head of the state, and states are kept behind tokens of one alone; "
            "state_out is the state behind the last token"),
        {NULL, NULL}};
    static const struct sig_absent of_others[] = {
        {"norms", "a sum of keys is kept beside states with normalise = true alone"}, {NULL, NULL}};
    return backward                 ? of_backward
           : ir->linear.all_tokens  ? of_all_tokens
           : ir_updates(ir) > 1     ? of_updates
           : ir_query_heads(ir) > 1 ? of_query_heads
           : !ir->linear.normalise  ? of_others
                                    : NULL;
}

void sign_linear(struct signature *s, const struct ir *ir, bool backward)
{
    by_query(add_rows(s, DTYPE_Q, "q", KEY), ir);
    if (linear_reads_key(ir))
        by_update(add_rows(s, DTYPE_K, "k", KEY), ir);
    by_update(add_rows(s, DTYPE_V, "v", OUTPUT), ir);
    struct sig_arg *o = !backward || linear_wants_output(ir)
                            ? sign_main(s, backward ? ROLE_IN : ROLE_OUT, DTYPE_O, "o", OUTPUT, 4)
                            : NULL;
    by_query(o, ir);
    if (o)
        o->optional = backward; /* of the forward pass; recomputed where it is not given */
    add_states(s, ir, ROLE_IN, "state", "norm");
    if (!backward)
        add_states(s, ir, ROLE_OUT_OPTIONAL, "state_out", "norm_out");
    add_sequences(s, backward);
    sign_inputs(s, ir);
    s->builds_alignment = true;
    if (backward) {
        by_query(add_rows(s, DTYPE_O, "do", OUTPUT), ir);
        add_states(s, ir, ROLE_IN, "dstate_out", "dnorm_out");
        by_query(sign_main(s, ROLE_OUT_OPTIONAL, DTYPE_Q, "dq", KEY, 4), ir);
        if (linear_reads_key(ir))
            by_update(sign_main(s, ROLE_OUT_OPTIONAL, DTYPE_K, "dk", KEY, 4), ir);
        by_update(sign_main(s, ROLE_OUT_OPTIONAL, DTYPE_V, "dv", OUTPUT, 4), ir);
        sign_input_gradients(s, ir);
        add_states(s, ir, ROLE_OUT_OPTIONAL, "dstate", "dnorm");
    }
    if (backward)
        add_read_slots(s);
    add_written_slots(s);
    if (!backward && !ir->linear.all_tokens && ir_steps(ir) == 1)
        add_kept(s, ir);
    set_kept(s);
    s->absent = absent_names(ir, backward);
    s->builds_folded = true;
    s->sharing = SHARING_NONE;
    add_sizes(s, ir_steps(ir));
    set_in_place(s);
    set_beside(s);
    sign_presence_built(s);
}
