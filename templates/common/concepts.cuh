// common/concepts.cuh: includes the generated headers and checks them against the contract, which is here: what the
// structs of variant.gen.cuh hold, in words and as C++20 concepts. A kernel asserts that of its kind.
#pragma once
#include "common/contract.cuh"
#include "config.gen.cuh"
#include "common/math.cuh"
#include "variant.gen.cuh"

template <class A> struct bare {
    using type = A;
};
template <class A> struct bare<const A> {
    using type = A;
};
template <class A> struct bare<A &> {
    using type = typename bare<A>::type;
};
template <class A, class B>
concept gives = same_type<typename bare<A>::type, B>;

// clang-format off
// A missing slot is one readable error. The numbers of config.gen.cuh and the order of launches: templates/contracts.
// In the words below a pointer of a tensor has strides in elements, NAME_b, _h, _t of batches, heads and tokens (of
// rowwise NAME_0, _1, _2; of states _i, _j), and x, z stand for the inputs and the sizes. Only and where say that a
// member is not always there. Functions whose arguments are not shown have them in the concept. Generated headers may
// use DEV, m_* of common/math.cuh, m_load(base, offset), m_load_columns<V>(base, stride, i, n, out[V]) for columns i ..
// i + V - 1 of a row of n (beyond it: the last one's value), and m_clamp_index(i, n), which keeps a read in its tensor.

// ---- attention ---------------------------------------------------------------------------------------------------

// struct inputs: in_NAME and s0_NAME, s1_NAME ..: data and strides of the inputs of the spec.
// struct attention_params: of LATHE_ENTRY(fwd).
//   q, k, v, o: o is float * where cfg::O_F32. map: tile classes; nullptr unless variant::MAP.
//   tile_counter: sm_90a alone: it counts the query tiles that are taken, whatever it held before. nullptr unless
//     cfg::DYNAMIC.
//   pack: sm_90a alone: so many query heads take turns in the rows of a tile.
//   apart[4]: sm_90a alone, where pages or used_kv without cu_q are given: batches, or pages, of q, k, v, o lie so
//     many of their tokens apart; with `q2` and `k2` of these, too.
//   final0: Where the spec has finals, each has such a group; nullptr means that it is not wanted.
//   ends: Where rows end as parts, this stands in the place of finals: STATES + 1 neighbours of each row. o is then
//     its part.
//   cu_q, cu_kv, used_kv: They are there only where one of them is given (attention/sequences.cuh).
//   pages, page, most_pages, n_pages: They are there only where pages is given, too (attention/key_rows.cuh).
//   enter(first_q, first_kv): only there: to the first tokens of a sequence.
// struct map_params: map, z, x, of LATHE_ENTRY(map).
// struct mod_params: of LATHE_ENTRY(mod_q) and its siblings.
//   src, dst; n_h, len: heads and tokens of this tensor. pos0: position of token 0: q_start for q and o, else 0.
//   of_queries: Only where cu_q, cu_kv, used_kv or pages are given (it is 1 of q and o, 0 of k and v),
//   like cu_q, cu_kv, used_kv and enter(). src_d: only where rows are unaligned, from one element to the next.
// struct pair_params: Where q2 and k2 are copied behind q and k, LATHE_ENTRY(pair_q) and (pair_k) take them; so do
//   (bwd_pair_q) and (bwd_pair_k), which write the gradients that are wanted. first, second, both, also with
//   strides _d;
//   n_h, len: of this tensor; d1: columns of the first, behind which those of the second go.
// struct variant:
//   struct head, make_head(): They are the values of one (b, h).
//   struct row, make_row(): those of one query row, which may be >= len_q; struct col, make_col(): those
//   of one key, likewise.
//   DIAG: One float that depends on at.q - at.kv only is worth sharing. make_diag(); MASKED: there is a mask_mod.
//   live(); first_key(): All live keys of the row lie from this one.
//   last_key(): to this one, which may be beyond len_kv.
//   SCATTERED: Not all keys in between are live, but those for which among() holds. Under MAP_BLOCKS it is asked
//     backward alone. among();
//   SHARED_COLS: A warp finds the values of a column that among() takes once, and its lanes pass them on.
//   pass_col(.., head, from, int kv, int lane): Where SHARED_COLS, all lanes call this at once: it gives the values
//     of column kv, which are `from` of that lane.
//   MAP, MAP_PER_BATCH, MAP_PER_HEAD: Tiles are judged once a launch (gen/attention/tile_map.c), and their classes
//     come from params.map.
//   MAP_BLOCKS: Where MAP: tiles lie within blocks of pairs that live or die together, but for the ends of rows.
//   classify_block(.., int kv0, int kv1): Where MAP_BLOCKS, this is classify() of such a tile, by which kernels know
//     that among() holds.
//   MAP_LOOK_HEADS: Where MAP: its kernel looks at pairs if at least so many heads have one map.
//   MAP_ROWS: Where MAP: a class is of so many queries, BM or, on sm_90a, the 64 of a warpgroup.
//   MAP_LOOK_COLS: Where MAP: each lane looks at the pairs of a column, for what they read lies beside each other.
//   classify(): It tells of rows row0..row1 and keys kv0..kv1, inclusive and within the lengths: TILE_NONE,
//     TILE_SOME or TILE_ALL.
//   READ_RANGES: On sm_90a params.map also holds the ranges of the reads by column, of each key tile.
//   READS: So many integers the mask reads by row or by column, where there is a map. 0: none of the following is
//     there. READS_BY_ROW: bit k: read k is by row.
//   row_reads(x, z, head, row, int *read): Where READS > 0, this gives read[k] of those by row,
//   col_reads(x, z, head, col, int *read): and, where READS > 0, this of those by column.
//   BOXES: Where MAP: so many reads by row and column have indices with ends on a tile.
//   box_reads(.., kv1, int *low, int *high, find): Where BOXES > 0, it calls find(low, high, n0, n1, n2, n3, load)
//     for each of them, whose ranges go behind the others'.
//   classify_reads(.., kv1, int *low, int *high): This is classify() that also knows the range of each read on the
//     tile, and may say TILE_CUT: the live keys of a row are all those between first_key() and last_key(), so nobody
//     has to ask among(). struct state: online_rowscales of one row.
//   init(): Of the four threads of a row one is the leader, which holds the initial values of lazy sums.
//   struct tile: row values of one row and tile. PASSES: passes over the elements of a tile, >= 1. REDUCTIONS;
//   REDUCE_PASS[], REDUCE_OP[]: Passes ascend; operations are RED_SUM, RED_MAX, RED_MIN. There is an entry, unused,
//     also if REDUCTIONS == 0.
//   REDUCE_LAZY[]: The result stays a partial sum of a thread; join() adds up the fields of the state that are made
//     of it.
//   DEAD_ONCE: An element of a dead pair is set to dead() after element<0>, and nothing else is selected. dead();
//   ELEMENT_COLS: element() and operand() look at more of col than kv.
//   begin(): It is called before pass 0. kv0 is the thread's first key; how far its others are from it is known to
//     the compiler.
//   element(): Pass 0 takes the raw product <q, k>, each pass gives what the next one takes, and the last gives the
//     weight. diag is valid in pass 0.
//   LOGISTIC: The last element<P> gives x of the weight 1 / (1 + exp2(x)), and attention/logistic.cuh does the rest.
//   CAPPED: On sm_90a element<0> takes CAP_FACTOR tanh(CAP_SCALE <q, k>) instead of the product
//     (attention/capped.cuh). CAP_SCALE, CAP_FACTOR: only where CAPPED.
//   RELU_WAITS: On sm_90a the last element<P> gives x of the weight max(x, 0), and the conversion to 16 bits does
//     the rest.
//   operand(): It gives what reduction R reduces; e is the result of element<REDUCE_PASS[R]>.
//   update(): It is called after the reductions of pass P; red[R] is the result of reduction R.
//   RESCALE: false: o_scale is 1. o_scale(); next(); KEEPS: there is a `kept`.
//   struct kept: It is for a tile in which the running maximum stays: one pass, and o_scale is 1. It has the names
//     from `tile` to `next` once more. ...;
//   serves(tile, state): It tells of this thread's sums whether that was right; if not, the tile is done anew by the
//     others.
//   join(): sum4(float) adds over the four threads of a row: once at the end, for lazy fields. FINALS;
//   finish(): It gives the factor of o. store_finals(); empty_finals(): of a row without live pairs: -inf for lse.
//   struct query_mod, struct key_mod, struct value_mod, struct output_mod: see below.
// struct attention_params, of parts of rows: LATHE_ENTRY(decode) and LATHE_ENTRY(merge) take the same, without
//   tile_counter and pack, and: ...;
//   part_o: [parts, n_b, n_h, len_q, D_V]: o of each part, ahead of the epilogue.
//   part_rows: It is [parts, n_b, n_h, len_q, STATES + 1]: the row states of a part, and 1 where it has had a live
//     pair, else 0.
//   parts: There are at most 128; how many is a matter of the sizes of tensors alone.
// struct variant, of parts of rows:
//   MASK_BY_HEAD: classify() differs among the query heads of a key head. STATES: of a row: fields of `state`.
//   struct merge: what `combine` reduces of the parts of a row.
//   PASSES, REDUCTIONS, REDUCE_PASS[], REDUCE_OP[]: as those of tiles. red[]: by reduction.
//   operand(): It is called for each part; t has what earlier passes gave.
//   factor(state, merge, x, z): of the part's o. merged(merge, x, z): of all parts. write(state, float *to);
//   read(float *from);
// struct variant, with lists of blocks (attention_selected, attention_bwd_selected); the first also has
// what decode has.
//   SELECTED: entries of a row's list, up to THREADS. SELECTED_KEYS: of a block, a multiple of BN.
//   selected(x, z, head, row, int i0): It gives entry i0, which is a block's number; any other number is no block.
// struct combine_params: of LATHE_ENTRY(combine).
//   part_o: It is [parts, n_b, n_h, len_q, D_V], of any strides but the last.
//   part_rows: It is [parts, n_b, n_h, len_q, STATES + 1], likewise: the states of a part, and 1 if it has had a
//     live pair, else 0. Of a part with 0 nothing else is read. o: o is float * beside cfg::O_F32.
//   parts: at least 1.
//   final0: Where the spec has finals, each has such a group; nullptr means that it is not wanted.
template <class V, class I, class P>
concept attention_variant = requires(const I &x, const P &p, const sizes &z, const typename V::head &head,
                                     const typename V::row &row,
                                     const typename V::col &col, typename V::state &state, typename V::tile &tile,
                                     float e, float *finals,
                                     int i, float (*sum)(float)) {
    p.q; p.k; p.v; p.o; p.map; p.x;
    p.q_b + p.q_h + p.q_t + p.k_b + p.k_h + p.k_t + p.v_b + p.v_h + p.v_t + p.o_b + p.o_h + p.o_t;
    { p.z } -> gives<sizes>;
    V::DIAG && V::MASKED && V::MAP && V::MAP_PER_BATCH && V::MAP_PER_HEAD && V::MAP_BLOCKS && V::RESCALE && V::KEEPS &&
    V::READ_RANGES && V::READS >= 0 && V::REDUCE_LAZY[0];
    V::DEAD_ONCE && V::dead() < e && V::SHARED_COLS;
    static_cast<bool>(V::LOGISTIC && V::RELU_WAITS && V::CAPPED && V::ELEMENT_COLS);
    V::PASSES + V::REDUCTIONS + V::FINALS + V::REDUCE_PASS[0] + V::REDUCE_OP[0];
    { V::make_head(x, z, i, i) } -> gives<typename V::head>;
    { V::make_row(x, z, head, i) } -> gives<typename V::row>;
    { V::make_col(x, z, head, i) } -> gives<typename V::col>;
    { V::make_diag(x, z, head, i) } -> gives<float>;
    { V::live(x, z, head, row, col) } -> gives<bool>;
    { V::first_key(x, z, head, row) } -> gives<int>;
    { V::last_key(x, z, head, row) } -> gives<int>;
    { V::among(x, z, head, row, col) } -> gives<bool>;
    static_cast<int>(V::classify(x, z, head, i, i, i, i));
    { V::init(true) } -> gives<typename V::state>;
    V::begin(tile, state, x, z, head, row, i);
    { V::template element<0>(e, x, z, head, row, col, e, tile) } -> gives<float>;
    requires V::REDUCTIONS == 0 ||
        requires { { V::template operand<0>(e, x, z, head, row, col, e, tile) } -> gives<float>; };
    V::template update<0>(tile, state, finals, x, z, head, row, i);
    { V::o_scale(tile) } -> gives<float>;
    V::next(state, tile);
    V::join(state, sum);
    { V::finish(state, finals, x, z, head, row) } -> gives<float>;
    V::store_finals(p, i, i, i, finals);
    V::empty_finals(finals, x, z, head, row);
};

// ---- linear attention --------------------------------------------------------------------------------------------

// struct linear_params: of LATHE_ENTRY(fwd), (inverse), (prepare), (chunks).
//   q, k, v, o: o is float * in the place of void *, cfg::O_F32.
//   state, state_out: [slots, h, d, d_v]; nullptr: zeros; not wanted.
//   norm, norm_out: They are [slots, h, d], sums of keys, and never one tensor: each block of a head reads norm, and
//     one writes norm_out.
//   cu, state_index: Without cu there is one sequence a batch; without state_index sequence n has slot n. A slot of
//     -1 means that there is no state, and o is 0.
//   slots: states that there are; a slot at or beyond them is none, as -1 is.
//   inverse: It is there only where chunks or steps are taken, with the delta rule: [chunks, n_h, 2, 64, 64]
//     elements, of linear/keyed_delta.cuh [chunks, n_h] times struct prepared. chunk_number of linear/chunk.cuh
//     counts the chunks.
//   given_q, given_k: They are only where `prepare` applies mods: q and k as they were given; nullptr: no mod, or one
//     with a launch of its own. What linear/delta_prepare.cuh makes of them goes to q and k.
//   parts, pieces: They are of linear/additive.cuh (part_layout of additive_tiles.cuh) and linear/delta_sm90.cuh
//     (delta_parts there) alone; and 1, or PIECES of a launch for pieces.
// struct linear_back_params: All launches of the pass take it: LATHE_ENTRY(bwd_inverse), (bwd_prepare),
//   (bwd_states), (bwd_again), (bwd_divisors), (bwd_columns), (bwd_queries), (bwd_keys), (bwd_back), (bwd_chunks),
//   (bwd_bands), (bwd_decay), (bwd_tokens), (bwd_heads), (bwd_values).
//   q, k, v, dout, dq, dk, dv: an unwanted gradient is nullptr. state, dstate_out, dstate; norm, dnorm_out, dnorm;
//   again_o, divided: What follows is the workspace, [b, h, t, ..], each nullptr unless needed: o before its mod; 1
//     / divisor and what flows back to the divisor.
//   errors, dx: the delta rule: what is written before beta, and its gradient; where a reader reads without it, what
//     is read, and its gradient.
//   dq_head, dk_head, dk_read: They are of each head of v: dq, dk, and what of dk comes from reading. In
//     linear_delta_bwd and linear_delta_bwd_sm90 the first two are of each head of k: sums over its heads of v so far.
//   dlog, own: They are the gradient of the logarithms of decays, and with a bonus what the weight of a token's own
//     pair gets: v dout, by its share of a normaliser; without the delta rule the gradient of a writer. Of bands of
//     value channels (BANDS of linear/backward/products.cuh) each has these, dq_head, dk_head, dk_read and dbeta,
//     [bands, b, h, t, ..], and bwd_bands leaves the sums in the first.
//   chunks, ends: They are tiles of states between chunks and at the ends of sequences, of bwd_chunks sums of the ends.
//   reads, writes: of bwd_chunks: q dq and k dk of a token, by slice of channels.
//   inverse, states, dstates: They are there only in linear_delta_bwd, linear_delta_bwd_sm90, linear_keyed_delta_bwd
//     and, but for the first, linear_additive_bwd. Each chunk of each head has T (linear_keyed_delta_bwd: struct
//     prepared), S in front of it and the gradient of that behind it, in 16 bits.
//   written, dwritten: Only in the first three of these: what the state takes up, and its gradient, of each token,
//     or of each chunk by value channel.
//   sums, dbeta: Only there: but for linear_keyed_delta_bwd the sums of each chunk's logarithms to the base 2; the
//     gradient of beta of each token, times beta^2.
//   given_q, given_k: Only in linear_delta_bwd and linear_delta_bwd_sm90: q and k as they were given, where
//     bwd_inverse applies their mods, as in linear_params.
//   dv_parts: Only in linear_additive_bwd: [parts of the key channels, b, h, t, d_v], if there are two parts.
//   divided_out, norms, dnorms: Only there, and with a normaliser: do by the divisors, as v; [chunks, n_h, d], the
//     sum of keys in front of a chunk, and the gradient of that behind it.
//   skip: SKIP: what of dv comes from the output mod. cu;
// struct variant, linear:
//   query_mod, key_mod, value_mod, output_mod: as in attention; vals has t and pos, the place in a sequence.
//   query_back, key_back, value_back, output_back: adjoints, as in attention and here.
//   struct head: b, h, h_kv, of make_head(); struct row: t, pos, of a token, of make_row(). scale();
//   decay(): It is the natural logarithm, <= 0; i is the channel of k or of v, if it varies with that.
//   delta(): beta. bonus();
//   reader(), writer(): Where a spec has them: elements of a and b, of the key's element k (linear/rule.cuh); backward,
//     reader_back(), writer_back(): what the key gets of their gradient.
//   SITES, SITE_OF[], SITE_FORM[], WANTS[]: Only backward: reads of inputs with gradients, in which function each
//     is, and whether a function has any. SITE_ADDS[]: whether an earlier site, or the adjoint
//     of the output mod, has written to the element. SITE_GROUPED[]: whether heads of v of one head of k read the same.
//   site(x, z, head, row, int i, float seed): Only backward. site_address(): Only backward.
// struct back_mod_params, linear:
//   skip: only here: that of linear_back_params.
// struct query_back, linear:
//   value(float a, float b, float da, float db, int i, ...): Of a stage S of an output mod that reads v: what v gets.
template <class V, class I>
concept linear_variant = requires(const I &x, const sizes &z, const typename V::head &head, const typename V::row &row,
                                  int i) {
    { V::make_head(x, z, i, i) } -> gives<typename V::head>;
    { V::make_row(x, z, head, i, i) } -> gives<typename V::row>;
    { V::scale(x, z, head) } -> gives<float>;
    { V::decay(x, z, head, row, i) } -> gives<float>;
    { V::delta(x, z, head, row) } -> gives<float>;
    { V::bonus(x, z, head, i) } -> gives<float>;
};

// ---- attention, backward -----------------------------------------------------------------------------------------

// struct grads: d_NAME and s0_NAME, s1_NAME .., of type grad_sum *; nullptr: not wanted.
// struct back_sum_params: src, dst, strides s0 .. s3, sizes n0 .. n3 (1 of dims that are not used). grad_sum stands for
//   float, the gradient itself. Under DETERMINISTIC, if more than one pair may add to an element, it stands for
//   exact_sum (common/contract.cuh) of 48 bytes, compact and zeroed in the workspace: sums of floats without rounding,
//   whose order does not matter.
//   bwd_sum then writes the gradient, and bwd_zero is not launched.
// struct back_zero_params: dst, s0 .. s3, n0 .. n3, likewise.
// struct back_pre_params;
//   o, dout, dout_copy: o is nullptr unless variant::DELTA or EMPTY_BY_O. dout_copy is nullptr, or compact
//     [b][h][len_q][D_V] of type element_o.
//   rows: It is [variant::BACK_ROWS][b][h][ceil(len_q / BACK_BM) BACK_BM]; with variant::NORM there is one plane
//     more, of norms, and on sm_90 behind it a record of 16 bytes for each 64 rows (norm_record of
//     attention/backward/parts.cuh). order: only where BACK_DQ_STORED: that of back_params.
//   pieces: only where BACK_PIECES > 0: the same. q, k: only where LATHE_SPLITS: with their strides.
//   final0, dfinal0, state0, rowsum0: They are there only where variant::back_row or given_finals reads them:
//     finals, their seeds, states, sums of bwd_rows.
//   cu_q, cu_kv, used_kv: Only where cu_q, cu_kv or used_kv is given, as in attention_params (and in
//     row_sums_params, back_params and back_mod_params): enter(first_q, first_kv);
// struct row_sums_params: of bwd_rows.
//   q, k, v, dout: Rows of q', k' and v' start at multiples of 16 bytes; those of do' may be anywhere.
//   final0, rowsum0: The first is there only where sum_row reads it, the second only where store_sums leaves a sum
//     there. cu_q, cu_kv, used_kv: Only where sequences are given: enter(first_q, first_kv);
// struct back_params;
//   q, k, v, dout: q', k', v', do': rows start at multiples of 16 bytes.
//   rows, dq: dq is zeroed unless BACK_DQ_STORED: [b][h][ceil(len_q / BACK_BM)][BACK_BM BACK_D] in the order of
//     fragments (attention/backward/parts.cuh), without ds_factor. It is nullptr unless WANT_DQ.
//   dk, dv: rows may be unaligned.
//   map: It has lists of query tiles (attention/backward/scheduler.cuh), and is nullptr unless variant::MAP.
//   tokens: only of attention_bwd_selected, whose map are ends (below).
//   order: It has words of tiles (attention/backward/parts.cuh): under BACK_DQ_STORED [3] (BACK_PAIRED:
//     [4])[b][h][ceil(len_q / BACK_BM)], zeroed by bwd_pre, or of sequences a count and [tile][2], zeroed before;
//     else under DETERMINISTIC [2]..., zeroed; else it is nullptr.
//   pieces: It is there only on sm_90a. With BACK_PIECES > 0 it has a count for each place and warp, zeroed by
//     bwd_pre, and [BACK_PIECES][BACK_BN (D + D_V)]; else it is nullptr.
//   cu_q, cu_kv, used_kv: Only where sequences are given: enter(first_q, first_kv);
// struct back_mod_params: bwd_q, bwd_k and bwd_v take src of the type of their tensor (nullptr without stages), grad of
//   type float (that of bwd_q is dq of back_params), and give dst of the tensor's type. bwd_o takes src of type float
//   (o') and grad of type element_o, and gives dst of that type. order: only of attention.
//   src, grad, dst: what entered the mod; dL/d(what left it); dL/d(what entered it). len, pos0;
//   of_queries, first: Only where sequences are given (of_queries as in mod_params; enter() sets first, where src
//     and grad begin): cu_q, cu_kv, used_kv; enter(first_q, first_kv);
// struct page_params: of pages_in, of forward passes too, pages_find and pages_out: attention/pages.cuh tells of it.
// struct variant, backward: head, row, col, MASKED, live, first_key .. among, MAP.., classify are those of the
// forward pass;
//   if `fwd` is launched, state .. empty_finals are there, too. BACK_DIAG, make_back_diag();
//   DELTA: bwd_pre must compute delta (else it passes 0).
//   EMPTY_BY_O: There are row sites, so bwd_pre must say whether the row of o is all zeros (or EMPTY_ROW).
//   BACK_ROWS: floats of a row that pair() reads; 0: bwd_pre computes none.
//   ROW_SITES: sites that a row adds to once, in bwd_pre. ROW_SITE_FORM[]: SITE_HEAD or SITE_ROW.
//   NORM: The kernel multiplies weights by a value of the row that is 1 unless its finals are large: it is
//     out[BACK_ROWS] of back_row and b[BACK_ROWS] of pair. weight() leaves it out.
//   SPLIT_POWER[]: Where LATHE_SPLITS (of config.gen.cuh) says so, so many finals may be large: then the slots of
//     the online function up to join are there, too, and those up to back_row: of each: norm = exp(power * (final -
//     high)).
//   given_finals(PARAMS, head, row, float *final /* [LATHE_SPLITS] */);
//   split_finals(state, x, z, head, row, float *high, float *norm): Where LATHE_SPLITS, it is called for a finished
//     row, and back_row and sum_row take `const float *high, const float *norm` ahead of out.
//   back_row(back_pre_params, head, row, float delta, bool zero, float *out /* [BACK_ROWS] */, float *site /*
//     [ROW_SITES] */): One thread calls it for an existing row. zero says that o is 0 there. Row sites are 0 for a
//     row without live pairs.
//   row_site_address(): It gives nullptr for a gradient that is not wanted.
//   ROW_SUMS, SUM_ROWS: They are there where bwd_rows is launched: sums of a row, and floats of a row that
//     sum_pair() reads.
//   sum_row(row_sums_params, head, row, float *out /* [SUM_ROWS] */);
//   sum_pair(float e, float dw, x, z, head, row, col, float *b, float *sum /* [ROW_SUMS] */);
//   store_sums(row_sums_params, int b, int h, int row, float *sum); SITES: sites of a pair.
//   SITE_FORM[]: SITE_HEAD, SITE_ROW, SITE_COLUMN, SITE_DIAGONAL or SITE_ELEMENT tells what the address depends on.
//     There is at least one entry.
//   pair(): e is <q', k'>, dw is <do', v'>, b has the floats of the row, diag is make_back_diag(at.q - at.kv) if
//     BACK_DIAG. w is the weight (of v' for dv'), and ds is of e, without ds_factor. The kernel makes all of them 0,
//     by selection, for dead pairs.
//   SHARED_ROWS: A warp finds the values of a row that live() takes once, and its lanes pass them on (sm_90a alone).
//   row pass_row(.., head, from, int row, int lane): Where SHARED_ROWS, all lanes call this at once: it gives the
//     values of that row, which are `from` of that lane.
//   WEIGHT_READS, SLOPE_READS: In attention_bwd_sm90 pair() is two steps, the second of the weight as it was
//     rounded, or if SITES > 0 as it is. bit k: the step reads b[k]. WEIGHT_DIAG, SLOPE_DIAG: and diag. weight();
//   slope();
//   SITE_MEETS[]: Optional, where lanes of a warp may add to the same element at once (SITE_ELEMENT or SITE_ROW at
//     computed places): of each site.
//   SITE_ENTRIES[]: The pairs of one head may add to so many elements. 0: site_entries() tells.
//   SITE_ROOM[]: floats that a warp has in shared memory for the site's sums; 0: none.
//   site_entries(x, z);
//   site_index(x, z, head, row, col, int delta): It gives 0 .. site_entries() - 1,
//   site_entry(grads, x, z, head, int i): and this the place of that number.
//   site_address(): A form reads what it depends on and nothing else, which may be uninitialised: DIAGONAL delta =
//     at.q - at.kv, COLUMN col, ROW row. nullptr means that the gradient is not wanted.
//   ds_factor(): the same for all query heads of a key head.
//   query_back = no_back, struct key_back, value_back, output_back;
// struct query_back: It stands beside struct query_mod, whose output<S> gives what enters stage S + 1.
//   PRESENT: its kernel runs. Without stages (of a query) it scales and converts.
//   STAGES, FORM[], PASSES[], REDUCTIONS[]: these as in a vector mod.
//   struct head, struct vals, make_head(), begin(), reduce_pass(), reduce_op(); operand(); update();
//   output(): da and db come in as gradients of what leaves the stage, and leave as those of a and b.
//   sites(): of stage S.
//   site_stores(int site): The site is the only read of its element, so that its gradient is stored.
//   site_form(int site): SITE_HEAD, SITE_ROW (a value per token, once), SITE_DIM (an address for each i), SITE_ELEMENT.
//   site(float a, float b, float da, float db, int i, (the same)): Of forms HEAD and ROW it
//     is the same for all i, and added once a token. site_address();
// struct list_params: of bwd_lists.
//   ends: It is [b][h_kv][ceil(len_q / LIST_RANGE)][ceil(len_kv / SELECTED_KEYS)]: where the list of a block of keys
//     ends.
//   tokens: It is [b][h_kv][ceil(len_q / LIST_RANGE)][LIST_RANGE SELECTED]: the tokens of the range, list after
//     list. cu_q, cu_kv, used_kv: Only where sequences are given: enter(first_q, first_kv);
template <class V, class I, class P, class G>
concept backward_variant = requires(const I &x, const P &p, const G &g, const sizes &z, const typename V::head &head,
                                    const typename V::row &row,
                                    const typename V::col &col, float e, float *floats, int i) {
    p.q; p.k; p.v; p.dout; p.rows; p.dq; p.dk; p.dv; p.map; p.order; p.x; p.g;
    p.q_b + p.q_h + p.q_t + p.k_b + p.k_h + p.k_t + p.v_b + p.v_h + p.v_t + p.dout_b + p.dout_h + p.dout_t + p.dk_b +
    p.dk_h + p.dk_t + p.dv_b +
        p.dv_h + p.dv_t;
    { p.z } -> gives<sizes>;
    V::BACK_DIAG && V::MASKED && V::MAP && V::MAP_PER_BATCH && V::MAP_PER_HEAD && V::MAP_BLOCKS && V::DELTA &&
    V::EMPTY_BY_O;
    V::SHARED_ROWS || true;
    V::BACK_ROWS + V::SITES + V::ROW_SITES + V::SITE_FORM[0] + V::ROW_SITE_FORM[0];
    V::NORM || true;
    { V::make_head(x, z, i, i) } -> gives<typename V::head>;
    { V::make_row(x, z, head, i) } -> gives<typename V::row>;
    { V::make_col(x, z, head, i) } -> gives<typename V::col>;
    { V::make_back_diag(x, z, head, i) } -> gives<float>;
    { V::live(x, z, head, row, col) } -> gives<bool>;
    { V::first_key(x, z, head, row) } -> gives<int>;
    { V::last_key(x, z, head, row) } -> gives<int>;
    requires !V::SCATTERED || requires { { V::among(x, z, head, row, col) } -> gives<bool>; };
    static_cast<int>(V::classify(x, z, head, i, i, i, i));
    V::pair(e, e, x, z, head, row, col, e, floats, *floats, *floats, floats);
    requires V::SITES == 0 || requires { V::template site_address<0>(g, x, z, head, row, col, i); };
    requires V::ROW_SITES == 0 || requires { V::template row_site_address<0>(g, x, z, head, row); };
    { V::ds_factor(x, z, head) } -> gives<float>;
};

// What attention_bwd_sm90 wants beside: pair() in two steps.
template <class V, class I>
concept split_backward_variant = requires(const I &x, const sizes &z, const typename V::head &head,
                                          const typename V::row &row,
                                          const typename V::col &col, float e, float *floats) {
    V::WEIGHT_READS | V::SLOPE_READS;
    V::WEIGHT_DIAG || V::SLOPE_DIAG;
    { V::weight(e, x, z, head, row, col, e, floats) } -> gives<float>;
    V::slope(e, e, e, x, z, head, row, col, e, floats, *floats, floats);
};

// ---- mods of q, k, v and o ---------------------------------------------------------------------------------------

// struct query_mod;
//   PRESENT: Its kernel runs; without stages it copies rows to aligned places. If it does not run, query_mod is
//     no_mod.
//   ROW: Where a head dim is no multiple of 8, it is this one: rows are copied to cfg::D or cfg::D_V elements,
//     STAGES is 0. STAGES;
//   FORM[], PASSES[]: Each stage has a form, FORM_ELEMENT, FORM_HALF or FORM_INTERLEAVED, and so many passes that
//     reduce. REDUCTIONS[]: per stage. reduce_pass(), reduce_op();
//   struct head, make_head(): h is the head of this tensor (h_kv for key and value). struct vals: per token.
//   begin(); operand(): b is the pair's other half, i is at.i. update(); output();
// A mod with stages on pairs of the first elements alone also has PAIRED: of how many, for each stage; 0: of all.
template <class M, class I>
concept vector_mod = requires(const I &x, const sizes &z, const typename M::head &head, typename M::vals &vals,
                              float a, float *red, int i) {
    requires M::STAGES == 0 || requires {
        M::FORM[0] + M::PASSES[0] + M::REDUCTIONS[0];
        { M::make_head(x, z, i, i) } -> gives<typename M::head>;
        M::template begin<0>(vals, x, z, head, i, i);
        M::template output<0>(a, a, i, x, z, head, vals);
        requires M::REDUCTIONS[0] == 0 || requires {
            M::template reduce_pass<0>(0) + M::template reduce_op<0>(0);
            { M::template operand<0, 0>(a, a, i, x, z, head, vals) } -> gives<float>;
            M::template update<0, 0>(vals, red, x, z, head);
        };
    };
};

// ---- elementwise: compute() and its like are asked for by elementwise/*.cuh -----------------------------------

// struct map_params: of LATHE_ENTRY(points) and LATHE_ENTRY(sum).
//   z0: of each map: its sizes.
//   t0: Each tensor that is used has its data and strides by dim of its map (scattered: of the input).
//   slots0: Only a result with a slot has it: how many slots there are. Their stride is t0's of the first dim of the
//     slot's operand. lengths: only of lists: of their tensors. taken: only of lists: a word for each map, zeroed.
//   g3: only of each sum: the parts; of each scatter: zeros to add to. h3: only of each scatter: its sizes.
//   which: It tells the kernel sum which sum is meant; where map_arguments is another struct, it alone has it.
// struct map_arguments: what the kernels take. It is
//   map_params, or, of maps that differ in nothing but tensors and sizes (gen/elementwise/alike.c), it has a part
//   for each map; then map_params has references to those of one of them, and map0 serves all.
//   params_of(map_arguments, int k): of the k-th of the maps that are alike.
// struct map0: variant_map<0>, ...
//   DIMS, LOOP, OUTER: A thread goes along the dim LOOP, and sums are carried on along OUTER around it. -1: there is
//     none.
//   FLAT, LIST: FLAT: one long line would do, if all tensors are compact. sizes(map_params);
//   whole(map_params): where not LIST: vectors may be used.
//   aligned(bases): where LIST: the same, of one tensor of each list.
//   lengths(map_params); unsigned *taken(map_params): Where LIST, these are of the tensors, and of the tiles that
//     blocks have taken, 0 at first. struct bases;
//   locate(bases, map_params, space, point);
//   advance(bases, map_params, space, int steps);
//   struct head, make_head(): the values of an item,
//   struct fixed, make_fixed(): those of its lanes (W is V or 1) for all turns, struct col: and those for one turn.
//   make_cols(); struct held;
//   load(held<W> &, map_params, bases, point, head, int u): It loads step u from that
//     point on: operands, and lines of inputs at computed places.
//   struct sums, struct totals: what is added up: per line, per item.
//   clear(sums<W> &), leave(sums<W> &, map_params, space, point);
//   clear_totals(totals), leave_totals(totals, map_params, space, point, unsigned tile, scratch);
//   self = map0, struct row: its own: compute() has a row of them for each lane.
//   compute(map_params, space, bases, point, int u, head, fixed (&)[W], col (&)[W],
//     held<W> &, sums<W> &, totals): It stores, too.
// struct total0: variant_sum<0>, ...: of a sum or scatter.
//   map = map0;
//   SCATTERED, KEPT, PLANES: KEPT has a bit for each dim that it has; PLANES is 2 for pairs.
//   i64 count(map_params): where SCATTERED: elements.
//   written(map_params, space): Where not SCATTERED, it tells whether the points have stored the sums themselves,
//   i64 place(map_params, space, i64 kept): and, where not SCATTERED, this the place of a sum in its tensor.
//   parts(map_params); store(map_params, space, i64 kept, int plane, float sum);
// struct variant, of maps: MAPS, ALIKE, SUMS; ALIKE: maps that MAP 0 stands for.
// struct map0, of elementwise_gather:
//   target_row(map_params, i64 row): Only there: a row of the gradient.
//   i64 target_rows(map_params), target(map_params, point): The gradient has so many rows, and a line of points adds
//     to that one.
//   target_whole(map_params): It tells whether its rows may be written in vectors.
//   sum_of(sums<W> &); shift(bases, i64 points): shift goes along a line of adjacent elements.
//   put(element *row, map_params, i64 first, sums<W> &);
// struct map_params, of elementwise_gather: words of the workspace.
//   counts: Only there: of the rows. begins: two words: where a row's lines are, how many.
//   totals: [2]: lines that have a place, rows of many lines. ranks, list, longs;

// ---- rows --------------------------------------------------------------------------------------------------------

// struct rows_params: of LATHE_ENTRY(rows) and (columns).
//   in[IN], out[OUT]: They are tensors of rows (common/contract.cuh), at least one entry each.
//   given[...], kept[KEPT]: f32, one per row: statistics and seeds; gradients.
//   columns, sums, values: They are workspace: [part][COLUMNS][n], [part][SUMS] and struct vals [row]. A part is of
//     a block or of a cluster; columns of rows that are read again have COLUMN_PARTS of them. In rowwise_inner_scan
//     with LOOKBACK_THREADS > 0 values has 16 bytes, then 8 for each row [strip][group][part of it, group][row].
//   carries: It is workspace: [block][chunk][SCANS][row of the block], 12 bytes that tell how far walks had come. In
//     rowwise_inner_scan it is [warp of the grid or strip][slot][scan of a walk but the last][sum, power, or the
//     logarithm of both][row], floats, behind a slot that begins with what rowwise_inner has with CLUSTER > 1 and
//     rowwise_inner_scan with PART > 0: 8 bytes that nobody clears, which count the strips or parts that are taken
//     (common/work_counter.cuh).
//   scatter[...]: They are workspace, zeroed: gradients that are added up by atomics.
// struct rows_sum_params: LATHE_ENTRY(sum) takes it.
//   columns, sums, scattered[...], grad[GRADS];
// struct variant, of rows:
//   IN, OUT, KEPT;
//   in_types = type_list<bf16, bf16>, out_types = type_list<bf16>;
//   IN_FIRST[], OUT_FIRST[], OUT_FILL[]: Optional, of rowwise beside ranks: tensors that have so many
//     elements of each row and no more, 0: all. OUT_FILL has, as bits, what those of OUT are behind them. An OUT of
//     int gets its bits from output(), as __int_as_float.
//   COLUMNS, SUMS, SITES, GRADS: SITES is COLUMNS + SUMS + SCATTERS; sites of a gradient are neighbours.
//   SITE_GRAD[], SITE_SLOT[]: A site has its gradient and its number among the sites of its form. A scattered one
//     has the number of its scatter[], or -1: an earlier site's, whose sum has this one's.
//   SITE_COLUMN[], SITE_SCATTERED[]; GRAD_DIMS: dims of the gradient that has most.
//   SUM_SHARES, SUM_ROUND: Of LATHE_ENTRY(sum) so many threads, a power of two, have the same columns, and so many
//     loads of one are under way at once.
//   struct head, make_head(); struct col: values of one column. COLS: col is not empty.
//   REDUCE_COLS: operand() reads col. false saves a quarter of the compile time.
//   make_cols(): It makes columns i .. i + V - 1; beyond n they may have any value. struct vals: of one row.
//   CELLS: Optional: so many members of col depend on the row, too, and make_cells fills them in,
//   make_cells(x, z, head, vals, col (&c)[V]): behind make_cols. There are no scans beside them.
//   REDUCE_SOME[]: optional: few vectors add to the reduction.
//   some(int i, int n, x, z, head, vals): Optional: it tells whether elements i .. i + n - 1 may.
//   REDUCE_RAW[]: Optional: it is the tensor whose elements themselves are compared. -1: there is no such reduction.
//   FIELDS: With cfg::COLS_PACKED col has so many members, which field() finds by number.
//   field(col); begin();
//   NORMS: Optional: vals has float norm[NORMS], which are 1 unless something else is said.
//   NORMS_FIRST: whether operands of the first pass need them.
//   has_large(vals): whether a row must be added up once more.
//   add_to_norms(float *e, int i, x, z, head, vals, float *sum): It adds what is of an element,
//   take_norms(vals, float *sum, rows_params, head, row_at): and this takes the sums (rowwise/norms.cuh).
//   PASSES, REDUCTIONS, REDUCE_PASS[], REDUCE_OP[]; operand(): e[k] is the element of tensor k.
//   PASS_READS[]: Optional, where every pass reads rows again: the tensors that each is made of, as bits.
//   REDUCE_VARIANCE[]: Optional, of full rows of rowwise_staged, and of rowwise that are read again: this
//     reduction adds up squared distances from the mean of that one, of the same pass. Its operand is that one's.
//     -1: there is no such reduction. update();
//   SCANS, WALKS, CHUNK: Scans run along the row, in segments; a block has CHUNK elements at once.
//   SCAN_FORM[], SCAN_WALK[]: They tell what a scan gives (enum scan_form), and in which walk; walks ascend.
//   SCAN_STARTS[]: Segments begin nowhere (0, and scan_term leaves `start` false), at columns that say so (1) or
//     anywhere (2). SCAN_RANK, SCAN_PLACED and SCAN_TAKEN are made of the whole row at once: in rowwise,
//     with rows in registers and THREADS * PER_THREAD <= 8192.
//   SCAN_START_OF[]: Where SCANS > 0, it is the first scan whose segments begin where those of this one do.
//   COLS_BESIDE_STARTS: Formulas of elements read columns, and not for the beginnings of segments alone.
//   SCAN_BESIDE[]: A weighted scan has the logarithmic one of an earlier walk whose values, negated, its powers are
//     and whose elements its shifts are. -1: there is none. WALK_REVERSE[];
//   WALK_READS[]: Where WALKS > 1: the tensors that the scans up to each walk are made of, as bits.
//   scan_term(float *e, int i, inputs, ..., col, vals, float *q, to): It makes an element of the
//     scans q[0 .. S - 1].
//   output(): Its arrays are q[SCANS], y[OUT] and site[COLUMNS].
//   SCATTERS, SCATTER_TO[]: So many sites are at computed indices, and each adds to that scatter[].
//   SCATTER_STEADY[]: Optional: from one column to the next the place moves by 1 at most, and never back.
//   SCATTER_EXACT: scatter[] holds exact_sum and not float: the same bits whatever the order.
//   scatter(float *e, int i, inputs, ..., col, vals, float *q, scatter_target, value, long place);
//   keep_row(): It writes to[KEPT], sums(): and this to[SUMS].
//   KEYS: Optional, for rowwise_staged: rows with equal keys read cells and add to scatters at the same places.
//   keys(x, z, head, vals, int *to): They are known after begin().
//   column_of(): It tells which column's sum (0: the sum) goes to an element of the gradient, `last` of line `outer`
//     along its last dim. -1: site S adds nothing there.
template <class V, class I, class P>
concept rows_variant = requires(const I &x, const P &p, const row_sizes &z, const row_at &at, const row_gradient &g,
                                const typename V::head &head,
                                const typename V::col &col, typename V::col (&cols)[4], typename V::vals &vals,
                                const float (&e)[V::IN > 0 ? V::IN : 1],
                                float (&y)[V::OUT > 0 ? V::OUT : 1], float (&site)[V::COLUMNS > 0 ? V::COLUMNS : 1],
                                float *red, int i) {
    p.in[0].data; p.out[0].data; p.kept[0].data; p.columns; p.sums; p.values; p.x;
    { p.z } -> gives<row_sizes>;
    V::COLS && V::REDUCE_COLS && V::PASSES + V::REDUCTIONS + V::REDUCE_PASS[0] + V::REDUCE_OP[0];
    V::IN + V::OUT + V::KEPT + V::COLUMNS + V::SUMS + V::SITES + V::GRADS + V::SITE_GRAD[0] + V::SITE_SLOT[0] +
    V::SITE_COLUMN[0] + V::SITE_SCATTERED[0] + V::GRAD_DIMS + V::SUM_SHARES + V::SUM_ROUND;
    V::SCATTERS + V::SCATTER_TO[0]; p.scatter[0].n[0];
    { V::make_head(x, z) } -> gives<typename V::head>;
    V::template make_cols<4>(x, z, head, i, cols);
    V::begin(vals, p, head, at);
    requires V::REDUCTIONS == 0 ||
        requires { { V::template operand<0>(e, i, x, z, head, col, vals) } -> gives<float>; };
    requires V::PASSES == 0 || requires { V::template update<0>(vals, red, x, z, head); };
    V::output(e, i, x, z, head, col, vals, e, y, site);
    V::SCANS + V::WALKS + V::CHUNK + V::SCAN_FORM[0] + V::SCAN_WALK[0] + V::SCAN_STARTS[0] + V::SCAN_BESIDE[0] +
    V::COLS_BESIDE_STARTS + V::WALK_REVERSE[0];
    V::sums(x, z, head, vals, red);
    V::keep_row(x, z, head, vals, red);
    { V::template column_of<0>(g, x, z, head, 0ll, 0ll) } -> gives<int>;
};
// clang-format on

// ---- what a row-wise variant may leave out ----------------------------------------------------------

// Values of columns that depend on the row, too.
template <class VARIANT, int V> DEV void fill_cells(const inputs &x, const row_sizes &z,
                                                    const typename VARIANT::head &head,
                                                    const typename VARIANT::vals &vals, typename VARIANT::col (&c)[V])
{
    if constexpr (requires { VARIANT::CELLS; }) {
        VARIANT::template make_cells<V>(x, z, head, vals, c);
    }
}
// Values of columns that two to a register lose nothing: all fields of col came from tensors of cfg::element. 0: not,
// or it is not asked for.
template <class VARIANT> __host__ __device__ constexpr int fields_of()
{
    if constexpr (requires { VARIANT::FIELDS; }) {
        return VARIANT::FIELDS;
    } else {
        return 0;
    }
}
template <class VARIANT> __host__ __device__ constexpr bool has_cells()
{
    return requires { VARIANT::CELLS; };
}
// Rows have places: what they read, and add to, of inputs at computed indices is told by the column and by
// the row's KEYS.
template <class VARIANT> __host__ __device__ constexpr bool has_places()
{
    return requires { VARIANT::KEYS; };
}
// Whether the places of scatter K never fall along a row, or never rise, by more than 1 from one column to the next.
template <class VARIANT, int K> __host__ __device__ constexpr bool is_steady()
{
    if constexpr (requires { VARIANT::SCATTER_STEADY[K]; }) {
        return VARIANT::SCATTER_STEADY[K];
    } else {
        return false;
    }
}
// Tensors of which pass P reduces something, as bits.
template <class VARIANT, int P> __host__ __device__ constexpr int reads_of_pass()
{
    if constexpr (requires { VARIANT::PASS_READS[P]; }) {
        return VARIANT::PASS_READS[P];
    } else {
        return -1;
    }
}
// Of tensor K that is read or written: it has so many elements of each row; 0: all.
template <class VARIANT, int K> __host__ __device__ constexpr int first_of_in()
{
    if constexpr (requires { VARIANT::IN_FIRST[K]; }) {
        return VARIANT::IN_FIRST[K];
    } else {
        return 0;
    }
}
template <class VARIANT, int K> __host__ __device__ constexpr int first_of_out()
{
    if constexpr (requires { VARIANT::OUT_FIRST[K]; }) {
        return VARIANT::OUT_FIRST[K];
    } else {
        return 0;
    }
}
// The bits of what those elements are that a row is too short for.
template <class VARIANT, int K> __host__ __device__ constexpr int fill_of_out()
{
    if constexpr (requires { VARIANT::OUT_FILL[K]; }) {
        return VARIANT::OUT_FILL[K];
    } else {
        return 0;
    }
}
// The tensor whose elements themselves reduction R compares; -1: another reduction.
template <class VARIANT, int R> __host__ __device__ constexpr int compared_tensor()
{
    if constexpr (requires { VARIANT::REDUCE_RAW[R]; }) {
        return VARIANT::REDUCE_RAW[R];
    } else {
        return -1;
    }
}
// The reduction that adds up the elements from whose mean reduction R, a later one of the same pass, adds up
// squared distances;
// -1: another reduction. Rows are full then.
template <class VARIANT, int R> __host__ __device__ constexpr int spread_about()
{
    if constexpr (requires { VARIANT::REDUCE_VARIANCE[R]; }) {
        return VARIANT::REDUCE_VARIANCE[R];
    } else {
        return -1;
    }
}
template <class VARIANT> __host__ __device__ constexpr bool has_spreads()
{
    return requires { VARIANT::REDUCE_VARIANCE[0]; };
}
// Of reduction R, that reduction; -1: there is none.
template <class VARIANT, int R> __host__ __device__ constexpr int variance_beside()
{
    int of = -1;
    if constexpr (requires { VARIANT::REDUCE_VARIANCE[R]; }) {
        for (int k = 0; k < VARIANT::REDUCTIONS; k++) {
            of = VARIANT::REDUCE_VARIANCE[k] == R ? k : of;
        }
    }
    return of;
}
// Whether few vectors add to reduction R, and whether that of n elements from i on may.
template <class VARIANT, int R> __host__ __device__ constexpr bool adds_seldom()
{
    if constexpr (requires { VARIANT::REDUCE_SOME[R]; }) {
        return VARIANT::REDUCE_SOME[R];
    } else {
        return false;
    }
}
template <class VARIANT, int R> DEV bool may_add(int i, int n, const inputs &x, const row_sizes &z,
                                                 const typename VARIANT::head &head, const typename VARIANT::vals &vals)
{
    if constexpr (adds_seldom<VARIANT, R>()) {
        return VARIANT::template some<R>(i, n, x, z, head, vals);
    } else {
        return true;
    }
}
