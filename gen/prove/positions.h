/*
 * positions.h: what the files of the proof "positions in f32" share: positions.c walks over positions,
 * position_cone.c knows what a decision is made of and its values.
 */
#ifndef LATHE_GEN_POSITIONS_H
#define LATHE_GEN_POSITIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gen/ir/ir.h"
#include "runtime/recipe/recipe.h"

struct index_context;
struct prover;

enum { LANES = 256, VARIABLES = 6, OPAQUE = 62, DISTANCE = 63 };

/* Values by which a function of a spec decides: of nodes that are made of positions, sizes and constants. */
struct cones {
    const struct ir *ir;
    const struct prover *p;
    const struct index_context *context;
    bool *used;        /* below the roots of the context */
    bool *outside;     /* so, and taken by a result or by what is not made of positions alone */
    uint64_t *vars;    /* fields of `at` that a node varies with, a bit each; DISTANCE: at.q - at.kv alone;
                          OPAQUE: what    is not known here */
    double **value[2]; /* by node: in f32 and in double precision, LANES each; NULL: not evaluated */
    double field[AT_COUNT][LANES]; /* what fields of `at` are */
    double distance[LANES];        /* at.q - at.kv */
};
enum { IN_F32, IN_DOUBLE };

/* False: out of memory. cones_close frees it either way. */
bool cones_open(struct cones *c, const struct prover *p, const struct index_context *context);
void cones_close(struct cones *c);
/* Is it made of positions, at least one of them in f32, and does something depend on which side it takes? */
bool cone_decides(const struct cones *c, int node);
/* Values of what is below a node and has these variables, in both precisions. */
bool cone_values(struct cones *c, int node, int lanes);
/* Does the decision differ at that lane? cone_values comes first. */
bool cone_differs(const struct cones *c, int node, int lane);
/* So, does anything come of it where the mask leaves the pair? Where memory ends, *status says so. */
bool cone_matters(struct cones *c, int node, int lane, lathe_status *status);
/* The size of a field where a call gives it, else 0; and up to where it is looked at. */
double field_given(const struct cones *c, int field);
double field_end(const struct cones *c, int field);
bool field_is_size(int field);

#endif
