// Which options each benchmark of `rondo bench` heeds: what the help says and what the command refuses.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rondo::cli {

/// What `rondo bench` can measure.
const std::vector<std::string>& benchmarks();
/// The options, as "--batch", that benchmark `what` heeds.
std::vector<std::string> options_of(std::string_view what);
/// The benchmarks that heed `option`, as its help begins: "decode, prefill, train". Precondition: some do.
std::string heeded_by(std::string_view option);

}  // namespace rondo::cli
