/*
 * serves.c: does a template serve a request? In: a request and the columns of a row. Out: yes, or one
 * sentence of what it does not take, what it takes instead, and which other template takes it.
 */
#include "gen/plan/serves.h"
#include "gen/base/text.h"
#include "gen/plan/request.h"
#include "gen/plan/template.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct refusal {
    char said[SAID_BYTES];
    const char *instead; /* what a caller may do; NULL: nothing comes to mind */
    bool missing;        /* of what the template is for */
};

static void dtypes_text(unsigned dtypes, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (int d = 0; dtypes >> d; d++)
        if (dtypes >> d & 1)
            used += (size_t)snprintf(out + used, size - used, "%s%s",
                                     used == 0           ? ""
                                     : dtypes >> (d + 1) ? ", "
                                                         : " and ",
                                     lathe_dtype_text((lathe_dtype)d));
}

static bool takes_dtype(const struct kernel_request *r, const struct serves *s, char *said)
{
    char takes[48];
    int role = DTYPE_USUAL; /* what no tensor has is usual, too */
    while (role <= DTYPE_O && s->dtypes >> r->problem->dtype[role] & 1)
        role++;
    if (role > DTYPE_O)
        return true;
    dtypes_text(s->dtypes, takes, sizeof takes);
    snprintf(said, SAID_BYTES, "dtype %s; it takes %s", lathe_dtype_text(r->problem->dtype[role]), takes);
    return false;
}

static bool takes_dim(const struct kernel_request *r, const struct served_dim *d, char *said)
{
    char multiples[24] = "";
    const int64_t dim = d->name ? r->problem->dim[d->sym] : 0;
    if (!d->name || (dim >= d->least && dim <= d->most && dim % d->step == 0))
        return true;
    if (d->step > 1)
        snprintf(multiples, sizeof multiples, "multiples of %d from ", d->step);
    snprintf(said, SAID_BYTES, "%s = %" PRId64 "; it takes %s%" PRId64 " to %" PRId64, d->name, dim,
             multiples, d->least, d->most);
    return false;
}

static bool takes_feature(const struct kernel_request *r, const struct serves *s, int number,
                          struct refusal *out)
{
    const struct feature *f = &r->features[number];
    char how[SAID_BYTES] = "";
    const bool takes = (s->takes | s->only) >> number & 1;
    const bool only = s->only >> number & 1;
    if ((takes && !only) || (f->has(r, how) ? takes : !only))
        return true;
    snprintf(out->said, SAID_BYTES, "%s", only ? f->missing : how[0] ? how : f->name);
    out->missing = only;
    out->instead = only ? NULL : f->instead;
    return false;
}

/* The first thing that it does not take goes to `out`. */
static bool takes_all(const struct kernel_request *r, const struct serves *s, struct refusal *out)
{
    *out = (struct refusal){.instead = NULL};
    bool all = s->dtypes == 0 || takes_dtype(r, s, out->said);
    for (size_t i = 0; i < sizeof s->dim / sizeof *s->dim && all; i++)
        all = takes_dim(r, &s->dim[i], out->said);
    for (int f = 0; s->dtypes != 0 && r->features && r->features[f].name && all; f++)
        all = takes_feature(r, s, f, out);
    return all;
}

/* Up to two, of those that are taken at any sizes before those that are not, and the last ones first, which
   are the most general. */
static int find_others(const struct kernel_request *r, const struct template_row *row, const char *names[2])
{
    int n = 0;
    int rows = 0;
    struct refusal unused;
    while (r->templates[rows].name)
        rows++;
    for (int sizes = 0; sizes < 2 && n == 0; sizes++)
        for (const struct template_row *t = r->templates + rows; t > r->templates && n < 2; t--)
            if (t - 1 != row && t[-1].pass == r->pass && !t[-1].unproven && t[-1].serves.dtypes != 0 &&
                (t[-1].serves.chosen_for != NULL) == (sizes == 1) &&
                isa_among(t[-1].isa, isas_of(r->device)) && takes_all(r, &t[-1].serves, &unused))
                names[n++] = t[-1].name;
    return n;
}

bool plan_serves(const struct kernel_request *r, const struct template_row *row, char *why)
{
    struct refusal no;
    const char *other[2] = {"the host device", ""};
    if (takes_all(r, &row->serves, &no))
        return true;
    const int used =
        snprintf(why, REASON_BYTES, "%s%s%s", no.said, no.instead ? "; " : "", no.instead ? no.instead : "");
    const int n = no.missing ? 0 : find_others(r, row, other);
    if (!no.missing && used > 0 && used < REASON_BYTES)
        snprintf(why + used, (size_t)(REASON_BYTES - used), " (%s%s%s %s that)", other[0],
                 n > 1 ? " and " : "", other[1], n > 1 ? "take" : "takes");
    return false;
}

void serves_text(const struct serves *s, const struct feature *features, struct text_buf *out)
{
    char dtypes[48];
    dtypes_text(s->dtypes, dtypes, sizeof dtypes);
    text_add(out, "%s", dtypes);
    for (size_t i = 0; i < sizeof s->dim / sizeof *s->dim && s->dim[i].name; i++) {
        text_add(out, "; %s from %" PRId64 " to %" PRId64, s->dim[i].name, s->dim[i].least, s->dim[i].most);
        if (s->dim[i].step > 1)
            text_add(out, " by %d", s->dim[i].step);
    }
    for (int only = 1; only >= 0; only--) {
        int n = 0;
        for (int f = 0; features && features[f].name; f++)
            if ((only ? s->only : s->takes & ~s->only) >> f & 1)
                text_add(out, "%s%s", n++ ? ", " : only ? "; only " : "; also ", features[f].name);
    }
    if (s->chosen_for)
        text_add(out, "; chosen for %s", s->chosen_for);
}
