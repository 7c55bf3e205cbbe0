/*
 * sizes.h: for tests that make a signature by hand: the sizes of a kind, and what else its sign.c says of all
 * its specs.
 */
#ifndef LATHE_TEST_SIZES_H
#define LATHE_TEST_SIZES_H

#include "check.h"
#include "loaded.h"
#include "gen/arguments/sign.h"
#include "gen/gen.h"
#include "runtime/recipe/bind.h"

/* The argument of *to that has the name of argument `number` of *from; 0: there is none. */
static inline uint8_t number_in(const struct signature *to, const struct signature *from, uint8_t number)
{
    return number == 0 ? 0 : (uint8_t)(1 + lathe__arg_find(to, from->arg[number - 1].name, 0));
}

/* As of a shipped spec without dims of its own; those of *s have no default. */
static inline void take_sizes(struct signature *s, const char *spec)
{
    static const struct sig_size free_size = {.named = true};
    struct signature of;
    struct ir *ir = load_spec(spec);
    CHECK_EQ(ir->n_free, 0);
    signature_make(ir, LATHE_FORWARD, &of);
    ir_free(ir);
    s->builds_folded = of.builds_folded;
    s->counts_points = of.counts_points;
    s->sharing = of.sharing;
    s->most_counted = of.most_counted;
    s->n_sizes = 0;
    sign_sizes(s, of.size, of.n_sizes);
    for (int i = 0; i < s->n_sizes; i++) {
        s->size[i].by = number_in(s, &of, s->size[i].by);
        s->size[i].packed_by = number_in(s, &of, s->size[i].packed_by);
    }
    sign_free_sizes(s, &free_size);
}

#endif
