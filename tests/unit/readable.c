/*
 * readable.c: what is left out of a kernel's text for its reader. That the machine code stays is
 * tests/same_code.sh's; that it compiles, tests/templates.sh's.
 */
#include "check.h"
#include "gen/base/text.h"
#include "gen/readable/readable.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *kept;

static const char *readable(const char *text)
{
    struct text_buf out = {0};
    readable_text(text, strlen(text), &out);
    CHECK(!out.failed);
    free(kept);
    kept = out.data;
    return kept;
}

static bool has(const char *text, const char *part)
{
    return strstr(readable(text), part) != NULL;
}

#define KERNEL "extern \"C\" __global__ void f(int *p)\n{\n    *p = used();\n}\n"

TEST(what_no_kernel_reaches_is_left_out)
{
    CHECK_STR(readable("int used() { return 1; }\nint unused() { return 2; }\n" KERNEL),
              "int used() { return 1; }\n" KERNEL);
    CHECK_STR(
        readable("constexpr int A = 1, B = 2;\nconstexpr int C = 3;\nint used() { return B; }\n" KERNEL),
        "constexpr int A = 1, B = 2;\nint used() { return B; }\n" KERNEL);
    CHECK(has("enum e { // comment\n    A, // a\n    B\n};\nint used() { return A; }\n" KERNEL, "B\n"));
    CHECK(has("enum e { A, // a\n    B };\nint used() { return B; }\n" KERNEL, "enum e"));
    CHECK(!has("static_assert(true, \"x\");\nint used();\n" KERNEL, "static_assert"));
    CHECK(!has("#define M 1\n#define N 2\nint used() { return N; }\n" KERNEL, "M 1"));
    CHECK(has("#define PART_1 1\n#define JOIN(n) PART_##n\nint used() { return JOIN(1); }\n" KERNEL,
              "PART_1 1"));
}

TEST(members_are_left_out_but_for_data)
{
    const char *text =
        "struct s {\n    int data, more;\n    s(int x) { data = x; }\n    int get() { return data; }\n"
        "    int other() { return more; }\n};\nint used() { return s(1).get(); }\n" KERNEL;
    CHECK(has(text, "int data, more;"));
    CHECK(has(text, "s(int x)"));
    CHECK(has(text, "int get()"));
    CHECK(!has(text, "other"));
    /* a member of that name is no use of the function, nor is a variable */
    CHECK(
        !has("int load() { return 1; }\nstruct s { int load; };\nint used() { s x; return x.load; }\n" KERNEL,
             "int load()"));
    CHECK(!has("int turn() { return 1; }\nint used() { int turn = 2; return turn; }\n" KERNEL, "int turn()"));
}

TEST(branches_that_numbers_decide_are_left_out)
{
    const char *const numbers = "namespace cfg {\nconstexpr bool ON = true;\nconstexpr int N = 3;\n}\n";
    char text[800];
    snprintf(text, sizeof text,
             "%sint a();\nint b();\nint used()\n{\n    if constexpr (cfg::ON && cfg::N > 2) {\n"
             "        return a();\n    } else {\n        return b();\n    }\n}\n" KERNEL,
             numbers);
    CHECK(has(text, "return a();"));
    CHECK(!has(text, "b()"));
    CHECK(!has(text, "if constexpr"));
    snprintf(text, sizeof text,
             "%sint a();\ntemplate <int P> int used()\n{\n    if constexpr (!cfg::ON || P == 1) {\n"
             "        return a();\n    }\n    return 0;\n}\n" KERNEL,
             numbers);
    CHECK(has(text, "if constexpr (!cfg::ON || P == 1)")); /* a parameter decides */
    snprintf(text, sizeof text,
             "%sint a();\nint used(bool x)\n{\n    for (;;)\n        if (!cfg::ON && x)\n"
             "            return a();\n}\n" KERNEL,
             numbers);
    CHECK(has(text, "return a();")); /* the loop would lose its body */
}

/* A choice ends where the next variable begins, or the brackets around it end. */
TEST(choices_leave_what_stands_behind_them)
{
    const char *const head = "constexpr bool ON = true;\n";
    char text[800];
    snprintf(text, sizeof text, "%sconstexpr int A = ON ? 1 : 2, B = 3;\nint used() { return B; }\n" KERNEL,
             head);
    CHECK(has(text, "constexpr int A = 1, B = 3;"));
    snprintf(text, sizeof text,
             "%sconstexpr int A = ON ? 1 : 2, B = ON ? 3 : 4, C = 5;\nint used() { return C; }\n" KERNEL,
             head);
    CHECK(has(text, "constexpr int A = 1, B = ON ? 3 : 4, C = 5;"));
    snprintf(text, sizeof text,
             "%sstruct s { static constexpr int A = ON ? 1 : 2, B = 3, C = 4; };\n"
             "int used() { return s::B; }\n" KERNEL,
             head);
    CHECK(has(text, "static constexpr int A = 1, B = 3, C = 4;"));
    snprintf(text, sizeof text, "%sint used() { constexpr int A = ON ? 1 : 2, B = 3; return B; }\n" KERNEL,
             head);
    CHECK(has(text, "constexpr int A = 1, B = 3;"));
    snprintf(text, sizeof text, "%sint used(int a = ON ? 1 : 2, int b = 3) { return a + b; }\n" KERNEL, head);
    CHECK(has(text, "int a = 1, int b = 3) { return a + b; }"));
    snprintf(text, sizeof text, "%sint used(int a = ON ? 1 : 2) { return a; }\n" KERNEL, head);
    CHECK(has(text, "int a = 1) { return a; }"));
    snprintf(text, sizeof text, "%stemplate <int N = ON ? 1 : 2> int used() { return N; }\n" KERNEL, head);
    CHECK(has(text, "> int used() { return N; }"));
    snprintf(text, sizeof text, "%sint of(int);\nint used() { return ON ? 1 : of(2); }\n" KERNEL, head);
    CHECK(has(text, "return 1; }"));
}

/* A constant of a function that a directive alone reads. */
TEST(directives_read_constants_of_a_function)
{
    CHECK(has("int used()\n{\n    constexpr int N = 4;\n    int x = 0;\n#pragma unroll(N)\n"
              "    for (int i = 0; i < 4; i++)\n        x++;\n    return x;\n}\n" KERNEL,
              "constexpr int N = 4;"));
    CHECK(!has("int used()\n{\n    constexpr int N = 4;\n    return 1;\n}\n" KERNEL, "N = 4"));
}

/* What a namespace opens of another is used by its own name, not by that of the other. */
TEST(names_that_a_namespace_opens_stay_where_they_are_used)
{
    const char *const text = "namespace a {\nint one() { return 1; }\nint two() { return 2; }\n}\n"
                             "namespace b {\nusing a::one;\nusing a::two;\nint get() { return one(); }\n}\n"
                             "int used() { return b::get(); }\n" KERNEL;
    CHECK(has(text, "using a::one;"));
    CHECK(strstr(kept, "int one()"));
    CHECK(!strstr(kept, "two"));
}

/* Two and three names of one declaration: it stays for any of them. */
TEST(a_declaration_stays_for_each_of_its_names)
{
    static const char *const NAMES[] = {"A", "B", "C"};
    for (int k = 0; k < 3; k++) {
        char text[400];
        snprintf(text, sizeof text, "constexpr int A = 1, B = 2, C = 3;\nint used() { return %s; }\n" KERNEL,
                 NAMES[k]);
        CHECK(has(text, "constexpr int A = 1, B = 2, C = 3;"));
        snprintf(
            text, sizeof text,
            "struct s { static constexpr int A = 1, B = 2, C = 3; };\nint used() { return s::%s; }\n" KERNEL,
            NAMES[k]);
        CHECK(has(text, "static constexpr int A = 1, B = 2, C = 3;"));
    }
    CHECK(!has("constexpr int A = 1, B = 2, C = 3;\nint used() { return 0; }\n" KERNEL, "A = 1"));
}

/* A local variable, or a parameter, hides a number of that name. */
TEST(names_of_a_function_are_its_own)
{
    CHECK(has("constexpr bool ON = false;\nint a();\nint used(bool ON) { if (ON) { return a(); } return 0; "
              "}\n" KERNEL,
              "a();"));
    CHECK(!has("constexpr bool ON = false;\nint a();\nint used() { constexpr bool HERE = !ON; if (!HERE) { "
               "return a(); } return 0; }\n" KERNEL,
               "a();"));
}

/* What a function returns is not looked for, though some '=' stands in it. */
TEST(calls_are_not_evaluated)
{
    CHECK(has("int a();\ntemplate <int R> constexpr int find() { int x = -1; x = R; return x; }\n"
              "template <int R> int used() { constexpr int F = find<R>(); if constexpr (F >= 0) { return "
              "a(); } return 0; }\n" KERNEL,
              "return a();"));
    CHECK(has("int a();\ntemplate <int R> int find = R;\nint used() { if (find<1> == 0) { return a(); } "
              "return 0; }\n" KERNEL,
              "return a();"));
}

TEST(members_that_no_type_has_are_not_there)
{
    const char *const body =
        "template <class P> constexpr bool HAS = requires(P p) { p.extra; };\nint a();\n"
        "template <class P> int used(P p) { if constexpr (HAS<P>) { return a(); } return 0; }\n"
        "extern \"C\" __global__ void f(params p) { used(p); }\n";
    char text[800];
    snprintf(text, sizeof text, "struct params { int plain; };\n%s", body);
    CHECK(!has(text, "a();"));
    snprintf(text, sizeof text, "struct params { int extra; };\n%s", body);
    CHECK(has(text, "a();"));
}

TEST(forms_of_templates_are_chosen)
{
    const char *text = "struct v { static constexpr bool ON = false; };\n"
                       "template <class V, bool ON = V::ON> struct form { int off() { return v::ON; } };\n"
                       "template <class V> struct form<V, true> { int on() { return 1; } };\n"
                       "int used() { form<v> f; return f.off() + f.on(); }\n" KERNEL;
    CHECK(has(text, "int off()"));
    CHECK(!has(text, "int on()"));
    const char *given = "struct v { static constexpr bool ON = false; };\n"
                        "template <class V, bool ON = V::ON> struct form { int off() { return v::ON; } };\n"
                        "template <class V> struct form<V, true> { int on() { return 1; } };\n"
                        "int used() { form<v, true> f; return f.off() + f.on(); }\n" KERNEL;
    CHECK(has(given, "int on()"));
}

#define FORMS                                                                                                \
    "template <class V> struct form { int one() { return 1; } };\n"                                          \
    "template <class V>\n    requires(requires(V x) { x.extra; })\n"                                         \
    "struct form<V> : base { int two() { return 2; } };\nint used() { form<v> f; return f.one() + f.two(); " \
    "}\n"                                                                                                    \
    "extern \"C\" __global__ void f(v p) { used(); }\n"

/* Of two forms, the one whose condition does not hold goes; where that is not known, both stay. */
TEST(conditions_of_forms_are_asked)
{
    CHECK(has("struct v { int extra; };\n" FORMS, "int two()"));
    CHECK(strstr(kept, "int one()"));
    CHECK(!has("struct v { int plain; };\n" FORMS, "int two()"));
    CHECK(strstr(kept, "int one()"));
}

TEST(kernels_that_are_not_launched_are_left_out)
{
    const char *text = "#define LATHE_KERNEL_one 1\nint used();\n#if LATHE_COMPILED(one)\n" KERNEL "#endif\n"
                       "#if LATHE_COMPILED(two)\nextern \"C\" __global__ void g() {}\n#endif\n";
    CHECK(has(text, "void f("));
    CHECK(!has(text, "void g("));
    CHECK(!has(text, "#if"));
}

TEST(headings_stay_with_what_they_stand_above)
{
    const char *text = "// ==== a.cuh\n// a.cuh: of a.\n\nint unused();\n\n// ==== b.cuh\n// b.cuh: of b.\n\n"
                       "// ---- none\n\nint none();\n\n// ---- some\n\n// says one\nint used();\n" KERNEL;
    readable(text);
    CHECK(strstr(kept, "b.cuh: of b") && strstr(kept, "---- some") && strstr(kept, "says one"));
    CHECK(!strstr(kept, "a.cuh") && !strstr(kept, "---- none"));
}

/* A parameter of a template is known where all that name the template give it the same value. */
TEST(parameters_that_all_agree_on_are_known)
{
#define ON_OFF                                                                                               \
    "int a();\nint b();\ntemplate <bool ON = false> int pick() { if constexpr (ON) { return a(); } return "  \
    "b(); }\n"
    CHECK(!has(ON_OFF "int used() { return pick(); }\n" KERNEL, "a();"));
    CHECK(!has(ON_OFF "constexpr bool NO = false;\nint used() { return pick<NO>() + pick<>(); }\n" KERNEL,
               "a();"));
    CHECK(has(ON_OFF "int used() { return pick<true>() + pick(); }\n" KERNEL, "if constexpr (ON)"));
    CHECK(has(ON_OFF "#define CALL pick<true>()\nint used() { return pick() + CALL; }\n" KERNEL,
              "if constexpr (ON)"));
    CHECK(has("int a();\ntemplate <int N> int pick(int (&x)[N]) { if constexpr (N == 2) { return a(); } "
              "return 0; }\n"
              "int used() { int x[2]; return pick(x); }\n" KERNEL,
              "if constexpr (N == 2)")); /* a call deduces it */
    CHECK(has("int a();\ntemplate <int I, int N> int walk() { if constexpr (I == 1) { a(); } "
              "if constexpr (I + 1 < N) { return walk<I + 1, N>(); } return 0; }\n"
              "int used() { return walk<0, 2>(); }\n" KERNEL,
              "a();"));
    CHECK(!has("int a();\ntemplate <int I, int N> int walk() { if constexpr (I == 1) { a(); } "
               "if constexpr (I + 1 < N) { return walk<I + 1, N>(); } return 0; }\n"
               "int used() { return walk<0, 1>(); }\n" KERNEL,
               "a();")); /* it does not go on */
}

#define SAME                                                                                                 \
    "template <class A, class B> inline constexpr bool same_type = false;\n"                                 \
    "template <class A> inline constexpr bool same_type<A, A> = true;\nint a();\n"                           \
    "struct f16 { int bits; };\nstruct bf16 { int bits; };\nnamespace cfg {\nusing element = bf16;\n}\n"     \
    "template <class T> int pick() { if constexpr (same_type<T, f16>) { return a(); } return sizeof(T); }\n"

TEST(types_are_followed_through_their_names)
{
    CHECK(!has(SAME "int used() { return pick<cfg::element>(); }\n" KERNEL, "a();"));
    CHECK(has(SAME "int used() { return pick<f16>() + pick<cfg::element>(); }\n" KERNEL, "a();"));
    CHECK(has(SAME "int used() { using mine = f16; return pick<mine>(); }\n" KERNEL, "a();"));
    CHECK(has(SAME "template <class E> int outer(E x) { return pick<E>(); }\n"
                   "int used() { return outer(f16{1}); }\n" KERNEL,
              "a();"));
}

/* What takes a type that nobody writes is never called; but a call may write it as braces alone. */
TEST(overloads_of_unused_types_are_left_out)
{
    CHECK(!has("struct x { int i; };\nint get(int i) { return i; }\nint get(x a) { return a.i; }\n"
               "int used() { return get(1); }\n" KERNEL,
               "get(x a)"));
    CHECK(has("struct x { int i; };\nint get(int i) { return i; }\nint get(const x &a) { return a.i; }\n"
              "int used() { return get({1}); }\n" KERNEL,
              "get(const x &a)"));
    CHECK(has(
        "struct x { int i; };\nint get(const x &a) { return a.i; }\nint used() { return get({1}); }\n" KERNEL,
        "get(const x &a)"));
}

TEST(braces_for_nothing_are_left_out)
{
    CHECK_STR(readable("int a();\nint used()\n{\n    {\n        a();\n    }\n    return a();\n}\n" KERNEL),
              "int a();\nint used()\n{\n    a();\n    return a();\n}\n" KERNEL);
    CHECK_STR(
        readable(
            "int a();\nint used()\n{\n    {\n        int x = a();\n        return x;\n    }\n}\n" KERNEL),
        "int a();\nint used()\n{\n    int x = a();\n    return x;\n}\n" KERNEL);
    /* names of their own */
    const char *const scope =
        "int a();\nint used()\n{\n    {\n        int x = a();\n        a();\n    }\n    int x = 1;\n"
        "    return x;\n}\n" KERNEL;
    const char *const hides =
        "int a();\nint used(int x)\n{\n    {\n        int x = a();\n        return x;\n    }\n}\n" KERNEL;
    CHECK_STR(readable(scope), scope);
    CHECK_STR(readable(hides), hides);
    CHECK(has("struct s { int a[2]; };\nint used() { return s{{1, 2}}.a[0]; }\n" KERNEL, "s{{1, 2}}"));
}

TEST(choices_and_constants_that_are_decided_are_left_out)
{
#define CHOSEN "int a();\nint b();\nconstexpr bool ON = false;\n"
    CHECK(has(CHOSEN "int used() { return ON ? a() : b(); }\n" KERNEL, "return b();"));
    CHECK(
        has(CHOSEN "int used() { const int x = ON ? a() : b(); return x; }\n" KERNEL, "const int x = b();"));
    CHECK(has(CHOSEN "int used() { return 2.0f * (ON ? 1 : 0.5f); }\n" KERNEL,
              "ON ? 1 : 0.5f")); /* of which type? */
    CHECK(has(CHOSEN "int used(int y) { auto x = ON ? a() : b(); return x; }\n" KERNEL, "ON ? a()"));
    CHECK(!has(CHOSEN "int used() { constexpr int N = 3; return b(); }\n" KERNEL, "N = 3"));
    CHECK(has(CHOSEN "int used() { constexpr int N = 3; return N; }\n" KERNEL, "N = 3"));
    CHECK(has(CHOSEN "int used() { const int n = a(); return b(); }\n" KERNEL, "n = a()"));
    CHECK(!has("void idle(int x) {}\nint used(int x) { idle(x); return x; }\n" KERNEL, "idle"));
    CHECK(has("int a();\nvoid idle(int x) {}\nint used() { idle(a()); return 1; }\n" KERNEL, "idle(a())"));
}

TEST(an_opening_comment_is_one_paragraph)
{
    CHECK_STR(
        readable(
            "// ==== b.cuh\n// b.cuh: of b,\n// in two lines.\n//\n// And more.\n\nint used();\n" KERNEL),
        "// ==== b.cuh: of b,\n// in two lines.\nint used();\n" KERNEL);
    CHECK_STR(readable("// ==== b.cuh\n// b.cuh: of b.\n\n// of used\nint used();\n" KERNEL),
              "// ==== b.cuh: of b.\n\n// of used\nint used();\n" KERNEL);
}

TEST(what_macros_paste_stays_where_it_is_given)
{
    CHECK(!has("#define PART_1 1\n#define PART_2 2\n#define JOIN(n) PART_##n\nint used() { return JOIN(1); "
               "}\n" KERNEL,
               "PART_2 2"));
    CHECK(strstr(kept, "PART_1 1"));
}

TEST(a_text_that_is_not_understood_stays)
{
    CHECK_STR(readable("int a( { }"), "int a( { }");
    CHECK_STR(readable("'"), "'");
    CHECK_STR(readable("if constexpr (true"), "if constexpr (true");
}
