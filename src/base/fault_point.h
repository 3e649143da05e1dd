// Named places where a test kills the process, to prove that a resumed run is the same run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace rondo::fault {

/// Every fault point of the program, in the order a step passes them.
const std::vector<std::string>& points();

/// Arms "name:count": the count-th call of reach(name) raises SIGKILL. kInvalidArgument for an unknown name.
/// Called once, before other threads start.
Result<void> arm(std::string_view specification);

/// Marks the place. Does nothing unless armed.
void reach(std::string_view name);

}  // namespace rondo::fault
