/*
 * mods.h: vector mods of q, k, v and o as text, for every kind that has heads, and their adjoints.
 */
#ifndef LATHE_HEADS_MODS_H
#define LATHE_HEADS_MODS_H

#include "gen/ir/spec.h"

struct emitter;

/* What the address of a site depends on, as in templates/common/contract.cuh. In vector mods ROW is the
   token, and DIM the index in the head dim. */
enum address_form {
    ADDRESS_HEAD,
    ADDRESS_ROW,
    ADDRESS_COLUMN,
    ADDRESS_DIAGONAL,
    ADDRESS_ELEMENT,
    ADDRESS_DIM
};

enum { MAX_SITES = 12 };
struct site {    /* a read of an input whose gradient is wanted */
    int leaf;    /* LOAD or SCALAR node */
    int value;   /* dL/d(what it reads): per pair, row or element */
    int form;    /* enum address_form */
    bool stores; /* of a mod: the only read of its element, so the adjoint is stored and not added */
};
struct site_list {
    int n;
    struct site item[MAX_SITES];
};

struct stage_back { /* of a stage of a vector mod */
    int root[2];    /* adjoints of LEAF_X, or of LEAF_LO and LEAF_HI, from LEAF_DX or LEAF_DLO, LEAF_DHI */
    bool has_value; /* linear attention: an output mod reads the token's v, */
    int value;      /* whose adjoint this is */
    struct site_list site;
};

/* present: the kernel runs, if only to move rows. */
void emit_mod_struct(struct emitter *e, enum mod which, const char *type, bool present);
/* stage: adjoints of the mod's stages; NULL: the kernel does not run. */
void emit_mod_back(struct emitter *e, enum mod which, const char *type, const struct stage_back *stage);

#endif
