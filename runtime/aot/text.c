/*
 * text.c: the C file and the assembler file of one spec in a library made by `lathe aot`. In: the spec's
 * signature, kernels and recipes; out: text on a stream, whose error flag the caller looks at. The C file
 * holds data of the types of aot.h and recipe/recipe.h, and the functions of the header; the images follow
 * through .incbin, because a C compiler takes a minute for what an assembler copies at once.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/aot/make.h"

/* ---- pieces of initialisers ----------------------------------------------------------------------- */

static void write_product(FILE *f, const struct product *p)
{
    fprintf(f, "{INT64_C(%" PRId64 "), %d, {", p->scale, p->n);
    for (int i = 0; i < p->n; i++)
        fprintf(f, "%s{%d, %" PRId32 ", %d, %d}", i ? ", " : "", p->factor[i].sym, p->factor[i].tile,
                p->factor[i].plus, p->factor[i].times);
    fprintf(f, "%s}, %d}", p->n ? "" : "{0, 0, 0, 0}", p->grouped);
}

/* Exact. The tool keeps the C locale, so the point is a point. */
static void write_double(FILE *f, double value)
{
    if (isnan(value))
        fputs("(double)__builtin_nanf(\"\")", f);
    else if (isinf(value))
        fprintf(f, "%s__builtin_inf()", value < 0 ? "-" : "");
    else
        fprintf(f, "%a", value);
}

_Static_assert(sizeof(struct sig_arg) == NAME_MAX_BYTES + 24 + 8 + 4 + MAX_DIMS * sizeof(struct sig_dim),
               "write_arg lacks a member of struct sig_arg");

static void write_arg(FILE *f, const struct sig_arg *a)
{
    fprintf(f,
            "    {.name = \"%s\", .role = %d, .dtype = %d, .dtype_role = %d, .unit_last = %d, .any_last = "
            "%d, .optional = "
            "%d, .grad = "
            "%d, .presence_built = %d, .rare = %d, .narrow = %d, .halves = %d, .list = %d, .alias = %d, "
            ".beside = %d, "
            ".unless = %d, "
            ".over = %d, "
            ".points = %d, "
            ".default_value = ",
            a->name, a->role, a->dtype, a->dtype_role, a->unit_last, a->any_last, a->optional, a->grad,
            a->presence_built, a->rare, a->narrow, a->halves, a->list, a->alias, a->beside, a->unless,
            a->over, a->points);
    write_double(f, a->default_value);
    fprintf(f, ", .ndim = %d, .leading_optional = %d, .dim = {", a->ndim, a->leading_optional);
    for (int i = 0; i < a->ndim || i == 0;
         i++) /* of a scalar the first says what it is the size or the start of */
        fprintf(f, "%s{%d, %" PRId32 ", %d, %d, %d, %d}", i ? ", " : "", a->dim[i].sym, a->dim[i].literal,
                a->dim[i].times, a->dim[i].plus, a->dim[i].paged, a->dim[i].whole);
    fputs("}},\n", f);
}

_Static_assert(sizeof(struct sig_size) == 16 + 5 * 4, "write_size lacks a member of struct sig_size");

static void write_size(FILE *f, const struct sig_size *s)
{
    fprintf(f,
            "    {.sym = %d, .same_as = %d, .multiple_of = %d, .tied = %d, .by = %d, .packed_by = %d, .built "
            "= %d,\n"
            "     .named = %d, .implied = %d, .positive = %d, .counted = %d, .within = %d, .beside = %d, "
            ".usual = %" PRId32 ", .below = %" PRId32 ",\n     .least = %" PRId32 ", .most = %" PRId32
            ", .step = %" PRId32 "},\n",
            s->sym, s->same_as, s->multiple_of, s->tied, s->by, s->packed_by, s->built, s->named, s->implied,
            s->positive, s->counted, s->within, s->beside, s->usual, s->below, s->least, s->most, s->step);
}

_Static_assert(sizeof(struct signature) == 24 + 12 + 4 + 4 + MAX_SIZES * sizeof(struct sig_size) + 4 +
                                               MAX_ARGS * sizeof(struct sig_arg) + 8 + sizeof(void *) +
                                               MAX_FREE_SYMS * NAME_MAX_BYTES + NO_PARTS_BYTES,
               "write_signature lacks a member of struct signature");

static void write_signature(FILE *f, const struct signature *sig)
{
    fprintf(f,
            "static const struct signature signature = {\n"
            "    .kind = \"%s\", .backward = %d, .combine = %d, .parts_by_token = %d, .parts_by_key = %d,\n"
            "    .builds_alignment = %d, .builds_folded = %d,\n"
            "    .counts_points = %d, .sharing = %d, .paged_by = %d, .most_counted = %" PRId32 ",\n"
            "    .n_sizes = %d, .size = {\n",
            sig->kind, sig->backward, sig->combine, sig->parts_by_token, sig->parts_by_key,
            sig->builds_alignment, sig->builds_folded, sig->counts_points, sig->sharing, sig->paged_by,
            sig->most_counted, sig->n_sizes);
    for (int i = 0; i < sig->n_sizes; i++)
        write_size(f, &sig->size[i]);
    fprintf(f, "%s    },\n    .n_args = %d, .arg = {\n", sig->n_sizes ? "" : "    {0},\n", sig->n_args);
    for (int i = 0; i < sig->n_args; i++)
        write_arg(f, &sig->arg[i]);
    fprintf(f, "    },\n    .n_free = %d, .free_name = {", sig->n_free);
    for (int i = 0; i < sig->n_free; i++)
        fprintf(f, "%s\"%s\"", i ? ", " : "", sig->free_name[i]);
    fprintf(f, "%s}, .no_parts = \"%s\"};\n\n", sig->n_free ? "" : "\"\"", sig->no_parts);
}

static void write_fields(FILE *f, const struct aot_library *library, const struct aot_spec *spec)
{
    static const char *const kinds[] = {"FIELD_TENSOR", "FIELD_F32", "FIELD_I32", "FIELD_OPTIONAL_F32",
                                        "FIELD_OPTIONAL_I32"};
    fprintf(f, "static const struct aot_field fields[] = {\n");
    for (int i = 0; i < spec->sig.n_args; i++) {
        char member[NAME_MAX_BYTES + 2];
        lathe__aot_member(spec->sig.arg[i].name, member);
        fprintf(f, "    {%s, offsetof(%s_%s_args, %s)},\n", kinds[lathe__aot_field_kind(&spec->sig.arg[i])],
                library->name, spec->stem, member);
    }
    fprintf(f, "};\n\n");
}

static void write_problem(FILE *f, const struct problem *p, int number)
{
    fprintf(f, "static const struct problem built_%d = {\n    {", number);
    for (int role = 0; role < DTYPE_ROLES; role++)
        fprintf(f, "%s(lathe_dtype)%d", role ? ", " : "", (int)p->dtype[role]);
    fprintf(f, "},\n    {");
    for (int i = 0; i < SYM_COUNT; i++)
        fprintf(f, "%s%" PRId64, i ? ", " : "", p->dim[i]);
    fprintf(f, "},\n    {");
    for (int i = 0; i < MAX_ARGS; i++)
        fprintf(f, "%s%d", i ? ", " : "", p->arg_dtype[i]);
    fprintf(f,
            "},\n    UINT64_C(%" PRIu64 "), UINT64_C(%" PRIu64 "), UINT64_C(%" PRIu64
            "), %d, %d, %d, %d, %d, %d};\n",
            p->present, p->unaligned, p->folded, p->deterministic, p->paged, p->packed, p->cut_keys,
            p->cut_heads, p->chunked);
}

/* ---- recipes -------------------------------------------------------------------------------------- */

static void write_rows(FILE *f, const struct launch *l, int unit, int launch)
{
    if (l->n_params == 0)
        return;
    fprintf(f, "static const struct param rows_%d_%d[] = {\n", unit, launch);
    for (int i = 0; i < l->n_params; i++) {
        const struct param *p = &l->param[i];
        fprintf(f, "    {.kind = %d, .arg = %d, .dim = %d, .offset = %" PRIu32 ", .product = ", p->kind,
                p->arg, p->dim, p->offset);
        write_product(f, &p->product);
        fprintf(f, "},\n");
    }
    fprintf(f, "};\n");
}

/* A member without a value here would be 0 in every library: whoever adds one writes it, and counts it. */
_Static_assert(sizeof(struct param) == 16 + sizeof(struct product),
               "write_rows lacks a member of struct param");
_Static_assert(sizeof(struct tensor_map_row) == 28, "write_maps lacks a member of struct tensor_map_row");
_Static_assert(sizeof(struct launch) == NAME_MAX_BYTES + sizeof(struct product) + 56 +
                                            MAX_TENSOR_MAPS * sizeof(struct tensor_map_row) +
                                            sizeof(struct param *),
               "write_launch lacks a member of struct launch");

static void write_maps(FILE *f, const struct launch *l)
{
    for (int i = 0; i < l->n_maps; i++) {
        const struct tensor_map_row *m = &l->map[i];
        fprintf(f,
                "         .map[%d] = {.offset = %" PRIu32 ", .data = %" PRIu32 ", .strides = %" PRIu32
                ", .columns = %d, .dim = {%d, %d, %d}, .dtype = %d, .swizzle = %d, .box_tokens = %d, .packed "
                "= %s, .pack = %" PRIu32 "},\n",
                i, m->offset, m->data, m->strides, m->columns, m->dim[0], m->dim[1], m->dim[2], m->dtype,
                m->swizzle, m->box_tokens, m->packed ? "true" : "false", m->pack);
    }
}

/* All but `part`: a library's text is compiled in one go. */
static void write_launch(FILE *f, const struct launch *l, int unit, int launch)
{
    fprintf(f, "        {.entry = \"%s\",\n         .grid = ", l->entry);
    write_product(f, &l->grid);
    fprintf(f,
            ",\n         .threads = %d, .smem_bytes = %d, .n_params = %d, .param_bytes = %" PRIu32
            ", .n_maps = %d, .grid_share = %d, .grid_limit = %d, .cluster = %d,\n"
            "         .when = %d, .least = %d, .most = %d, .early = %s, .kept = %s,\n",
            l->threads, l->smem_bytes, l->n_params, l->param_bytes, l->n_maps, l->grid_share, l->grid_limit,
            l->cluster, l->when, l->least, l->most, l->early ? "true" : "false", l->kept ? "true" : "false");
    write_maps(f, l);
    if (l->n_params > 0)
        fprintf(f, "         .param = rows_%d_%d},\n", unit, launch);
    else
        fprintf(f, "         .param = NULL},\n");
}

static void write_source(FILE *f, const struct source *s, int unit)
{
    for (int i = 0; i < s->n_launches; i++)
        write_rows(f, &s->launch[i], unit, i);
    fprintf(f, "static const struct source source_%d = {\n    .label = \"%s\",\n    .n_launches = %d,\n",
            unit, s->label, s->n_launches);
    fprintf(f, "    .launch = {\n");
    for (int i = 0; i < s->n_launches; i++)
        write_launch(f, &s->launch[i], unit, i);
    fprintf(f, "    },\n    .n_buffers = %d,\n", s->n_buffers);
    for (int i = 0; i < s->n_buffers; i++) {
        fprintf(f, "    .buffer[%d].bytes = ", i);
        write_product(f, &s->buffer[i].bytes);
        fprintf(f, ",\n    .buffer[%d].most = ", i);
        write_product(f, &s->buffer[i].most);
        fprintf(f, ",\n    .buffer[%d].zero = %d,\n", i, s->buffer[i].zero);
    }
    fprintf(f, "};\n");
}

/* ---- kernels -------------------------------------------------------------------------------------- */

static void code_name(const struct aot_library *library, const struct aot_spec *spec, int unit, char *out,
                      size_t size)
{
    snprintf(out, size, "%s_%s_code_%d", library->name, spec->stem, unit);
}

static void write_arch(FILE *f, const char *arch, bool ptx)
{
    char *suffix = NULL;
    const long sm = strtol(arch + 3, &suffix, 10); /* behind "sm_" */
    if (*suffix)
        fprintf(f, "{%ld, '%c', %d}", sm, *suffix, ptx);
    else
        fprintf(f, "{%ld, 0, %d}", sm, ptx);
}

static void write_variant(FILE *f, const struct aot_library *library, const struct aot_spec *spec,
                          const struct aot_unit *unit)
{
    char name[AOT_FUNCTION_BYTES];
    int n = 0;
    const int number = lathe__aot_unit_number(spec, unit);
    code_name(library, spec, number, name, sizeof name);
    for (int i = 0; i < unit->n_archs; i++)
        n += unit->arch[i] == library->ptx_arch ? 2 : 1;
    fprintf(f, "    {&source_%d, %s, %d, {", number, name, n);
    for (int i = 0; i < unit->n_archs; i++) {
        fprintf(f, "%s", i ? ", " : "");
        write_arch(f, library->arch[unit->arch[i]], false);
        if (unit->arch[i] != library->ptx_arch)
            continue;
        fprintf(f, ", ");
        write_arch(f, library->arch[unit->arch[i]], true);
    }
    fprintf(f, "}},\n");
}

static void write_kernel(FILE *f, const struct aot_library *library, const struct aot_spec *spec, int number)
{
    const struct aot_item *item = &spec->item[number];
    char name[AOT_FUNCTION_BYTES];
    for (int u = 0; u < item->n_units; u++) {
        const int unit = lathe__aot_unit_number(spec, &item->unit[u]);
        code_name(library, spec, unit, name, sizeof name);
        fprintf(f, "__attribute__((visibility(\"hidden\"))) extern const unsigned char %s[];\n", name);
        write_source(f, &item->unit[u].source, unit);
    }
    write_problem(f, &item->problem, number);
    fprintf(f, "static const struct aot_variant variants_%d[] = {\n", number);
    for (int u = 0; u < item->n_units; u++)
        write_variant(f, library, spec, &item->unit[u]);
    fprintf(f, "};\n\n");
}

static void write_set(FILE *f, const struct aot_library *library, const struct aot_spec *spec)
{
    char name[AOT_FUNCTION_BYTES];
    fprintf(f, "static struct aot_loaded *loaded[%d];\nstatic const struct aot_kernel kernels[] = {\n",
            spec->n_items);
    for (int i = 0; i < spec->n_items; i++) {
        lathe__aot_function(library, spec, &spec->item[i], name);
        fprintf(f, "    {\"%s\", &built_%d, %d, variants_%d, &loaded[%d]},\n", name, i, spec->item[i].n_units,
                i, i);
    }
    lathe__aot_function(library, spec, NULL, name);
    fprintf(
        f,
        "};\nstatic const struct lathe_kernel_set set = {\n    AOT_FORMAT, (lathe_pass)%d, \"%s\", \"%s\",\n",
        (int)spec->pass, library->name, name);
    fprintf(f, "    \"%s\",\n    \"%s\",\n    &signature, fields, %d, kernels};\n\n", library->command,
            library->options, spec->n_items);
}

/* item NULL: the dispatcher */
static void write_functions(FILE *f, const struct aot_library *library, const struct aot_spec *spec,
                            const struct aot_item *item)
{
    char name[AOT_FUNCTION_BYTES];
    char number[32] = "LATHE_ANY_KERNEL";
    lathe__aot_function(library, spec, item, name);
    if (!item)
        fprintf(f, "const lathe_kernel_set *%s_set(void)\n{\n    return &set;\n}\n\n", name);
    if (item)
        snprintf(number, sizeof number, "%d", (int)(item - spec->item));
    fprintf(
        f,
        "lathe_status %s(const %s_%s_args *args, void *workspace, lathe_stream stream, lathe_error *err)\n{\n"
        "    return lathe_set_launch(&set, %s, args, workspace, stream, err);\n}\n\n",
        name, library->name, spec->stem, number);
    fprintf(f,
            "lathe_status %s_workspace(size_t *out, const %s_%s_args *args, lathe_error *err)\n{\n"
            "    return lathe_set_workspace(out, &set, %s, args, err);\n}\n\n",
            name, library->name, spec->stem, number);
}

void lathe__aot_write_data(FILE *f, const struct aot_library *library, const struct aot_spec *spec)
{
    fprintf(f,
            "/* Written by lathe " LATHE_VERSION
            ". */\n#include <stddef.h>\n\n#include \"%s.h\"\n\n#include \"aot.h\"\n\n",
            library->name);
    write_signature(f, &spec->sig);
    write_fields(f, library, spec);
    for (int i = 0; i < spec->n_items; i++)
        write_kernel(f, library, spec, i);
    write_set(f, library, spec);
    for (int i = 0; i < spec->n_items; i++)
        write_functions(f, library, spec, &spec->item[i]);
    write_functions(f, library, spec, NULL);
}

void lathe__aot_write_code(FILE *f, const struct aot_library *library, const struct aot_spec *spec)
{
    char name[AOT_FUNCTION_BYTES];
    fprintf(f, "/* Written by lathe " LATHE_VERSION ". */\n    .section .rodata.lathe,\"a\",%%progbits\n");
    for (int i = 0; i < spec->n_items; i++)
        for (int u = 0; u < spec->item[i].n_units; u++) {
            const int unit = lathe__aot_unit_number(spec, &spec->item[i].unit[u]);
            code_name(library, spec, unit, name, sizeof name);
            fprintf(f,
                    "    .balign 16\n    .globl %s\n    .hidden %s\n    .type %s, %%object\n%s:\n"
                    "    .incbin \"%s_%d.image\"\n    .size %s, . - %s\n",
                    name, name, name, name, spec->stem, unit, name, name);
        }
    fprintf(f, "    .section .note.GNU-stack,\"\",%%progbits\n");
}
