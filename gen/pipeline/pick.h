/*
 * pick.h: which template serves a problem, with which numbers.
 */
#ifndef LATHE_GEN_PICK_H
#define LATHE_GEN_PICK_H

#include <stdbool.h>

#include "gen/ir/spec.h"
#include "lathe_types.h"

struct device;
struct kernel_request;
struct plan;
struct problem;
struct ir;
struct text_buf;

/* The first template that takes the problem, or the one that device->template_name asks for. UNSUPPORTED
   lists every refusal, a line each. */
lathe_status plan_pick(const struct kernel_request *r, struct plan *out, lathe_error *err);
/* Those of lathe__lengths by which plan_pick may answer otherwise than for other lengths. Cheap: asked at
   every call; a bit is there where only a whole plan would tell. */
int plan_lengths(enum kind kind, lathe_pass pass, const struct problem *problem, const struct device *device);
/* The plans that serve, numbered from 0 on in the order in which plan_pick prefers them: every row of tiles
   that fits, of every template that takes the problem. False: there are not so many. */
bool plan_candidate(const struct kernel_request *r, int number, struct plan *out);
/* The plan of a choice that `lathe tune` measured. It does not make a template eligible: one that is taken by
   its name alone has to be asked for by name, as ever. False: it does not serve, or is not eligible. */
bool plan_measured(const struct kernel_request *r, const char *template_name, const char *tile,
                   struct plan *out);
/* Why the templates before the picked one do not serve: a line each, as in plan_pick's error. */
void plan_refusals(const struct kernel_request *r, lathe_error *out);
/* False: a name of the list (with commas) is of no template; then `known` gets the names of all. */
bool plan_knows(const char *list, struct text_buf *known);
/* The templates of this kind and pass that device->template_name asks for. */
void plan_names(const struct ir *ir, lathe_pass pass, const struct device *device, struct text_buf *out);
/* tuning.c. What a measured choice holds for: the device, the spec, what is compiled in; not the lengths. Of
   requests that need not be lowered. */
void tuning_text(const struct kernel_request *r, struct text_buf *out);

#endif
