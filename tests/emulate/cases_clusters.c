/*
 * cases_clusters.c: the matrix of rows that the blocks of a cluster share, on sm_90: of every form that the
 * templates have, with results alone, with rows of several tensors, with column sums, along an inner dim. In:
 * the default or the full run. Out: cases at the end of the list.
 */
#include "cases.h"

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

struct shared_rows {
    const char *spec;
    int n, rows, blocks; /* of clusters; 0: as planned */
    bool inner, backward;
    lathe_dtype dtype;
};

/* Clusters of 2 to 6, 8 and 16; rows whose last vectors some of the blocks lack; more rows than clusters, and
 * fewer. */
static const struct shared_rows ROWS[] = {
    {"softmax", 65536, 3, 2, false, false, LATHE_BF16},
    {"softmax", 131080, 2, 1, false, false, LATHE_F16},
    {"softmax", 262144, 1, 0, false, false, LATHE_BF16},
    {"softmax", 57352, 3, 1, false, true, LATHE_BF16},
    {"log_softmax", 40004, 2, 0, false, false, LATHE_F32},
    {"layer_norm", 65544, 3, 1, false, false, LATHE_BF16},
    {"layer_norm", 49160, 5, 2, false, false, LATHE_BF16},
    {"layer_norm", 16392, 5, 2, false, true, LATHE_BF16},
    {"rms_norm", 49160, 5, 2, false, true, LATHE_BF16},
    {"layer_norm", 33024, 3, 1, false, true, LATHE_F16},
    {"layer_norm", 20004, 2, 1, false, true, LATHE_F32},
    {"layer_norm", 49160, 5, 2, false, true, LATHE_BF16},
    {"layer_norm", 70000, 5, 2, false, true, LATHE_BF16},
    {"layer_norm", 5000, 7, 3, false, true, LATHE_BF16},
    {"layer_norm", 20480, 5, 2, false, true, LATHE_BF16},
    {"layer_norm", 40960, 4, 1, false, true, LATHE_BF16},
    {"layer_norm", 40960, 5, 2, false, false, LATHE_F16},
    {"layer_norm", 24576, 5, 2, false, true, LATHE_BF16},
    {"layer_norm", 45056, 4, 1, false, false, LATHE_BF16},
    {"layer_norm", 81920, 5, 1, false, false, LATHE_F16},
    {"layer_norm", 98304, 5, 1, false, false, LATHE_BF16},
    {"layer_norm", 140000, 4, 1, false, false, LATHE_BF16},
    {"layer_norm", 270000, 3, 1, false, false, LATHE_F16},
    {"layer_norm", 131072, 5, 1, false, true, LATHE_F16},
    {"layer_norm", 140000, 4, 1, false, true, LATHE_BF16},
    {"layer_norm_residual", 73736, 4, 1, false, true, LATHE_BF16},
    {"rms_norm", 140000, 3, 1, false, true, LATHE_BF16},
    {"rms_norm", 65544, 3, 2, false, true, LATHE_BF16},
    {"rms_norm_gate", 131072, 2, 1, false, true, LATHE_BF16},
    {"layer_norm_residual", 70000, 2, 1, false, false, LATHE_BF16},
    {"cross_entropy", 65536, 3, 1, false, false, LATHE_BF16},
    {"cross_entropy", 65544, 3, 0, false, true, LATHE_BF16},
    {"logsumexp", 262144, 2, 1, false, false, LATHE_F16},
    {"softmax_inner", 1030, 70, 1, true, false, LATHE_BF16},
    {"softmax_inner", 4096, 16, 0, true, false, LATHE_BF16},
    {"softmax_inner", 2050, 21, 1, true, true, LATHE_F32},
    {"log_softmax_inner", 9000, 40, 1, true, true, LATHE_F16},
};

void group_clusters(struct case_list *list, bool full)
{
    for (int i = 0; i < COUNT(ROWS) * (full ? 2 : 1); i++) {
        const struct shared_rows *row = &ROWS[i % COUNT(ROWS)];
        struct test_case c = case_of_attention("clusters", row->spec, NULL, row->dtype, -1, -1, 90);
        c.pass = row->backward ? LATHE_BACKWARD : LATHE_FORWARD;
        c.dim[SYM_ROWS0] = 1;
        c.dim[SYM_ROWS1] = row->inner ? 2 : 1;
        c.dim[SYM_ROWS] = row->rows;
        c.dim[SYM_N] = row->n;
        c.leading = row->inner ? 2 : 1;
        c.layout = i < COUNT(ROWS) ? LAYOUT_COMPACT : LAYOUT_PADDED;
        c.blocks = row->blocks;
        case_add(list, &c);
    }
}
