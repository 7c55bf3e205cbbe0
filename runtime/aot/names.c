/*
 * names.c: the names in a library made by `lathe aot`: kernels, members, functions. In: a signature and a
 * problem, or the parts of a library; out: text in the caller's memory. A kernel's name holds all that is
 * compiled in, so that two kernels of a spec have one name only if they are the same. Pure.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/aot/make.h"
#include "runtime/recipe/bind.h"

/* Returns false where it does not fit. */
__attribute__((format(printf, 3, 4))) static bool append(char out[AOT_SUFFIX_BYTES], size_t *n,
                                                         const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const int more = vsnprintf(out + *n, AOT_SUFFIX_BYTES - *n, fmt, ap);
    va_end(ap);
    if (more < 0 || (size_t)more >= AOT_SUFFIX_BYTES - *n)
        return false;
    *n += (size_t)more;
    return true;
}

static bool append_input(const struct signature *sig, const struct problem *p, int i,
                         char out[AOT_SUFFIX_BYTES], size_t *n)
{
    const struct sig_arg *a = &sig->arg[i];
    if (a->rare && arg_in(p->present, i) && lathe__rare_dtype(a, p->arg_dtype[i]) != a->dtype)
        return append(out, n, "_%s_%s", a->name, lathe_dtype_text((lathe_dtype)p->arg_dtype[i]));
    if (a->presence_built && a->rare == arg_in(p->present, i))
        return append(out, n, a->rare ? "_%s" : "_no_%s", a->name);
    if (lathe__names_dtype(sig, i) && p->arg_dtype[i] != p->dtype[DTYPE_USUAL])
        return append(out, n, "_%s_%s", a->name, lathe_dtype_text((lathe_dtype)p->arg_dtype[i]));
    return true;
}

/* Of what is compiled in, by the last letter of its name: n4096, d64, and v128 where d_v is another. */
static bool append_size(const struct signature *sig, const struct problem *p, int i,
                        char out[AOT_SUFFIX_BYTES], size_t *n)
{
    const struct sig_size *s = &sig->size[i];
    const char *name = lathe__sym_text(sig, s->sym);
    if (!s->built || (s->same_as != SYM_ONE && lathe__size_follows(sig, p, i)))
        return true;
    return append(out, n, "_%c%lld", name[strlen(name) - 1], (long long)p->dim[s->sym]);
}

/* The dtype comes first, then dims, then inputs that are not as they mostly are. */
bool lathe__aot_suffix(const struct signature *sig, const struct problem *p, char out[AOT_SUFFIX_BYTES])
{
    size_t n = 0;
    bool fits = append(out, &n, "%s", lathe_dtype_text(p->dtype[DTYPE_USUAL]));
    for (int i = 0; i < sig->n_sizes; i++)
        fits = fits && append_size(sig, p, i, out, &n);
    fits = fits && (!(lathe__lengths(p) & LENGTHS_FEW_QUERIES) || append(out, &n, "_few"));
    fits = fits && (!(lathe__lengths(p) & LENGTHS_NINE_ROWS) || append(out, &n, "_nine"));
    fits = fits && (!(lathe__lengths(p) & LENGTHS_MANY_KEYS) || append(out, &n, "_long"));
    fits = fits && (!(lathe__lengths(p) & LENGTHS_ODD_PAGES) || append(out, &n, "_odd_pages"));
    for (int i = 0; i < sig->n_args; i++)
        fits = fits && append_input(sig, p, i, out, &n);
    for (int i = 0; i < sig->n_args; i++)
        if (arg_in(p->unaligned, i))
            fits = fits && append(out, &n, "_unaligned_%s", sig->arg[i].name);
    for (int i = 0; i < sig->n_args; i++)
        if (arg_in(p->folded, i))
            fits = fits && append(out, &n, "_folded_%s", sig->arg[i].name);
    if (p->deterministic)
        fits =
            fits &&
            append(out, &n, p->deterministic == DETERMINISTIC_BATCH ? "_batch_invariant" : "_deterministic");
    return fits;
}

const char *lathe__aot_name_error(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const size_t n = strlen(name);
    if (n == 0 || n >= AOT_NAME_BYTES)
        return "1 to 32 characters";
    if (strspn(name, letters) == 0)
        return "a letter first";
    for (size_t i = 0; i < n; i++)
        if (!strchr(letters, name[i]) && !strchr("0123456789_", name[i]))
            return "letters, digits and _";
    if (strncmp(name, "lathe", 5) == 0)
        return "another name: those that begin with lathe are the library's own";
    return NULL;
}

/* Words of C and C++, macros (of compilers without -std, and of headers that a program includes before a
   library's), and types that a header of ours uses: in C++ a member cannot have the name of a later one's. */
void lathe__aot_member(const char *argument, char out[NAME_MAX_BYTES + 2])
{
    static const char taken[] =
        " NULL EOF I errno stderr stdin stdout linux typeof typeof_unqual unix"
        " alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t "
        "char8_t "
        "class co_await co_return co_yield compl concept const const_cast consteval constexpr constinit "
        "continue "
        "decltype default delete do double dynamic_cast else enum explicit export extern false float for "
        "friend "
        "goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private "
        "protected public register reinterpret_cast requires restrict return short signed sizeof static "
        "static_assert static_cast struct switch template this thread_local throw true try typedef typeid "
        "typename union unsigned using virtual void volatile wchar_t while xor xor_eq ";
    char word[NAME_MAX_BYTES + 2];
    size_t n = strlen(argument);
    while (n > 1 && argument[n - 1] == '_') /* so that `int_` does not become what `int` becomes */
        n--;
    snprintf(word, sizeof word, " %.*s ", (int)n, argument);
    const bool reserved = argument[0] == '_' || strncmp(argument, "lathe_", 6) == 0 ||
                          (n + 2 < sizeof word && strstr(taken, word) != NULL);
    snprintf(out, NAME_MAX_BYTES + 2, "%s%s", argument, reserved ? "_" : "");
}

void lathe__aot_function(const struct aot_library *library, const struct aot_spec *spec,
                         const struct aot_item *item, char out[AOT_FUNCTION_BYTES])
{
    const char *pass = lathe__pass_text(spec->pass);
    if (item)
        snprintf(out, AOT_FUNCTION_BYTES, "%s_%s_%s_%s", library->name, spec->name, item->suffix, pass);
    else
        snprintf(out, AOT_FUNCTION_BYTES, "%s_%s_%s", library->name, spec->name, pass);
}

int lathe__aot_unit_number(const struct aot_spec *spec, const struct aot_unit *unit)
{
    int number = 0;
    for (int i = 0; i < spec->n_items; i++)
        for (int u = 0; u < spec->item[i].n_units; u++, number++)
            if (&spec->item[i].unit[u] == unit)
                return number;
    return -1;
}

enum aot_field_kind lathe__aot_field_kind(const struct sig_arg *a)
{
    if (!lathe__is_host_value(a))
        return FIELD_TENSOR;
    if (a->dtype == LATHE_I32)
        return a->optional ? FIELD_OPTIONAL_I32 : FIELD_I32;
    return a->optional ? FIELD_OPTIONAL_F32 : FIELD_F32;
}

static void free_unit(struct aot_unit *unit)
{
    for (size_t i = 0; i < sizeof unit->piece / sizeof unit->piece[0]; i++)
        free(unit->piece[i].data);
    for (int i = 0; i < unit->source.n_texts; i++)
        free(unit->source.text[i].data);
    for (int i = 0; i < unit->source.n_launches; i++)
        free((void *)(uintptr_t)unit->source.launch[i].param);
    free(unit->image);
}

void lathe__aot_free(struct aot_library *library)
{
    for (int s = 0; s < library->n_specs; s++) {
        struct aot_spec *spec = &library->spec[s];
        for (int i = 0; i < spec->n_items; i++) {
            for (int u = 0; u < spec->item[i].n_units; u++)
                free_unit(&spec->item[i].unit[u]);
            free(spec->item[i].unit);
        }
        free(spec->item);
    }
    free(library->spec);
    library->spec = NULL;
    library->n_specs = 0;
}
