/*
 * lua_streams.c: part of the shared library alone; lets it contain a static Lua.
 * Distributions build liblua5.4.a for programs, not for shared libraries: its code reads stdin, stdout and
 * stderr by an address relative to itself, which cannot lead into libc from a shared library. The linker's
 * --wrap turns those names into the three variables below, which live in the library. Nothing is freed. No
 * spec can reach them: the sandbox opens no Lua library that reads or prints.
 */
#include <stdio.h>

/* NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): the linker makes these names. */
extern FILE *__real_stdin;
extern FILE *__real_stdout;
extern FILE *__real_stderr;
extern FILE *__wrap_stdin;
extern FILE *__wrap_stdout;
extern FILE *__wrap_stderr;
FILE *__wrap_stdin;
FILE *__wrap_stdout;
FILE *__wrap_stderr;

__attribute__((constructor)) static void fill_streams(void)
{
    __wrap_stdin = __real_stdin;
    __wrap_stdout = __real_stdout;
    __wrap_stderr = __real_stderr;
}
/* NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming) */
