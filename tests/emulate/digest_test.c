/*
 * digest_test.c: is a case known where nothing that decides its verdict has changed, and nowhere else?
 * In: nothing; the case, its kernel and its lists are made here. Every test owns what it makes.
 */
#include "budget.h"
#include "code_text.h"
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A case of one input and one output, and a kernel of one text that takes both. */
struct example {
    struct workshop workshop;
    struct test_case c;
    struct ir ir;
    struct scene scene;
    struct source source;
    struct param param[2];
    double input[2], output[2];
    char text[16];
    uint64_t seed;
};

static void give(struct example *e, int i, const char *name, double *value)
{
    struct tensor *t = &e->scene.tensor[i];
    snprintf(t->name, sizeof t->name, "%s", name);
    t->dtype = LATHE_F64;
    t->ndim = 1;
    t->shape[0] = t->count = 2;
    t->strides[0] = 1;
    t->value = value;
    CHECK(block_open(&t->block, 16, 16));
    e->scene.arg[i] = tensor_arg(t);
    e->scene.bound.arg[i] = &e->scene.arg[i];
    e->param[i] = (struct param){.kind = PARAM_ARG_DATA, .arg = (int16_t)i, .offset = 8 * (uint32_t)i};
}

/* Scenes are large. */
static struct example *example(void)
{
    struct example *e = calloc(1, sizeof *e);
    CHECK(e != NULL);
    snprintf(e->text, sizeof e->text, "%s", "int a;");
    snprintf(e->source.text[0].name, sizeof e->source.text[0].name, "%s", "kernel.cu");
    e->c.spec = "example";
    e->c.group = "examples";
    e->input[0] = 1.0, e->input[1] = 2.0;
    e->output[0] = 0.1, e->output[1] = -300.0;
    e->source.text[0].data = e->text;
    e->source.text[0].size = strlen(e->text);
    e->source.n_texts = e->source.n_launches = 1;
    e->source.launch[0] = (struct launch){
        .entry = "kernel", .grid = {.scale = 1}, .threads = 32, .n_params = 2, .param_bytes = 16};
    e->source.launch[0].param = e->param;
    e->scene.c = &e->c;
    e->scene.ir = &e->ir;
    e->scene.n = 2;
    give(e, 0, "x", e->input);
    give(e, 1, "y", e->output);
    memcpy(e->scene.tensor[0].block.data, e->input, sizeof e->input);
    return e;
}

/* Closes it, too. */
static void digest_of(struct example *e, unsigned char out[KEY_BYTES])
{
    struct sha256 digest;
    case_digest(&digest, &e->workshop, &e->scene, &e->source, e->seed);
    lathe__sha256_finish(&digest, out);
    block_close(&e->scene.tensor[0].block);
    block_close(&e->scene.tensor[1].block);
    free(e);
}

static bool is_known(struct example *changed)
{
    unsigned char now[KEY_BYTES];
    unsigned char before[KEY_BYTES];
    digest_of(changed, now);
    digest_of(example(), before);
    return memcmp(before, now, KEY_BYTES) == 0;
}

/* The lists of tests/passed are of other machines and processes, whose memory lies elsewhere. Who changes
   digest.c writes the new number here, and renews the lists. */
TEST(a_case_is_known_everywhere)
{
    unsigned char digest[KEY_BYTES];
    char hex[LISTED_HEX + 1];
    digest_of(example(), digest);
    for (int i = 0; i < LISTED_HEX / 2; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    CHECK_STR(hex, "f00913873ef3de4e");
}

TEST(last_bits_of_what_is_expected_do_not_count)
{
    struct example *e = example();
    e->output[0] += 0x1p-50;
    e->output[1] -= 0x1p-42;
    CHECK(is_known(e));
    e = example();
    e->output[0] += 1e-7;
    CHECK(!is_known(e));
    e = example();
    e->output[1] -= 1e-4;
    CHECK(!is_known(e));
    e = example();
    e->output[1] = (double)INFINITY;
    CHECK(!is_known(e));
}

/* Each in its turn. */
TEST(all_that_decides_a_verdict_counts)
{
    enum { CHANGES = 12 };
    for (int change = 0; change < CHANGES; change++) {
        struct example *e = example();
        struct launch *l = &e->source.launch[0];
        e->text[4] = change == 0 ? 'b' : 'a';
        e->seed = change == 1;
        e->c.has_q_start = change == 2;
        e->scene.tensor[0].block.data[15] ^= change == 3;
        l->threads += change == 4 ? 32 : 0;
        l->grid.scale += change == 5;
        l->early = change == 6;
        e->param[1].arg = change != 7;
        e->source.n_buffers = change == 8;
        e->scene.tensor[1].strides[0] += change == 9;
        e->c.may_refuse = change == 10;
        e->workshop.orders = change == 11;
        CHECK(!is_known(e));
    }
}

/* The code of a text, as a string. */
static const char *code_of(const char *text)
{
    static char code[200];
    CHECK(strlen(text) < sizeof code);
    code[code_text(text, strlen(text), code)] = 0;
    return code;
}

TEST(comments_and_blanks_are_no_code)
{
    CHECK_STR(code_of("int a; // one\n\n  /* two\n lines */ int  b;\n"), "int a;int b;");
    CHECK_STR(code_of("a /* x */ b/**/c\n"), "a b c");
    CHECK_STR(code_of("s = \"// no  comment \\\" /* */\"; // one\n"), "s=\"// no  comment \\\" /* */\";");
    CHECK_STR(code_of("n = 1'000; // one\nc = '\"'; // two\n"), "n=1'000;c='\"';");
    CHECK_STR(code_of("a / b // never closed"), "a/b");
    CHECK_STR(code_of("/* never closed"), "");
    CHECK_STR(code_of("'x"), "'x");
}

/* Blanks that make another token of two stay. */
TEST(tokens_stay_apart)
{
    CHECK_STR(code_of("a & &b && c\n&d"), "a& &b&&c&d");
    CHECK_STR(code_of("x - -y - z"), "x- -y-z");
    CHECK_STR(code_of("f(1 .5, a . b ? c : ::d)"), "f(1 .5,a.b?c: ::d)");
    CHECK_STR(code_of("return x\n+ y;"), "return x+y;");
    CHECK_STR(code_of("L \"a\" \"b\""), "L \"a\" \"b\"");
    CHECK_STR(code_of("L\"a\"\n\"b\""), "L\"a\" \"b\"");
}

TEST(a_directive_is_a_line)
{
    CHECK_STR(code_of("int a;\n#define A 1 \\\n    + 2\nint b;"), "int a;\n#define A 1+2\nint b;");
    CHECK_STR(code_of("#define F (x)\n#define F(x) \n\n  # if  0 // no\n"),
              "#define F (x)\n#define F(x)\n#if 0");
    CHECK_STR(code_of("#x /* two\nlines */ y\nz"), "#x y\nz");
}

TEST(a_comment_changes_no_digest)
{
    struct example *e = example();
    snprintf(e->text, sizeof e->text, "%s", " int a; // b");
    e->source.text[0].size = strlen(e->text);
    CHECK(is_known(e));
}

static void write_list(const char *folder, const char *group, const char *hex)
{
    char path[600];
    snprintf(path, sizeof path, "%s/emulate.%s.txt", folder, group);
    FILE *f = fopen(path, "w");
    CHECK(f != NULL);
    fprintf(f, "0000000000000000\n%.16s\nffffffffffffffff\n", hex);
    CHECK_EQ(fclose(f), 0);
}

static bool has_passed(struct store *s, const char *group, const char *said, char hex[STORE_HEX])
{
    struct sha256 digest;
    store_start(s, &digest, true);
    store_add_text(&digest, said);
    store_take_list(s, group);
    const bool passed = store_has_passed(s, group, &digest, hex);
    store_close(s);
    return passed;
}

TEST(a_list_speaks_for_what_it_names_alone)
{
    static struct store s;
    char hex[STORE_HEX];
    snprintf(s.lists, sizeof s.lists, "%s", check_temp_dir());
    s.known = true;
    CHECK(!has_passed(&s, "rows", "a case", hex)); /* there is no list */
    write_list(s.lists, "rows", hex);
    CHECK(has_passed(&s, "rows", "a case", hex));
    CHECK(!has_passed(&s, "rows", "another case", hex));
    CHECK(!has_passed(&s, "maps", "a case", hex));
    s.known = false; /* --fresh, LATHE_TEST_FULL */
    CHECK(!has_passed(&s, "rows", "a case", hex));
}

TEST(cases_that_are_not_known_run_while_there_is_time)
{
    CHECK(budget_begin() && !budget_is_limited());
    CHECK(budget_open(1e-9) && budget_is_limited());
    CHECK(budget_begin()); /* the first one */
    budget_end();
    CHECK(!budget_begin());
    CHECK(budget_open(1000.0) && budget_begin());
    budget_end();
    CHECK(budget_begin());
}
