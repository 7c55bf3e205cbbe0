/*
 * kinds.c: the table of kinds. A new kind is a row here, a file for each column that is its own, and rows in
 * plan.c.
 */
#include "kinds.h"

#include "emit.h"
#include "host.h"

static const char *const ATTENTION_SLOTS[] = {"inputs",     "query_mod", "key_mod", "value_mod",
                                              "mask_mod",   "score_mod", "scale",   "online_func",
                                              "output_mod", NULL};
static const char *const ROWWISE_SLOTS[] = {"inputs", "along", "forward", NULL};
static const char *const ELEMENTWISE_SLOTS[] = {"inputs",  "over",    "list", "operands",
                                                "results", "forward", NULL};

const struct kind_row kinds[KIND_COUNT] = {
    [KIND_ATTENTION] = {.name = "attention",
                        .slots = ATTENTION_SLOTS,
                        .trace = trace_attention,
                        .check = check_attention,
                        .sign = sign_attention,
                        .emit = emit_attention,
                        .host_units = host_attention_rows,
                        .host_forward = host_attention_forward},
    [KIND_ROWWISE] = {.name = "rowwise",
                      .slots = ROWWISE_SLOTS,
                      .trace = trace_rowwise,
                      .check = check_rowwise,
                      .sign = sign_rowwise,
                      .emit = emit_rowwise,
                      .host_units = host_rowwise_rows,
                      .host_forward = host_rowwise_forward},
    [KIND_ELEMENTWISE] = {.name = "elementwise",
                          .slots = ELEMENTWISE_SLOTS,
                          .many = true,
                          .trace = trace_elementwise,
                          .check = check_elementwise,
                          .sign = sign_elementwise,
                          .emit = emit_elementwise,
                          .host_units = host_elementwise_units,
                          .host_forward = host_elementwise_forward,
                          .host_backward = host_elementwise_backward},
};
