/*
 * check.h: the test harness. One C file per room in tests/unit/, all linked into one binary.
 *
 *     TEST(adds_up)
 *     {
 *         CHECK(list != NULL);
 *         CHECK_EQ(2 + 2, 4);
 *         CHECK_CLOSE(sqrt(2.0), 1.41421356, 1e-8);
 *     }
 *
 * A test registers itself and runs in a process of its own with a time limit, so it may crash, hang or
 * leave its memory behind without hurting the others. The first check that fails prints both values and
 * its place and ends the test. SKIP("why") ends it without a verdict.
 * The name by which a test is filtered is FILE/NAME: "units/adds_up" for the above in tests/unit/units.c.
 */
#ifndef LATHE_TESTS_CHECK_H
#define LATHE_TESTS_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Limits of time are stretched by this under a sanitizer. */
#ifndef LATHE_TEST_SLOWDOWN
#define LATHE_TEST_SLOWDOWN 1
#endif
/* Sweeps over all specs take one of so many: each goes the same ways, and a sanitizer looks at ways. */
#ifndef LATHE_TEST_EVERY
#define LATHE_TEST_EVERY 1
#endif
/* Which of them comes first: the commit draws. */
#define CHECK_FIRST_TAKEN (check_drawn(LATHE_TEST_EVERY))
/* Of loops in loops: combinations in which each value of every loop meets some of the others. */
#define CHECK_IS_TAKEN(sum_of_indices) (((sum_of_indices) + CHECK_FIRST_TAKEN) % LATHE_TEST_EVERY == 0)

struct check_test {
    const char *file;
    int line;
    const char *name;
    void (*run)(void);
    int seconds; /* time limit, 0: the default */
    struct check_test *next;
};

void check_register(struct check_test *test);

#if defined(__GNUC__)
#define CHECK_NORETURN __attribute__((noreturn))
#else
#define CHECK_NORETURN _Noreturn
#endif

/* Ends of a test. */
CHECK_NORETURN void check_fail(const char *file, int line, const char *text);
CHECK_NORETURN void check_skip(const char *file, int line, const char *why);

/* The tests behind the macros; each returns only where it holds. */
void check_true(const char *file, int line, bool holds, const char *what);
void check_integers(const char *file, int line, const char *a_text, const char *b_text, intmax_t a,
                    intmax_t b);
void check_strings(const char *file, int line, const char *a_text, const char *b_text, const char *a,
                   const char *b);
void check_close(const char *file, int line, const char *a_text, const char *b_text, double a, double b,
                 double tol);
void check_has(const char *file, int line, const char *a_text, const char *text, const char *part);

/* For files that a test needs. The path of a file in the source tree ("specs/causal.lua"), and a
   fresh folder of this test that is removed when it ends. Both stay valid while the test runs. */
const char *check_source_path(const char *relative);
/* From 0 to every - 1: where a sweep that takes one of so many begins. The commit draws: LATHE_TEST_DRAW. */
int check_drawn(int every);
const char *check_temp_dir(void);
/* --update was given: write golden files instead of comparing with them. */
bool check_update(void);

/* A test with a time limit of its own, in seconds. */
#define TEST_TIMEOUT(test_name, limit)                                                                       \
    static void test_run_##test_name(void);                                                                  \
    static struct check_test test_row_##test_name = {__FILE__, __LINE__, #test_name, test_run_##test_name,   \
                                                     limit,    NULL};                                        \
    __attribute__((constructor)) static void test_add_##test_name(void)                                      \
    {                                                                                                        \
        check_register(&test_row_##test_name);                                                               \
    }                                                                                                        \
    static void test_run_##test_name(void)

#define TEST(test_name) TEST_TIMEOUT(test_name, 0)

#define CHECK(condition) check_true(__FILE__, __LINE__, (condition), #condition)
#define CHECK_EQ(a, b)   check_integers(__FILE__, __LINE__, #a, #b, (intmax_t)(a), (intmax_t)(b))
#define CHECK_STR(a, b)  check_strings(__FILE__, __LINE__, #a, #b, (a), (b))
/* |a - b| <= tol * (1 + |b|); equal infinities are close, and so are two NaNs. */
#define CHECK_CLOSE(a, b, tol)                                                                               \
    check_close(__FILE__, __LINE__, #a, #b, (double)(a), (double)(b), (double)(tol))
#define CHECK_HAS(text, part) check_has(__FILE__, __LINE__, #text, (text), (part))
#define SKIP(why)             check_skip(__FILE__, __LINE__, (why))

#endif
