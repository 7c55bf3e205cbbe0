/*
 * emit_gradients.c: what sums over rows add to the struct `variant` of emit.c: which gradient each
 * site adds to, and where. In: a row emitter. Out: text.
 */
#include "gen/rowwise/emit.h"
#include "gen/base/text.h"
#include "gen/plan/plan.h"
#include "gen/rowwise/pass.h"

int row_sums(const struct row_pass *pass)
{
    return pass->n_sites - pass->n_columns - pass->n_scatters;
}

int row_number_gradients(const struct row_pass *pass, int *grad)
{
    int n = 0;
    for (int i = 0; i < pass->n_sites; i++) {
        n += i == 0 || pass->site[i].arg != pass->site[i - 1].arg;
        grad[i] = n - 1;
    }
    return n;
}

bool row_scatter_is_shared(const struct row_pass *pass, int site)
{
    return site > 0 && pass->site[site - 1].form == SITE_SCATTER &&
           pass->site[site - 1].arg == pass->site[site].arg;
}

int row_scatter_buffer(const struct row_pass *pass, int site)
{
    int n = -1;
    for (int i = 0; i <= site && i < pass->n_sites; i++)
        n += pass->site[i].form == SITE_SCATTER && !row_scatter_is_shared(pass, i);
    return site == pass->n_sites ? n + 1 : n;
}

static int most_parts(const struct row_pass *pass, const struct plan *plan)
{
    const int of_rows = plan->rows.blocks / (plan->rows.cluster > 1 ? plan->rows.cluster : 1);
    const int of_columns = plan->rows.per_thread > 0 ? of_rows : plan->rows.column_parts;
    const int rows = row_sums(pass) > 0 ? of_rows : 0;
    const int columns = pass->n_columns > 0 ? of_columns : 0;
    return rows > columns ? rows : columns;
}

/* As few shares as leave a thread 17 parts, not 16: an H200 has 132 SMs, and its blocks are a multiple of
 * them. Loads are asked for in rounds of one size. */
struct row_sharing row_share_parts(const struct row_pass *pass, const struct plan *plan)
{
    enum { THREADS = 256, EACH = 17, ROUND = 8, MOST = 8, MOST_OF_VECTORS = 32 };
    const int wide = /* columns of a thread: SUM_WIDTH */
        plan->rows.vector % 4 == 0 && pass->n_columns == pass->n_sites ? 4 : 1;
    const int parts = most_parts(pass, plan);
    struct row_sharing sharing = {1, 1, 0};
    while (sharing.shares * EACH < parts && sharing.shares < (wide > 1 ? MOST_OF_VECTORS : MOST))
        sharing.shares *= 2;
    const int each = (parts + sharing.shares - 1) / sharing.shares;
    const int rounds = (each + ROUND - 1) / ROUND;
    if (rounds > 0)
        sharing.round = (each + rounds - 1) / rounds;
    sharing.columns = THREADS / sharing.shares * wide;
    return sharing;
}

static int most_dims(const struct row_emitter *r)
{
    int most = 0;
    for (int i = 0; i < r->pass->n_sites; i++) {
        const int dims = r->e->sig->arg[r->pass->site[i].arg].ndim;
        most = dims > most ? dims : most;
    }
    return most;
}

void row_emit_sites(struct row_emitter *r, const struct plan *plan)
{
    const struct row_sharing sharing = row_share_parts(r->pass, plan);
    const struct row_pass *pass = r->pass;
    struct text_buf *out = r->e->out;
    int grad[ROW_SITES];
    int slot[ROW_SITES];
    int column[ROW_SITES];
    int scattered[ROW_SITES];
    int taken[2] = {0, 0};
    int n_grads = row_number_gradients(pass, grad);
    for (int i = 0; i < pass->n_sites; i++) {
        column[i] = pass->site[i].form == SITE_COLUMN;
        scattered[i] = pass->site[i].form == SITE_SCATTER;
        slot[i] = scattered[i] ? row_scatter_buffer(pass, i) : taken[column[i]]++;
        if (scattered[i] && row_scatter_is_shared(pass, i)) /* what is there was added by an earlier site */
            slot[i] = -1;
    }
    text_add(out, "    static constexpr int COLUMNS = %d, SUMS = %d, SITES = %d, GRADS = %d;\n",
             pass->n_columns, row_sums(pass), pass->n_sites, n_grads);
    row_emit_list(out, "int", "SITE_GRAD", grad, pass->n_sites);
    row_emit_list(out, "int", "SITE_SLOT", slot, pass->n_sites);
    row_emit_list(out, "bool", "SITE_COLUMN", column, pass->n_sites);
    row_emit_list(out, "bool", "SITE_SCATTERED", scattered, pass->n_sites);
    text_add(out, "    static constexpr int GRAD_DIMS = %d, SUM_SHARES = %d, SUM_ROUND = %d;\n", most_dims(r),
             sharing.shares, sharing.round);
}

static void emit_scatter_lists(struct row_emitter *r)
{
    const struct row_pass *pass = r->pass;
    struct text_buf *out = r->e->out;
    int to[ROW_SITES] = {0};
    int steady[ROW_SITES] = {0};
    bool any = false;
    int n = 0;
    for (int i = 0; i < pass->n_sites; i++)
        if (pass->site[i].form == SITE_SCATTER) {
            steady[n] = row_site_is_steady(r->e->w, &pass->site[i]);
            any |= steady[n];
            to[n++] = row_scatter_buffer(pass, i);
        }
    text_add(out, "    static constexpr int SCATTERS = %d;\n    static constexpr bool SCATTER_EXACT = %s;\n",
             n, yes(n > 0 && r->e->problem->deterministic));
    row_emit_list(out, "int", "SCATTER_TO", to, n);
    if (any)
        row_emit_list(out, "bool", "SCATTER_STEADY", steady, n);
}

/* What an element adds to a gradient at computed indices, and to which of its elements. */
void row_emit_scatters(struct row_emitter *r)
{
    const struct row_pass *pass = r->pass;
    struct text_buf *out = r->e->out;
    char text[128];
    int n = 0;
    emit_scatter_lists(r);
    text_add(
        out,
        "    template <int K> DEV bool scatter(const float *e, int i, " ROW_ARGS
        ", const col &c, const vals &v, const float *q, const scatter_target &t, float &value, long long "
        "&place)\n    {\n");
    for (int i = 0; i < pass->n_sites; i++) {
        const struct row_site *site = &pass->site[i];
        int root[1 + INPUT_DIMS] = {row_root(r, site->root)};
        if (site->form != SITE_SCATTER)
            continue;
        for (int k = 0; k < site->n_index; k++)
            root[1 + k] = row_root(r, site->index[k]);
        text_add(out, "        if constexpr (K == %d) { // %s\n", n++, r->e->sig->arg[site->arg].name);
        row_name_all(r, true, true);
        emit_values(r->e, root, 1 + site->n_index);
        text_add(out, "        value = %s;\n        place = 0;\n",
                 node_text(r->e, root[0], text, sizeof text));
        for (int k = 0; k < site->n_index; k++)
            text_add(out, "        place = place * t.n[%d] + m_clamp_index(%s, (int)t.n[%d]);\n", k,
                     node_text(r->e, root[1 + k], text, sizeof text), k);
        text_add(out, "        return %s;\n        }\n", site->once ? "i == 0" : "true");
    }
    text_add(out, "        return false;\n    }\n");
}

/* Which column's sum goes to an element of a gradient, `last` of line `outer`; -1: none, 0 for a sum over
 * all. */
void row_emit_column_of(struct row_emitter *r)
{
    const struct row_pass *pass = r->pass;
    struct text_buf *out = r->e->out;
    text_add(out, "    template <int S> DEV int column_of(const row_gradient &g, " ROW_ARGS
                  ", long long outer, long long last)\n    {\n");
    for (int i = 0; i < pass->n_sites; i++) {
        const struct row_site *site = &pass->site[i];
        const bool column = site->form == SITE_COLUMN;
        if (site->form == SITE_SCATTER)
            continue;
        const int skip = 4 - site->n_index - column; /* dims that the gradient lacks */
        char text[128];
        int root[INPUT_DIMS];
        text_add(out, "        if constexpr (S == %d) { // %s\n", i, r->e->sig->arg[site->arg].name);
        row_name_all(r, false, false);
        for (int k = 0; k < site->n_index; k++)
            root[k] = row_root(r, site->index[k]);
        emit_values(r->e, root, site->n_index);
        text_add(out, "        long long at = 0;\n");
        for (int k = 0; k < site->n_index; k++)
            text_add(out, "        at = at * g.size[%d] + m_clamp_index(%s, (int)g.size[%d]);\n", skip + k,
                     node_text(r->e, root[k], text, sizeof text), skip + k);
        text_add(out, column ? "        return outer == at && last < z.n ? (int)last : -1;\n        }\n"
                             : "        return outer * g.size[3] + last == at ? 0 : -1;\n        }\n");
    }
    text_add(out, "        return -1;\n    }\n");
}
