/*
 * kinds.c: the table of kinds. A new kind is a row here, and a folder with columns.h and a file for each
 * column that is its own. Beside them it has its part of struct ir in ir/spec.h, which ir/print.c prints and
 * mark_all of emit/params.c looks through; its parts of struct plan, of its forms and of kernel_request in
 * gen/plan; its constructor in gen/lang; and its rows in tests/rules.sh and CMakeLists.txt.
 */
#include "gen/attention/columns.h"
#include "gen/elementwise/columns.h"
#include "gen/ir/kind.h"
#include "gen/linear/columns.h"
#include "gen/rowwise/columns.h"

static const char *const ATTENTION_SLOTS[] = {"inputs",     "query_mod", "key_mod", "value_mod",
                                              "mask_mod",   "score_mod", "scale",   "online_func",
                                              "output_mod", "v",         "qk2",     NULL};
static const char *const ROWWISE_SLOTS[] = {"inputs", "along", "forward", NULL};
static const char *const ELEMENTWISE_SLOTS[] = {"inputs",  "over",    "list", "operands",
                                                "results", "forward", NULL};
static const char *const LINEAR_FIELDS[] = {"inputs",     "query_mod",  "key_mod", "value_mod",
#define LINEAR_SLOT(ID, name, ...) #name,
#include "gen/ir/linear_slots.def"
#undef LINEAR_SLOT
                                            "normalise",  "causal",     "reverse", "scale",
                                            "output_mod", "read_first", "updates", "query_heads",
                                            NULL};

/* By these, layers of several ranks and layouts tell sequences, pages and parts, whatever the kind. */
#define ARGUMENTS_OF_SEQUENCES                                                                               \
    "cu_q", "cu_kv", "used_kv", "pages", "kv_start", "len_kv", "h_start", "n_h", "cu", "state_index"
static const char *const ATTENTION_ARGUMENTS[] = {ARGUMENTS_OF_SEQUENCES,
                                                  "q2",
                                                  "k2",
                                                  "dq2",
                                                  "dk2",
                                                  "kv_chunk",
                                                  "kv_step",
                                                  "part_o",
                                                  "part_rows",
                                                  "merged_o",
                                                  "merged_rows",
                                                  NULL};
static const char *const NO_ARGUMENTS[] = {NULL};
static const char *const ELEMENTWISE_ARGUMENTS[] = {"lengths", NULL};
static const char *const LINEAR_ARGUMENTS[] = {ARGUMENTS_OF_SEQUENCES,
                                               "state",
                                               "norm",
                                               "dstate",
                                               "dnorm",
                                               "state_out",
                                               "norm_out",
                                               "dstate_out",
                                               "dnorm_out",
                                               "state_out_index",
                                               "states",
                                               "norms",
                                               "states_index",
                                               NULL};
#undef ARGUMENTS_OF_SEQUENCES

const struct kind_row kinds[KIND_COUNT] = {
    [KIND_ATTENTION] = {.name = "attention",
                        .slots = ATTENTION_SLOTS,
                        .arguments = ATTENTION_ARGUMENTS,
                        .operand = "q",
                        .result = "o",
                        .tiles = true,
                        .no_scans = ": keys come in tiles of any order, so nothing is summed along them but "
                                    "what online_fwd reduces (rowsum, rowmax)",
                        .trace = trace_attention,
                        .check = check_attention,
                        .sign = sign_attention,
                        .sign_combine = sign_attention_combine,
                        .lower = attention_lower,
                        .release = attention_release,
                        .templates = attention_templates,
                        .features = attention_features,
                        .explain = attention_explain,
                        .parts = attention_parts,
                        .counting_line = places_counting_line,
                        .variant_includes = "",
                        .row_text = "r.row",
                        .row_leaves = LEAF_ROW0,
                        .positions_end = 0x1p24,
                        .emit = emit_attention,
                        .host_units = host_attention_rows,
                        .host_rows = attention_count_rows,
                        .host_row_work = attention_row_work,
                        .host_forward = host_attention_forward,
                        .host_combine = host_attention_combine,
                        .host_backward = host_attention_backward,
                        .proofs = &attention_proofs},
    [KIND_ROWWISE] = {.name = "rowwise",
                      .slots = ROWWISE_SLOTS,
                      .arguments = NO_ARGUMENTS,
                      .operand = "x",
                      .result = "y",
                      .trace = trace_rowwise,
                      .check = check_rowwise,
                      .sign = sign_rowwise,
                      .lower = rowwise_lower,
                      .release = rowwise_release,
                      .templates = rowwise_templates,
                      .explain = rowwise_explain,
                      .variant_includes = "",
                      .row_text = "v.row",
                      .row_leaves = LEAF_FINAL,
                      .emit = emit_rowwise,
                      .host_units = host_rowwise_rows,
                      .host_rows = rowwise_count_rows,
                      .host_row_work = rowwise_row_work,
                      .host_forward = host_rowwise_forward,
                      .host_backward = host_rowwise_backward,
                      .proofs = &rowwise_proofs},
    [KIND_ELEMENTWISE] = {.name = "elementwise",
                          .slots = ELEMENTWISE_SLOTS,
                          .arguments = ELEMENTWISE_ARGUMENTS,
                          .many = true,
                          .points = true,
                          .no_scans = ": points come in any order",
                          .trace = trace_elementwise,
                          .check = check_elementwise,
                          .sign = sign_elementwise,
                          .lower = elementwise_lower,
                          .release = elementwise_release,
                          .templates = elementwise_templates,
                          .explain = elementwise_explain,
                          .variant_includes = "#include \"elementwise/parts.cuh\"\n",
                          .row_leaves = LEAF_FINAL,
                          .emit = emit_elementwise,
                          .host_units = host_elementwise_units,
                          .host_forward = host_elementwise_forward,
                          .host_backward = host_elementwise_backward,
                          .proofs = &elementwise_proofs},
    [KIND_LINEAR] = {.name = "linear_attention",
                     .slots = LINEAR_FIELDS,
                     .arguments = LINEAR_ARGUMENTS,
                     .operand = "q",
                     .result = "o",
                     .recurrent = true,
                     .no_scans = ": tokens come in chunks, and nothing is summed along them but the state; "
                                 "give the sums as an input",
                     .trace = trace_linear,
                     .check = check_linear,
                     .sign = sign_linear,
                     .lower = linear_lower,
                     .release = linear_release,
                     .templates = linear_templates,
                     .features = linear_features,
                     .explain = linear_explain,
                     .counting_line = linear_counting_line,
                     .variant_includes = "",
                     .row_leaves = LEAF_FINAL,
                     .own_inputs = emit_linear_inputs,
                     .emit = emit_linear,
                     .host_units = host_linear_units,
                     .host_row_work = linear_work,
                     .host_forward = host_linear_forward,
                     .host_backward = host_linear_backward,
                     .proofs = &linear_proofs},
};
