/*
 * members_cases.h: which generated headers emit_members.c looks at, and the contract of each: specs of every
 * kind and pass, with every template.
 */
#ifndef LATHE_TESTS_MEMBERS_CASES_H
#define LATHE_TESTS_MEMBERS_CASES_H

#include "emit_call.h"

struct contract {
    const char *files;    /* of templates/contracts */
    const char *concepts; /* each with what it calls P; of struct variant */
    const char *needs;    /* what else struct variant has; NULL: what the files say */
};

#define MODS      "query_mod key_mod value_mod output_mod"
#define BACK_ROWS " back_row row_site_address"
#define BACKS     " query_back key_back value_back output_back"
static const struct contract FORWARD = {"attention.md", "attention_variant attention_params", MODS};
static const struct contract DECODE = {"attention.md attention_decode.md",
                                       "attention_variant attention_params",
                                       MODS " MASK_BY_HEAD STATES merge"};
static const struct contract SELECTED = {"attention.md attention_selected.md",
                                         "attention_variant attention_params",
                                         MODS " MASK_BY_HEAD STATES merge SELECTED SELECTED_KEYS selected"};
static const struct contract SELECTED_BACK = {"attention.md attention_backward.md attention_selected.md",
                                              "backward_variant back_params",
                                              MODS BACKS BACK_ROWS " SELECTED SELECTED_KEYS selected"};
static const struct contract COMBINE = {
    "attention.md attention_decode.md attention_combine.md", "",
    "head make_head row make_row state init FINALS finish empty_finals store_finals STATES merge output_mod"};
static const struct contract BACKWARD = {"attention.md attention_backward.md", "backward_variant back_params",
                                         MODS BACKS BACK_ROWS};
static const struct contract BACKWARD_SPLIT = {
    "attention.md attention_backward.md", "backward_variant back_params split_backward_variant back_params",
    MODS BACKS BACK_ROWS};
static const struct contract BACKWARD_AGAIN = {
    "attention.md attention_backward.md", "backward_variant back_params attention_variant attention_params",
    MODS BACKS BACK_ROWS};
static const struct contract ROW = {"rowwise.md", "rowwise_variant rowwise_params", ""};
static const struct contract ROWS = {"rowwise.md", "rows_variant rows_params",
                                     "in_types out_types scan_term scatter SCATTER_EXACT"};
static const struct contract MAPS = {"elementwise.md", "", NULL};
static const struct contract LINEAR = {"attention.md linear.md", "linear_variant linear_params", MODS};
static const struct contract LINEAR_BACK = {"attention.md attention_backward.md linear.md",
                                            "linear_variant linear_back_params",
                                            MODS BACKS " SITES SITE_OF SITE_FORM WANTS site site_address"};

struct members_case {
    const struct contract *contract;
    const struct device *device;
    const char *spec;
    lathe_pass pass;
    const char *problem;
    const char *also; /* members that not every text has, and this one */
};

/* A pointer with its strides, and what tells sequences apart. */
#define PLACE(x)   x " " x "_b " x "_h " x "_t "
#define GIVEN_BACK PLACE("linear_back_params.given_q") PLACE("linear_back_params.given_k")
#define SEQUENCES(x)                                                                                         \
    x ".cu_q " x ".cu_q_step " x ".cu_kv " x ".cu_kv_step " x ".used_kv " x ".used_kv_step " x ".enter "
#define F LATHE_FORWARD
#define B LATHE_BACKWARD
static const struct device LISTS = {
    .sm = 90, .sm_count = 132, .smem_bytes = 232448, .arch = "sm_90a", .template_name = "attention_selected"};
static const struct device LISTS_BACK = {.sm = 90,
                                         .sm_count = 132,
                                         .smem_bytes = 232448,
                                         .arch = "sm_90a",
                                         .template_name = "attention_bwd_selected"};
static const struct device H100_DELTA_BACK = {.sm = 90,
                                              .sm_count = 132,
                                              .smem_bytes = 232448,
                                              .arch = "sm_90a",
                                              .template_name = "linear_delta_bwd_sm90"};
static const struct members_case CASES[] = {
    {&FORWARD, &H100, "causal", F, "dtype=bf16,h=2,q=64,d=128",
     "attention_params.tile_counter attention_params.pack " PLACE("attention_params.final0") " variant.kept"},
    {&FORWARD, &H100, "document", F, "dtype=bf16,h=2,q=64,d=128",
     "variant.pass_col variant.MAP_LOOK_HEADS variant.MAP_ROWS variant.MAP_LOOK_COLS variant.BOXES "
     "variant.READS_BY_ROW variant.row_reads variant.col_reads variant.classify_reads"},
    {&FORWARD, &H100, "relative_bias", F, "dtype=f16,h=2,q=64,d=64", ""},
    {&FORWARD, &H100, "alibi", F, "dtype=bf16,h=2,q=64,d=128", ""},
    {&FORWARD, &H100, "rope", F, "dtype=bf16,h=2,q=64,d=128", ""},
    {&FORWARD, &H100, "softcap", F, "dtype=bf16,h=2,q=64,d=128", "variant.CAP_SCALE variant.CAP_FACTOR"},
    {&FORWARD, &H100, "sigmoid", F, "dtype=bf16,h=2,q=64,d=128", ""},
    {&FORWARD, &H100, "sliding_window", F, "dtype=bf16,h=2,q=64,d=128,cu_q=i32,cu_kv=i32",
     SEQUENCES("attention_params")},
    {&FORWARD, &A100, "causal", F, "dtype=bf16,h=2,q=64,d=128", ""},
    {&FORWARD, &A100, "qk_norm", F, "dtype=bf16,h=2,q=64,d=64", ""},
    {&FORWARD, &A100, "qk_norm", F, "dtype=bf16,h=2,q=64,d=64,cu_q=i32,cu_kv=i32",
     "mod_params.of_queries " SEQUENCES("mod_params")},
    {&FORWARD, &A100, "document", F, "dtype=bf16,h=2,q=64,d=128,unaligned=q", "mod_params.src_d"},
    {&DECODE, &H100, "causal", F, "dtype=bf16,h=8,h_kv=2,q=1,kv=8192,d=128",
     "attention_params.part_rows attention_params.parts"},
    {&FORWARD, &A100, "causal", F, "dtype=bf16,h=8,h_kv=2,q=1,d=128,pages=i32",
     "attention_params.pages attention_params.pages_b attention_params.pages_step attention_params.page "
     "attention_params.most_pages attention_params.n_pages"},
    {&BACKWARD, &A100, "mla", B, "dtype=bf16,h=4,h_kv=1,q=64,d=576,d_v=512", ""},
    {&DECODE, &H100, "mla", F, "dtype=bf16,h=128,h_kv=1,q=1,kv=8192,d=576,d_v=512", ""},
    {&DECODE, &A100, "mla", F, "dtype=bf16,h=128,h_kv=1,q=1,kv=8192,d=576,d_v=512", ""},
    {&DECODE, &A100, "alibi", F, "dtype=bf16,h=8,h_kv=2,q=1,kv=8192,d=128,used_kv=i32", ""},
    {&SELECTED, &LISTS, "nsa_selected", F, "dtype=bf16,h=64,h_kv=4,q=64,d=128", ""},
    {&SELECTED_BACK, &LISTS_BACK, "nsa_selected", B, "dtype=bf16,h=64,h_kv=4,q=64,d=128",
     "back_params.tokens list_params.ends list_params.tokens list_params.z list_params.x"},
    {&SELECTED_BACK, &LISTS_BACK, "nsa_selected", B, "dtype=bf16,h=64,h_kv=4,q=64,d=128,cu_q=i32,cu_kv=i32",
     SEQUENCES("list_params")},
    {&FORWARD, &H100, "sinks", F, "dtype=bf16,h=2,q=64,d=128,part_o=f32,part_rows=f32",
     PLACE("attention_params.ends")},
    {&COMBINE, &A100, "sinks", LATHE_COMBINE, "dtype=bf16,parts=3,h=2,q=64,d_v=128",
     PLACE("combine_params.final0")},
    {&COMBINE, &H100, "sigmoid", LATHE_COMBINE, "dtype=f16,parts=3,h=2,q=64,d_v=128", ""},
    {&BACKWARD_SPLIT, &H100, "causal", B, "dtype=bf16,h=2,q=64,d=128",
     PLACE("back_pre_params.q") PLACE("back_pre_params.k")
         PLACE("back_pre_params.final0") "back_pre_params.order back_params.pieces back_mod_params.order "
                                         "variant.SPLIT_POWER variant.given_finals variant.split_finals"},
    {&BACKWARD_SPLIT, &H100, "document", B, "dtype=bf16,h=2,q=64,d=128", "variant.pass_row"},
    {&BACKWARD_SPLIT, &H100, "relative_bias", B, "dtype=f16,h=2,q=64,d=64,dlse=f32",
     "back_pre_params.pieces " PLACE("back_pre_params.dfinal0")},
    {&BACKWARD_SPLIT, &H100, "rope", B, "dtype=bf16,h=2,q=64,d=192", ""},
    {&BACKWARD, &H100, "softmax_one", B, "dtype=bf16,h=2,q=64,d=128,cu_q=i32,cu_kv=i32",
     SEQUENCES("back_pre_params") SEQUENCES("back_params")
         SEQUENCES("back_mod_params") "back_mod_params.of_queries back_mod_params.first"},
    {&BACKWARD, &H100, "tests/emulate/specs/parts.lua", B, "dtype=bf16,h=2,q=64,d=64,unaligned=do",
     PLACE("row_sums_params.final0") PLACE("row_sums_params.rowsum0") PLACE("back_pre_params.state0")
         PLACE("back_pre_params.rowsum0") "back_mod_params.grad_d row_sums_params.dout_d "
                                          "back_pre_params.dout_d variant.ROW_SUMS variant.SUM_ROWS "
                                          "variant.sum_row variant.sum_pair variant.store_sums"},
    {&BACKWARD, &H100, "tests/emulate/specs/smoothed.lua", B, "dtype=bf16,h=2,q=64,d=64,cu_q=i32,cu_kv=i32",
     SEQUENCES("row_sums_params")},
    {&BACKWARD, &H100, "tests/emulate/specs/tables.lua", B, "dtype=bf16,h=2,q=64,d=64",
     "variant.SITE_MEETS variant.SITE_ENTRIES variant.SITE_ROOM variant.site_entries variant.site_index "
     "variant.site_entry"},
    {&BACKWARD, &A100, "sigmoid", B, "dtype=bf16,h=2,q=64,d=128,unaligned=q+do", "back_mod_params.src_d"},
    {&BACKWARD, &A100, "relative_bias", B, "dtype=f16,h=2,q=64,d=64,deterministic=1", ""},
    {&BACKWARD, &A100, "causal", B, "dtype=bf16,h=2,q=64,d=128", ""},
    {&BACKWARD_AGAIN, &A100, "qk_norm", B, "dtype=bf16,h=2,q=64,d=64,o=none", ""},
    {&BACKWARD, &A100, "alibi", B, "dtype=bf16,h=2,q=64,d=64,deterministic=1", ""},
    {&ROW, &H100, "softmax", F, "dtype=bf16,rows=64,n=8192", "variant.REDUCE_RAW"},
    {&ROW, &H100, "layer_norm", F, "dtype=bf16,rows=64,n=8192",
     "rowwise_params.stat0 rowwise_params.stat0_0"},
    {&ROWS, &H100, "rms_norm_residual", F, "dtype=bf16,rows=64,n=1024", ""},
    {&ROWS, &H100, "cross_entropy", F, "dtype=bf16,rows=64,n=65536", "variant.REDUCE_SOME variant.some"},
    {&ROWS, &H100, "rms_norm_gate", F, "dtype=bf16,rows=64,n=8192", "variant.PASS_READS"},
    {&ROWS, &H100, "layer_norm_residual", F, "dtype=bf16,rows=64,n=8192", "variant.REDUCE_VARIANCE"},
    {&ROWS, &H100, "layer_norm_residual", F, "dtype=bf16,rows=64,n=1000", ""},
    {&ROWS, &H100, "layer_norm", B, "dtype=bf16,rows=16384,n=65536", "variant.FIELDS variant.field"},
    {&ROWS, &H100, "cumsum", F, "dtype=bf16,rows=64,n=8192", "variant.SCAN_START_OF"},
    {&ROWS, &H100, "softmax_inner", F, "dtype=bf16,rows=64,n=512", ""},
    {&ROWS, &H100, "logcumsumexp_packed", F, "dtype=bf16,rows=200,n=5000", ""},
    {&ROWS, &H100, "logcumsumexp_packed", B, "dtype=bf16,rows=200,n=5000", "variant.WALK_READS"},
    {&ROWS, &H100, "cumsum_packed", B, "dtype=bf16,rows0=3,rows=200,n=5000", ""},
    {&ROWS, &H100, "log_softmax_inner", B, "dtype=bf16,rows=64,n=512",
     "variant.NORMS variant.NORMS_FIRST variant.has_large variant.add_to_norms variant.take_norms"},
    {&ROWS, &H100, "group_rms_norm", B, "dtype=bf16,rows=64,n=8192,groups_of=8,channels_of=4",
     "variant.CELLS variant.make_cells variant.SCATTER_STEADY variant.KEYS variant.keys"},
    {&ROWS, &H100, "rms_norm", B, "dtype=bf16,rows=64,n=8192", ""},
    {&ROWS, &H100, "l2_norm", B, "dtype=bf16,rows=64,n=128", ""},
    {&ROWS, &H100, "softmax", B, "dtype=f32,rows=64,n=65536", ""},
    {&ROWS, &H100, "topk", F, "dtype=bf16,rows=64,n=512", "variant.OUT_FIRST variant.OUT_FILL"},
    {&ROWS, &H100, "topk", B, "dtype=bf16,rows=64,n=512",
     "variant.IN_FIRST variant.OUT_FIRST variant.OUT_FILL"},
    {&MAPS, &H100, "act_silu", F, "dtype=bf16", "map_params.which map0.whole"},
    {&MAPS, &H100, "rope_half", F, "dtype=bf16", ""},
    {&MAPS, &H100, "adamw", F, "",
     "map_params.lengths map_params.taken map0.lengths map0.taken map0.aligned"},
    {&MAPS, &H100, "lrpe_silu", B, "dtype=f16,theta=f32", "map_params.g3 total0.written total0.place"},
    {&MAPS, &H100, "md_lrpe_2d", B, "dtype=bf16", "map_params.h3 total0.count"},
    {&MAPS, &H100, "embedding", B, "dtype=bf16",
     "map_params.counts map_params.totals map_params.begins map_params.ranks map_params.list "
     "map_params.longs map0.shift map0.target_rows map0.target map0.target_whole map0.sum_of map0.target_row "
     "map0.put"},
    {&LINEAR, &H100, "mamba2", F, "dtype=bf16",
     "linear_params.inverse linear_params.parts linear_params.pieces"},
    {&LINEAR, &H100, "gla", F, "dtype=bf16", "linear_params.parts linear_params.pieces"},
    {&LINEAR, &H100, "rwkv6", F, "dtype=bf16", ""},
    {&LINEAR, &H100, "gla", F, "dtype=f32", ""},
    {&LINEAR, &A100, "kda", F, "dtype=bf16", ""},
    {&LINEAR, &H100, "kda", F, "dtype=f16", ""},
    {&LINEAR, &A100, "gated_delta", F, "dtype=bf16", ""},
    {&LINEAR, &H100, "gated_delta", F, "dtype=bf16",
     "linear_params.parts linear_params.pieces " PLACE("linear_params.given_q")
         PLACE("linear_params.given_k")},
    {&LINEAR, &A100, "delta_rule", F, "dtype=bf16,cu=i32,seqs=3,state=f32,state_out=f32,d=256,d_v=256", ""},
    {&LINEAR_BACK, &H100, "gla", B, "dtype=f16,cu=i32,seqs=3,dstate=f32,state=f32", ""},
    {&LINEAR_BACK, &H100, "mamba2", B, "dtype=bf16",
     "back_mod_params.skip variant.value_back.value variant.output_back.value"},
    {&LINEAR_BACK, &A100, "gated_delta", B, "dtype=f16", "variant.query_back.value variant.key_back.value"},
    {&LINEAR_BACK, &H100_DELTA_BACK, "gated_delta", B, "dtype=bf16,d=64",
     "variant.query_back.value variant.key_back.value linear_back_params.inverse linear_back_params.states "
     "linear_back_params.dstates linear_back_params.written linear_back_params.dwritten "
     "linear_back_params.sums linear_back_params.dbeta " GIVEN_BACK},
    {&LINEAR_BACK, &A100, "gated_delta", B, "dtype=bf16,d=64",
     "variant.query_back.value variant.key_back.value linear_back_params.inverse linear_back_params.states "
     "linear_back_params.dstates linear_back_params.written linear_back_params.dwritten "
     "linear_back_params.sums linear_back_params.dbeta " GIVEN_BACK},
    {&LINEAR_BACK, &H100, "kda", B, "dtype=bf16",
     "linear_back_params.inverse linear_back_params.states linear_back_params.dstates "
     "linear_back_params.written linear_back_params.dwritten linear_back_params.dbeta"},
    {&LINEAR_BACK, &H100, "rwkv6", B, "dtype=bf16", ""},
    {&LINEAR_BACK, &H100, "gla", B, "dtype=bf16,cu=i32,seqs=3,dstate=f32,state=f32",
     "linear_back_params.states linear_back_params.dstates linear_back_params.dv_parts"},
    {&LINEAR_BACK, &A100, "mamba2", B, "dtype=bf16", ""},
    {&LINEAR_BACK, &H100, "linear_elu", B, "dtype=bf16",
     "linear_back_params.divided_out linear_back_params.norms linear_back_params.dnorms"},
    {&LINEAR_BACK, &A100, "linear_elu", B, "dtype=f32", ""},
};
#undef F
#undef B

#endif
