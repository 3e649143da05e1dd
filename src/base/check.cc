#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace rondo::internal {

void check_failed(const char* file, int line, const char* expression, const std::string& detail) {
  std::fprintf(stderr, "%s:%d: check failed: %s%s%s\n", file, line, expression,
               detail.empty() ? "" : " with ", detail.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace rondo::internal
