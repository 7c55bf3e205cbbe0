/*
 * header.c: what people and build systems read of a library made by `lathe aot`: the header, the
 * pkg-config file and the manifest. In: the library; out: text on a stream, whose error flag the caller looks
 * at. The header is C11 and C++17, and its comments say the shape, dtype and role of every argument.
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/aot/aot.h"
#include "runtime/aot/make.h"
#include "runtime/recipe/bind.h"

static void digest_text(const unsigned char digest[KEY_BYTES], char out[KEY_TEXT_BYTES])
{
    lathe__key_text(digest, out);
}

static void write_archs(FILE *f, const struct aot_library *library, const struct aot_unit *unit)
{
    for (int i = 0; i < unit->n_archs; i++)
        fprintf(f, " %s", library->arch[unit->arch[i]]);
}

/* ---- the opening comment -------------------------------------------------------------------------- */

static void write_digests(FILE *f, const struct aot_library *library, const struct aot_spec *spec)
{
    char name[AOT_FUNCTION_BYTES];
    char digest[KEY_TEXT_BYTES];
    for (int i = 0; i < spec->n_items; i++)
        for (int u = 0; u < spec->item[i].n_units; u++) {
            lathe__aot_function(library, spec, &spec->item[i], name);
            digest_text(spec->item[i].unit[u].digest, digest);
            fprintf(f, " *     %s  %s ", digest, name);
            write_archs(f, library, &spec->item[i].unit[u]);
            fprintf(f, "\n");
        }
}

static void write_opening(FILE *f, const struct aot_library *library)
{
    fprintf(f,
            "/*\n * %s.h: GPU kernels, compiled ahead of time. Written by lathe " LATHE_VERSION
            "; do not edit.\n *\n"
            " *     %s%s\n *     cc program.c $(pkg-config --cflags --libs %s)     needs lib%s.a and "
            "liblathe_rt\n *\n",
            library->name, library->command, library->options, library->name, library->name);
    fprintf(f, " * Specs:");
    for (int i = 0; i < library->n_specs; i++)
        fprintf(f, " %s", library->spec[i].shown);
    fprintf(f, "\n * Architectures:");
    for (int i = 0; i < library->n_archs; i++)
        fprintf(f, " %s", library->arch[i]);
    if (library->ptx_arch >= 0)
        fprintf(f, "; PTX for %s, which later GPUs run", library->arch[library->ptx_arch]);
    fprintf(f,
            "\n *\n * What every function here does, and its errors: lathe_aot.h. SHA-256 of the source of "
            "each kernel, and its architectures:\n *\n");
    for (int i = 0; i < library->n_specs; i++)
        write_digests(f, library, &library->spec[i]);
    fprintf(f, " */\n");
}

/* ---- one struct of arguments ---------------------------------------------------------------------- */

/* "[b, h, q, d]"; a fixed size is itself. Where keys lie in pages some dims are others. */
static void write_dims(FILE *f, const struct signature *sig, const struct sig_arg *a, bool paged)
{
    const struct problem here = {.paged = paged};
    fprintf(f, "%s", a->leading_optional ? "[(" : "[");
    for (int i = 0; i < a->ndim; i++) {
        const struct sig_dim dim = lathe__dim_here(&here, a->dim[i]);
        fprintf(f, "%s", i ? ", " : "");
        if (dim.times > 1)
            fprintf(f, "%d * ", dim.times);
        if (dim.literal > 0)
            fprintf(f, "%" PRId32, dim.literal);
        else
            fprintf(f, "%s", lathe__sym_text(sig, dim.sym));
        if (dim.plus > 0)
            fprintf(f, " + %d", dim.plus);
        if (a->leading_optional && i == a->ndim - 2)
            fprintf(f, ")");
    }
    fprintf(f, "]");
}

static bool changes_with_pages(const struct sig_arg *a)
{
    bool changes = false;
    for (int i = 0; i < a->ndim; i++)
        changes |= a->dim[i].paged != SYM_ONE;
    return changes;
}

static void write_shape(FILE *f, const struct signature *sig, const struct sig_arg *a)
{
    write_dims(f, sig, a, false);
    if (sig->backward || !changes_with_pages(a))
        return;
    fprintf(f, " or, beside %s, ", sig->arg[sig->paged_by - 1].name);
    write_dims(f, sig, a, true);
}

/* The dtypes that an argument has in the kernels of a spec: "f16 or bf16". */
static void write_dtypes(FILE *f, const struct aot_spec *spec, int arg)
{
    unsigned seen = 0;
    const char *comma = "";
    for (int i = 0; i < spec->n_items; i++) {
        const struct problem *p = &spec->item[i].problem;
        const unsigned bit = 1u << p->arg_dtype[arg];
        if ((seen & bit) || (spec->sig.arg[arg].presence_built && !arg_in(p->present, arg)))
            continue;
        seen |= bit;
        fprintf(f, "%s%s", comma, lathe_dtype_text((lathe_dtype)p->arg_dtype[arg]));
        comma = " or ";
    }
    if (!seen)
        fprintf(f, "none in this library");
}

static void write_tensor(FILE *f, const struct aot_spec *spec, int arg)
{
    const struct sig_arg *a = &spec->sig.arg[arg];
    const bool out = a->role == ROLE_OUT || a->role == ROLE_OUT_OPTIONAL;
    char member[NAME_MAX_BYTES + 2];
    lathe__aot_member(a->name, member);
    fprintf(f, "    lathe_tensor %s; /* %s ", member, out ? "out" : "in");
    write_shape(f, &spec->sig, a);
    fprintf(f, ", ");
    write_dtypes(f, spec, arg);
    if (a->list)
        fprintf(f, "; an array of pointers to tensors, in memory that the device reads");
    if (a->alias)
        fprintf(f, "; may be %s, and is where it is left out", spec->sig.arg[a->alias - 1].name);
    if (a->unit_last && !a->any_last)
        fprintf(f, "; last stride 1");
    if (a->leading_optional)
        fprintf(f, "; dims in parentheses may be left out from the left");
    if (a->optional)
        fprintf(f, "; optional");
    if (a->optional && a->role == ROLE_INPUT)
        fprintf(f, ": reads %g where left out", a->default_value);
    if (a->unless)
        fprintf(f, "; left out beside %s", spec->sig.arg[a->unless - 1].name);
    fprintf(f, " */\n");
}

static void write_scalar(FILE *f, const struct sig_arg *a)
{
    static const char *const types[] = {"", "float", "int32_t", "lathe_optional_f32", "lathe_optional_i32"};
    char member[NAME_MAX_BYTES + 2];
    lathe__aot_member(a->name, member);
    fprintf(f, "    %s %s; /* ", types[lathe__aot_field_kind(a)], member);
    if (a->role == ROLE_Q_START)
        fprintf(f, "position of query row 0 among the keys, in tokens; default: the keys less the queries, "
                   "of each sequence, so both end together");
    else if (a->role == ROLE_START || a->role == ROLE_TOTAL)
        fprintf(f, "%s, of which this call has a part (lathe_types.h); default: it has all",
                a->role == ROLE_TOTAL         ? "how many there are"
                : a->dim[0].sym == SYM_ALL_KV ? "the place of key 0 among all keys"
                                              : "the number of query head 0 among all heads");
    else if (a->role == ROLE_CHUNK || a->role == ROLE_STEP)
        fprintf(f, "%s (lathe_types.h); default: all keys of this call follow each other",
                a->role == ROLE_CHUNK ? "keys that follow each other"
                                      : "places from the first of them to the first of the next ones");
    else if (a->role == ROLE_MASK_KEPT)
        fprintf(
            f, "1: the workspace still has the map of the mask's tiles from an earlier launch like this one; "
               "lathe.h, lathe_launch");
    else if (a->optional)
        fprintf(f, "scalar; default %g", a->default_value);
    else
        fprintf(f, "scalar");
    fprintf(f, " */\n");
}

static void write_legend(FILE *f, const struct signature *sig)
{
    static const char *const what[] = {
#define SYM_WHAT(id, text, what) what,
        SYM_MAP(SYM_WHAT)
#undef SYM_WHAT
    };
    bool used[SYM_COUNT] = {false};
    const char *comma = "";
    for (int i = 0; i < sig->n_args; i++)
        for (int d = 0; d < sig->arg[i].ndim; d++)
            used[sig->arg[i].dim[d].sym] = used[sig->arg[i].dim[d].paged] = true;
    fprintf(f, "\n   Sizes, in elements: ");
    for (int sym = SYM_B; sym < SYM_FREE; sym++) {
        if (!used[sym])
            continue;
        fprintf(f, "%s%s %s", comma, lathe__sym_text(sig, sym), what[sym]);
        comma = ", ";
    }
    fprintf(f, ".");
}

static void write_struct(FILE *f, const struct aot_library *library, const struct aot_spec *spec)
{
    fprintf(f, "/* Arguments of %s (%s%s). All zero: left out, or its default.", spec->shown, spec->sig.kind,
            spec->pass == LATHE_BACKWARD  ? ", backward"
            : spec->pass == LATHE_COMBINE ? ", combine"
                                          : "");
    write_legend(f, &spec->sig);
    fprintf(f, " */\ntypedef struct %s_%s_args {\n", library->name, spec->stem);
    for (int i = 0; i < spec->sig.n_args; i++)
        if (lathe__aot_field_kind(&spec->sig.arg[i]) == FIELD_TENSOR)
            write_tensor(f, spec, i);
        else
            write_scalar(f, &spec->sig.arg[i]);
    fprintf(f, "} %s_%s_args;\n\n", library->name, spec->stem);
}

/* ---- functions ------------------------------------------------------------------------------------ */

/* Each has its workspace's size beside it, also where that is 0 on every architecture of this library: a
   program need not change where it is made again for others. */
static void write_functions(FILE *f, const struct aot_library *library, const struct aot_spec *spec,
                            const struct aot_item *item)
{
    char name[AOT_FUNCTION_BYTES];
    lathe__aot_function(library, spec, item, name);
    if (item)
        fprintf(f, "\n");
    else
        fprintf(
            f,
            "/* The kernel whose dtypes, head dims and inputs are those of the arguments. The workspace has "
            "the "
            "bytes that\n   %s_workspace says (NULL where they are 0), is 256-byte aligned and not shared by "
            "launches that overlap. */\n",
            name);
    fprintf(f,
            "lathe_status %s(const %s_%s_args *args, void *workspace, lathe_stream stream, lathe_error *err) "
            "LATHE_CHECK;\n",
            name, library->name, spec->stem);
    fprintf(f,
            "lathe_status %s_workspace(size_t *out, const %s_%s_args *args, lathe_error *err) LATHE_CHECK;\n",
            name, library->name, spec->stem);
    if (!item)
        fprintf(f, "const lathe_kernel_set *%s_set(void); /* for lathe_set_kernel_at */\n", name);
}

void lathe__aot_write_header(FILE *f, const struct aot_library *library)
{
    char guard[AOT_NAME_BYTES];
    snprintf(guard, sizeof guard, "%s", library->name);
    for (char *c = guard; *c; c++)
        *c = (char)toupper((unsigned char)*c);
    write_opening(f, library);
    fprintf(
        f,
        "#ifndef %s_KERNELS_H\n#define %s_KERNELS_H\n\n#include <lathe_aot.h>\n\n#ifdef __cplusplus\nextern "
        "\"C\" {\n#endif\n\n",
        guard, guard);
    for (int s = 0; s < library->n_specs; s++) {
        const struct aot_spec *spec = &library->spec[s];
        write_struct(f, library, spec);
        write_functions(f, library, spec, NULL);
        for (int i = 0; i < spec->n_items; i++)
            write_functions(f, library, spec, &spec->item[i]);
        fprintf(f, "\n");
    }
    fprintf(f, "#ifdef __cplusplus\n}\n#endif\n#endif\n");
}

/* ---- pkg-config and manifest ---------------------------------------------------------------------- */

void lathe__aot_write_pkgconfig(FILE *f, const struct aot_library *library)
{
    fprintf(f,
            "prefix=${pcfiledir}\n\nName: %s\nDescription: GPU kernels, compiled ahead of time by lathe\n"
            "Version: " LATHE_VERSION "\nRequires: lathe-rt\nCflags: -I${prefix}\nLibs: -L${prefix} -l%s\n",
            library->name, library->name);
}

static void write_unit(FILE *f, const struct aot_library *library, const struct aot_unit *unit)
{
    char digest[KEY_TEXT_BYTES];
    digest_text(unit->digest, digest);
    fprintf(f, "  code %s\n    archs", unit->source.label);
    write_archs(f, library, unit);
    for (int i = 0; i < unit->n_archs; i++)
        if (unit->arch[i] == library->ptx_arch)
            fprintf(f, " ptx:%s", library->arch[library->ptx_arch]);
    fprintf(f, "\n    source %s\n", digest);
    digest_text(unit->image_digest, digest);
    fprintf(f, "    image %s %zu bytes\n", digest, unit->image_size);
    for (int i = 0; i < unit->source.n_launches; i++)
        fprintf(f, "    launch %s %d threads %d shared %" PRIu32 " parameters\n",
                unit->source.launch[i].entry, unit->source.launch[i].threads,
                unit->source.launch[i].smem_bytes, unit->source.launch[i].param_bytes);
}

void lathe__aot_write_manifest(FILE *f, const struct aot_library *library, const struct compiler *compiler)
{
    char name[AOT_FUNCTION_BYTES];
    fprintf(f, "lathe " LATHE_VERSION ", format %u\nnvrtc %d.%d\ncommand %s%s\n", AOT_FORMAT, compiler->major,
            compiler->minor, library->command, library->options);
    for (int s = 0; s < library->n_specs; s++) {
        const struct aot_spec *spec = &library->spec[s];
        for (int i = 0; i < spec->n_items; i++) {
            struct phrase problem = {{0}, 0};
            lathe__aot_function(library, spec, &spec->item[i], name);
            lathe__aot_problem_text(&spec->sig, &spec->item[i].problem, &problem);
            fprintf(f, "kernel %s\n  spec %s\n  problem %s\n", name, spec->shown, problem.text);
            for (int u = 0; u < spec->item[i].n_units; u++)
                write_unit(f, library, &spec->item[i].unit[u]);
        }
    }
}
