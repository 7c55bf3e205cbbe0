/*
 * commands.c: the commands of the tool and their options, as two tables.
 */
#include "gen/tool/commands.h"

#include <limits.h>
#include <stddef.h>

enum {
    IN_CHECK = 1,
    IN_GEN = 2,
    IN_COMPILE = 4,
    IN_RUN = 8,
    IN_CACHE = 16,
    IN_EXPLAIN = 32,
    IN_LIST = 64,
    IN_AOT = 128,
    IN_TUNE = 256,
    IN_SHOW = 512,
    IN_MANUAL = 1024,
    IN_COMPLETION = 2048,
    IN_DRAW = 4096,
    IN_BENCH = 8192,
    IN_REPORT = 16384,
    IN_TRANSLATE = 32768
};

static const struct command COMMANDS[] = {
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
     "otherwise;\n--input files are converted to the problem's dtype.\n",
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
     "--set, their default, or are random. --verify compares with the host device, double precision, on all "
     "rows\n"
     "or on a sample of at most 2048. --pass backward runs the forward pass first, for o and the finals, and "
     "times the\n"
     "gradients alone: of every float tensor and of inputs declared grad = true; NAME=none in the problem "
     "leaves one out.\n"
     "For large problems --verify runs the backward pass again with do zeroed outside a sample of rows, so "
     "that the\n"
     "host device needs those rows alone, and compares all of the gradients that come out.\n"
     "--pass combine puts parts of rows together, which a forward pass gives whose problem says "
     "part_o=f32,part_rows=f32.\n"
     "`lathe run nsa` runs no spec but several in order, native sparse attention (lathe_nsa.h): its problem "
     "knows\n"
     "dtype=bf16,h=8,h_kv=1,t=512,seqs=1,d=64,d_v=64,block=32,blocks=8,window=128, t being the tokens of all "
     "sequences.\n",
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
    {"bench", IN_BENCH, 1, 1, "SPEC --lengths N,...", "measure the rate over lengths, and draw it",
     "Each length takes the place of the size --over (attention: q, linear_attention: t, rowwise: n), with "
     "the rest\n"
     "of the problem as it is; a launch is timed as by `lathe run`, on tensors of its kind. Prints a line "
     "for each;\n"
     "--png draws them beside what the device's data sheet promises. Needs a GPU; --device host measures "
     "the\n"
     "host device, which says nothing about kernels.\n",
     cmd_bench},
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
    {"draw", IN_DRAW, 1, 1, "SPEC -o FILE.png", "draw what a spec does to pairs of tokens",
     "Of attention: which pairs are live, how the tiles of the kernel are classed, how scores change, and "
     "weights\n"
     "where all scores are the same (with rotary positions: were the same); of linear attention what is "
     "left of each\n"
     "token. FILE is a PNG. A pixel of many pairs has the share or\n"
     "mean of all of them, or says what it shows of them. Inputs are those of `lathe run`; sizes that the "
     "problem\n"
     "leaves open are h=4,q=512,d=64 (t=256), and of more than four heads four are drawn. Needs no GPU.\n",
     cmd_draw},
    {"list", IN_LIST, 0, 0, "", "name the specs that ship with lathe", "Prints a line about each.\n",
     cmd_list},
    {"show", IN_SHOW, 1, 1, "NAME", "print a spec that ships with lathe",
     "To begin a spec of your own: lathe show causal >mine.lua\n", cmd_show},
    {"translate", IN_TRANSLATE, 1, INT_MAX, "FILE.py:NAME...", "print the spec of a mod of FlexAttention",
     "Of a score_mod, a mask_mod (or BlockMask), or one of each, and the sizes of the call:\n"
     "    lathe translate mods.py:near q=1024 kv=1024\n"
     "It runs `python3 -m lathe translate`, which needs torch and lathe-kernels; LATHE_PYTHON names another\n"
     "interpreter.\n",
     cmd_translate},
    {"report", IN_REPORT, 0, 0, "", "versions, devices, NVRTC and caches, for a report of a fault",
     "What is missing has its reason. `python -m lathe` adds Python's versions.\n", cmd_report},
    {"manual", IN_MANUAL, 0, 0, "", "print the manual page, lathe(1)", "As nroff -man reads it.\n",
     cmd_manual},
    {"completion", IN_COMPLETION, 1, 1, "bash|zsh|fish", "print completions for a shell",
     "bash: source <(lathe completion bash); an installed lathe has those of bash already.\n"
     "zsh: the same, with compinit loaded before. fish: lathe completion fish | source.\n",
     cmd_completion},
    {NULL, 0, 0, 0, NULL, NULL, NULL, NULL},
};

/* Where an option stands in struct options. */
#define MEMBER(name) offsetof(struct options, name)

static const struct option_row OPTIONS[] = {
    {"--pass", IN_GEN | IN_COMPILE | IN_EXPLAIN | IN_RUN | IN_TUNE | IN_DRAW | IN_BENCH,
     "forward|backward|combine", "which pass (default: forward)", .take = option_pass},
    {"--pass", IN_AOT, "forward,backward,combine", "which passes, one or several (default: forward)",
     .take = option_passes},
    {"--arch", IN_GEN | IN_COMPILE | IN_EXPLAIN | IN_DRAW, "sm_NN", "GPU architecture (default: sm_80)",
     .take = option_arch, .repeats = true},
    {"--arch", IN_AOT, "sm_NN,...", "GPU architectures, with commas or several times", .take = option_arch,
     .repeats = true},
    {"--problem", IN_AOT, "P", "what is compiled in, as often as needed: dtype=bf16,d=128",
     .take = option_problems, .repeats = true},
    {"--name", IN_AOT, "NAME", "of library, header and functions (default: kernels)", .take = option_text,
     .member = MEMBER(name)},
    {"-j", IN_AOT, "N", "kernels compiled at once (default, and at most: one for each core)",
     .take = option_count, .member = MEMBER(jobs)},
    {"--cc", IN_AOT, "PROGRAM", "the C compiler (default: $CC, or cc)", .take = option_text,
     .member = MEMBER(cc)},
    {"--problem", IN_CHECK | IN_GEN | IN_COMPILE | IN_RUN | IN_TUNE | IN_EXPLAIN | IN_DRAW | IN_BENCH, "P",
     "sizes and dtype: dtype=bf16,b=2,h=16,h_kv=4,q=1000,kv=1000,d=128,d_v=128\n"
     "                        (linear_attention: b=2,h=16,t=1000,d=128; rowwise: rows=16384,n=8192;\n"
     "                        elementwise: each dim by its name); what is left out has a default,\n"
     "                        which `lathe explain SPEC` shows. INPUT=none leaves an optional tensor\n"
     "                        out, INPUT=f16 is the dtype of one declared \"float\", unaligned=q+k\n"
     "                        names tensors whose rows are not 16-byte aligned or have no last stride\n"
     "                        of 1, folded=k+v those with strides of 0; deterministic=1: a backward\n"
     "                        pass that gives the same bits from run to run (a forward pass ignores it),\n"
     "                        =batch: both give a sequence the same bits whatever else is in the batch",
     .take = option_text, .member = MEMBER(problem)},
    {"--param", IN_CHECK | IN_GEN | IN_COMPILE | IN_RUN | IN_TUNE | IN_EXPLAIN | IN_AOT | IN_DRAW | IN_BENCH,
     "NAME=NUMBER", "a parameter of the spec, local W = param(\"W\", 256), as often as needed",
     .take = option_pair, .member = MEMBER(param), .repeats = true},
    {"--ranks", IN_EXPLAIN, "N",
     "of the problem over N GPUs: which scheme of lathe_dist.h serves it, what a launch sends, and\n"
     "                        why",
     .take = option_ranks},
    {"--json", IN_EXPLAIN | IN_RUN | IN_CACHE | IN_LIST | IN_DRAW | IN_BENCH, NULL,
     "for programs: one object of JSON", .take = option_flag, .member = MEMBER(json)},
    {"--all", IN_GEN, NULL,
     "the whole text that `lathe compile` compiles: with the branches that this kernel's numbers\n"
     "                        rule out and the declarations that nothing reaches; the same kernel",
     .take = option_flag, .member = MEMBER(all)},
    {"--split", IN_GEN, "DIR",
     "in the place of -o: config.gen.cuh, variant.gen.cuh and kernel.cu, which includes them and the\n"
     "                        templates/ of a source tree, into a folder that is there: for editors, and\n"
     "                        for who works on a template",
     .take = option_text, .member = MEMBER(split)},
    {"--ir", IN_GEN, "traced|lowered",
     "formulas in the place of CUDA text, to -o or standard output: as the spec was traced; lowered:\n"
     "                        and what each pass, by its name, makes of them on the way to the kernels of\n"
     "                        --problem; with --pass backward what is derived, too",
     .take = option_ir},
    {"--names", IN_LIST, NULL, "the names alone", .take = option_flag, .member = MEMBER(names)},
    {"--template", IN_GEN | IN_COMPILE | IN_RUN | IN_TUNE | IN_EXPLAIN | IN_DRAW | IN_BENCH, "NAME",
     "plan with this template or none (default: the first that serves)", .take = option_template},
    {"-o", IN_AOT, "DIR", "folder to write into, made if there is none", .take = option_text,
     .member = MEMBER(out)},
    {"-o", IN_GEN | IN_COMPILE | IN_DRAW, "FILE", "where to write (- is standard output)",
     .take = option_text, .member = MEMBER(out)},
    {"--device", IN_RUN | IN_TUNE | IN_BENCH, "auto|host|cuda:N",
     "where to run (default: auto: a GPU, or else the host)", .take = option_device},
    {"--seed", IN_RUN | IN_TUNE | IN_CHECK | IN_DRAW | IN_BENCH, "N", "of random data (default: 1)",
     .take = option_seed},
    {"--strict", IN_CHECK, NULL, "fail, too, where a side of a comparison was never taken or time ran out",
     .take = option_flag, .member = MEMBER(strict)},
    {"--seconds", IN_CHECK, "N",
     "processor time for the proofs of each spec, whole seconds (default: 6; with --strict 60)",
     .take = option_count, .member = MEMBER(seconds)},
    {"--verify", IN_RUN, NULL, "compare with the host device; exit code 1 beyond the bound",
     .take = option_flag, .member = MEMBER(verify), .repeats = true},
    {"--repeat", IN_RUN | IN_TUNE | IN_BENCH, "N",
     "time N launches and report the median (default: 1; tune, bench: 7)", .take = option_count,
     .member = MEMBER(repeat)},
    {"--set", IN_CHECK | IN_RUN | IN_TUNE | IN_EXPLAIN | IN_DRAW | IN_BENCH, "NAME=VALUE",
     "value of a scalar, q_start included", .take = option_pair, .member = MEMBER(set), .repeats = true},
    {"--input", IN_CHECK | IN_RUN | IN_TUNE | IN_DRAW, "NAME=FILE.npy",
     "read a tensor; NAME=random for an optional one", .take = option_file, .member = MEMBER(input),
     .repeats = true},
    {"--output", IN_RUN, "NAME=FILE.npy", "write a result (bf16 and float8 as float32)", .take = option_file,
     .member = MEMBER(output), .repeats = true},
    {"--cache-dir", IN_RUN | IN_TUNE | IN_EXPLAIN | IN_CACHE | IN_BENCH, "DIR",
     "the kernel cache (default: $LATHE_CACHE_DIR, ...)", .take = option_text, .member = MEMBER(cache_dir)},
    {"--lengths", IN_BENCH, "N,N,...", "lengths, rising: 512,1k,16k", .take = option_text,
     .member = MEMBER(lengths)},
    {"--over", IN_BENCH, "SIZE", "the size of the problem that takes them", .take = option_text,
     .member = MEMBER(over)},
    {"--png", IN_BENCH, "FILE", "draw them", .take = option_text, .member = MEMBER(png)},
    {"--score", IN_DRAW, "S",
     "the score whose change and weights are drawn (default: 0; 1 where all of them are 0 there)",
     .take = option_real, .member = MEMBER(score)},
    {"--pixels", IN_DRAW, "N", "the side of a panel (default: 256)", .take = option_pixels},
    {"--texts", IN_CACHE, NULL, "export the readable sources too, which nothing but people reads",
     .take = option_flag, .member = MEMBER(texts)},
    {"--cache", IN_COMPILE, "DIR", "a kernel cache to put the result into", .take = option_text,
     .member = MEMBER(cache)},
    {"--time", IN_COMPILE, NULL,
     "print the seconds of CPU that each part of the text takes, of those that threads compile at the\n"
     "                        same time where a program meets the kernel first; -o is not needed then",
     .take = option_flag, .member = MEMBER(time)},
    {"--cache", IN_AOT, "DIR", "compile nothing that is there already; keep there what is compiled",
     .take = option_text, .member = MEMBER(cache)},
    {.name = NULL},
};
_Static_assert(sizeof OPTIONS / sizeof *OPTIONS <= MOST_OPTIONS, "the command line marks which were given");

const struct tool_tables tool_tables = {
    COMMANDS,
    OPTIONS,
    "A SPEC is a path, or the name of a shipped spec such as `causal`.\n"
    "`lathe --version` prints the version, and which NVRTC there is.\n"
    "Results go to standard output, everything else to standard error.\n",
    "  0  success\n"
    "  1  a check or verification failed (for `check` also a spec with a mistake in it), or the problem "
    "cannot\n"
    "     be served\n"
    "  2  wrong use, or bad input: a spec, a problem, a file (for `check` a spec that cannot be read)\n"
    "  3  the environment: a compiler, a device, the cache or memory is missing\n",
};
