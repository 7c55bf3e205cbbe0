/*
 * vectors.h: a vector of q, k, v or o through the stages of its mod, forwards and backwards, for every kind
 * that has mods. The kind says where the token is: env.at.
 */
#ifndef LATHE_GEN_HOST_VECTORS_H
#define LATHE_GEN_HOST_VECTORS_H

#include "gen/host/gradient.h"

/* Open what `call` needs, for vectors of up to d (q and k) and d_v (v and o) numbers; closed is all 0. Errors
   ARG: a mod makes pairs that a vector has not. */
lathe_status host_vectors_open(struct host_vectors *v, const struct host_call *call, int d, int d_v,
                               lathe_error *err);
void host_vectors_close(struct host_vectors *v);

/* One vector through a mod. v->stage[0] holds its `n` numbers; stage[s + 1] gets what stage s gives; a mod
   without stages leaves stage[0] as the result: the result is stage[ir->mod[which].n_stages]. */
lathe_status host_mod(struct host_vectors *v, enum mod which, int n, lathe_error *err);

struct host_mod_graphs {
    struct host_graph stage[MOD_COUNT][MAX_STAGES];
};
/* The adjoints of all stages, in a pool that they make grow. False, and says why. */
bool host_mod_graphs_make(struct host_mod_graphs *g, struct ir *ir, struct diag *diag);
void host_mod_graphs_free(struct host_mod_graphs *g);
/* One stage backwards: `grad` is of what it gives on entry, of what it took on return; gradients of inputs
   are added up. The evaluation is still there for whoever asks for another parameter's adjoint. */
lathe_status host_stage_back(struct host_vectors *v, struct host_gradient *b, const struct ir_stage *stage,
                             const struct host_graph *g, int n, const double *in, double *grad,
                             lathe_error *err);
/* All stages of a mod backwards, which host_mod has gone through. */
lathe_status host_mod_back(struct host_vectors *v, struct host_gradient *b, const struct host_mod_graphs *g,
                           enum mod which, int n, double *grad, lathe_error *err);

#endif
