/*
 * check.c: rules of elementwise for a whole spec: one point at a time, names that do not clash. In: traced
 * IR. Out: the same, with its gradient, or diagnostics.
 */
#include "gen/base/diag.h"
#include "gen/elementwise/columns.h"
#include "gen/elementwise/gradient.h"
#include "gen/ir/kind.h"
#include "gen/ir/rules.h"

#include <stdio.h>
#include <string.h>

/* The gradient of an operand is d<name>, that of a result is an argument of the same form. */
static bool names_clash(const char *a, const char *b)
{
    const bool derived = a[0] == 'd' && strcmp(a + 1, b) == 0;
    return derived || (b[0] == 'd' && strcmp(b + 1, a) == 0) || strcmp(a, b) == 0;
}

static void check_tensor_names(struct rule *r)
{
    struct ir *ir = r->ir;
    for (int i = 0; i < ir->maps.n_tensors; i++) {
        const char *clash = NULL;
        for (int k = 0; k < i; k++)
            if (names_clash(ir->maps.tensor[i].name, ir->maps.tensor[k].name))
                clash = ir->maps.tensor[k].name;
        for (int k = 0; k < ir->n_inputs; k++)
            if (names_clash(ir->maps.tensor[i].name, ir->input[k].name))
                clash = ir->input[k].name;
        if (!clash)
            continue;
        diag_add(r->diag, ir->file[1], ir->maps.tensor[i].line,
                 "'%s' or its gradient has the name of '%s' or of its gradient; rename one",
                 ir->maps.tensor[i].name, clash);
        r->ok = false;
    }
}

static void check_arguments(struct rule *r)
{
    const struct ir *ir = r->ir;
    for (int i = 0; i < ir->maps.n_tensors; i++) {
        if (!is_argument_of_kind(ir, ir->maps.tensor[i].name))
            continue;
        diag_add(r->diag, ir->file[1], ir->maps.tensor[i].line,
                 "'%s' is an argument of elementwise with list = true; use another name",
                 ir->maps.tensor[i].name);
        r->ok = false;
    }
}

/* Of an integer result: it is stored as it is. */
static void require_integer(struct rule *r, const struct ir_fn *fn, int root, const char *name)
{
    char text[96];
    const struct ir_node *n = &r->ir->node[fn->root[root]];
    snprintf(text, sizeof text, "returns %s for the i32 result '%.32s'; write i32(...)",
             ir_type_name(n->type), name);
    if (n->type != TYPE_I32)
        rule_broken(r, fn, root, text, "forward");
}

static void check_map(struct rule *r, int m)
{
    struct ir_map *map = &r->ir->maps.map[m];
    int root = 0;
    for (int i = 0; i < r->ir->maps.n_tensors && map->fn.n_roots > 0; i++) {
        const struct map_tensor *t = &r->ir->maps.tensor[i];
        const int values = t->map != m || t->use == USE_READ ? 0 : t->form == STAGE_ELEMENT ? 1 : 2;
        for (int k = 0; k < values; k++, root++) {
            if (t->dtype == LATHE_I32)
                require_integer(r, &map->fn, root, t->name);
            else
                rule_number(r, &map->fn, root, UINT8_MAX, "forward", "");
        }
    }
    for (int i = 0; i < map->fn.n_roots; i++)
        for (unsigned axis = 1; axis <= SPAN_SPLIT; axis <<= 1)
            rule_no_reductions(
                r, &map->fn, i, (uint8_t)axis, "forward",
                "looks at one point at a time; a result that lacks dims of 'over' is summed over "
                "them, and rowwise { ... } reduces along a row");
    r->ok &= map->fn.n_roots > 0; /* its own mistake was reported */
}

bool check_elementwise(struct ir *ir, struct diag *diag)
{
    struct rule r = {ir, diag, true};
    for (int m = 0; m < ir->maps.n_maps; m++)
        check_map(&r, m);
    check_tensor_names(&r);
    check_arguments(&r);
    rule_names(&r);
    return r.ok && gradient_make(ir, diag);
}
