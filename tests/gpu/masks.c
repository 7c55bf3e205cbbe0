/*
 * masks.c: specs whose scores are large finite values where a mask would be, and what they are compared with.
 * In: the name of a row of specs.c. Out: its text, and the text that the reference is computed of; NULL: a
 * shipped spec.
 *
 * A value that is added leaves nothing of a score in f32: the reference, which has doubles, sets the value
 * itself, and the score's gradient goes through all the same.
 */
#include "cases.h"

#include <string.h>

#define LOWEST "-3.4028234663852886e38"
#define CHOSEN(value)                                                                                        \
    "return attention { score_mod = function(s, at) return where(ge(at.q, at.kv), s, " value ") end }"
#define ADDED(value)                                                                                         \
    "return attention { score_mod = function(s, at) return s + where(ge(at.q, at.kv), 0.0, " value ") end }"
#define REPLACED(value)                                                                                      \
    "return attention { score_mod = function(s, at)\n"                                                       \
    "  return where(ge(at.q, at.kv), s, s - detach(s) + " value ") end }"

static const struct {
    const char *name, *text, *reference;
} MASKS[] = {
    {"chosen_1e4", CHOSEN("-1e4"), CHOSEN("-1e4")},    {"chosen_1e6", CHOSEN("-1e6"), CHOSEN("-1e6")},
    {"chosen_1e7", CHOSEN("-1e7"), CHOSEN("-1e7")},    {"chosen_1e9", CHOSEN("-1e9"), CHOSEN("-1e9")},
    {"chosen_1e30", CHOSEN("-1e30"), CHOSEN("-1e30")}, {"chosen_lowest", CHOSEN(LOWEST), CHOSEN(LOWEST)},
    {"added_1e9", ADDED("-1e9"), REPLACED("-1e9")},    {"added_1e30", ADDED("-1e30"), REPLACED("-1e30")},
    {"added_lowest", ADDED(LOWEST), REPLACED(LOWEST)},
};
enum { N_MASKS = sizeof MASKS / sizeof MASKS[0] };

static int find(const char *name)
{
    for (int i = 0; i < N_MASKS; i++) {
        if (strcmp(MASKS[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

const char *mask_text(const char *name)
{
    const int i = find(name);
    return i < 0 ? NULL : MASKS[i].text;
}

const char *mask_reference(const char *name)
{
    const int i = find(name);
    return i < 0 ? NULL : MASKS[i].reference;
}
