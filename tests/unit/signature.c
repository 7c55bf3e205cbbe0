/*
 * signature.c: the arguments of a pass: names, roles, shapes as symbols, dtypes, gradients.
 */
#include "check.h"
#include "gen/gen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void signature_of(const char *text, lathe_pass pass, struct signature *out)
{
    struct diag diag = {0};
    struct ir *ir = spec_load("test.lua", text, strlen(text), &diag);
    if (!ir)
        CHECK_STR(diag.entry[0].text, "");
    signature_make(ir, pass, out);
    ir_free(ir);
}

static const struct sig_arg *find(const struct signature *s, const char *name)
{
    for (int i = 0; i < s->n_args; i++) {
        if (strcmp(s->arg[i].name, name) == 0)
            return &s->arg[i];
    }
    return NULL;
}

static void check_dims(const struct sig_arg *a, int n, const int *sym)
{
    CHECK_EQ(a->ndim, n);
    for (int i = 0; i < n; i++)
        CHECK_EQ(a->dim[i].sym, sym[i]);
}

static const char ATTENTION[] = "return attention { mask_mod = causal, inputs = {\n"
                                "    table = tensor('float', 'h', 7, 'width', { grad = true }),\n"
                                "    doc = tensor('i32', 'b', 'kv'),\n"
                                "    gain = scalar('f32', { default = 0.25, grad = true }) },\n"
                                "  score_mod = function(s, at, x)\n"
                                "    return s * x.gain + x.table(at.h, 0, 0) + x.doc(at.b, at.kv)\n"
                                "  end }\n";

TEST(attention_forward)
{
    struct signature s;
    signature_of(ATTENTION, LATHE_FORWARD, &s);
    CHECK_STR(s.kind, "attention");
    CHECK_EQ(s.n_args, 21);
    check_dims(find(&s, "q"), 4, (int[]){SYM_B, SYM_H, SYM_Q, SYM_D});
    check_dims(find(&s, "k"), 4, (int[]){SYM_B, SYM_H_KV, SYM_KV, SYM_D});
    check_dims(find(&s, "v"), 4, (int[]){SYM_B, SYM_H_KV, SYM_KV, SYM_D_V});
    check_dims(find(&s, "o"), 4, (int[]){SYM_B, SYM_H, SYM_Q, SYM_D_V});
    check_dims(find(&s, "lse"), 3, (int[]){SYM_B, SYM_H, SYM_Q});
    for (int i = 0; i < s.n_args; i++)
        CHECK_EQ(lathe__has_role_dtype(&s.arg[i]) && s.arg[i].unit_last,
                 strchr("qkvo", s.arg[i].name[0]) && !s.arg[i].name[1]);
    CHECK_EQ(find(&s, "o")->role, ROLE_OUT);
    CHECK(!find(&s, "o")->optional);
    CHECK_EQ(find(&s, "lse")->role, ROLE_OUT_OPTIONAL);
    CHECK_EQ(find(&s, "lse")->dtype, LATHE_F32);
    CHECK(find(&s, "lse")->optional);
    CHECK_EQ(find(&s, "q_start")->role, ROLE_Q_START);
    CHECK_EQ(find(&s, "q_start")->dtype, LATHE_I32);
    CHECK(find(&s, "q_start")->optional);
}

TEST(inputs_of_a_spec)
{
    struct signature s;
    signature_of(ATTENTION, LATHE_FORWARD, &s);
    const struct sig_arg *table = find(&s, "table");
    CHECK_EQ(table->role, ROLE_INPUT);
    CHECK_EQ(table->dtype, LATHE_NONE);
    CHECK_EQ(table->ndim, 3);
    CHECK_EQ(table->dim[0].sym, SYM_H);
    CHECK_EQ(table->dim[1].literal, 7);
    CHECK_EQ(table->dim[2].sym, SYM_FREE);
    CHECK_EQ(s.n_free, 1);
    CHECK_STR(s.free_name[0], "width");
    CHECK(table->grad);
    check_dims(find(&s, "doc"), 2, (int[]){SYM_B, SYM_KV});
    CHECK_EQ(find(&s, "doc")->dtype, LATHE_I32);
    const struct sig_arg *gain = find(&s, "gain");
    CHECK_EQ(gain->role, ROLE_SCALAR);
    CHECK_EQ(gain->ndim, 0);
    CHECK(gain->optional);
    CHECK_CLOSE(gain->default_value, 0.25, 0);
}

TEST(attention_backward)
{
    struct signature s;
    signature_of(ATTENTION, LATHE_BACKWARD, &s);
    CHECK_EQ(find(&s, "o")->role, ROLE_IN);
    CHECK(find(&s, "o")->optional);
    CHECK_EQ(find(&s, "lse")->role, ROLE_IN);
    check_dims(find(&s, "do"), 4, (int[]){SYM_B, SYM_H, SYM_Q, SYM_D_V});
    CHECK_EQ(find(&s, "do")->role, ROLE_IN);
    CHECK(!find(&s, "do")->optional);
    check_dims(find(&s, "dlse"), 3, (int[]){SYM_B, SYM_H, SYM_Q});
    CHECK(find(&s, "dlse")->optional);
    check_dims(find(&s, "dq"), 4, (int[]){SYM_B, SYM_H, SYM_Q, SYM_D});
    check_dims(find(&s, "dk"), 4, (int[]){SYM_B, SYM_H_KV, SYM_KV, SYM_D});
    check_dims(find(&s, "dv"), 4, (int[]){SYM_B, SYM_H_KV, SYM_KV, SYM_D_V});
    CHECK_EQ(find(&s, "dtable")->ndim, 3);
    CHECK_EQ(find(&s, "dtable")->dtype, LATHE_F32);
    CHECK_EQ(find(&s, "dgain")->ndim, 0);
    CHECK_EQ(find(&s, "dgain")->role, ROLE_OUT_OPTIONAL);
    CHECK(find(&s, "ddoc") == NULL);
    CHECK(find(&s, "q_start") != NULL);
}

/* Every argument of a kind that has a role: "q: q q2, k: ...". */
static void roles_text(const char *spec, lathe_pass pass, char *out, size_t size)
{
    static const char *const name[DTYPE_ROLES] = {"", "q", "k", "v", "o", "state"};
    struct signature s;
    size_t n = 0;
    signature_of(spec, pass, &s);
    out[0] = '\0';
    for (int role = DTYPE_Q; role < DTYPE_ROLES; role++)
        for (int i = 0, first = 1; i < s.n_args; i++)
            if (s.arg[i].dtype_role == role) {
                n += (size_t)snprintf(out + n, size - n, "%s%s%s %s", first && n > 0 ? ", " : "",
                                      first ? name[role] : "", first ? ":" : "", s.arg[i].name);
                first = 0;
            }
}

TEST(each_tensor_has_a_role_for_its_dtype)
{
    static const char PAIR[] = "return attention { qk2 = true }";
    static const char ROWS[] = "return rowwise { forward = function(x) return 2.0 * x end }";
    static const char LINEAR[] = "return linear_attention { normalise = true }";
    static const struct {
        const char *spec;
        lathe_pass pass;
        const char *roles;
    } row[] = {
        {PAIR, LATHE_FORWARD, "q: q q2 k2, k: k, v: v, o: o"},
        {PAIR, LATHE_BACKWARD, "q: q q2 k2 dq dq2 dk2, k: k dk, v: v dv, o: o do"},
        {"return attention {}", LATHE_COMBINE, "o: o"},
        {LINEAR, LATHE_FORWARD, "q: q, k: k, v: v, o: o, state: state norm state_out norm_out states norms"},
        {LINEAR, LATHE_BACKWARD,
         "q: q dq, k: k dk, v: v dv, o: o do, "
         "state: state norm dstate_out dnorm_out dstate dnorm"},
        {ROWS, LATHE_FORWARD, "q: x y"},
        {ROWS, LATHE_BACKWARD, "q: x dy dx"},
    };
    char roles[256];
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        roles_text(row[i].spec, row[i].pass, roles, sizeof roles);
        CHECK_STR(roles, row[i].roles);
    }
}

/* Fields of a Lua table come in another order in each run: what they say may not depend on it. */
TEST(a_default_makes_an_input_optional_in_every_run)
{
    for (int run = 0; run < 32; run++) {
        struct signature s;
        signature_of("return rowwise { inputs = { a = scalar('f32', { default = 2.0, optional = false }) },\n"
                     "  forward = function(x, at, p) return x * p.a end }",
                     LATHE_FORWARD, &s);
        CHECK(find(&s, "a")->optional);
        CHECK_CLOSE(find(&s, "a")->default_value, 2.0, 0);
    }
}

static const char ROWWISE[] = "return rowwise { inputs = { weight = tensor('float', 'n', { grad = true, "
                              "optional = true, default = 1.0 }) },\n"
                              "  forward = function(x, at, p)\n"
                              "    local r = rsqrt(rowsum(x * x) / at.n)\n"
                              "    return x * r * p.weight(at.i), { rstd = r }\n"
                              "  end }\n";

TEST(rowwise_passes)
{
    struct signature s;
    signature_of(ROWWISE, LATHE_FORWARD, &s);
    CHECK_STR(s.kind, "rowwise");
    CHECK_EQ(s.n_args, 4);
    check_dims(find(&s, "x"), 4, (int[]){SYM_ROWS0, SYM_ROWS1, SYM_ROWS, SYM_N});
    CHECK(find(&s, "x")->leading_optional && find(&s, "y")->leading_optional);
    check_dims(find(&s, "rstd"), 3, (int[]){SYM_ROWS0, SYM_ROWS1, SYM_ROWS});
    CHECK(find(&s, "rstd")->leading_optional);
    CHECK_EQ(find(&s, "rstd")->role, ROLE_OUT_OPTIONAL);
    CHECK(find(&s, "weight")->optional);
    CHECK_CLOSE(find(&s, "weight")->default_value, 1.0, 0);
    CHECK(find(&s, "q_start") == NULL);

    signature_of(ROWWISE, LATHE_BACKWARD, &s);
    CHECK(find(&s, "y") == NULL);
    CHECK_EQ(find(&s, "dy")->role, ROLE_IN);
    CHECK_EQ(find(&s, "dx")->role, ROLE_OUT_OPTIONAL);
    CHECK_EQ(find(&s, "drstd")->role, ROLE_IN);
    CHECK(find(&s, "drstd")->optional);
    check_dims(find(&s, "dweight"), 1, (int[]){SYM_N});
}

/* A spec of keys that are inputs alone has no argument k, and its number is -1. */
TEST(a_set_has_no_argument_that_there_is_not)
{
    CHECK(arg_in(UINT64_MAX, 0));
    CHECK(arg_in(UINT64_MAX, 63));
    CHECK(!arg_in(UINT64_MAX, -1));
    CHECK(!arg_in(arg_bit(3), 4));
}

/* Is a spec right with one more field? */
static bool is_right_with(const char *spec, const char *field)
{
    char text[512];
    struct diag *diag = calloc(1, sizeof *diag);
    CHECK(diag != NULL);
    snprintf(text, sizeof text, "%s%s }", spec, field);
    struct ir *ir = spec_load("test.lua", text, strlen(text), diag);
    const bool right = ir != NULL;
    ir_free(ir);
    free(diag);
    return right;
}

static bool takes_input(const char *spec, const char *name)
{
    char field[NAME_MAX_BYTES + 48];
    snprintf(field, sizeof field, "inputs = { %s = scalar('f32') }", name);
    return is_right_with(spec, field);
}

/* What some pass takes is found by its name: an input that had it would be taken for that. */
TEST(no_input_has_the_name_of_an_argument)
{
    static const char LIST[] =
        "return elementwise { over = { 'n' }, list = true, operands = { a = tensor('f32', 'n') },\n"
        "  results = { c = tensor('f32', 'n') }, forward = function(v) return { c = 2.0 * v.a } end, ";
    static const char *const specs[] = {
        "return attention { mask_mod = causal, ",
        "return attention { qk2 = true, ",
        "return linear_attention { decay = function(at) return -0.5 end, ",
        "return rowwise { forward = function(v, at, x) return v end, ",
        LIST,
    };
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        char without[512];
        int seen = 0;
        snprintf(without, sizeof without, "%s }", specs[i]);
        CHECK(takes_input(specs[i], "harmless"));
        for (int pass = LATHE_FORWARD; pass <= LATHE_COMBINE; pass++) {
            struct signature s;
            signature_of(without, (lathe_pass)pass, &s);
            for (int k = 0; k < s.n_args; k++, seen++)
                if (takes_input(specs[i], s.arg[k].name)) {
                    fprintf(stderr, "%s: an input may have the name %s\n", s.kind, s.arg[k].name);
                    CHECK(false);
                }
        }
        CHECK(seen > 2);
    }
}
