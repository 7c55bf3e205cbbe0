/*
 * emit_members.c: every generated header has what its templates ask for: the members of struct variant and of
 * parameter structs, held against common/concepts.cuh and contracts/ of templates/, for every template.
 *
 * The contract says which members a struct must have and which it may have. So a member that is missing is
 * told by the first, and one that is renamed by both. What only some texts have, a case names in `also`.
 */
#include "check.h"
#include "emit_call.h"
#include "gen/ir/kind.h"
#include "gen/plan/template.h"
#include "members.h"
#include "members_cases.h"

/* ---- contracts -------------------------------------------------------------------------------- */

static char *read_whole(const char *path)
{
    FILE *f = fopen(check_source_path(path), "rb");
    CHECK(f != NULL);
    char *text = calloc(1, 1 << 17);
    CHECK(text != NULL);
    CHECK(fread(text, 1, (1 << 17) - 1, f) < (1 << 17) - 1);
    fclose(f);
    return text;
}

/* The word at the front, which is taken off; false: there is none. */
static bool take_word(const char **words, char *out, size_t size)
{
    *words += strspn(*words, " ");
    const size_t n = strcspn(*words, " ");
    CHECK(n < size);
    snprintf(out, size, "%.*s", (int)n, *words);
    *words += n;
    return n > 0;
}

/* What stands between lines of ```cpp and ```. */
static void read_contracts(const char *files, struct members *out)
{
    char name[64];
    char path[128];
    while (take_word(&files, name, sizeof name)) {
        snprintf(path, sizeof path, "templates/contracts/%s", name);
        char *const text = read_whole(path);
        for (const char *at = text; (at = strstr(at, "```cpp\n")) != NULL;) {
            at += strlen("```cpp\n");
            const char *const stop = strstr(at, "```");
            CHECK(stop != NULL);
            members_read(out, at, (size_t)(stop - at));
            at = stop + 3;
        }
        free(text);
    }
}

/* Numbered members have one line in a contract, that of number 0: "final0_b". */
static void without_numbers(const char *path, char *out)
{
    size_t n = 0;
    for (const char *at = path; *at; at++) {
        const bool digit = isdigit((unsigned char)*at) != 0;
        if (!digit || at == path || !isdigit((unsigned char)at[-1]))
            out[n++] = digit ? '0' : *at;
    }
    out[n] = 0;
}

/* The contract's name of a struct: "map3" is a map0, "variant.key_mod" a query_mod. False: it may hold
 * anything. */
static bool contract_scope(const char *scope, char *out)
{
    const size_t size = strlen(scope);
    const char *const dot = strchr(scope, '.');
    without_numbers(scope, out);
    if (dot && size > 4 && strcmp(scope + size - 4, "_mod") == 0)
        memcpy(out, "query_mod", sizeof "query_mod");
    else if (dot && size > 5 && strcmp(scope + size - 5, "_back") == 0)
        memcpy(out, "query_back", sizeof "query_back");
    else if (dot)
        return strcmp(scope, "variant.merge") == 0;
    return strcmp(out, "inputs") != 0 && strcmp(out, "grads") != 0 && strncmp(out, "numbered_", 9) != 0;
}

/* ---- complaints ------------------------------------------------------------------------------- */

static void complain(struct text_buf *out, const char *what, const char *path)
{
    text_add(out, "%s %s; ", what, path);
}

static void want(const struct members *have, const char *scope, const char *name, struct text_buf *out)
{
    char path[2 * MEMBER_PATH];
    snprintf(path, sizeof path, "%s.%s", scope, name);
    if (!member_find(have, path))
        complain(out, "no", path);
}

static bool is_in(const char *path, const char *scope)
{
    const size_t size = strlen(scope);
    return strncmp(path, scope, size) == 0 && path[size] == '.' && !strchr(path + size + 1, '.');
}

static bool knows(const struct members *contract, const char *path)
{
    char plain[2 * MEMBER_PATH];
    char known[MEMBER_PATH];
    without_numbers(path, plain);
    for (int i = 0; i < contract->n; i++) {
        without_numbers(contract->list[i].path, known);
        if (strcmp(plain, known) == 0)
            return true;
    }
    return false;
}

/* One struct of the generated text: it has what it must, and nothing that the contract does not know. */
static void compare_struct(const struct members *have, const struct members *contract, const char *needs,
                           const char *scope, struct text_buf *out)
{
    char name[MEMBER_PATH];
    char path[2 * MEMBER_PATH];
    if (!contract_scope(scope, name))
        return;
    const struct member *const c = member_find(contract, name);
    if (!c || !c->is_struct)
        complain(out, "no contract of struct", scope);
    for (int i = 0; i < have->n; i++)
        if (is_in(have->list[i].path, scope)) {
            snprintf(path, sizeof path, "%s.%s", name, have->list[i].path + strlen(scope) + 1);
            if (!knows(contract, path))
                complain(out, "unknown", have->list[i].path);
        }
    if (needs && strcmp(scope, "variant") == 0) {
        while (take_word(&needs, path, sizeof path))
            want(have, scope, path, out);
        return;
    }
    for (int i = 0; i < contract->n; i++)
        if (is_in(contract->list[i].path, name) && !contract->list[i].sometimes)
            want(have, scope, contract->list[i].path + strlen(name) + 1, out);
}

/* ---- concepts --------------------------------------------------------------------------------- */

struct concept {
    const char *at, *end;
    const struct members *have;
    const char *variant, *params; /* structs that V or M, and P, stand for */
    struct text_buf *out;
};

/* "V::template make<2>": the slot; or "p.q". False: neither is here. */
static bool take_slot(struct concept *c, char *scope, char *name)
{
    const bool of_variant = strchr("VM", *c->at) && c->at[1] == ':' && c->at[2] == ':';
    const bool of_params = c->at[0] == 'p' && c->at[1] == '.' && isalpha((unsigned char)c->at[2]);
    if ((!of_variant && !of_params) || member_is_name(c->at[-1]))
        return false;
    c->at += of_variant ? 3 : 2;
    if (strncmp(c->at, "template ", 9) == 0)
        c->at += 9;
    size_t n = 0;
    while (member_is_name(c->at[n]))
        n++;
    CHECK(n < MEMBER_PATH);
    snprintf(scope, MEMBER_PATH, "%s", of_variant ? c->variant : c->params);
    snprintf(name, MEMBER_PATH, "%.*s", (int)n, c->at);
    c->at += n;
    return true;
}

/* "requires V::SITES == 0 || requires { ... }": what is in braces counts where the constant is not 0. */
static void take_condition(struct concept *c)
{
    char scope[MEMBER_PATH];
    char name[MEMBER_PATH];
    char path[2 * MEMBER_PATH];
    while (c->at < c->end && strchr(" !", *c->at))
        c->at++;
    CHECK(take_slot(c, scope, name));
    want(c->have, scope, name, c->out);
    snprintf(path, sizeof path, "%s.%s", scope, name);
    const struct member *const m = member_find(c->have, path);
    CHECK(!m || m->value >= 0);
    c->at = strchr(c->at, '{');
    if (m && m->value == 0) {
        struct member_reader r = {.at = c->at, .end = c->end};
        member_skip_brackets(&r);
        c->at = r.at;
    }
}

static void compare_concept(const char *concepts, const char *name, const struct members *have,
                            const char *variant, const char *params, struct text_buf *out)
{
    char key[MEMBER_PATH];
    char scope[MEMBER_PATH];
    char slot[MEMBER_PATH];
    snprintf(key, sizeof key, "concept %s = requires(", name);
    const char *const at = strstr(concepts, key);
    CHECK(at != NULL);
    struct concept c = {at + strlen(key), strstr(at, "\n};"), have, variant, params, out};
    CHECK(c.end != NULL);
    while (c.at < c.end) {
        if (strncmp(c.at, "requires ", 9) == 0 && c.at[9] != '{') {
            c.at += 9;
            take_condition(&c);
        } else if (take_slot(&c, scope, slot)) {
            want(have, scope, slot, out);
        } else {
            c.at++;
        }
    }
}

static void compare_concepts(const struct contract *contract, const struct members *have,
                             struct text_buf *out)
{
    char *const text = read_whole("templates/common/concepts.cuh");
    char name[MEMBER_PATH];
    char params[MEMBER_PATH];
    for (const char *words = contract->concepts; take_word(&words, name, sizeof name);) {
        CHECK(take_word(&words, params, sizeof params));
        compare_concept(text, name, have, "variant", params, out);
    }
    for (int i = 0; i < have->n; i++) {
        const char *const path = have->list[i].path;
        if (have->list[i].is_struct && contract_scope(path, name) && strcmp(name, "query_mod") == 0)
            compare_concept(text, "vector_mod", have, path, "", out);
    }
    free(text);
}

/* ---- texts ------------------------------------------------------------------------------------- */

/* What is wrong with what a text has, as one line. */
static void compare_members(const struct members_case *c, const struct members *have,
                            const struct members *contract, struct text_buf *out)
{
    for (int i = 0; i < have->n; i++)
        if (have->list[i].is_struct)
            compare_struct(have, contract, c->contract->needs, have->list[i].path, out);
    compare_concepts(c->contract, have, out);
    char path[2 * MEMBER_PATH];
    for (const char *words = c->also; take_word(&words, path, sizeof path);)
        if (!member_find(have, path))
            complain(out, "no", path);
}

static void make_case(const struct members_case *c, struct source *out)
{
    struct diag diag = {0};
    struct signature sig;
    struct problem problem;
    lathe_error err = {.status = LATHE_OK};
    char *const text = strchr(c->spec, '/') ? read_whole(c->spec) : NULL;
    struct ir *ir = spec_load(c->spec, text, text ? strlen(text) : 0, &diag);
    CHECK(ir != NULL);
    signature_make(ir, c->pass, &sig);
    CHECK_EQ(problem_parse(&sig, c->problem, &problem, &err), LATHE_OK);
    CHECK_EQ(kernel_make_source(ir, c->pass, &sig, &problem, c->device, out, &err), LATHE_OK);
    ir_free(ir);
    free(text);
}

/* Of one case: what its text has, and what its contract says. The caller frees both. */
static void read_case(const struct members_case *c, struct members **have, struct members **contract)
{
    struct source s;
    *have = calloc(1, sizeof **have);
    *contract = calloc(1, sizeof **contract);
    CHECK(*have != NULL && *contract != NULL);
    make_case(c, &s);
    const struct text *const variant = text_named(&s, "variant.gen.cuh");
    members_read(*have, variant->data, variant->size);
    read_contracts(c->contract->files, *contract);
    source_free(&s);
}

TEST(members_are_read)
{
    static const char text[] =
        "#include <a>\nstruct alignas(8) one { // a; b\n    const float *p, *q[2]; // where it is\n"
        "    long long s0; ...\n};\nusing two = one;\n"
        "struct three {\n    // Optional: this one\n    // alone.\n    int above;\n    int below; // is "
        "here\n\n"
        "    // Only there:\n    static constexpr int N[] = {4, 5}, M = 7;\n\n"
        "    template <int P, class A> DEV float get(const A (&a)[P]) { return a[0]; }\n"
        "    struct inner { bool b; };\n    struct { int u; } part[2];\n};\n";
    static const char *const paths[] = {"one",       "one.p",       "one.q",         "one.s0",  "two",
                                        "three",     "three.above", "three.below",   "three.N", "three.M",
                                        "three.get", "three.inner", "three.inner.b", "three.u", "three.part"};
    enum { N = sizeof paths / sizeof *paths };
    struct members *const m = calloc(1, sizeof *m);
    CHECK(m != NULL);
    members_read(m, text, sizeof text - 1);
    CHECK_EQ(m->n, N);
    for (int i = 0; i < N; i++)
        CHECK_STR(m->list[i].path, paths[i]);
    CHECK(m->list[1].sometimes && m->list[2].sometimes && !m->list[3].sometimes);
    CHECK(m->list[6].sometimes && !m->list[7].sometimes);
    CHECK(m->list[8].sometimes && m->list[9].sometimes && !m->list[10].sometimes);
    CHECK_EQ(m->list[8].value, 4);
    CHECK_EQ(m->list[9].value, 7);
    CHECK_EQ(m->list[10].value, -1);
    CHECK(m->list[5].is_struct && m->list[11].is_struct && !m->list[4].is_struct);
    free(m);
}

TEST(structs_have_what_their_contracts_say)
{
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct members *have;
        struct members *contract;
        struct text_buf wrong = {0};
        read_case(&CASES[i], &have, &contract);
        compare_members(&CASES[i], have, contract, &wrong);
        if (wrong.size > 0)
            printf("%s, %s: ", CASES[i].spec, CASES[i].problem);
        CHECK_STR(wrong.size > 0 ? wrong.data : "", "");
        free(have);
        free(contract);
    }
}

/* A new template comes with its case. */
TEST(every_template_has_a_case)
{
    enum { N = sizeof CASES / sizeof *CASES };
    static struct source s[N];
    char line[128];
    for (int i = 0; i < N; i++)
        make_case(&CASES[i], &s[i]);
    for (int k = 0; k < KIND_COUNT; k++)
        for (const struct template_row *t = kinds[k].templates; t->name; t++) {
            bool found = false;
            snprintf(line, sizeof line, "#include \"%s\"", t->file);
            for (int i = 0; i < N; i++)
                found = found || (CASES[i].pass == t->pass && strstr(s[i].text[0].data, line));
            if (!found)
                check_fail(__FILE__, __LINE__, t->name);
        }
    for (int i = 0; i < N; i++)
        source_free(&s[i]);
}

/* ---- nothing else goes unseen -------------------------------------------------------------------- */

/* Does the comparison see that member `i` has another name, or that it is gone? */
static bool is_seen(const struct members_case *c, struct members *have, const struct members *contract, int i,
                    bool gone)
{
    const struct member kept = have->list[i];
    struct text_buf wrong = {0};
    memcpy(strrchr(have->list[i].path, '.') + 1, gone ? "." : "another", gone ? 2 : 8);
    have->list[i].is_struct = false;
    compare_members(c, have, contract, &wrong);
    have->list[i] = kept;
    const bool seen = wrong.size > 0;
    text_free(&wrong);
    return seen;
}

/* Members of a struct that has a contract. */
static bool is_compared(const struct member *m)
{
    char scope[MEMBER_PATH];
    char name[MEMBER_PATH];
    const char *const dot = strrchr(m->path, '.');
    snprintf(scope, sizeof scope, "%.*s", dot ? (int)(dot - m->path) : 0, m->path);
    return dot && contract_scope(scope, name);
}

/* Each member is one that some case must have: a name that no case asks for could be lost. */
TEST(members_that_are_lost_or_renamed_are_told)
{
    struct members *const seen = calloc(1, sizeof *seen);
    struct members *const lost = calloc(1, sizeof *lost);
    CHECK(seen != NULL && lost != NULL);
    for (size_t c = 0; c < sizeof CASES / sizeof *CASES; c++) {
        struct members *have;
        struct members *contract;
        read_case(&CASES[c], &have, &contract);
        for (int i = 0; i < have->n; i++) {
            char key[2 * MEMBER_PATH];
            snprintf(key, sizeof key, "%.2s.", CASES[c].contract->files);
            without_numbers(have->list[i].path, key + strlen(key));
            if (!is_compared(&have->list[i]) || member_find(seen, key))
                continue;
            CHECK(is_seen(&CASES[c], have, contract, i, false));
            struct members *const to = is_seen(&CASES[c], have, contract, i, true) ? seen : lost;
            snprintf(to->list[to->n++].path, MEMBER_PATH, "%s", key);
        }
        free(have);
        free(contract);
    }
    for (int i = 0; i < lost->n; i++)
        if (!member_find(seen, lost->list[i].path))
            check_fail(__FILE__, __LINE__, lost->list[i].path);
    free(seen);
    free(lost);
}
