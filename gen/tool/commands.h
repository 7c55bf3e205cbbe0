/*
 * commands.h: the tables of the tool: its commands and their options. Read by the command line, by help, and
 * by what writes the manual page and completions, so that none of them can say what is not so.
 */
#ifndef LATHE_TOOL_COMMANDS_H
#define LATHE_TOOL_COMMANDS_H

#include "gen/tool/tool.h"

struct command {
    const char *name;
    unsigned bit;
    int least; /* operands */
    int most;
    const char *operands;
    const char *summary;
    const char *details;
    int (*run)(const struct options *o);
};

enum option {
    OPT_PASS,
    OPT_ARCH,
    OPT_PROBLEM,
    OPT_OUT,
    OPT_DEVICE,
    OPT_SEED,
    OPT_VERIFY,
    OPT_STRICT,
    OPT_SECONDS,
    OPT_REPEAT,
    OPT_SET,
    OPT_INPUT,
    OPT_OUTPUT,
    OPT_CACHE_DIR,
    OPT_PROBLEMS,
    OPT_PASSES,
    OPT_NAME,
    OPT_JOBS,
    OPT_CC,
    OPT_CACHE,
    OPT_TEXTS,
    OPT_TEMPLATE,
    OPT_PARAM,
    OPT_JSON,
    OPT_NAMES,
    OPT_SCORE,
    OPT_PIXELS,
    OPT_LENGTHS,
    OPT_PNG,
    OPT_OVER
};

struct option_row {
    const char *name;
    enum option option;
    unsigned commands;
    const char *value; /* NULL: a flag */
    const char *help;
};

/* The last command and the last option have no name; about and exit_codes are lines of `lathe --help`. */
struct tool_tables {
    const struct command *commands;
    const struct option_row *options;
    const char *about;
    const char *exit_codes;
};
extern const struct tool_tables tool_tables;

/* ---- manual.c --------------------------------------------------------------------------------- */

int cmd_manual(const struct options *o);
int cmd_completion(const struct options *o);

#endif
