/*
 * cmd_translate.c: `lathe translate`: mods of FlexAttention as specs. They are functions of torch, so Python
 * does it: the package's own command takes the place of this process.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gen/tool/tool.h"

/* Says what is missing as the tool would, where Python is there and the package is not. */
static const char PROGRAM[] =
    "import sys\n"
    "try:\n"
    "    from lathe.__main__ import main\n"
    "except (ImportError, OSError) as error:\n"
    "    sys.exit(print(f'lathe: translate: {sys.executable} has no package lathe ({error}); install '\n"
    "                   'lathe-kernels there, or name another interpreter in LATHE_PYTHON', file=sys.stderr) "
    "or 3)\n"
    "sys.exit(main(sys.argv[1:]))\n";

int cmd_translate(const struct options *o)
{
    const char *asked = getenv("LATHE_PYTHON");
    const char *python = asked && *asked ? asked : "python3";
    const char *words[] = {python, "-c", PROGRAM, "translate"};
    enum { N_WORDS = sizeof words / sizeof *words };
    char **argv = calloc((size_t)o->n_operands + N_WORDS + 1, sizeof *argv);
    if (!argv) {
        tool_complain("out of memory");
        return CODE_ENVIRONMENT;
    }
    memcpy(argv, words, sizeof words);
    memcpy(argv + N_WORDS, o->operand, (size_t)o->n_operands * sizeof *argv);
    (void)execvp(python, argv);
    tool_complain(
        "translate: mods are functions of Python, and %s cannot be run: %s; install Python 3.10 with torch "
        "and lathe-kernels, or name it in LATHE_PYTHON",
        python, strerror(errno));
    free(argv);
    return CODE_ENVIRONMENT;
}
