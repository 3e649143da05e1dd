#include "base/status.h"

namespace rondo {

const char* code_name(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
      return "invalid argument";
    case Code::kNotFound:
      return "not found";
    case Code::kDataLoss:
      return "damaged data";
    case Code::kResourceExhausted:
      return "out of resources";
    case Code::kIo:
      return "input/output error";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kNumeric:
      return "numeric error";
    case Code::kCancelled:
      return "cancelled";
    case Code::kDeadlineExceeded:
      return "deadline exceeded";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kInternal:
      return "internal error";
  }
  return "unknown";
}

std::string Status::to_string() const {
  return fmt::format("{}: {}", code_name(code_), message_);
}

Status Status::with_context(const std::string& context) && {
  message_ = context + ": " + message_;
  return std::move(*this);
}

}  // namespace rondo
