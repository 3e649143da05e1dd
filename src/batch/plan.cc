#include "batch/plan.h"

namespace rondo::batch {

void Plan::clear() {
  tokens.clear();
  positions.clear();
  row_segments.clear();
  logit_rows.clear();
  segments.clear();
  tables.clear();
  copies.clear();
  preemptions.clear();
  evictions.clear();
  admissions.clear();
  version = -1;
}

}  // namespace rondo::batch
