/*
 * main.c: the tool `lathe`: its command line and help. In: the command line. Out: an
 * exit code. A command sees parsed options only. The tool is, with runtime/jit, one of the two places
 * that see both the generator and the runtime.
 */
#include "gen/tool/commands.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- help -------------------------------------------------------------------------------------- */

static void print_help(void)
{
    puts("usage: lathe COMMAND ...\n\nShapes GPU kernels from short Lua files.\n\ncommands:");
    for (const struct command *c = tool_tables.commands; c->name; c++)
        printf("  %-10s %-22s %s\n", c->name, c->operands, c->summary);
    printf("  %-10s %-22s %s\n\n%s\nexit codes:\n%s", "help", "COMMAND",
           "what a command does, and its options", tool_tables.about, tool_tables.exit_codes);
}

static void print_command_help(const struct command *c)
{
    printf("usage: lathe %s%s%s\n\n%s%s", c->name, *c->operands ? " " : "", c->operands, c->details,
           *c->details ? "" : "Prints one name a line.\n");
    bool first = true;
    for (const struct option_row *row = tool_tables.options; row->name; row++) {
        char left[64];
        if (!(row->commands & c->bit))
            continue;
        snprintf(left, sizeof left, "%s%s%s", row->name, row->value ? " " : "", row->value ? row->value : "");
        printf("%s  %-21s%s%s\n", first ? "\noptions:\n" : "", left,
               strlen(left) > 21 ? "\n                        " : " ", row->help);
        first = false;
    }
}

static const struct command *find_command(const char *name)
{
    struct nearest nearest = {.word = name};
    for (const struct command *c = tool_tables.commands; c->name; c++) {
        if (strcmp(c->name, name) == 0)
            return c;
        lathe__nearest_try(&nearest, c->name);
    }
    tool_complain("unknown command '%s'; `lathe --help` lists them%s", name, lathe__nearest_text(&nearest));
    return NULL;
}

/* ---- the command line -------------------------------------------------------------------------- */

/* The row of "--name" or "--name=value"; *value points behind the '=' where there is one. */
static const struct option_row *find_option(const struct command *c, const char *word, const char **value)
{
    for (const struct option_row *row = tool_tables.options; row->name; row++) {
        const size_t size = strlen(row->name);
        if (!(row->commands & c->bit) || strncmp(row->name, word, size) != 0)
            continue;
        const bool joined = word[size] == '=' && word[1] == '-';
        if (word[size] && !joined)
            continue;
        *value = joined ? word + size + 1 : NULL;
        return row;
    }
    return NULL;
}

/* given: for each row of the options, whether it was. */
static bool parse_option(const struct command *c, char **argv, int argc, int *at, bool *given,
                         struct options *o)
{
    const char *value = NULL;
    const char *word = argv[*at];
    const struct option_row *row = find_option(c, word, &value);
    if (!row) {
        struct nearest nearest = {.word = word};
        for (const struct option_row *known = tool_tables.options; known->name; known++)
            if (known->commands & c->bit)
                lathe__nearest_try(&nearest, known->name);
        tool_complain("%s: unknown option '%s'; `lathe help %s` lists them%s", c->name, word, c->name,
                      lathe__nearest_text(&nearest));
        return false;
    }
    if (!row->value && value) {
        tool_complain("%s takes no value, given '%s'", row->name, value);
        return false;
    }
    if (row->value && !value) {
        if (*at + 1 >= argc) {
            tool_complain("%s: expected a value: %s", row->name, row->value);
            return false;
        }
        value = argv[++*at];
    }
    bool *const is_given = &given[row - tool_tables.options];
    if (*is_given && !row->repeats) {
        tool_complain("%s is given twice", row->name);
        return false;
    }
    *is_given = true;
    return row->take(row, value, o);
}

static bool parse(const struct command *c, char **argv, int argc, struct options *o)
{
    bool options_end = false;
    bool given[MOST_OPTIONS] = {false};
    for (int i = 2; i < argc; i++) {
        if (!options_end && strcmp(argv[i], "--") == 0)
            options_end = true;
        else if (options_end || argv[i][0] != '-' || !argv[i][1])
            o->operand[o->n_operands++] = argv[i];
        else if (!parse_option(c, argv, argc, &i, given, o))
            return false;
    }
    if (o->n_operands < c->least || o->n_operands > c->most) {
        tool_complain("usage: lathe %s%s%s (given %d operand%s)", c->name, *c->operands ? " " : "",
                      c->operands, o->n_operands, o->n_operands == 1 ? "" : "s");
        return false;
    }
    return true;
}

static bool wants_help(char **argv, int argc)
{
    for (int i = 2; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    }
    return false;
}

static int run_command(const struct command *c, char **argv, int argc)
{
    bool param_known[MAX_PAIRS] = {false};
    struct options o = {.device = LATHE_DEVICE_AUTO,
                        .param_known = param_known,
                        .seed = 1,
                        .repeat = 1,
                        .pixels = 256,
                        .score = (double)NAN,
                        .tables = &tool_tables};
    if (wants_help(argv, argc)) {
        print_command_help(c);
        return CODE_OK;
    }
    int code = CODE_ENVIRONMENT;
    o.operand = calloc((size_t)argc + 1, sizeof *o.operand);
    o.problems = calloc((size_t)argc + 1, sizeof *o.problems);
    if (o.operand && o.problems)
        code = parse(c, argv, argc, &o) ? c->run(&o) : CODE_USAGE;
    else
        tool_complain("out of memory");
    free(o.operand);
    free(o.problems);
    return code;
}

static bool asks_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0;
}

static int dispatch(char **argv, int argc)
{
    const bool help = asks_help(argv[1]);
    const bool version = strcmp(argv[1], "--version") == 0;
    if (help && argc > 3) {
        tool_complain("%s: expected one command, given '%s' behind it", argv[1], argv[3]);
        return CODE_USAGE;
    }
    if (version && argc > 2) {
        tool_complain("--version: expected nothing behind it, given '%s'", argv[2]);
        return CODE_USAGE;
    }
    if (help && (argc == 2 || asks_help(argv[2]))) {
        print_help();
        return CODE_OK;
    }
    if (version) {
        print_version();
        return CODE_OK;
    }
    const struct command *c = find_command(help ? argv[2] : argv[1]);
    if (!c)
        return CODE_USAGE;
    if (!help)
        return run_command(c, argv, argc);
    print_command_help(c);
    return CODE_OK;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        tool_complain("expected a command; `lathe --help` lists them");
        return CODE_USAGE;
    }
    (void)signal(SIGXFSZ, SIG_IGN); /* a limit on the size of files is an error like a full disk */
    int code = dispatch(argv, argc);
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == CODE_OK) {
        tool_complain("standard output cannot be written: %s", strerror(errno));
        code = CODE_ENVIRONMENT;
    }
    return code;
}
