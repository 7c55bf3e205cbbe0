/*
 * cases_folder.c: cases of every spec in a folder, in place of the matrix: for specs that a script draws. In:
 * a folder. Out: attention forward and backward, by portable kernels and Hopper's, in f16 and bf16 by turns
 * and portable once more in f32, as linear attention; rows of four lengths in both passes, and maps, whose
 * dims have names of their own: a first line such as
 * `-- sizes: b=2,t=5 b=1,t=70` says how large. The texts are kept: cases point into them.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"

enum { MOST_BYTES = 1 << 16 };

static char *read_text(const char *folder, const char *name)
{
    char path[600];
    char *text = calloc(MOST_BYTES + 1, 1);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = text ? fopen(path, "rb") : NULL;
    if (f && fread(text, 1, MOST_BYTES, f) > 0 && fclose(f) == 0)
        return text;
    free(text);
    return NULL;
}

/* f32 is of portable kernels alone. */
enum { FORMS = 6 };
static const struct {
    int sm;
    lathe_pass pass;
    bool f32;
} FORM[FORMS] = {{80, LATHE_FORWARD, false},  {90, LATHE_FORWARD, false}, {80, LATHE_BACKWARD, false},
                 {90, LATHE_BACKWARD, false}, {80, LATHE_FORWARD, true},  {80, LATHE_BACKWARD, true}};

static lathe_dtype dtype_of(int form, int number)
{
    return FORM[form].f32 ? LATHE_F32 : number % 2 ? LATHE_F16 : LATHE_BF16;
}

static void add_attention(struct case_list *list, const char *spec, const char *text, int number)
{
    static const struct {
        int h, h_kv, q, kv;
        enum layout layout;
        bool deterministic;
    } SHAPES[] = {{4, 2, 130, 150, LAYOUT_COMPACT, true},
                  {2, 1, 65, 40, LAYOUT_PADDED, false},
                  {2, 1, 17, 300, LAYOUT_SWAPPED, false}};
    static const int DIM[] = {64, 128, 40, 192};
    const int d = DIM[number / 2 % 4];
    for (int form = 0; form < FORMS; form++)
        for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++) {
            const bool hopper = FORM[form].sm == 90;
            const char *const back = d > 128 ? "attention_bwd_wide_sm90" : "attention_bwd_sm90";
            struct test_case c =
                case_of_attention("specs", spec, text, dtype_of(form, number), d, d, FORM[form].sm);
            c.pass = FORM[form].pass;
            c.template_name = !hopper ? NULL : c.pass ? back : "attention_fwd_sm90";
            c.dim[SYM_B] = 1;
            c.dim[SYM_H] = SHAPES[i].h;
            c.dim[SYM_H_KV] = SHAPES[i].h_kv;
            c.dim[SYM_Q] = SHAPES[i].q;
            c.dim[SYM_KV] = SHAPES[i].kv;
            c.layout = SHAPES[i].layout;
            c.deterministic = c.pass == LATHE_BACKWARD && SHAPES[i].deterministic;
            c.may_refuse = true; /* with a reason */
            case_add(list, &c);
        }
}

static void add_linear(struct case_list *list, const char *spec, const char *text, int number)
{
    static const struct {
        int b, h, h_k, t;
        enum layout layout;
    } SHAPES[] = {{2, 4, 2, 70, LAYOUT_COMPACT}, {1, 2, 1, 133, LAYOUT_PADDED}, {3, 2, 2, 1, LAYOUT_SWAPPED}};
    static const int DIM[] = {64, 128, 32, 96};
    const int d = DIM[number / 2 % 4];
    for (int form = 0; form < FORMS; form++)
        for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++) {
            struct test_case c =
                case_of_attention("specs", spec, text, dtype_of(form, number), d, d, FORM[form].sm);
            c.pass = FORM[form].pass;
            c.dim[SYM_B] = c.dim[SYM_SEQS] = c.dim[SYM_SLOTS] = SHAPES[i].b;
            c.dim[SYM_H] = SHAPES[i].h;
            c.dim[SYM_H_K] = SHAPES[i].h_k;
            c.dim[SYM_T] = SHAPES[i].t;
            c.layout = SHAPES[i].layout;
            c.without = " cu state_index ";
            c.deterministic = c.pass == LATHE_BACKWARD;
            c.may_refuse = true;
            case_add(list, &c);
        }
}

static void add_rows(struct case_list *list, const char *spec, const char *text, int number)
{
    static const int N[] = {33, 256, 3001, 4096}; /* the last: rows that passes read again, where they do */
    for (int form = 0; form < 8; form++) {
        struct test_case c = case_of_attention("specs", spec, text,
                                               number % 3 == 0   ? LATHE_F32
                                               : number % 3 == 1 ? LATHE_F16
                                                                 : LATHE_BF16,
                                               -1, -1, form & 1 ? 90 : 80);
        c.pass = form & 1 ? LATHE_BACKWARD : LATHE_FORWARD;
        c.leading = 1;
        c.dim[SYM_ROWS0] = c.dim[SYM_ROWS1] = 1;
        c.dim[SYM_ROWS] = 7;
        c.dim[SYM_N] = N[form / 2];
        c.layout = form / 2 == 1 ? LAYOUT_MISALIGNED : LAYOUT_COMPACT;
        c.may_refuse = true;
        case_add(list, &c);
    }
}

static void add_maps(struct case_list *list, const char *spec, char *text, int number)
{
    static const char MARK[] = "-- sizes: ";
    static const lathe_dtype DTYPE[] = {LATHE_F32, LATHE_BF16, LATHE_F16};
    char *line = strncmp(text, MARK, sizeof MARK - 1) == 0 ? strdup(text + sizeof MARK - 1) : NULL;
    if (!line) {
        printf("FAILED: %s: expected a first line '%sNAME=SIZE,...'\n", spec, MARK);
        return;
    }
    line[strcspn(line, "\n")] = 0;
    char *rest = NULL;
    for (char *sizes = strtok_r(line, " ", &rest); sizes; sizes = strtok_r(NULL, " ", &rest))
        for (int pass = LATHE_FORWARD; pass <= LATHE_BACKWARD; pass++) {
            struct test_case c = case_of_attention("specs", spec, text, DTYPE[(number + pass) % 3], -1, -1,
                                                   number % 2 ? 80 : 90);
            for (int i = 0; i < SYM_COUNT; i++)
                c.dim[i] = -1;
            c.pass = (lathe_pass)pass;
            c.sizes = sizes;
            c.layout = (enum layout)((unsigned)(number + list->n) % LAYOUT_COUNT);
            c.may_refuse = true;
            case_add(list, &c);
        }
}

static int is_spec(const struct dirent *e)
{
    const size_t size = strlen(e->d_name);
    return size > 4 && strcmp(e->d_name + size - 4, ".lua") == 0;
}

bool cases_of_folder(struct case_list *list, const char *folder)
{
    struct dirent **entry = NULL;
    const int n = scandir(folder, &entry, is_spec, alphasort);
    memset(list, 0, sizeof *list);
    for (int i = 0; i < n; i++) {
        char *text = read_text(folder, entry[i]->d_name);
        char *name = strdup(entry[i]->d_name);
        if (!text || !name)
            printf("FAILED: %s/%s: cannot be read\n", folder, entry[i]->d_name);
        else if (strstr(text, "return attention"))
            add_attention(list, name, text, i);
        else if (strstr(text, "return linear_attention"))
            add_linear(list, name, text, i);
        else if (strstr(text, "return elementwise"))
            add_maps(list, name, text, i);
        else
            add_rows(list, name, text, i);
        free(entry[i]);
    }
    free(entry);
    return list->n > 0;
}
