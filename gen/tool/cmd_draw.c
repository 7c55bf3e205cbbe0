/*
 * cmd_draw.c: `lathe draw`: pictures of what a spec does to pairs of tokens. In: parsed options. Out: a PNG,
 * and its numbers on standard output. Inputs are those of `lathe run`; neither q nor k nor v is made, and no
 * GPU is asked.
 */
#include "gen/ir/kind.h"
#include "gen/tool/draw.h"
#include "gen/tool/explain.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CURVE_POINTS = 401 };
static const double CURVE_REACH = 100; /* scores from -100 to 100 */
static const double TURNED_SCORE = 4;  /* of a query and a key that are not turned yet */
static const int64_t MOST_TILES = INT64_C(1) << 22;

static int out_of_memory(void)
{
    tool_complain("out of memory");
    return CODE_ENVIRONMENT;
}

/* The next panel, with room for the values of a grid. NULL: memory ran out. */
static struct panel *next_panel(struct drawing *d, enum panel_form form, int line, int head,
                                const struct grid *g)
{
    if (d->n_panels == DRAW_PANELS)
        return NULL;
    struct panel *p = &d->panel[d->n_panels];
    *p = (struct panel){.form = form, .line = line, .head = head, .grid = *g};
    p->value = calloc((size_t)g->rows * (size_t)g->cols, sizeof *p->value);
    d->n_panels += p->value != NULL;
    return p->value ? p : NULL;
}

static void name_panel(struct panel *p, const char *what)
{
    snprintf(p->title, sizeof p->title, p->head < 0 ? "%.50s" : "%.50s, head %d", what, p->head);
}

/* What a panel shows, from the least value to the most: 0 to 0 where that is nothing. */
static void find_range(struct panel *p)
{
    double low = HUGE_VAL;
    double high = -HUGE_VAL;
    for (int64_t k = 0; k < (int64_t)p->grid.rows * p->grid.cols; k++) {
        const bool shown = isfinite(p->value[k]) && (p->form != PANEL_LOG || p->value[k] > 0);
        low = shown ? fmin(low, p->value[k]) : low;
        high = shown ? fmax(high, p->value[k]) : high;
    }
    p->shows = low <= high;
    p->least = p->shows ? low : 0;
    p->most = p->shows ? high : 0;
}

/* The panels from number `first` on have the colours of one range. */
static void share_range(struct drawing *d, int first)
{
    double low = HUGE_VAL;
    double high = -HUGE_VAL;
    for (int i = first; i < d->n_panels; i++) {
        find_range(&d->panel[i]);
        low = d->panel[i].shows ? fmin(low, d->panel[i].least) : low;
        high = d->panel[i].shows ? fmax(high, d->panel[i].most) : high;
    }
    for (int i = first; i < d->n_panels; i++) {
        d->panel[i].low = low <= high ? low : 0;
        d->panel[i].high = low <= high ? high : 0;
    }
}

/* ---- live pairs and tiles -------------------------------------------------------------------------- */

static double mean_share(const struct grid *g, const double *share)
{
    double live = 0;
    for (int r = 0; r < g->rows; r++)
        for (int c = 0; c < g->cols; c++)
            live += share[(int64_t)r * g->cols + c] * (double)(grid_row(g, r + 1) - grid_row(g, r)) *
                    (double)(grid_col(g, c + 1) - grid_col(g, c));
    return live / ((double)g->n_rows * (double)g->n_cols);
}

static void add_every(char *note, size_t size, int64_t every)
{
    const size_t used = strlen(note);
    if (every > 1)
        snprintf(note + used, size - used, "; 1 row in %lld looked at", (long long)every);
}

static int add_live(struct drawing *d)
{
    const bool by_head = draw_by_head(d->run.ir, &d->run.ir->mask);
    for (int i = 0; i < (by_head ? d->n_heads : 1); i++) {
        int64_t every = 1;
        struct panel *p = next_panel(d, PANEL_SHARE, 0, by_head ? d->head[i] : -1, &d->grid);
        if (!p)
            return out_of_memory();
        const int code = draw_live(d, d->head[i], &d->grid, p->value, &every);
        if (code != CODE_OK)
            return code;
        const double share = mean_share(&d->grid, p->value);
        name_panel(p, "live pairs");
        snprintf(p->note, sizeof p->note, "%.4g %% of the pairs are live", 100 * share);
        add_every(p->note, sizeof p->note, every);
        p->high = 1;
        if (i == 0) {
            d->live = p->value;
            d->share_live = share;
        }
    }
    return CODE_OK;
}

static void count_classes(struct drawing *d, const struct panel *p)
{
    const int64_t n = (int64_t)p->grid.rows * p->grid.cols;
    for (int64_t i = 0; i < n; i++)
        d->class_share[(int)p->value[i]] += 1.0 / (double)n;
}

/* Tiles that the kernel judges by their corners: exactly as it does. */
static void classes_by_bounds(const struct drawing *d, struct panel *p)
{
    const struct grid *g = &p->grid;
    struct tile_at t = {.q_start = run_q_start(&d->run)};
    lathe_arg arg[MAX_ARGS];
    const lathe_arg *input[MAX_INPUTS];
    run_args(&d->run, arg);
    for (int i = 0; i < d->run.ir->n_inputs; i++) {
        const struct run_tensor *in = run_find(&d->run, d->run.ir->input[i].name);
        input[i] = in ? &arg[in - d->run.tensor] : NULL;
    }
    t.input = input;
    run_set_sizes(t.at, &d->run.problem);
    run_set_head(t.at, &d->run.problem, 0, d->head[0]);
    for (int r = 0; r < g->rows; r++)
        for (int c = 0; c < g->cols; c++) {
            t.row0 = grid_row(g, r);
            t.row1 = grid_row(g, r + 1) - 1;
            t.kv0 = grid_col(g, c);
            t.kv1 = grid_col(g, c + 1) - 1;
            p->value[(int64_t)r * g->cols + c] =
                d->run.ir->mask.n_roots ? bounds_class(d->run.ir, &t) : TILE_ALL;
        }
}

/* Tiles that a kernel of their own judges once a launch: by their pairs. */
static int classes_by_pairs(const struct drawing *d, struct panel *p)
{
    int64_t every = 1;
    const int code = draw_live(d, d->head[0], &p->grid, p->value, &every);
    for (int64_t i = 0; i < (int64_t)p->grid.rows * p->grid.cols; i++)
        p->value[i] = p->value[i] <= 0 ? TILE_NONE : p->value[i] >= 1 ? TILE_ALL : TILE_SOME;
    add_every(p->note, sizeof p->note, every);
    return code;
}

static int add_classes(struct drawing *d, const struct plan *plan, const struct source *source,
                       const char *arch)
{
    const bool backward = plan->row->form == PLAN_ATTENTION_BACK;
    const int bm = backward ? plan->attention.back.bm : plan->attention.bm;
    const int bn = backward ? plan->attention.back.bn : plan->attention.bn;
    const char *map = explain_map_kernel(source);
    if (bm < 1 || bn < 1)
        return CODE_OK;
    const int64_t rows = (d->len_q + bm - 1) / bm;
    const int64_t cols = (d->len_kv + bn - 1) / bn;
    const struct grid g = {d->len_q, d->len_kv, (int)rows, (int)cols, bm, bn};
    struct panel *p = rows * cols <= MOST_TILES ? next_panel(d, PANEL_TILES, 0, -1, &g) : NULL;
    if (!p)
        return rows * cols <= MOST_TILES ? out_of_memory() : CODE_OK;
    snprintf(p->title, sizeof p->title, "tiles of %d x %d, %s", bm, bn, arch);
    snprintf(p->note, sizeof p->note, "%.40s", plan->row->name);
    snprintf(d->template_name, sizeof d->template_name, "%s", plan->row->name);
    int code = CODE_OK;
    if (map)
        code = classes_by_pairs(d, p);
    else
        classes_by_bounds(d, p);
    snprintf(d->tile_note, sizeof d->tile_note,
             map ? "judged once a launch, by pairs" : "judged by their corners");
    count_classes(d, p);
    return code;
}

/* The plan is of the pass that was asked for. No kernel: no panel. */
static int add_tiles(struct drawing *d)
{
    struct device standard;
    struct signature sig;
    struct problem problem;
    struct kernel_request request;
    struct plan plan;
    struct source source;
    lathe_error err = {0};
    if (!d->o.n_archs && !device_parse("sm_80", &standard))
        return CODE_USAGE;
    const struct device device = device_asked(d->o.n_archs ? &d->o.arch[0] : &standard, &d->o);
    memset(&source, 0, sizeof source);
    signature_make(d->run.ir, d->pass, &sig);
    if (problem_parse_of(d->run.ir, &sig, d->o.problem, &problem, &err) != LATHE_OK ||
        kernel_open(&request, d->run.ir, d->pass, &sig, &problem, &device, &err) != LATHE_OK)
        return complain_error(&err);
    int code = CODE_OK;
    const lathe_status status = plan_pick(&request, &plan, &err);
    if (status == LATHE_UNSUPPORTED)
        fprintf(stderr, "lathe: draw: no tiles are drawn, since no kernel on %s serves the problem: %s\n",
                device.arch, err.text);
    else if (status != LATHE_OK || emit(&request, &plan, &source, &err) != LATHE_OK)
        code = complain_error(&err);
    else
        code = add_classes(d, &plan, &source, device.arch);
    source_free(&source);
    kernel_close(&request);
    return code;
}

/* ---- scores ---------------------------------------------------------------------------------------- */

static bool asks_for_place(const struct ir *ir)
{
    static const int PLACES[] = {AT_Q, AT_KV, AT_ROW};
    bool found = false;
    for (size_t i = 0; i < sizeof PLACES / sizeof *PLACES; i++)
        found = found || ir_depends_on(ir, ir->score.root[0], OP_AT, PLACES[i]);
    return found;
}

static int add_curve(struct drawing *d, bool by_head)
{
    const struct grid g = {1, CURVE_POINTS, by_head ? d->n_heads : 1, CURVE_POINTS, 0, 0};
    struct panel *p = next_panel(d, PANEL_CURVE, 0, -1, &g);
    double s[CURVE_POINTS];
    int code = p ? CODE_OK : out_of_memory();
    for (int i = 0; i < CURVE_POINTS; i++)
        s[i] = CURVE_REACH * (2.0 * i / (CURVE_POINTS - 1) - 1);
    for (int h = 0; h < g.rows && code == CODE_OK; h++)
        code = draw_score_curve(d, d->head[h], s, CURVE_POINTS, p->value + (int64_t)h * CURVE_POINTS);
    if (code != CODE_OK)
        return code;
    name_panel(p, "score_mod(s)");
    snprintf(p->note, sizeof p->note, "grey: s itself");
    p->x_low = -CURVE_REACH;
    p->x_high = CURVE_REACH;
    share_range(d, d->n_panels - 1);
    return CODE_OK;
}

/* Are all values 0, and nobody has said where to look? Then the next look is at 1. */
static bool tells_nothing(struct drawing *d, int first)
{
    const bool nothing = isnan(d->o.score) && d->panel[first].low == 0 && d->panel[first].high == 0;
    if (nothing)
        d->score = 1;
    return nothing;
}

static int add_scores(struct drawing *d)
{
    const struct ir *ir = d->run.ir;
    if (ir->score.n_roots == 0)
        return CODE_OK;
    const bool by_head = draw_by_head(ir, &ir->score);
    if (!asks_for_place(ir))
        return add_curve(d, by_head);
    const int first = d->n_panels;
    int code = CODE_OK;
    for (int i = 0; i < (by_head ? d->n_heads : 1) && code == CODE_OK; i++) {
        struct panel *p = next_panel(d, PANEL_HEAT, 1, by_head ? d->head[i] : -1, &d->grid);
        code = p ? draw_scores(d, d->head[i], p->value) : out_of_memory();
        if (p)
            name_panel(p, "score_mod(s) - s");
    }
    share_range(d, first);
    for (int i = first; i < d->n_panels && tells_nothing(d, first) && code == CODE_OK; i++)
        code = draw_scores(d, d->head[i - first], d->panel[i].value);
    share_range(d, first);
    for (int i = first; i < d->n_panels; i++)
        snprintf(d->panel[i].note, sizeof d->panel[i].note, "s = %g, the middle of a pixel", d->score);
    return code;
}

/* ---- weights --------------------------------------------------------------------------------------- */

/* Is any formula of the spec another one for another head? */
static bool asks_for_head(const struct ir *ir)
{
    bool found = false;
    for (int i = 0; i < ir->n_nodes; i++)
        found = found || ir_is_at(ir, i, AT_H) || ir_is_at(ir, i, AT_H_KV);
    return found;
}

/* Are pairs of elements of q or k turned, as by rotary positions? */
static bool turns_pairs(const struct ir *ir)
{
    bool turns = false;
    for (int mod = MOD_QUERY; mod <= MOD_KEY; mod++)
        for (int k = 0; k < ir->mod[mod].n_stages; k++)
            turns = turns || ir->mod[mod].stage[k].form != STAGE_ELEMENT;
    return turns;
}

static void note_weights(struct drawing *d, int first)
{
    for (int i = first; i < d->n_panels; i++) {
        struct panel *p = &d->panel[i];
        if (d->linear)
            snprintf(p->note, sizeof p->note, "equal q and k; log scale");
        else
            snprintf(p->note, sizeof p->note, "all scores %g%s; log scale", d->score,
                     turns_pairs(d->run.ir) ? " before turns" : "");
    }
}

static int add_weights(struct drawing *d)
{
    const bool by_head = d->linear || asks_for_head(d->run.ir);
    const int n = by_head ? d->n_heads : 1;
    const int first = d->n_panels;
    double *value[DRAW_HEADS] = {NULL};
    if (turns_pairs(d->run.ir) && isnan(d->o.score) && d->score == 0)
        d->score = TURNED_SCORE; /* with scores of 0 nothing would be seen of it */
    for (int i = 0; i < n; i++) {
        struct panel *p = next_panel(d, PANEL_LOG, 2, by_head ? d->head[i] : -1, &d->grid);
        if (!p)
            return out_of_memory();
        value[i] = p->value;
        name_panel(p, d->linear ? "weight of j at i" : "weights");
    }
    int code = draw_weights(d, n, value);
    share_range(d, first);
    if (code == CODE_OK && !d->linear && tells_nothing(d, first)) {
        code = draw_weights(d, n, value);
        share_range(d, first);
    }
    note_weights(d, first);
    return code;
}

/* ---- the command ----------------------------------------------------------------------------------- */

/* Sizes that a picture shows well, where the problem names none. */
static void usual_sizes(const struct drawing *d, const char *given, struct text_buf *out)
{
    text_add(out, "%s", given ? given : "");
    const char *comma = given && *given ? "," : "";
    if (!tool_names_size(given, "h") && !tool_names_size(given, "h_kv") && !tool_names_size(given, "h_k")) {
        text_add(out, "%sh=4", comma);
        comma = ",";
    }
    if (!tool_names_size(given, d->linear ? "t" : "q"))
        text_add(out, d->linear ? "%st=256" : "%sq=512", comma);
    if (!tool_names_size(given, "d"))
        text_add(out, ",d=64");
}

static void choose_heads(struct drawing *d)
{
    const int64_t n = d->run.problem.dim[SYM_H];
    d->n_heads = n < DRAW_HEADS ? (int)n : DRAW_HEADS;
    for (int i = 0; i < d->n_heads; i++)
        d->head[i] = d->n_heads > 1 ? (int)(i * (n - 1) / (d->n_heads - 1)) : 0;
}

static int refuse_sizes(const struct drawing *d)
{
    const struct run *run = &d->run;
    const bool packed = problem_has_named(&run->sig, &run->problem, "cu_q") ||
                        problem_has_named(&run->sig, &run->problem, "cu_kv") ||
                        problem_has_named(&run->sig, &run->problem, "cu");
    const bool paged = problem_has_named(&run->sig, &run->problem, "pages");
    if (paged)
        tool_complain("draw: pages say where keys lie, and pairs are the same without them: leave page= out");
    else if (packed)
        tool_complain(
            "draw: packed sequences lie one behind the other and see only themselves: draw the sizes of one "
            "of them");
    else if (run->problem.cut_keys || run->problem.cut_heads)
        tool_complain("draw: all keys and heads are drawn: leave len_kv and n_h out");
    else if (d->len_q < 1 || d->len_kv < 1 || d->n_heads < 1 || run->problem.dim[SYM_B] < 1)
        tool_complain("draw: the problem has no pair of tokens");
    else
        return CODE_OK;
    return CODE_USAGE;
}

static int prepare(struct drawing *d)
{
    const int side = d->o.pixels;
    const int code = run_prepare(&d->run, false);
    if (code != CODE_OK)
        return code;
    const int64_t *dim = d->run.problem.dim;
    d->len_q = dim[d->linear ? SYM_T : SYM_Q];
    d->len_kv = dim[d->linear ? SYM_T : SYM_KV] * ir_updates(d->run.ir);
    choose_heads(d);
    d->grid = (struct grid){.n_rows = d->len_q,
                            .n_cols = d->len_kv,
                            .rows = d->len_q < side ? (int)d->len_q : side,
                            .cols = d->len_kv < side ? (int)d->len_kv : side};
    return refuse_sizes(d);
}

static int draw_all(struct drawing *d)
{
    struct progress progress;
    progress_start(&progress, "drawing");
    int code = prepare(d);
    if (code == CODE_OK && !d->linear)
        code = add_live(d);
    if (code == CODE_OK && !d->linear)
        code = add_tiles(d);
    if (code == CODE_OK && !d->linear)
        code = add_scores(d);
    if (code == CODE_OK)
        code = add_weights(d);
    progress_stop(&progress);
    return code;
}

static int draw(struct drawing *d)
{
    struct text_buf text = {0};
    struct facts facts;
    int code = draw_all(d);
    if (code == CODE_OK && d->o.out)
        code = draw_picture(d);
    if (code != CODE_OK || (d->o.out && strcmp(d->o.out, "-") == 0))
        return code;
    facts_begin(&facts, &text, d->o.json);
    draw_report(d, &facts);
    facts_end(&facts);
    return tool_print(&text) ? CODE_OK : CODE_ENVIRONMENT;
}

static int refuse_kind(const struct ir *ir)
{
    tool_complain(
        "draw: %s is %s: it has no pairs of tokens. Pictures are of attention (live pairs, tiles, scores, "
        "weights) and of linear_attention (what is left of each token)",
        ir->name, kinds[ir->kind].name);
    return CODE_USAGE;
}

static int draw_spec(struct drawing *d)
{
    const struct kind_row *kind = &kinds[d->run.ir->kind];
    struct text_buf sizes = {0};
    if (!kind->tiles && !kind->recurrent)
        return refuse_kind(d->run.ir);
    d->linear = kind->recurrent;
    d->score = isnan(d->o.score) ? 0 : d->o.score;
    usual_sizes(d, d->o.problem, &sizes);
    d->o.problem = sizes.data;
    const int code = sizes.failed ? out_of_memory() : draw(d);
    text_free(&sizes);
    return code;
}

/* Does the name of a file promise a picture of another format? */
static bool is_other_picture(const char *name)
{
    static const char *const OTHERS[] = {".jpg",  ".jpeg", ".gif", ".svg", ".pdf",
                                         ".webp", ".bmp",  ".tif", ".tiff"};
    const char *dot = name ? strrchr(name, '.') : NULL;
    for (size_t i = 0; dot && i < sizeof OTHERS / sizeof *OTHERS; i++)
        if (strcmp(dot, OTHERS[i]) == 0)
            return true;
    return false;
}

int cmd_draw(const struct options *o)
{
    int code = CODE_ENVIRONMENT;
    if (!o->out && !o->json) {
        tool_complain("draw: expected -o FILE.png, or --json for the numbers alone");
        return CODE_USAGE;
    }
    if (is_other_picture(o->out)) {
        tool_complain("draw: pictures are PNG: expected -o FILE.png, given '%s'", o->out);
        return CODE_USAGE;
    }
    struct drawing *d = calloc(1, sizeof *d); /* large for a stack */
    if (!d)
        return out_of_memory();
    d->o = *o;
    d->pass = o->pass;
    d->o.pass = LATHE_FORWARD;
    d->run.o = &d->o;
    d->run.inputs_alone = true;
    d->run.ir = tool_spec(o->operand[0], o, &code);
    if (d->run.ir) {
        d->run.ir->v_is_k = false; /* v then tells weights apart, which are the same whatever it is */
        d->run.ir->qk2 = false;    /* q and k are of the drawing alone, of any width */
        code = draw_spec(d);
    }
    for (int i = 0; i < d->n_panels; i++)
        free(d->panel[i].value);
    run_free(&d->run);
    ir_free(d->run.ir);
    free(d);
    return code;
}
