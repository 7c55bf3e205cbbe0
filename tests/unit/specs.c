/*
 * specs.c: spec files end to end through the loader. In: tests/specs/good/NAME.ir, each the expected IR of
 * NAME.lua beside it or of the shipped specs/NAME.lua, and tests/specs/bad/NAME.lua, where the comment
 * `-- error: part` on a line stands for one mistake that must be reported there with that text
 * (`-- error in file: part` for a mistake of the whole file). Out: verdicts; --update rewrites the .ir files.
 * Every difference is printed before the test fails. Memory is freed here.
 */
#include "check.h"
#include "gen/gen.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>

enum { FILES_MAX = 256, EXPECTED_MAX = 24 };

struct file_text {
    char *data;
    size_t size;
};

struct names {
    int n;
    char name[FILES_MAX][64]; /* without folder and extension, sorted */
};

struct expected {
    int line; /* 0: of the whole file */
    char part[200];
    bool seen;
};

static bool read_file(const char *path, struct file_text *out)
{
    FILE *file = fopen(path, "rb");
    long size;
    bool good;

    out->data = NULL;
    if (file == NULL) {
        return false;
    }
    good = fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) >= 0 && fseek(file, 0, SEEK_SET) == 0;
    if (good) {
        out->size = (size_t)size;
        out->data = calloc(out->size + 1, 1);
        good = out->data != NULL && fread(out->data, 1, out->size, file) == out->size;
    }
    fclose(file);
    return good;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* The files of a folder with this extension. */
static void list_files(const char *folder, const char *extension, struct names *out)
{
    DIR *dir = opendir(check_source_path(folder));
    const struct dirent *entry;

    CHECK(dir != NULL);
    out->n = 0;
    while ((entry = readdir(dir)) != NULL) {
        const char *dot = strrchr(entry->d_name, '.');
        if (dot != NULL && strcmp(dot, extension) == 0 && dot - entry->d_name < (int)sizeof out->name[0]) {
            CHECK(out->n < FILES_MAX);
            snprintf(out->name[out->n++], sizeof out->name[0], "%.*s", (int)(dot - entry->d_name),
                     entry->d_name);
        }
    }
    closedir(dir);
    qsort(out->name, (size_t)out->n, sizeof out->name[0], by_name);
}

static void print_diag(const struct diag *diag)
{
    for (int i = 0; i < diag->n && i < DIAG_MAX; i++) {
        fprintf(stderr, "  %s:%d: %s\n", diag->entry[i].file, diag->entry[i].line, diag->entry[i].text);
    }
}

/* ---- good ---------------------------------------------------------------------------------------- */

/* The spec that belongs to NAME.ir: beside it, or shipped. */
static bool find_spec(const char *name, char *label, size_t size, struct file_text *text)
{
    const char *const folder[] = {"tests/specs/good", "specs"};

    for (int i = 0; i < 2; i++) {
        char path[160];
        snprintf(path, sizeof path, "%s/%s.lua", folder[i], name);
        if (read_file(check_source_path(path), text)) {
            snprintf(label, size, "%s.lua", name);
            return true;
        }
        free(text->data);
    }
    return false;
}

/* Lines of the prelude are cut from the text, or an edit there would change every golden file. */
static void forget_prelude_lines(char *text)
{
    static const char mark[] = "prelude.lua:";
    char *to = text;

    while (*text != '\0') {
        if (strncmp(text, mark, sizeof mark - 1) == 0) {
            memmove(to, mark, sizeof mark - 2);
            to += sizeof mark - 2;
            text += sizeof mark - 1;
            text += strspn(text, "0123456789");
        } else {
            *to++ = *text++;
        }
    }
    *to = '\0';
}

/* IR of a spec as text; data is NULL on failure, which is printed. */
static struct text_buf ir_text(const char *label, const struct file_text *text)
{
    struct text_buf out = {0};
    struct diag *diag = calloc(1, sizeof *diag);
    struct ir *ir;

    CHECK(diag != NULL);
    ir = spec_load(label, text->data, text->size, diag);
    if (ir == NULL) {
        fprintf(stderr, "%s does not load:\n", label);
        print_diag(diag);
    } else {
        ir_print(ir, &out);
        CHECK(out.data != NULL);
        forget_prelude_lines(out.data);
        out.size = strlen(out.data);
    }
    ir_free(ir);
    free(diag);
    return out;
}

static void print_first_difference(const char *name, const char *expected, const char *given)
{
    int line = 1;
    size_t start = 0;
    size_t i = 0;

    for (; expected[i] != '\0' && expected[i] == given[i]; i++) {
        if (expected[i] == '\n') {
            line++;
            start = i + 1;
        }
    }
    fprintf(stderr, "%s.ir:%d differs (--update rewrites it):\n  expected: %.*s\n  given:    %.*s\n", name,
            line, (int)strcspn(expected + start, "\n"), expected + start, (int)strcspn(given + start, "\n"),
            given + start);
}

static bool good_spec(const char *name)
{
    char label[80];
    char relative[160];
    const char *path;
    struct file_text spec = {NULL, 0};
    struct file_text golden = {NULL, 0};
    struct text_buf given;
    bool good = false;

    if (!find_spec(name, label, sizeof label, &spec)) {
        fprintf(stderr, "there is no %s.lua for %s.ir\n", name, name);
        return false;
    }
    given = ir_text(label, &spec);
    snprintf(relative, sizeof relative, "tests/specs/good/%s.ir", name);
    path = check_source_path(relative);
    if (given.data != NULL && check_update()) {
        FILE *file = fopen(path, "wb");
        good = file != NULL && fwrite(given.data, 1, given.size, file) == given.size;
        good = (file == NULL || fclose(file) == 0) && good;
    } else if (given.data != NULL && read_file(path, &golden)) {
        good = strcmp(golden.data, given.data) == 0;
        if (!good) {
            print_first_difference(name, golden.data, given.data);
        }
    }
    free(golden.data);
    free(spec.data);
    text_free(&given);
    return good;
}

TEST(good_specs_give_their_ir)
{
    struct names *names = calloc(1, sizeof *names);
    int wrong = 0;

    CHECK(names != NULL);
    list_files("tests/specs/good", ".ir", names);
    CHECK(names->n > 0);
    for (int i = 0; i < names->n; i++) {
        wrong += !good_spec(names->name[i]);
    }
    free(names);
    CHECK_EQ(wrong, 0);
}

/* A .lua without .ir compares nothing: --update creates it. */
TEST(good_specs_have_golden_text)
{
    struct names *names = calloc(1, sizeof *names);
    int missing = 0;

    CHECK(names != NULL);
    list_files("tests/specs/good", ".lua", names);
    for (int i = 0; i < names->n; i++) {
        char path[160];
        snprintf(path, sizeof path, "tests/specs/good/%s.ir", names->name[i]);
        if (access(check_source_path(path), R_OK) != 0 && !(check_update() && good_spec(names->name[i]))) {
            fprintf(stderr, "%s is missing (--update writes it)\n", path);
            missing++;
        }
    }
    free(names);
    CHECK_EQ(missing, 0);
}

TEST(shipped_specs_load)
{
    struct diag *diag = calloc(1, sizeof *diag);
    int n = 0;

    CHECK(diag != NULL);
    for (const struct embedded *file = embedded_files; file->name != NULL; file++) {
        if (strncmp(file->name, "specs/", 6) == 0 && strcmp(file->name, "specs/prelude.lua") != 0) {
            struct ir *ir = spec_load(file->name, file->data, file->size, diag);
            n++;
            ir_free(ir);
        }
    }
    print_diag(diag);
    CHECK_EQ(diag->n, 0);
    CHECK(n >= 19);
    free(diag);
}

/* Tracing twice gives the same text: node numbers must not depend on addresses. */
TEST(traces_are_deterministic)
{
    for (const struct embedded *file = embedded_files; file->name != NULL; file++) {
        struct file_text text = {NULL, file->size};
        struct text_buf once;
        struct text_buf again;
        if (strncmp(file->name, "specs/", 6) != 0 || strcmp(file->name, "specs/prelude.lua") == 0) {
            continue;
        }
        text.data = malloc(file->size + 1);
        CHECK(text.data != NULL);
        memcpy(text.data, file->data, file->size + 1);
        once = ir_text(file->name, &text);
        again = ir_text(file->name, &text);
        CHECK_STR(once.data, again.data);
        text_free(&once);
        text_free(&again);
        free(text.data);
    }
}

/* ---- bad ----------------------------------------------------------------------------------------- */

/* Collects the `-- error` comments of a spec. */
static int read_expected(const char *text, struct expected *out)
{
    static const char here[] = "-- error: ";
    static const char in_file[] = "-- error in file: ";
    int n = 0;
    int line = 1;

    for (const char *at = text; *at != '\0'; line++) {
        size_t length = strcspn(at, "\n");
        char row[512];
        const char *mark;
        snprintf(row, sizeof row, "%.*s", (int)length, at);
        mark = strstr(row, here);
        if (mark == NULL) {
            mark = strstr(row, in_file);
        }
        while (mark != NULL) { /* a line may have several */
            bool whole = strncmp(mark, in_file, sizeof in_file - 1) == 0;
            const char *part = mark + (whole ? sizeof in_file : sizeof here) - 1;
            mark = strstr(part, here);
            CHECK(n < EXPECTED_MAX);
            out[n].line = whole ? 0 : line;
            out[n].seen = false;
            snprintf(out[n].part, sizeof out[n].part, "%.*s",
                     mark != NULL ? (int)(mark - part - 1) : (int)strlen(part), part);
            n++;
        }
        at += length + (at[length] == '\n');
    }
    return n;
}

static bool match(struct expected *expected, int n, const struct diag_entry *given, const char *label)
{
    for (int i = 0; i < n; i++) {
        if (!expected[i].seen && expected[i].line == given->line &&
            strstr(given->text, expected[i].part) != NULL && strcmp(given->file, label) == 0) {
            expected[i].seen = true;
            return true;
        }
    }
    fprintf(stderr, "%s: reported, but not expected there:\n  %s:%d: %s\n", label, given->file, given->line,
            given->text);
    return false;
}

static bool bad_spec(const char *name)
{
    struct expected expected[EXPECTED_MAX];
    struct diag *diag = calloc(1, sizeof *diag);
    char label[80];
    char relative[160];
    struct file_text text;
    struct ir *ir;
    bool good;
    int n;

    CHECK(diag != NULL);
    snprintf(relative, sizeof relative, "tests/specs/bad/%s.lua", name);
    snprintf(label, sizeof label, "%s.lua", name);
    CHECK(read_file(check_source_path(relative), &text));
    n = read_expected(text.data, expected);
    ir = spec_load(label, text.data, text.size, diag);
    good = ir == NULL && n > 0;
    if (ir != NULL || n == 0) {
        fprintf(stderr, "%s: %s\n", label,
                n == 0 ? "has no '-- error' comment" : "loads, although it is wrong");
    }
    for (int i = 0; i < diag->n && i < DIAG_MAX; i++) {
        good = match(expected, n, &diag->entry[i], label) && good;
    }
    for (int i = 0; i < n; i++) {
        if (!expected[i].seen) {
            fprintf(stderr, "%s:%d: not reported: %s\n", label, expected[i].line, expected[i].part);
            good = false;
        }
    }
    ir_free(ir);
    free(text.data);
    free(diag);
    return good;
}

TEST(bad_specs_are_refused_with_line_and_reason)
{
    struct names *names = calloc(1, sizeof *names);
    int wrong = 0;

    CHECK(names != NULL);
    list_files("tests/specs/bad", ".lua", names);
    CHECK(names->n >= 25);
    for (int i = 0; i < names->n; i++) {
        wrong += !bad_spec(names->name[i]);
    }
    free(names);
    CHECK_EQ(wrong, 0);
}

static void check_refused(const char *text, size_t size, const char *part)
{
    struct diag *diag = calloc(1, sizeof *diag);
    struct ir *ir;

    CHECK(diag != NULL);
    ir = spec_load("wrong.lua", text, size, diag);
    CHECK(ir == NULL);
    CHECK(diag->n > 0);
    CHECK_STR(diag->entry[0].file, "wrong.lua");
    CHECK_HAS(diag->entry[0].text, part);
    free(diag);
}

TEST(texts_of_other_languages_are_told_what_to_write)
{
    static const char *const LINES[][2] = {
        {"return ge(at.q, at.kv) && ge(at.q, 1)", "; logic is a & b"},
        {"return ge(at.q, at.kv) || ge(at.q, 1)", "; logic is a | b"},
        {"return !ge(at.q, at.kv)", "; logic is ~a"},
        {"return at.q != at.kv -- !", "; write ne(a, b)"},
        {"return at.q ** 2", "; a power is a ^ b"},
        {"local n = 1 n += 1 return n", "; write s = s + a"},
        {"return at.q ? 1 : 2", "; a choice is where(c, a, b)"},
        {"return lambda s: s", "; a function is function(s, at) return ... end"},
        {"return 1 1 -- && ** '", "near '1'"},
    };

    for (size_t i = 0; i < sizeof LINES / sizeof *LINES; i++) {
        char text[200];
        struct diag *diag = calloc(1, sizeof *diag);
        CHECK(diag != NULL);
        snprintf(text, sizeof text, "return attention { mask_mod = function(at)\n%s end }", LINES[i][0]);
        CHECK(spec_load("t.lua", text, strlen(text), diag) == NULL);
        CHECK_EQ(diag->n, 1);
        CHECK_EQ(diag->entry[0].line, 2);
        CHECK_HAS(diag->entry[0].text, LINES[i][1]);
        CHECK((strchr(diag->entry[0].text, ';') != NULL) == (LINES[i][1][0] == ';'));
        free(diag);
    }
}

TEST(bytecode_is_refused)
{
    static const char bytecode[] = "\033Lua\x54\x00\x19\x93\r\n\x1a\n\x04\x08\x08xV";

    check_refused(bytecode, sizeof bytecode - 1, "bytecode");
}

TEST(empty_and_binary_texts_are_refused)
{
    static const char zeros[16] = {0};

    check_refused("", 0, "return");
    check_refused("-- nothing here", 15, "return");
    check_refused(zeros, sizeof zeros, "");
}

/* The text need not end in a zero byte: only `size` bytes of it are the spec. */
TEST(size_ends_the_text)
{
    static const char text[] = "return attention { mask_mod = causal } )]}";
    struct diag *diag = calloc(1, sizeof *diag);
    struct ir *ir;

    CHECK(diag != NULL);
    ir = spec_load("sized.lua", text, strlen("return attention { mask_mod = causal }"), diag);
    print_diag(diag);
    CHECK(ir != NULL);
    CHECK_STR(ir->name, "sized");
    CHECK_EQ(ir->kind, KIND_ATTENTION);
    ir_free(ir);
    free(diag);
}

/* Opening a FIFO to read waits for a writer. */
TEST(pipes_and_folders_are_refused)
{
    struct diag *diag = calloc(1, sizeof *diag);
    char path[600];

    CHECK(diag != NULL);
    snprintf(path, sizeof path, "%s/pipe.lua", check_temp_dir());
    CHECK_EQ(mkfifo(path, 0600), 0);
    CHECK(spec_load(path, NULL, 0, diag) == NULL);
    CHECK(spec_load(check_temp_dir(), NULL, 0, diag) == NULL);
    CHECK_EQ(diag->n, 2);
    CHECK_HAS(diag->entry[0].text, "is a pipe or a device; a spec is a regular file of text");
    CHECK_HAS(diag->entry[1].text, "is a folder; a spec is a regular file of text");
    free(diag);
}

TEST(missing_file_is_named)
{
    struct diag *diag = calloc(1, sizeof *diag);
    struct ir *ir;
    char path[600];

    CHECK(diag != NULL);
    snprintf(path, sizeof path, "%s/nothing.lua", check_temp_dir());
    ir = spec_load(path, NULL, 0, diag);
    CHECK(ir == NULL);
    CHECK_EQ(diag->n, 1);
    CHECK_HAS(diag->entry[0].file, "nothing.lua");
    free(diag);
}
