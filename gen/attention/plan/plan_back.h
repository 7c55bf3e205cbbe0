/*
 * plan_back.h: what the planners of attention's backward pass share.
 */
#ifndef LATHE_ATTENTION_PLAN_BACK_H
#define LATHE_ATTENTION_PLAN_BACK_H

struct back_plan;
struct backward;
struct kernel_request;
struct pair_needs;
struct plan;

/* Tables of sums take what a tile leaves; a site for which that is too little is added to in global memory.
 */
void plan_take_tables(const struct pair_needs *pair, int spare, struct back_plan *out);
/* Names the tile of plan->attention.back: was it asked for by name, and is it past those that `lathe tune`
   has seen? */
bool plan_back_tile_is_wanted(const struct kernel_request *r, struct plan *plan);
/* The plan, but for what a template has of its own: take() fills plan->attention.back, if any tile fits. */
bool plan_back_with(const struct kernel_request *r, struct plan *plan, char *why,
                    bool (*take)(const struct kernel_request *r, const struct pair_needs *pair,
                                 struct plan *plan));
/* plan->reason. rows: floats that a row brings. */
void plan_say_backward(const struct kernel_request *r, const struct backward *b, int rows, struct plan *plan);
/* Behind it: what keys in pages cost, where there are any. */
void plan_say_pages(const struct kernel_request *r, struct plan *plan);

#endif
