/*
 * emit_forward.c: the launches of attention's forward pass, in their order. In: a lowered spec, a plan, what
 * its mask needs. Out: parameter structs as text, launches and buffers.
 */
#include "gen/attention/emit/emit.h"
#include "gen/base/text.h"
#include "gen/plan/plan.h"

/* mod_params is written once; the structs of further mods go to a text that nobody reads. */
void emit_attention_launches(struct emitter *e, const struct tile_map *map, const struct plan *plan,
                             struct source *out, bool moved[MOD_COUNT])
{
    const struct launcher a = {.e = e,
                               .map = map,
                               .d2 = plan->attention.d2,
                               .reads_narrow = plan->attention.reads_narrow,
                               .applies_key_mod = plan->attention.applies_key_mod,
                               .turned = plan->attention.turned ? plan->attention.bn : 0};
    struct layout l = {.map_buffer = -1, .counter_buffer = -1};
    struct text_buf again = {0};
    bool declared = false;
    bool paired = false;
    if (keys_are_gathered(e))
        emit_key_starts(e, out);
    make_layout(&a, &l, TENSOR_COUNT, out);
    if (keys_are_gathered(e))
        emit_pages_in(e, &l, &(struct page_gradients){.first = -1, .next = -1}, out);
    if (plan->attention.dynamic)
        l.counter_buffer = add_buffer(out, e, product_of(8));
    for (int t = 0; t < TENSOR_COUNT; t++) {
        moved[t] = l.moved[t] && !is_copied_pair(&a, t);
        if (is_copied_pair(&a, t)) {
            add_pair(&a, &l, t, out, paired ? &again : e->out);
            paired = true;
        }
        if (t == TENSOR_V && a.turned)
            add_turned(&a, &l, out);
        if (t == TENSOR_O) {
            if (map->needed)
                l.map_buffer = add_map(&a, plan, out);
            if (plan->attention.parts)
                add_parts(&a, &l, plan, out, &again);
            else
                add_forward(&a, &l, plan, out);
        }
        if (!moved[t])
            continue;
        add_mod(&a, &l, t, out, declared ? &again : e->out);
        declared = true;
    }
    text_fail_with(e->out, &again);
    text_free(&again);
}
