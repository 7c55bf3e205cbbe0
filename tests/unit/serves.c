/*
 * serves.c: every request is served, or refused by sentences; the reference has the list of what is served.
 */
#include "plan_pick.h"
#include "gen/pipeline/explain.h"

#include <stdlib.h>

/* Sizes of any spec that ships; those that it has not are left out. */
static const char *const SIZES[] = {"",
                                    ",d=64",
                                    ",h=4,q=64,d=64",
                                    ",t=64,d=64",
                                    ",n=256",
                                    ",n=256,groups_of=8,channels_of=32",
                                    ",t=64,d=64,features=32",
                                    ",h=4,q=64,d=64,blocks=4"};

static bool parse_sizes(const struct signature *sig, const char *dtype, struct problem *problem)
{
    char text[96];
    bool parsed = false;
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES && !parsed; i++) {
        lathe_error err;
        snprintf(text, sizeof text, "dtype=%s%s", dtype, SIZES[i]);
        parsed = problem_parse(sig, text, problem, &err) == LATHE_OK;
    }
    return parsed;
}

/* A line for each template: its name, a colon and words that are not cut off. */
static bool are_sentences(const char *text)
{
    bool all = text[0] != '\0';
    for (const char *line = text; *line && all;) {
        const size_t size = strcspn(line, "\n");
        const char *colon = memchr(line, ':', size);
        all = colon && line + size - colon > 8 && size < 40 + REASON_BYTES;
        line += size + (line[size] == '\n');
    }
    return all;
}

static bool is_served_or_refused(const struct ir *ir, lathe_pass pass, const struct problem *problem,
                                 const struct device *device)
{
    struct plan plan;
    lathe_error err = {.status = LATHE_OK};
    const lathe_status status = plan_of(ir, pass, problem, device, &plan, &err);
    const bool good = status == LATHE_OK || (status == LATHE_UNSUPPORTED && are_sentences(err.text));
    if (!good)
        fprintf(stderr, "%s, pass %d, %s: %d, '%s'\n", ir->name, (int)pass, device->arch, (int)status,
                err.text);
    return good;
}

TEST(every_request_is_served_or_refused_by_sentences)
{
    static const char *const DTYPE[] = {"f16", "bf16", "f32", "f64"};
    static const struct device *const DEVICE[] = {&A100, &RTX4090, &H100};
    int asked = 0;
    for (const struct embedded *e = embedded_files; e->name; e++) {
        char name[64];
        if (strncmp(e->name, "specs/", 6) != 0 || strcmp(e->name, "specs/prelude.lua") == 0)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)strlen(e->name) - 10, e->name + 6);
        for (lathe_pass pass = LATHE_FORWARD; pass <= LATHE_BACKWARD; pass++) {
            struct signature sig;
            struct problem problem;
            struct ir *ir = load_signed(name, pass, &sig);
            for (int k = 0; k < 12; k++) {
                if (!parse_sizes(&sig, DTYPE[k / 3], &problem))
                    continue;
                CHECK(is_served_or_refused(ir, pass, &problem, DEVICE[k % 3]));
                asked++;
            }
            ir_free(ir);
        }
    }
    CHECK(asked > 1500);
}

/* What a template does not take is taken by the one that its refusal names. */
TEST(refusals_name_templates_that_serve)
{
    static const struct {
        const char *problem, *refusal, *other;
    } row[] = {
        {"dtype=f32,d=64", "attention_fwd_sm90: dtype f32; it takes f16 and bf16 (", "attention_fwd_sm80"},
        {"dtype=bf16,d=60", "attention_fwd_sm90: d = 60; it takes multiples of 8 from 16 to 256 (",
         "attention_fwd_sm80"},
        {"dtype=bf16,d=64,folded=k", "attention_fwd_sm90: k is folded", "attention_fwd_sm80"},
        {"dtype=bf16,d=512,q=1", "attention_fwd_sm90: d = 512; it takes multiples of 8 from 16 to 256 (",
         "attention_mla"}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const struct device only = asking_for(&H100, "attention_fwd_sm90");
        const struct device other = asking_for(&H100, row[i].other);
        struct plan plan;
        lathe_error err;
        char takes[64];
        CHECK_EQ(pick("causal", row[i].problem, &only, &plan, &err), LATHE_UNSUPPORTED);
        CHECK_HAS(err.text, row[i].refusal);
        snprintf(takes, sizeof takes, "%s takes that)", row[i].other);
        CHECK_HAS(err.text, takes);
        CHECK_EQ(pick("causal", row[i].problem, &other, &plan, &err), LATHE_OK);
    }
}

TEST(queries_of_8_bits_have_a_kernel_by_name)
{
    static const struct {
        const char *spec, *problem, *why;
    } row[] = {
        {"causal", "q=f8e4m3,k=f8e4m3,v=f8e4m3,d=128", NULL},
        {"softcap", "q=f8e4m3,k=f8e4m3,v=f8e4m3,o=f16,d=256", NULL},
        {"sigmoid", "q=f8e4m3,k=f8e4m3,v=f8e4m3,d=64,d_v=112", NULL},
        {"causal", "d=128", "q is not of f8e4m3"},
        {"causal", "q=f8e4m3,k=f8e4m3,v=f8e4m3,d=72", "d = 72; it takes multiples of 16"},
        {"causal", "q=f8e4m3,k=f8e4m3,v=f8e4m3,d=64,unaligned=k", "rows of k of f8e4m3 do not start"},
        {"causal", "q=f8e4m3,k=f8e4m3,v=f8e4m3,d=64,folded=q", "rows of q of f8e4m3 do not start"},
        {"causal", "q=f8e4m3,k=f8e4m3,v=f8e4m3,d=64,seqs=3", "cu_q is given"},
        {"rope", "q=f8e4m3,k=f8e4m3,v=f8e4m3,d=64", "a mod of q, k or v"},
        {"relu", "q=f8e4m3,k=f8e4m3,v=f8e4m3,d=64", "nothing bounds the weights"},
        {"causal", "q=f8e4m3,k=f8e4m3,v=f8e4m3,d=64,part_o=f32,part_rows=f32", "part_o is asked for"},
        {"causal", "dtype=f32,q=f8e4m3,k=f8e4m3,v=f8e4m3,d=64", "dtype f32; it takes f16, bf16 and f8e4m3"},
    };
    const struct device named = asking_for(&H100, "attention_fwd_fp8_sm90");
    struct plan plan;
    lathe_error err;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const lathe_status wanted = row[i].why ? LATHE_UNSUPPORTED : LATHE_OK;
        CHECK_EQ(pick(row[i].spec, row[i].problem, &named, &plan, &err), wanted);
        if (row[i].why)
            CHECK_HAS(err.text, row[i].why);
        else
            CHECK(plan.attention.turned && !plan.attention.optimistic && !plan.bound_waits);
    }
    CHECK_EQ(pick("causal", row[0].problem, &H100, &plan, &err), LATHE_OK);
    CHECK(strcmp(plan.row->name, named.template_name) == 0);
}

static char *read_page(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, 1 << 16);
    if (!file || !text || fread(text, 1, (1 << 16) - 1, file) == 0)
        fprintf(stderr, "%s cannot be read\n", path);
    if (file)
        (void)fclose(file);
    return text;
}

TEST(the_reference_has_the_list_of_templates)
{
    struct text_buf list = {0};
    explain_templates(&list);
    char *page = read_page(check_source_path("specs/reference/templates.md"));
    CHECK(!list.failed && page);
    if (!strstr(page, list.data))
        fprintf(stderr, "specs/reference/templates.md lacks this list:\n%s", list.data);
    CHECK(strstr(page, list.data));
    free(page);
    text_free(&list);
}
