/*
 * row_pass.c: the backward pass of a row-wise spec as a function of rows: what is read, summed and kept, what
 * a given statistic saves, and what is refused.
 */
#include "gen/gen.h"
#include "gen/rowwise/pass.h"
#include "check.h"

#include <string.h>

struct made {
    struct ir *ir;
    struct signature sig;
    struct problem problem;
    struct row_pass pass;
    char why[ROW_WHY_BYTES];
    bool ok;
};

static void make_pass(struct made *m, const char *text, lathe_pass pass, const char *problem)
{
    struct diag diag = {0};
    lathe_error err = {.status = LATHE_OK};
    const bool shipped = strchr(text, '{') == NULL;
    memset(m, 0, sizeof *m);
    m->ir = shipped ? spec_load(text, NULL, 0, &diag) : spec_load("test.lua", text, strlen(text), &diag);
    CHECK_STR(diag.n > 0 ? diag.entry[0].text : "", "");
    signature_make(m->ir, pass, &m->sig);
    CHECK_EQ(problem_parse(&m->sig, problem, &m->problem, &err), LATHE_OK);
    m->ok = row_pass_make(m->ir, pass, &m->sig, &m->problem, &m->pass, m->why) == LATHE_OK;
}

static void make(struct made *m, const char *text, const char *problem)
{
    make_pass(m, text, LATHE_BACKWARD, problem);
}

static void unmake(struct made *m)
{
    row_pass_free(&m->pass);
    ir_free(m->ir);
}

/* Passes over the row that reduce. */
static int depth(const struct made *m)
{
    int deepest = 0;
    for (int i = 0; i < m->pass.ir->row.n_roots; i++) {
        const int phase = m->pass.ir->node[m->pass.ir->row.root[i]].phase;
        deepest = phase > deepest ? phase : deepest;
    }
    return deepest;
}

/* Reductions that the formulas need. */
static int reductions(const struct made *m)
{
    bool used[IR_MAX_NODES] = {false};
    int n = 0;
    ir_mark(m->pass.ir, m->pass.ir->row.root, m->pass.ir->row.n_roots, used);
    for (int i = 0; i < m->pass.ir->n_nodes; i++)
        n += used[i] && ir_op_is_reduction(m->pass.ir->node[i].op);
    return n;
}

TEST(norms_need_one_pass_where_statistics_are_given)
{
    struct made m;
    make(&m, "layer_norm", "dtype=bf16,rows=4,n=64");
    CHECK(m.ok);
    CHECK_EQ(depth(&m), 1);
    CHECK_EQ(reductions(&m), 2); /* distances from the given mean have the sum 0 */
    CHECK_EQ(m.pass.n_in, 2);
    CHECK_EQ(m.pass.n_given, 2);
    CHECK_EQ(m.pass.n_sites, 2);
    CHECK_EQ(m.pass.n_columns, 2);
    unmake(&m);
    make(&m, "layer_norm", "dtype=bf16,rows=4,n=64,mean=none,rstd=none");
    CHECK(m.ok);
    CHECK_EQ(depth(&m), 2);
    CHECK_EQ(m.pass.n_given, 0);
    unmake(&m);
}

TEST(variances_are_made_in_the_pass_of_their_mean)
{
    static const struct {
        const char *spec;
        bool taken;
    } CASE[] = {{"layer_norm", true},
                {"layer_norm_residual", true},
                {"rms_norm", false},
                {"return rowwise { forward = function(x, at) local mean = rowsum(x) / (at.n - 1)\n"
                 "return (x - mean) * rsqrt(rowsum((x - mean) * (x - mean))) end }\n",
                 false}, /* about what is no mean */
                {"return rowwise { forward = function(x, at) local mean = rowsum(x) / at.n\n"
                 "return x * rsqrt(rowsum((x - mean) * (x - mean))) end }\n",
                 false}, /* nothing else asks for the mean */
                {"return rowwise { forward = function(x, at) local mean = rowsum(x * x) / at.n\n"
                 "return x * rsqrt(rowsum((x - mean) * (x - mean))) + mean end }\n",
                 false}}; /* of something else */
    for (int i = 0; i < (int)(sizeof CASE / sizeof *CASE); i++) {
        struct made m;
        make_pass(&m, CASE[i].spec, LATHE_FORWARD, "dtype=bf16,rows=4,n=1024");
        CHECK(m.ok);
        const int before = reductions(&m);
        CHECK_EQ(variance_passes(m.pass.ir), CASE[i].taken ? 1 : -1);
        CHECK_EQ(variance_take(m.pass.ir), CASE[i].taken);
        CHECK_EQ(reductions(&m), before);
        CHECK_EQ(depth(&m), CASE[i].taken || before == 1 ? 1 : 2);
        unmake(&m);
    }
}

TEST(sums_of_other_distances_stay)
{
    struct made m;
    make(&m,
         "return rowwise { forward = function(x, at) local mean = rowsum(x) / at.n\n"
         "local far = rowsum(2.0 * x) / at.n\n"
         "return (x - far) * rsqrt(rowsum((x - far) * (x - far))) + mean, { mean = mean, far = far } end }\n",
         "dtype=bf16,rows=4,n=64");
    CHECK(m.ok);
    CHECK_EQ(reductions(&m), 4);
    unmake(&m);
}

/* The scans of a derived formula are made of seeds, which have no line: they have that of the primal scan. */
TEST(refusals_of_derived_scans_name_the_line)
{
    struct made m;
    make(&m,
         "return rowwise { forward = function(x)\n"
         "local a = cumsum(x, 0.0)\n"
         "local b = revcumsum(a * x, 0.0)\n"
         "local c = cumsum(b * x, 0.0)\n"
         "return cumsum(revcumsum(c * x, 0.0) * x, 0.0) end }\n",
         "dtype=bf16,rows=4,n=64");
    CHECK(!m.ok);
    CHECK_HAS(m.why, "test.lua:");
    CHECK_HAS(m.why, ": more than 4 scans, or more than 3 changes of direction");
    CHECK(strstr(m.why, ":0:") == NULL);
    unmake(&m);
    make(&m,
         "return rowwise { forward = function(x)\n"
         "local y = cumsum(x, 0.0)\n"
         "return y * y / rowsum(y) end }\n",
         "dtype=bf16,rows=4,n=64");
    CHECK(!m.ok);
    CHECK_STR(m.why, "test.lua:3: a reduction of a scan (the host device computes it)");
    unmake(&m);
}

/* What a kernel rounded on the way to a maximum need not equal what another one computes: the gradient would
 * be lost. */
TEST(a_given_maximum_of_computed_values_is_computed_once_more)
{
    struct made m;
    make(&m,
         "return rowwise { forward = function(x, at)\n"
         "local top = rowmax(0.25 * x + tanh(x))\n"
         "return x * top, { top = top } end }\n",
         "dtype=f32,rows=4,n=64");
    CHECK(m.ok);
    CHECK_EQ(m.pass.n_given, 0);
    CHECK_EQ(depth(&m), 2); /* the maximum; how many reach it */
    unmake(&m);
    make(&m,
         "return rowwise { forward = function(x, at)\n"
         "local top = rowmax(x)\n"
         "return x * top, { top = top } end }\n",
         "dtype=f32,rows=4,n=64");
    CHECK(m.ok);
    CHECK_EQ(m.pass.n_given, 1); /* read, not computed: exact */
    unmake(&m);
}

TEST(what_is_not_wanted_is_not_made)
{
    struct made m;
    make(&m, "layer_norm", "dtype=bf16,rows=4,n=64,dx=none,dweight=none");
    CHECK(m.ok);
    CHECK_EQ(m.pass.n_out, 0);
    CHECK_EQ(m.pass.n_sites, 1);
    CHECK_EQ(m.pass.n_in, 1); /* dbias needs dy alone */
    CHECK_EQ(depth(&m), 0);
    unmake(&m);
}

/* A sum is f32: of a tensor of rows in 16 bits it would be written beyond the end. */
TEST(gradients_that_are_zero_have_the_shape_of_their_input)
{
    struct made m;
    make(&m,
         "return rowwise { inputs = { far = tensor('float', 'm', { grad = true }),\n"
         "  gate = tensor('float', 'rows', 'n', { grad = true }), bias = tensor('f32', 'rows', { grad = true "
         "}) },\n"
         "  forward = function(x, at, p) return x * detach(p.gate(at.row, at.i)) end }",
         "dtype=bf16,rows=4,n=64");
    CHECK(m.ok);
    CHECK_EQ(m.pass.n_out, 2); /* dx, dgate */
    CHECK_STR(m.sig.arg[m.pass.out[1].arg].name, "dgate");
    CHECK_EQ(m.pass.n_kept, 1);
    CHECK_STR(m.sig.arg[m.pass.kept[0].arg].name, "dbias");
    CHECK_EQ(m.pass.n_sites, 1);
    CHECK_STR(m.sig.arg[m.pass.site[0].arg].name, "dfar");
    unmake(&m);
}

TEST(gradients_at_computed_indices_are_added_up_by_atomics)
{
    static const char text[] = "return rowwise { inputs = { t = tensor('f32', 'm', { grad = true }) },\n"
                               "  forward = function(x, at, p)\n"
                               "    return x * p.t(at.i // 2)\n"
                               "  end }";
    struct made m;
    make(&m, text, "dtype=bf16,rows=4,n=64,m=32");
    CHECK(m.ok);
    CHECK_EQ(m.pass.n_scatters, 1);
    CHECK_EQ(m.pass.n_columns, 0);
    CHECK_EQ(m.pass.site[0].form, SITE_SCATTER);
    CHECK(!m.pass.site[0].once);
    unmake(&m);
    make(&m, text, "dtype=bf16,rows=4,n=64,m=32,deterministic=1");
    CHECK(m.ok); /* the same sites: sums without rounding */
    CHECK_EQ(m.pass.n_scatters, 1);
    unmake(&m);
    make(&m, text, "dtype=bf16,rows=4,n=64,m=32,dt=none");
    CHECK(m.ok);
    unmake(&m);
}

/* exp(x - lse) is divided by a norm, which is 1 but where lse is large: it is no reduction of the pass, which
   plans and formulas know nothing of. */
TEST(given_logarithms_of_sums_have_a_norm)
{
    struct made m;
    make(&m, "cross_entropy", "dtype=bf16,rows=4,n=64");
    CHECK(m.ok);
    CHECK_EQ(reductions(&m), 0);
    CHECK_EQ(m.pass.n_norms, 1);
    CHECK_STR(m.sig.arg[m.pass.given[m.pass.norm[0].given].arg].name, "lse");
    CHECK_EQ(m.pass.ir->node[m.pass.norm[0].norm].op, OP_WHERE);
    CHECK((m.pass.ir->node[m.pass.norm[0].term].span & SPAN_KV) != 0);
    unmake(&m);
    make(&m, "cross_entropy", "dtype=f32,rows=4,n=64");
    CHECK_EQ(m.pass.n_norms, 0);
    unmake(&m);
    make(&m, "cross_entropy", "dtype=bf16,rows=4,n=64,lse=none");
    CHECK_EQ(m.pass.n_norms, 0);
    unmake(&m);
    make(&m, "rms_norm", "dtype=bf16,rows=4,n=64");
    CHECK_EQ(m.pass.n_norms, 0);
    unmake(&m);
}

/* Kernels that scan have no norms: there the row is reduced as if nothing was given. */
TEST(scans_beside_a_given_logarithm_reduce_the_row)
{
    struct made m;
    make(&m,
         "return rowwise { forward = function(x)\n"
         "  local m = detach(rowmax(x))\n"
         "  return cumsum(x, 0.0), { lse = m + log(rowsum(exp(x - m))) } end }",
         "dtype=bf16,rows=4,n=64,dlse=f32");
    CHECK(m.ok);
    CHECK_EQ(m.pass.n_norms, 0);
    CHECK_EQ(reductions(&m), 2);
    unmake(&m);
}
