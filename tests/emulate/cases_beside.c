/*
 * cases_beside.c: kernels whose blocks meet in global memory, run side by side on a device of few
 * multiprocessors: turns at tiles of dq, pieces of blocks, counters of tiles, strips and items. In: the
 * default or the full run. Out: cases at the end of the list; each runs in as many orders as --seeds says.
 */
#include "cases.h"

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

struct kernel_case {
    const char *spec;
    const char *template_name;
    lathe_dtype dtype;
    int d;
    bool backward, deterministic;
};

static const struct kernel_case KERNELS[] = {
    {"causal", "attention_bwd_sm90", LATHE_BF16, 64, true, false},
    {"document", "attention_bwd_sm90", LATHE_F16, 64, true, true},
    {"causal", "attention_bwd_wide_sm90", LATHE_BF16, 256, true, true},
    {"document", "attention_fwd_sm90", LATHE_BF16, 64, false, false},
    {"full", "attention_bwd_sm90", LATHE_BF16, 64, true, true},
    {"full", "attention_bwd_sm90", LATHE_BF16, 128, true, false},
    {"full", "attention_bwd_wide_sm90", LATHE_F16, 256, true, false},
    {"causal", "attention_bwd_sm90", LATHE_BF16, 128, true, true},
    {"sliding_window", "attention_bwd_sm90", LATHE_BF16, 64, true, true},
    {"sliding_window", "attention_bwd_wide_sm90", LATHE_BF16, 192, true, false},
    {"document", "attention_bwd_sm90", LATHE_BF16, 128, true, false},
    {"document", "attention_bwd_wide_sm90", LATHE_BF16, 256, true, true},
    {"relative_bias", "attention_bwd_sm90", LATHE_BF16, 64, true, true},
    {"causal", NULL, LATHE_BF16, 64, true, true},
    {"document", NULL, LATHE_BF16, 64, true, true},
    {"causal", "attention_fwd_sm90", LATHE_BF16, 128, false, false},
    {"sliding_window", "attention_fwd_sm90", LATHE_F16, 64, false, false},
    {"full", "attention_fwd_sm90", LATHE_BF16, 256, false, false},
};

struct sizes {
    int beside;
    int b, h, h_kv, q, kv;
};
/* Many short rows and few long ones; blocks beside multiples of those that run at once; fewer of them. */
static const struct sizes SIZES[] = {
    {3, 2, 4, 2, 130, 260},  {8, 4, 4, 4, 65, 130}, {2, 1, 2, 1, 200, 300},  {3, 1, 2, 1, 650, 500},
    {5, 2, 2, 2, 300, 300},  {8, 8, 2, 1, 33, 40},  {40, 2, 8, 2, 128, 256}, {3, 1, 1, 1, 1, 300},
    {16, 1, 4, 4, 260, 390}, {4, 3, 3, 3, 64, 64},
};

static void add_attention(struct case_list *list, const struct kernel_case *k, int n)
{
    struct test_case c = case_of_attention("beside", k->spec, NULL, k->dtype, k->d, k->d, 90);
    c.pass = k->backward ? LATHE_BACKWARD : LATHE_FORWARD;
    c.template_name = k->template_name;
    c.deterministic = k->deterministic;
    for (int i = 0; i < n; i++) {
        const struct sizes *s = &SIZES[i];
        c.beside = s->beside;
        case_shape(&c, s->b, s->h, s->h_kv, s->q, s->kv);
        case_add(list, &c);
    }
}

static const struct {
    const char *spec;
    int n, rows, blocks, beside; /* blocks: of clusters that take rows in turn; 0: as planned */
    bool inner, backward;
} ROWS[] = {
    {"softmax_inner", 1030, 150, 2, 16, true, false},     {"chunk_cumsum", 900, 70, 0, 2, true, false},
    {"logcumsumexp_packed", 700, 40, 0, 1, true, true},   {"softmax_inner", 2050, 41, 2, 8, true, true},
    {"layer_norm", 16392, 7, 3, 8, false, true},          {"rms_norm", 49160, 5, 2, 16, false, true},
    {"log_softmax_inner", 1500, 90, 3, 16, true, false},  {"cumsum_packed", 2000, 200, 0, 2, true, true},
    {"logcumsumexp_packed", 1100, 70, 0, 2, true, false},
};

static void add_rows(struct case_list *list, int first, int n)
{
    for (int i = first; i < n; i++) {
        struct test_case c = case_of_attention("beside", ROWS[i].spec, NULL, LATHE_BF16, -1, -1, 90);
        c.pass = ROWS[i].backward ? LATHE_BACKWARD : LATHE_FORWARD;
        c.dim[SYM_ROWS0] = 1;
        c.dim[SYM_ROWS1] = ROWS[i].inner ? 2 : 1;
        c.dim[SYM_ROWS] = ROWS[i].rows;
        c.dim[SYM_N] = ROWS[i].n;
        c.leading = ROWS[i].inner ? 2 : 1;
        c.blocks = ROWS[i].blocks;
        c.beside = ROWS[i].beside;
        case_add(list, &c);
    }
}

/* Parts of strips that blocks hand on to each other: rows that nothing cuts, whose columns are read beside
   starts, and which are cut now and then; what is no number, or infinite, in some segments alone. More groups
   of parts than are looked at together, a part that is not whole, parts that most blocks get none of; several
   strips, the last one narrow. */
static void add_chains(struct case_list *list, bool full)
{
    static const struct {
        const char *name, *text;
    } SPEC[] = {
        {"uncut", SPEC_uncut}, {"weighted", SPEC_weighted}, {"seldom_cut", SPEC_seldom_cut},
        {"ends", SPEC_ends},   {"kept", SPEC_kept},
    };
    static const struct {
        int beside, rows1, rows, n;
        lathe_dtype dtype;
    } SHAPE[] = {{4, 3, 24, 700, LATHE_F16},    {2, 1, 0, 700, LATHE_BF16},    {3, 1, 8, 9000, LATHE_BF16},
                 {5, 1, 136, 2700, LATHE_F32},  {40, 1, 16, 12300, LATHE_F16}, {8, 1, 8, 33, LATHE_BF16},
                 {2, 1, 264, 1025, LATHE_BF16}, {16, 1, 64, 5000, LATHE_F32},  {7, 1, 24, 20000, LATHE_BF16},
                 {1, 1, 8, 4096, LATHE_F16}};
    for (int i = 0; i < COUNT(SPEC) * COUNT(SHAPE) * 2; i++) {
        const int row = i / 2 % COUNT(SHAPE);
        const int spec = i / 2 / COUNT(SHAPE);
        struct test_case c =
            case_of_attention("chains", SPEC[spec].name, SPEC[spec].text, SHAPE[row].dtype, -1, -1, 90);
        c.pass = i % 2 ? LATHE_BACKWARD : LATHE_FORWARD;
        c.dim[SYM_ROWS0] = SHAPE[row].rows1 > 1 ? 2 : 1;
        c.dim[SYM_ROWS1] = SHAPE[row].rows1;
        c.dim[SYM_ROWS] = SHAPE[row].rows;
        c.dim[SYM_N] = SHAPE[row].n;
        c.leading = SHAPE[row].rows1 > 1 ? 3 : 1;
        c.beside = SHAPE[row].beside;
        c.deterministic = true; /* the same bits in every order */
        if (full || row < 7)
            case_add(list, &c);
    }
}

void group_beside(struct case_list *list, bool full)
{
    enum { KERNELS_EACH_TIME = 4, SIZES_EACH_TIME = 2, ROWS_EACH_TIME = 3 };
    for (int i = 0; i < (full ? COUNT(KERNELS) : KERNELS_EACH_TIME); i++)
        add_attention(list, &KERNELS[i], full ? COUNT(SIZES) : SIZES_EACH_TIME);
    add_rows(list, 0, full ? COUNT(ROWS) : ROWS_EACH_TIME);
    add_chains(list, full);
}
