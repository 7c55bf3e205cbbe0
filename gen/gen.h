/*
 * gen.h: the doors of the generator's folders, in the order of the pipeline. For who stands outside: the
 * tool, the run time that compiles, tests. Files of a folder include what they use. No CUDA header may be
 * included anywhere below gen/, and Lua is seen by gen/lang alone.
 */
#ifndef LATHE_GEN_H
#define LATHE_GEN_H

#include "gen/base/text.h"
#include "gen/base/diag.h"
#include "gen/base/embedded.h"
#include "gen/base/facts.h"
#include "gen/ir/ir.h"
#include "gen/ir/spec.h"
#include "gen/ir/rules.h"
#include "gen/ir/scalar.h"
#include "gen/ir/random.h"
#include "gen/ir/eval.h"
#include "gen/ir/tensor.h"
#include "gen/derive/diff.h"
#include "gen/arguments/signature.h"
#include "gen/arguments/problem.h"
#include "gen/arguments/input_ranges.h"
#include "gen/arguments/sequences.h"
#include "gen/arguments/slots.h"
#include "gen/lang/load.h"
#include "gen/host/call.h"
#include "gen/elementwise/gradient.h"
#include "gen/attention/mask_tiles.h"
#include "gen/attention/places.h"
#include "gen/linear/carry.h"
#include "gen/plan/plan.h"
#include "gen/pipeline/devices.h"
#include "gen/pipeline/explain.h"
#include "gen/pipeline/kernel.h"
#include "gen/pipeline/pick.h"
#include "gen/pipeline/source.h"
#include "gen/prove/index_ranges.h"
#include "gen/prove/proof.h"

#endif
