/*
 * templates.h: the templates of elementwise.
 */
#ifndef LATHE_ELEMENTWISE_TEMPLATES_H
#define LATHE_ELEMENTWISE_TEMPLATES_H

#include "gen/plan/template.h"

extern const struct template_row elementwise_templates[];

#endif
