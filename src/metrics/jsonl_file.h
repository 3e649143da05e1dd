// Files of one JSON object per line, each with a "step": cut back to a checkpoint when a run resumes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace rondo::metrics {

/// The whole lines of `text` with step <= `step`, each with its line end. A last line without a line end was
/// cut short and is dropped whatever it holds. kDataLoss with the line's number where another line is no row.
Result<std::vector<std::string_view>> rows_up_to_step(std::string_view text, std::int64_t step);

/// Rewrites the file to these lines, whole or not at all and durably; a file with nothing to cut is not
/// touched, and a missing file is none to cut. After an error the file is unchanged.
Result<void> cut_to_step(const std::filesystem::path& path, std::int64_t step);

}  // namespace rondo::metrics
