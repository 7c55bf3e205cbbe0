/*
 * templates.h: the templates of attention.
 */
#ifndef LATHE_ATTENTION_TEMPLATES_H
#define LATHE_ATTENTION_TEMPLATES_H

#include "gen/plan/template.h"

extern const struct template_row attention_templates[];

#endif
