/*
 * forms.h: cases of the same problem in every form of a call.
 */
#ifndef LATHE_TESTS_GPU_FORMS_H
#define LATHE_TESTS_GPU_FORMS_H

#include "cases.h"

/* Those of the group `forms`. */
void cases_of_forms(struct case_list *list, const char *group, bool quick);
void forms_check(const struct bench *bench, const struct test_case *whole, struct tally *tally);
void forms_name(const struct test_case *c, char *out, size_t size);

#endif
