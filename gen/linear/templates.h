/*
 * templates.h: the templates of linear attention.
 */
#ifndef LATHE_LINEAR_TEMPLATES_H
#define LATHE_LINEAR_TEMPLATES_H

#include "gen/plan/template.h"

extern const struct template_row linear_templates[];

#endif
