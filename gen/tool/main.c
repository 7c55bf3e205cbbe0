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

/* ---- values ------------------------------------------------------------------------------------ */

static bool take_number(const char *option, const char *text, long least, long most, long *out)
{
    char *end = NULL;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < least || value > most) {
        tool_complain("%s: expected a whole number from %ld to %ld, given '%s'", option, least, most, text);
        return false;
    }
    *out = value;
    return true;
}

/* Of one pass, whose name has `size` bytes. */
static bool find_pass(const char *text, size_t size, lathe_pass *out)
{
    for (int pass = LATHE_FORWARD; pass <= LATHE_COMBINE; pass++) {
        const char *name = lathe__pass_text((lathe_pass)pass);
        *out = (lathe_pass)pass;
        if (strlen(name) == size && strncmp(text, name, size) == 0)
            return true;
    }
    return false;
}

static bool take_pass(const char *text, struct options *o)
{
    if (find_pass(text, strlen(text), &o->pass))
        return true;
    tool_complain("--pass: expected forward, backward or combine, given '%s'", text);
    return false;
}

/* Order does not matter; each once. */
static bool take_passes(const char *text, struct options *o)
{
    o->passes = 0;
    for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        lathe_pass pass;
        const bool known = find_pass(at, strcspn(at, ","), &pass);
        if (!known || (o->passes >> pass & 1)) {
            tool_complain("--pass: expected forward, backward, combine or several of them with commas, each "
                          "once, given '%s'",
                          text);
            return false;
        }
        o->passes |= 1u << pass;
    }
    return true;
}

static bool take_device(const char *text, struct options *o)
{
    long number = 0;
    if (strcmp(text, "auto") == 0 || strcmp(text, "host") == 0) {
        o->device = *text == 'a' ? LATHE_DEVICE_AUTO : LATHE_DEVICE_HOST;
        return true;
    }
    if (strncmp(text, "cuda:", 5) != 0) {
        tool_complain("--device: expected auto, host or cuda:N, given '%s'", text);
        return false;
    }
    if (!take_number("--device cuda:N", text + 5, 0, 1023, &number))
        return false;
    o->device = (int)number;
    return true;
}

static bool take_one_arch(const char *text, struct options *o)
{
    if (o->n_archs == MAX_ARCHS) {
        tool_complain("--arch: expected at most %d, given more", MAX_ARCHS);
        return false;
    }
    for (int i = 0; i < o->n_archs; i++) {
        if (strcmp(o->arch[i].arch, text) == 0) {
            tool_complain("--arch: %s is given twice", text);
            return false;
        }
    }
    return device_parse(text, &o->arch[o->n_archs++]);
}

static bool take_arch(const char *text, struct options *o)
{
    for (;;) {
        char one[32];
        const size_t size = strcspn(text, ",");
        snprintf(one, sizeof one, "%.*s", size < sizeof one ? (int)size : (int)sizeof one - 1, text);
        if (!take_one_arch(one, o))
            return false;
        if (!text[size])
            return true;
        text += size + 1;
    }
}

/* What is run says its time and errors on standard output: no place for an array. */
static bool is_file(const char *option, const char *text)
{
    const char *equals = strchr(text, '=');
    if (!equals || strcmp(equals, "=-") != 0)
        return true;
    tool_complain("%s: expected NAME=FILE.npy, given '%s'", option, text);
    return false;
}

static bool take_pair(const char *option, const char *text, struct name_values *list)
{
    const char *equals = strchr(text, '=');
    if (!equals || equals == text || !equals[1] || equals - text >= NAME_MAX_BYTES) {
        tool_complain("%s: expected NAME=VALUE, given '%s'", option, text);
        return false;
    }
    if (list->n == MAX_PAIRS) {
        tool_complain("%s: expected at most %d, given more", option, MAX_PAIRS);
        return false;
    }
    struct name_value *pair = &list->item[list->n];
    snprintf(pair->name, sizeof pair->name, "%.*s", (int)(equals - text), text);
    pair->value = equals + 1;
    if (tool_find_value(list, pair->name)) {
        tool_complain("%s: '%s' is given twice", option, pair->name);
        return false;
    }
    list->n++;
    return true;
}

static bool take_text(const char *text, const char **out)
{
    *out = text;
    return true;
}

static bool take_template(const char *text, struct options *o)
{
    struct text_buf known = {0};
    const bool is_known = plan_knows(text, &known);
    if (!is_known)
        tool_complain("--template: expected one of%s; given '%s'", known.data ? known.data : "", text);
    text_free(&known);
    return is_known && take_text(text, &o->template_name);
}

static bool take_int(const char *option, const char *text, long least, int *out)
{
    long number = 0;
    if (!take_number(option, text, least, 1000000000, &number))
        return false;
    *out = (int)number;
    return true;
}

static bool take_double(const char *option, const char *text, double *out)
{
    char *end = NULL;
    *out = strtod(text, &end);
    if (end != text && !*end && isfinite(*out))
        return true;
    tool_complain("%s: expected a number, given '%s'", option, text);
    return false;
}

static bool take_pixels(const char *option, const char *text, struct options *o)
{
    long number = 0;
    if (!take_number(option, text, 64, 1024, &number))
        return false;
    o->pixels = (int)number;
    return true;
}

static bool take_option(const struct option_row *row, const char *text, struct options *o)
{
    int seed = 0;
    switch (row->option) {
    case OPT_PASS:
        return take_pass(text, o);
    case OPT_ARCH:
        return take_arch(text, o);
    case OPT_PROBLEM:
        return take_text(text, &o->problem);
    case OPT_OUT:
        return take_text(text, &o->out);
    case OPT_DEVICE:
        return take_device(text, o);
    case OPT_SEED:
        if (!take_int(row->name, text, 0, &seed))
            return false;
        o->seed = (unsigned)seed;
        return true;
    case OPT_VERIFY:
        o->verify = true;
        return true;
    case OPT_STRICT:
        o->strict = true;
        return true;
    case OPT_SECONDS:
        return take_int(row->name, text, 1, &o->seconds);
    case OPT_REPEAT:
        return take_int(row->name, text, 1, &o->repeat);
    case OPT_SET:
        return take_pair(row->name, text, &o->set);
    case OPT_INPUT:
        return is_file(row->name, text) && take_pair(row->name, text, &o->input);
    case OPT_OUTPUT:
        return is_file(row->name, text) && take_pair(row->name, text, &o->output);
    case OPT_CACHE_DIR:
        return take_text(text, &o->cache_dir);
    case OPT_PROBLEMS:
        o->problems[o->n_problems++] = text;
        return true;
    case OPT_PASSES:
        return take_passes(text, o);
    case OPT_NAME:
        return take_text(text, &o->name);
    case OPT_JOBS:
        return take_int(row->name, text, 1, &o->jobs);
    case OPT_CC:
        return take_text(text, &o->cc);
    case OPT_CACHE:
        return take_text(text, &o->cache);
    case OPT_TEXTS:
        o->texts = true;
        return true;
    case OPT_NAMES:
        o->names = true;
        return true;
    case OPT_JSON:
        o->json = true;
        return true;
    case OPT_PARAM:
        return take_pair(row->name, text, &o->param);
    case OPT_TEMPLATE:
        return take_template(text, o);
    case OPT_SCORE:
        return take_double(row->name, text, &o->score);
    case OPT_PIXELS:
        return take_pixels(row->name, text, o);
    case OPT_LENGTHS:
        return take_text(text, &o->lengths);
    case OPT_PNG:
        return take_text(text, &o->png);
    case OPT_OVER:
        return take_text(text, &o->over);
    }
    return false;
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

/* Of the others a second one would put the first aside. */
static bool may_repeat(enum option option)
{
    return option == OPT_ARCH || option == OPT_SET || option == OPT_INPUT || option == OPT_OUTPUT ||
           option == OPT_PROBLEMS || option == OPT_VERIFY || option == OPT_PARAM;
}

/* given: the options so far, as bits. */
static bool parse_option(const struct command *c, char **argv, int argc, int *at, unsigned *given,
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
    if (*given >> row->option & 1 && !may_repeat(row->option)) {
        tool_complain("%s is given twice", row->name);
        return false;
    }
    *given |= 1u << row->option;
    return take_option(row, value, o);
}

static bool parse(const struct command *c, char **argv, int argc, struct options *o)
{
    bool options_end = false;
    unsigned given = 0;
    for (int i = 2; i < argc; i++) {
        if (!options_end && strcmp(argv[i], "--") == 0)
            options_end = true;
        else if (options_end || argv[i][0] != '-' || !argv[i][1])
            o->operand[o->n_operands++] = argv[i];
        else if (!parse_option(c, argv, argc, &i, &given, o))
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

static int dispatch(char **argv, int argc)
{
    const bool help =
        strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0;
    if (help && argc == 2) {
        print_help();
        return CODE_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("lathe %s\n", lathe_version());
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
