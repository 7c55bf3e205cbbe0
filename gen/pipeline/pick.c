/*
 * pick.c: which template serves a problem on a device, and why. In: numbers only, so planning runs without
 * a GPU. Out: a struct plan, or the reason of every template that refused. The tables of
 * templates, one in the folder of each kind, are the only dispatch; tile tables come from measurements
 * (tests/bench).
 */
#include "gen/pipeline/pick.h"
#include "gen/base/text.h"
#include "gen/ir/kind.h"
#include "gen/plan/plan.h"
#include "gen/plan/planner.h"
#include "gen/plan/template.h"

#include <stdio.h>
#include <string.h>

static void refuse(lathe_error *err, const char *name, const char *why)
{
    size_t used = strlen(err->text);
    if (used + 1 < sizeof err->text)
        snprintf(err->text + used, sizeof err->text - used, "%s%s: %s", used ? "\n" : "", name, why);
}

static bool is_named(const char *list, const char *name)
{
    const size_t size = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, size) == 0 && (at[size] == ',' || at[size] == '\0'))
            return true;
    }
    return false;
}

bool plan_knows(const char *list, struct text_buf *known)
{
    int names = 1;
    int found = 0;
    for (const char *at = list; *at; at++)
        names += *at == ',';
    for (int k = 0; k < KIND_COUNT; k++)
        for (const struct template_row *t = kinds[k].templates; t->name; t++)
            found += is_named(list, t->name);
    for (int k = 0; k < KIND_COUNT; k++)
        for (const struct template_row *t = kinds[k].templates; t->name && found < names; t++)
            text_add(known, " %s", t->name);
    return found >= names;
}

/* The templates that somebody asked for, where that concerns this kind and pass; else "". A name that no
   template has concerns everything: a misspelt name is refused. */
static const char *names_asked(const struct kernel_request *r)
{
    const char *list = r->device->template_name;
    bool concerns = r->device->template_only;
    int known = 0;
    int names = list[0] != '\0';
    for (const char *at = list; *at; at++)
        names += *at == ',';
    for (int k = 0; k < KIND_COUNT; k++)
        for (const struct template_row *t = kinds[k].templates; t->name; t++) {
            const bool named = is_named(list, t->name);
            concerns |= named && k == (int)r->ir->kind && t->pass == r->pass;
            known += named;
        }
    return concerns || known < names ? list : "";
}

/* Does the template serve? Else says why not in `why`. */
static bool row_ok(const struct template_row *t, const struct kernel_request *r, struct plan *out, char *why)
{
    const char *asked = names_asked(r);
    const int skip = r->skip ? *r->skip : 0;
    *out = (struct plan){.row = t, .bound_waits = t->unproven && !t->plain_waits};
    if (r->only && strcmp(r->only, t->name) != 0)
        snprintf(why, REASON_BYTES, "%s was measured", r->only);
    else if (asked[0] && !is_named(asked, t->name))
        snprintf(why, REASON_BYTES, "%s was asked for", asked);
    else if (t->pass != r->pass)
        snprintf(why, REASON_BYTES, "%s",
                 t->pass == LATHE_FORWARD    ? "computes the forward pass only"
                 : t->pass == LATHE_BACKWARD ? "computes the backward pass only"
                                             : "puts parts of rows together only");
    else if (r->problem->deterministic == DETERMINISTIC_BATCH && !t->any_batch)
        snprintf(
            why, REASON_BYTES,
            "deterministic=batch is asked for, and this template cuts its sums by how much the batch has; "
            "ask for deterministic=1, or leave it out");
    else if (r->refused[0])
        snprintf(why, REASON_BYTES, "%s", r->refused);
    else if (!isa_serves(t->isa, r->device, why) || !plan_serves(r, t, why) || !t->ok(r, out, why))
        return false;
    else if (t->unproven && !asked[0])
        snprintf(why, REASON_BYTES, "%s", t->unproven);
    else
        return true;
    if (r->skip && t->unproven && !asked[0])
        *r->skip = skip; /* its rows do not count */
    return false;
}

/* Is there a template for the pass? Then those of the other one are no refusals worth listing, unless
   somebody asks for one. */
static bool has_pass(enum kind kind, lathe_pass pass)
{
    bool found = false;
    for (const struct template_row *t = kinds[kind].templates; t->name; t++)
        found |= t->pass == pass;
    return found;
}

static lathe_status pick(const struct kernel_request *r, struct plan *out, lathe_error *reasons)
{
    *reasons = (lathe_error){.status = LATHE_UNSUPPORTED};
    if (!kinds[r->ir->kind].templates->name)
        snprintf(reasons->text, sizeof reasons->text,
                 "no kernel template serves %s yet; the host device does (--device host)",
                 kinds[r->ir->kind].name);
    for (const struct template_row *t = kinds[r->ir->kind].templates; t->name; t++) {
        char why[REASON_BYTES] = "";
        if (t->pass != r->pass && has_pass(r->ir->kind, r->pass) && !is_named(names_asked(r), t->name))
            continue;
        if (row_ok(t, r, out, why))
            return LATHE_OK;
        refuse(reasons, t->name, why);
    }
    return LATHE_UNSUPPORTED;
}

lathe_status plan_pick(const struct kernel_request *r, struct plan *out, lathe_error *err)
{
    lathe_error reasons;
    const lathe_status status = pick(r, out, &reasons);
    if (status != LATHE_OK && err)
        *err = reasons;
    return status;
}

int plan_lengths(enum kind kind, lathe_pass pass, const struct problem *problem, const struct device *device)
{
    const unsigned set = isas_of(device);
    int lengths = 0;
    for (const struct template_row *t = kinds[kind].templates; t->name; t++)
        if (t->lengths && t->pass == pass && isa_among(t->isa, set) &&
            (!t->unproven || is_named(device->template_name, t->name)))
            lengths |= t->lengths(problem, device);
    return lengths;
}

bool plan_candidate(const struct kernel_request *r, int number, struct plan *out)
{
    struct kernel_request one = *r;
    lathe_error reasons;
    int skip = number;
    one.skip = &skip;
    return pick(&one, out, &reasons) == LATHE_OK && skip == 0;
}

bool plan_measured(const struct kernel_request *r, const char *template_name, const char *tile,
                   struct plan *out)
{
    struct kernel_request one = *r;
    lathe_error reasons;
    struct device with_tile = *r->device;
    snprintf(with_tile.tile, sizeof with_tile.tile, "%s", tile);
    one.device = &with_tile;
    one.only = template_name;
    return pick(&one, out, &reasons) == LATHE_OK;
}

void plan_refusals(const struct kernel_request *r, lathe_error *out)
{
    struct plan plan;
    (void)pick(r, &plan, out);
}

void plan_names(const struct ir *ir, lathe_pass pass, const struct device *device, struct text_buf *out)
{
    for (const struct template_row *t = kinds[ir->kind].templates; t->name; t++)
        if (t->pass == pass && is_named(device->template_name, t->name))
            text_add(out, "%s ", t->name);
}
