/*
 * templates.h: the templates of rowwise.
 */
#ifndef LATHE_ROWWISE_TEMPLATES_H
#define LATHE_ROWWISE_TEMPLATES_H

#include "gen/plan/template.h"

extern const struct template_row rowwise_templates[];

#endif
