// How drafts would fare on the responses of a trace, by running real suffix trees over their tokens.
#pragma once

#include "base/status.h"
#include "sim/draft_gain.h"
#include "sim/trace.h"

namespace rondo::sim {

/// Conditional acceptances by position: for each number of siblings, responses are decoded again with the
/// tree of so many siblings and of what they have generated themselves; a draft token is accepted while it is
/// the token that follows. A number of siblings that no group has takes the next smaller one's.
/// Of the first groups alone, and of a long response its beginning: what a few thousand tokens show.
/// kInvalidArgument if the trace has no tokens.
Result<DraftGain> measure_gain(const Trace& trace);

}  // namespace rondo::sim
