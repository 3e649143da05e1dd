// Expected failures as values: Status, Result<T>, and the macros that pass them up.
#pragma once

#include <fmt/format.h>

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace rondo {

/// What kind of failure it is, for callers that branch on it. The message is for people.
enum class Code {
  kInvalidArgument,    // the caller's or the user's input is wrong
  kNotFound,           // a file, key or id that does not exist
  kDataLoss,           // bytes that are truncated, corrupt or not what they claim to be
  kResourceExhausted,  // memory, disk or a budget is used up
  kIo,                 // the operating system refused
  kUnsupported,        // valid, but not something this build handles
  kNumeric,            // NaN, infinity or overflow where a number was needed
  kCancelled,          // asked to stop
  kDeadlineExceeded,   // a bounded wait ran out
  kUnavailable,        // a peer, child or instance that is gone
  kInternal,           // a library threw something unexpected
};

/// Returns the code's name as printed in messages, e.g. "invalid argument".
const char* code_name(Code code);

/// One failure: a code and a message that says what to do about it.
class [[nodiscard]] Status final {
 public:
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  /// Returns "code: message", for the terminal and logs.
  std::string to_string() const;
  /// Prefixes where it happened: "reading model: <message>".
  Status with_context(const std::string& context) &&;

 private:
  Code code_;
  std::string message_;
};

template <class T>
using Result = tl::expected<T, Status>;

/// Builds the error branch of any Result: `return fail(Code::kNotFound, "no file {}", path);`
template <class... Args>
tl::unexpected<Status> fail(Code code, fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected<Status>(Status(code, fmt::format(format, std::forward<Args>(args)...)));
}

}  // namespace rondo

#define RONDO_CONCAT_INNER_(a, b) a##b
#define RONDO_CONCAT_(a, b) RONDO_CONCAT_INNER_(a, b)

// Returns the error of `expr` (a Result) from the enclosing function, if there is one.
#define RONDO_TRY(expr)                                                                                   \
  do {                                                                                                    \
    auto rondo_try_result_ = (expr);                                                                      \
    if (!rondo_try_result_) return tl::unexpected<::rondo::Status>(std::move(rondo_try_result_).error()); \
  } while (false)

// RONDO_ASSIGN(auto x, f()): x is the value of f(), or its error is returned.
#define RONDO_ASSIGN(lhs, expr) RONDO_ASSIGN_IMPL_(RONDO_CONCAT_(rondo_result_, __LINE__), lhs, expr)
#define RONDO_ASSIGN_IMPL_(name, lhs, expr)                                   \
  auto name = (expr);                                                         \
  if (!name) return tl::unexpected<::rondo::Status>(std::move(name).error()); \
  lhs = *std::move(name)

// The same with a prefix for the message: RONDO_ASSIGN_CTX(auto x, f(), "reading the index").
#define RONDO_ASSIGN_CTX(lhs, expr, context) \
  RONDO_ASSIGN_CTX_IMPL_(RONDO_CONCAT_(rondo_result_, __LINE__), lhs, expr, context)
#define RONDO_ASSIGN_CTX_IMPL_(name, lhs, expr, context)                                            \
  auto name = (expr);                                                                               \
  if (!name) return tl::unexpected<::rondo::Status>(std::move(name).error().with_context(context)); \
  lhs = *std::move(name)
