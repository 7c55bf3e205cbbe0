/*
 * main.c: the tool `lathe`: its commands, options and help, as two tables. In: the command line. Out: an
 * exit code. A command sees parsed options only. The tool is, with runtime/jit, one of the two places
 * that see both the generator and the runtime.
 */
#include "gen/tool/tool.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    IN_CHECK = 1,
    IN_GEN = 2,
    IN_COMPILE = 4,
    IN_RUN = 8,
    IN_CACHE = 16,
    IN_EXPLAIN = 32,
    IN_LIST = 64,
    IN_AOT = 128,
    IN_TUNE = 256
};

static const struct command {
    const char *name;
    unsigned bit;
    int least; /* operands */
    int most;
    const char *operands;
    const char *summary;
    const char *details;
    int (*run)(const struct options *o);
} COMMANDS[] = {
    {"check", IN_CHECK, 1, INT_MAX, "SPEC...", "prove specs sound, without a GPU",
     "Proves on random data in double precision: the online form equals the whole-row form in any order of "
     "tiles,\n"
     "combine equals the whole, derived gradients equal finite differences, tile bounds of the mask agree "
     "with "
     "the\n"
     "mask; and that values in f32 are those of double precision, but for the digits that rounding what is "
     "read "
     "takes.\n"
     "Prints one line per proof with its largest error, and \"not seen\" for each comparison of which a side "
     "was "
     "never\n"
     "taken. A spec that takes seconds is proved in part, and its lines say so. Sizes, inputs and scalars "
     "are "
     "its\nown choice, inputs of integers within their declared range, unless --problem, --input and --set "
     "say "
     "otherwise;\ndtypes of the problem are those in which --input is read.\n",
     cmd_check},
    {"gen", IN_GEN, 1, 1, "SPEC -o FILE.cu", "write one self-contained CUDA file",
     "The file compiles with `nvcc -cubin -std=c++20 -arch=ARCH`; its opening comment says how to launch "
     "it.\n",
     cmd_gen},
    {"compile", IN_COMPILE, 1, 1, "SPEC -o FILE.fatbin", "compile a kernel for one or several architectures",
     "Several --arch go into one fatbin, each with the kernel that is best for it, where nvFatbin or the "
     "toolkit's "
     "fatbinary\n"
     "is installed.\n"
     "--cache DIR, beside -o or instead of it, puts the kernels for these architectures into a kernel cache, "
     "as a GPU\n"
     "of each would: a package or an image ships it as /usr/share/lathe/cache, and no compiler is needed "
     "there.\n",
     cmd_compile},
    {"aot", IN_AOT, 1, INT_MAX, "SPEC... -o DIR", "compile specs ahead of time into a static library",
     "Writes libNAME.a, NAME.h (typed functions), NAME.pc (pkg-config) and NAME.manifest into DIR. Programs "
     "link "
     "with\n"
     "libNAME.a and liblathe_rt alone: no Lua, no NVRTC, no file at run time. A problem is of every spec "
     "that "
     "knows its\n"
     "names; only its dtypes, head dims (rowwise: n), absent inputs and unaligned tensors are compiled in, "
     "and "
     "whether\n"
     "kv is 8192 or more where other tiles are faster there (names with _long). The same input gives the "
     "same "
     "bytes.\n"
     "Needs NVRTC, a C compiler ($CC) and ar ($AR), and no GPU.\n",
     cmd_aot},
    {"run", IN_RUN, 1, 1, "SPEC [--problem P]", "run a kernel on random or given data, and time it",
     "Tensors come from --input, or are random: normal values for floats, short runs of rising ids for i32, "
     "0 and 1\n"
     "for u8. Optional tensors are left out unless --input NAME=random or a file gives them. Scalars come "
     "from\n"
     "--set, their default, or are random. --verify compares with the evaluator in double precision, on all "
     "rows\n"
     "or on a sample of at most 2048. --pass backward runs the forward pass first, for o and the finals, and "
     "times the\n"
     "gradients alone: of every float tensor and of inputs declared grad = true; NAME=none in the problem "
     "leaves one out.\n"
     "They sum over all rows; where those are too many for the evaluator, --verify launches once more with "
     "the "
     "seeds of a\n"
     "sample of rows, those of the others zero, and compares all of the gradients that come out.\n",
     cmd_run},
    {"tune", IN_TUNE, 1, 1, "SPEC [--problem P]",
     "measure the plans that serve a problem, and keep the fastest",
     "Every row of tiles that fits, of every template that takes the problem (--template: of those named, "
     "also "
     "where\n"
     "they have not been run on a GPU yet), on the tensors of `lathe run`. The fastest is kept beside the "
     "cache of\n"
     "kernels, travels with `lathe cache export`, and is taken by programs and by `lathe run` for the same "
     "spec, "
     "device\n"
     "and compiled-in facts, whatever the lengths; `lathe explain` names it. `lathe cache clear` forgets "
     "it.\n",
     cmd_tune},
    {"cache", IN_CACHE, 1, 3, "info|verify|clear|...",
     "look at, check, empty or move the cache of compiled kernels",
     "  info                 its place, its size and its kernels\n"
     "  verify               read every entry, remove what is damaged\n"
     "  clear                remove all of them\n"
     "  export FILE [DIR]    write all of it, or of the cache DIR, to one file; without the readable "
     "sources\n"
     "                       unless --texts is given\n"
     "  import FILE [DIR]    add what the file holds and the cache lacks; a damaged file changes nothing. "
     "The "
     "kernels\n"
     "                       are code that will run: import what you trust\n",
     cmd_cache},
    {"explain", IN_EXPLAIN, 1, 1, "SPEC [--problem P]", "which template serves a problem, and why",
     "Prints the arguments, the problem, and the chosen template with tile sizes, shared memory and "
     "workspace; or\n"
     "every template's refusal (exit code 1).\n",
     cmd_explain},
    {"list", IN_LIST, 0, 0, "", "name the specs that ship with lathe", "", cmd_list},
};
enum { N_COMMANDS = sizeof COMMANDS / sizeof COMMANDS[0] };

enum option {
    OPT_PASS,
    OPT_ARCH,
    OPT_PROBLEM,
    OPT_OUT,
    OPT_DEVICE,
    OPT_SEED,
    OPT_VERIFY,
    OPT_STRICT,
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
    OPT_TEMPLATE
};

static const struct option_row {
    const char *name;
    enum option option;
    unsigned commands;
    const char *value; /* NULL: a flag */
    const char *help;
} OPTIONS[] = {
    {"--pass", OPT_PASS, IN_GEN | IN_COMPILE | IN_EXPLAIN | IN_RUN | IN_TUNE, "forward|backward",
     "which pass (default: forward)"},
    {"--pass", OPT_PASSES, IN_AOT, "forward[,backward]", "which passes (default: forward)"},
    {"--arch", OPT_ARCH, IN_GEN | IN_COMPILE | IN_EXPLAIN, "sm_NN", "GPU architecture (default: sm_80)"},
    {"--arch", OPT_ARCH, IN_AOT, "sm_NN,...", "GPU architectures, with commas or several times"},
    {"--problem", OPT_PROBLEMS, IN_AOT, "P", "what is compiled in, as often as needed: dtype=bf16,d=128"},
    {"--name", OPT_NAME, IN_AOT, "NAME", "of library, header and functions (default: kernels)"},
    {"-j", OPT_JOBS, IN_AOT, "N", "kernels compiled at once (default, and at most: one for each core)"},
    {"--cc", OPT_CC, IN_AOT, "PROGRAM", "the C compiler (default: $CC, or cc)"},
    {"--problem", OPT_PROBLEM, IN_CHECK | IN_GEN | IN_COMPILE | IN_RUN | IN_TUNE | IN_EXPLAIN, "P",
     "sizes and dtype: dtype=bf16,b=2,h=16,h_kv=4,q=1000,kv=1000,d=128,d_v=128\n"
     "                        (rowwise: dtype=bf16,rows=16384,n=8192); what is left out has\n"
     "                        a default. INPUT=none leaves an optional tensor out, INPUT=f16 is the\n"
     "                        dtype of one declared \"float\", unaligned=q+k names tensors whose rows\n"
     "                        are not 16-byte aligned or have no last stride of 1, folded=k+v those with "
     "strides of 0; deterministic=1: "
     "a backward pass that gives\n"
     "                        the same bits from run to run"},
    {"--template", OPT_TEMPLATE, IN_GEN | IN_COMPILE | IN_RUN | IN_TUNE | IN_EXPLAIN, "NAME",
     "plan with this template or none (default: the first that serves)"},
    {"-o", OPT_OUT, IN_AOT, "DIR", "folder to write into, made if there is none"},
    {"-o", OPT_OUT, IN_GEN | IN_COMPILE, "FILE", "where to write (- is standard output)"},
    {"--device", OPT_DEVICE, IN_RUN | IN_TUNE, "auto|host|cuda:N",
     "where to run (default: auto: a GPU, or else the host)"},
    {"--seed", OPT_SEED, IN_RUN | IN_TUNE | IN_CHECK, "N", "of random data (default: 1)"},
    {"--strict", OPT_STRICT, IN_CHECK, NULL,
     "fail, too, where a side of a comparison was never taken or time ran out"},
    {"--verify", OPT_VERIFY, IN_RUN, NULL, "compare with the evaluator; exit code 1 beyond the bound"},
    {"--repeat", OPT_REPEAT, IN_RUN | IN_TUNE, "N",
     "time N launches and report the median (default: 1; tune: 7)"},
    {"--set", OPT_SET, IN_CHECK | IN_RUN | IN_TUNE | IN_EXPLAIN, "NAME=VALUE",
     "value of a scalar, q_start included"},
    {"--input", OPT_INPUT, IN_CHECK | IN_RUN | IN_TUNE, "NAME=FILE.npy",
     "read a tensor; NAME=random for an optional one"},
    {"--output", OPT_OUTPUT, IN_RUN, "NAME=FILE.npy", "write a result (bf16 as float32)"},
    {"--cache-dir", OPT_CACHE_DIR, IN_RUN | IN_TUNE | IN_EXPLAIN | IN_CACHE, "DIR",
     "the kernel cache (default: $LATHE_CACHE_DIR, ...)"},
    {"--texts", OPT_TEXTS, IN_CACHE, NULL, "export the readable sources too, which nothing but people reads"},
    {"--cache", OPT_CACHE, IN_COMPILE, "DIR", "a kernel cache to put the result into"},
    {"--cache", OPT_CACHE, IN_AOT, "DIR",
     "compile nothing that is there already; keep there what is compiled"},
};
enum { N_OPTIONS = sizeof OPTIONS / sizeof OPTIONS[0] };

/* ---- help -------------------------------------------------------------------------------------- */

static void print_help(void)
{
    puts("usage: lathe COMMAND ...\n\nShapes GPU kernels from short Lua files.\n\ncommands:");
    for (int i = 0; i < N_COMMANDS; i++)
        printf("  %-8s %-20s %s\n", COMMANDS[i].name, COMMANDS[i].operands, COMMANDS[i].summary);
    puts("  help     COMMAND              what a command does, and its options\n"
         "\n"
         "A SPEC is a path, or the name of a shipped spec such as `causal`. `lathe --version` prints the "
         "version.\n"
         "Results go to standard output, everything else to standard error.\n"
         "\n"
         "exit codes:\n"
         "  0  success\n"
         "  1  a check or verification failed (for `check` also a spec that does not load), or the problem "
         "cannot\n     be served\n"
         "  2  wrong use, or bad input: a spec, a problem, a file\n"
         "  3  the environment: a compiler, a device, the cache or memory is missing");
}

static void print_command_help(const struct command *c)
{
    printf("usage: lathe %s%s%s\n\n%s%s", c->name, *c->operands ? " " : "", c->operands, c->details,
           *c->details ? "" : "Prints one name a line.\n");
    bool first = true;
    for (int i = 0; i < N_OPTIONS; i++) {
        char left[64];
        if (!(OPTIONS[i].commands & c->bit))
            continue;
        snprintf(left, sizeof left, "%s%s%s", OPTIONS[i].name, OPTIONS[i].value ? " " : "",
                 OPTIONS[i].value ? OPTIONS[i].value : "");
        printf("%s  %-21s %s\n", first ? "\noptions:\n" : "", left, OPTIONS[i].help);
        first = false;
    }
}

static const struct command *find_command(const char *name)
{
    struct nearest nearest = {.word = name};
    for (int i = 0; i < N_COMMANDS; i++) {
        if (strcmp(COMMANDS[i].name, name) == 0)
            return &COMMANDS[i];
        lathe__nearest_try(&nearest, COMMANDS[i].name);
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

static bool take_pass(const char *text, struct options *o)
{
    o->pass = strcmp(text, "backward") == 0 ? LATHE_BACKWARD : LATHE_FORWARD;
    if (o->pass == LATHE_BACKWARD || strcmp(text, "forward") == 0)
        return true;
    tool_complain("--pass: expected forward or backward, given '%s'", text);
    return false;
}

/* Order does not matter; each once. */
static bool take_passes(const char *text, struct options *o)
{
    o->both_passes = strcmp(text, "forward,backward") == 0 || strcmp(text, "backward,forward") == 0;
    if (o->both_passes || strcmp(text, "forward") == 0) {
        o->pass = LATHE_FORWARD;
        return true;
    }
    o->pass = LATHE_BACKWARD;
    if (strcmp(text, "backward") == 0)
        return true;
    tool_complain("--pass: expected forward, backward or forward,backward, given '%s'", text);
    return false;
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
    case OPT_TEMPLATE:
        return take_template(text, o);
    }
    return false;
}

/* ---- the command line -------------------------------------------------------------------------- */

/* The row of "--name" or "--name=value"; *value points behind the '=' where there is one. */
static const struct option_row *find_option(const struct command *c, const char *word, const char **value)
{
    for (int i = 0; i < N_OPTIONS; i++) {
        const size_t size = strlen(OPTIONS[i].name);
        if (!(OPTIONS[i].commands & c->bit) || strncmp(OPTIONS[i].name, word, size) != 0)
            continue;
        const bool joined = word[size] == '=' && word[1] == '-';
        if (word[size] && !joined)
            continue;
        *value = joined ? word + size + 1 : NULL;
        return &OPTIONS[i];
    }
    return NULL;
}

/* Of the others a second one would put the first aside. */
static bool may_repeat(enum option option)
{
    return option == OPT_ARCH || option == OPT_SET || option == OPT_INPUT || option == OPT_OUTPUT ||
           option == OPT_PROBLEMS || option == OPT_VERIFY;
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
        for (int i = 0; i < N_OPTIONS; i++)
            if (OPTIONS[i].commands & c->bit)
                lathe__nearest_try(&nearest, OPTIONS[i].name);
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
    struct options o = {.device = LATHE_DEVICE_AUTO, .seed = 1, .repeat = 1};
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
